//! Laws of the two locks.

use std::sync::Arc;

use coreline_scenarios::kernlock::Turns;
use coreline_scenarios::kernlock::queued::{Nodes, Queued};
use coreline_sim::{Machine, Schedule, Sim};
use coreline_topology::CpuId;
use coreline_world::{JoinHandle, Line, Ordering, Placement, Threads, Word};

struct Guarded {
    lock: Line<Queued<Sim>>,
    nodes: Nodes<Sim>,
    count: Line<<Sim as coreline_world::Words>::U64>,
    turns: Turns,
}

/// The sums that threads on all nodes come to by reading and writing a word, each `TURNS` times,
/// and the host's count of these turns.
fn count(threads: usize, locked: bool, sorts: bool) -> [u64; 2] {
    let places: Vec<u32> = (0..threads).map(|thread| thread as u32 % 4).collect();
    let guarded = Arc::new(Guarded {
        lock: Line(Queued::new()),
        nodes: Nodes::new(&places, sorts),
        count: Line(Word::new_in(0)),
        turns: Turns::default(),
    });
    let start = |thread: usize| {
        let guarded = Arc::clone(&guarded);
        let cpu = CpuId::new((thread % 4 * 15 + thread / 4) as u32);
        let body = move || {
            let add = || {
                // Relaxed, both: guarded by the lock.
                let count = guarded.count.load(Ordering::Relaxed);
                guarded.count.store(count + 1, Ordering::Relaxed);
            };
            // SAFETY: simulated threads take turns on one of the host's.
            let turn = || unsafe { guarded.turns.during(add) };
            for _ in 0..TURNS {
                if locked {
                    guarded.lock.hold(&guarded.nodes, thread, turn);
                } else {
                    turn();
                }
            }
        };
        Sim::spawn(Placement::On(cpu), body).unwrap()
    };
    let threads: Vec<_> = (0..threads).map(start).collect();
    threads.into_iter().for_each(JoinHandle::join);
    // Relaxed: all threads have been joined.
    let count = guarded.count.load(Ordering::Relaxed);
    // SAFETY: all threads have been joined.
    [count, unsafe { guarded.turns.count() }]
}

const TURNS: u64 = 40;

fn counted(threads: usize, seed: u64, [locked, sorts]: [bool; 2], schedule: Schedule) -> [u64; 2] {
    let machine = Machine::preset("ivybridge-ex-4s").unwrap().seed(seed).step_limit(5_000_000);
    let run = machine.schedule(schedule).run(move || count(threads, locked, sorts));
    run.unwrap_or_else(|failure| panic!("{failure}")).value
}

#[test]
fn one_thread_at_a_time_has_a_lock_and_all_get_their_turns() {
    for threads in [1, 2, 3, 5, 16] {
        for sorts in [false, true] {
            for seed in 0..8 {
                for schedule in [Schedule::Time, Schedule::Random] {
                    let found = counted(threads, seed, [true, sorts], schedule);
                    assert_eq!(found, [threads as u64 * TURNS; 2], "{threads} {sorts} {seed}");
                }
            }
        }
    }
    let without = counted(16, 0, [false, false], Schedule::Time);
    assert!(without.iter().all(|it| *it < 16 * TURNS), "a missing lock would be seen");
}
