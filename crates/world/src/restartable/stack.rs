//! [`ArrayStack`]: a bounded stack of pointers, one for each CPU. The magazine of an object cache.

use core::array;
use core::fmt;
use core::ptr;

use super::Slot;
use crate::{Ordering, Word, Words};

/// A stack of at most `N` pointers that lie side by side.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | `len` | how many entries count: never more than `N` | a commit of push or pop |
/// | `entries[i]`, `i < len` | a pointer that was pushed | nothing |
/// | `entries[i]`, `i >= len` | anything | a push, before its commit |
#[repr(C)]
pub struct ArrayStack<T: 'static, const N: usize, W: Words> {
    pub(crate) len: W::U64,
    pub(crate) entries: [W::Ptr<T>; N],
}

// SAFETY: the stack holds pointers, and gives them to threads that pop; what becomes of the objects
// is up to those that push and pop.
unsafe impl<T, const N: usize, W: Words> Send for ArrayStack<T, N, W> {}
// SAFETY: all fields are words, and the pointers in them are handed on as they are.
unsafe impl<T, const N: usize, W: Words> Sync for ArrayStack<T, N, W> {}
// SAFETY: a struct.
unsafe impl<T, const N: usize, W: Words> Slot for ArrayStack<T, N, W> {}

impl<T, const N: usize, W: Words> ArrayStack<T, N, W> {
    /// How many pointers there is room for.
    pub const CAPACITY: usize = N;

    /// The empty stack.
    pub fn new_in() -> Self {
        ArrayStack {
            len: W::U64::new_in(0),
            entries: array::from_fn(|_| W::Ptr::new_in(ptr::null_mut())),
        }
    }

    /// How many pointers are on the stack, now: it may change at any time.
    pub fn len(&self) -> usize {
        // Relaxed: a hint, behind which nothing is read.
        self.len.load(Ordering::Relaxed) as usize
    }

    /// Whether there is no pointer, now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T, const N: usize, W: Words> Default for ArrayStack<T, N, W> {
    fn default() -> Self {
        Self::new_in()
    }
}

impl<T, const N: usize, W: Words> fmt::Debug for ArrayStack<T, N, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayStack")
            .field("len", &self.len())
            .field("capacity", &N)
            .finish_non_exhaustive()
    }
}
