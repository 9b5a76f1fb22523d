//! The kernel's own actions on a running thread: ticks, interrupts, and the end of a time slice.
//!
//! A running thread compares its CPU's time with one number, `Cpu::next_kernel_event`, which is the
//! earliest of all of these; so none of them costs an access anything until it is due. Then the
//! thread yields to the engine's loop, which calls [`Engine::look_after`].

use coreline_topology::CpuId;
use coreline_world::Time;

use crate::engine::kernel::extension::Extension;
use crate::engine::{Engine, NEVER, PS_PER_NS, State};
use crate::results::statistics::Activity;

impl Engine {
    /// Notes when the kernel has to look at a CPU next, after something about that changed.
    pub(in crate::engine) fn update_kernel_event(&mut self, cpu: usize) {
        let place = &self.cpus[cpu];
        let Some(thread) = place.current else {
            self.cpus[cpu].next_kernel_event = NEVER;
            return;
        };
        let own = match place.queue.is_empty() {
            _ if self.threads[thread].masked > 0 => NEVER,
            // A grant ends even if no thread waits.
            _ if self.threads[thread].extension == Extension::Granted => {
                place.next_tick.min(place.slice_end)
            }
            // A schedule that chooses at every point needs no slices.
            empty if empty || self.chooser.is_some() => place.next_tick,
            _ => place.next_tick.min(place.slice_end),
        };
        self.cpus[cpu].next_kernel_event = own.min(self.next_break(cpu, thread));
    }

    /// A CPU gets a thread, so its timer ticks. If the CPU already has ticks, they continue.
    /// Otherwise it was idle since `idle`.
    ///
    /// The timer runs again before the kernel switches to the thread, which it does with interrupts
    /// off. So a tick that becomes due during this time hits the thread as soon as the thread runs.
    pub(in crate::engine) fn start_ticks(&mut self, cpu: usize, idle: u64) {
        let switch = self.spec.costs().switch;
        let place = &self.cpus[cpu];
        if place.next_tick == NEVER {
            self.set_tick(cpu, place.now.saturating_sub(switch).max(idle));
        }
    }

    /// The next tick is the first after a time.
    fn set_tick(&mut self, cpu: usize, after: u64) {
        let tick = self.spec.costs().tick;
        let cpu = &mut self.cpus[cpu];
        let before = after.checked_sub(cpu.tick_phase).map_or(0, |past| past / tick + 1);
        cpu.next_tick = cpu.tick_phase + before * tick;
    }

    /// Does what is due on the running CPU, one thing at a time.
    pub(in crate::engine) fn look_after(&mut self, cpu: usize, thread: usize) {
        let now = self.cpus[cpu].now;
        if now >= self.cpus[cpu].next_tick {
            self.tick(cpu, thread);
        } else {
            self.end_slice(cpu, thread);
        }
    }

    /// The timer interrupts a CPU: a plain interrupt, which aborts no restartable operation.
    pub(in crate::engine) fn tick(&mut self, cpu: usize, thread: usize) {
        let costs = *self.spec.costs();
        let at = Time::from_nanos(self.cpus[cpu].now / PS_PER_NS);
        if let Some(kernel) = self.kernel_of(thread) {
            kernel.tick(at, CpuId::new(cpu as u32), thread);
        }
        let lost = costs.irq_entry + costs.irq_exit;
        self.cpus[cpu].now += lost;
        self.account(cpu, Activity::Kernel, lost);
        if let State::Working { until } = &mut self.threads[thread].state {
            *until = until.saturating_add(lost);
        }
        // One tick, however many a section without interrupts has held off.
        self.set_tick(cpu, self.cpus[cpu].now);
        self.update_kernel_event(cpu);
        self.kick_idle(cpu);
    }

    /// Whether nothing but ticks under spinning threads can happen any more: then no thread is left
    /// to write what they wait for.
    pub(in crate::engine) fn only_ticks_left(&self) -> bool {
        self.cpus.iter().enumerate().all(|(number, cpu)| match cpu.current {
            Some(thread) => {
                let waits = self.threads[thread].state.is_passive();
                waits && cpu.queue.is_empty() && self.next_break(number, thread) == NEVER
            }
            None => cpu.queue.is_empty() && cpu.interrupts.is_empty(),
        })
    }
}
