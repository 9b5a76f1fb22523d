//! The law of readers that nest: what one guard has lent stays while any guard looks again or goes,
//! and each look finds the newest value.

use std::sync::Arc;
use std::time::Duration;

use coreline::mask::{PresenceOptions, Reader, Versioned};
use coreline_sim::{Faults, Machine, Sim};
use coreline_world::model::{Model, Plant};
use coreline_world::{Clock, JoinHandle, Native, Ordering, Testbed, Word};

use crate::page::Page;
use crate::worlds::{self, PREEMPTED, crew, is_caught};

/// Which guard goes first.
#[derive(Debug, Clone, Copy)]
enum First {
    Outer,
    Inner,
}

/// Enters twice and looks: each look finds at least what the one before found, and what `least`
/// says; and what was found stays.
fn reads_twice<W: Testbed>(reader: &Reader<Page<W>, W>, first: First, least: impl Fn() -> u32) {
    let mut outer = reader.enter();
    let before = outer.get();
    let at_least = before.look().max(least());
    let mut inner = reader.enter();
    let now = inner.get();
    assert!(now.look() >= at_least, "an inner guard finds an old value");
    before.look();
    match first {
        First::Inner => {
            drop(inner);
            before.look();
            outer.get().look();
        }
        First::Outer => {
            drop(outer);
            now.look();
            inner.get().look();
        }
    }
}

/// A reader nests while the value is replaced.
fn nests<W: Testbed>(threads: u32, rounds: u32, updates: u32, first: First, trim_every: Duration) {
    let options = PresenceOptions::new().seats(threads as usize).trim_every(trim_every);
    let value = Versioned::<Page<W>, W>::new_in(Page::new_in(0), options);
    let latest = Arc::new(W::U32::new_in(0));
    let readers = crew::<W, _, _>(threads, |_| {
        let (reader, latest) = (value.reader(), Arc::clone(&latest));
        // Its bit is set, so that an update looks at the reader from the beginning.
        drop(reader.enter());
        move || {
            for _ in 0..rounds {
                // Acquire: pairs with the Release below: that update has returned.
                reads_twice(&reader, first, || latest.load(Ordering::Acquire));
            }
        }
    });
    for number in 1..=updates {
        value.update(Page::new_in(number));
        latest.store(number, Ordering::Release);
    }
    readers.into_iter().for_each(JoinHandle::join);
    value.synchronize();
    assert_eq!(value.retired(), 0, "no thread reads any more");
}

const ALWAYS: Duration = Duration::ZERO;
const NEVER: Duration = Duration::from_secs(3600);

#[test]
fn what_a_guard_has_lent_stays_in_every_interleaving() {
    for first in [First::Outer, First::Inner] {
        worlds::few(move || nests::<Model>(1, 1, 2, first, ALWAYS));
    }
}

#[test]
fn a_missing_fence_is_caught() {
    for plant in [Plant::NO_LIGHT_FENCES, Plant::NO_HEAVY_FENCES] {
        assert!(is_caught(plant, || nests::<Model>(1, 1, 2, First::Inner, ALWAYS)));
    }
}

#[test]
fn what_a_guard_has_lent_stays_in_simulation() {
    for first in [First::Outer, First::Inner] {
        let law = move || {
            nests::<Sim>(3, 10, 20, first, ALWAYS);
            nests::<Sim>(3, 10, 20, first, NEVER);
        };
        worlds::simulate("nested::nests", "host-2c", PREEMPTED, law).unwrap();
    }
}

#[test]
fn what_a_guard_has_lent_stays_natively() {
    for first in [First::Outer, First::Inner] {
        nests::<Native>(3, 2_000, 300, first, ALWAYS);
        nests::<Native>(3, 2_000, 300, first, NEVER);
    }
}

#[test]
fn a_reader_of_the_thread_nests() {
    static VALUE: std::sync::LazyLock<Versioned<u32>> =
        std::sync::LazyLock::new(|| Versioned::new(1));
    fn read<R>(f: impl FnOnce(&u32) -> R) -> R {
        thread_local! {
            static READER: Reader<u32> = VALUE.reader();
        }
        READER.with(|reader| f(reader.enter().get()))
    }
    let found = read(|outer| {
        VALUE.update(2);
        read(|inner| (*outer, *inner))
    });
    assert_eq!(found, (1, 2));
    VALUE.synchronize();
    assert_eq!(VALUE.retired(), 0, "the outermost guard is gone");
}

#[test]
fn a_reader_with_a_forgotten_guard_finds_what_is_new() {
    let value = Versioned::new(0);
    let reader = value.reader();
    core::mem::forget(reader.enter());
    for number in 1..4 {
        value.update(number);
        assert_eq!(*reader.enter().get(), number);
    }
    assert_eq!(value.retired(), 3, "it never leaves");
    drop(reader);
    assert!(value.synchronize_by(Native::now()) && value.retired() == 0);
}

/// The simulated time of so many entries of a reader that is inside.
fn inner_entries(times: u32) -> Duration {
    let law = move || {
        let value = Versioned::<u32, Sim>::new_in(0, PresenceOptions::new().seats(1));
        let reader = value.reader();
        let _outer = reader.enter();
        let begun = Sim::now();
        (0..times).for_each(|_| drop(reader.enter()));
        Sim::now() - begun
    };
    Machine::preset("host-2c").unwrap().faults(Faults::NONE).run(law).unwrap().value
}

#[test]
fn an_inner_entry_touches_no_word_and_has_no_fence() {
    assert_eq!(inner_entries(1_000), inner_entries(0));
}
