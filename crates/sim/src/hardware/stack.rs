//! The stacks of a machine's threads. They lie in the machine's place, so that a program sees the
//! same addresses of what is on them in every process.

use core::num::NonZeroUsize;
use core::ptr::NonNull;

use coreline_world::native::fixed::{self, FixedError};
use corosensei::stack::{self, StackPointer};

use crate::hardware::arena::{Arena, Hold, MOST_STACKS, Slot};

/// A stack with a guard page, in the lowest room that was free.
pub(crate) struct Stack {
    limit: NonNull<u8>,
    size: usize,
    slot: Slot,
    /// Keeps the place of a stack that leaks.
    _hold: Hold,
}

/// Why there is no stack.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoStack {
    /// The host refuses.
    #[error(transparent)]
    Fixed(#[from] FixedError),
    /// All room is in use.
    #[error(
        "all {MOST_STACKS} thread stacks of the machine are in use; run fewer threads at a time"
    )]
    Room,
}

impl Stack {
    /// A stack of at least `size` bytes.
    pub(crate) fn new(arena: &Arena, size: usize) -> Result<Stack, NoStack> {
        let guard = fixed::page();
        let size = (size + guard).next_multiple_of(guard);
        loop {
            let slot = arena.slot(size).ok_or(NoStack::Room)?;
            let at = NonZeroUsize::new(slot.address()).ok_or(NoStack::Room)?;
            match fixed::map(at, size, guard) {
                Ok(limit) => return Ok(Stack { limit, size, slot, _hold: arena.hold() }),
                // Not the machine's to use: it stays marked.
                Err(FixedError::Taken { .. }) => {}
                Err(error) => {
                    slot.give_back();
                    return Err(error.into());
                }
            }
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size; the coroutine that ran on it has ended, or never
        // began.
        unsafe { fixed::unmap(self.limit, self.size) };
        self.slot.give_back();
    }
}

// SAFETY: `new` maps `size` bytes from `limit` on, the first page of them as a guard; both bounds
// are multiples of a page.
unsafe impl stack::Stack for Stack {
    fn base(&self) -> StackPointer {
        self.limit.addr().saturating_add(self.size)
    }

    fn limit(&self) -> StackPointer {
        self.limit.addr()
    }
}
