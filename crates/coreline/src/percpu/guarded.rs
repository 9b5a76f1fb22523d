//! [`Guarded`]: what operations work on that are longer than one atomic instruction, with the lock
//! for where they run without a section.

use core::fmt;
use core::ops::Deref;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use coreline_world::restartable::{self, Slot};
use coreline_world::{Native, World};

use super::lock::SlotLock;

/// A list, a stack or a buffer in each slot, and the lock under which operations run by their
/// definition where no section can.
#[repr(C)]
pub struct Guarded<F, W: World> {
    /// First: sections are given its address, and know nothing of the lock.
    pub(super) inner: F,
    pub(super) lock: SlotLock<W>,
}

/// A list in each slot: [`restartable::List`].
pub type List<W = Native> = Guarded<restartable::List<W>, W>;
/// A bounded stack of pointers in each slot: [`restartable::ArrayStack`].
pub type ArrayStack<T, const N: usize, W = Native> = Guarded<restartable::ArrayStack<T, N, W>, W>;
/// A stack in each slot, each with a capacity of its own that can be changed, at most `N`:
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
/// Bytes in each slot that are only added to: [`restartable::Buffer`].
pub type Buffer<const N: usize, W = Native> = Guarded<restartable::Buffer<N, W>, W>;

// SAFETY: a struct of what may be in a slot, and a word.
unsafe impl<F: Slot, W: World> Slot for Guarded<F, W> {}

// No operation runs code that can panic half-way.
impl<F, W: World> UnwindSafe for Guarded<F, W> {}
impl<F, W: World> RefUnwindSafe for Guarded<F, W> {}

impl<F: Default> Guarded<F, Native> {
    /// An empty one.
    pub fn new() -> Self {
        Self::new_in()
    }
}

impl<F: Default, W: World> Guarded<F, W> {
    /// As [`new`](Guarded::new), in every world.
    pub fn new_in() -> Self {
        Guarded { inner: F::default(), lock: SlotLock::new_in() }
    }
}

impl<F: Default, W: World> Default for Guarded<F, W> {
    fn default() -> Self {
        Guarded::new_in()
    }
}

impl<T: 'static, const N: usize> ResizableStack<T, N> {
    /// An empty one, which takes `capacity` pointers, or `N` if that is less.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_in(capacity)
    }
}

impl<T: 'static, const N: usize, W: World> ResizableStack<T, N, W> {
    /// As [`with_capacity`](ResizableStack::with_capacity), in world `W`.
    pub fn with_capacity_in(capacity: usize) -> Self {
        let inner = restartable::ResizableStack::with_capacity_in(capacity);
        Guarded { inner, lock: SlotLock::new_in() }
    }
}

impl<T: 'static, const N: usize, const WORDS: usize, W: World>
    Guarded<restartable::ArrayStack<T, N, W, WORDS>, W>
{
    /// Takes all, the last that was pushed last.
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
