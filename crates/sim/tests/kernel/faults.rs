//! Faults: each does what it says, and the machine stays whole.

use std::sync::Arc;
use std::time::Duration;

use coreline_sim::{Faults, Report, Sim, on_signal};
use coreline_topology::CpuId;
use coreline_world::conformance::restartable::BareWords;
use coreline_world::conformance::{order, restartable, sleep};
use coreline_world::{
    Clock, IndexBy, Integer, JoinHandle, Line, Ordering, Place, Placement, Signals, SpawnError,
    Threads, Word,
};

use crate::common::{U64, machine, on};
use crate::run;

/// What a program returns under faults, and what it cost.
fn under<T: 'static>(
    faults: Faults,
    seed: u64,
    program: impl FnOnce() -> T + 'static,
) -> (T, Report) {
    run(machine("host-2c", seed).faults(faults).step_limit(50_000_000), program)
}

/// A thousand stores to a word that no other thread uses.
fn stores() -> Duration {
    let word = U64::new_in(0);
    let start = Sim::now();
    (0..1000).for_each(|n| word.store(n, Ordering::Relaxed));
    Sim::now() - start
}

#[test]
fn a_preemption_at_accesses_hits_as_often_as_was_asked() {
    let faults = Faults { preempt_access: 20, ..Faults::NONE };
    let (_, report) = under(faults, 1, stores);
    assert!((25..100).contains(&report.preemptions), "{report:?}");
    assert_eq!(under(Faults::NONE, 1, stores).1.preemptions, 0);
}

#[test]
fn a_delay_costs_microseconds_and_nothing_else() {
    let (calm, _) = under(Faults::NONE, 1, stores);
    let (delayed, report) = under(Faults { delay: 10, ..Faults::NONE }, 1, stores);
    // A hundred of five microseconds each, on average.
    let lost = delayed - calm;
    assert!((Duration::from_micros(300)..Duration::from_micros(800)).contains(&lost), "{lost:?}");
    assert_eq!(report.preemptions + report.migrations + report.restarts, 0);
}

/// Adds on the one slot of a CPU, where each signal adds, too. Returns the sum, what the loop added
/// and what the signals did.
fn add_under_signals() -> (u64, u64, u64) {
    const OURS: u64 = 300;
    let slots = Arc::new(BareWords::<Sim>::new_in(IndexBy::Cpu).unwrap());
    let signals = Arc::new(U64::new_in(0));
    let (theirs, count) = (Arc::clone(&slots), Arc::clone(&signals));
    on_signal(move || {
        theirs.add(1).unwrap();
        count.fetch_add(1, Ordering::Relaxed);
    });
    for _ in 0..OURS {
        slots.add(1).unwrap();
    }
    on_signal(|| ());
    (slots.values().sum(), OURS, signals.load(Ordering::Relaxed))
}

#[test]
fn a_signal_runs_its_handler_and_restarts_the_operation_under_way() {
    let faults = Faults { signal: 10, ..Faults::NONE };
    for seed in 0..8 {
        let ((sum, ours, handled), report) = under(faults, seed, add_under_signals);
        assert_eq!(sum, ours + handled);
        assert!(handled > 50 && report.restarts > 20, "{handled} {report:?}");
    }
    // The handler adds between a load and a store that is not made to start over.
    let missed = Faults { missed_aborts: true, ..faults };
    let lost = (0..8).any(|seed| {
        let ((sum, ours, handled), _) = under(missed, seed, add_under_signals);
        sum < ours + handled
    });
    assert!(lost, "nothing lost without aborts");
}

#[test]
fn held_signals_come_when_the_last_hold_ends() {
    let faults = Faults { signal: 5, ..Faults::NONE };
    let ((during, after), _) = under(faults, 1, || {
        let signals = Arc::new(U64::new_in(0));
        let theirs = Arc::clone(&signals);
        on_signal(move || _ = theirs.fetch_add(1, Ordering::Relaxed));
        let outer = Sim::hold();
        let inner = Sim::hold();
        let before = signals.load(Ordering::Relaxed);
        for _ in 0..200 {
            signals.load(Ordering::Relaxed);
        }
        drop(inner);
        let during = signals.load(Ordering::Relaxed) - before;
        drop(outer);
        (during, signals.load(Ordering::Relaxed) - before)
    });
    assert_eq!(during, 0);
    assert!((1..4).contains(&after), "{after}: pending ones are one");
}

#[test]
fn a_handler_is_not_interrupted_by_the_next_signal() {
    let faults = Faults { signal: 3, ..Faults::NONE };
    under(faults, 1, || {
        let inside = Arc::new(U64::new_in(0));
        let theirs = Arc::clone(&inside);
        on_signal(move || {
            assert_eq!(theirs.fetch_add(1, Ordering::Relaxed), 0, "nested");
            (0..10).for_each(|_| _ = theirs.load(Ordering::Relaxed));
            theirs.fetch_sub(1, Ordering::Relaxed);
        });
        stores();
    });
}

#[test]
fn a_panic_of_a_handler_is_its_threads() {
    let faults = Faults { signal: 10, ..Faults::NONE };
    let run = machine("host-2c", 1).faults(faults).run(|| {
        on_signal(|| panic!("in the handler"));
        stores();
    });
    let failure = run.unwrap_err().to_string();
    assert!(failure.contains("in the handler"), "{failure}");
}

#[test]
fn a_cpu_that_goes_offline_loses_all_its_threads_bound_or_not() {
    let faults = Faults { offline: 100, ..Faults::NONE };
    for seed in 0..8 {
        let (cpus, report) = under(faults, seed, || {
            let threads = [0, 0, 1, 1].map(|cpu| {
                on(cpu, || {
                    stores();
                    Sim::cpu()
                })
            });
            threads.map(JoinHandle::join)
        });
        // One of two CPUs is left, whose threads all are at the end.
        assert!(cpus.iter().all(|cpu| *cpu == cpus[0]), "{cpus:?}");
        assert!(report.migrations >= 1);
    }
}

#[test]
fn the_last_cpu_stays_and_an_offline_one_takes_no_threads() {
    let faults = Faults { offline: 1, ..Faults::NONE };
    let (refused, _) = under(faults, 1, || {
        stores();
        let gone = CpuId::new(1 - Sim::cpu().get());
        match Sim::spawn(Placement::On(gone), || ()).map(|_| ()).unwrap_err() {
            SpawnError::Cpu { cpu, why, allowed } => (cpu == gone, why, allowed),
            error => panic!("{error}"),
        }
    });
    assert!(refused.0);
    assert_eq!(refused.1, "it is offline");
    assert!(["CPUs 0", "CPUs 1"].contains(&refused.2.as_str()), "{}", refused.2);
}

#[test]
fn a_thread_that_slept_on_a_cpu_that_went_offline_wakes_elsewhere() {
    let faults = Faults { offline: 50, ..Faults::NONE };
    let (_, report) = under(faults, 2, || {
        let word = Arc::new(Line(U64::new_in(0)));
        let sleepers = [0, 1].map(|cpu| on(cpu, || Sim::sleep(Duration::from_millis(1))));
        (0..100).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed));
        sleepers.into_iter().for_each(JoinHandle::join);
    });
    assert!(report.migrations >= 1);
}

#[test]
fn the_laws_hold_under_all_faults_at_once() {
    let faults = Faults {
        preempt: 9,
        preempt_access: 11,
        migrate: 13,
        signal: 15,
        delay: 17,
        offline: 2000,
        ..Faults::NONE
    };
    // Those of a bound thread's own slot are not among them: its CPU may go out of service.
    let laws: [(&str, fn()); 4] = [
        ("additions", restartable::no_addition_is_lost::<Sim>),
        ("publication", order::published_data_is_seen::<Sim>),
        ("wake-ups", sleep::no_wakeup_is_lost::<Sim>),
        ("one of many", sleep::a_wake_of_one_wakes_one::<Sim>),
    ];
    for (name, law) in laws {
        for seed in 0..4 {
            let machine = machine("host-2c", seed).faults(faults).program(name);
            machine.run(law).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

#[test]
fn the_same_seed_is_hit_by_the_same_faults() {
    let faults = Faults { preempt_access: 7, delay: 9, signal: 11, offline: 500, ..Faults::NONE };
    let run = |seed| under(faults, seed, stores);
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).0, run(4).0);
}
