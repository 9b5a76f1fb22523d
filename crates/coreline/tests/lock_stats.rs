//! What locks count, on a simulated machine, where each step is the same in every run.

use core::time::Duration;
use std::sync::Arc;

use coreline::lock::{Fifo, LockStats, Osq, RawMutex, RawRwLock, RawTicketLock, SpinningReaders};
use coreline_sim::{Machine, Sim};
use coreline_topology::{Cpu, CpuId};
use coreline_world::{Clock, JoinHandle, Place, Placement, Threads, Work};

/// The memory of simulated programs comes from their machine.
#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

fn simulated<T: Send + 'static>(program: impl FnOnce() -> T + Send + 'static) -> T {
    Machine::preset("epyc-9654-2s").expect("a preset").run(program).expect("it ends").value
}

fn read() -> LockStats {
    LockStats::read_in::<Sim>().expect("it counts")
}

/// Starts a thread on this CPU that runs `f` some microseconds later.
fn later(
    cpu: CpuId,
    micros: u64,
    f: impl FnOnce() + Send + 'static,
) -> <Sim as Threads>::JoinHandle<()> {
    let run = move || {
        Sim::work(Duration::from_micros(micros));
        f();
    };
    Sim::spawn(Placement::On(cpu), run).expect("a CPU")
}

#[test]
fn a_world_counts_from_the_beginning_on() {
    let counts = simulated(|| {
        assert_eq!(LockStats::read_in::<Sim>(), None);
        LockStats::begin_in::<Sim>();
        let mutex = RawMutex::<Fifo, Sim>::new_in();
        let rwlock = RawRwLock::<Fifo, SpinningReaders, Sim>::new_in();
        for _ in 0..3 {
            mutex.lock();
            assert!(!mutex.try_lock());
            // SAFETY: locked above.
            unsafe { mutex.unlock() };
            rwlock.read();
            // SAFETY: locked above.
            unsafe { rwlock.unlock_read() };
        }
        let ticket = RawTicketLock::<Sim>::new_in();
        ticket.lock();
        // SAFETY: locked above.
        unsafe { ticket.unlock() };
        // Once more changes nothing.
        LockStats::begin_in::<Sim>();
        read()
    });
    assert_eq!(counts, LockStats::default(), "free locks count nothing");
}

#[test]
fn turns_count_by_the_distance_that_they_go() {
    let counts = simulated(|| {
        LockStats::begin_in::<Sim>();
        let topology = Sim::topology();
        let near = *topology.cpus().next().expect("a CPU");
        let other =
            |is: &dyn Fn(&Cpu) -> bool| topology.cpus().find(|cpu| is(cpu)).expect("a CPU").id;
        let cache = other(&|cpu| cpu.core != near.core && cpu.cache == near.cache);
        let node = other(&|cpu| cpu.cache != near.cache && cpu.node == near.node);
        let far = other(&|cpu| cpu.node != near.node);
        let osq = Arc::new(Osq::<Fifo, Sim>::new_in());
        let turn = |cpu: CpuId, micros: u64| {
            let osq = Arc::clone(&osq);
            later(cpu, micros, move || {
                let turn = osq.lock();
                Sim::work(Duration::from_micros(1000));
                drop(turn);
            })
        };
        // In this order: to the same cache, to another one, and twice to another node.
        let turns = [turn(near.id, 0), turn(cache, 50), turn(node, 100), turn(far, 150)];
        let back = turn(near.id, 200);
        turns.into_iter().chain([back]).for_each(JoinHandle::join);
        read()
    });
    assert_eq!((counts.same_cache, counts.same_node, counts.other_node), (1, 1, 2));
    assert_eq!((counts.waits, counts.timeouts), (4, 0), "the first one waited for none");
}

/// Each try waits longer than a thread spins, and so sleeps at least once.
#[test]
fn waits_sleeps_and_timeouts_count_once_each() {
    const TRIES: u64 = 5;
    let (tried, freed) = simulated(|| {
        LockStats::begin_in::<Sim>();
        let mutex = Arc::new(RawMutex::<Fifo, Sim>::new_in());
        mutex.lock();
        let theirs = Arc::clone(&mutex);
        later(CpuId::new(1), 0, move || {
            for _ in 0..TRIES {
                assert!(!theirs.lock_by(Sim::now() + Duration::from_millis(1)));
            }
        })
        .join();
        let tried = read();
        let theirs = Arc::clone(&mutex);
        let waiter = later(CpuId::new(1), 0, move || {
            theirs.lock();
            // SAFETY: locked above.
            unsafe { theirs.unlock() };
        });
        // Long enough for it to sleep.
        Sim::work(Duration::from_millis(5));
        // SAFETY: locked above.
        unsafe { mutex.unlock() };
        waiter.join();
        (tried, read() - tried)
    });
    assert_eq!((tried.waits, tried.timeouts, tried.wakes), (TRIES, TRIES, 0));
    assert!(tried.sleeps >= TRIES, "{tried:?}");
    assert_eq!((freed.waits, freed.timeouts, freed.wakes), (1, 0, 1), "{freed:?}");
    assert!(freed.sleeps >= 1, "{freed:?}");
}
