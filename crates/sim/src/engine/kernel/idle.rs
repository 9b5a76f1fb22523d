//! The contexts of idle CPUs: what runs interrupt handlers where no thread has the CPU.

use crate::engine::kernel::fiber::{Fiber, Job};
use crate::engine::kernel::interrupts;
use crate::engine::{Engine, NEVER, PS_PER_NS, State, inside, stack, suspend};
use crate::results::failure::FailureKind;
use crate::results::statistics::Activity;

/// The loop of an idle CPU's context.
fn idle() {
    loop {
        interrupts::deliver();
        if inside(Engine::rest) {
            return;
        }
        suspend();
    }
}

impl Engine {
    /// The context of an idle CPU: a thread that the kernel does not know of.
    fn add_idle(&mut self, cpu: usize, fiber: Fiber) -> usize {
        let number = self.push_thread(cpu, true);
        self.threads[number].is_idle = true;
        self.threads[number].state = State::Idle;
        self.register(number, fiber);
        number
    }

    /// An interrupt arrives at an idle CPU: its idle context takes it.
    pub(in crate::engine) fn leave_idle(&mut self, cpu: usize, at: u64) {
        let thread = match self.cpus[cpu].idle {
            Some(thread) => thread,
            None => {
                let stack = match stack::new(&self.arena) {
                    Ok(stack) => stack,
                    Err(error) => {
                        let why = format!("no stack for an idle CPU: {error}");
                        self.fail(FailureKind::Refused { why });
                        return;
                    }
                };
                let thread = self.add_idle(cpu, Fiber::new(stack, Job::new(idle)));
                self.cpus[cpu].idle = Some(thread);
                thread
            }
        };
        let exit = self.spec.costs().mwait_exit;
        let since = std::mem::replace(&mut self.cpus[cpu].now, at + exit);
        self.flush_after_idleness(cpu, since, at);
        self.account(cpu, Activity::Kernel, exit);
        self.give_cpu_to_idle(cpu, thread);
    }

    /// The idle context gets its CPU. It has no ticks.
    fn give_cpu_to_idle(&mut self, cpu: usize, thread: usize) {
        self.threads[thread].state = State::Running;
        let place = &mut self.cpus[cpu];
        if let Some(tracer) = &mut self.tracer {
            tracer.begins(cpu, thread, place.now);
        }
        place.current = Some(thread);
        place.next_tick = NEVER;
        place.slice_end = NEVER;
        self.update_kernel_event(cpu);
        self.rekey(cpu);
    }

    /// The idle context has nothing more to do. True if it must end: the machine ends, or a handler
    /// blocked in this one, so that the CPU has another context or none.
    fn rest(&mut self) -> bool {
        let cpu = self.cpu().index();
        let current = self.current();
        if self.ending {
            self.cpus[cpu].idle = None;
            return true;
        }
        let now = self.cpus[cpu].now;
        if let Some(tracer) = &mut self.tracer {
            tracer.ends(cpu, now);
        }
        self.report.time_ns = self.report.time_ns.max(now / PS_PER_NS);
        if self.cpus[cpu].idle != Some(current) {
            return true;
        }
        self.threads[current].state = State::Idle;
        self.cpus[cpu].current = None;
        self.update_kernel_event(cpu);
        false
    }

    /// Lets the idle contexts end. False if there is none any more.
    pub(in crate::engine) fn retire_idle_contexts(&mut self) -> bool {
        self.ending = true;
        let mut any = false;
        for cpu in 0..self.cpus.len() {
            if let Some(thread) = self.cpus[cpu].idle.take() {
                self.give_cpu_to_idle(cpu, thread);
                any = true;
            }
        }
        any
    }
}
