//! Interrupts to the CPUs of all other threads, as a kernel's call of a function on them.
//!
//! It models `smp_call_function_many` (`kernel/smp.c`, Linux 6.8). A sender marks its line for each
//! target, adds itself to each target's queue, interrupts the targets whose queues were empty, and
//! waits until each target has cleared the mark. A target's handler takes all of its queue.

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coreline_sim::{Sim, interrupts};
use coreline_topology::CpuId;
use coreline_world::{Integer, Line, Native, Ordering, Testbed, Word};

use crate::RunError;

/// A world, and whether a program there may interrupt CPUs and mask interrupts.
pub trait Interrupts: Testbed {
    /// Whether it may.
    const HAS: bool;

    /// Runs a function on a CPU, as an interrupt. Where the world has none, it does nothing.
    fn interrupt(cpu: CpuId, run: impl FnOnce() + Send + 'static);

    /// Calls a function with interrupts masked. Where the world has none, it just calls it.
    fn masked<T>(run: impl FnOnce() -> T) -> T;
}

impl Interrupts for Native {
    const HAS: bool = false;

    fn interrupt(_: CpuId, _: impl FnOnce() + Send + 'static) {}

    fn masked<T>(run: impl FnOnce() -> T) -> T {
        run()
    }
}

impl Interrupts for Sim {
    const HAS: bool = true;

    fn interrupt(cpu: CpuId, run: impl FnOnce() + Send + 'static) {
        interrupts::send(cpu, run).expect("a thread of this run is on the CPU");
    }

    fn masked<T>(run: impl FnOnce() -> T) -> T {
        let _masked = interrupts::mask();
        run()
    }
}

/// What is sent to one CPU.
struct Queue<W: Testbed> {
    /// How many senders are in it.
    senders: Line<W::U32>,
    /// Each sender's number, and the time of its function. The host keeps it, because its line
    /// would be that of `senders`.
    functions: Mutex<Vec<(usize, Duration)>>,
}

/// The queues of all threads' CPUs.
pub(super) struct Calls<W: Testbed> {
    cpus: Box<[CpuId]>,
    queues: Box<[Queue<W>]>,
    /// For each sender, a line for each target: 1 while the call has not run there.
    marks: Box<[Line<W::U32>]>,
    /// What the check needs. It is the host's: the machine charges no access to it.
    seen: Mutex<Seen>,
}

struct Seen {
    /// For each sender, the functions that it has sent and that have not run.
    left: Vec<i64>,
    /// The calls that returned before all of their functions had run once.
    early: u64,
}

impl<W: Interrupts> Calls<W> {
    /// For a thread on each of these CPUs.
    pub(super) fn new(cpus: &[CpuId]) -> Self {
        let word = || Line(W::U32::new_in(0));
        let queue = |_| Queue { senders: word(), functions: Mutex::new(Vec::new()) };
        let marks = cpus.len() * cpus.len();
        Calls {
            cpus: cpus.into(),
            queues: (0..cpus.len()).map(queue).collect(),
            marks: (0..marks).map(|_| word()).collect(),
            seen: Mutex::new(Seen { left: vec![0; cpus.len()], early: 0 }),
        }
    }

    /// Lets the CPU of each other thread compute for `span`, and waits for all of them.
    pub(super) fn call_all(self: &Arc<Self>, sender: usize, span: Duration) {
        let targets = || (0..self.cpus.len()).filter(|target| *target != sender);
        held(&self.seen).left[sender] += self.cpus.len() as i64 - 1;
        let interrupted: Vec<usize> =
            targets().filter(|&target| self.queue(sender, target, span)).collect();
        for target in interrupted {
            let theirs = Arc::clone(self);
            W::interrupt(self.cpus[target], move || theirs.handle(target));
        }
        for target in targets() {
            // Acquire: pairs with the Release in `handle`.
            self.mark(sender, target).wait_until(Ordering::Acquire, |mark| mark == 0);
        }
        let mut seen = held(&self.seen);
        seen.early += u64::from(seen.left[sender] != 0);
    }

    /// Whether each call returned after all its functions, and each function ran once. All threads
    /// have been joined.
    pub(super) fn check(&self) -> Result<(), RunError> {
        let seen = held(&self.seen);
        if seen.early != 0 || seen.left.iter().any(|left| *left != 0) {
            let found = format!(
                "{} calls returned before all their functions had run; functions of each sender \
                 that have not run: {:?}",
                seen.early, seen.left
            );
            return Err(RunError::Check(found));
        }
        Ok(())
    }

    fn mark(&self, sender: usize, target: usize) -> &W::U32 {
        &self.marks[sender * self.cpus.len() + target]
    }

    /// Adds a sender to a target's queue. Returns whether the queue was empty.
    fn queue(&self, sender: usize, target: usize, span: Duration) -> bool {
        // Relaxed: an exchange, so that it is complete before a handler can find the sender and
        // clear the mark. The addition below publishes it.
        self.mark(sender, target).swap(1, Ordering::Relaxed);
        let queue = &self.queues[target];
        held(&queue.functions).push((sender, span));
        // Release: pairs with the Acquire in `handle`.
        queue.senders.fetch_add(1, Ordering::Release) == 0
    }

    /// Runs on a target's CPU. A sender that it finds before the sender's addition interrupts the
    /// CPU once more, and then there is nothing left to do.
    fn handle(&self, target: usize) {
        let queue = &self.queues[target];
        // Acquire: pairs with the Release in `queue`.
        queue.senders.swap(0, Ordering::Acquire);
        let all = core::mem::take(&mut *held(&queue.functions));
        for (sender, span) in all {
            if !span.is_zero() {
                W::work(span);
            }
            held(&self.seen).left[sender] -= 1;
            // Release: pairs with the Acquire in `call_all`.
            self.mark(sender, target).store(0, Ordering::Release);
        }
    }
}

/// No thread panics while it has one of these.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
