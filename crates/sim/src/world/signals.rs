//! Signals of the simulated machine: a handler, and blocking.
//!
//! The fault [`signal`](crate::Faults::signal) is the only source of signals. As on Linux, a signal
//! restarts the interrupted restartable operation, and runs the handler on the stack of the
//! interrupted thread. The thread's later signals are blocked until the handler returns.

use core::marker::PhantomData;
use core::num::NonZeroU32;

use coreline_world::Signals;

use crate::Sim;
use crate::engine;

/// Installs `handler` for all later signals, instead of an earlier handler. The handler runs on the
/// thread that gets the signal. Without a handler, signals only restart restartable operations.
///
/// The handler may call all functions that simulated code may call. A native handler must not
/// allocate, take a lock that its thread may hold, or panic. If this handler panics, its thread
/// panics.
///
/// ```
/// use std::sync::Arc;
/// use coreline_sim::{Faults, Machine, Sim, on_signal};
/// use coreline_world::{Integer, Ordering, Word, Words};
///
/// #[global_allocator]
/// static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
///
/// let faults = Faults { signal: 10, ..Faults::NONE };
/// let run = Machine::preset("host-2c")?.faults(faults).run(|| {
///     let signals = Arc::new(<Sim as Words>::U64::new_in(0));
///     let theirs = Arc::clone(&signals);
///     on_signal(move || {
///         theirs.fetch_add(1, Ordering::Relaxed);
///     });
///     let word = <Sim as Words>::U64::new_in(0);
///     (0..1000).for_each(|n| word.store(n, Ordering::Relaxed));
///     signals.load(Ordering::Relaxed)
/// })?;
/// assert!((50..200).contains(&run.value));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// Panics outside of a simulated machine.
pub fn on_signal(handler: impl Fn() + Send + Sync + 'static) {
    let handler = Box::new(handler);
    engine::issue();
    engine::on_signal(handler);
}

/// A guard that blocks the signals of a simulated thread until it drops.
#[derive(Debug)]
pub struct SimHeld {
    /// Belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Drop for SimHeld {
    fn drop(&mut self) {
        // The last hold ends with a system call.
        if engine::holds() == Some(1) {
            engine::enter_kernel();
        }
        engine::release_signals();
    }
}

/// Nothing forks in a simulated machine.
impl Signals for Sim {
    type Held = SimHeld;

    /// Costs two system calls, as natively: one now and one at the end. Inside of another hold, it
    /// costs none.
    fn hold() -> SimHeld {
        engine::issue();
        // The first hold begins with a system call.
        if engine::holds() == Some(0) {
            engine::enter_kernel();
        }
        engine::hold_signals();
        SimHeld { _thread: PhantomData }
    }

    fn generation() -> NonZeroU32 {
        NonZeroU32::MIN
    }

    fn thread_id() -> NonZeroU32 {
        // Outside of a machine there is one thread: words work there, too.
        let number = engine::with(|engine| engine.current()).unwrap_or(0);
        u32::try_from(number + 1).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
    }

    fn is_unwinding() -> bool {
        engine::with(engine::Engine::is_unwinding).unwrap_or_else(std::thread::panicking)
    }
}
