//! Slice extensions: a thread that asked may stay for a moment when its slice ends.
//!
//! | state of a thread | it asks | its slice ends | its section ends | a system call |
//! |---|---|---|---|---|
//! | `Off` | `Requested`, 2 system calls | preempted | `Off` | `Off` |
//! | `Idle` | `Requested` | preempted | `Idle`, lost | `Idle` |
//! | `Requested` | does not ask | `Granted`, [`LENGTH`] more | `Idle`, unused | `Requested` |
//! | `Granted` | does not ask | preempted | `Idle`, gives way | `Idle`, gives way |
//!
//! A slice that ends during a system call is not extended: a `Requested` thread is preempted, and
//! is `Requested` afterwards. A thread that is preempted elsewhere or moved is `Idle` afterwards,
//! unless it was `Off`. So is a thread on a CPU that another thread fences restartable operations
//! on, or kicks. Such a thread keeps its CPU: a `Granted` one to the end of the grant at least (in
//! Linux to the next tick). A thread that blocks keeps its request if it runs again on the same
//! CPU: the kernel writes to the area of the thread only after an interrupt of user code, or if an
//! ID changed. (Linux looks at the concurrency ID, too. This kernel looks at the CPU only.)
//!
//! A grant has a timer of its own, which ends the grant even if no thread waits any more.
//!
//! Source: `kernel/rseq.c` and `include/linux/rseq_entry.h` of Linux 7.3.

use coreline_world::Extended;

use crate::engine::kernel::points::issue;
use crate::engine::{Engine, PS_PER_NS, State, inside, suspend};
use crate::results::statistics::Activity;

/// How long an extension lasts: `rseq_slice_ext_nsecs` of Linux 7.3, which is also its minimum.
pub(in crate::engine) const LENGTH: u64 = 5_000 * PS_PER_NS;

/// What a thread has of extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Extension {
    /// It has not enabled them.
    Off,
    /// It asks for none.
    Idle,
    /// It asks for one.
    Requested,
    /// Its slice was extended.
    Granted,
}

/// Enables extensions in the running thread.
pub(crate) fn enable_extension() {
    issue();
    enter_kernel();
    inside(|engine| {
        engine.spend_in_call(2 * engine.spec.costs().syscall);
        let extension = engine.extension();
        if *extension == Extension::Off {
            *extension = Extension::Idle;
        }
    });
}

/// The running thread asks for an extension. Whether this section is the one that asked.
pub(crate) fn request_extension() -> bool {
    if inside(|engine| *engine.extension() == Extension::Off) {
        enable_extension();
    }
    issue();
    inside(|engine| {
        engine.spend_on_place();
        let extension = engine.extension();
        let asks = *extension == Extension::Idle;
        if asks {
            *extension = Extension::Requested;
        }
        asks
    })
}

/// The running thread ends its section.
pub(crate) fn end_extension() -> Extended {
    issue();
    let before = inside(|engine| {
        engine.spend_on_place();
        let extension = engine.extension();
        let before = *extension;
        if before == Extension::Requested {
            *extension = Extension::Idle;
        }
        before
    });
    match before {
        Extension::Off => Extended::Off,
        Extension::Idle => Extended::Lost,
        Extension::Requested => Extended::Unused,
        Extension::Granted => {
            inside(|engine| engine.spend(engine.spec.costs().syscall));
            enter_kernel();
            Extended::Yielded
        }
    }
}

/// A system call begins. If the slice of the thread was extended, the call ends the extension, and
/// the thread first gives its CPU to the threads that wait for it.
pub(crate) fn enter_kernel() {
    let gives_way = inside(|engine| {
        if *engine.extension() != Extension::Granted {
            return false;
        }
        *engine.extension() = Extension::Idle;
        let gives_way = !engine.here().queue.is_empty();
        if gives_way {
            engine.settle_here();
            engine.requeue();
        } else {
            // The call stops the timer.
            let cpu = engine.cpu().index();
            engine.update_kernel_event(cpu);
        }
        gives_way
    });
    if gives_way {
        suspend();
        issue();
    }
}

impl Engine {
    fn extension(&mut self) -> &mut Extension {
        let current = self.current();
        &mut self.threads[current].extension
    }

    /// Lets `ps` picoseconds of a system call pass on the running CPU.
    pub(crate) fn spend_in_call(&mut self, ps: u64) {
        self.settle_here();
        let began = self.here().now;
        self.spend(ps);
        let place = self.here();
        if began < place.slice_end {
            place.call_end = place.now;
        }
    }

    /// The slice of a CPU's thread has ended, or its extension. The thread may stay for a moment.
    pub(in crate::engine) fn end_slice(&mut self, cpu: usize, thread: usize) {
        let before = self.threads[thread].extension;
        if !matches!(before, Extension::Requested | Extension::Granted) {
            return self.preempt();
        }
        if before == Extension::Requested && self.cpus[cpu].slice_end <= self.cpus[cpu].call_end {
            return self.give_turn();
        }
        // The interrupt by which the slice ends, or the timer of the extension.
        let costs = *self.spec.costs();
        let lost = costs.irq_entry + costs.irq_exit;
        self.cpus[cpu].now += lost;
        self.account(cpu, Activity::Kernel, lost);
        if let State::Working { until } = &mut self.threads[thread].state {
            *until = until.saturating_add(lost);
        }
        let now = self.cpus[cpu].now;
        if before == Extension::Requested {
            self.threads[thread].extension = Extension::Granted;
            self.cpus[cpu].slice_end = now + LENGTH;
        } else {
            self.lose_extension(thread);
            let first =
                self.cpus[cpu].queue.front().map(|&first| self.threads[first].ready_since());
            match first {
                Some(since) if since <= now => return self.preempt(),
                // A thread that is still on its way here.
                Some(since) => self.cpus[cpu].slice_end = since + costs.slice,
                None => {}
            }
        }
        self.update_kernel_event(cpu);
    }

    /// The threads on other CPUs lose their requests and grants, and keep their CPUs.
    pub(in crate::engine) fn lose_other_extensions(&mut self) {
        let own = self.cpu().index();
        for cpu in (0..self.cpus.len()).filter(|&cpu| cpu != own) {
            if let Some(thread) = self.cpus[cpu].current {
                self.lose_extension(thread);
                self.update_kernel_event(cpu);
                self.rekey(cpu);
            }
        }
    }

    /// A thread is preempted, moved or kicked: it loses its request, or its grant.
    pub(in crate::engine) fn lose_extension(&mut self, thread: usize) {
        let extension = &mut self.threads[thread].extension;
        if *extension != Extension::Off {
            *extension = Extension::Idle;
        }
    }
}
