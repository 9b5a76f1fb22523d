//! The laws of per-CPU values: what is put into slots comes out of them once, whoever takes it,
//! stops them or replaces it; and each slot is made once and dropped once.

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use coreline::percpu::{PerCpuPool, PoolOptions, ResizableStack, Slot, StopError, Stopped};
use coreline::{IndexBy, PerCpu};
use coreline_sim::{Faults, Machine, Sim};
use coreline_world::model::Model;
use coreline_world::{
    Cell, Integer, JoinHandle, Native, Ordering, Placement, Testbed, Word, Words,
};

use crate::worlds::{self, Effort, FEW, MANY, MODEL, NATIVE, TORN};

/// What goes in and out of slots. Whoever has it may use it, like a block of memory.
struct Token<W: Testbed> {
    number: usize,
    holders: W::U64,
    uses: Cell<u64, W>,
}

impl<W: Testbed> Token<W> {
    fn new_in(number: usize) -> Self {
        Token { number, holders: W::U64::new_in(0), uses: Cell::new_in(0) }
    }

    /// Notes that the caller has the token.
    fn enter(&self) {
        // Relaxed, here and below: that the slots order the holders is what is tested.
        assert_eq!(self.holders.fetch_add(1, Ordering::Relaxed), 0, "a token came out twice");
        // SAFETY: no other thread has the token; that is what is tested.
        self.uses.with_mut(|uses| unsafe { *uses += 1 });
    }

    fn leave(&self) {
        // SAFETY: the caller has the token, and no other thread has: that is what is tested.
        self.uses.with_mut(|uses| unsafe { *uses += 1 });
        assert_eq!(self.holders.fetch_sub(1, Ordering::Relaxed), 1, "a token went in twice");
    }
}

type Tokens<W> = Vec<NonNull<Token<W>>>;

/// A slot that tokens go through.
trait Bag<W: Testbed>: Slot {
    fn new_in() -> Self;
    /// Puts the token into the calling thread's slot; `false` if that is full.
    ///
    /// # Safety
    ///
    /// The caller has the token, which lives until it was taken.
    unsafe fn put(slots: &PerCpu<Self, W>, token: NonNull<Token<W>>) -> bool
    where
        Self: Sized;
    fn take(slots: &PerCpu<Self, W>) -> Option<NonNull<Token<W>>>
    where
        Self: Sized;
    /// Takes all that is in a slot.
    fn drain(slot: &Stopped<'_, Self, W>) -> Tokens<W>
    where
        Self: Sized;
    /// Puts back what there is room for, from the end.
    ///
    /// # Safety
    ///
    /// As for [`put`](Bag::put).
    unsafe fn restore(slot: &Stopped<'_, Self, W>, tokens: &mut Tokens<W>)
    where
        Self: Sized;
}

const ROOM: usize = 4;

impl<W: Testbed> Bag<W> for ResizableStack<Token<W>, ROOM, W> {
    fn new_in() -> Self {
        ResizableStack::with_capacity_in(ROOM)
    }

    unsafe fn put(slots: &PerCpu<Self, W>, token: NonNull<Token<W>>) -> bool {
        slots.field(|stack| stack).push(token).is_ok()
    }

    fn take(slots: &PerCpu<Self, W>) -> Option<NonNull<Token<W>>> {
        slots.field(|stack| stack).pop()
    }

    fn drain(slot: &Stopped<'_, Self, W>) -> Tokens<W> {
        let mut tokens = [None; ROOM + 1];
        let popped = slot.field(|stack| stack).pop_batch(&mut tokens);
        tokens[..popped].iter().map(|token| token.expect("as many as it says")).collect()
    }

    unsafe fn restore(slot: &Stopped<'_, Self, W>, tokens: &mut Tokens<W>) {
        tokens.reverse();
        let pushed = slot.field(|stack| stack).push_batch(tokens);
        tokens.drain(..pushed);
    }
}

/// A slot with several fields, all of which are used at once.
struct Several<W: Testbed> {
    words: [W::U64; 3],
    stack: ResizableStack<Token<W>, ROOM, W>,
    spare: ResizableStack<Token<W>, ROOM, W>,
}

// SAFETY: a struct.
unsafe impl<W: Testbed> Slot for Several<W> {}

impl<W: Testbed> Several<W> {
    fn word(&self) -> &W::U64 {
        &self.words[1]
    }
}

impl<W: Testbed> Bag<W> for Several<W> {
    fn new_in() -> Self {
        Several {
            words: [0; 3].map(W::U64::new_in),
            stack: ResizableStack::with_capacity_in(ROOM),
            spare: ResizableStack::with_capacity_in(ROOM),
        }
    }

    unsafe fn put(slots: &PerCpu<Self, W>, token: NonNull<Token<W>>) -> bool {
        slots.field(|slot| &slot.stack).push_batch(&[token]) == 1
            || slots.field(|slot| &slot.spare).push(token).is_ok()
    }

    fn take(slots: &PerCpu<Self, W>) -> Option<NonNull<Token<W>>> {
        let mut token = [None];
        match slots.field(|slot| &slot.stack).pop_batch(&mut token) {
            0 => slots.field(|slot| &slot.spare).pop(),
            _ => token[0],
        }
    }

    fn drain(slot: &Stopped<'_, Self, W>) -> Tokens<W> {
        let mut tokens = [None; 2 * ROOM];
        let popped = slot.field(|slot| &slot.stack).pop_batch(&mut tokens);
        let spare = slot.field(|slot| &slot.spare).pop_batch(&mut tokens[popped..]);
        tokens[..popped + spare].iter().flatten().copied().collect()
    }

    unsafe fn restore(slot: &Stopped<'_, Self, W>, tokens: &mut Tokens<W>) {
        let pushed = slot.field(|slot| &slot.stack).push_batch(tokens);
        tokens.drain(..pushed);
        let pushed = slot.field(|slot| &slot.spare).push_batch(tokens);
        tokens.drain(..pushed);
    }
}

/// Threads put tokens into their slots and take others out; the first thread stops the slots, takes
/// all out and puts them elsewhere. In the end each token is somewhere, once.
fn tokens_are_conserved<W: Testbed, B: Bag<W>>(effort: Effort, by: IndexBy) {
    let slots = Arc::new(PerCpu::<B, W>::new_in(by, B::new_in).unwrap());
    let each = if W::RUNS { 3 } else { 1 };
    let tokens: Arc<Vec<_>> =
        Arc::new((0..effort.threads as usize * each).map(Token::<W>::new_in).collect());
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|number| {
            let (slots, tokens) = (Arc::clone(&slots), Arc::clone(&tokens));
            let place = if number % 3 == 2 { Placement::Anywhere } else { place(number) };
            W::spawn(place, move || {
                let mut held: Vec<_> = (number as usize * each..).take(each).collect();
                held.iter().for_each(|&number| tokens[number].enter());
                for round in 0..effort.rounds {
                    for _ in 0..=round % 3 {
                        let Some(number) = held.pop() else { break };
                        tokens[number].leave();
                        // SAFETY: in no slot, and lives as long as the slots.
                        if !unsafe { B::put(&slots, NonNull::from(&tokens[number])) } {
                            tokens[number].enter();
                            held.push(number);
                        }
                    }
                    for _ in 0..=round % 2 {
                        // SAFETY: tokens live as long as the slots.
                        let token = B::take(&slots).map(|token| unsafe { token.as_ref() });
                        if let Some(token) = token {
                            token.enter();
                            held.push(token.number);
                        }
                    }
                }
                held
            })
            .unwrap()
        })
        .collect();
    for _ in 0..effort.rounds.div_ceil(8) {
        let mut taken: Tokens<W> = slots
            .with_all_stopped(|slots| slots.flat_map(|slot| B::drain(&slot)).collect())
            .unwrap();
        // SAFETY: tokens live as long as the slots.
        let token = |at: &NonNull<Token<W>>| unsafe { at.as_ref() };
        taken.iter().map(token).for_each(Token::enter);
        taken.iter().map(token).for_each(Token::leave);
        for index in (0..slots.populated()).chain([slots.indexes()]) {
            // SAFETY: drained, so in no slot, and `tokens` keeps them alive.
            slots.with_stopped(index, |slot| unsafe { B::restore(&slot, &mut taken) }).unwrap();
        }
        while let Some(left) = taken.pop() {
            // SAFETY: drained or taken out, so in no slot, and `tokens` keeps it alive.
            if !unsafe { B::put(&slots, left) } {
                taken.push(left);
                // Room appears when a thread takes: each takes at least once a round.
                taken.extend(B::take(&slots));
            }
        }
    }
    let mut found: Vec<usize> = threads.into_iter().flat_map(JoinHandle::join).collect();
    let rest: Tokens<W> =
        slots.with_all_stopped(|slots| slots.flat_map(|slot| B::drain(&slot)).collect()).unwrap();
    // SAFETY: tokens live as long as the slots.
    found.extend(rest.iter().map(|token| unsafe { token.as_ref() }.number));
    found.sort_unstable();
    assert!(found.iter().copied().eq(0..tokens.len()), "tokens were lost or doubled: {found:?}");
}

type Stack<W> = ResizableStack<Token<W>, ROOM, W>;

#[test]
fn tokens_are_conserved_natively() {
    let effort = Effort { rounds: NATIVE.rounds / 10, ..NATIVE };
    tokens_are_conserved::<Native, Stack<Native>>(effort, IndexBy::Cpu);
    tokens_are_conserved::<Native, Several<Native>>(effort, IndexBy::Cpu);
    if PerCpuPool::global(IndexBy::KernelCid).is_ok() {
        tokens_are_conserved::<Native, Stack<Native>>(effort, IndexBy::KernelCid);
    }
}

#[test]
fn tokens_are_conserved_on_384_simulated_cpus() {
    // Few threads: the slots are stopped one by one, and each stop interrupts all CPUs.
    const EVERY_FOURTH: Effort = Effort { threads: 96, ..MANY };
    let law = || tokens_are_conserved::<Sim, Several<Sim>>(EVERY_FOURTH, IndexBy::Cpu);
    worlds::simulate("percpu::several", "epyc-9654-2s", Faults::default(), law).unwrap();
}

#[test]
fn tokens_are_conserved_under_preemption_between_any_two_steps() {
    let law = || tokens_are_conserved::<Sim, Stack<Sim>>(FEW, IndexBy::Cpu);
    worlds::simulate("percpu::stack", "host-2c", TORN, law).unwrap();
    let law = || tokens_are_conserved::<Sim, Several<Sim>>(FEW, IndexBy::KernelCid);
    worlds::simulate("percpu::several_by_cid", "host-2c", TORN, law).unwrap();
}

#[test]
fn tokens_are_conserved_in_every_interleaving() {
    // One thread beside the first, which stops the slots: two are beyond every interleaving.
    const ONE: Effort = Effort { threads: 1, ..MODEL };
    worlds::check(|| tokens_are_conserved::<Model, Stack<Model>>(ONE, IndexBy::Cpu));
}

#[test]
fn a_stack_without_the_abort_check_is_caught() {
    let law = || tokens_are_conserved::<Sim, Stack<Sim>>(FEW, IndexBy::Cpu);
    let faults = Faults { missed_aborts: true, ..TORN };
    let failure = worlds::simulate("percpu::stack", "host-2c", faults, law).unwrap_err();
    // Two threads hold a token: one says so, or nothing orders what they do to it.
    let text = failure.to_string();
    assert!(text.contains("token") || text.contains("data race"), "{failure}");
}

/// Threads add to words, two of which are beside that of another; the first thread stops the slots
/// and takes the sums away.
fn words_are_conserved<W: Testbed>(effort: Effort, by: IndexBy) {
    let slots = Arc::new(PerCpu::<Several<W>, W>::new_in(by, Several::new_in).unwrap());
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|number| {
            let slots = Arc::clone(&slots);
            let visit = move |_| {
                slots.field(Several::word).add(2);
                2 + u64::from(slots.field(Several::word).add_if(1, 1 << 63).is_ok())
            };
            let place = if number % 3 == 2 { Placement::Anywhere } else { place(number) };
            W::spawn(place, move || (0..effort.rounds).map(visit).sum::<u64>()).unwrap()
        })
        .collect();
    let mut replaced = 0;
    let mut take = || {
        let emptied = slots.with_all_stopped(|slots| {
            replaced += slots.map(|slot| slot.field(Several::word).replace(0)).sum::<u64>();
        });
        emptied.unwrap();
    };
    (0..effort.rounds.div_ceil(8)).for_each(|_| take());
    let added: u64 = threads.into_iter().map(JoinHandle::join).sum();
    take();
    assert_eq!(replaced, added, "additions were lost");
    // The other words belong to no thread.
    assert_eq!(slots.field(|slot| &slot.words[0]).sum(), 0);
    assert_eq!(slots.field(|slot| &slot.words[2]).sum(), 0);
}

#[test]
fn words_are_conserved_natively() {
    words_are_conserved::<Native>(NATIVE, IndexBy::Cpu);
}

#[test]
fn words_are_conserved_when_simulated() {
    let law = || words_are_conserved::<Sim>(FEW, IndexBy::Cpu);
    worlds::simulate("percpu::words", "host-2c", TORN, law).unwrap();
    let law = || words_are_conserved::<Sim>(FEW, IndexBy::KernelCid);
    worlds::simulate("percpu::words_by_cid", "host-2c", TORN, law).unwrap();
}

#[test]
fn words_are_conserved_in_every_interleaving() {
    worlds::check(|| {
        let effort = Effort { threads: 1, ..MODEL };
        words_are_conserved::<Model>(effort, IndexBy::Cpu);
    });
}

/// What can be asked of stopping that cannot be had.
fn refusals<W: Testbed>() {
    let slots = PerCpu::<W::U64, W>::new_in(IndexBy::Cpu, || W::U64::new_in(0)).unwrap();
    let indexes = slots.indexes();
    let populated = slots.populated();
    assert_eq!(
        slots.with_stopped(populated, |_| ()),
        Err(StopError::NoSuchSlot { index: populated, populated, indexes })
    );
    assert!(slots.with_stopped(indexes + 1, |_| ()).is_err());
    assert!(slots.with_stopped(usize::MAX, |_| ()).is_err());
    slots.field(|word| word).add(5);
    let nested = slots.with_stopped(indexes, |slot| {
        slot.field(|word| word).add(7);
        // Goes to the shared slot: nothing waits for the stop.
        slots.field(|word| word).add(11);
        assert_eq!(slots.with_stopped(indexes, |_| ()), Err(StopError::Nested));
        slots.with_all_stopped(|slots| slots.count())
    });
    assert_eq!(nested, Ok(Err(StopError::Nested)));
    // Open again, and all is there.
    slots.field(|word| word).add(1);
    assert_eq!(slots.field(|word| word).sum(), 24);
    let count = slots.with_all_stopped(|slots| slots.count());
    assert_eq!(count, Ok(slots.populated() + 1));
}

#[test]
fn stopping_twice_is_refused_in_every_world() {
    refusals::<Native>();
    worlds::simulate("percpu::refusals", "host-2c", TORN, refusals::<Sim>).unwrap();
    worlds::check(refusals::<Model>);
}

/// Counts how many of it were made and dropped.
struct Counted<W: Testbed> {
    word: W::U64,
    dropped: Arc<W::U64>,
}

// SAFETY: a struct: every value has the same live fields in the same places.
unsafe impl<W: Testbed> Slot for Counted<W> {}

impl<W: Testbed> Drop for Counted<W> {
    fn drop(&mut self) {
        // Relaxed: the reader has joined the threads.
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Each slot is made once, though threads race to be the first there, and dropped once.
fn slots_are_made_once<W: Testbed>(effort: Effort, by: IndexBy) {
    let (made, dropped) = (Arc::new(W::U64::new_in(0)), Arc::new(W::U64::new_in(0)));
    let init = {
        let (made, dropped) = (Arc::clone(&made), Arc::clone(&dropped));
        move || {
            made.fetch_add(1, Ordering::Relaxed);
            Counted::<W> { word: W::U64::new_in(1), dropped: Arc::clone(&dropped) }
        }
    };
    let slots = Arc::new(PerCpu::<_, W>::new_in(by, init).unwrap());
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|number| {
            let slots = Arc::clone(&slots);
            W::spawn(place(number), move || slots.field(|slot| &slot.word).add(1)).unwrap()
        })
        .collect();
    threads.into_iter().for_each(JoinHandle::join);
    let there = slots.populated() as u64 + 1;
    assert_eq!(slots.iter().count() as u64, there);
    assert_eq!(slots.field(|slot| &slot.word).sum(), there + u64::from(effort.threads));
    assert_eq!(made.load(Ordering::Relaxed), there, "slots were made twice");
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    drop(slots);
    assert_eq!(dropped.load(Ordering::Relaxed), there, "as many as were made");
}

#[test]
fn slots_are_made_and_dropped_once_in_every_world() {
    slots_are_made_once::<Native>(NATIVE, IndexBy::Cpu);
    let law = || slots_are_made_once::<Sim>(MANY, IndexBy::Cpu);
    worlds::simulate("percpu::made_once", "epyc-9654-2s", Faults::default(), law).unwrap();
    let law = || slots_are_made_once::<Sim>(FEW, IndexBy::KernelCid);
    worlds::simulate("percpu::made_once_by_cid", "host-2c", TORN, law).unwrap();
    worlds::check(|| slots_are_made_once::<Model>(MODEL, IndexBy::Cpu));
}

#[test]
fn an_init_that_panics_leaves_pool_and_slots_usable_natively() {
    use std::sync::atomic::{AtomicU64, Ordering};

    // Which call panics: the one for the shared slot, and those for the slots of CPUs.
    for bad in 0..3 {
        let (made, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let pool = PerCpuPool::new(PoolOptions::new().checked(true)).unwrap();
        let init = {
            let (calls, made, dropped) =
                (AtomicU64::new(0), Arc::clone(&made), Arc::clone(&dropped));
            move || {
                assert_ne!(calls.fetch_add(1, Ordering::Relaxed), bad, "planted");
                made.fetch_add(1, Ordering::Relaxed);
                Counted::<Native> { word: AtomicU64::new(0), dropped: Arc::clone(&dropped) }
            }
        };
        let slots = catch_unwind(AssertUnwindSafe(|| pool.per_cpu(init).unwrap()));
        assert_eq!(slots.is_err(), bad == 0);
        assert_eq!(pool.live(), usize::from(bad != 0), "after a panic in call {bad}");
        if let Ok(slots) = slots {
            let add = || slots.field(|slot| &slot.word).add(1);
            let added = (0..3).filter(|_| catch_unwind(AssertUnwindSafe(add)).is_ok()).count();
            assert_eq!(slots.field(|slot| &slot.word).sum(), added as u64);
            assert_eq!(slots.with_all_stopped(|slots| slots.count()), Ok(slots.populated() + 1));
            drop(slots);
        }
        let (made, dropped) = (made.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed));
        assert_eq!(made, dropped, "of what was made before the panic in call {bad}");
        assert_eq!(pool.close(), Ok(()));
    }
}

type SimWord = <Sim as Words>::U64;

/// Makes an array, with this many bytes of its own.
#[inline(never)]
fn make<const PADDING: usize>() -> PerCpu<SimWord, Sim> {
    let padding = black_box([0_u8; PADDING]);
    let array = PerCpu::<SimWord, Sim>::new_in(IndexBy::Cpu, || SimWord::new_in(0)).unwrap();
    black_box(&padding);
    array
}

/// Nanoseconds until one array is made, and then another, farther down the stack or not.
fn making<const PADDING: usize>() -> u64 {
    let law = || _ = black_box((make::<0>(), make::<PADDING>()));
    Machine::preset("host-2c").unwrap().run(law).unwrap().report.time_ns
}

/// An array is made on its maker's stack and then moved: how a compiler lays out that stack must
/// not decide what a simulation says.
#[test]
fn what_it_takes_to_make_an_array_depends_on_no_stack_frame() {
    let times = [
        making::<16>(),
        making::<32>(),
        making::<48>(),
        making::<64>(),
        making::<80>(),
        making::<96>(),
        making::<112>(),
        making::<128>(),
    ];
    assert!(times.iter().all(|time| *time == times[0]), "{times:?}");
}
