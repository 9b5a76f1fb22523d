//! That the locks are locks, that the check can fail, and what is claimed.

mod per_node;

use std::sync::Arc;

use coreline_scenarios::lockscale::field::{
    LONGEST_RUN, LONGEST_WAIT, Load, NODE_SHARE, OTHER_NODE, RATE, SAME_CACHE, SHARE, contend,
};
use coreline_scenarios::lockscale::{Lock, SCENARIO, cna, mcs, reciprocating};
use coreline_scenarios::point::Setup;
use coreline_scenarios::{RunError, figures};
use coreline_sim::claim::{Band, Figures};
use coreline_sim::{Faults, Machine, Replay, Schedule, Sim, Spec};
use coreline_world::model::{Checker, Model};
use coreline_world::{Cell, JoinHandle, Placement, Testbed, Threads};

use crate::band::BOTH;

const VARIANTS: [&str; 9] = [
    "fifo",
    "near",
    "per-node",
    "ticket",
    "mcs",
    "cna",
    "reciprocating",
    "test-and-set",
    "parking-lot",
];

fn program(threads: u32, place: &str, variant: &str) -> String {
    format!(
        "lockscale config=x threads={threads} place={place} section=100 outside=300 \
         variant={variant} window=200"
    )
}

/// A run under a schedule, with faults.
fn simulate(
    setup: Setup,
    machine: Machine,
    run: fn(&Setup) -> Result<Vec<f64>, RunError>,
) -> Result<Vec<f64>, RunError> {
    machine.step_limit(20_000_000).run(move || run(&setup)).unwrap().value
}

#[test]
fn every_line_counts_every_turn_and_shares_are_shares() {
    for variant in VARIANTS {
        for place in ["packed", "spread"] {
            let setup = Setup::new(&program(60, place, variant), 0..120);
            let machine = Machine::preset("ivybridge-ex-4s").unwrap();
            let numbers = simulate(setup, machine, SCENARIO.simulated).unwrap();
            assert!(numbers[RATE] > 0.0, "{variant}: {numbers:?}");
            let shares = [numbers[SHARE], numbers[NODE_SHARE]];
            assert!(shares.iter().all(|it| (0.0..=1.0).contains(it)), "{variant}: {numbers:?}");
            let went: f64 = numbers[SAME_CACHE..].iter().sum();
            assert!((went - 100.0).abs() < 0.01, "{variant}: {numbers:?}");
            assert!(numbers[LONGEST_RUN] >= 1.0 && numbers[LONGEST_WAIT] > 0.0, "{numbers:?}");
        }
    }
}

#[test]
fn every_lock_excludes_under_schedules_that_look_for_mistakes() {
    for variant in VARIANTS {
        for seed in 0..24 {
            let setup = Setup { seed, ..Setup::new(&program(4, "spread", variant), 0..120) };
            let line = Replay {
                seed,
                faults: Faults { preempt_access: 9, ..Faults::NONE },
                schedule: if seed % 2 == 0 { Schedule::Random } else { Schedule::Time },
                ..Replay::new("ivybridge-ex-4s", "lockscale: exclusion")
            };
            simulate(setup, Machine::replay(&line).unwrap(), SCENARIO.simulated).unwrap();
        }
    }
}

#[test]
fn threads_are_packed_or_spread() {
    let run = |place| {
        let setup = Setup::new(&program(4, place, "fifo"), 0..96);
        let machine = Machine::preset("kunpeng920-96c-4n").unwrap();
        simulate(setup, machine, SCENARIO.simulated).unwrap()
    };
    let (packed, spread) = (run("packed"), run("spread"));
    assert_eq!((packed[OTHER_NODE], packed[SAME_CACHE]), (0.0, 100.0));
    assert!(spread[OTHER_NODE] > 50.0, "{spread:?}");
}

/// No lock at all.
struct Open;

impl<W: Testbed> Lock<W> for Open {
    fn new_in(_: &[u32]) -> Self {
        Open
    }

    fn hold(&self, _: usize, turn: impl FnOnce()) {
        turn();
    }
}

fn run_open(setup: &Setup) -> Result<Vec<f64>, RunError> {
    contend::<Sim, Open>(&Load {
        cpus: &setup.cpus,
        threads: 4,
        is_spread: true,
        section: 100,
        outside: 300,
        window: 200_000,
        seed: setup.seed,
    })
}

#[test]
fn a_lock_that_excludes_nothing_is_found() {
    let setup = Setup::new(&program(4, "spread", "fifo"), 0..120);
    let machine = Machine::preset("ivybridge-ex-4s").unwrap();
    let broken = simulate(setup, machine, run_open).unwrap_err();
    let RunError::Check(found) = broken else { panic!("{broken:?}") };
    assert!(found.contains("has counted"), "{found}");
}

#[test]
fn more_threads_than_cpus_are_a_lack() {
    let setup = Setup::new(&program(3, "packed", "fifo"), [0, 1]);
    assert!(matches!((SCENARIO.native)(&setup), Err(RunError::Lack(_))));
}

/// Threads on two nodes have a turn each; in the end the first one has another.
fn exclusion<L: Lock<Model>>(threads: usize) {
    let shared = Arc::new((L::new_in(&[0, 1, 0]), Cell::<u32, Model>::new_in(0)));
    let visit = |shared: &(L, Cell<u32, Model>), thread| {
        // SAFETY: the thread has the lock. That this excludes, and orders, is what is tested.
        shared.0.hold(thread, || shared.1.with_mut(|count| unsafe { *count += 1 }));
    };
    let start = |thread| {
        let theirs = Arc::clone(&shared);
        Model::spawn(Placement::Anywhere, move || visit(&theirs, thread)).unwrap()
    };
    let others: Vec<_> = (1..threads).map(start).collect();
    visit(&shared, 0);
    others.into_iter().for_each(JoinHandle::join);
    visit(&shared, 0);
    // SAFETY: all threads have been joined.
    assert_eq!(shared.1.with(|count| unsafe { *count }), threads as u32 + 1);
}

fn check<L: Lock<Model>>(threads: usize) -> Result<u64, String> {
    let checker = Checker::new().preemption_bound(2);
    checker.try_check(move || exclusion::<L>(threads)).map_err(|failure| failure.message)
}

/// Those that spin on a word that all change exceed what the model can follow.
#[test]
fn queues_of_papers_exclude_in_every_interleaving() {
    check::<mcs::Mcs<Model>>(3).unwrap();
    check::<cna::Cna<Model>>(3).unwrap();
    check::<reciprocating::Reciprocating<Model>>(3).unwrap();
}

#[test]
fn a_lock_that_excludes_nothing_is_found_in_some_interleaving() {
    let found = check::<Open>(2).unwrap_err();
    assert!(found.contains("Causality violation"), "{found}");
}

/// The numbers of some locks over a band, at a section of 100 ns and 500 ns outside, to
/// claim something of. `docs/appendix/lockscale-claims.md` has the claims, when they were made and
/// what was found.
fn claimed<const N: usize>(
    band: fn(&Spec, u64) -> Band,
    (machine, config): (&str, &str),
    threads: u32,
    place: &str,
    variants: [&str; N],
) -> [Vec<Figures>; N] {
    let window = if threads > 16 { 4000 } else { 1000 };
    let program = format!(
        "lockscale config={config} threads={threads} place={place} section=100 outside=500 \
         variant={{}} window={window}"
    );
    figures(band, machine, &program, "", variants)
}

const ARM: (&str, &str) = ("kunpeng920-96c-4n", "96-core/4-L3");
const X86: (&str, &str) = ("x86-128c-8n", "128-core/16-L3");
const EPYC: (&str, &str) = ("epyc-9654-2s", "384-thread/24-L3");

#[test]
fn near_gives_more_turns_on_many_nodes_and_each_node_its_share() {
    let machines = [(ARM, 96, 1.5), (X86, 128, 1.35), (EPYC, 384, 1.5)];
    for (band, (machine, threads, factor)) in
        BOTH.into_iter().flat_map(|band| machines.map(|it| (band, it)))
    {
        let variants = ["fifo", "near", "reciprocating"];
        let [fifo, near, reciprocating] = claimed(band, machine, threads, "packed", variants);
        near[RATE].at_least(factor, &fifo[RATE]).unwrap();
        near[RATE].at_least(1.25, &reciprocating[RATE]).unwrap();
        near[NODE_SHARE].within(0.9..=1.0).unwrap();
    }
}

#[test]
fn near_costs_next_to_nothing_where_few_threads_want_the_lock() {
    for (machine, place, threads) in [
        (ARM, "packed", &[1, 2, 4, 16][..]),
        (X86, "packed", &[1, 2, 4, 16]),
        (ARM, "spread", &[2, 4, 16]),
        (X86, "spread", &[2, 4, 16]),
    ] {
        for (band, &threads) in
            BOTH.iter().flat_map(|band| threads.iter().map(move |it| (band, it)))
        {
            let [fifo, near] = claimed(*band, machine, threads, place, ["fifo", "near"]);
            near[RATE].at_least(0.95, &fifo[RATE]).unwrap();
        }
    }
}
