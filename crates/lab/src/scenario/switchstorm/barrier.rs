//! A barrier in two levels, so that what is compared is not hidden behind one counter of all CPUs.

use std::collections::BTreeMap;

use coreline_topology::{CacheId, CpuId};
use coreline_world::{Integer, Line, Ordering, Testbed, Word};

/// Threads that arrived, of those under one last-level cache.
struct Group<W: Testbed> {
    arrived: W::U32,
    of: u32,
}

/// All threads wait for all, again and again.
///
/// `generation` counts how often all had arrived; its top bit says that no thread waits any more.
pub(crate) struct Barrier<W: Testbed> {
    groups: Vec<Line<Group<W>>>,
    /// By thread.
    group_of: Vec<usize>,
    complete: Line<W::U32>,
    generation: Line<W::U32>,
}

const GIVEN_UP: u32 = 1 << 31;

impl<W: Testbed> Barrier<W> {
    /// For a thread on each of these CPUs.
    pub(crate) fn new(cpus: &[CpuId]) -> Self {
        let topology = W::topology();
        let mut numbers = BTreeMap::<Option<CacheId>, usize>::new();
        let mut sizes = Vec::new();
        let mut group_of = Vec::with_capacity(cpus.len());
        for &cpu in cpus {
            let cache = topology.cpu(cpu).map(|cpu| cpu.cache);
            let group = *numbers.entry(cache).or_insert(sizes.len());
            if group == sizes.len() {
                sizes.push(0);
            }
            sizes[group] += 1;
            group_of.push(group);
        }
        let group = |of| Line(Group { arrived: W::U32::new_in(0), of });
        Barrier {
            groups: sizes.into_iter().map(group).collect(),
            group_of,
            complete: Line(W::U32::new_in(0)),
            generation: Line(W::U32::new_in(0)),
        }
    }

    /// Waits until all threads have come; returns false if that is given up.
    pub(crate) fn wait(&self, thread: usize) -> bool {
        // Relaxed: it does not change before this thread arrives.
        let generation = self.generation.load(Ordering::Relaxed);
        if generation & GIVEN_UP != 0 {
            return false;
        }
        let group = &self.groups[self.group_of[thread]];
        // AcqRel, both: the last to arrive passes on what all did before; and the next arrivals see
        // the resets, which come before the Release below.
        if group.arrived.fetch_add(1, Ordering::AcqRel) + 1 == group.of {
            group.arrived.store(0, Ordering::Relaxed);
            if self.complete.fetch_add(1, Ordering::AcqRel) + 1 == self.groups.len() as u32 {
                self.complete.store(0, Ordering::Relaxed);
                // Release: the partner is the Acquire below.
                self.generation.fetch_add(1, Ordering::Release);
                return true;
            }
        }
        // Acquire: the partner is the Release above.
        let next = self.generation.wait_until(Ordering::Acquire, |now| now != generation);
        next & GIVEN_UP == 0
    }

    /// Whether this is a line of its own, by address.
    pub(crate) fn has_line(&self, line: usize) -> bool {
        let ends = [&raw const self.complete, &raw const self.generation];
        self.groups.iter().map(|group| (&raw const *group).addr()).any(|at| at == line)
            || ends.map(<*const _>::addr).contains(&line)
    }

    /// No thread waits any more, since not all will come.
    pub(crate) fn give_up(&self) {
        // Relaxed: nothing was done that another thread would have to see.
        self.generation.fetch_or(GIVEN_UP, Ordering::Relaxed);
    }
}
