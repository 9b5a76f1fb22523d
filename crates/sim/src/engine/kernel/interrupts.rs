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

use crate::engine::kernel::schedule::Fiber;
use crate::engine::memory::{issue, watch};
use crate::engine::{Cpu, Engine, NEVER, PS_PER_NS, State, inside, suspend, with};
use crate::results::failure::FailureKind;
use crate::results::statistics::Kind;
use crate::world::interrupts::SendError;

/// What an interrupt runs.
pub(crate) type Handler = Box<dyn FnOnce() + Send>;

/// Interrupts a CPU.
pub(crate) fn send(cpu: CpuId, handler: Handler) -> Result<(), SendError> {
    issue();
    inside(|engine| {
        if !engine.is_online(cpu) {
            return Err(SendError {
                cpu,
                why: match engine.topology.cpu(cpu) {
                    Some(_) => "it is offline".to_owned(),
                    None => format!("the machine {} does not have it", engine.spec.name()),
                },
                online: engine.online().to_string(),
            });
        }
        let flight = engine.jitter.jitter(engine.spec.costs().ipi);
        let at = engine.here().now + flight;
        let cpu = cpu.index();
        let pending = &mut engine.cpus[cpu].interrupts;
        let behind = pending.iter().rposition(|&(other, _)| other <= at);
        pending.insert(behind.map_or(0, |last| last + 1), (at, handler));
        engine.attend(cpu);
        engine.rekey(cpu);
        Ok(())
    })
}

/// Masks the interrupts of the running thread's CPU.
pub(crate) fn mask() {
    inside(|engine| engine.set_masked(true));
}

/// Ends one mask, and runs what waited for that. Does nothing outside of a machine, where what a
/// failed one left behind may drop.
pub(crate) fn unmask() {
    if with(|engine| engine.set_masked(false)).is_some() {
        deliver();
    }
}

/// Rests until the line of `address` is written or an interrupt arrives.
pub(crate) fn monitor(address: usize) {
    let monitoring = |on| {
        inside(|engine| {
            let current = engine.current();
            engine.threads[current].monitoring = on;
            let cpu = engine.cpu().index();
            engine.attend(cpu);
        });
    };
    monitoring(true);
    watch(address);
    // Before the handler runs, which nothing interrupts.
    monitoring(false);
    deliver();
    inside(|engine| engine.spend(engine.spec.costs().mwait_exit));
    deliver();
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
    fn set_masked(&mut self, masked: bool) {
        let current = self.current();
        let count = &mut self.threads[current].masked;
        // A guard may drop in another machine than its own.
        *count = if masked { *count + 1 } else { count.saturating_sub(1) };
        let cpu = self.cpu().index();
        self.attend(cpu);
    }

    /// When the first interrupt of a CPU arrives.
    pub(in crate::engine) fn next_interrupt(&self, cpu: usize) -> u64 {
        self.cpus[cpu].interrupts.front().map_or(NEVER, |&(at, _)| at)
    }

    /// When an interrupt makes a CPU's thread break off what it does.
    pub(in crate::engine) fn next_break(&self, cpu: usize, thread: usize) -> u64 {
        let thread = &self.threads[thread];
        let breaks = thread.masked == 0 || thread.monitoring;
        if breaks { self.next_interrupt(cpu) } else { NEVER }
    }

    /// Whether the kernel has something to do on the running CPU. Nothing interrupts its thread
    /// before: `attention` is no later than what does.
    #[inline]
    fn is_disturbed(&mut self) -> bool {
        let &mut Cpu { now, attention, .. } = self.here();
        now >= attention
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

    /// An interrupt arrives at an idle CPU: its idle context takes it.
    pub(in crate::engine) fn leave_idle(&mut self, cpu: usize, at: u64) {
        let thread = match self.cpus[cpu].idle {
            Some(thread) => thread,
            None => {
                let Ok(fiber) = Fiber::new(idle) else {
                    let why = "no memory for the stack of an idle CPU".to_owned();
                    self.fail(FailureKind::Refused { why });
                    return;
                };
                let thread = self.add_idle(cpu, fiber);
                self.cpus[cpu].idle = Some(thread);
                thread
            }
        };
        let exit = self.spec.costs().mwait_exit;
        self.cpus[cpu].now = at + exit;
        self.account(cpu, Kind::Kernel, exit);
        self.take_idle(cpu, thread);
    }

    /// The idle context gets its CPU. It has no ticks.
    fn take_idle(&mut self, cpu: usize, thread: usize) {
        self.threads[thread].state = State::Running;
        let place = &mut self.cpus[cpu];
        place.current = Some(thread);
        place.next_tick = NEVER;
        place.slice_end = NEVER;
        self.attend(cpu);
        self.rekey(cpu);
    }

    /// The idle context has nothing more to do. True if it is to end: the machine ends, or a
    /// handler blocked in this one, so that the CPU has another context or none.
    fn rest(&mut self) -> bool {
        let cpu = self.cpu().index();
        let current = self.current();
        if self.ending {
            self.cpus[cpu].idle = None;
            return true;
        }
        self.report.time_ns = self.report.time_ns.max(self.cpus[cpu].now / PS_PER_NS);
        if self.cpus[cpu].idle != Some(current) {
            return true;
        }
        self.threads[current].state = State::Idle;
        self.cpus[cpu].current = None;
        self.attend(cpu);
        false
    }

    /// Lets the idle contexts end. False if there is none any more.
    pub(in crate::engine) fn end_idle(&mut self) -> bool {
        self.ending = true;
        let mut any = false;
        for cpu in 0..self.cpus.len() {
            if let Some(thread) = self.cpus[cpu].idle.take() {
                self.take_idle(cpu, thread);
                any = true;
            }
        }
        any
    }
}

/// What an idle CPU's context does.
fn idle() {
    loop {
        deliver();
        if inside(Engine::rest) {
            return;
        }
        suspend();
    }
}
