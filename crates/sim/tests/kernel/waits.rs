//! Waits with a deadline: what they cost, what ends them, and what both may meet.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coreline_sim::interrupts::send;
use coreline_sim::{Explore, FailureKind, Faults, Schedule, Sim};
use coreline_topology::CpuId;
use coreline_world::conformance::{order, waits};
use coreline_world::{Clock, Integer, JoinHandle, Ordering, Threads, Time, Word, Work};

use crate::common::{U32, machine, on};
use crate::{host, run, word};

const MS: Duration = Duration::from_millis(1);

/// Waits in vain; returns how late the wait gave up.
fn in_vain(word: &U32, deadline: Time) -> Duration {
    assert_eq!(word.wait_until_by(Ordering::Relaxed, deadline, |value| value == 1), None);
    let now = Sim::now();
    assert!(now >= deadline, "gave up at {now}, before {deadline}");
    now - deadline
}

/// Pollers on all CPUs of the largest machine cost one event each, and not one for each pause.
#[test]
fn a_poller_costs_an_event_at_its_deadline() {
    let machine = machine("epyc-9654-2s", 1);
    let costs = *machine.spec().costs();
    let (late, report) = run(machine, || {
        let word = word(0);
        let deadline = Sim::now() + MS;
        let pollers: Vec<_> = (0..384)
            .map(|cpu| {
                let word = Arc::clone(&word);
                on(cpu, move || in_vain(&word, deadline))
            })
            .collect();
        pollers.into_iter().map(JoinHandle::join).collect::<Vec<_>>()
    });
    assert!(report.steps < 20_000, "{report}");
    // The look at the clock that ends the wait, the last look at the word, and the test's own look
    // at the clock. A tick may be due then.
    let most = 2 * costs.clock + costs.private_hit + costs.irq_entry + costs.irq_exit;
    let most = Duration::from_nanos(most / 1000 + 1);
    assert!(late.iter().all(|&late| late <= most), "{late:?}, at most {most:?}");
}

/// A wait with a deadline costs what one without costs, as long as the deadline does not come.
#[test]
fn a_deadline_that_does_not_come_costs_nothing() {
    let hand_over = |bounded: bool| {
        run(machine("epyc-9654-2s", 3), move || {
            let (word, late) = (word(0), Sim::now() + 3600 * 1000 * MS);
            let threads: Vec<_> = (0..32)
                .map(|turn| {
                    let word = Arc::clone(&word);
                    on(turn * 7, move || {
                        let mine = |value| value == turn;
                        if bounded {
                            let found = word.wait_until_by(Ordering::Acquire, late, mine);
                            assert_eq!(found, Some(turn));
                        } else {
                            word.wait_until(Ordering::Acquire, mine);
                        }
                        word.fetch_add(1, Ordering::Release);
                    })
                })
                .collect();
            threads.into_iter().for_each(JoinHandle::join);
        })
        .1
    };
    assert_eq!(hand_over(true), hand_over(false));
}

#[test]
fn a_thread_that_lost_its_cpu_gives_up_when_it_has_it_again() {
    let (late, report) = run(host(), || {
        // In the middle of one of the rival's slices.
        let waiter = on(1, || in_vain(&word(0), Sim::now() + Duration::from_micros(4500)));
        on(1, || Sim::work(30 * MS)).join();
        waiter.join()
    });
    assert!(report.preemptions > 1, "{report}");
    assert!(late > MS && late < 4 * MS, "{late:?}");
}

/// Interrupts end the rest and not the wait, and their handlers may wait as well.
#[test]
fn an_interrupt_leaves_the_deadline_alone() {
    let (late, _) = run(host(), || {
        let word = word(0);
        let deadline = Sim::now() + MS;
        for before in [900, 700, 10] {
            let word = Arc::clone(&word);
            let handler = move || {
                in_vain(&word, Sim::now() + Duration::from_micros(20));
            };
            let sender = on(1, move || {
                Sim::sleep(deadline - Sim::now() - Duration::from_micros(before));
                send(CpuId::new(0), handler).unwrap();
            });
            drop(sender);
        }
        in_vain(&word, deadline)
    });
    // The last handler is still in its own wait at the deadline.
    assert!(late > Duration::from_micros(1) && late < Duration::from_micros(60), "{late:?}");
}

/// A timer that was left behind by a wait that ended well ends nothing else.
#[test]
fn a_wait_that_ended_leaves_no_deadline_behind() {
    let (slept, report) = run(host(), || {
        let word = word(0);
        let theirs = Arc::clone(&word);
        let deadline = Sim::now() + MS;
        let writer =
            on(1, move || (0..500).for_each(|_| _ = theirs.fetch_add(1, Ordering::Relaxed)));
        let found = word.wait_until_by(Ordering::Relaxed, deadline, |value| value == 500);
        assert_eq!(found, Some(500));
        writer.join();
        let before = Sim::now();
        assert!(before < deadline);
        Sim::sleep(5 * MS);
        Sim::now() - before
    });
    assert!(slept >= 5 * MS, "{slept:?}");
    assert!(report.steps < 20_000, "{report}");
}

#[test]
fn waits_with_a_deadline_are_no_deadlock_and_hide_none() {
    for schedule in [Schedule::Time, Schedule::Random, Schedule::Pct { depth: 3, steps: 100 }] {
        let host = || host().schedule(schedule.clone());
        run(host(), || {
            let other = on(1, || in_vain(&word(0), Sim::now() + MS));
            in_vain(&word(0), Sim::now() + 2 * MS);
            other.join();
        });
        let never = [Time::from_nanos(u64::MAX), Time::from_nanos(u64::MAX / 1000)];
        for deadline in never {
            let failure = host().run(move || {
                let other = on(1, || in_vain(&word(0), Sim::now() + MS));
                word(0).wait_until_by(Ordering::Relaxed, deadline, |value| value == 1);
                other.join();
            });
            assert_eq!(failure.unwrap_err().kind, FailureKind::Deadlock);
        }
    }
}

/// Whether a waiter found what another thread wrote after so many accesses.
fn found(span: Duration, accesses: u32) -> bool {
    let (told, other) = (word(0), word(0));
    let theirs = Arc::clone(&told);
    let waiter = on(1, move || {
        let deadline = Sim::now() + span;
        theirs.wait_until_by(Ordering::Relaxed, deadline, |value| value == 1).is_some()
    });
    for _ in 0..accesses {
        other.fetch_add(1, Ordering::Relaxed);
    }
    told.store(1, Ordering::Relaxed);
    waiter.join()
}

/// Schedules that choose come to the write first, and to the deadline first.
#[test]
fn a_chosen_schedule_finds_the_write_first_and_the_deadline_first() {
    let outcomes = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = || std::mem::take(&mut *outcomes.lock().unwrap());
    // An access on one's own line takes some nanoseconds.
    let program = |accesses| {
        let outcomes = Arc::clone(&outcomes);
        move || {
            let found = found(Duration::from_nanos(300), accesses);
            outcomes.lock().unwrap().insert(found);
        }
    };
    let both = BTreeSet::from([false, true]);
    for schedule in [Schedule::Random, Schedule::Pct { depth: 3, steps: 100 }] {
        for seed in 0..50 {
            run(machine("host-2c", seed).schedule(schedule.clone()), program(58));
        }
        assert_eq!(seen(), both, "{schedule:?}");
    }
    // One preemption lets the waiter begin to wait, another one lets it look at its deadline.
    let explored = Explore::new().preemptions(2).run(host, program(175)).unwrap();
    assert!(explored.complete, "{explored:?}");
    assert_eq!(seen(), both);
}

#[test]
fn the_laws_hold_under_faults_and_chosen_schedules() {
    type Law = fn();
    let laws: [Law; 4] = [
        waits::a_bounded_wait_gives_up_at_its_deadline::<Sim>,
        waits::a_bounded_wait_misses_nothing_before_its_deadline::<Sim>,
        waits::a_wait_that_is_given_up_and_a_grant_agree::<Sim>,
        order::a_bounded_wait_sees_what_was_published::<Sim>,
    ];
    let faults: Faults = "preempt-access:20,migrate:20,signal:30,delay:40".parse().unwrap();
    for schedule in [Schedule::Time, Schedule::Random, Schedule::Pct { depth: 3, steps: 1000 }] {
        for (seed, law) in laws.into_iter().enumerate() {
            let machine = machine("host-2c", seed as u64).schedule(schedule.clone());
            run(machine.faults(faults), law);
        }
    }
}
