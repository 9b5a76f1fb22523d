//! The records of the locks of a run, and the reports on them.

use core::fmt;
use core::panic::Location;
use std::collections::BTreeMap;

use coreline_topology::{CpuId, Distance, NodeId, Topology};
use serde::{Serialize, Serializer};

use crate::results::report::SourceSite;

/// An event at a lock: which thread causes it, where and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    /// The lock's address, as an offset in the machine's memory.
    pub(crate) lock: u64,
    pub(crate) thread: usize,
    pub(crate) cpu: CpuId,
    /// Picoseconds.
    pub(crate) at: u64,
}

/// The function by which a [`Log`] records it.
pub(crate) type Happens = fn(&mut Log, Event, &Topology);

/// Since when a thread waits for a lock, and holds it, in picoseconds.
pub(crate) struct Since {
    pub(crate) waiting: Option<u64>,
    pub(crate) holding: Option<u64>,
}

/// The locks of a machine, by their offset in its memory.
#[derive(Debug, Default)]
pub(crate) struct Locks(BTreeMap<u64, Log>);

impl Locks {
    /// The record of a lock of `len` bytes that was first used at `site`, unless it was used
    /// before.
    pub(crate) fn log(
        &mut self,
        lock: u64,
        len: u64,
        site: &'static Location<'static>,
    ) -> &mut Log {
        self.0.entry(lock).or_insert_with(|| Log::new(len, site))
    }

    /// The lock that a word is part of: its address, and where it was first used.
    pub(crate) fn at(&self, word: u64) -> Option<(u64, String)> {
        let (&lock, log) = self.0.range(..=word).next_back()?;
        (word < lock + log.len.max(1)).then(|| (lock, SourceSite::of(log.site).to_string()))
    }

    /// The reports, the lock that was waited for longest first. `end` says when a thread ended, or
    /// the run if it did not, in picoseconds; `names` what the program calls a lock.
    pub(crate) fn reports(
        &self,
        end: impl Fn(usize) -> u64,
        names: impl Fn(u64) -> Vec<String>,
    ) -> Vec<LockReport> {
        let report = |(&lock, log): (&u64, &Log)| log.report(lock, &end, names(lock));
        let mut reports: Vec<_> = self.0.iter().map(report).collect();
        reports.sort_by_key(|report| (core::cmp::Reverse(report.waited_ns), report.lock));
        reports
    }

    /// How often locks were taken so far.
    pub(crate) fn acquisitions(&self) -> u64 {
        self.0.values().flat_map(|log| log.by_thread.values()).sum()
    }

    /// The lock that a thread waits for.
    pub(crate) fn waited_for(&self, thread: usize) -> Option<u64> {
        let waits = |(_, log): &(&u64, &Log)| log.waiting.contains_key(&thread);
        self.0.iter().find(waits).map(|(&lock, _)| lock)
    }
}

/// The record of a lock while the machine runs. Times are in picoseconds.
#[derive(Debug)]
pub(crate) struct Log {
    /// Bytes of the lock.
    len: u64,
    site: &'static Location<'static>,
    /// The CPU of the last holder.
    last: Option<CpuId>,
    /// Since when a thread waits.
    waiting: BTreeMap<usize, u64>,
    /// Since when a thread holds the lock.
    holding: BTreeMap<usize, u64>,
    by_thread: BTreeMap<usize, u64>,
    by_node: BTreeMap<NodeId, u64>,
    handoffs: Handoffs,
    contended: u64,
    waited: u64,
    longest_wait: u64,
    held: u64,
    longest_hold: u64,
}

impl Log {
    fn new(len: u64, site: &'static Location<'static>) -> Log {
        Log {
            len,
            site,
            last: None,
            waiting: BTreeMap::new(),
            holding: BTreeMap::new(),
            by_thread: BTreeMap::new(),
            by_node: BTreeMap::new(),
            handoffs: Handoffs::default(),
            contended: 0,
            waited: 0,
            longest_wait: 0,
            held: 0,
            longest_hold: 0,
        }
    }

    pub(crate) fn since(&self, thread: usize) -> Since {
        let of = |spans: &BTreeMap<usize, u64>| spans.get(&thread).copied();
        Since { waiting: of(&self.waiting), holding: of(&self.holding) }
    }

    /// The counts of a thread and of its node, which are there from its first wait on.
    fn counts(&mut self, event: Event, topology: &Topology) -> [&mut u64; 2] {
        let node = topology.cpu(event.cpu).map_or(NodeId::new(0), |cpu| cpu.node);
        [self.by_thread.entry(event.thread).or_default(), self.by_node.entry(node).or_default()]
    }

    pub(crate) fn waiting(&mut self, event: Event, topology: &Topology) {
        self.waiting.entry(event.thread).or_insert(event.at);
        self.counts(event, topology);
    }

    pub(crate) fn acquired(&mut self, event: Event, topology: &Topology) {
        let waited = self.waiting.contains_key(&event.thread);
        self.contended += u64::from(waited);
        self.gave_up(event, topology);
        self.counts(event, topology).into_iter().for_each(|count| *count += 1);
        self.holding.insert(event.thread, event.at);
        let last = self.last.replace(event.cpu);
        if let Some(distance) = last.and_then(|last| topology.distance(last, event.cpu)) {
            self.handoffs.count(distance);
        }
    }

    pub(crate) fn gave_up(&mut self, event: Event, _: &Topology) {
        if let Some(since) = self.waiting.remove(&event.thread) {
            let wait = event.at - since.min(event.at);
            self.waited += wait;
            self.longest_wait = self.longest_wait.max(wait);
        }
    }

    pub(crate) fn released(&mut self, event: Event, _: &Topology) {
        if let Some(since) = self.holding.remove(&event.thread) {
            let hold = event.at - since.min(event.at);
            self.held += hold;
            self.longest_hold = self.longest_hold.max(hold);
        }
    }

    fn report(&self, lock: u64, end: impl Fn(usize) -> u64, names: Vec<String>) -> LockReport {
        let ns = |ps: u64| ps / 1000;
        let span = |(&thread, &since): (&usize, &u64)| (thread, end(thread).saturating_sub(since));
        // Waits that never ended, the longest first, and holds.
        let mut waiters: Vec<_> = self.waiting.iter().map(span).collect();
        waiters.sort_by_key(|&(thread, waited)| (core::cmp::Reverse(waited), thread));
        let waited = self.waited + waiters.iter().map(|&(_, waited)| waited).sum::<u64>();
        let longest_wait = waiters.first().map_or(0, |&(_, waited)| waited).max(self.longest_wait);
        LockReport {
            lock,
            names,
            holders: self.holding.keys().copied().collect(),
            waiters: waiters.into_iter().map(|(thread, waited)| (thread, ns(waited))).collect(),
            site: SourceSite::of(self.site).to_string(),
            acquisitions: self.by_thread.values().sum(),
            contended: self.contended,
            handoffs: self.handoffs,
            waited_ns: ns(waited),
            longest_wait_ns: ns(longest_wait),
            held_ns: ns(self.held),
            longest_hold_ns: ns(self.longest_hold),
            by_thread: self.by_thread.iter().map(|(&thread, &count)| (thread, count)).collect(),
            by_node: self.by_node.iter().map(|(&node, &count)| (node, count)).collect(),
        }
    }
}

/// The hand-offs of a lock between CPUs, counted by distance. If a thread takes the lock again
/// right after freeing it, the lock stays on its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Handoffs {
    /// The number of hand-offs on the same CPU.
    pub same_cpu: u64,
    /// The number of hand-offs to another CPU under the same last-level cache.
    pub same_cache: u64,
    /// The number of hand-offs to another last-level cache of the same node.
    pub same_node: u64,
    /// The number of hand-offs to another node of the same socket.
    pub same_socket: u64,
    /// The number of hand-offs to another socket.
    pub other_socket: u64,
}

impl Handoffs {
    fn count(&mut self, distance: Distance) {
        *match distance {
            Distance::SameCpu => &mut self.same_cpu,
            Distance::SameNode => &mut self.same_node,
            Distance::SameSocket => &mut self.same_socket,
            Distance::OtherSocket => &mut self.other_socket,
            Distance::SameCore | Distance::SameL2 | Distance::SameCluster | Distance::SameCache => {
                &mut self.same_cache
            }
        } += 1;
    }
}

/// The report on one lock of a run. The same machine, seed and program give the same report on any
/// host. The fields of its JSON form (by serde) are listed in `docs/json.md` in the repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LockReport {
    /// The lock's address, as an offset in the machine's memory.
    pub lock: u64,
    /// The [names](crate::name) of the objects that contain the lock.
    pub names: Vec<String>,
    /// The source file and line of the first acquisition or wait.
    pub site: String,
    /// The threads that held the lock at the end of the run.
    pub holders: Vec<usize>,
    /// The threads that still waited when they, or the run, ended. Each entry is a thread and the
    /// length of its wait, in simulated nanoseconds. The longest wait is first.
    #[serde(serialize_with = "waiters")]
    pub waiters: Vec<(usize, u64)>,
    /// The number of acquisitions.
    pub acquisitions: u64,
    /// The number of acquisitions that had to wait.
    pub contended: u64,
    /// The hand-offs by distance.
    pub handoffs: Handoffs,
    /// The sum of all waits, in simulated nanoseconds. This includes waits that never ended.
    pub waited_ns: u64,
    /// The longest wait, in simulated nanoseconds.
    pub longest_wait_ns: u64,
    /// The sum of all hold times, in simulated nanoseconds. Each concurrent reader counts.
    pub held_ns: u64,
    /// The longest hold time, in simulated nanoseconds.
    pub longest_hold_ns: u64,
    /// The number of acquisitions by each thread that wanted the lock, ordered by thread number.
    /// The program's first thread is 0.
    #[serde(serialize_with = "by_thread")]
    pub by_thread: Vec<(usize, u64)>,
    /// The number of acquisitions on each node where a thread wanted the lock.
    #[serde(serialize_with = "by_node")]
    pub by_node: Vec<(NodeId, u64)>,
}

// Pairs become objects: a program that reads them finds names, as everywhere else.

fn waiters<S: Serializer>(pairs: &[(usize, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Waiter {
        thread: usize,
        waited_ns: u64,
    }
    serializer.collect_seq(pairs.iter().map(|&(thread, waited_ns)| Waiter { thread, waited_ns }))
}

fn by_thread<S: Serializer>(pairs: &[(usize, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct OfThread {
        thread: usize,
        count: u64,
    }
    serializer.collect_seq(pairs.iter().map(|&(thread, count)| OfThread { thread, count }))
}

fn by_node<S: Serializer>(pairs: &[(NodeId, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct OfNode {
        node: u32,
        count: u64,
    }
    serializer.collect_seq(pairs.iter().map(|&(node, count)| OfNode { node: node.get(), count }))
}

impl LockReport {
    /// Returns Jain's fairness index over the threads that wanted the lock. It is 1 if all threads
    /// took the lock equally often, and 1/n if only one of n threads took it. The index is
    /// meaningful only if all the lock's threads want it equally often.
    ///
    /// Source: Jain, Chiu, Hawe, *A quantitative measure of fairness and discrimination*, report
    /// DEC-TR-301, 1984.
    pub fn jain(&self) -> f64 {
        let counts = || self.by_thread.iter().map(|&(_, count)| count as f64);
        let squares: f64 = counts().map(|count| count * count).sum();
        if squares == 0.0 {
            return 1.0;
        }
        counts().sum::<f64>().powi(2) / (counts().count() as f64 * squares)
    }

    /// The title: its names, or its address, and where it was first used.
    pub(crate) fn title(&self) -> String {
        let names = self.names.iter().map(|name| format!(" {name:?}")).collect::<String>();
        format!("lock {:#x}{names}, first used at {}", self.lock, self.site)
    }

    /// Returns the smallest and the largest share of the acquisitions among the nodes where a
    /// thread wanted the lock.
    pub fn node_shares(&self) -> (f64, f64) {
        let total = self.acquisitions.max(1) as f64;
        let shares = || self.by_node.iter().map(|&(_, count)| count as f64 / total);
        (shares().fold(1.0, f64::min), shares().fold(0.0, f64::max))
    }
}

impl fmt::Display for LockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = self.node_shares();
        let Handoffs { same_cpu, same_cache, same_node, same_socket, other_socket } = self.handoffs;
        writeln!(f, "{}", self.title())?;
        writeln!(
            f,
            "  taken        {} times by {} threads, {} times after a wait",
            self.acquisitions,
            self.by_thread.len(),
            self.contended
        )?;
        writeln!(
            f,
            "  handed over  {same_cpu} on one CPU, {same_cache} in one cache, {same_node} in one \
             node, {same_socket} in one socket, {other_socket} to another socket"
        )?;
        writeln!(
            f,
            "  waited       {} ns in all, {} ns at most",
            self.waited_ns, self.longest_wait_ns
        )?;
        if let Some((longest, _)) = self.waiters.first() {
            let all = self.waiters.len();
            writeln!(
                f,
                "  never taken  by {all} threads that waited to the end, first thread {longest}"
            )?;
        }
        writeln!(
            f,
            "  held         {} ns in all, {} ns at most",
            self.held_ns, self.longest_hold_ns
        )?;
        write!(
            f,
            "  fairness     Jain's index {:.3}; nodes had {:.1} % to {:.1} %",
            self.jain(),
            100.0 * least,
            100.0 * most
        )
    }
}
