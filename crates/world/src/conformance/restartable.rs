//! Laws of restartable operations.

use std::sync::Arc;

use super::{rounds, spawn};
use crate::restartable::{Aborted, Steps, add};
use crate::{IndexBy, JoinHandle, Ordering, PerCpuWords, Placement, Word, World};

/// Interprets a restartable operation on plain memory, on one CPU, and aborts it at a chosen step.
struct Interpreter {
    slots: Vec<u64>,
    /// How many steps succeed before one is aborted; `None`: none is aborted.
    steps_left: Option<u32>,
}

impl Interpreter {
    fn step(&mut self) -> Result<(), Aborted> {
        match &mut self.steps_left {
            Some(0) => Err(Aborted),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Steps for Interpreter {
    fn load_index(&mut self) -> Result<usize, Aborted> {
        self.step().map(|()| 1)
    }

    fn load(&mut self, slot: usize) -> Result<u64, Aborted> {
        self.step().map(|()| self.slots[slot])
    }

    fn commit(&mut self, slot: usize, value: u64) -> Result<(), Aborted> {
        self.step().map(|()| self.slots[slot] = value)
    }
}

/// The definition writes nothing when it is aborted, at whatever step, and once when it is not; the
/// world's operation computes the same.
pub fn operations_agree_with_their_definition<W: World>() {
    let deltas = [5, 0, u64::MAX, 1 << 63];
    let words = PerCpuWords::<W>::new_in(IndexBy::Cpu).expect("every world numbers its CPUs");
    let mut defined = Interpreter { slots: vec![0, 10, 0], steps_left: None };
    for delta in deltas {
        let before = defined.slots.clone();
        let mut steps = 0;
        loop {
            defined.steps_left = Some(steps);
            if add(&mut defined, delta).is_ok() {
                break;
            }
            assert_eq!(defined.slots, before, "aborted at step {steps}, and yet it wrote");
            steps += 1;
        }
        assert_eq!(steps, 3, "index, load, commit");
        assert_eq!(defined.slots, [0, before[1].wrapping_add(delta), 0]);

        words.add(delta);
        assert_eq!(words.sum(), defined.slots[1].wrapping_sub(10));
    }
}

/// Conservation: concurrent additions, on one CPU and on several, are all in the sum, also when
/// another thread fences them meanwhile.
pub fn no_addition_is_lost<W: World>() {
    let words = Arc::new(PerCpuWords::<W>::new_in(IndexBy::Cpu).expect("CPUs have numbers"));
    let adder = |delta| {
        let words = Arc::clone(&words);
        move || (0..rounds::<W>()).for_each(|_| words.add(delta))
    };
    let here = W::cpu();
    let place = |placement, delta| W::spawn(placement, adder(delta)).ok();
    let elsewhere = W::topology()
        .cpus()
        .filter(|cpu| cpu.id != here)
        .find_map(|cpu| place(Placement::On(cpu.id), 100))
        .unwrap_or_else(|| spawn::<W, _>(adder(100)));
    let same = [1, 10].map(|delta| {
        place(Placement::On(here), delta).unwrap_or_else(|| spawn::<W, _>(adder(delta)))
    });
    // A world that cannot fence its sections says so; there is nothing to check then.
    let _ = W::fence_restartable();
    elsewhere.join();
    same.into_iter().for_each(JoinHandle::join);
    assert_eq!(words.sum(), 111 * u64::from(rounds::<W>()));
}

/// What a placed thread adds is in its CPU's slot, or in the shared one if the thread has no index;
/// no other slot changes.
pub fn an_addition_lands_in_the_slot_of_its_cpu<W: World>() {
    let machine = W::topology();
    let placed = machine.cpus().filter_map(|cpu| {
        let words = Arc::new(PerCpuWords::<W>::new_in(IndexBy::Cpu).expect("CPUs have numbers"));
        let theirs = Arc::clone(&words);
        let thread = W::spawn(Placement::On(cpu.id), move || {
            theirs.add(7);
            W::index(theirs.section())
        });
        Some((cpu.id, thread.ok()?.join(), words))
    });
    // One CPU would not tell its slot from a slot that is always the same.
    let placed: Vec<_> = placed.take(2).collect();
    assert!(!placed.is_empty(), "a thread can run on some CPU");
    for (cpu, index, words) in placed {
        let has_index = index < words.indexes();
        assert!(!has_index || index == cpu.index(), "{cpu} has index {index}");
        let slot = if has_index { index } else { words.indexes() };
        let mut expected = vec![0; words.slots().len()];
        expected[slot] = 7;
        let found = words.slots().iter().map(|slot| slot.load(Ordering::Relaxed));
        assert!(found.eq(expected), "{cpu} did not add to slot {slot} alone");
        assert_eq!(words.sum(), 7);
    }
}

/// There is a slot for every CPU that there can be, and a thread's index is one of them; so is its
/// concurrency ID where there is one, and where not, the error says what is lacking.
pub fn indexes_are_in_bounds<W: World>() {
    let words = PerCpuWords::<W>::new_in(IndexBy::Cpu).expect("every world numbers its CPUs");
    assert!(words.indexes() >= W::topology().cpu_limit());
    assert!(W::index(words.section()) < words.indexes());
    match PerCpuWords::<W>::new_in(IndexBy::KernelCid) {
        Ok(words) => {
            assert!(W::index(words.section()) < words.indexes());
            assert!(W::kernel_cid().is_some_and(|cid| cid.index() < words.indexes()));
            words.add(3);
            assert_eq!(words.sum(), 3);
        }
        Err(lacking) => assert_eq!(lacking.world, W::NAME),
    }
}
