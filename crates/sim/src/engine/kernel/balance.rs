//! Load balancing: a CPU without work takes over a thread that waits for its turn elsewhere.
//!
//! A CPU looks when it becomes idle; and at each tick of a CPU where threads wait, the nearest idle
//! one looks (as the kernel kicks an idle CPU to balance). It takes the first unbound thread from
//! the longest queue under its own last-level cache, or else of its node, or else of the machine.
//! This costs a switch. The lines that the thread must then fetch are charged when it fetches them.
//! Threads are never taken off a CPU where they run, and a woken thread goes back to where it was.
//!
//! Schedules other than by time never move a thread: they are about the order of accesses.

use std::cmp::Reverse;

use crate::engine::Engine;

impl Engine {
    /// How far a CPU is from another: 0 under one cache, 1 in one node, 2 elsewhere.
    fn distance(&self, a: usize, b: usize) -> u8 {
        let (a, b) = (&self.cpus[a], &self.cpus[b]);
        match () {
            () if a.cache == b.cache => 0,
            () if a.node == b.node => 1,
            () => 2,
        }
    }

    /// A CPU looks for work, if it is idle.
    #[inline]
    pub(in crate::engine) fn pull(&mut self, cpu: usize, now: u64) {
        if self.queued > 0 && self.chooser.is_none() && self.is_idle(cpu) {
            self.take_over(cpu, now);
        }
    }

    #[inline(never)]
    fn take_over(&mut self, cpu: usize, now: u64) {
        let busy = (0..self.cpus.len()).filter(|&other| self.first_movable(other, now).is_some());
        let nearest = busy.min_by_key(|&other| {
            (self.distance(cpu, other), Reverse(self.cpus[other].queue.len()), other)
        });
        let Some(from) = nearest else { return };
        let Some(thread) =
            self.first_movable(from, now).and_then(|at| self.cpus[from].queue.remove(at))
        else {
            return;
        };
        self.queued -= 1;
        self.update_kernel_event(from);
        self.rekey(from);
        let cost = self.jitter.jitter(self.spec.costs().switch);
        self.enqueue(thread, cpu, now + cost);
    }

    /// A CPU where threads wait has ticked: the nearest idle CPU looks for work.
    pub(in crate::engine) fn kick_idle(&mut self, cpu: usize) {
        if self.cpus[cpu].queue.is_empty() {
            return;
        }
        let idle = (0..self.cpus.len()).filter(|&other| self.is_idle(other));
        if let Some(nearest) = idle.min_by_key(|&other| (self.distance(cpu, other), other)) {
            let now = self.cpus[cpu].now;
            self.pull(nearest, now.max(self.cpus[nearest].now));
        }
    }

    fn is_idle(&self, cpu: usize) -> bool {
        let cpu = &self.cpus[cpu];
        cpu.current.is_none() && cpu.queue.is_empty() && !cpu.offline
    }

    /// The position in a CPU's queue of the first ready, unbound thread, if another thread has the
    /// CPU.
    fn first_movable(&self, cpu: usize, now: u64) -> Option<usize> {
        let cpu = &self.cpus[cpu];
        cpu.current?;
        cpu.queue.iter().position(|&thread| {
            !self.threads[thread].bound && self.threads[thread].ready_since() <= now
        })
    }
}
