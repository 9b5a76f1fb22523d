//! Planted mistakes, each found by the simulated machine, and the same programs without the
//! mistake, in which it finds nothing. The test `checkers` has more, which loom and shuttle run,
//! too.

use std::sync::Arc as HostArc;

use coreline_sim::atomic::{AtomicU64, Ordering::SeqCst};
use coreline_sim::claim::Band;
use coreline_sim::{
    Explore, Failure, FailureKind, LockReport, Machine, Schedule, Sim, Spec, hint, locks, search,
    thread,
};
use coreline_topology::NodeId;
use coreline_world::{JoinHandle, Place, Sleep, Word};

use crate::common::{U32, machine, on};
use crate::replays;

fn small() -> Machine {
    Machine::preset("host-2c").unwrap().step_limit(1_000_000)
}

/// One thread waits until there is something; another one brings it, and wakes.
#[derive(Clone, Copy)]
struct Handover {
    /// Whether the waiter notes how often it was called before it looks, as it must.
    notes_first: bool,
}

impl Handover {
    fn run(self) {
        let ready = HostArc::new(U32::new_in(0));
        let calls = HostArc::new(U32::new_in(0));
        let theirs = (HostArc::clone(&ready), HostArc::clone(&calls));
        let waiter = on(1, move || {
            let (ready, calls) = theirs;
            loop {
                let early = calls.load(SeqCst);
                if ready.load(SeqCst) == 1 {
                    return;
                }
                // Noted here, the number already has a call that came since the look: its wake-up
                // is over, and there will be no other.
                let noted = if self.notes_first { early } else { calls.load(SeqCst) };
                Sim::park(&calls, noted, None);
            }
        });
        ready.store(1, SeqCst);
        let noted = calls.load(SeqCst);
        calls.store(noted + 1, SeqCst);
        Sim::wake(&*calls, 1);
        waiter.join();
    }
}

#[test]
fn a_lost_wake_up_is_found() {
    let lost = || Handover { notes_first: false }.run();
    let failure = Explore::new().preemptions(2).run(small, lost).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock, "{failure}");
    replays(&failure, lost);
    let random = |seed| small().seed(seed).schedule(Schedule::Random);
    let failure = search((0..1000).map(random), lost).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock, "{failure}");
    replays(&failure, lost);

    let right = || Handover { notes_first: true }.run();
    assert!(Explore::new().preemptions(2).run(small, right).unwrap().complete);
    search((0..1000).map(random), right).unwrap();
}

/// A word on a line of its own, or next to another.
#[repr(C, align(64))]
#[derive(Default)]
struct Padded(AtomicU64);

/// Two threads, far from each other, count for themselves; nanoseconds for it.
fn two_counts(machine: Machine, padded: bool) -> Result<f64, Box<Failure>> {
    let run = machine.run(move || {
        let near = [AtomicU64::new(0), AtomicU64::new(0)];
        let far = [Padded::default(), Padded::default()];
        let count = |word: &AtomicU64| (0..20_000).for_each(|_| _ = word.fetch_add(1, SeqCst));
        thread::scope(|scope| {
            for number in 0..2 {
                let word = if padded { &far[number].0 } else { &near[number] };
                scope.spawn(move || count(word));
            }
        });
    })?;
    Ok(run.report.time_ns as f64)
}

#[test]
fn false_sharing_is_found() {
    let band = Band::whole(&Spec::preset("epyc-9654-2s").unwrap(), 1);
    let near = band.measure("two counts on a line", |machine| two_counts(machine, false)).unwrap();
    let far = band.measure("a line each", |machine| two_counts(machine, true)).unwrap();
    near.at_least(2.0, &far).unwrap_or_else(|broken| panic!("{broken}"));
    let broken = far.at_least(2.0, &near).unwrap_err().to_string();
    assert!(broken.contains("a line each"), "{broken}");
}

/// A lock that goes to a waiter of the same node as long as there is one: a ticket lock for each
/// node, whose holder keeps the lock of all nodes for the next holder of that ticket lock.
struct NodeFirst {
    nodes: Vec<Padded>,
    served: Vec<Padded>,
    /// 1 and the number of the node that has the lock of all nodes; 0 if none has.
    owner: AtomicU64,
    /// How often in a row a node may keep it.
    most: u64,
    kept: AtomicU64,
}

impl NodeFirst {
    fn new(nodes: usize, most: u64) -> NodeFirst {
        NodeFirst {
            nodes: (0..nodes).map(|_| Padded::default()).collect(),
            served: (0..nodes).map(|_| Padded::default()).collect(),
            owner: AtomicU64::new(0),
            most,
            kept: AtomicU64::new(0),
        }
    }

    fn lock(&self, node: NodeId) {
        locks::waiting(self);
        let ticket = self.nodes[node.index()].0.fetch_add(1, SeqCst);
        while self.served[node.index()].0.load(SeqCst) != ticket {
            hint::spin_loop();
        }
        let mine = u64::from(node.get()) + 1;
        while self.owner.load(SeqCst) != mine
            && self.owner.compare_exchange(0, mine, SeqCst, SeqCst).is_err()
        {
            hint::spin_loop();
        }
        locks::acquired(self);
    }

    fn unlock(&self, node: NodeId) {
        locks::released(self);
        let served = self.served[node.index()].0.load(SeqCst) + 1;
        let wanted = self.nodes[node.index()].0.load(SeqCst) > served;
        let kept = self.kept.load(SeqCst) + 1;
        if wanted && kept < self.most {
            self.kept.store(kept, SeqCst);
        } else {
            self.kept.store(0, SeqCst);
            self.owner.store(0, SeqCst);
        }
        self.served[node.index()].0.store(served, SeqCst);
    }
}

/// Threads on all CPUs of four nodes want the lock all the time, for a millisecond.
fn fairness(most: u64) -> LockReport {
    let run = machine("kunpeng920-96c-4n", 3).run(move || {
        let lock = HostArc::new(NodeFirst::new(4, most));
        let begin = coreline_sim::time::Instant::now();
        let span = coreline_sim::time::Duration::from_millis(2);
        let threads: Vec<_> = (0..96)
            .step_by(2)
            .map(|cpu| {
                let lock = HostArc::clone(&lock);
                let contend = move || {
                    let node = Sim::node();
                    while begin.elapsed() < span {
                        lock.lock(node);
                        lock.unlock(node);
                    }
                };
                on(cpu, contend)
            })
            .collect();
        threads.into_iter().for_each(JoinHandle::join);
    });
    run.unwrap().locks.remove(0)
}

#[test]
fn a_lock_that_starves_a_node_is_found() {
    let starving = fairness(u64::MAX);
    let (least, most) = starving.node_shares();
    assert!(least < 0.01 && most > 0.9, "{starving}");
    let bounded = fairness(64);
    assert!(bounded.node_shares().0 > 0.05, "{bounded}");
}
