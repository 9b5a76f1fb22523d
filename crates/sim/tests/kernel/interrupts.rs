//! Interrupts: when they arrive, on which stack, and what they do to the thread there.

use std::sync::Arc;
use std::time::Duration;

use coreline_sim::interrupts::{Monitored, mask, monitor_wait, send};
use coreline_sim::{Explore, Failure, FailureKind, Faults, Schedule, Sim};
use coreline_topology::CpuId;
use coreline_world::conformance::restartable::BareWords;
use coreline_world::{
    Clock, IndexBy, Integer, JoinHandle, Kick, Line, Ordering, Place, Signals, Sleep, Threads,
    Time, Word, Work,
};

use crate::common::{U64, machine, on};
use crate::{run, word};

/// The first CPU's partner.
const OTHER: CpuId = CpuId::new(1);

fn value<T: 'static>(program: impl FnOnce() -> T + 'static) -> T {
    run(machine("host-2c", 1), program).0
}

/// Sends an interrupt to the other CPU. Returns how long after that its handler ran, and on what
/// CPU and as what thread.
fn interrupt() -> (Duration, CpuId, u32) {
    let answer = Arc::new(std::sync::Mutex::new(None));
    let theirs = Arc::clone(&answer);
    let done = Arc::new(Line(U64::new_in(0)));
    let their_done = Arc::clone(&done);
    let sent = Sim::now();
    let handler = move || {
        *theirs.lock().unwrap() = Some((Sim::now() - sent, Sim::cpu(), Sim::thread_id().get()));
        their_done.store(1, Ordering::Release);
    };
    send(OTHER, handler).unwrap();
    done.wait_until(Ordering::Acquire, |value| value == 1);
    let answer = answer.lock().unwrap().take();
    answer.unwrap()
}

/// What a thread does until a word says that it may end.
type Doing = fn(&U64);

/// What the machine file says of an interrupt's way, entry and a monitored wait's end.
fn costs() -> [Duration; 3] {
    let spec = machine("host-2c", 1);
    let costs = *spec.spec().costs();
    [costs.ipi, costs.irq_entry, costs.mwait_exit].map(|ps| Duration::from_nanos(ps / 1000))
}

#[test]
fn an_interrupt_arrives_when_it_should_whatever_the_cpu_does() {
    let [way, entry, wake] = costs();
    let busy: [(&str, Duration, Option<Doing>); 5] = [
        ("idle", wake, None),
        ("computing", Duration::ZERO, Some(|_| Sim::work(Duration::from_millis(5)))),
        ("waiting", Duration::ZERO, Some(|end| _ = end.wait_until(Ordering::Relaxed, |n| n == 1))),
        ("asleep", wake, Some(|_| Sim::sleep(Duration::from_millis(5)))),
        ("reading", Duration::ZERO, Some(|end| while end.load(Ordering::Relaxed) == 0 {})),
    ];
    for (name, more, what) in busy {
        let (after, cpu, thread) = value(move || {
            let end = Arc::new(Line(U64::new_in(0)));
            let theirs = Arc::clone(&end);
            let other = what.map(|what| on(1, move || what(&theirs)));
            Sim::sleep(Duration::from_millis(1));
            let answer = interrupt();
            end.store(1, Ordering::Relaxed);
            other.map(JoinHandle::join);
            answer
        });
        assert_eq!(cpu, OTHER, "{name}");
        // On the stack of the thread that runs there, or of the idle context.
        let idle = more > Duration::ZERO;
        // Where there is no thread, the context is the second to be numbered.
        assert_eq!(thread == 2, !idle || name == "idle", "{name}: thread {thread}");
        let least = (way * 9 / 10) + entry + more;
        // A few accesses and a look at the clock come on top.
        let most = way * 11 / 10 + entry + more + Duration::from_nanos(400);
        assert!((least..most).contains(&after), "{name}: {after:?}, not {least:?} to {most:?}");
    }
}

#[test]
fn a_masked_section_is_neither_interrupted_nor_preempted() {
    let (before, after, turns) = value(|| {
        let word = Arc::new(Line(U64::new_in(0)));
        let theirs = Arc::clone(&word);
        let masker = on(1, move || {
            let outer = mask();
            let inner = mask();
            Sim::work(Duration::from_millis(20));
            drop(inner);
            let (before, end) = (theirs.load(Ordering::Relaxed), Sim::now());
            drop(outer);
            (before, theirs.load(Ordering::Relaxed), end)
        });
        Sim::sleep(Duration::from_millis(1));
        // It gets the CPU when the section is over.
        let rival = on(1, Sim::now);
        let theirs = Arc::clone(&word);
        send(OTHER, move || _ = theirs.fetch_add(1, Ordering::Relaxed)).unwrap();
        let (before, after, end) = masker.join();
        (before, after, rival.join() > end)
    });
    assert_eq!((before, after), (0, 1));
    assert!(turns);
}

#[test]
fn an_interrupt_restarts_no_operation_and_a_signal_does() {
    let restarts = |faults: &str, interrupts: bool| {
        let machine = machine("host-2c", 3).faults(faults.parse().unwrap());
        let program = move || {
            let slots = Arc::new(BareWords::<Sim>::new_in(IndexBy::Cpu).unwrap());
            let theirs = Arc::clone(&slots);
            let adder = on(1, move || (0..500).for_each(|_| theirs.add(1).unwrap()));
            let handled = Arc::new(U64::new_in(0));
            for _ in 0..if interrupts { 20 } else { 0 } {
                let theirs = Arc::clone(&handled);
                send(OTHER, move || _ = theirs.fetch_add(1, Ordering::Relaxed)).unwrap();
            }
            adder.join();
            assert_eq!(slots.values().sum::<u64>(), 500);
        };
        run(machine, program).1.restarts
    };
    assert_eq!(restarts("none", false), 0);
    assert_eq!(restarts("none", true), 0);
    assert!(restarts("signal:10", false) > 10);
}

#[test]
fn a_monitored_wait_ends_at_a_write_or_at_an_interrupt() {
    let [_, _, exit] = costs();
    let (changed, masked, waited) = value(move || {
        let word = Arc::new(Line(U64::new_in(0)));
        assert_eq!(monitor_wait(&**word, 1), Monitored::Changed, "it is not as expected");
        let theirs = Arc::clone(&word);
        let waiter = on(1, move || {
            // The interrupt is not handled yet, and ends the wait all the same.
            let off = mask();
            let before = Sim::now();
            let masked = monitor_wait(&**theirs, 0);
            let waited = Sim::now() - before;
            drop(off);
            let changed = loop {
                match monitor_wait(&**theirs, 0) {
                    Monitored::Disturbed => {}
                    changed => break changed,
                }
            };
            (changed, masked, waited)
        });
        Sim::sleep(Duration::from_millis(1));
        let handled = Arc::new(Line(U64::new_in(0)));
        let theirs = Arc::clone(&handled);
        send(OTHER, move || theirs.store(1, Ordering::Release)).unwrap();
        handled.wait_until(Ordering::Acquire, |value| value == 1);
        word.store(1, Ordering::Release);
        waiter.join()
    });
    assert_eq!((changed, masked), (Monitored::Changed, Monitored::Disturbed));
    assert!(waited > exit, "{waited:?}");
}

#[test]
fn a_monitored_wait_for_nothing_is_a_deadlock() {
    let program = || while monitor_wait(&U64::new_in(0), 0) == Monitored::Disturbed {};
    let failure: Box<Failure> = machine("host-2c", 1).run(program).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock, "{failure}");
}

#[test]
fn an_interrupt_for_a_cpu_that_is_not_there_is_refused() {
    let error = value(|| send(CpuId::new(99), || ()).unwrap_err());
    let error = error.to_string();
    assert!(error.contains("cpu 99") && error.contains("0-1"), "{error}");
}

#[test]
fn the_machine_ends_after_the_last_handler_and_can_be_used_in_one() {
    let ran = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let theirs = Arc::clone(&ran);
    value(move || {
        let handler = move || {
            theirs.fetch_add(1, Ordering::Relaxed);
            let again = Arc::clone(&theirs);
            send(CpuId::new(0), move || _ = again.fetch_add(1, Ordering::Relaxed)).unwrap();
        };
        send(OTHER, handler).unwrap();
    });
    assert_eq!(ran.load(Ordering::Relaxed), 2);
}

#[test]
fn a_handler_wakes_a_sleeper_on_its_own_cpu() {
    value(|| {
        let word = word(0);
        let theirs = Arc::clone(&word);
        let sleeper = on(1, move || {
            while theirs.load(Ordering::Acquire) == 0 {
                Sim::park(&theirs, 0, None);
            }
        });
        let handler = move || {
            word.store(1, Ordering::Release);
            Sim::wake(&**word, 1);
        };
        send(OTHER, handler).unwrap();
        sleeper.join();
    });
}

#[test]
fn a_failure_says_whose_interrupts_are_masked() {
    let program = || {
        let _off = mask();
        Line(U64::new_in(0)).wait_until(Ordering::Relaxed, |value| value == 1);
    };
    let failure = machine("host-2c", 1).run(program).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock);
    assert!(failure.cpus[0].masked && !failure.cpus[1].masked);
    assert!(failure.to_string().contains("interrupts masked"), "{failure}");
}

#[test]
fn a_kick_takes_what_an_interrupt_takes_and_of_an_idle_cpu_a_system_call() {
    let [way, entry, _] = costs();
    let kick = || {
        let before = Sim::now();
        Sim::kick(OTHER).unwrap();
        Sim::now() - before
    };
    let (idle, busy, masked) = value(move || {
        let idle = kick();
        let computing = on(1, || Sim::work(Duration::from_millis(5)));
        Sim::sleep(Duration::from_millis(1));
        let busy = kick();
        computing.join();
        let masking = on(1, || {
            let _off = mask();
            Sim::work(Duration::from_millis(5));
        });
        Sim::sleep(Duration::from_millis(1));
        let masked = kick();
        masking.join();
        (idle, busy, masked)
    });
    assert!(idle < way / 2, "{idle:?}");
    let least = way * 9 / 10 + entry;
    assert!((least..least + 2 * way).contains(&busy), "{busy:?}");
    assert!(masked > Duration::from_millis(3), "{masked:?}");
}

#[test]
fn a_kick_restarts_what_its_cpu_has_under_way_and_nothing_else() {
    let restarts = |kicked: u32| {
        let program = move || {
            let slots = Arc::new(BareWords::<Sim>::new_in(IndexBy::Cpu).unwrap());
            let theirs = Arc::clone(&slots);
            let adder = on(1, move || (0..50_000).for_each(|_| theirs.add(1).unwrap()));
            let rest = on(2, || Sim::work(Duration::from_millis(10)));
            // The thread is there.
            Sim::sleep(Duration::from_micros(40));
            (0..20).for_each(|_| Sim::kick(CpuId::new(kicked)).unwrap());
            adder.join();
            rest.join();
            assert_eq!(slots.values().sum::<u64>(), 50_000);
        };
        run(machine("epyc-9654-2s", 1), program).1.restarts
    };
    let own = restarts(1);
    assert!((1..=20).contains(&own), "{own}");
    assert_eq!([0, 2, 3].map(restarts), [0, 0, 0]);
}

/// Only a mask keeps a thread on a CPU that another one is to have.
#[test]
fn a_masked_thread_knows_when_its_cpu_is_wanted() {
    let span = Duration::from_millis(20);
    let asked_after = |span: Duration| {
        Sim::work(span);
        Sim::need_resched()
    };
    let answers = value(move || {
        let masker = on(1, move || {
            let off = mask();
            let alone = asked_after(span / 4);
            let wanted = asked_after(span);
            // The other one has its slice, and this one gets a new one.
            Sim::yield_now();
            let early = asked_after(Duration::from_micros(100));
            let late = asked_after(span);
            drop(off);
            [alone, wanted, early, late, Sim::need_resched()]
        });
        Sim::sleep(span / 2);
        on(1, || Sim::work(Duration::from_millis(50))).join();
        masker.join()
    });
    assert_eq!(answers, [false, true, false, true, false]);
    let (before, after) = value(|| {
        let masker = on(1, || {
            let _off = mask();
            let before = Sim::need_resched();
            Sim::work(Duration::from_millis(5));
            (before, Sim::need_resched())
        });
        Sim::sleep(Duration::from_millis(1));
        send(OTHER, || ()).unwrap();
        masker.join()
    });
    assert_eq!((before, after), (false, true), "of an interrupt that waits");
}

/// Interrupts that a CPU sends itself and another, while both compute and add.
fn storm() -> (u64, Time) {
    let sum = Arc::new(Line(U64::new_in(0)));
    let senders = [0, 1].map(|cpu| {
        let sum = Arc::clone(&sum);
        on(cpu, move || {
            for round in 0..50 {
                let theirs = Arc::clone(&sum);
                let to = CpuId::new((cpu + round % 2) % 2);
                send(to, move || _ = theirs.fetch_add(1, Ordering::Relaxed)).unwrap();
                let _off = (round % 3 == 0).then(mask);
                Sim::work(Duration::from_nanos(500));
                sum.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    senders.into_iter().for_each(JoinHandle::join);
    // What is still on its way.
    Sim::sleep(Duration::from_micros(100));
    (sum.load(Ordering::Relaxed), Sim::now())
}

#[test]
fn a_storm_loses_no_interrupt_under_any_schedule_or_fault() {
    let faults: Faults = "preempt-access:20,signal:30,delay:40".parse().unwrap();
    for schedule in [Schedule::Time, Schedule::Random, Schedule::Pct { depth: 3, steps: 1000 }] {
        for seed in 0..4 {
            for faults in [Faults::NONE, faults] {
                let storm_run = || {
                    let machine = machine("host-2c", seed).schedule(schedule.clone());
                    run(machine.faults(faults), storm)
                };
                let first = storm_run();
                assert_eq!(first.0.0, 200);
                assert_eq!(storm_run(), first);
            }
        }
    }
    let explored = Explore::new().preemptions(1).limit(50).run(
        || machine("host-2c", 1),
        || {
            assert_eq!(storm().0, 200);
        },
    );
    assert_eq!(explored.unwrap().runs, 50);
}
