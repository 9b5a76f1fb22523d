use std::sync::Arc;

use coreline_sim::{Machine, Sim};
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{Cell, JoinHandle, Placement, Testbed, Words};

use super::*;
use crate::IndexBy;
use crate::percpu::PerCpu;

/// One thread makes slot 0 and opens a gate to it; another one looks, as a section does.
fn what_is_behind_a_gate_is_whole<W: Testbed>() {
    let slots = PerCpu::<W::U64, W>::words_in(IndexBy::Cpu).unwrap();
    // The model checks accesses to a cell, and none by way of a pointer.
    let (made, done) = (Cell::<u32, W>::new_in(0), W::U32::new_in(0));
    let shared = Arc::new((Gate::new_in(), slots, made, done));
    let theirs = Arc::clone(&shared);
    let opener = W::spawn(Placement::Anywhere, move || {
        let (gate, slots, made, done) = &*theirs;
        slots.populate(0);
        // SAFETY: the other thread looks at it only when the gate is open.
        made.with_mut(|made| unsafe { *made = 1 });
        // As where there are sections. Relaxed: of this thread alone.
        slots.limit().store(1, Ordering::Relaxed);
        slots.open_gate(gate, || true);
        // Relaxed, on both sides: it orders nothing. It makes loom try this thread first, which
        // loads before it stores, so that loom would forget an earlier look.
        done.store(1, Ordering::Relaxed);
    });
    let (gate, slots, made, done) = &*shared;
    done.wait_until(Ordering::Relaxed, |done| done == 1);
    // SAFETY: slots of a word, which live on.
    let at = unsafe { At::<W::U64, W>::behind(gate, 0) };
    if at.limits().by(IndexBy::Cpu).load(Ordering::Acquire) > 0 {
        assert_eq!(at.first(), slots.first().as_ptr());
        // SAFETY: written before the gate opened, and not since.
        assert_eq!(made.with(|made| unsafe { *made }), 1);
    }
    opener.unwrap().join();
    assert_eq!(at.first(), slots.first().as_ptr());
}

#[test]
fn what_is_behind_a_gate_is_whole_in_every_interleaving() {
    Checker::new().preemption_bound(3).check(what_is_behind_a_gate_is_whole::<Model>);
}

#[test]
fn slots_that_are_looked_for_without_acquire_are_caught() {
    let checker = Checker::new().preemption_bound(3).plant(Plant::RELAXED_LOADS);
    let failure = checker.try_check(what_is_behind_a_gate_is_whole::<Model>).unwrap_err();
    let has = |text| failure.message.contains(text);
    assert!(has("Causality violation") || has("left == right"), "{failure}");
}

/// The thread may move after each look. An operation of a signal handler must end all the same.
#[test]
fn an_operation_whose_thread_moves_looks_four_times_for_a_slot() {
    let program = || {
        let slots = PerCpu::<<Sim as Words>::U64, Sim>::words_in(IndexBy::Cpu).unwrap();
        let mut looks = 0;
        let tried = slots.elsewhere(|| {
            looks += 1;
            Err::<(), _>(NoSlot)
        });
        assert_eq!((looks, tried), (4, Err(slots.indexes())));
        let mut looks = 0;
        let tried = slots.elsewhere(|| {
            looks += 1;
            if looks < 4 { Err(NoSlot) } else { Ok(()) }
        });
        assert_eq!(tried, Ok(()));
    };
    Machine::preset("host-2c").expect("a preset").run(program).expect("it ends");
}
