//! Data races: two unordered accesses to plain data, one of which writes.
//!
//! A run is sequentially consistent, so a missing ordering changes no value that it sees. A missing
//! ordering still shows, because each access states the ordering that it requests. A thread knows
//! as much of another thread's past as releases, acquires, and the starts and ends of threads have
//! passed on. Each thread has a vector clock. Each atomic word has one for what it passes on. Each
//! piece of plain data has its last write and the reads since then. (The source is Flanagan and
//! Freund, ["FastTrack: efficient and precise dynamic race
//! detection"](https://doi.org/10.1145/1542476.1542490), PLDI 2009. The short form of clocks is
//! left out.) Two accesses race if the later one's thread does not know of the earlier one.
//!
//! | what | passes on |
//! |---|---|
//! | a release store, or one behind a release fence | what the thread knows |
//! | a relaxed store | nothing, and what the word had is gone |
//! | an update | what it adds, and what the word had: a release sequence goes on |
//! | a light fence, a heavy one | as a `SeqCst` fence, also two light ones, which natively do not |
//! | a restartable operation, also one that aborts | from each one on a slot to the next on that |
//! | a fence of restartable operations | from and to all of them |
//! | an object that threads find by a static | from the thread that has made it |
//! | the drop of an `Arc` | from each one to those after it |
//! | an interrupt | from its sender to its handler |
//!
//! So the detector may find a race that this run's values do not show. It does not find a race that
//! needs another schedule, but other seeds and schedules give other runs. There are no false
//! alarms, unless the program shares plain data by means that the machine does not see: words of
//! std, references that std was given (by a `Waker`), or a kernel's hook. In doubtful cases, the
//! detector assumes more order than there is. An access counts only at its beginning. A load that
//! finds the value before a store on its way acquires everything that the word has ever passed on.
//! Each drop of an `Arc` acquires, not only the last one.

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use coreline_topology::CpuId;
use coreline_world::Ordering;

use super::{Engine, inside, stop, with};
use crate::hardware::arena;
use crate::results::failure::{FailureKind, PlainAccess};
use crate::results::report::{Site, SourceSite};

thread_local! {
    /// Whether the machine of this host thread looks for races. Separate from the engine, so that
    /// an access in a machine without race detection pays only for the check of this field.
    static ARE_LOOKED_FOR: Cell<bool> = const { Cell::new(false) };
    static RACES: RefCell<Option<Races>> = const { RefCell::new(None) };
    /// Whether the access to a word that is put down next has found the value before a store.
    static HAS_FOUND_BEFORE: Cell<bool> = const { Cell::new(false) };
}

/// For each thread, by number: how far its past is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Clock(Vec<u32>);

impl Clock {
    fn get(&self, thread: usize) -> u32 {
        self.0.get(thread).copied().unwrap_or(0)
    }

    fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

#[derive(Debug, Default)]
struct Thread {
    /// The knowledge of the thread. Its own part counts what it has passed on.
    knows: Clock,
    /// The knowledge that its relaxed loads found, which an acquire fence would add.
    found: Clock,
    /// The knowledge that its relaxed stores pass on: its knowledge at its last release fence.
    fenced: Clock,
}

/// An access to plain data.
#[derive(Debug, Clone, Copy)]
struct Touch {
    thread: usize,
    cpu: CpuId,
    /// The thread's own part of its clock at that time.
    at: u32,
    site: Site,
    writes: bool,
}

impl Touch {
    fn plain(self) -> PlainAccess {
        let Touch { thread, cpu, site, writes, .. } = self;
        PlainAccess { thread, cpu, site: SourceSite::of(site), writes }
    }
}

/// The knowledge that a word passes on to a load, and all that it has ever passed on.
#[derive(Debug, Default)]
struct Passed {
    now: Clock,
    ever: Clock,
}

/// A piece of plain data that was accessed as a whole.
#[derive(Debug, Default)]
struct Piece {
    write: Option<Touch>,
    /// Since that write; one of a thread.
    reads: Vec<Touch>,
}

#[derive(Debug, Default)]
struct Races {
    threads: Vec<Thread>,
    words: BTreeMap<usize, Passed>,
    /// The pieces by address and length. Memory that is used again may hold pieces of other
    /// lengths.
    pieces: BTreeMap<(usize, usize), Piece>,
    /// The longest piece: no other one reaches an address from further away.
    longest: usize,
    /// The knowledge that restartable operations on each slot pass on. Apart from `words`: a slot's
    /// first word has its address.
    slots: BTreeMap<usize, Clock>,
    /// The knowledge that all restartable operations have passed on, and all their fences.
    operations: Clock,
    fences: Clock,
}

impl Races {
    fn thread(&mut self, thread: usize) -> &mut Thread {
        while self.threads.len() <= thread {
            let mut knows = Clock(vec![0; self.threads.len() + 1]);
            // From 1 on: 0 is what a thread that was told nothing knows.
            knows.0[self.threads.len()] = 1;
            self.threads.push(Thread { knows, ..Thread::default() });
        }
        &mut self.threads[thread]
    }

    /// The knowledge that the thread passes on now. It does not cover what the thread does later.
    fn release(&mut self, thread: usize) -> Clock {
        let this = self.thread(thread);
        let known = this.knows.clone();
        this.knows.0[thread] += 1;
        known
    }

    fn acquire(&mut self, thread: usize, from: &Clock) {
        self.thread(thread).knows.join(from);
    }

    fn loaded(&mut self, thread: usize, word: usize, order: Ordering) {
        let has_found_before = HAS_FOUND_BEFORE.take();
        let Some(passed) = self.words.get(&word) else { return };
        let passed = if has_found_before { &passed.ever } else { &passed.now }.clone();
        let this = self.thread(thread);
        let to = if acquires(order) { &mut this.knows } else { &mut this.found };
        to.join(&passed);
    }

    fn stored(&mut self, thread: usize, word: usize, order: Ordering) {
        let passed = self.passed(thread, order);
        let word = self.words.entry(word).or_default();
        word.ever.join(&passed);
        word.now = passed;
    }

    fn updated(&mut self, thread: usize, word: usize, order: Ordering) {
        self.loaded(thread, word, order);
        let passed = self.passed(thread, order);
        let word = self.words.entry(word).or_default();
        word.ever.join(&passed);
        word.now.join(&passed);
    }

    /// The knowledge that a write of this order passes on.
    fn passed(&mut self, thread: usize, order: Ordering) -> Clock {
        match releases(order) {
            true => self.release(thread),
            false => self.thread(thread).fenced.clone(),
        }
    }

    fn fenced(&mut self, thread: usize, order: Ordering) {
        let this = self.thread(thread);
        if acquires(order) {
            let found = core::mem::take(&mut this.found);
            this.knows.join(&found);
        }
        if releases(order) {
            let known = self.release(thread);
            self.thread(thread).fenced = known;
        }
    }

    /// Memory is new: what was there before is another piece of data.
    fn forget(&mut self, start: usize, len: usize) {
        let end = start.saturating_add(len);
        while let Some((&word, _)) = self.words.range(start..end).next() {
            self.words.remove(&word);
        }
        while let Some((&slot, _)) = self.slots.range(start..end).next() {
            self.slots.remove(&slot);
        }
        let mut from = (start.saturating_sub(self.longest), 0);
        while let Some((&piece @ (at, len), _)) = self.pieces.range(from..(end, 0)).next() {
            from = (at, len + 1);
            if at + len > start {
                self.pieces.remove(&piece);
            }
        }
    }

    /// An access to `len` bytes. Returns an earlier one that nothing orders before it.
    fn touched(&mut self, start: usize, len: usize, touch: Touch) -> Option<Touch> {
        self.longest = self.longest.max(len);
        let knows = &self.threads[touch.thread].knows;
        let is_known = |earlier: &Touch| earlier.at <= knows.get(earlier.thread);
        let near = (start.saturating_sub(self.longest), 0)..(start.saturating_add(len), 0);
        for (&(at, long), piece) in self.pieces.range(near) {
            if at + long <= start {
                continue;
            }
            let reads = piece.reads.iter().filter(|_| touch.writes);
            if let Some(&racing) = piece.write.iter().chain(reads).find(|it| !is_known(it)) {
                return Some(racing);
            }
        }
        let piece = self.pieces.entry((start, len)).or_default();
        if touch.writes {
            piece.reads.clear();
            piece.write = Some(touch);
        } else {
            piece.reads.retain(|read| read.thread != touch.thread);
            piece.reads.push(touch);
        }
        None
    }
}

pub(super) fn acquires(order: Ordering) -> bool {
    matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
}

fn releases(order: Ordering) -> bool {
    matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
}

/// Whether the machine of this host thread looks for races.
#[inline(always)]
pub(crate) fn are_looked_for() -> bool {
    ARE_LOOKED_FOR.get()
}

/// Turns race detection on or off for a machine that begins on this host thread.
pub(super) fn begin(looks: bool) {
    // Not touched without need: they have destructors, and a machine may run in one of those of its
    // host thread.
    if looks || are_looked_for() {
        RACES.set(looks.then(Races::default));
        arena::log_allocations(looks);
        ARE_LOOKED_FOR.set(looks);
    }
}

/// The machine ends.
pub(super) fn end() {
    begin(false);
}

/// Calls `f` with the running thread, in a machine that looks for races. In a kernel's hook there
/// is no thread, and nothing is recorded.
fn note<R>(f: impl FnOnce(&mut Races, usize, &Engine) -> R) -> Option<R> {
    let noted = with(|engine| {
        RACES.with_borrow_mut(|races| {
            let races = races.as_mut()?;
            arena::take_allocations(|start, len| races.forget(start, len));
            Some(f(races, engine.current(), engine))
        })
    });
    noted.flatten()
}

macro_rules! accesses {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(word: usize, order: Ordering) {
            #[cold]
            fn slowly(word: usize, order: Ordering) {
                note(|races, thread, _| races.$name(thread, word, order));
            }
            if are_looked_for() {
                slowly(word, order);
            }
        }
    )+};
}

accesses! {
    /// The running thread has loaded a word.
    loaded
    /// It has stored to it.
    stored
    /// It has updated it.
    updated
}

/// The running thread finds the value before a store in flight. The next call records the effect.
pub(crate) fn found_before() {
    if are_looked_for() {
        HAS_FOUND_BEFORE.set(true);
    }
}

/// It has passed a fence.
pub(crate) fn fenced(order: Ordering) {
    if are_looked_for() {
        note(|races, thread, _| races.fenced(thread, order));
    }
}

/// It has started a thread, whose stack begins at this address.
pub(super) fn started(child: usize, stack: (usize, usize)) {
    if are_looked_for() {
        note(|races, thread, _| {
            let (limit, base) = stack;
            races.forget(limit, base - limit);
            let known = races.release(thread);
            races.acquire(child, &known);
        });
    }
}

/// It has seen the end of a thread, if there is one of that number.
pub(super) fn joined(child: usize) {
    if are_looked_for() {
        note(|races, thread, engine| {
            if child < engine.threads.len() {
                let known = races.release(child);
                races.acquire(thread, &known);
            }
        });
    }
}

/// The machine starts a thread after all others have ended.
pub(super) fn started_last(last: usize) {
    if !are_looked_for() {
        return;
    }
    RACES.with_borrow_mut(|races| {
        let Some(races) = races else { return };
        for thread in 0..races.threads.len() {
            let known = races.release(thread);
            races.acquire(last, &known);
        }
    });
}

/// The knowledge of the running thread, for the handler of an interrupt that it sends.
pub(crate) fn sent() -> Option<Sent> {
    if !are_looked_for() {
        return None;
    }
    note(|races, thread, _| Sent(races.release(thread)))
}

/// The knowledge that an interrupt passes on.
pub(crate) struct Sent(Clock);

impl Sent {
    /// The handler of the interrupt begins, on the running thread.
    pub(crate) fn arrived(self) {
        note(|races, thread, _| races.acquire(thread, &self.0));
    }
}

/// The running thread is in a restartable operation on the slot at this address.
pub(crate) fn has_slot(slot: usize) {
    if are_looked_for() {
        note(|races, thread, _| {
            let mut passed = races.fences.clone();
            passed.join(races.slots.entry(slot).or_default());
            races.acquire(thread, &passed);
        });
    }
}

/// It has completed that, or broken it off, having perhaps written what does not count yet.
pub(crate) fn left_slot(slot: usize) {
    if are_looked_for() {
        note(|races, thread, _| {
            let known = races.release(thread);
            races.slots.entry(slot).or_default().join(&known);
            races.operations.join(&known);
        });
    }
}

/// A fence of restartable operations.
pub(crate) fn fenced_sections() {
    if !are_looked_for() {
        return;
    }
    note(|races, thread, _| {
        let passed = races.operations.clone();
        races.acquire(thread, &passed);
        let known = races.release(thread);
        races.fences.join(&known);
    });
}

/// The running thread accesses plain data. Stops the machine if that races.
#[inline(always)]
pub(crate) fn touched(start: usize, len: usize, writes: bool, site: Site) {
    if are_looked_for() && len > 0 {
        touched_slowly(start, len, writes, site);
    }
}

#[cold]
fn touched_slowly(start: usize, len: usize, writes: bool, site: Site) {
    let racing = note(|races, thread, engine| {
        let at = races.thread(thread).knows.get(thread);
        let touch = Touch { thread, cpu: engine.cpu(), at, site, writes };
        races.touched(start, len, touch).map(|earlier| (earlier.plain(), touch.plain()))
    });
    let Some((earlier, later)) = racing.flatten() else { return };
    inside(|engine| engine.fail(FailureKind::DataRace { earlier, later, len }));
    stop();
}
