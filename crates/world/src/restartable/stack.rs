//! [`ResizableStack`]: a bounded stack of pointers, one for each CPU. It is the magazine of an
//! object cache.
//!
//! # The last entry
//!
//! The last counted entry may be empty. So a push that follows a pop, or a pop that follows a push,
//! writes only to that entry. It does not change the length. If both wrote the length, a thread
//! that repeatedly takes a pointer and puts it back would take 1.5 times as long (measured on a Zen
//! 4).
//!
//! If the last entry is full, a push first adds an empty entry. If the last entry is empty, a pop
//! first removes that entry. Neither step changes the content of the stack for any thread, so an
//! abort after such a step is harmless. A separate entry in front of the stack would also make such
//! a pair cheap. But then no batch operation could empty the stack and that entry with one store,
//! and the pointer that was pushed last would not come first.
//!
//! # A capacity that can be changed
//!
//! The capacity is a word next to the length, at most `N`, which a push reads inside its section.
//! The caller does not pass the capacity to the push, for three reasons:
//!
//! * After [`StackResize`] has committed, no push of that CPU uses the old capacity, because a
//!   section that has read the old value starts over. A caller that reads the capacity before the
//!   section could be preempted with the old value for any time.
//! * Each CPU has its own capacity, so a CPU that often misses can have a larger capacity than an
//!   idle CPU. A change is one store to the CPU's own slot, without a fence.
//! * The word keeps the invariant that it is at most `N`. A push would have to check each number
//!   that a caller passes.
//!
//! The capacity word costs a load from the line of the length. A stack may hold more pointers than
//! its new capacity. In this case it loses none, and rejects pushes until enough pointers were
//! popped.
//!
//! [`StackResize`]: super::definition::StackResize

use core::array;
use core::fmt;
use core::ptr;

use super::Slot;
use crate::{Ordering, Word, Words};

/// The error if the stack has no room. The operation had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this CPU's slot is full; drain it, or make it larger")]
pub struct Full;

/// A stack of at most `N` pointers, stored side by side. Its capacity is a run-time value: see the
/// [module](self).
///
/// | word | meaning | written by |
/// |---|---|---|
/// | `capacity` | the capacity, never more than `N` | a commit of resize |
/// | `len` | the number of entries that count, never more than `N` | push and pop |
/// | `entries[i]`, `i + 1 < len` | a pointer that was pushed | nothing |
/// | `entries[i]`, `i + 1 == len` | a pushed pointer, or null if empty | a commit of push or pop |
/// | `entries[i]`, `i >= len` | anything | a push, before its commit |
#[repr(C)]
pub struct ResizableStack<T: 'static, const N: usize, W: Words> {
    /// Right before the length, as sections know.
    pub(crate) capacity: W::U64,
    pub(crate) len: W::U64,
    pub(crate) entries: [W::Ptr<T>; N],
}

// SAFETY: the stack holds pointers, and gives them to threads that pop; what becomes of the objects
// is up to those that push and pop.
unsafe impl<T, const N: usize, W: Words> Send for ResizableStack<T, N, W> {}
// SAFETY: all fields are words, and the pointers in them are handed on as they are.
unsafe impl<T, const N: usize, W: Words> Sync for ResizableStack<T, N, W> {}
// SAFETY: a struct.
unsafe impl<T, const N: usize, W: Words> Slot for ResizableStack<T, N, W> {}

impl<T, const N: usize, W: Words> ResizableStack<T, N, W> {
    /// Creates an empty stack with room for `capacity` pointers, or for `N` pointers if `N` is
    /// less.
    pub fn with_capacity_in(capacity: usize) -> Self {
        ResizableStack {
            capacity: W::U64::new_in(capacity.min(N) as u64),
            len: W::U64::new_in(0),
            entries: array::from_fn(|_| W::Ptr::new_in(ptr::null_mut())),
        }
    }

    /// Returns the number of pointers for which the stack has room now.
    pub fn capacity(&self) -> usize {
        // Relaxed: a hint, behind which nothing is read.
        self.capacity.load(Ordering::Relaxed) as usize
    }

    /// Returns the number of pointers on the stack. It may change at any time.
    pub fn len(&self) -> usize {
        // Relaxed: a hint, behind which nothing is read.
        let len = self.len.load(Ordering::Relaxed) as usize;
        // Relaxed: as the length.
        let empty = |last: &W::Ptr<T>| last.load(Ordering::Relaxed).is_null();
        len - usize::from(self.entries[..len].last().is_some_and(empty))
    }

    /// Takes all pointers. The last item is the pointer that was pushed last. The exclusive
    /// reference ensures that no other thread uses the stack, so the call needs no section.
    pub fn drain(&mut self) -> impl Iterator<Item = ptr::NonNull<T>> {
        let len = self.len.with_mut(core::mem::take) as usize;
        // What is below the length was pushed; the last may be empty.
        self.entries[..len]
            .iter_mut()
            .filter_map(|entry| entry.with_mut(|at| ptr::NonNull::new(*at)))
    }

    /// Returns whether the stack has no pointer. This may change at any time.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T, const N: usize, W: Words> fmt::Debug for ResizableStack<T, N, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResizableStack")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
