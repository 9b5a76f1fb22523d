//! Interrupts between CPUs, sections with masked interrupts, and monitored waits.
//!
//! A kernel uses [`send`] to run a function on another CPU. The function runs as soon as that CPU
//! can be interrupted. It runs on the stack of the CPU's thread or, if the CPU is idle, of its idle
//! context.
//!
//! | the CPU | runs the function |
//! |---|---|
//! | executes simulated code | before the next access |
//! | computes, spins or waits on a monitored line | at the time of arrival |
//! | has [masked](mask) interrupts | at the end of the section |
//! | is idle | at the time of arrival, plus the time to leave a monitored wait |
//!
//! The time from sending to arrival is the cost `ipi`. Then `irq_entry`, the function and
//! `irq_exit` follow. Interrupts are masked while the function runs, so it is not preempted.
//!
//! Only a kernel runs functions on other CPUs. An algorithm may use [`Kick`](coreline_world::Kick),
//! which the simulator implements by such an interrupt.
//!
//! **Restartable operations**: as on Linux, a plain interrupt does not restart these operations.
//! The kernel checks for them only if the thread was preempted, moved or given a signal
//! (`Documentation/userspace-api/rseq.rst`). A function that an interrupt runs belongs to the
//! kernel. So it must not access slots on which the interrupted thread may be working.
//!
//! ```
//! use coreline_sim::{Machine, Sim, interrupts};
//! use coreline_topology::CpuId;
//! use coreline_world::{Ordering, Word, Words};
//! use std::sync::Arc;
//!
//! #[global_allocator]
//! static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
//!
//! Machine::preset("host-2c")?.run(|| {
//!     let done = Arc::new(<Sim as Words>::U32::new_in(0));
//!     let theirs = Arc::clone(&done);
//!     interrupts::send(CpuId::new(1), move || theirs.store(1, Ordering::Release)).unwrap();
//!     done.wait_until(Ordering::Acquire, |value| value == 1);
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::marker::PhantomData;
use core::ptr;

use coreline_topology::CpuId;
use coreline_world::{Ordering, Word};

use crate::engine::{self, races};

/// The reason why no interrupt was sent. The function was dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot interrupt {cpu}: {why}; choose one of CPUs {online}")]
pub struct SendError {
    /// The requested CPU.
    pub cpu: CpuId,
    /// The reason why the CPU cannot be interrupted.
    pub why: String,
    /// The CPUs that can be interrupted, as a CPU list.
    pub online: String,
}

/// Runs `f` on `cpu` as soon as that CPU can be interrupted. Interrupts that arrive at one CPU at
/// the same time run in the order in which they were sent.
///
/// The machine does not end before `f` has run.
///
/// # Errors
///
/// [`SendError`] if the machine has no such CPU, or it is out of service.
///
/// # Panics
///
/// Panics outside of a simulated machine.
pub fn send(cpu: CpuId, f: impl FnOnce() + Send + 'static) -> Result<(), SendError> {
    engine::issue();
    let handler: engine::Handler = match races::sent() {
        Some(sent) => Box::new(move || {
            sent.arrived();
            f();
        }),
        None => Box::new(f),
    };
    engine::inside(|engine| {
        if let Some(why) = engine.out_of_service(cpu) {
            return Err(SendError { cpu, why, online: engine.online().to_string() });
        }
        engine.interrupt(cpu, handler);
        Ok(())
    })
}

/// A guard that masks the interrupts of the calling thread's CPU until it drops.
#[derive(Debug)]
#[must_use = "interrupts are masked while it lives"]
pub struct Masked {
    /// Belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Drop for Masked {
    fn drop(&mut self) {
        engine::unmask();
    }
}

/// Masks interrupts. Until the guard drops, the thread is neither interrupted nor preempted. Masks
/// may be nested.
///
/// The mask belongs to the thread. A kernel must not block with interrupts masked. If the thread
/// blocks anyway, the other threads of its CPU run with interrupts on.
///
/// # Panics
///
/// Panics outside of a simulated machine.
pub fn mask() -> Masked {
    engine::mask();
    Masked { _thread: PhantomData }
}

/// The reason for which a [`monitor_wait`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Monitored {
    /// The word's value differs from the expected value.
    Changed,
    /// The word has not changed. There was an interrupt, or another word of its line was written.
    Disturbed,
}

/// Waits like `monitor` and `mwait`. The CPU rests until another CPU writes the line of `word`, or
/// until an interrupt arrives. The call does not wait if the value of `word` differs from
/// `expected`.
///
/// The thread keeps its CPU. An interrupt ends the wait even while interrupts are masked. Its
/// function runs when interrupts are unmasked. Leaving the wait costs `mwait_exit`.
///
/// # Panics
///
/// Panics outside of a simulated machine.
pub fn monitor_wait<T: Word>(word: &T, expected: T::Value) -> Monitored {
    // Acquire, both: the value is all that this says about the line, so it stands for what its
    // writer did before.
    if word.load(Ordering::Acquire) == expected {
        engine::monitor(ptr::from_ref(word).addr());
        if word.load(Ordering::Acquire) == expected {
            return Monitored::Disturbed;
        }
    }
    Monitored::Changed
}
