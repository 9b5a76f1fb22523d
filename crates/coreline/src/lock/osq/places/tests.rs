//! Places that are adopted, and what waiters do if they find none. A test makes queues crowded by
//! the count alone.

use core::time::Duration;
use std::sync::Arc;

use coreline_sim::{Machine, Sim};
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{Cell, Clock, JoinHandle, Placement, Testbed, Threads};

use super::super::laws::come;
use super::super::nodes::MOST_ABANDONED;
use super::super::sleeping::{Manner, Waited};
use super::super::{Fifo, Near, with_tables};
use super::*;
use crate::lock::Mutex;

const NEVER: Option<fn() -> Option<()>> = None;

/// Counts this many nodes as abandoned in the queues of other locks.
fn crowd<W: World>(nodes: u32) {
    // Relaxed: a count.
    with_tables::<W, _>(|tables| tables.abandoned.fetch_add(nodes, Ordering::Relaxed));
}

/// These nodes are no longer in queues.
fn clear<W: World>(nodes: u32) {
    // Relaxed: a count.
    with_tables::<W, _>(|tables| tables.abandoned.fetch_sub(nodes, Ordering::Relaxed));
}

fn left<W: World>() -> u32 {
    // Relaxed: a count.
    with_tables::<W, _>(|tables| tables.abandoned.load(Ordering::Relaxed))
}

/// Threads give up, adopt the places that they and one more thread left, and have turns, while a
/// holder passes its turn on.
fn adopts<O: Order, W: Testbed>(threads: u32, rounds: u32) {
    struct Shared<O: Order, W: Testbed> {
        osq: Osq<O, W>,
        turns: Cell<u32, W>,
    }
    crowd::<W>(CROWDED);
    let shared = Arc::new(Shared::<O, W> { osq: Osq::new_in(), turns: Cell::new_in(0) });
    // SAFETY: the caller has its turn.
    let turn = |shared: &Shared<O, W>| shared.turns.with_mut(|turns| unsafe { *turns += 1 });
    let wait =
        move |shared: &Shared<O, W>| match shared.osq.wait(Some(W::now()), Manner::Sleeps, NEVER) {
            Waited::Turn(number) => {
                turn(shared);
                Osq::<O, W>::wake(shared.osq.pass(number));
                1
            }
            waited => {
                assert_eq!(waited, Waited::Late);
                0
            }
        };
    let holder = come(&shared.osq);
    assert_eq!(wait(&shared), 0, "two holders");
    assert_eq!(left::<W>(), CROWDED + 1, "a place is left");
    let others: Vec<_> = (0..threads)
        .map(|_| {
            let theirs = Arc::clone(&shared);
            let wait = move || (0..rounds).map(|_| wait(&theirs)).sum::<u32>();
            W::spawn(Placement::Anywhere, wait).expect("a few threads")
        })
        .collect();
    turn(&shared);
    Osq::<O, W>::wake(shared.osq.pass(holder));
    let taken: u32 = others.into_iter().map(JoinHandle::join).sum();
    // SAFETY: all threads have been joined.
    assert_eq!(shared.turns.with(|turns| unsafe { *turns }), taken + 1, "a turn was lost");
    assert!(shared.osq.is_empty(), "a node was left in the queue");
    assert_eq!(left::<W>(), CROWDED, "a count was lost");
}

#[test]
fn a_place_has_one_owner_in_every_interleaving() {
    let checker = |bound| Checker::new().preemption_bound(bound).max_branches(20_000);
    checker(2).check(|| adopts::<Fifo, Model>(1, 2));
    checker(2).check(|| adopts::<Near, Model>(1, 1));
    // With two preemptions of three threads this takes minutes, and finds nothing.
    checker(1).check(|| adopts::<Fifo, Model>(2, 1));
}

#[test]
fn a_missing_ordering_of_an_adopted_place_is_caught() {
    let checker = Checker::new().preemption_bound(3).plant(Plant::RELAXED_RMWS);
    let failure = checker.try_check(|| adopts::<Fifo, Model>(1, 2)).expect_err("a race");
    assert!(failure.message.contains("Causality violation"), "{failure}");
}

/// Threads try for a while, again and again, while one thread has its turn and another waits.
fn tries<O: Order>(threads: u32, rounds: u32) -> u32 {
    let program = move || {
        let lock = Arc::new(Osq::<O, Sim>::new_in());
        let turn = lock.lock();
        let theirs = Arc::clone(&lock);
        let stay = move || drop(theirs.lock());
        let stays = Sim::spawn(Placement::Anywhere, stay).expect("a thread");
        let others: Vec<_> = (0..threads)
            .map(|number| {
                let theirs = Arc::clone(&lock);
                let try_for = move |round| {
                    let wait =
                        Duration::from_nanos(500 + u64::from((number * 5 + round) % 7) * 300);
                    assert!(theirs.lock_by(Sim::now() + wait).is_none(), "two holders");
                };
                let all = move || (0..rounds).for_each(&try_for);
                Sim::spawn(Placement::Anywhere, all).expect("a few threads")
            })
            .collect();
        others.into_iter().for_each(JoinHandle::join);
        let most = left::<Sim>();
        drop(turn);
        stays.join();
        assert!(!lock.is_locked() && left::<Sim>() == 0, "a queue without waiters is free");
        most
    };
    Machine::preset("x86-128c-8n").expect("a preset").run(program).expect("it ends").value
}

/// Without adoption, one for each try: 8000.
#[test]
fn tries_without_end_leave_as_many_nodes_as_threads() {
    for threads in [1, 16] {
        let rounds = 8000 / threads;
        let most = [tries::<Fifo>(threads, rounds), tries::<Near>(threads, rounds)];
        // Nodes of threads that came before the queue was crowded, and one of the thread that
        // stays between two adoptions.
        let few = CROWDED + 3 * threads;
        assert!(most.iter().all(|most| *most <= few), "{most:?} nodes of {threads} threads");
    }
}

/// A place that was sorted by where its thread was gives its turn to a thread elsewhere.
#[test]
fn a_place_on_a_board_is_adopted_from_elsewhere() {
    let program = || {
        crowd::<Sim>(CROWDED);
        let lock = Arc::new(Osq::<Near, Sim>::new_in());
        let start = |number: u32| {
            let lock = Arc::clone(&lock);
            let all = move || {
                let mut taken = 0;
                for round in 0..200 {
                    let wait = Duration::from_micros(u64::from((number + round) % 5) * 4);
                    let turn = match (number + round) % 4 {
                        0 => Some(lock.lock()),
                        _ => lock.lock_by(Sim::now() + wait),
                    };
                    taken += u32::from(turn.is_some());
                }
                taken
            };
            Sim::spawn(Placement::Anywhere, all).expect("a few threads")
        };
        let threads: Vec<_> = (0..64).map(start).collect();
        let taken: u32 = threads.into_iter().map(JoinHandle::join).sum();
        assert!(taken >= 64 * 50, "those that stay have their turns");
        assert!(!lock.is_locked());
        assert_eq!(left::<Sim>(), CROWDED, "a count was lost");
        with_tables::<Sim, _>(|tables| assert!(tables.boards.bytes() > 0, "there was a board"));
    };
    for seed in 0..8 {
        let machine = Machine::preset("x86-128c-8n").expect("a preset").seed(seed);
        machine.run(program).expect("it ends");
    }
}

/// Before, `lock_by` gave up immediately.
#[test]
fn a_deadline_is_kept_where_no_place_can_be_had() {
    let program = || {
        crowd::<Sim>(MOST_ABANDONED);
        let osq = Arc::new(Osq::<Near, Sim>::new_in());
        let mutex = Arc::new(Mutex::<(), Near, Sim>::new_in(()));
        let (turn, held) = (osq.lock(), mutex.lock());
        let theirs = (Arc::clone(&osq), Arc::clone(&mutex));
        let wait = move || {
            let deadline = Sim::now() + Duration::from_secs(1);
            let taken =
                (theirs.0.lock_by(deadline).is_some(), theirs.1.lock_by(deadline).is_some());
            assert_eq!(taken, (true, true), "the locks are free 50 ms later");
            let _held = theirs.0.lock();
            let late = Sim::now() + Duration::from_millis(5);
            assert!(theirs.0.lock_by(late).is_none(), "two holders");
            assert!(Sim::now() >= late, "it gave up before its deadline");
        };
        let waiter = Sim::spawn(Placement::Anywhere, wait).expect("a thread");
        Sim::sleep(Duration::from_millis(50));
        drop((turn, held));
        waiter.join();
    };
    Machine::preset("host-2c").expect("a preset").run(program).expect("it ends");
}

/// Before, a waiter that had found no node never came to the queue.
#[test]
fn a_waiter_without_a_node_comes_to_the_queue_when_there_is_one() {
    let program = || {
        crowd::<Sim>(MOST_ABANDONED);
        let osq = Arc::new(Osq::<Fifo, Sim>::new_in());
        let turn = osq.lock();
        let theirs = Arc::clone(&osq);
        let wait = move || theirs.lock_by(Sim::now() + Duration::from_secs(1)).is_some();
        let waiter = Sim::spawn(Placement::Anywhere, wait).expect("a thread");
        // Relaxed, here and below: only compared.
        let last = || osq.tail.load(Ordering::Relaxed);
        let holder = last();
        Sim::sleep(Duration::from_millis(50));
        assert_eq!(last(), holder, "it waits without a node");
        clear::<Sim>(MOST_ABANDONED);
        Sim::sleep(Duration::from_millis(50));
        assert_ne!(last(), holder, "it waits in the queue");
        drop(turn);
        assert!(waiter.join());
    };
    Machine::preset("host-2c").expect("a preset").run(program).expect("it ends");
}
