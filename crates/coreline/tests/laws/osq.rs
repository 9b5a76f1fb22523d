//! What giving up and passing over add to the laws of queue locks, of which the others are in
//! `lock.rs`.

use std::sync::Arc;
use std::time::Duration;

use coreline::lock::{Fifo, Near, Order, Osq};
use coreline_sim::{Faults, Sim};
use coreline_world::{Cell, Integer, JoinHandle, Line, Ordering, Testbed, Word};

use crate::worlds::{self, Effort};

/// Waiters give up more often than there are nodes while one thread has its turn.
fn giving_up_for_long<O: Order, W: Testbed>() {
    let [long, other] = [Osq::<O, W>::new_in(), Osq::new_in()];
    let turn = long.lock();
    for _ in 0..40_000 {
        assert!(long.lock_by(W::now()).is_none(), "two holders");
    }
    assert!(other.try_lock().is_some(), "a free lock");
    assert!(other.lock_by(W::now()).is_some(), "a free lock");
    // Without a node, this would wait for the end of the turn in `long`, which is this thread's.
    drop(other.lock());
    drop(turn);
    assert!(!long.is_locked(), "a queue without waiters is free");
    // The nodes are back: a waiter comes into the queue, and gets the turn after all.
    let long = Arc::new(long);
    let turn = long.lock();
    let theirs = Arc::clone(&long);
    let waits = move || theirs.lock_by(W::now() + Duration::from_secs(1)).is_some();
    let waiter = W::spawn(coreline_world::Placement::Anywhere, waits).unwrap();
    W::work(Duration::from_micros(100));
    drop(turn);
    assert!(waiter.join());
}

#[test]
fn waiters_that_give_up_leave_nodes_to_other_locks() {
    let law = giving_up_for_long::<Fifo, Sim>;
    worlds::simulate_seeds("osq::left_fifo", "host-2c", Faults::default(), 1, law).unwrap();
    let law = giving_up_for_long::<Near, Sim>;
    worlds::simulate_seeds("osq::left_near", "host-2c", Faults::default(), 1, law).unwrap();
}

/// How often waiters were passed over by one that drew its number later, where each CPU of a
/// machine takes some turns: one waiter at most, and all together. A number is drawn before the
/// queue is entered, so that as many as there are threads may come in between.
fn passes<O: Order, W: Testbed>(effort: Effort) -> [usize; 2] {
    struct Shared<O: Order, W: Testbed> {
        queue: Osq<O, W>,
        drawn: Line<W::U32>,
        /// The numbers of all turns, in their order.
        turns: Line<Cell<Vec<u32>, W>>,
    }
    let shared = Arc::new(Shared::<O, W> {
        queue: Osq::new_in(),
        drawn: Line(W::U32::new_in(0)),
        turns: Line(Cell::new_in(Vec::new())),
    });
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|number| {
            let shared = Arc::clone(&shared);
            let take_turns = move || {
                for round in 0..effort.rounds {
                    // Relaxed: a number.
                    let mine = shared.drawn.fetch_add(1, Ordering::Relaxed);
                    let turn = shared.queue.lock();
                    // SAFETY: this thread has its turn.
                    shared.turns.with_mut(|turns| unsafe { &mut *turns }.push(mine));
                    W::work(Duration::from_nanos(50));
                    drop(turn);
                    W::work(Duration::from_nanos(u64::from((number * 7 + round) % 13) * 50));
                }
            };
            W::spawn(place(number), take_turns).unwrap()
        })
        .collect();
    threads.into_iter().for_each(JoinHandle::join);
    // SAFETY: all threads have been joined.
    let turns = shared.turns.with(|turns| unsafe { &*turns }.clone());
    let later = |at: usize| turns[..at].iter().filter(|number| **number > turns[at]).count();
    let each: Vec<usize> = (0..turns.len()).map(later).collect();
    [each.iter().copied().max().unwrap_or(0), each.iter().sum()]
}

#[test]
fn a_waiter_is_passed_over_so_many_times_at_most() {
    for (machine, cpus) in [("x86-128c-8n", 128), ("kunpeng920-96c-4n", 96)] {
        let all = Effort { threads: cpus, rounds: 30, cpus };
        let law = move || {
            let [fifo, in_order] = passes::<Fifo, Sim>(all);
            let [near, by_place] = passes::<Near, Sim>(all);
            let slack = cpus as usize;
            assert!(fifo <= slack, "in order of arrival passed over {fifo} times");
            let most = Near::PASSES as usize + slack;
            assert!(near <= most, "passed over {near} times, and {most} are the most");
            assert!(by_place > 2 * in_order, "near ones do not come first: {by_place}, {in_order}");
        };
        worlds::simulate_seeds("osq::passes", machine, Faults::default(), 6, law).unwrap();
    }
}
