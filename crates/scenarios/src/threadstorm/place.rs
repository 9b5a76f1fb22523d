//! The CPUs: where threads wait to run, and to which CPU each is sent.

use std::collections::VecDeque;

use coreline_topology::{CacheId, CpuId};
use coreline_world::{Line, Ordering, Testbed, Word};
use rand_pcg::Pcg64;

use crate::draw;

/// The part of a CPU's state that others see.
///
/// | word | value | meaning | written by |
/// |---|---|---|---|
/// | `arrivals` | 0 | no thread has arrived | the CPU |
/// | | n + 1 | n arrived last; its word in `next` is what was here before | the sender of n |
/// | | [`END`] | no thread will arrive any more | [`Cpus::end`] |
/// | `busy` | 0, 1 | 1: something runs here, or is about to | the CPU |
struct Cpu<W: Testbed> {
    arrivals: W::U32,
    busy: W::U32,
}

const NONE: u32 = 0;
const END: u32 = u32::MAX;

/// All CPUs, by their place in the configuration, and the threads on the way to one.
pub(super) struct Cpus<W: Testbed> {
    cpus: Vec<Line<Cpu<W>>>,
    /// By thread.
    next: Vec<Line<W::U32>>,
    /// For each CPU: the CPUs under the same last-level cache, from the next one on. The CPU itself
    /// is last.
    near: Vec<Vec<usize>>,
}

/// How often the creator of a thread looks for a CPU that idles.
const DRAWS: usize = 4;

impl<W: Testbed> Cpus<W> {
    /// For this number of threads.
    pub(super) fn new(ids: &[CpuId], threads: usize) -> Self {
        let topology = W::topology();
        let cache = |id: &CpuId| topology.cpu(*id).map(|cpu| cpu.cache);
        let caches: Vec<Option<CacheId>> = ids.iter().map(cache).collect();
        let all = ids.len();
        let near = |cpu: usize| {
            let others = (1..=all).map(|ahead| (cpu + ahead) % all);
            others.filter(|&other| caches[other] == caches[cpu]).collect()
        };
        let cpu = || Line(Cpu { arrivals: W::U32::new_in(NONE), busy: W::U32::new_in(0) });
        Cpus {
            near: (0..all).map(near).collect(),
            cpus: (0..all).map(|_| cpu()).collect(),
            next: (0..threads).map(|_| Line(W::U32::new_in(NONE))).collect(),
        }
    }

    /// A thread must run on a CPU, which finds the thread by itself.
    pub(super) fn send(&self, thread: usize, cpu: usize) {
        let arrivals = &self.cpus[cpu].arrivals;
        let (mut before, relaxed) = (arrivals.load(Ordering::Relaxed), Ordering::Relaxed);
        loop {
            // Relaxed: the exchange makes it visible.
            self.next[thread].store(before, relaxed);
            // Release: pairs with the Acquire in `receive`, which sees the link, and what the
            // sender did for the thread. Relaxed on failure: only tried again.
            let this = thread as u32 + 1;
            match arrivals.compare_exchange(before, this, Ordering::Release, relaxed) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// Threads that have arrived join the CPU's queue, in the order of arrival. Waits for one if
    /// the queue is empty; says whether any thread will arrive any more.
    pub(super) fn receive(&self, cpu: usize, queue: &mut VecDeque<usize>) -> bool {
        let Line(Cpu { arrivals, busy }) = &self.cpus[cpu];
        if queue.is_empty() {
            // Relaxed, and below: a hint for senders.
            busy.store(0, Ordering::Relaxed);
            // Relaxed: the exchange below synchronises.
            arrivals.wait_until(Ordering::Relaxed, |now| now != NONE);
            // Relaxed: a hint for senders.
            busy.store(1, Ordering::Relaxed);
        } else if arrivals.load(Ordering::Relaxed) == NONE {
            // Relaxed: a thread that comes this moment is found the next time.
            return true;
        }
        // Acquire: pairs with the Release in `send`.
        let mut last = arrivals.swap(NONE, Ordering::Acquire);
        let before = queue.len();
        while last != NONE && last != END {
            let thread = last as usize - 1;
            queue.insert(before, thread);
            // Relaxed: came with the exchange.
            last = self.next[thread].load(Ordering::Relaxed);
        }
        last != END
    }

    /// No thread will be sent anywhere any more, and none is on the way.
    pub(super) fn end(&self) {
        // Relaxed: CPUs that see it do nothing more with what is shared.
        self.cpus.iter().for_each(|cpu| cpu.arrivals.store(END, Ordering::Relaxed));
    }

    fn is_idle(&self, cpu: usize) -> bool {
        let Line(Cpu { arrivals, busy }) = &self.cpus[cpu];
        // Relaxed, both: a hint.
        busy.load(Ordering::Relaxed) == 0 && arrivals.load(Ordering::Relaxed) == NONE
    }

    /// The CPU for a new thread that may run anywhere.
    pub(super) fn for_new(&self, dice: &mut Pcg64) -> usize {
        let mut cpu = draw(dice, self.cpus.len());
        for _ in 1..DRAWS {
            if self.is_idle(cpu) {
                break;
            }
            cpu = draw(dice, self.cpus.len());
        }
        cpu
    }

    /// The CPU for a thread that was woken on `waker`, ran on `last`, and may run anywhere.
    pub(super) fn for_woken(&self, waker: usize, last: usize, dice: &mut Pcg64) -> usize {
        let target = if draw(dice, 2) == 0 { waker } else { last };
        if self.is_idle(target) {
            return target;
        }
        let idle = self.near[target].iter().copied().find(|&cpu| self.is_idle(cpu));
        idle.unwrap_or(target)
    }
}
