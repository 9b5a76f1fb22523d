//! That the checks can fail, that variants differ in what they say, and what is claimed.

mod charge;

use coreline_scenarios::execstorm::SCENARIO;
use coreline_scenarios::execstorm::sources::{Constructed, InHand, Listed};
use coreline_scenarios::execstorm::storm::{Load, MUTEX, Mm, RATE, SHARE, Source, storm};
use coreline_scenarios::point::Setup;
use coreline_scenarios::{RunError, figures};
use coreline_sim::claim::{Band, Figures};
use coreline_sim::{Faults, Machine, Replay, Schedule, Sim};
use coreline_world::Testbed;

const VARIANTS: [&str; 4] = ["ungrouped", "global-mutex", "ctor-dtor-no-magazine", "ctor-dtor"];

fn program(threads: u32, outside: u32, variant: &str, window: u32) -> String {
    format!(
        "execstorm config=x threads={threads} outside={outside} zero=all variant={variant} \
         window={window}"
    )
}

/// A run on the first CPUs of the desktop.
fn simulate(
    program: &str,
    machine: Machine,
    run: fn(&Setup) -> Result<Vec<f64>, RunError>,
) -> Result<Vec<f64>, RunError> {
    let setup = Setup::new(program, 0..24);
    machine.step_limit(20_000_000).run(move || run(&setup)).unwrap().value
}

fn desktop() -> Machine {
    Machine::preset("desktop-12c").unwrap()
}

#[test]
fn every_variant_lives_with_and_without_work_outside() {
    for variant in VARIANTS {
        let of = |outside| {
            simulate(&program(24, outside, variant, 400), desktop(), SCENARIO.simulated).unwrap()
        };
        let (without, with) = (of(0), of(100));
        assert!(without[RATE] > 2.0 * with[RATE], "{variant}: {without:?} {with:?}");
        assert!(with[RATE] > 0.0 && (0.0..=1.0).contains(&with[SHARE]), "{variant}: {with:?}");
        assert_eq!(without[MUTEX], 0.0, "{variant}: no clock beside the mutex");
        assert_eq!(with[MUTEX] > 0.0, matches!(variant, "ungrouped" | "global-mutex"), "{with:?}");
    }
}

#[test]
fn objects_are_in_one_hand_under_schedules_that_look_for_mistakes() {
    for variant in VARIANTS {
        for seed in 0..8 {
            let line = Replay {
                seed,
                faults: Faults { preempt_access: 9, ..Faults::NONE },
                schedule: if seed % 2 == 0 { Schedule::Random } else { Schedule::Time },
                ..Replay::new("desktop-12c", "execstorm: one hand")
            };
            let machine = Machine::replay(&line).unwrap();
            simulate(&program(6, 0, variant, 20), machine, SCENARIO.simulated).unwrap();
        }
    }
}

/// Hands one object to all threads.
struct Shared<W: Testbed>(Listed<W>);

impl<W: Testbed> Source<W> for Shared<W> {
    type Mm<'a> = InHand<'a, W>;

    fn new_in(load: &Load<'_>) -> Result<Self, RunError> {
        Listed::new_in(load).map(Shared)
    }

    fn take(&self, _: usize, _: &mut u64) -> Result<InHand<'_, W>, RunError> {
        self.0.in_hand(1)
    }

    fn give_back(&self, _: usize, _: InHand<'_, W>) {}
}

fn run_of<S: Source<Sim>>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    let (cpus, seed) = (&setup.cpus[..6], setup.seed);
    let possible = &setup.cpus;
    let load = Load { cpus, possible, outside: 0, zeroes_all: true, window: 20_000, seed };
    storm::<Sim, S>(&load)
}

#[test]
fn an_object_in_two_hands_is_found() {
    let broken = simulate(&program(6, 0, "ctor-dtor", 20), desktop(), run_of::<Shared<Sim>>);
    let Err(RunError::Check(found)) = broken else { panic!("{broken:?}") };
    // Which of the checks sees it first depends on where the two threads are in their lives.
    let seen = ["taken again", "found the ID"].iter().any(|what| found.contains(what));
    assert!(seen, "{found}");
}

/// Takes from a counter what it never gave.
struct Unbalanced<W: Testbed>(Constructed<W>);

impl<W: Testbed> Source<W> for Unbalanced<W> {
    type Mm<'a> = <Constructed<W> as Source<W>>::Mm<'a>;

    fn new_in(load: &Load<'_>) -> Result<Self, RunError> {
        Constructed::new_in(load).map(Unbalanced)
    }

    fn take(&self, thread: usize, waited: &mut u64) -> Result<Self::Mm<'_>, RunError> {
        self.0.take(thread, waited)
    }

    fn give_back(&self, _: usize, mm: Self::Mm<'_>) {
        mm.add(2, 1);
    }
}

#[test]
fn a_counter_that_is_not_at_zero_is_found() {
    let broken = simulate(&program(6, 0, "ctor-dtor", 20), desktop(), run_of::<Unbalanced<Sim>>);
    let Err(RunError::Check(found)) = broken else { panic!("{broken:?}") };
    assert!(found.contains("counters ended at [0, 0, 1, 0]"), "{found}");
}

#[test]
fn zeroing_is_part_of_an_allocation() {
    let of = |zero: &str| {
        let program = program(1, 0, "global-mutex", 100).replace("zero=all", zero);
        simulate(&program, desktop(), SCENARIO.simulated).unwrap()[RATE]
    };
    let [all, own] = ["zero=all", "zero=own"].map(of);
    assert!(own > 1.05 * all, "{own} {all}");
}

#[test]
fn more_threads_than_cpus_are_a_lack() {
    let setup = Setup::new(&program(3, 0, "ctor-dtor", 20), [0, 1]);
    assert!(matches!((SCENARIO.native)(&setup), Err(RunError::Lack(_))));
}

const SERVER: &str = "epyc-7r13-2s";

/// The lives in a second over a band of the server, at the level of locks.
fn lives<const N: usize>(
    band: fn(&coreline_sim::Spec, u64) -> Band,
    threads: u32,
    window: u32,
    variants: [&str; N],
) -> [Figures; N] {
    let program = program(threads, 0, "{}", window).replace("config=x", "config=192-thread/12-L3");
    figures(band, SERVER, &program, "", variants).map(|mut numbers| numbers.swap_remove(RATE))
}

/// What is claimed, at the level of locks, over the request shares:
///
/// | claim | found |
/// |---|---|
/// | `ctor-dtor`: 192 CPUs have at least 100 times the lives of one | holds: 192 times |
/// | `global-mutex`: 8 CPUs have at least 4 times the lives of 192 | does not: 2.9 to 3.6 |
/// | and one CPU at least 3 times | holds: 3.5 to 3.8 times |
#[test]
fn constructed_objects_scale_to_all_cpus() {
    let [one] = lives(Band::quick, 1, 20, ["ctor-dtor"]);
    let [all] = lives(Band::quick, 192, 5, ["ctor-dtor"]);
    all.at_least(100.0, &one).unwrap();
}

#[test]
fn a_global_mutex_collapses() {
    let [one] = lives(Band::quick, 1, 200, ["global-mutex"]);
    let [few] = lives(Band::quick, 8, 200, ["global-mutex"]);
    let [all] = lives(Band::quick, 192, 1000, ["global-mutex"]);
    // Where a cache's parts lie in memory moves this by a third, from 2.9 to 4.1 so far.
    few.at_least(2.5, &all).unwrap();
    one.at_least(3.0, &all).unwrap();
}
