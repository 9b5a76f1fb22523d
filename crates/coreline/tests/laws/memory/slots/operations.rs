//! Laws of each operation on slots: what it does on a thread that is alone on its slot, and what a
//! condition promises when it is not.

use core::mem::replace;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use coreline::percpu::{Full, ResizableStack, Stopped};
use coreline::{IndexBy, PerCpu};
use coreline_world::{JoinHandle, Ordering, Placement, Restartable, Slot, Testbed, Word};

use super::{Dice, crew, rounds, spawn, words};

/// How many operations a law tries, with dice for what and on what.
fn tries<W: Testbed>() -> u32 {
    if W::RUNS { 2000 } else { 24 }
}

/// Runs `law` on a thread that stays on its CPU, so that it works on one slot.
fn on_one_cpu<W: Testbed>(law: impl FnOnce() + Send + Clone + 'static) {
    let placed =
        W::topology().cpus().find_map(|cpu| W::spawn(Placement::On(cpu.id), law.clone()).ok());
    placed.unwrap_or_else(|| spawn::<W, _>(law)).join();
}

/// Runs `f` on the calling thread's slot while it is stopped. `None` where slots cannot be stopped.
fn stopped<T: Slot, W: Testbed, R>(
    slots: &PerCpu<T, W>,
    f: impl FnOnce(Stopped<'_, T, W>) -> R,
) -> Option<R> {
    let index = <W as Restartable>::index(slots.section()).min(slots.indexes());
    slots.with_stopped(index, f).ok()
}

/// Words at which signs and carries change.
fn word(dice: &mut Dice) -> u64 {
    const HALF: u64 = u32::MAX as u64;
    const EDGES: [u64; 9] =
        [0, 1, u64::MAX, 1 << 63, i64::MAX as u64, 0xff, HALF, 1 << 31, HALF >> 1];
    let edge = EDGES.get(dice.roll(12) as usize).copied();
    edge.unwrap_or_else(|| dice.roll(u64::MAX))
}

/// Laws of words that hold an integer: operations on them do what they do to a plain number.
macro_rules! words_compute {
    ($($law:ident: $word:ident, $value:ty;)+) => {$(
        pub(super) fn $law<W: Testbed>() {
            on_one_cpu::<W>(|| {
                let slots = PerCpu::<W::$word, W>::words_in(IndexBy::Cpu).expect("CPUs");
                let field = slots.field(|word| word);
                let (mut dice, mut model) = (Dice::new(1), 0 as $value);
                for _ in 0..tries::<W>() {
                    let (first, second) = (word(&mut dice) as $value, word(&mut dice) as $value);
                    match dice.roll(6) {
                        0 => {
                            field.add(first);
                            model = model.wrapping_add(first);
                        }
                        1 => assert_eq!(field.load(), model),
                        2 => {
                            let expected = if dice.roll(2) == 0 { model } else { first };
                            let stored = if model == expected { Ok(()) } else { Err(model) };
                            assert_eq!(field.store_if_equal(expected, second), stored);
                            model = if stored.is_ok() { second } else { model };
                        }
                        3 => {
                            let sum = model.wrapping_add(first);
                            let fits = (sum ^ model) & second == 0;
                            let added = if fits { Ok(sum) } else { Err(model) };
                            assert_eq!(
                                field.add_if(first, second), added, "{model} + {first}, {second}"
                            );
                            model = added.unwrap_or(model);
                        }
                        4 => assert_eq!(field.exchange(first), replace(&mut model, first)),
                        _ => {
                            let replaced =
                                stopped(&slots, |slot| slot.field(|word| word).replace(first));
                            assert!(replaced.is_none_or(|replaced| replaced == model));
                            model = if replaced.is_some() { first } else { model };
                        }
                    }
                }
                assert_eq!(field.sum(), model);
            });
        }
    )+};
}

words_compute! {
    words_compute: U64, u64;
    words_of_32_bits_compute: U32, u32;
    words_of_a_size_compute: Usize, usize;
}

/// Operations on a pointer do what they do to a variable.
pub(super) fn pointers_are_exchanged<W: Testbed>() {
    on_one_cpu::<W>(|| {
        let slots = PerCpu::<W::Ptr<u8>, W>::new_in(IndexBy::Cpu, || Word::new_in(ptr::null_mut()));
        let slots = slots.expect("there is memory");
        let field = slots.field(|word| word);
        let mut objects = [0_u8; 4];
        let objects = objects.each_mut().map(ptr::from_mut);
        let (mut dice, mut model) = (Dice::new(5), ptr::null_mut());
        for _ in 0..tries::<W>() {
            let mut any = || objects.get(dice.roll(5) as usize).copied().unwrap_or_default();
            let (first, second) = (any(), any());
            match dice.roll(4) {
                0 => assert_eq!(field.load(), model),
                1 => assert_eq!(field.exchange(first), replace(&mut model, first)),
                2 => {
                    let stored = if model == first { Ok(()) } else { Err(model) };
                    assert_eq!(field.store_if_equal(first, second), stored);
                    model = if stored.is_ok() { second } else { model };
                }
                _ => {
                    let replaced = stopped(&slots, |slot| slot.field(|word| word).replace(first));
                    assert!(replaced.is_none_or(|replaced| replaced == model));
                    model = if replaced.is_some() { first } else { model };
                }
            }
            if !model.is_null() {
                // SAFETY: of a live object, which this thread alone has: a pointer that went
                // through a word is still one to it.
                unsafe { *field.load() ^= 1 };
            }
        }
    });
}

/// An operation on a word touches no other: two that share eight bytes have a sum each.
pub(super) fn words_side_by_side_are_apart<W: Testbed>() {
    let slots = PerCpu::<[W::U32; 2], W>::new_in(IndexBy::Cpu, || [0, 0].map(Word::new_in));
    let slots = Arc::new(slots.expect("there is memory"));
    let size = if W::RUNS { 4 } else { 2 };
    let adders = crew::<W, _, _>(size, |number| {
        let slots = Arc::clone(&slots);
        move || {
            // -1 to the first carries out of it with almost every addition.
            let delta = [u32::MAX, 1][number % 2];
            (0..rounds::<W>()).for_each(|_| slots.field(|words| &words[number % 2]).add(delta));
        }
    });
    adders.into_iter().for_each(JoinHandle::join);
    let each = size as u32 / 2 * rounds::<W>();
    let sums = [0, 1].map(|which| slots.field(|words| &words[which]).sum());
    assert_eq!(sums, [each.wrapping_neg(), each]);
}

/// A stack takes as many as it is told to, one or many at a time, keeps what is on it when that is
/// more, and gives back the values pushed last.
pub(super) fn stacks_are_bounded_and_last_in_first_out<W: Testbed>() {
    const ROOM: usize = 5;
    type Stack<W> = ResizableStack<u8, ROOM, W>;

    on_one_cpu::<W>(|| {
        let slots = PerCpu::<Stack<W>, W>::new_in(IndexBy::Cpu, || Stack::with_capacity_in(2));
        let slots = slots.expect("there is memory");
        let field = slots.field(|stack| stack);
        let (mut dice, mut model, mut capacity) = (Dice::new(6), Vec::new(), 2_usize);
        for number in 1..=tries::<W>() as usize {
            let many = dice.roll(ROOM as u64 + 4) as usize;
            let values: Vec<_> = (0..many).map(|nth| value(16 * number + nth)).collect();
            let mut into = vec![None; many];
            let room = capacity.saturating_sub(model.len());
            match (dice.roll(5), dice.roll(3) == 0) {
                (0, _) => {
                    let pushed = if room == 0 { Err(Full) } else { Ok(()) };
                    assert_eq!(field.push(value(number)), pushed, "{model:?} of {capacity}");
                    model.extend(pushed.is_ok().then(|| value(number)));
                }
                (1, _) => assert_eq!(field.pop(), model.pop()),
                (2, stop) => {
                    let push =
                        |slot: Stopped<'_, Stack<W>, W>| slot.field(|s| s).push_batch(&values);
                    let pushed = match stop {
                        true => stopped(&slots, push),
                        false => Some(field.push_batch(&values)),
                    };
                    let fit = many.min(room);
                    assert_eq!(pushed.unwrap_or(fit), fit, "{model:?} of {capacity}");
                    model.extend(&values[..pushed.unwrap_or(0)]);
                }
                (3, stop) => {
                    let pop =
                        |slot: Stopped<'_, Stack<W>, W>| slot.field(|s| s).pop_batch(&mut into);
                    let popped = match stop {
                        true => stopped(&slots, pop),
                        false => Some(field.pop_batch(&mut into)),
                    };
                    let found = many.min(model.len());
                    assert_eq!(popped.unwrap_or(found), found);
                    let last = (0..popped.unwrap_or(0)).map(|_| model.pop());
                    assert!(last.eq(into[..popped.unwrap_or(0)].iter().copied()));
                }
                (_, stop) => {
                    let resize = |slot: Stopped<'_, Stack<W>, W>| slot.field(|s| s).resize(many);
                    let old = match stop {
                        true => stopped(&slots, resize),
                        false => Some(field.resize(many)),
                    };
                    assert_eq!(old.unwrap_or(capacity), capacity);
                    capacity = old.map_or(capacity, |_| many.min(ROOM));
                }
            }
            assert_eq!(slots.iter().map(|stack| stack.len()).sum::<usize>(), model.len());
        }
        while let Some(value) = field.pop() {
            assert_eq!(Some(value), model.pop());
        }
        assert!(model.is_empty());
    });
}

fn value(number: usize) -> NonNull<u8> {
    NonNull::new(ptr::without_provenance_mut(number)).expect("numbers begin at 1")
}

/// However many threads add under a condition, no word leaves the bits that were to stay, and each
/// addition that said it was done is in the sum once.
pub(super) fn a_condition_on_a_sum_is_never_broken<W: Testbed>() {
    const BLOCK: u64 = 8;
    let slots = Arc::new(words::<W>());
    let adders = crew::<W, _, _>(if W::RUNS { 4 } else { 2 }, |_| {
        let slots = Arc::clone(&slots);
        move || {
            let add = |_: &u32| slots.field(|word| word).add_if(1, !(BLOCK - 1)).is_ok();
            (0..rounds::<W>()).filter(add).count() as u64
        }
    });
    let added: u64 = adders.into_iter().map(JoinHandle::join).sum();
    // Relaxed: the joins order the additions before.
    let words: Vec<u64> = slots.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    assert!(words.iter().all(|&word| word < BLOCK), "{words:?}");
    assert_eq!(words.iter().sum::<u64>(), added, "{words:?}");
}

/// Of threads that store into one word what they read plus one, each succeeds once.
pub(super) fn a_store_if_equal_is_never_lost<W: Testbed>() {
    let slots = Arc::new(words::<W>());
    let size = if W::RUNS { 4 } else { 2 };
    let adders = crew::<W, _, _>(size, |_| {
        let slots = Arc::clone(&slots);
        move || {
            let field = slots.field(|word| word);
            for _ in 0..rounds::<W>() {
                let mut expected = 0;
                while let Err(now) = field.store_if_equal(expected, expected + 1) {
                    expected = now;
                }
            }
        }
    });
    adders.into_iter().for_each(JoinHandle::join);
    assert_eq!(slots.sum(), size as u64 * u64::from(rounds::<W>()));
}
