//! [`Buffer`]: bytes that are only appended, one buffer for each CPU. A tracer writes to such a
//! buffer.

use core::fmt;
use core::slice;

use super::Slot;
use crate::{Cell, Ordering, Word, Words};

/// The error if the buffer has no room. The operation had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this CPU's slot is full; drain it, or make it larger")]
pub struct Full;

/// A buffer of at most `N` bytes, written one after another.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | `len` | the number of bytes that count, never more than `N` | a commit of append |
/// | `bytes[i]`, `i < len` | an appended byte | nothing |
/// | `bytes[i]`, `i >= len` | anything | an append, before its commit |
#[repr(C)]
pub struct Buffer<const N: usize, W: Words> {
    pub(crate) len: W::U64,
    pub(crate) bytes: Cell<[u8; N], W>,
}

// SAFETY: a struct.
unsafe impl<const N: usize, W: Words> Slot for Buffer<N, W> {}

impl<const N: usize, W: Words> Buffer<N, W> {
    /// Creates an empty buffer.
    pub fn new_in() -> Self {
        Buffer { len: W::U64::new_in(0), bytes: Cell::new_in([0; N]) }
    }

    /// Returns the number of appended bytes. It may grow at any time.
    pub fn len(&self) -> usize {
        // Acquire pairs with the commit of an append: the bytes below are there.
        self.len.load(Ordering::Acquire) as usize
    }

    /// Returns whether no byte has been appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` with the appended bytes, and empties the buffer.
    ///
    /// # Safety
    ///
    /// No thread appends at the same time.
    pub unsafe fn drain<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        let len = self.len();
        // SAFETY: an append wrote the `len` bytes, and the caller keeps others away.
        let result =
            self.bytes.with(|bytes| f(unsafe { slice::from_raw_parts(bytes.cast(), len) }));
        // Release, as every commit: it pairs with the acquire in `len`.
        self.len.store(0, Ordering::Release);
        result
    }
}

impl<const N: usize, W: Words> Default for Buffer<N, W> {
    fn default() -> Self {
        Self::new_in()
    }
}

impl<const N: usize, W: Words> fmt::Debug for Buffer<N, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .field("capacity", &N)
            .finish_non_exhaustive()
    }
}
