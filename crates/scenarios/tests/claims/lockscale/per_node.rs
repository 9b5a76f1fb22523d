//! The six defects of the split queue. Each is found by one run, which the line beside it brings
//! back, or by the model checker; and is not found where its cause is taken away.

use core::sync::atomic::{AtomicU32, AtomicU64};
use core::time::Duration;
use std::sync::Arc;

use coreline::lock::{Near, Osq};
use coreline_scenarios::lockscale::per_node::{Guarded, PerNode};
use coreline_scenarios::lockscale::{Lock, SCENARIO, field};
use coreline_scenarios::point::Setup;
use coreline_sim::{Failure, FailureKind, Machine, Sim, interrupts};
use coreline_topology::CpuId;
use coreline_world::model::{Checker, Model};
use coreline_world::{Cell, Clock, JoinHandle, Kick, Ordering, Placement, Threads, Work};

/// The first CPU of a node of `kunpeng920-96c-4n`, and those after it.
fn cpu(node: u32, which: u32) -> Placement {
    Placement::On(CpuId::new(24 * node + which))
}

/// What the run of a line comes to.
fn replay<T: 'static>(
    line: &str,
    program: impl FnOnce() -> T + 'static,
) -> Result<T, Box<Failure>> {
    let machine = Machine::replay(&line.parse().unwrap()).unwrap();
    machine.run(program).map(|run| run.value)
}

#[test]
fn it_starves_other_nodes() {
    let share = |variant: &str| {
        let program = format!(
            "lockscale config=96-core/4-L3 threads=96 place=packed section=100 outside=500 \
             variant={variant} window=4000"
        );
        let line = format!(
            "coreline-sim/1 machine=kunpeng920-96c-4n seed=1 request=30 faults=none \
             program={program}"
        );
        let setup = Setup::new(&program, 0..96);
        replay(&line, move || (SCENARIO.simulated)(&setup)).unwrap().unwrap()[field::NODE_SHARE]
    };
    let (split, near) = (share("per-node"), share("near"));
    assert!(split < 0.01 && near > 0.9, "{split} {near}");
}

/// How often a thread had a turn while another one had it. Three nodes, two threads on the first.
fn overlaps<L: Lock<Sim>>() -> u32 {
    let nodes = [0, 0, 1, 2];
    // The host's: what is counted takes no time.
    let shared = Arc::new((L::new_in(&nodes), [const { AtomicU32::new(0) }; 2]));
    let threads: Vec<_> = (0..nodes.len())
        .map(|thread| {
            let shared = Arc::clone(&shared);
            let take_turns = move || {
                let (lock, [inside, overlaps]) = &*shared;
                for round in 0..200 {
                    lock.hold(thread, || {
                        let others = inside.fetch_add(1, Ordering::SeqCst);
                        overlaps.fetch_add(u32::from(others > 0), Ordering::SeqCst);
                        Sim::work(Duration::from_nanos(50));
                        inside.fetch_sub(1, Ordering::SeqCst);
                    });
                    Sim::work(Duration::from_nanos(137 * (round % (11 + thread as u64))));
                }
            };
            Sim::spawn(cpu(nodes[thread], thread as u32 % 2), take_turns).unwrap()
        })
        .collect();
    threads.into_iter().for_each(JoinHandle::join);
    shared.1[1].load(Ordering::SeqCst)
}

#[test]
fn it_admits_two_holders() {
    let line = "coreline-sim/1 machine=kunpeng920-96c-4n seed=1 request=30 faults=none \
                schedule=random program=split queue: two holders";
    let found = replay(line, overlaps::<PerNode<Sim, true>>).unwrap();
    assert!(found > 0, "none of 800");
    assert_eq!(replay(line, overlaps::<Guarded<Sim>>).unwrap(), 0, "behind a word");
    assert_eq!(replay(line, overlaps::<Osq<Near, Sim>>).unwrap(), 0);
}

/// Two threads on two nodes have a turn each.
fn hand_over<const ORDERED: bool>() {
    let shared = Arc::new((
        <PerNode<Model, ORDERED> as Lock<Model>>::new_in(&[0, 1]),
        Cell::<u32, Model>::new_in(0),
    ));
    let visit = |shared: &(PerNode<Model, ORDERED>, Cell<u32, Model>), thread| {
        // SAFETY: the thread has its turn. That no other has one too, and that what the last one
        // did is seen, is what is tested: the model reports it if not.
        shared.0.hold(thread, || shared.1.with_mut(|count| unsafe { *count += 1 }));
    };
    let theirs = Arc::clone(&shared);
    let other = Model::spawn(Placement::Anywhere, move || visit(&theirs, 1)).unwrap();
    visit(&shared, 0);
    other.join();
}

#[test]
fn it_lacks_an_acquire() {
    let check = |program: fn()| Checker::new().preemption_bound(3).try_check(program);
    let found = check(hand_over::<false>).unwrap_err().message;
    assert!(found.contains("Causality violation"), "{found}");
    check(hand_over::<true>).unwrap();
}

/// How long a thread waits for a lock that no other thread ever wants, while one of another node
/// has another lock for 100 µs.
fn wait_for_free_lock<L: Lock<Sim>>() -> u64 {
    let nodes = [0, 1];
    let locks = Arc::new([L::new_in(&nodes), L::new_in(&nodes)]);
    let theirs = Arc::clone(&locks);
    let holder = move || theirs[0].hold(0, || Sim::work(Duration::from_micros(100)));
    let holder = Sim::spawn(cpu(0, 0), holder).unwrap();
    let waiter = move || {
        Sim::work(Duration::from_micros(10));
        let before = Sim::now();
        locks[1].hold(1, || ());
        (Sim::now() - before).as_nanos() as u64
    };
    let waited = Sim::spawn(cpu(1, 0), waiter).unwrap().join();
    holder.join();
    waited
}

#[test]
fn all_its_locks_share_one_token() {
    let line = "coreline-sim/1 machine=kunpeng920-96c-4n seed=1 request=30 faults=none \
                program=split queue: one token";
    let split = replay(line, wait_for_free_lock::<PerNode<Sim>>).unwrap();
    let near = replay(line, wait_for_free_lock::<Osq<Near, Sim>>).unwrap();
    assert!(split > 50_000 && near < 10_000, "{split} ns, and {near} ns");
}

/// Whether a waiter that cannot be preempted returned while another thread had its turn; `wanted`:
/// a third thread waits for the waiter's CPU.
fn returns_early(wanted: bool) -> bool {
    let shared = Arc::new((PerNode::<Sim>::new_in(&[0, 1], 2), AtomicU64::new(0)));
    let theirs = Arc::clone(&shared);
    let has_turn = move || {
        assert!(theirs.0.lock(0));
        theirs.1.store(1, Ordering::SeqCst);
        Sim::work(Duration::from_millis(20));
        theirs.1.store(2, Ordering::SeqCst);
        theirs.0.unlock(0);
    };
    let holder = Sim::spawn(cpu(0, 0), has_turn).unwrap();
    let waits = move || {
        Sim::work(Duration::from_micros(10));
        let masked = interrupts::mask();
        assert!(shared.0.lock(1), "it says that it has the turn");
        let early = shared.1.load(Ordering::SeqCst) == 1;
        assert!(!early || Sim::need_resched());
        shared.0.unlock(1);
        drop(masked);
        early
    };
    let waiter = Sim::spawn(cpu(1, 0), waits).unwrap();
    let other = wanted.then(|| {
        let other = || Sim::work(Duration::from_millis(20));
        Sim::spawn(cpu(1, 0), other).unwrap()
    });
    let early = waiter.join();
    other.into_iter().for_each(JoinHandle::join);
    holder.join();
    early
}

#[test]
fn it_returns_as_if_acquired_where_the_thread_is_wanted() {
    let line = "coreline-sim/1 machine=kunpeng920-96c-4n seed=1 request=30 faults=none \
                program=split queue: wanted elsewhere";
    assert!(replay(line, || returns_early(true)).unwrap());
    assert!(!replay(line, || returns_early(false)).unwrap());
}

/// A thread of this node has a turn alone, on a machine of two nodes.
fn alone_on(node: u32) {
    let queue = PerNode::<Sim>::new_in(&[node], 2);
    assert!(queue.lock(0));
    queue.unlock(0);
}

#[test]
fn it_assumes_dense_node_numbers() {
    let line = "coreline-sim/1 machine=kunpeng920-96c-4n seed=1 request=30 faults=none \
                steps=10000 program=split queue: nodes 0 and 2";
    replay(line, || alone_on(0)).unwrap();
    replay(line, || alone_on(1)).unwrap();
    let failure = replay(line, || alone_on(2)).unwrap_err();
    assert!(matches!(failure.kind, FailureKind::Livelock { .. }), "{failure}");
}
