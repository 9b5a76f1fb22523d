//! The law of read-mostly values: a read costs the same however many CPUs read.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use coreline::mask::{PresenceOptions, Versioned};
use coreline_sim::{Machine, Sim};
use coreline_world::{
    Clock, Integer, JoinHandle, Native, Ordering, Place, Placement, Threads, Word, Words, Work,
};

/// What each reader does that many times after its first.
const READS: u32 = 1_000;

/// How readers read.
#[derive(Debug, Clone, Copy)]
struct Program {
    /// One on each of so many CPUs.
    readers: u32,
    /// Whether each read enters and leaves.
    enters: bool,
    /// What else a reader does between two reads.
    compute: Duration,
    /// The pause between two updates, by one CPU more, for as long as readers read; or none.
    update: Option<Duration>,
}

/// The mean time of a read and what comes with it, in picoseconds; and how many updates there were.
fn mean(program: Program) -> (u128, u64) {
    // Enough for all of these programs several times over.
    let machine = Machine::preset("epyc-9654-2s").unwrap().step_limit(20_000_000);
    machine.run(move || reads(program)).unwrap().value
}

fn reads(program: Program) -> (u128, u64) {
    let Program { readers, enters, compute, update } = program;
    let value = Versioned::<u64, Sim>::new_in(0, PresenceOptions::new().seats(readers as usize));
    let left = Arc::new(<Sim as Words>::U32::new_in(readers));
    let topology = Sim::topology();
    let mut cpus = topology.cpus().map(|cpu| Placement::On(cpu.id));
    let threads: Vec<_> = cpus
        .by_ref()
        .take(readers as usize)
        .map(|place| {
            let (value, left) = (value.clone(), Arc::clone(&left));
            let read = move || {
                let reader = value.reader();
                drop(reader.enter());
                let begun = Sim::now();
                if enters {
                    for _ in 0..READS {
                        black_box(*reader.enter().get());
                        Sim::work(compute);
                    }
                } else {
                    let mut reading = reader.enter();
                    for _ in 0..READS {
                        black_box(*reading.get());
                        Sim::work(compute);
                    }
                }
                // As a whole: the clock costs more than a read.
                let spent = Sim::now() - begun;
                left.fetch_sub(1, Ordering::Relaxed);
                spent
            };
            Sim::spawn(place, read).unwrap()
        })
        .collect();
    let updates = update.map(|pause| {
        let update = move || {
            let mut updates = 0;
            while left.load(Ordering::Relaxed) > 0 {
                Sim::work(pause);
                updates += 1;
                value.update(updates);
            }
            updates
        };
        Sim::spawn(cpus.next().unwrap(), update).unwrap()
    });
    let spent: Duration = threads.into_iter().map(JoinHandle::join).sum();
    let mean = spent.as_nanos() * 1_000 / u128::from(READS * readers);
    (mean, updates.map_or(0, JoinHandle::join))
}

#[test]
#[expect(clippy::print_stdout, reason = "for docs/presence.md")]
fn a_read_costs_the_same_on_384_simulated_cpus_as_on_one() {
    for enters in [false, true] {
        let quiet = Program { readers: 1, enters, compute: Duration::ZERO, update: None };
        let (one, _) = mean(quiet);
        let (all, _) = mean(Program { readers: 384, ..quiet });
        println!("{quiet:?}: {one} ps on one CPU, {all} ps on 384");
        assert!(one > 0 && all * 10 <= one * 11, "{all} ps on 384 CPUs, {one} ps on one");
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "for docs/presence.md")]
fn an_update_is_found_by_383_simulated_readers() {
    for enters in [false, true] {
        let us = Duration::from_micros;
        let program = Program { readers: 383, enters, compute: us(1), update: None };
        let (quiet, _) = mean(program);
        let (busy, updates) = mean(Program { update: Some(us(100)), ..program });
        println!("{program:?}: {quiet} ps without updates, {busy} ps with {updates}");
        assert!(updates >= 4 && busy > quiet, "{busy} ps with {updates} updates, {quiet} without");
    }
}

/// The simulated time of each of these updates, of which each makes a heavy fence, beside a reader
/// that is inside and never looks.
fn held_back(updates: u64) -> Vec<Duration> {
    let machine = Machine::preset("host-2c").unwrap().step_limit(20_000_000);
    let law = move || {
        let options = PresenceOptions::new().seats(1).fence_every(Duration::ZERO);
        let value = Versioned::<u64, Sim>::new_in(0, options);
        let reader = value.reader();
        let reading = reader.enter();
        let update = |number| {
            let begun = Sim::now();
            value.update(number);
            Sim::now() - begun
        };
        let spent = (1..=updates).map(update).collect();
        assert_eq!(value.retired() as u64, updates, "the reader may hold all of them");
        drop(reading);
        value.update(0);
        assert_eq!(value.retired(), 0);
        spent
    };
    machine.run(law).unwrap().value
}

#[test]
fn an_update_costs_the_same_however_many_values_a_reader_holds_back() {
    let spent = held_back(3_000);
    let sum = |at: Range<usize>| spent[at].iter().sum::<Duration>();
    let (few, many) = (sum(50..100), sum(2_950..3_000));
    assert!(many * 10 <= few * 11, "{many:?} after 2,950 updates, {few:?} after 50");
}

#[test]
fn a_value_goes_with_its_last_reader_beside_readers_that_came_later() {
    let value = Versioned::new(0);
    let (early, late) = (value.reader(), value.reader());
    let first = early.enter();
    (1..=3).for_each(|number| value.update(number));
    // Its seat was told of no change.
    let later = late.enter();
    value.update(4);
    assert_eq!(value.retired(), 4);
    drop(first);
    assert!(!value.synchronize_by(Native::now()), "the later reader holds one");
    assert_eq!(value.retired(), 1, "those before it are held by none");
    drop(later);
    assert!(value.synchronize_by(Native::now()));
    assert_eq!(value.retired(), 0);
}

/// The simulated time of updates: before there was a reader, while so many are away, right after
/// these have gone, and later.
fn after_readers(readers: u32, trim_every: Duration) -> [Duration; 4] {
    let machine = Machine::preset("host-2c").unwrap().step_limit(20_000_000);
    let law = move || {
        let options = PresenceOptions::new().seats(1).trim_every(trim_every);
        let value = Versioned::<u64, Sim>::new_in(0, options);
        let update = || {
            let begun = Sim::now();
            value.update(0);
            Sim::now() - begun
        };
        update();
        let before = update();
        let all: Vec<_> = (0..readers).map(|_| value.reader()).collect();
        let read = || all.iter().for_each(|reader| assert_eq!(*reader.enter().get(), 0));
        read();
        let away = update();
        read();
        drop(all);
        [before, away, update(), update()]
    };
    machine.run(law).unwrap().value
}

#[test]
fn an_update_looks_at_no_reader_that_is_gone() {
    for trim_every in [Duration::ZERO, Duration::from_secs(3600)] {
        let [before, away, right_after, later] = after_readers(1_000, trim_every);
        let all = format!("{trim_every:?}: {before:?}, {away:?}, {right_after:?}, {later:?}");
        // The seats are in ten rolls. An update looks at one word of each.
        let most = before + (away - before) / 20;
        assert!(right_after <= most && later <= most, "{all}");
    }
}
