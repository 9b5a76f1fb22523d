//! The stacks of simulated threads, and what happens at their end.
//!
//! Every access to memory checks that [`MARGIN`] bytes of stack are left, more than the engine
//! needs. So the engine never hits the guard page. Code without simulated accesses may hit it. The
//! host reports that fault to [`rescue`]. In both cases, the thread is abandoned where it stands,
//! like all other threads of a failed machine. So is a thread that follows a wild pointer.

use std::cell::Cell;

use coreline_world::native::overflow::{self, Rescue};

use super::{ENGINE, Engine, inside, stop};
use crate::hardware::arena::Arena;
use crate::hardware::stack::{NoStack, Stack};
use crate::results::failure::FailureKind;
use crate::results::memory::Misuse;

/// Bytes that a simulated thread may use: virtual memory, touched pages only.
pub(crate) const USABLE: usize = 256 << 10;

/// Bytes kept for the engine, which runs on the stacks of the threads that call it.
const MARGIN: usize = 32 << 10;

/// The size in bytes of the stack on which a thread that has no stack left gives up.
const EMERGENCY: usize = 32 << 10;

/// A stack for a thread of the machine that has this memory.
pub(super) fn new(arena: &Arena) -> Result<Stack, NoStack> {
    Stack::new(arena, USABLE + MARGIN)
}

/// Has the host report faults of this host thread to [`rescue`]. If the host refuses, the guard
/// page ends the process.
pub(super) fn prepare() -> Vec<u8> {
    overflow::catch(rescue);
    Vec::with_capacity(EMERGENCY)
}

/// The running thread has no stack left, and never continues.
pub(super) extern "C" fn give_up() -> ! {
    inside(|engine| {
        let (thread, cpu) = (engine.current(), engine.cpu());
        engine.fail(FailureKind::StackOverflow { thread, cpu });
    });
    stop()
}

thread_local! {
    /// The address at which the running thread faulted.
    static FAULT: Cell<usize> = const { Cell::new(0) };
}

/// The running thread accessed an address without memory, and never continues.
extern "C" fn give_up_at_fault() -> ! {
    inside(|engine| {
        let misuse = Misuse::Fault { address: FAULT.get() };
        engine.fail_without_trace(misuse);
    });
    stop()
}

/// The address at which to continue after a fault at `address` in simulated code: the guard page of
/// the running thread, or an address at which there is no memory.
fn rescue(address: usize) -> Option<Rescue> {
    let engine = ENGINE.get();
    if engine.is_null() {
        return None;
    }
    // SAFETY: valid while it is installed. No reference to the engine is live: `ENGINE` is null
    // while one is, and the code that faulted never goes on.
    let engine = unsafe { &*engine };
    let thread = engine.cpus[engine.running?].current?;
    let below = engine.stacks.range(..=address).next_back();
    let (limit, base, number) = below
        .map_or((0, USABLE + MARGIN, thread), |(&limit, &(base, number))| (limit, base, number));
    let guard = limit..base - USABLE - MARGIN;
    let top = engine.emergency.as_ptr().addr() + EMERGENCY;
    let is_overflow = number == thread && guard.contains(&address);
    FAULT.set(address);
    let go_on = if is_overflow { give_up } else { give_up_at_fault };
    Some(Rescue { stack: top & !63, go_on })
}

impl Engine {
    /// Whether the calling thread has come to the end of its stack.
    #[inline]
    pub(super) fn is_out_of_stack(&self) -> bool {
        let here = 0_u8;
        (&raw const here).addr() < self.floor
    }
}
