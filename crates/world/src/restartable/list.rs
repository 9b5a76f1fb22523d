//! [`List`]: an intrusive stack of nodes, one list for each CPU.

use core::fmt;
use core::ptr;

use super::Slot;
use crate::{Ordering, Word, Words};

/// A last-in-first-out list of nodes, which lie in their owners' memory.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | `first` | the node pushed last; null if the list is empty | a commit of push or pop |
#[repr(transparent)]
pub struct List<W: Words> {
    pub(crate) first: W::Ptr<ListNode<W>>,
}

/// The link of a list, which makes the type that contains it a node. The link is usually the first
/// field of its type, so that a pointer to the link is also a pointer to the type.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | `next` | the node below; null if there is none | a push, before its commit |
#[repr(transparent)]
pub struct ListNode<W: Words> {
    pub(crate) next: W::Ptr<ListNode<W>>,
}

// SAFETY: a struct.
unsafe impl<W: Words> Slot for List<W> {}

impl<W: Words> List<W> {
    /// Creates an empty list.
    pub fn new_in() -> Self {
        List { first: W::Ptr::new_in(ptr::null_mut()) }
    }

    /// Returns whether the list has no node. This may change at any time.
    pub fn is_empty(&self) -> bool {
        // Relaxed: a hint, behind which nothing is read.
        self.first.load(Ordering::Relaxed).is_null()
    }
}

impl<W: Words> ListNode<W> {
    /// Creates a node that is in no list. The function exists in every world.
    pub fn new_in() -> Self {
        ListNode { next: W::Ptr::new_in(ptr::null_mut()) }
    }
}

impl<W: Words> Default for List<W> {
    fn default() -> Self {
        Self::new_in()
    }
}

impl<W: Words> Default for ListNode<W> {
    fn default() -> Self {
        Self::new_in()
    }
}

impl<W: Words> fmt::Debug for List<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}

impl<W: Words> fmt::Debug for ListNode<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListNode").finish_non_exhaustive()
    }
}
