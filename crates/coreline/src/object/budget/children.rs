//! [`Children`]: the budgets below one.

use core::ptr::{self, NonNull};
use std::sync::{Arc, Weak};

use coreline_world::{Ordering, Word, World};

use super::Shared;
use crate::percpu::SlotLock;

/// The budgets below one. A list of single words, so that a forked child has each of them or not.
pub(super) struct Children<W: World> {
    lock: SlotLock<W>,
    /// The one made last; null: there is none.
    first: W::Ptr<Child<W>>,
    /// How many may be listed before those that are gone are taken out.
    room: W::Usize,
}

struct Child<W: World> {
    budget: Weak<Shared<W>>,
    next: W::Ptr<Child<W>>,
}

impl<W: World> Children<W> {
    pub(super) fn new_in() -> Self {
        let first = W::Ptr::new_in(ptr::null_mut());
        Children { lock: SlotLock::new_in(), first, room: W::Usize::new_in(8) }
    }

    pub(super) fn add(&self, budget: Weak<Shared<W>>) {
        let _guard = self.lock.lock();
        // Relaxed, all: the lock orders them.
        let relaxed = Ordering::Relaxed;
        let room = self.room.load(relaxed);
        if room == 0 {
            let left = self.take_out_those_gone();
            self.room.store(left.max(8), relaxed);
        } else {
            self.room.store(room - 1, relaxed);
        }
        let next = W::Ptr::new_in(self.first.load(relaxed));
        let child = Box::leak(Box::new(Child { budget, next }));
        // Release: a forked child has it whole, or not.
        self.first.store(child, Ordering::Release);
    }

    /// The caller must hold the lock. Returns how many children are left.
    fn take_out_those_gone(&self) -> usize {
        // Relaxed, all: the lock orders them.
        let relaxed = Ordering::Relaxed;
        let (mut at, mut left) = (&self.first, 0);
        while let Some(child) = NonNull::new(at.load(relaxed)) {
            // SAFETY: leaked by `add`, and freed only here and in `drop`, out of the list.
            let listed = unsafe { child.as_ref() };
            if listed.budget.strong_count() > 0 {
                (at, left) = (&listed.next, left + 1);
                continue;
            }
            at.store(listed.next.load(relaxed), relaxed);
            // SAFETY: leaked by `add`; out of the list, and the lock keeps other threads out.
            drop(unsafe { Box::from_raw(child.as_ptr()) });
        }
        left
    }

    /// Those that are there.
    pub(super) fn all(&self) -> Vec<Arc<Shared<W>>> {
        let _guard = self.lock.lock();
        let mut all = Vec::new();
        // Relaxed: the lock orders it.
        let mut next = self.first.load(Ordering::Relaxed);
        // SAFETY: leaked by `add`, and in the list: the lock keeps those out that free it.
        while let Some(child) = unsafe { next.as_ref() } {
            all.extend(child.budget.upgrade());
            // Relaxed: the lock orders it.
            next = child.next.load(Ordering::Relaxed);
        }
        all
    }
}

impl<W: World> Drop for Children<W> {
    fn drop(&mut self) {
        let mut next = self.first.with_mut(|first| *first);
        while !next.is_null() {
            // SAFETY: leaked by `add`, in the list, and no other thread has that.
            let mut child = unsafe { Box::from_raw(next) };
            next = child.next.with_mut(|next| *next);
        }
    }
}
