//! That the locks are locks, that the check can fail, and what is claimed.

mod mix;

use std::sync::Arc;

use coreline_scenarios::point::Setup;
use coreline_scenarios::readscale::field::{
    LONGEST_READ, LONGEST_WRITE, Load, RATE, SHARE, contend,
};
use coreline_scenarios::readscale::mix::Mix;
use coreline_scenarios::readscale::{ReadWrite, SCENARIO, glibc};
use coreline_scenarios::{RunError, figures};
use coreline_sim::claim::Band;
use coreline_sim::{Faults, Machine, Replay, Schedule, Sim};
use coreline_world::model::{Checker, Model};
use coreline_world::{Cell, JoinHandle, Placement, Testbed, Threads};

use crate::band::BOTH;

const VARIANTS: [&str; 8] =
    ["glibc", "std", "parking-lot", "rwlock", "lines", "bravo", "read-mostly", "biased"];

fn program(mix: &str, writes: u32, threads: u32, variant: &str) -> String {
    format!(
        "readscale config=x mix={mix} writes={writes} threads={threads} place=spread sets=2 \
         section=100 rest=100 count=with variant={variant} window=200"
    )
}

fn simulate(
    setup: Setup,
    machine: Machine,
    run: fn(&Setup) -> Result<Vec<f64>, RunError>,
) -> Result<Vec<f64>, RunError> {
    machine.step_limit(20_000_000).run(move || run(&setup)).unwrap().value
}

#[test]
fn every_lock_lets_threads_read_and_write() {
    for variant in VARIANTS {
        let setup = Setup::new(&program("one", 20, 30, variant), 0..120);
        let machine = Machine::preset("ivybridge-ex-4s").unwrap();
        let numbers = simulate(setup, machine, SCENARIO.simulated).unwrap();
        assert!(numbers[RATE] > 0.0 && (0.0..=1.0).contains(&numbers[SHARE]), "{numbers:?}");
        assert!(numbers[LONGEST_READ] > 0.0 && numbers[LONGEST_WRITE] > 0.0, "{numbers:?}");
    }
}

#[test]
fn every_lock_excludes_under_schedules_that_look_for_mistakes() {
    for variant in VARIANTS {
        for seed in 0..24 {
            let program = program("w100+l1x2r1w+l2x1r0w+c1x1", 3, 4, variant);
            let setup = Setup { seed, ..Setup::new(&program, 0..120) };
            let line = Replay {
                seed,
                faults: Faults { preempt_access: 9, ..Faults::NONE },
                schedule: if seed % 2 == 0 { Schedule::Random } else { Schedule::Time },
                ..Replay::new("ivybridge-ex-4s", "readscale: exclusion")
            };
            simulate(setup, Machine::replay(&line).unwrap(), SCENARIO.simulated).unwrap();
        }
    }
}

/// A lock that claims to exclude.
struct Open;

impl<W: Testbed> ReadWrite<W> for Open {
    type Shared = ();

    fn share(_: usize) {}

    fn new_in((): &(), _: usize) -> Result<Self, RunError> {
        Ok(Open)
    }

    fn read(&self, (): &(), _: usize, section: impl FnOnce()) {
        section();
    }

    fn write(&self, (): &(), _: usize, section: impl FnOnce()) {
        section();
    }
}

fn run_open(setup: &Setup) -> Result<Vec<f64>, RunError> {
    contend::<Sim, Open>(&Load {
        cpus: &setup.cpus,
        threads: 4,
        is_spread: true,
        mix: Mix::parse("one").unwrap(),
        sets: 1,
        writes: 3,
        section: 100,
        rest: 100,
        window: 200_000,
        seed: setup.seed,
    })
}

#[test]
fn a_lock_that_excludes_nothing_is_found() {
    let setup = Setup::new(&program("one", 3, 4, "glibc"), 0..120);
    let machine = Machine::preset("ivybridge-ex-4s").unwrap();
    let broken = simulate(setup, machine, run_open).unwrap_err();
    let RunError::Check(found) = broken else { panic!("{broken:?}") };
    assert!(found.contains("were kept, and"), "{found}");
}

#[test]
fn more_threads_than_cpus_are_a_lack() {
    let setup = Setup::new(&program("one", 0, 3, "glibc"), [0, 1]);
    assert!(matches!((SCENARIO.native)(&setup), Err(RunError::Lack(_))));
}

/// A thread writes, and another one reads or writes.
fn exclusion<L: ReadWrite<Model>>(other_writes: bool) {
    let lock = L::share(2);
    let lock = (L::new_in(&lock, 2).unwrap(), lock, Cell::<u32, Model>::new_in(0));
    let shared = Arc::new(lock);
    let write = |(lock, shared, cell): &(L, L::Shared, Cell<u32, Model>), thread| {
        // SAFETY: the thread has the lock. That this excludes, and orders, is what is tested.
        lock.write(shared, thread, || cell.with_mut(|count| unsafe { *count += 1 }));
    };
    let theirs = Arc::clone(&shared);
    let other = Model::spawn(Placement::Anywhere, move || {
        let (lock, shared, cell) = &*theirs;
        if other_writes {
            write(&theirs, 1);
        } else {
            // SAFETY: no thread writes while this one reads.
            lock.read(shared, 1, || assert!(cell.with(|count| unsafe { *count }) <= 1));
        }
    });
    write(&shared, 0);
    other.unwrap().join();
    // SAFETY: all threads have been joined.
    let written = shared.2.with(|count| unsafe { *count });
    assert_eq!(written, 1 + u32::from(other_writes));
}

fn check<L: ReadWrite<Model>>(other_writes: bool) -> Result<u64, String> {
    let checker = Checker::new().preemption_bound(2);
    checker.try_check(move || exclusion::<L>(other_writes)).map_err(|failure| failure.message)
}

/// The model does not order SeqCst accesses of two words, as `lines` and `bravo` need.
#[test]
fn the_model_of_glibc_excludes_in_every_interleaving() {
    for other_writes in [false, true] {
        check::<glibc::PreferReader<Model>>(other_writes).unwrap();
    }
}

#[test]
fn a_lock_that_excludes_nothing_is_found_in_some_interleaving() {
    let found = check::<Open>(false).unwrap_err();
    assert!(found.contains("Causality violation"), "{found}");
}

/// A run of 1 ms, in which the lock first becomes biased.
fn program_of(config: &str, mix: &str, threads: u32, section: u32) -> String {
    format!(
        "readscale config={config} mix={mix} writes=0 threads={threads} place=packed sets=1 \
         section={section} rest=100 count=with variant={{}} window=1000"
    )
}

#[test]
fn readers_that_count_per_cpu_scale_where_readers_of_a_word_do_not() {
    for (machine, config) in [
        ("kunpeng920-96c-4n", "96-core/4-L3"),
        ("sapphire-rapids-2s", "224-thread/2-L3"),
        ("epyc-9654-2s", "384-thread/24-L3"),
    ] {
        for band in BOTH {
            let program = program_of(config, "one", 96, 100);
            let [glibc, biased] = figures(band, machine, &program, "", ["glibc", "biased"]);
            biased[RATE].at_least(5.0, &glibc[RATE]).unwrap();
        }
    }
}

/// The sections are so short that no reader finds another one in the word.
#[test]
fn readers_of_short_sections_count_per_cpu_too() {
    for threads in [8, 24] {
        let program = program_of("384-thread/24-L3", "openssl", threads, 0);
        let [glibc, biased] =
            figures(Band::quick, "epyc-9654-2s", &program, "", ["glibc", "biased"]);
        biased[RATE].at_least(1.2, &glibc[RATE]).unwrap();
    }
}
