//! The law of presence: a context that enters while a shootdown is under way runs its function or
//! sees its effect, and after the shootdown no context works with what was cached before.
//!
//! The thing that is cached is which of several pages is current. A thread that replaces a page
//! shoots at all contexts and then scribbles over the old page. So a context that still works with
//! it is seen: by the model checker as two accesses at once, elsewhere by what it reads.

use std::cell::Cell as HostCell;
use std::sync::Arc;
use std::time::Duration;

use coreline::mask::{Entry, Inside, Late, Presence, PresenceOptions, Shot, Versioned};
use coreline_sim::{Faults, Sim};
use coreline_world::model::{Model, Plant};
use coreline_world::{Cell, JoinHandle, Line, Native, Ordering, Testbed, Word, WorldLocal};

use crate::worlds::{self, Effort, FEW, MANY, NATIVE, PREEMPTED, is_caught, is_caught_by};

const ALIVE: u64 = 7;
const SCRIBBLE: u64 = 0xdead;

/// The pages, and the contexts that may have cached one.
struct Book<W: Testbed> {
    presence: Presence<W>,
    current: W::Usize,
    pages: Box<[Line<Cell<u64, W>>]>,
}

/// How often the shootdown's function ran in the calling context.
static FLUSHES: WorldLocal = WorldLocal::new("flushes");

fn flushes<W: Testbed>() -> u32 {
    FLUSHES.with::<W, HostCell<u32>, _>(|| HostCell::new(0), HostCell::get)
}

fn flush<W: Testbed>() {
    FLUSHES.with::<W, HostCell<u32>, _>(|| HostCell::new(0), |count| count.set(count.get() + 1));
}

impl<W: Testbed> Book<W> {
    /// A context works: enters, looks at its page, polls, leaves.
    fn work(&self, rounds: u32) {
        let mut member = self.presence.register();
        let mut cached = usize::MAX;
        let mut flushed = flushes::<W>();
        for round in 0..rounds {
            let (mut inside, mut entry) = member.enter();
            for look in 0..2 {
                if entry == Entry::MustRefresh || flushes::<W>() != flushed {
                    flushed = flushes::<W>();
                    // Acquire: pairs with the Release in `replace`: the page is whole.
                    cached = self.current.load(Ordering::Acquire);
                }
                self.look(cached);
                // It leaves in the end with a call unanswered, if there is one.
                entry = if look == 0 && round % 2 == 0 { inside.poll() } else { Entry::Current };
            }
        }
    }

    fn look(&self, page: usize) {
        // SAFETY: a page that is current, or that is not scribbled over before we have polled or
        // left: that is what is tested.
        let value = self.pages[page].with(|at| unsafe { at.read_volatile() });
        assert_eq!(value, ALIVE, "page {page} is used after all were told");
    }

    /// The current page is replaced.
    fn replace(&self, page: usize, shoot: impl FnOnce(&(dyn Fn() + Sync))) {
        // Release: pairs with the Acquire in `work`.
        self.current.store(page, Ordering::Release);
        shoot(&flush::<W>);
        // SAFETY: no context works with the old page any more: that is what is tested.
        self.pages[page - 1].with_mut(|at| unsafe { at.write_volatile(SCRIBBLE) });
    }
}

/// Contexts work while the first thread replaces pages.
fn told<W: Testbed>(effort: Effort, pages: usize, trim_every: Duration) {
    let options = PresenceOptions::new().seats(effort.threads as usize + 1).trim_every(trim_every);
    let page = |_| Line(Cell::new_in(ALIVE));
    let book = Arc::new(Book::<W> {
        presence: Presence::new_in(options),
        current: W::Usize::new_in(0),
        pages: (0..pages).map(page).collect(),
    });
    let threads = effort.crew::<W, _, _>(|_| {
        let book = Arc::clone(&book);
        move || book.work(effort.rounds)
    });
    for page in 1..pages {
        book.replace(page, |f| {
            book.presence.shootdown(f);
        });
    }
    threads.into_iter().for_each(JoinHandle::join);
}

const ALWAYS: Duration = Duration::ZERO;
const NEVER: Duration = Duration::from_secs(3600);

#[test]
fn everybody_is_told_natively() {
    for trim_every in [ALWAYS, Duration::from_micros(100), NEVER] {
        told::<Native>(NATIVE, 200, trim_every);
    }
}

#[test]
fn everybody_is_told_on_384_simulated_cpus() {
    let law = || {
        told::<Sim>(Effort { rounds: 20, ..MANY }, 10, ALWAYS);
        told::<Sim>(Effort { rounds: 20, ..MANY }, 10, NEVER);
    };
    worlds::simulate("presence::told", "epyc-9654-2s", Faults::default(), law).unwrap();
}

#[test]
fn everybody_is_told_with_preempted_contexts() {
    let law = || {
        told::<Sim>(Effort { rounds: 40, ..FEW }, 10, ALWAYS);
        told::<Sim>(Effort { rounds: 40, ..FEW }, 10, NEVER);
    };
    worlds::simulate("presence::told", "host-2c", PREEMPTED, law).unwrap();
}

/// One context, twice inside, and one page replaced: it can be away with its bit set.
const TWICE: Effort = Effort { threads: 1, rounds: 2, cpus: 1 };

#[test]
fn everybody_is_told_in_every_interleaving() {
    worlds::check(|| told::<Model>(TWICE, 2, ALWAYS));
    worlds::check(|| told::<Model>(TWICE, 2, NEVER));
}

#[test]
fn missing_orderings_are_caught() {
    assert!(is_caught(Plant::NO_LIGHT_FENCES, || told::<Model>(TWICE, 2, ALWAYS)));
    assert!(is_caught(Plant::NO_HEAVY_FENCES, || told::<Model>(TWICE, 2, ALWAYS)));
    assert!(is_caught(Plant::RELAXED_STORES, || told::<Model>(TWICE, 2, NEVER)));
}

/// Contexts that shoot at each other while they are inside.
fn crossing<W: Testbed>(effort: Effort) {
    let options = PresenceOptions::new().seats(effort.threads as usize).trim_every(ALWAYS);
    let presence = Presence::<W>::new_in(options);
    let ran = Arc::new(W::U32::new_in(0));
    let threads = effort.crew::<W, _, _>(|_| {
        let (presence, ran) = (presence.clone(), Arc::clone(&ran));
        move || {
            let mut member = presence.register();
            let mut reached = 0;
            for _ in 0..effort.rounds {
                let (mut inside, _) = member.enter();
                reached += shoot_from(&mut inside, &ran);
            }
            reached
        }
    });
    let reached: usize = threads.into_iter().map(JoinHandle::join).sum();
    let ran = ran.load(Ordering::Relaxed) as usize;
    assert!(ran <= reached, "{ran} calls, {reached} contexts reached");
    assert!(ran >= (effort.threads * effort.rounds) as usize, "each ran its own at least");
}

fn shoot_from<W: Testbed>(inside: &mut Inside<'_, W>, ran: &W::U32) -> usize {
    use coreline_world::Integer;
    let (shot, _) = inside.shootdown(|| {
        ran.fetch_add(1, Ordering::Relaxed);
    });
    shot.reached
}

#[test]
fn contexts_can_shoot_at_each_other_in_every_world() {
    crossing::<Native>(Effort { rounds: 200, ..NATIVE });
    let law = || crossing::<Sim>(Effort { rounds: 5, ..FEW });
    worlds::simulate("presence::crossing", "host-2c", Faults::default(), law).unwrap();
    // Two announcers have many more interleavings than one.
    let crossing = || crossing::<Model>(Effort { threads: 2, rounds: 1, cpus: 2 });
    worlds::fewest_planted(Plant::NONE, crossing);
}

/// What a versioned value holds: a page that dies with it.
struct Page<W: Testbed> {
    words: Line<Cell<u64, W>>,
}

impl<W: Testbed> Page<W> {
    fn new_in() -> Self {
        Page { words: Line(Cell::new_in(ALIVE)) }
    }
}

impl<W: Testbed> Drop for Page<W> {
    fn drop(&mut self) {
        // The checker has found what it looks for, and unwinds what it abandons.
        if std::thread::panicking() {
            return;
        }
        // Through the cell, so that the world sees it as a write beside a late read.
        // SAFETY: no other thread has the page: that is what is tested.
        self.words.with_mut(|at| unsafe { at.write_volatile(SCRIBBLE) });
    }
}

/// Readers read while the first thread updates.
fn versions<W: Testbed>(effort: Effort, updates: u32, trim_every: Duration) {
    let options = PresenceOptions::new().seats(effort.threads as usize).trim_every(trim_every);
    let value = Versioned::<Page<W>, W>::new_in(Page::new_in(), options);
    let threads = effort.crew::<W, _, _>(|_| {
        let value = value.clone();
        move || {
            let reader = value.reader();
            for _ in 0..effort.rounds {
                let mut reading = reader.enter();
                for _ in 0..2 {
                    let page = reading.get();
                    // SAFETY: a page that is read is not freed: that is what is tested.
                    let alive = page.words.with(|at| unsafe { at.read_volatile() });
                    assert_eq!(alive, ALIVE, "a page is read after it was freed");
                }
            }
        }
    });
    for _ in 0..updates {
        value.update(Page::new_in());
    }
    threads.into_iter().for_each(JoinHandle::join);
    value.synchronize();
    assert_eq!(value.retired(), 0, "no thread reads any more");
}

#[test]
fn what_is_read_is_not_freed_natively() {
    for trim_every in [ALWAYS, NEVER] {
        versions::<Native>(NATIVE, 500, trim_every);
    }
}

#[test]
fn what_is_read_is_not_freed_in_simulation() {
    let law = || {
        versions::<Sim>(Effort { rounds: 20, ..MANY }, 10, ALWAYS);
        versions::<Sim>(Effort { rounds: 20, ..MANY }, 10, NEVER);
    };
    worlds::simulate("presence::versions", "epyc-9654-2s", Faults::default(), law).unwrap();
    let law = || {
        versions::<Sim>(Effort { rounds: 40, ..FEW }, 20, ALWAYS);
        versions::<Sim>(Effort { rounds: 40, ..FEW }, 20, NEVER);
    };
    worlds::simulate("presence::versions", "host-2c", PREEMPTED, law).unwrap();
}

#[test]
fn what_is_read_is_not_freed_in_every_interleaving() {
    for trim_every in [ALWAYS, NEVER] {
        worlds::check_by(FREES, Plant::NONE, move || versions::<Model>(TWICE, 1, trim_every));
    }
}

/// The preemptions after which a value may be freed early: a reader leaves with its bit set, and is
/// back while the update is between what it says and its look at the reader.
const FREES: usize = 3;

#[test]
fn an_early_free_is_caught() {
    for plant in [Plant::NO_LIGHT_FENCES, Plant::NO_HEAVY_FENCES] {
        assert!(is_caught_by(FREES, plant, || versions::<Model>(TWICE, 1, ALWAYS)));
    }
    assert!(is_caught(Plant::RELAXED_STORES, || versions::<Model>(TWICE, 1, NEVER)));
}

/// The answers to questions, in the order of a program's life.
fn answers<W: Testbed>() {
    let options = PresenceOptions::new().seats(1).trim_every(NEVER);
    let presence = Presence::<W>::new_in(options);
    let mut first = presence.register();
    assert_eq!(first.enter().1, Entry::MustRefresh, "for the first time");
    assert_eq!(first.enter().1, Entry::Current);
    // The first shootdown may trim, the second may not: either way it must refresh.
    for _ in 0..2 {
        let shot = presence.shootdown(|| unreachable!("no context is present"));
        assert_eq!((shot.reached, shot.away), (0, 1));
        assert_eq!(first.enter().1, Entry::MustRefresh);
        assert_eq!(first.enter().1, Entry::Current);
    }
    drop(first);
    // A seat that was used is as good as new.
    let mut again = presence.register();
    assert_eq!(again.enter().1, Entry::MustRefresh);
    const OTHERS: usize = 9;
    // More than there were: seats are added, and a shootdown reaches those.
    let mut others: Vec<_> = (0..OTHERS).map(|_| presence.register()).collect();
    let mut insides: Vec<_> = others.iter_mut().map(|member| member.enter().0).collect();
    let mut refreshed = 0;
    let late = presence.shootdown_by(W::now(), || unreachable!("no context looks"));
    assert_eq!(late, Err(Late::Missed { late: OTHERS, shot: Shot { reached: 0, away: 1 } }));
    for inside in &mut insides {
        refreshed += usize::from(inside.poll() == Entry::MustRefresh);
    }
    assert_eq!(refreshed, OTHERS, "the function is not run any more");
    drop(insides);
    let shot = presence.shootdown_by(W::now(), || unreachable!("no context is present"));
    assert_eq!(shot, Ok(Shot { reached: 0, away: OTHERS + 1 }));
}

#[test]
fn entries_say_what_was_missed_in_every_world() {
    answers::<Native>();
    worlds::simulate("presence::answers", "host-2c", Faults::default(), answers::<Sim>).unwrap();
    worlds::check(answers::<Model>);
}

#[test]
fn a_panic_in_a_call_frees_the_announcer_natively() {
    let presence = Presence::new();
    let (entered, wait) = std::sync::mpsc::channel();
    let theirs = presence.clone();
    let context = std::thread::spawn(move || {
        let mut member = theirs.register();
        let (mut inside, _) = member.enter();
        entered.send(()).unwrap();
        loop {
            let _ = inside.poll();
            std::thread::yield_now();
        }
    });
    wait.recv().unwrap();
    let shot = presence.shootdown(|| panic!("in a call"));
    assert_eq!(shot.reached, 1);
    assert!(context.join().is_err(), "the panic is the context's");
    assert_eq!(presence.shootdown(|| ()).reached, 0);
}
