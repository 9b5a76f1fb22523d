//! Which thread runs when: turns on a CPU, timers, waits, the end of threads and of time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use coreline_sim::{Doing, FailureKind, Machine, Sim};
use coreline_topology::{CpuId, CpuSet};
use coreline_world::{
    Clock, IndexBy, JoinHandle, Line, Ordering, Place, Placement, Restartable, Sleep, Threads,
    Word, Words, Work, WorldStatic,
};

use crate::common::{U32, machine, on};

#[test]
fn a_thread_that_has_ended_leaves_room_for_the_next() {
    // Each stack is two mappings of the host, which by default allows 65,530.
    let program = || (0..40_000).for_each(|n| on(n % 2, || ()).join());
    if let Err(failure) = machine("host-2c", 1).run(program) {
        panic!("{failure}");
    }
}

#[test]
fn a_thread_that_is_ready_does_not_wait_behind_one_that_is_on_its_way() {
    let waited = machine("host-2c", 1).run(|| {
        let start = Sim::now();
        // Ready when the kernel has made it: 20 us from now.
        let child = on(0, || ());
        Sim::yield_now();
        let waited = Sim::now() - start;
        child.join();
        waited
    });
    let waited = waited.unwrap().value;
    assert!(waited < Duration::from_micros(5), "{waited:?}");
}

/// A thread parks for an hour and is woken soon.
fn wake_early() {
    let word = Arc::new(U32::new_in(0));
    let theirs = Arc::clone(&word);
    let sleeper =
        on(1, move || Sim::park(&theirs, 0, Some(Sim::now() + Duration::from_secs(3600))));
    while Sim::wake(&*word, 1) == 0 {
        Sim::relax();
    }
    sleeper.join();
}

#[test]
fn a_deadline_that_was_not_needed_leaves_the_clock_alone() {
    static LAST: WorldStatic = WorldStatic::new("knows the time of its end");

    struct Last(Arc<AtomicU64>);

    impl Drop for Last {
        fn drop(&mut self) {
            self.0.store(Sim::now().as_nanos(), Ordering::Relaxed);
        }
    }

    let end = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&end);
    let run = machine("host-2c", 1).run(|| {
        LAST.with::<Sim, Last, _>(|| Last(theirs), |_| ());
        wake_early();
    });
    run.unwrap();
    assert!((1..1_000_000).contains(&end.load(Ordering::Relaxed)), "{end:?} ns");

    let failure = machine("host-2c", 1).run(|| {
        wake_early();
        Sim::park(&U32::new_in(0), 0, None);
    });
    let failure = failure.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock);
    assert!(failure.at_ns < 1_000_000, "{failure}");
}

#[test]
fn a_sleep_beyond_the_end_of_time_never_ends() {
    let last = u64::MAX / 1000;
    for ns in [last / 2 + 1, last - 1_000_000, last - 1000, last - 1, last, last + 1, u64::MAX] {
        let sleep = move || Sim::sleep(Duration::from_nanos(ns));
        let failure = machine("host-2c", 1).run(sleep).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Deadlock, "{ns} ns");
        assert_eq!(failure.threads[0].doing, Doing::Sleeping);
    }
    let run = machine("host-2c", 1).run(|| {
        Sim::sleep(Duration::from_nanos(u64::MAX / 2001));
        Sim::sleep(Duration::from_nanos(1));
        Sim::now().as_nanos()
    });
    assert!(run.unwrap().value > u64::MAX / 2001);
}

#[test]
fn a_write_while_a_predicate_takes_its_time_is_not_missed() {
    let run = machine("host-2c", 1).run(|| {
        let word = Arc::new(Line(U32::new_in(0)));
        let theirs = Arc::clone(&word);
        let writer = on(1, move || theirs.store(1, Ordering::Release));
        let mut looks = 0;
        word.wait_until(Ordering::Acquire, |value| {
            looks += 1;
            // Until after the write, if it began before.
            let until = Sim::now() + Duration::from_micros(100);
            while value == 0 && Sim::now() < until {}
            value == 1
        });
        writer.join();
        looks
    });
    assert_eq!(run.unwrap_or_else(|failure| panic!("{failure}")).value, 2);
}

#[test]
fn time_passes_for_a_thread_that_looks_where_it_runs() {
    fn look_at_the_cpu() {
        Sim::cpu();
    }
    fn look_at_the_index() {
        Sim::index(&Sim::section(IndexBy::Cpu).unwrap().0);
    }
    for look in [look_at_the_cpu, look_at_the_index] {
        let run = machine("host-2c", 1).step_limit(1_000_000).run(move || {
            // A host's atomic, which costs nothing: only the look itself can let the time pass.
            let done = Arc::new(AtomicBool::new(false));
            let theirs = Arc::clone(&done);
            let other = on(1, move || theirs.store(true, Ordering::Relaxed));
            while !done.load(Ordering::Relaxed) {
                look();
            }
            other.join();
        });
        if let Err(failure) = run {
            panic!("{failure}");
        }
    }
}

/// Starts threads that work for 50 ms each, anywhere, but all from a CPU that is left to them; and
/// returns where each ended.
fn workers(machine: Machine, bound: bool) -> (Vec<CpuId>, Duration) {
    const COUNT: usize = 4;
    let run = machine.run(move || {
        let start = Sim::now();
        let work = || {
            Sim::work(Duration::from_millis(50));
            Sim::cpu()
        };
        // All other CPUs are taken for a while, so all start here.
        let cpus = Sim::topology().cpu_count() as u32;
        let fill = || Sim::work(Duration::from_millis(20));
        let fillers: Vec<_> =
            (1..cpus).flat_map(|cpu| (0..COUNT + 1).map(move |_| on(cpu, fill))).collect();
        let place = |_| match bound {
            true => on(0, work),
            false => Sim::spawn(Placement::Anywhere, work).unwrap(),
        };
        let workers: Vec<_> = (0..COUNT).map(place).collect();
        let ended = workers.into_iter().map(JoinHandle::join).collect();
        fillers.into_iter().for_each(JoinHandle::join);
        (ended, Sim::now() - start)
    });
    run.unwrap_or_else(|failure| panic!("{failure}")).value
}

#[test]
fn an_idle_cpu_takes_over_a_thread_that_waits_elsewhere_unless_bound() {
    let (bound, alone) = workers(machine("host-2c", 1), true);
    assert!(bound.iter().all(|cpu| cpu.get() == 0), "{bound:?}");
    let (free, shared) = workers(machine("host-2c", 1), false);
    assert!(free.iter().any(|cpu| cpu.get() == 1), "{free:?}");
    assert!(shared < alone * 9 / 10, "{shared:?} of {alone:?}");
}

#[test]
fn what_inherits_a_binding_stays() {
    let run = machine("epyc-9654-2s", 1).run(|| {
        let work = || {
            Sim::work(Duration::from_millis(30));
            Sim::cpu()
        };
        let parent = on(9, move || {
            [0, 1].map(|_| Sim::spawn(Placement::Anywhere, work).unwrap()).map(JoinHandle::join)
        });
        parent.join()
    });
    let cpus = run.unwrap_or_else(|failure| panic!("{failure}")).value;
    assert_eq!(cpus.map(CpuId::get), [9, 9]);
}

/// A thread that was placed, and those that it starts, have one CPU; others have all.
#[test]
fn a_placed_thread_may_use_its_cpu_alone() {
    let law = || {
        let all = Sim::allowed();
        assert_eq!(all, Sim::topology().set());
        let allowed = || (Sim::allowed(), Sim::spawn(Placement::Anywhere, Sim::allowed).unwrap());
        let (own, child) = Sim::spawn(Placement::On(CpuId::new(1)), allowed).unwrap().join();
        let one: CpuSet = [CpuId::new(1)].into_iter().collect();
        assert_eq!((own, child.join()), (one.clone(), one));
    };
    Machine::preset("host-2c").unwrap().run(law).unwrap();
}
