//! The law of readers that find no seat free: none is refused, and an update waits for each as for
//! any other.

use std::sync::Arc;
use std::time::Duration;

use coreline::mask::{PresenceOptions, Reader, Versioned};
use coreline_sim::Sim;
use coreline_world::model::{Model, Plant};
use coreline_world::{JoinHandle, Native, Ordering, Place, Testbed, Word};

use crate::page::Page;
use crate::worlds::{self, PREEMPTED, RACE, assert_caught, crew, is_caught_by};

type Value<W> = Versioned<Page<W>, W>;

/// A value, and readers that have all its seats.
fn full<W: Testbed>(trim_every: Duration) -> (Value<W>, Vec<Reader<Page<W>, W>>) {
    let options = PresenceOptions::new().seats(0).trim_every(trim_every);
    let value = Value::new_in(Page::new_in(0), options);
    // Two for each CPU, as the options say.
    let seats = 2 * W::topology().cpu_count();
    let readers = (0..seats).map(|_| value.reader()).collect();
    assert_eq!(seats_of(&value), seats);
    (value, readers)
}

/// How many seats there are.
fn seats_of<W: Testbed>(value: &Value<W>) -> usize {
    let text = format!("{value:?}");
    let seats = text.split_once("seats: ").and_then(|(_, rest)| rest.split_once(','));
    seats.and_then(|(seats, _)| seats.parse().ok()).expect(&text)
}

/// Readers come when all seats are taken, while the value is replaced.
fn come<W: Testbed>(threads: u32, entries: u32, updates: u32, trim_every: Duration) {
    let (value, seated) = full::<W>(trim_every);
    let latest = Arc::new(W::U32::new_in(0));
    let readers = crew::<W, _, _>(threads, |_| {
        let (value, latest) = (value.clone(), Arc::clone(&latest));
        move || {
            let reader = value.reader();
            for _ in 0..entries {
                // Acquire: pairs with the Release below: that update has returned.
                let least = latest.load(Ordering::Acquire);
                let found = reader.enter().get().look();
                assert!(found >= least, "found {found} after {least} was there");
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
    if threads as usize <= seated.len() {
        // Seats are added behind those that a reader has found taken, once. So one roll is enough
        // for all. With a second one there would be four times as many seats as before.
        let seats = seats_of(&value);
        assert!(seats < 4 * seated.len(), "{seats} seats for {threads} more than {}", seated.len());
    }
    drop(seated);
}

const ALWAYS: Duration = Duration::ZERO;
const NEVER: Duration = Duration::from_secs(3600);

#[test]
fn a_reader_beyond_the_seats_reads_nothing_freed_in_every_interleaving() {
    for trim_every in [ALWAYS, NEVER] {
        worlds::check(move || come::<Model>(1, 2, 2, trim_every));
        worlds::check_by(FREES, Plant::NONE, move || come::<Model>(1, 2, 1, trim_every));
    }
}

/// As in `presence.rs`.
const FREES: usize = 3;

#[test]
fn two_readers_beyond_the_seats_find_some_in_every_interleaving() {
    // Without updates: with one, this has no end.
    worlds::check(|| come::<Model>(2, 0, 0, ALWAYS));
}

#[test]
fn a_missing_ordering_is_caught() {
    assert_caught(Plant::RELAXED_RMWS, RACE, || come::<Model>(2, 0, 0, ALWAYS));
    assert_caught(Plant::RELAXED_LOADS, RACE, || come::<Model>(2, 0, 0, ALWAYS));
    // What it reads then is gone.
    assert!(is_caught_by(FREES, Plant::NO_HEAVY_FENCES, || come::<Model>(1, 2, 1, ALWAYS)));
}

#[test]
fn readers_beyond_the_seats_read_nothing_freed_in_simulation() {
    let law = || {
        come::<Sim>(9, 6, 20, ALWAYS);
        come::<Sim>(9, 6, 20, NEVER);
    };
    worlds::simulate("beyond_seats::come", "host-2c", PREEMPTED, law).unwrap();
}

#[test]
fn readers_beyond_the_seats_read_nothing_freed_natively() {
    for trim_every in [ALWAYS, NEVER] {
        for _ in 0..20 {
            come::<Native>(6, 200, 200, trim_every);
        }
    }
}

#[test]
fn more_readers_than_a_roll_can_have_are_all_waited_for_natively() {
    // 256 seats for each cache are the most at one time.
    let count = 2 * 256 * Native::topology().cache_count() + 100;
    let value = Value::<Native>::new_in(Page::new_in(0), PresenceOptions::new());
    let readers: Vec<_> = (0..count).map(|_| value.reader()).collect();
    let mut readings: Vec<_> = readers.iter().map(Reader::enter).collect();
    value.update(Page::new_in(1));
    // One after the other looks again or leaves, and the last one frees what was replaced.
    while let Some(mut reading) = readings.pop() {
        assert_eq!(value.retired(), 1, "{} still hold it", readings.len() + 1);
        if readings.len() % 2 == 0 {
            assert_eq!(reading.get().look(), 1);
        }
        drop(reading);
    }
    value.synchronize();
    assert_eq!(value.retired(), 0);
}

#[test]
fn seats_that_were_given_back_are_taken_again_natively() {
    let (value, seated) = full::<Native>(ALWAYS);
    let (first, mut readers) = (seated.len(), seated);
    readers.push(value.reader());
    let all = seats_of(&value);
    assert!(all >= 2 * first, "{all} seats, and there were {first}");
    readers.resize_with(all, || value.reader());
    let mut readers: Vec<_> = readers.into_iter().map(Some).collect();
    for at in (0..all).chain((0..all).rev()) {
        readers[at] = None;
        readers[at] = Some(value.reader());
        assert_eq!(seats_of(&value), all, "a seat was free");
    }
    value.update(Page::new_in(1));
    let found = readers.iter_mut().flatten().map(|reader| reader.enter().get().look());
    assert!(found.eq((0..all).map(|_| 1)));
}

/// Makes readers, and replaces the value that it was, when it dies.
struct Mourner(Option<Versioned<Mourner>>);

impl Drop for Mourner {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            let mut readers: Vec<_> = (0..300).map(|_| value.reader()).collect();
            value.update(Mourner(None));
            assert!(readers.iter_mut().all(|reader| reader.enter().get().0.is_none()));
        }
    }
}

#[test]
fn a_value_that_dies_may_make_readers_and_updates() {
    let value = Versioned::new(Mourner(None));
    value.update(Mourner(Some(value.clone())));
    value.update(Mourner(None));
    value.synchronize();
    assert_eq!(value.retired(), 0);
}
