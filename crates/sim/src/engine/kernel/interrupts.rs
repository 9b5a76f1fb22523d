//! Interrupts: from one CPU to another, run on the stack of the thread found there.
//!
//! | the CPU's thread | is interrupted |
//! |---|---|
//! | running | where it looks whether it [may go on](Engine::may_go_on) |
//! | spinning, or computing | at once: it breaks off, runs the handler and looks again |
//! | in the middle of an access | after it |
//! | masked | when it unmasks; a monitored wait ends all the same |
//! | none | at once: the CPU's idle context runs the handler |

use coreline_topology::CpuId;

use crate::engine::{Cpu, Engine, NEVER, inside, with};

/// The function that an interrupt runs.
pub(crate) type Handler = Box<dyn FnOnce() + Send>;

/// Masks the interrupts of the running thread's CPU.
pub(crate) fn mask() {
    inside(|engine| engine.set_masked(true));
}

/// Ends one mask, and runs what waited for that. Does nothing outside of a machine, where the
/// objects that a failed machine left may drop.
pub(crate) fn unmask() {
    if with(|engine| engine.set_masked(false)).is_some() {
        deliver();
    }
}

/// Runs the handlers that are due on the running CPU.
#[inline]
pub(in crate::engine) fn deliver() {
    if inside(|engine| engine.is_disturbed()) {
        deliver_due();
    }
}

#[cold]
fn deliver_due() {
    while let Some((handler, section)) = inside(Engine::enter_interrupt) {
        let _exit = Exit { section };
        handler();
    }
}

/// Leaves an interrupt, even if its handler panics.
struct Exit {
    /// Whether a restartable operation was under way.
    section: bool,
}

impl Drop for Exit {
    fn drop(&mut self) {
        inside(|engine| {
            engine.spend(engine.spec.costs().irq_exit);
            engine.set_section(self.section);
            engine.set_masked(false);
        });
    }
}

impl Engine {
    /// Sends an interrupt to a CPU that is in service.
    pub(crate) fn interrupt(&mut self, cpu: CpuId, handler: Handler) {
        let flight = self.jitter.jitter(self.spec.costs().ipi);
        let at = self.here().now + flight;
        let cpu = cpu.index();
        let pending = &mut self.cpus[cpu].interrupts;
        let behind = pending.iter().rposition(|&(other, _)| other <= at);
        pending.insert(behind.map_or(0, |last| last + 1), (at, handler));
        self.update_kernel_event(cpu);
        self.rekey(cpu);
    }

    fn set_masked(&mut self, masked: bool) {
        let current = self.current();
        let count = &mut self.threads[current].masked;
        // A guard may drop in another machine than its own.
        *count = if masked { *count + 1 } else { count.saturating_sub(1) };
        let cpu = self.cpu().index();
        self.update_kernel_event(cpu);
    }

    /// Whether another CPU than the running one has a thread of the program.
    pub(crate) fn runs_elsewhere(&self, cpu: CpuId) -> bool {
        let current = self.cpus.get(cpu.index()).and_then(|place| place.current);
        cpu != self.cpu() && current.is_some_and(|thread| !self.threads[thread].is_idle)
    }

    /// The operation that the running thread has under way starts over.
    pub(crate) fn abort_own_section(&mut self) {
        let current = self.current();
        self.threads[current].aborts += 1;
        self.lose_extension(current);
    }

    /// Whether only a mask keeps the running CPU from another thread, or from an interrupt.
    pub(crate) fn need_resched(&self) -> bool {
        let cpu = self.cpu().index();
        let (place, thread) = (&self.cpus[cpu], &self.threads[self.current()]);
        let first = place.queue.front().map_or(NEVER, |&first| self.threads[first].ready_since());
        // Under a schedule that chooses, each point may be the end of a slice. Idleness has none.
        let slice_end = match self.chooser.is_some() || thread.is_idle {
            true => 0,
            false => place.slice_end,
        };
        thread.masked > 0 && place.now >= self.next_interrupt(cpu).min(first.max(slice_end))
    }

    /// When the first interrupt of a CPU arrives.
    pub(in crate::engine) fn next_interrupt(&self, cpu: usize) -> u64 {
        self.cpus[cpu].interrupts.front().map_or(NEVER, |&(at, _)| at)
    }

    /// When an interrupt makes a CPU's thread stop its current operation.
    pub(in crate::engine) fn next_break(&self, cpu: usize, thread: usize) -> u64 {
        let thread = &self.threads[thread];
        let breaks = thread.masked == 0 || thread.monitoring;
        if breaks { self.next_interrupt(cpu) } else { NEVER }
    }

    /// Whether the kernel has something to do on the running CPU. Nothing interrupts its thread
    /// before: `next_kernel_event` is no later than what does.
    #[inline]
    fn is_disturbed(&mut self) -> bool {
        let &mut Cpu { now, next_kernel_event, .. } = self.here();
        now >= next_kernel_event
    }

    /// The next handler that is due on the running CPU, and whether it interrupts a restartable
    /// operation.
    fn enter_interrupt(&mut self) -> Option<(Handler, bool)> {
        let cpu = self.cpu().index();
        let current = self.current();
        if self.threads[current].masked > 0 || self.next_interrupt(cpu) > self.cpus[cpu].now {
            return None;
        }
        let (_, handler) = self.cpus[cpu].interrupts.pop_front()?;
        self.spend(self.spec.costs().irq_entry);
        self.set_masked(true);
        let section = std::mem::take(&mut self.threads[current].section);
        Some((handler, section))
    }
}
