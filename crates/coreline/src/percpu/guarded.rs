//! [`Guarded`]: a field for operations that are longer than one atomic instruction, with a lock for
//! operations that run without a section.

use core::fmt;
use core::ops::Deref;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use coreline_world::restartable::{self, Slot};
use coreline_world::{Native, World};

use super::lock::SlotLock;

/// A stack in each slot, with a lock. Operations run under the lock if no section can run.
#[repr(C)]
pub struct Guarded<F, W: World> {
    /// First: sections are given its address, and know nothing of the lock.
    pub(super) inner: F,
    pub(super) lock: SlotLock<W>,
}

/// A stack in each slot, with a separate, adjustable capacity of at most `N`:
/// [`restartable::ResizableStack`].
///
/// ```
/// use core::ptr::NonNull;
/// use coreline::percpu::{PerCpu, ResizableStack};
///
/// static SPARES: [u64; 3] = [1, 2, 3];
///
/// // Up to 64 pointers in each slot; 1 to begin with.
/// let stacks = PerCpu::<ResizableStack<u64, 64>>::new(|| ResizableStack::with_capacity(1))?;
/// let stack = stacks.field(|stack| stack);
/// for spare in &SPARES {
///     // More than once only if the thread is moved in between.
///     while stack.push(NonNull::from(spare)).is_err() {
///         stack.resize(64);
///     }
/// }
/// assert!(stack.pop().is_some());
/// # Ok::<(), coreline::percpu::PoolError>(())
/// ```
pub type ResizableStack<T, const N: usize, W = Native> =
    Guarded<restartable::ResizableStack<T, N, W>, W>;

// SAFETY: a struct of what may be in a slot, and a word.
unsafe impl<F: Slot, W: World> Slot for Guarded<F, W> {}

// No operation runs code that can panic half-way.
impl<F, W: World> UnwindSafe for Guarded<F, W> {}
impl<F, W: World> RefUnwindSafe for Guarded<F, W> {}

impl<T: 'static, const N: usize> ResizableStack<T, N> {
    /// Creates an empty stack with room for `capacity` pointers, at most `N`.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_in(capacity)
    }
}

impl<T: 'static, const N: usize, W: World> ResizableStack<T, N, W> {
    /// Creates an empty stack, like [`with_capacity`](ResizableStack::with_capacity), in world `W`.
    pub fn with_capacity_in(capacity: usize) -> Self {
        let inner = restartable::ResizableStack::with_capacity_in(capacity);
        Guarded { inner, lock: SlotLock::new_in() }
    }

    /// Removes all pointers, and returns them in the order in which they were pushed.
    pub fn drain(&mut self) -> impl Iterator<Item = NonNull<T>> {
        self.inner.drain()
    }
}

impl<F, W: World> Deref for Guarded<F, W> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.inner
    }
}

impl<F: fmt::Debug, W: World> fmt::Debug for Guarded<F, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
