//! The laws of queue locks: those of locks in `lock.rs`, and what giving up and passing over add.

use std::sync::Arc;
use std::time::Duration;

use coreline::lock::{Fifo, Near, Order, Osq};
use coreline_sim::{Faults, Sim};
use coreline_world::model::{Model, RelaxedLoads};
use coreline_world::{Cell, Integer, JoinHandle, Line, Native, Ordering, Testbed, Word};

use crate::worlds::{self, Effort, FEW, MANY, MODEL, NATIVE, panic_of};

/// What the lock guards, as in `lock.rs`: a second holder, or one that does not see the last one's
/// writes, finds the two counts different.
struct Guarded<O: Order, W: Testbed> {
    queue: Osq<O, W>,
    first: Line<Cell<u64, W>>,
    second: Line<Cell<u64, W>>,
    /// How many turns there were.
    turns: Line<W::U32>,
}

impl<O: Order, W: Testbed> Guarded<O, W> {
    fn new_in() -> Self {
        Guarded {
            queue: Osq::new_in(),
            first: Line(Cell::new_in(0)),
            second: Line(Cell::new_in(0)),
            turns: Line(W::U32::new_in(0)),
        }
    }

    /// What is done in a turn.
    fn visit(&self) {
        // SAFETY: the caller has its turn, so no other thread touches the cells: that is what is
        // tested.
        let same = unsafe {
            let before = self.first.with(|at| *at);
            let after = self.second.with_mut(|at| {
                *at += 1;
                *at
            });
            self.first.with_mut(|at| *at = before + 1);
            after == before + 1
        };
        // Relaxed: a count.
        self.turns.fetch_add(1, Ordering::Relaxed);
        assert!(same, "two holders at once, or a holder that does not see the last one's writes");
    }
}

/// How a thread comes to its turns, by its number: it waits, it gives up, or it only tries.
#[derive(Clone, Copy)]
enum Manner {
    Waits,
    Mixed,
}

/// Threads take turns; each turn that they got is counted, and none is lost.
fn exclusion<O: Order, W: Testbed>(effort: Effort, manner: Manner) {
    let guarded = Arc::new(Guarded::<O, W>::new_in());
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|number| {
            let guarded = Arc::clone(&guarded);
            let visit = move |round: u32| {
                let queue = &guarded.queue;
                let turn = match (manner, (number + round) % 3) {
                    (Manner::Waits, _) | (Manner::Mixed, 0) => Some(queue.lock()),
                    (Manner::Mixed, 1) => queue.lock_by(W::now() + Duration::from_nanos(700)),
                    (Manner::Mixed, _) => queue.try_lock(),
                };
                turn.map_or(0, |_turn| {
                    guarded.visit();
                    1
                })
            };
            W::spawn(place(number), move || (0..effort.rounds).map(&visit).sum::<u32>()).unwrap()
        })
        .collect();
    let visits: u32 = threads.into_iter().map(JoinHandle::join).sum();
    let turn = guarded.queue.lock();
    // Relaxed: all threads have been joined.
    assert_eq!(guarded.turns.load(Ordering::Relaxed), visits);
    guarded.visit();
    drop(turn);
    assert!(!guarded.queue.is_locked(), "a queue without waiters is free");
    if matches!(manner, Manner::Waits) {
        assert_eq!(visits, effort.threads * effort.rounds);
    }
}

#[test]
fn queues_exclude_natively() {
    // A queue waits for each waiter that is not running, for a time slice or more: a thread for
    // each CPU, or few turns.
    for effort in [Effort { threads: 2, rounds: 2000, ..NATIVE }, Effort { rounds: 60, ..NATIVE }] {
        for manner in [Manner::Waits, Manner::Mixed] {
            exclusion::<Fifo, Native>(effort, manner);
            exclusion::<Near, Native>(effort, manner);
        }
    }
}

#[test]
fn queues_exclude_on_384_simulated_cpus() {
    for manner in [Manner::Waits, Manner::Mixed] {
        let law = move || exclusion::<Fifo, Sim>(MANY, manner);
        worlds::simulate("osq::fifo", "epyc-9654-2s", Faults::default(), law).unwrap();
        let law = move || exclusion::<Near, Sim>(MANY, manner);
        worlds::simulate("osq::near", "epyc-9654-2s", Faults::default(), law).unwrap();
    }
}

#[test]
fn queues_exclude_on_many_simulated_nodes() {
    let all = Effort { threads: 128, rounds: 30, cpus: 128 };
    for manner in [Manner::Waits, Manner::Mixed] {
        let law = move || exclusion::<Near, Sim>(all, manner);
        worlds::simulate("osq::near", "x86-128c-8n", Faults::default(), law).unwrap();
    }
}

#[test]
fn queues_exclude_with_two_simulated_threads_to_a_cpu() {
    for faults in [Faults::default(), worlds::TORN, worlds::PREEMPTED] {
        let law = || exclusion::<Fifo, Sim>(FEW, Manner::Mixed);
        worlds::simulate("osq::fifo", "host-2c", faults, law).unwrap();
        let law = || exclusion::<Near, Sim>(FEW, Manner::Mixed);
        worlds::simulate("osq::near", "host-2c", faults, law).unwrap();
    }
}

#[test]
fn fifo_excludes_in_every_interleaving() {
    worlds::check(|| exclusion::<Fifo, Model>(MODEL, Manner::Waits));
}

#[test]
fn near_excludes_in_every_interleaving() {
    worlds::check(|| exclusion::<Near, Model>(MODEL, Manner::Waits));
}

/// One thread waits in the queue and gives up while the holder passes its turn on; a third arrives
/// behind it.
fn giving_up<O: Order, W: Testbed>() {
    let guarded = Arc::new(Guarded::<O, W>::new_in());
    let theirs = Arc::clone(&guarded);
    let gives_up = move || {
        let turn = theirs.queue.lock_by(W::now());
        turn.is_some_and(|_turn| {
            theirs.visit();
            true
        })
    };
    let anywhere = coreline_world::Placement::Anywhere;
    let leaver = W::spawn(anywhere, gives_up).unwrap();
    {
        let _turn = guarded.queue.lock();
        guarded.visit();
    }
    {
        let _turn = guarded.queue.lock();
        guarded.visit();
    }
    let came = u32::from(leaver.join());
    // Relaxed: all threads have been joined.
    assert_eq!(guarded.turns.load(Ordering::Relaxed), 2 + came);
    assert!(guarded.queue.try_lock().is_some(), "a queue without waiters is free");
}

#[test]
fn a_waiter_that_gives_up_breaks_no_queue_in_every_interleaving() {
    worlds::check(giving_up::<Fifo, Model>);
    worlds::check(giving_up::<Near, Model>);
}

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

#[test]
fn a_missing_acquire_of_queues_is_caught() {
    let message = panic_of(|| {
        worlds::check(|| exclusion::<Fifo, Model<RelaxedLoads>>(MODEL, Manner::Waits));
    });
    assert!(message.contains("Causality violation"), "{message}");
}
