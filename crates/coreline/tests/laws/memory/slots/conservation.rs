//! Laws of slots that many threads use, and that another one stops meanwhile: whatever was put in
//! is somewhere, once.

use core::ptr::{self, NonNull};
use std::sync::Arc;

use coreline::percpu::{Field, ResizableStack, StopError, Stopped, StoppedField};
use coreline::{IndexBy, PerCpu};
use coreline_world::{Cell, Integer, JoinHandle, Native, Ordering, Slot, Testbed, Word, World};

use super::{Dice, crew, words};

/// How many threads there are, how many things each begins with, and how often each takes its turn.
#[derive(Clone, Copy)]
struct Effort {
    crew: usize,
    things: usize,
    turns: usize,
    stops: usize,
}

/// With one more thread that stops them, the model has enough of one thread. Where time is real,
/// more turns make a stress test.
fn effort<W: Testbed>(stop: bool) -> Effort {
    let (turns, stops) = if W::NAME == Native::NAME { (4_000, 200) } else { (400, 20) };
    match (W::RUNS, stop) {
        (true, false) => Effort { crew: 5, things: 4, turns, stops: 0 },
        (true, true) => Effort { crew: 5, things: 4, turns, stops },
        (false, false) => Effort { crew: 2, things: 1, turns: 2, stops: 0 },
        (false, true) => Effort { crew: 1, things: 1, turns: 2, stops: 1 },
    }
}

/// Whether the error of a stop says only that this machine cannot fence sections.
fn lacking(error: &StopError) -> bool {
    matches!(error, StopError::Lacking(_))
}

/// Slots of this kind. Not every world has concurrency IDs.
fn slots_of<T: Slot, W: Testbed>(
    by: IndexBy,
    init: impl Fn() -> T + Send + Sync + 'static,
) -> Option<Arc<PerCpu<T, W>>> {
    let slots = PerCpu::new_in(by, init);
    assert!(slots.is_ok() || by == IndexBy::KernelCid, "{slots:?}");
    slots.ok().map(Arc::new)
}

/// What threads hold at the end, and what is left in the slots, is what there was at the beginning.
fn assert_conserved(found: impl Iterator<Item = usize>, things: usize) {
    let mut found: Vec<usize> = found.collect();
    found.sort_unstable();
    assert!(found.iter().copied().eq(0..things), "lost or doubled: {found:?} of {things}");
}

/// What goes through slots, by number. A thread that has one in hand may use it, like a block of
/// memory.
struct Things<W: Testbed>(Vec<Cell<usize, W>>);

impl<W: Testbed> Things<W> {
    fn new_in(count: usize) -> Arc<Self> {
        Arc::new(Things((0..count).map(|_| Cell::new_in(0)).collect()))
    }

    /// Uses these.
    fn touch(&self, taken: &[usize]) {
        for &number in taken {
            // SAFETY: no other thread has it in hand, and the slots order its holders: that is what
            // is tested.
            self.0[number].with_mut(|uses| unsafe { *uses += 1 });
        }
    }

    /// How often any was used.
    fn uses(&self) -> usize {
        // SAFETY: the threads that used them are joined.
        self.0.iter().map(|thing| thing.with(|uses| unsafe { *uses })).sum()
    }
}

/// Slots that things go through.
trait Pile<W: Testbed>: Slot + Sized {
    fn new_in(capacity: usize) -> Self;
    /// Puts this into the slot, or else into the hand, and may take another out.
    fn turn(slots: &PerCpu<Self, W>, given: Option<usize>, hand: &mut Vec<usize>) -> Option<usize>;
    /// Takes all from one slot, stopped.
    fn empty(slot: &Stopped<'_, Self, W>) -> Vec<usize>;
    /// Puts back those for which there is room.
    fn refill(slot: &Stopped<'_, Self, W>, hand: &mut Vec<usize>);
    fn resize(_slots: &PerCpu<Self, W>, _capacity: usize) {}
}

const ROOM: usize = 3;

type Stack<W> = ResizableStack<u8, ROOM, W>;

fn value(number: usize) -> NonNull<u8> {
    NonNull::new(ptr::without_provenance_mut(number + 1)).expect("more than zero")
}

fn push_on<T: Slot, W: Testbed>(stack: Field<'_, T, Stack<W>, W>, number: usize) -> bool {
    // By turns one and a batch of one.
    match number % 2 {
        0 => stack.push(value(number)).is_ok(),
        _ => stack.push_batch(&[value(number)]) == 1,
    }
}

fn pop_from<T: Slot, W: Testbed>(stack: Field<'_, T, Stack<W>, W>) -> Option<usize> {
    let mut into = [None];
    let popped = stack.pop().or_else(|| {
        let count = stack.pop_batch(&mut into);
        into[..count].first().copied().flatten()
    });
    popped.map(|value| value.addr().get() - 1)
}

fn empty<T: Slot, W: Testbed>(stack: &StoppedField<'_, T, Stack<W>, W>) -> Vec<usize> {
    let mut taken = [None; ROOM + 1];
    let count = stack.pop_batch(&mut taken);
    taken[..count].iter().flatten().map(|value| value.addr().get() - 1).collect()
}

fn refill<T: Slot, W: Testbed>(stack: &StoppedField<'_, T, Stack<W>, W>, hand: &mut Vec<usize>) {
    let values: Vec<_> = hand.iter().map(|&number| value(number)).collect();
    hand.drain(..stack.push_batch(&values));
}

impl<W: Testbed> Pile<W> for Stack<W> {
    fn new_in(capacity: usize) -> Self {
        Stack::with_capacity_in(capacity)
    }

    fn turn(slots: &PerCpu<Self, W>, given: Option<usize>, hand: &mut Vec<usize>) -> Option<usize> {
        let stack = slots.field(|stack| stack);
        if given.is_some_and(|number| push_on(stack, number)) {
            return None;
        }
        hand.extend(given);
        pop_from(stack)
    }

    fn empty(slot: &Stopped<'_, Self, W>) -> Vec<usize> {
        empty(&slot.field(|stack| stack))
    }

    fn refill(slot: &Stopped<'_, Self, W>, hand: &mut Vec<usize>) {
        refill(&slot.field(|stack| stack), hand);
    }

    fn resize(slots: &PerCpu<Self, W>, capacity: usize) {
        slots.field(|stack| stack).resize(capacity);
    }
}

/// A slot with several fields, all of which are used at once.
struct Several<W: Testbed> {
    stack: Stack<W>,
    words: [W::U64; 3],
    spare: Stack<W>,
}

// SAFETY: a struct.
unsafe impl<W: Testbed> Slot for Several<W> {}

impl<W: Testbed> Several<W> {
    fn word(&self) -> &W::U64 {
        &self.words[1]
    }
}

impl<W: Testbed> Pile<W> for Several<W> {
    fn new_in(capacity: usize) -> Self {
        let words = [0; 3].map(Word::new_in);
        Several { stack: Pile::new_in(capacity), words, spare: Pile::new_in(capacity) }
    }

    fn turn(slots: &PerCpu<Self, W>, given: Option<usize>, hand: &mut Vec<usize>) -> Option<usize> {
        let (stack, spare) = (slots.field(|slot| &slot.stack), slots.field(|slot| &slot.spare));
        if given.is_some_and(|number| push_on(stack, number) || push_on(spare, number)) {
            return None;
        }
        hand.extend(given);
        pop_from(stack).or_else(|| pop_from(spare))
    }

    fn empty(slot: &Stopped<'_, Self, W>) -> Vec<usize> {
        let (stack, spare) = (slot.field(|slot| &slot.stack), slot.field(|slot| &slot.spare));
        [empty(&stack), empty(&spare)].concat()
    }

    fn refill(slot: &Stopped<'_, Self, W>, hand: &mut Vec<usize>) {
        refill(&slot.field(|slot| &slot.stack), hand);
        refill(&slot.field(|slot| &slot.spare), hand);
    }

    fn resize(slots: &PerCpu<Self, W>, capacity: usize) {
        slots.field(|slot| &slot.stack).resize(capacity);
    }
}

/// A pointer in each slot, which threads exchange.
struct Pointer<W: Testbed>(W::Ptr<u8>);

// SAFETY: one field.
unsafe impl<W: Testbed> Slot for Pointer<W> {}

fn pointer(given: Option<usize>) -> *mut u8 {
    given.map_or(ptr::null_mut(), |number| value(number).as_ptr())
}

fn number(pointer: *mut u8) -> Option<usize> {
    pointer.addr().checked_sub(1)
}

impl<W: Testbed> Pile<W> for Pointer<W> {
    fn new_in(_: usize) -> Self {
        Pointer(Word::new_in(ptr::null_mut()))
    }

    fn turn(slots: &PerCpu<Self, W>, given: Option<usize>, _: &mut Vec<usize>) -> Option<usize> {
        number(slots.field(|slot| &slot.0).exchange(pointer(given)))
    }

    fn empty(slot: &Stopped<'_, Self, W>) -> Vec<usize> {
        number(slot.field(|slot| &slot.0).replace(ptr::null_mut())).into_iter().collect()
    }

    fn refill(slot: &Stopped<'_, Self, W>, hand: &mut Vec<usize>) {
        // Into the shared slot, threads may have put another meanwhile.
        let given = pointer(hand.pop());
        hand.extend(number(slot.field(|slot| &slot.0).replace(given)));
    }
}

/// Threads push what they have in hand and pop what they find, while the first one stops the slots
/// one after the other and turns them over, if it is told to. Before each push they may resize the
/// stack, sometimes for less than there is on it.
fn piles_conserve<P: Pile<W>, W: Testbed>(effort: Effort, by: IndexBy, resizes: bool) {
    let count = effort.crew * effort.things;
    let things = Things::<W>::new_in(count);
    let capacity = if resizes { 1 } else { ROOM };
    let Some(slots) = slots_of::<P, W>(by, move || P::new_in(capacity)) else { return };
    let crew = crew::<W, _, _>(effort.crew, |member| {
        let (slots, things) = (Arc::clone(&slots), Arc::clone(&things));
        move || {
            let mut hand: Vec<usize> =
                (0..effort.things).map(|nth| member * effort.things + nth).collect();
            let (mut dice, mut touched) = (Dice::new(member as u64 + 1), 0);
            for turn in 0..effort.turns {
                // In the model there is one turn of each kind.
                let gives = if W::RUNS { dice.roll(2) == 0 } else { turn == 0 };
                let given = gives.then(|| hand.pop()).flatten();
                if let (true, Some(number)) = (resizes, given) {
                    P::resize(&slots, (number + 1) % (ROOM + 2));
                }
                let taken = P::turn(&slots, given, &mut hand);
                things.touch(taken.as_slice());
                touched += taken.iter().len();
                hand.extend(taken);
            }
            (hand, touched)
        }
    });
    let (mut hand, mut touched) = (Vec::new(), 0);
    for stop in 0..effort.stops {
        let indexes = (0..slots.populated()).chain([slots.indexes()]);
        let index = indexes.clone().cycle().nth(stop).expect("there is the shared slot");
        let stopped = slots.with_stopped(index, |slot| {
            let taken = P::empty(&slot);
            P::refill(&slot, &mut hand);
            hand.extend(taken);
        });
        match stopped {
            Ok(()) => W::yield_now(),
            Err(error) => return assert!(lacking(&error), "{error}"),
        }
        // Among them what it has had in hand for longer.
        things.touch(&hand);
        touched += hand.len();
    }
    let hands: Vec<(Vec<usize>, usize)> = crew.into_iter().map(JoinHandle::join).collect();
    let left: Result<Vec<usize>, _> =
        slots.with_all_stopped(|slots| slots.flat_map(|slot| P::empty(&slot)).collect());
    let left = match left {
        Ok(left) => left,
        Err(error) => return assert!(lacking(&error), "{error}"),
    };
    touched += hands.iter().map(|(_, touched)| touched).sum::<usize>();
    let hands = hands.into_iter().flat_map(|(hand, _)| hand);
    assert_conserved(hands.chain(hand).chain(left), count);
    assert_eq!(things.uses(), touched, "what a thread did to its own was lost");
}

/// Values that threads push and pop are each somewhere, once.
pub(super) fn no_value_is_lost_or_doubled<W: Testbed>() {
    piles_conserve::<Stack<W>, W>(effort::<W>(false), IndexBy::Cpu, false);
}

/// Each value is somewhere, once, also while another thread takes whole stacks away and puts others
/// back.
pub(super) fn a_stopped_stack_is_its_stoppers<W: Testbed>() {
    piles_conserve::<Stack<W>, W>(effort::<W>(true), IndexBy::Cpu, false);
}

/// As [`a_stopped_stack_is_its_stoppers`], by concurrency ID, and in slots with several fields.
pub(super) fn a_stopped_slot_by_cid_is_its_stoppers<W: Testbed>() {
    piles_conserve::<Stack<W>, W>(effort::<W>(true), IndexBy::KernelCid, false);
    // In the model, two stacks are beyond every interleaving.
    if W::RUNS {
        piles_conserve::<Several<W>, W>(effort::<W>(true), IndexBy::KernelCid, false);
    }
}

/// As [`a_stopped_stack_is_its_stoppers`], in slots with several fields.
pub(super) fn a_stopped_slot_of_several_is_its_stoppers<W: Testbed>() {
    // In the model, two stacks are beyond every interleaving.
    if W::RUNS {
        piles_conserve::<Several<W>, W>(effort::<W>(true), IndexBy::Cpu, false);
    }
}

/// The same, of so many threads on large machines.
pub(super) fn a_slot_of_several_is_the_stoppers_of_many<W: Testbed>() {
    let effort = Effort { crew: 96, things: 3, turns: 12, stops: 100 };
    piles_conserve::<Several<W>, W>(effort, IndexBy::Cpu, false);
}

/// As [`no_value_is_lost_or_doubled`], on stacks that are resized meanwhile.
pub(super) fn no_value_is_lost_or_doubled_by_a_resize<W: Testbed>() {
    piles_conserve::<Stack<W>, W>(effort::<W>(false), IndexBy::Cpu, true);
}

/// As [`a_stopped_stack_is_its_stoppers`], on stacks that are resized meanwhile.
pub(super) fn a_stopped_resizable_stack_is_its_stoppers<W: Testbed>() {
    piles_conserve::<Stack<W>, W>(effort::<W>(true), IndexBy::Cpu, true);
}

/// Pointers that threads exchange are each somewhere, once, and what they point to is its holder's.
pub(super) fn no_pointer_is_lost_or_doubled<W: Testbed>() {
    piles_conserve::<Pointer<W>, W>(effort::<W>(false), IndexBy::Cpu, false);
}

/// The same, also while another thread takes pointers away and puts others back.
pub(super) fn a_stopped_pointer_is_its_stoppers<W: Testbed>() {
    piles_conserve::<Pointer<W>, W>(effort::<W>(true), IndexBy::Cpu, false);
}

/// What is taken out of words while threads add to them, and what is left, is what was added, with
/// and without a condition. The words beside are those of no thread.
pub(super) fn a_stopped_word_is_its_stoppers<W: Testbed>() {
    for by in [IndexBy::Cpu, IndexBy::KernelCid] {
        if let Some(slots) = slots_of(by, || Several::new_in(0)) {
            words_conserve::<W>(&slots);
        }
    }
}

fn words_conserve<W: Testbed>(slots: &Arc<PerCpu<Several<W>, W>>) {
    let effort = effort::<W>(true);
    let crew = crew::<W, _, _>(effort.crew, |_| {
        let slots = Arc::clone(slots);
        move || {
            let add = |turn| match turn % 2 {
                0 => slots.field(Several::word).add(1),
                _ => assert!(slots.field(Several::word).add_if(1, 1 << 63).is_ok()),
            };
            (0..effort.turns).for_each(add);
        }
    });
    let mut taken = 0;
    for _ in 0..effort.stops {
        let stopped = slots.with_all_stopped(|stopped| {
            stopped.map(|slot| slot.field(Several::word).replace(0)).sum::<u64>()
        });
        match stopped {
            Ok(sum) => taken += sum,
            Err(error) => assert!(lacking(&error), "{error}"),
        }
        W::yield_now();
    }
    crew.into_iter().for_each(JoinHandle::join);
    let sums = [0, 1, 2].map(|which| slots.field(|slot| &slot.words[which]).sum());
    let added = (effort.crew * effort.turns) as u64;
    assert_eq!(sums, [0, added.wrapping_sub(taken), 0], "lost or doubled");
}

/// A thread that has stopped the slots is told so, and does not wait for itself; a slot that is not
/// there is refused by name. Afterwards all is as before.
pub(super) fn a_stop_that_cannot_be_is_refused<W: Testbed>() {
    let slots = words::<W>();
    slots.add(1);
    let indexes = slots.indexes();
    let nested = slots.with_stopped(indexes, |stopped| {
        assert_eq!(stopped.index(), indexes);
        let nested = slots.with_stopped(indexes, |_| ());
        // Meanwhile operations find another slot, or the same one by other means.
        slots.add(10);
        stopped.field(|word| word).add(1000);
        (nested, slots.with_all_stopped(|_| ()))
    });
    match nested {
        Ok(nested) => assert_eq!(nested, (Err(StopError::Nested), Err(StopError::Nested))),
        Err(error) => return assert!(lacking(&error), "{error}"),
    }
    let populated = slots.populated();
    for index in [populated, indexes + 1, usize::MAX] {
        if index != indexes {
            let refused = slots.with_stopped(index, |_| ());
            assert_eq!(refused, Err(StopError::NoSuchSlot { index, populated, indexes }));
        }
    }
    slots.add(100);
    assert_eq!(slots.sum(), 1111);
    assert_eq!(slots.with_stopped(indexes, |_| 7), Ok(7));
    assert_eq!(slots.with_all_stopped(|slots| slots.count()), Ok(slots.populated() + 1));
}

/// What a slot holds that counts how many of it there are.
struct Counted<W: Testbed> {
    made: Arc<W::U32>,
    dropped: Arc<W::U32>,
    word: W::U64,
}

// SAFETY: a struct.
unsafe impl<W: Testbed> Slot for Counted<W> {}

impl<W: Testbed> Counted<W> {
    fn new_in(made: &Arc<W::U32>, dropped: &Arc<W::U32>) -> Self {
        // Relaxed, here and below: joins order what is counted before the count is read.
        made.fetch_add(1, Ordering::Relaxed);
        Counted { made: Arc::clone(made), dropped: Arc::clone(dropped), word: Word::new_in(1) }
    }
}

impl<W: Testbed> Drop for Counted<W> {
    fn drop(&mut self) {
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed);
        assert!(dropped < self.made.load(Ordering::Relaxed), "dropped twice");
    }
}

/// A slot is initialised once, however many threads use it first, and dropped once; the shared one
/// as well.
pub(super) fn a_slot_is_made_once_and_dropped_once<W: Testbed>() {
    let size = if W::RUNS { 6 } else { 2 };
    made_once::<W>(size, IndexBy::Cpu);
    made_once::<W>(size, IndexBy::KernelCid);
}

/// The same, of so many threads on large machines.
pub(super) fn a_slot_is_made_once_by_many<W: Testbed>() {
    made_once::<W>(384, IndexBy::Cpu);
}

fn made_once<W: Testbed>(size: usize, by: IndexBy) {
    let [made, dropped] = [0, 1].map(|_| Arc::new(W::U32::new_in(0)));
    let (ours, theirs) = (Arc::clone(&made), Arc::clone(&dropped));
    let init = move || Counted::new_in(&ours, &theirs);
    let Some(slots) = slots_of::<Counted<W>, W>(by, init) else { return };
    let crew = crew::<W, _, _>(size, |_| {
        let slots = Arc::clone(&slots);
        move || slots.field(|slot| &slot.word).add(1)
    });
    crew.into_iter().for_each(JoinHandle::join);
    let there = slots.populated() + 1;
    assert_eq!(slots.iter().count(), there);
    assert_eq!(slots.field(|slot| &slot.word).sum(), (there + size) as u64);
    let there = there as u32;
    assert_eq!((made.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed)), (there, 0));
    drop(Arc::into_inner(slots).expect("the threads are gone"));
    assert_eq!(dropped.load(Ordering::Relaxed), there);
}
