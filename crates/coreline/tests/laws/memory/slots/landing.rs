//! Laws of where an addition lands.

use core::ptr::null_mut;
use std::sync::Arc;

use coreline::percpu::PoolError;
use coreline::{IndexBy, PerCpu};
use coreline_world::model::{Model, Plant};
use coreline_world::{JoinHandle, Ordering, Placement, Testbed, Word};

use super::{crew, rounds, spawn, words};
use crate::worlds::is_caught;

/// Conservation: concurrent additions, on one CPU and on several, are all in the sum, also when
/// another thread fences them meanwhile.
pub(super) fn no_addition_is_lost<W: Testbed>() {
    let words = Arc::new(words::<W>());
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
pub(super) fn an_addition_lands_in_the_slot_of_its_cpu<W: Testbed>() {
    let machine = W::topology();
    let placed = machine.cpus().filter_map(|cpu| {
        let words = Arc::new(words::<W>());
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
        // Slots appear up to the one that is used.
        let before = if has_index { index } else { 0 };
        let found: Vec<u64> = words.iter().map(|slot| slot.load(Ordering::Relaxed)).collect();
        let mut expected = vec![0; before];
        expected.extend(if has_index { vec![7, 0] } else { vec![7] });
        assert_eq!(found, expected, "{cpu} did not add to its slot alone");
        assert_eq!(words.sum(), 7);
    }
}

/// Publication: a thread that finds a pointer in its slot sees what was written before that was put
/// there, by whichever operation it finds it.
pub(super) fn a_pointer_shows_what_was_written_before<W: Testbed>() {
    let slots = PerCpu::<W::Ptr<W::U64>, W>::new_in(IndexBy::Cpu, || Word::new_in(null_mut()));
    let slots = Arc::new(slots.expect("CPUs have numbers"));
    let thing = Arc::new(W::U64::new_in(0));
    let (theirs, own) = (Arc::clone(&slots), Arc::clone(&thing));
    let writer = crew::<W, _, _>(1, |_| {
        let (slots, thing) = (Arc::clone(&theirs), Arc::clone(&own));
        move || {
            // Relaxed: the exchange orders it.
            thing.store(1, Ordering::Relaxed);
            slots.field(|word| word).exchange(Arc::as_ptr(&thing).cast_mut());
        }
    });
    let field = slots.field(|word| word);
    let mut found = field.load();
    if found.is_null() {
        found = field.exchange(null_mut());
    }
    if !found.is_null() {
        // SAFETY: the thing is live. Relaxed: what found the pointer orders it.
        assert_eq!(unsafe { &*found }.load(Ordering::Relaxed), 1);
    }
    writer.into_iter().for_each(JoinHandle::join);
}

/// Where operations are atomic instructions, the law needs their orderings.
#[test]
fn an_operation_on_pointers_that_orders_nothing_is_caught() {
    let law = a_pointer_shows_what_was_written_before::<Model>;
    assert!(is_caught(Plant::RELAXED_RMWS, law));
    assert!(is_caught(Plant::RELAXED_LOADS, law));
}

/// There is a slot for every CPU that there can be, and a thread's index is one of them; so is its
/// concurrency ID where there is one, and where not, the error says what is lacking.
pub(super) fn indexes_are_in_bounds<W: Testbed>() {
    let words = words::<W>();
    assert!(words.indexes() >= W::topology().cpu_limit());
    assert!(W::index(words.section()) < words.indexes());
    match PerCpu::<W::U64, W>::words_in(IndexBy::KernelCid) {
        Ok(words) => {
            assert!(W::index(words.section()) < words.indexes());
            assert!(W::kernel_cid().is_some_and(|cid| cid.index() < words.indexes()));
            words.add(3);
            assert_eq!(words.sum(), 3);
        }
        Err(error) => assert!(matches!(error, PoolError::Lacking(l) if l.world == W::NAME)),
    }
}
