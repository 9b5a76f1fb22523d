//! What giving up and passing over add to the laws of queue locks, of which the others are in
//! `lock.rs`.

use std::sync::Arc;
use std::time::Duration;

use coreline::Mutex;
use coreline::lock::{Fifo, Near, Order, Osq};
use coreline_sim::{Faults, Sim};
use coreline_topology::CpuId;
use coreline_world::{
    Cell, Clock, Integer, JoinHandle, Line, Ordering, Placement, Testbed, Threads, Word, Work,
};

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
    let waiter = W::spawn(Placement::Anywhere, waits).unwrap();
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

/// A thread holds more locks than node numbers have had bits, and other locks are what they were.
fn holding_many<O: Order, W: Testbed>() {
    let many: Vec<Osq<O, W>> = (0..70_000).map(|_| Osq::new_in()).collect();
    let turns: Vec<_> = many.iter().map(|lock| lock.try_lock().expect("a free lock")).collect();
    let osq = Arc::new(Osq::<O, W>::new_in());
    drop(osq.lock());
    assert!(osq.lock_by(W::now()).is_some(), "a free lock");
    let mutex = Arc::new(Mutex::<u32, O, W>::new_in(0));
    let start = |number: u32| {
        let (osq, mutex) = (Arc::clone(&osq), Arc::clone(&mutex));
        let take_turns = move || {
            for _ in 0..20 {
                let turn = osq.lock();
                // So long that waiters of the mutex sleep, and are woken by the number of a node.
                let mut held = mutex.lock();
                drop(turn);
                W::work(Duration::from_micros(300));
                *held += 1;
            }
        };
        W::spawn(Placement::On(CpuId::new(number % 2)), take_turns).unwrap()
    };
    let threads: Vec<_> = (0..4).map(start).collect();
    threads.into_iter().for_each(JoinHandle::join);
    assert_eq!(*mutex.lock(), 80, "a turn was lost");
    drop(turns);
    assert!(many.iter().all(|lock| !lock.is_locked()));
}

#[test]
fn a_free_lock_is_taken_however_many_are_held() {
    let law = holding_many::<Fifo, Sim>;
    worlds::simulate_seeds("osq::many_fifo", "host-2c", Faults::default(), 1, law).unwrap();
    let law = holding_many::<Near, Sim>;
    worlds::simulate_seeds("osq::many_near", "host-2c", Faults::default(), 1, law).unwrap();
}

/// The turns of a lock by four threads on two CPUs, in each of so many spans of 20 ms. A turn takes
/// 100 ns, and so does the time between two.
fn turns_by_span<O: Order>(spans: usize) -> Vec<u64> {
    const SPAN: Duration = Duration::from_millis(20);
    let lock = Arc::new(Osq::<O, Sim>::new_in());
    let begun = Sim::now();
    let start = |number: u32| {
        let lock = Arc::clone(&lock);
        let take_turns = move || {
            let mut turns = vec![0_u64; spans];
            loop {
                let span = (Sim::now() - begun).as_nanos() / SPAN.as_nanos();
                let Some(turns) = turns.get_mut(span as usize) else { break };
                let turn = lock.lock();
                Sim::work(Duration::from_nanos(100));
                drop(turn);
                Sim::work(Duration::from_nanos(100));
                *turns += 1;
            }
            turns
        };
        Sim::spawn(Placement::On(CpuId::new(number % 2)), take_turns).unwrap()
    };
    let threads: Vec<_> = (0..4).map(start).collect();
    let all: Vec<Vec<u64>> = threads.into_iter().map(JoinHandle::join).collect();
    (0..spans).map(|span| all.iter().map(|turns| turns[span]).sum()).collect()
}

/// Each turn goes to a thread that does not run, so it takes a time slice: there are two CPUs, and
/// slices of 3 ms. The turns become no fewer with time, nor by turns that were forgotten, which are
/// more than the table of nodes first has.
fn turns_go_on<O: Order>() {
    let before = turns_by_span::<O>(5);
    let many: Vec<_> = (0..40_000).map(|_| Osq::<O, Sim>::new_in()).collect();
    many.iter().for_each(|lock| std::mem::forget(lock.lock()));
    let after = turns_by_span::<O>(5);
    // Before the first slice ends, a thread has turns alone.
    for turns in [&before[1..], &after[1..]] {
        assert!(turns.iter().all(|turns| (12..=14).contains(turns)), "{before:?}, {after:?}");
    }
}

#[test]
fn turns_of_more_threads_than_cpus_become_no_fewer() {
    let law = turns_go_on::<Fifo>;
    worlds::simulate_seeds("osq::turns_fifo", "host-2c", Faults::default(), 1, law).unwrap();
    let law = turns_go_on::<Near>;
    worlds::simulate_seeds("osq::turns_near", "host-2c", Faults::default(), 1, law).unwrap();
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
    let threads = effort.crew::<W, _, _>(|number| {
        let shared = Arc::clone(&shared);
        move || {
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
        }
    });
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

/// The longest time in nanoseconds for which a waiter was passed over: what the turns took, all
/// together, that began before its own and were wanted later. Two places want the lock, and share
/// its time; then a thread of each other place, then all of the last one, then all.
fn passing<W: Testbed>(cpus: u32, of_place: u32, others_come: Duration) -> u64 {
    /// When a turn was wanted, when it began and when it was over, in nanoseconds.
    type Turns = Vec<[u64; 3]>;
    struct Shared<W: Testbed> {
        queue: Osq<Near, W>,
        turns: Line<Cell<Turns, W>>,
    }
    let shared =
        Arc::new(Shared::<W> { queue: Osq::new_in(), turns: Line(Cell::new_in(Vec::new())) });
    let began = W::now();
    let start = |number: u32| {
        let shared = Arc::clone(&shared);
        let take_turns = move || {
            W::work(match number / of_place {
                0 | 1 => Duration::ZERO,
                place if place == cpus / of_place - 1 => others_come + WAVE,
                _ if number.is_multiple_of(of_place) => others_come,
                _ => others_come + 2 * WAVE,
            });
            while W::now() < began + others_come + Duration::from_millis(6) {
                let wanted = W::now().as_nanos();
                let turn = shared.queue.lock();
                let since = W::now().as_nanos();
                W::work(TURN);
                let times = [wanted, since, W::now().as_nanos()];
                // SAFETY: this thread has its turn.
                shared.turns.with_mut(|turns| unsafe { &mut *turns }.push(times));
                drop(turn);
            }
        };
        W::spawn(Placement::On(CpuId::new(number)), take_turns).unwrap()
    };
    let threads: Vec<_> = (0..cpus).map(start).collect();
    threads.into_iter().for_each(JoinHandle::join);
    // SAFETY: all threads have been joined.
    let turns = shared.turns.with(|turns| unsafe { &*turns }.clone());
    let passed = |at: usize| {
        // A turn is wanted before its thread is in the queue.
        let wanted = turns[at][0] + ARRIVAL;
        turns[..at].iter().filter(|it| it[0] > wanted).map(|it| it[2] - it[1]).sum::<u64>()
    };
    (0..turns.len()).map(passed).max().unwrap_or(0)
}

/// A turn: so long that the bound in time is met before that on passes.
const TURN: Duration = Duration::from_micros(26);

/// Between those that come first and the next ones.
const WAVE: Duration = Duration::from_micros(40);

/// More nanoseconds than an arrival takes.
const ARRIVAL: u64 = 20_000;

#[test]
fn a_waiter_is_passed_over_for_so_long_at_most() {
    let law = || {
        let longest = |from: u64, step: u64| {
            let come = |at: u64| Duration::from_micros(from + step * at);
            (0..10).map(|at| passing::<Sim>(128, 8, come(at))).max().unwrap()
        };
        // The run that is under way when the waiter comes may end with a turn that had begun. All
        // others also begin with one that passes no waiter over, and takes as long.
        let turn = TURN.as_nanos() as u64 + 1000;
        let most = Near::SPAN + turn;
        let old = longest(4000, 200);
        assert!(old <= most, "passed over for {old} ns, and {most} are the most");
        assert!(old > Near::SPAN / 2, "the bound was not met: {old} ns");
        // A young board, whose rings come in the order of their places, may end its youth with a
        // turn that had begun.
        let most = most + turn;
        let young = longest(0, 15);
        assert!(young <= most, "passed over for {young} ns, and {most} are the most");
    };
    worlds::simulate_seeds("osq::passing", "x86-128c-8n", Faults::default(), 2, law).unwrap();
}

/// Threads of three places take turns that are so long that time ends runs, with waiters left; one
/// of three gives up when it has waited for some turns.
fn long_turns<W: Testbed>() {
    struct Shared<W: Testbed> {
        queue: Osq<Near, W>,
        turns: Line<Cell<u64, W>>,
    }
    let shared = Arc::new(Shared::<W> { queue: Osq::new_in(), turns: Line(Cell::new_in(0)) });
    let start = |number: u32| {
        let shared = Arc::clone(&shared);
        let turn = move |round: u32| {
            let turn = match (number + round) % 3 {
                0 => shared.queue.lock_by(W::now() + 5 * TURN),
                _ => Some(shared.queue.lock()),
            };
            let Some(turn) = turn else { return 0 };
            // SAFETY: this thread has its turn.
            shared.turns.with_mut(|turns| unsafe { *turns += 1 });
            W::work(TURN);
            drop(turn);
            1
        };
        let all = move || (0..8).map(&turn).sum::<u64>();
        W::spawn(Placement::On(CpuId::new(number % 3 * 8 + number / 3)), all).unwrap()
    };
    let threads: Vec<_> = (0..12).map(start).collect();
    let taken: u64 = threads.into_iter().map(JoinHandle::join).sum();
    // SAFETY: all threads have been joined.
    assert_eq!(shared.turns.with(|turns| unsafe { *turns }), taken, "a turn was lost");
    assert!(!shared.queue.is_locked(), "a queue without waiters is free");
}

#[test]
fn runs_that_time_ends_lose_no_waiter_under_schedules_that_look_for_mistakes() {
    let schedules = worlds::schedules(60);
    worlds::search("osq::long", "x86-128c-8n", schedules, long_turns::<Sim>).unwrap();
}
