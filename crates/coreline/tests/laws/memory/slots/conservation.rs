//! Laws of slots that many threads use, and that another one stops meanwhile: whatever was put in
//! is somewhere, once.

use core::ptr::{self, NonNull};
use std::sync::Arc;

use coreline::percpu::{ResizableStack, StopError};
use coreline::{IndexBy, PerCpu};
use coreline_world::{Integer, JoinHandle, Ordering, Slot, Testbed, Word, Words};

use super::{Dice, crew, words};

/// How many threads there are, how many things each begins with, and how often each takes its turn.
struct Effort {
    crew: usize,
    things: usize,
    turns: usize,
    stops: usize,
}

/// With one more thread that stops them, the model has enough of one thread.
fn effort<W: Testbed>(stop: bool) -> Effort {
    match (W::RUNS, stop) {
        (true, false) => Effort { crew: 5, things: 4, turns: 400, stops: 0 },
        (true, true) => Effort { crew: 5, things: 4, turns: 400, stops: 20 },
        (false, false) => Effort { crew: 2, things: 1, turns: 2, stops: 0 },
        (false, true) => Effort { crew: 1, things: 1, turns: 2, stops: 1 },
    }
}

/// Whether the error of a stop says only that this machine cannot fence sections.
fn lacking(error: &StopError) -> bool {
    matches!(error, StopError::Lacking(_))
}

/// What threads hold at the end, and what is left in the slots, is what there was at the beginning.
fn assert_conserved(found: impl Iterator<Item = usize>, things: usize) {
    let mut found: Vec<usize> = found.collect();
    found.sort_unstable();
    assert!(found.iter().copied().eq(0..things), "lost or doubled: {found:?} of {things}");
}

const ROOM: usize = 3;

type Stack<W> = ResizableStack<u8, ROOM, W>;

fn value(number: usize) -> NonNull<u8> {
    NonNull::new(ptr::without_provenance_mut(number + 1)).expect("more than zero")
}

/// Whether there was room.
fn push<W: Testbed>(slots: &PerCpu<Stack<W>, W>, number: usize) -> bool {
    let field = slots.field(|stack| stack);
    // By turns one and a batch of one.
    match number % 2 {
        0 => field.push(value(number)).is_ok(),
        _ => field.push_batch(&[value(number)]) == 1,
    }
}

fn pop<W: Testbed>(slots: &PerCpu<Stack<W>, W>) -> Option<usize> {
    let mut into = [None];
    let field = slots.field(|stack| stack);
    let popped = field.pop().or_else(|| {
        let count = field.pop_batch(&mut into);
        into[..count].first().copied().flatten()
    });
    popped.map(|value| value.addr().get() - 1)
}

/// Takes all from one slot, stopped, and puts back those for which there is room.
fn turn_over<W: Testbed>(
    slots: &PerCpu<Stack<W>, W>,
    index: usize,
    put_back: &mut Vec<usize>,
) -> Result<(), StopError> {
    slots.with_stopped(index, |slot| {
        let field = slot.field(|stack| stack);
        let mut taken = [None; ROOM];
        let count = field.pop_batch(&mut taken);
        let values: Vec<_> = put_back.iter().map(|&number| value(number)).collect();
        put_back.drain(..field.push_batch(&values));
        put_back.extend(taken[..count].iter().flatten().map(|value| value.addr().get() - 1));
    })
}

/// Threads push what they have in hand and pop what they find, while the first one stops the slots
/// one after the other and turns them over, if it is told to. Before each push they may resize the
/// stack, sometimes for less than there is on it.
fn stacks_conserve<W: Testbed>(stop: bool, resizes: bool) {
    let effort = effort::<W>(stop);
    let count = effort.crew * effort.things;
    let capacity = if resizes { 1 } else { ROOM };
    let stack = move || Stack::with_capacity_in(capacity);
    let slots = Arc::new(PerCpu::<Stack<W>, W>::new_in(IndexBy::Cpu, stack).expect("CPUs"));
    let crew = crew::<W, _, _>(effort.crew, |member| {
        let slots = Arc::clone(&slots);
        move || {
            let mut hand: Vec<usize> =
                (0..effort.things).map(|nth| member * effort.things + nth).collect();
            let mut dice = Dice::new(member as u64 + 1);
            for turn in 0..effort.turns {
                // In the model there is one turn of each kind.
                let gives = if W::RUNS { dice.roll(2) == 0 } else { turn == 0 };
                let thing = hand.pop();
                if let (true, true, Some(number)) = (resizes, gives, thing) {
                    slots.field(|stack| stack).resize(number % (ROOM + 2));
                }
                match (gives, thing) {
                    (true, Some(thing)) if push(&slots, thing) => {}
                    (_, thing) => hand.extend(thing.into_iter().chain(pop(&slots))),
                }
            }
            hand
        }
    });
    let mut hand = Vec::new();
    for stop in 0..effort.stops {
        let indexes = (0..slots.populated()).chain([slots.indexes()]);
        let index = indexes.clone().cycle().nth(stop).expect("there is the shared slot");
        match turn_over(&slots, index, &mut hand) {
            Ok(()) => W::yield_now(),
            Err(error) => return assert!(lacking(&error), "{error}"),
        }
    }
    let hands: Vec<Vec<usize>> = crew.into_iter().map(JoinHandle::join).collect();
    let mut left = Vec::new();
    for index in (0..slots.populated()).chain([slots.indexes()]) {
        let mut taken = Vec::new();
        match turn_over(&slots, index, &mut taken) {
            Ok(()) => left.extend(taken),
            Err(error) => return assert!(lacking(&error), "{error}"),
        }
    }
    assert_conserved(hands.into_iter().flatten().chain(hand).chain(left), count);
}

/// Values that threads push and pop are each somewhere, once.
pub(super) fn no_value_is_lost_or_doubled<W: Testbed>() {
    stacks_conserve::<W>(false, false);
}

/// Each value is somewhere, once, also while another thread takes whole stacks away and puts others
/// back.
pub(super) fn a_stopped_stack_is_its_stoppers<W: Testbed>() {
    stacks_conserve::<W>(true, false);
}

/// As [`no_value_is_lost_or_doubled`], on stacks that are resized meanwhile.
pub(super) fn no_value_is_lost_or_doubled_by_a_resize<W: Testbed>() {
    stacks_conserve::<W>(false, true);
}

/// As [`a_stopped_stack_is_its_stoppers`], on stacks that are resized meanwhile.
pub(super) fn a_stopped_resizable_stack_is_its_stoppers<W: Testbed>() {
    stacks_conserve::<W>(true, true);
}

/// Threads exchange what they have in hand for what is in their slot, while the first one stops the
/// slots and does the same, if it is told to. Each of them counts in what it has, by a load and a
/// store, which it may as long as no other thread has it, or has not seen it yet.
fn pointers_conserve<W: Testbed>(stop: bool) {
    type Slots<W> = PerCpu<<W as Words>::Ptr<<W as Words>::U64>, W>;

    let effort = effort::<W>(stop);
    let count = effort.crew * effort.things;
    let things: Arc<Vec<W::U64>> = Arc::new((0..count).map(|_| Word::new_in(0)).collect());
    let slots = Slots::<W>::new_in(IndexBy::Cpu, || Word::new_in(ptr::null_mut()));
    let slots = Arc::new(slots.expect("CPUs have numbers"));
    let pointer = |things: &[W::U64], number: Option<usize>| {
        number.map_or(ptr::null_mut(), |number| ptr::from_ref(&things[number]).cast_mut())
    };
    let number = |things: &[W::U64], pointer: *mut W::U64| {
        let is_it = |thing: &W::U64| ptr::eq(thing, pointer);
        (!pointer.is_null()).then(|| things.iter().position(is_it).expect("a pointer to no thing"))
    };
    // Relaxed: it is in hand, and the exchange orders what its last holder did.
    let touch = |thing: &W::U64| {
        thing.store(thing.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    };
    let crew = crew::<W, _, _>(effort.crew, |member| {
        let (slots, things) = (Arc::clone(&slots), Arc::clone(&things));
        move || {
            let mut hand: Vec<usize> =
                (0..effort.things).map(|nth| member * effort.things + nth).collect();
            let (mut dice, mut touched) = (Dice::new(member as u64 + 1), 0);
            for turn in 0..effort.turns {
                let give = if W::RUNS { dice.roll(2) == 0 } else { turn == 0 };
                let given = give.then(|| hand.pop()).flatten();
                let taken = slots.field(|word| word).exchange(pointer(&things, given));
                if let Some(taken) = number(&things, taken) {
                    touch(&things[taken]);
                    touched += 1;
                    hand.push(taken);
                }
            }
            (hand, touched)
        }
    });
    let (mut hand, mut touched) = (Vec::new(), 0);
    let mut stop = |index: usize, hand: &mut Vec<usize>, given: Option<usize>| {
        let replace = slots
            .with_stopped(index, |slot| slot.field(|word| word).replace(pointer(&things, given)));
        let taken = number(&things, replace?);
        if let Some(taken) = taken {
            touch(&things[taken]);
            touched += 1;
            hand.push(taken);
        }
        Ok::<_, StopError>(())
    };
    let indexes = || (0..slots.populated()).chain([slots.indexes()]);
    for round in 0..effort.stops {
        let index = indexes().cycle().nth(round).expect("there is the shared slot");
        let given = hand.pop();
        match stop(index, &mut hand, given) {
            Ok(()) => W::yield_now(),
            Err(error) => return assert!(lacking(&error), "{error}"),
        }
    }
    let hands: Vec<(Vec<usize>, u64)> = crew.into_iter().map(JoinHandle::join).collect();
    for index in indexes() {
        if let Err(error) = stop(index, &mut hand, None) {
            return assert!(lacking(&error), "{error}");
        }
    }
    touched += hands.iter().map(|(_, touched)| touched).sum::<u64>();
    assert_conserved(hands.into_iter().flat_map(|(hand, _)| hand).chain(hand), count);
    // Relaxed: the joins order what the threads did.
    let counted: u64 = things.iter().map(|thing| thing.load(Ordering::Relaxed)).sum();
    assert_eq!(counted, touched, "what a thread did to its own was lost");
}

/// Pointers that threads exchange are each somewhere, once, and what they point to is its holder's.
pub(super) fn no_pointer_is_lost_or_doubled<W: Testbed>() {
    pointers_conserve::<W>(false);
}

/// The same, also while another thread takes pointers away and puts others back.
pub(super) fn a_stopped_pointer_is_its_stoppers<W: Testbed>() {
    pointers_conserve::<W>(true);
}

/// What is taken out of words while threads add to them, and what is left, is what was added.
pub(super) fn a_stopped_word_is_its_stoppers<W: Testbed>() {
    let effort = effort::<W>(true);
    let slots = Arc::new(words::<W>());
    let crew = crew::<W, _, _>(effort.crew, |_| {
        let slots = Arc::clone(&slots);
        move || (0..effort.turns).for_each(|_| slots.add(1))
    });
    let mut taken = 0;
    for _ in 0..effort.stops {
        let stopped = slots.with_all_stopped(|stopped| {
            stopped.map(|slot| slot.field(|word| word).replace(0)).sum::<u64>()
        });
        match stopped {
            Ok(sum) => taken += sum,
            Err(error) => assert!(lacking(&error), "{error}"),
        }
        W::yield_now();
    }
    crew.into_iter().for_each(JoinHandle::join);
    assert_eq!(slots.sum() + taken, (effort.crew * effort.turns) as u64, "lost or doubled");
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
    assert_eq!(slots.sum(), 111);
    assert_eq!(slots.with_stopped(indexes, |_| 7), Ok(7));
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
        Counted { made: Arc::clone(made), dropped: Arc::clone(dropped), word: Word::new_in(0) }
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
    let [made, dropped] = [0, 1].map(|_| Arc::new(W::U32::new_in(0)));
    let (ours, theirs) = (Arc::clone(&made), Arc::clone(&dropped));
    let slots =
        PerCpu::<Counted<W>, W>::new_in(IndexBy::Cpu, move || Counted::new_in(&ours, &theirs));
    let slots = Arc::new(slots.expect("CPUs have numbers"));
    let size = if W::RUNS { 6 } else { 2 };
    let crew = crew::<W, _, _>(size, |_| {
        let slots = Arc::clone(&slots);
        move || slots.field(|slot| &slot.word).add(1)
    });
    crew.into_iter().for_each(JoinHandle::join);
    assert_eq!(slots.field(|slot| &slot.word).sum(), size as u64);
    let populated = slots.populated() as u32;
    assert_eq!((made.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed)), (populated + 1, 0));
    drop(Arc::into_inner(slots).expect("the threads are gone"));
    assert_eq!(dropped.load(Ordering::Relaxed), populated + 1);
}
