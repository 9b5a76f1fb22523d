//! [`Quarantine`]: where objects are that came back in a state in which they cannot live again.

use core::ptr::{self, NonNull};

use coreline_world::{Integer, Ordering, Word, World};

use super::builder::AnyError;

/// A list that threads push to, and one takes whole. So no object is ever met twice.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | `first` | the list | exchanges |
/// | `count` | how many objects are in it, or were taken out and are not destroyed | additions |
pub(super) struct Quarantine<B: 'static, W: World> {
    first: W::Ptr<Aside<B>>,
    count: W::U64,
}

/// An object that was put aside, and why.
pub(super) struct Aside<B> {
    pub(super) body: NonNull<B>,
    pub(super) why: AnyError,
    next: *mut Aside<B>,
}

impl<B: 'static, W: World> Quarantine<B, W> {
    pub(super) fn new_in() -> Self {
        Quarantine { first: W::Ptr::new_in(ptr::null_mut()), count: W::U64::new_in(0) }
    }

    /// Puts an object aside.
    pub(super) fn push(&self, body: NonNull<B>, why: AnyError) {
        // Relaxed: a count.
        self.count.fetch_add(1, Ordering::Relaxed);
        let entry = Box::into_raw(Box::new(Aside { body, why, next: ptr::null_mut() }));
        // Relaxed: the exchange tells whether it still holds.
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            // SAFETY: the entry is this thread's until the exchange.
            unsafe { (*entry).next = first };
            // Release: pairs with the Acquire in `drain`: the entry is written.
            let (done, failed) = (Ordering::Release, Ordering::Relaxed);
            match self.first.compare_exchange_weak(first, entry, done, failed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// One that was taken out is destroyed.
    pub(super) fn forget(&self) {
        // Relaxed: a count.
        self.count.fetch_add(1_u64.wrapping_neg(), Ordering::Relaxed);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        // Relaxed: a count.
        self.count.load(Ordering::Relaxed) as usize
    }

    /// Takes all.
    pub(super) fn drain(&self) -> impl Iterator<Item = Aside<B>> {
        // Acquire: pairs with the Release in `push`.
        let mut next = self.first.swap(ptr::null_mut(), Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: from `Box::into_raw`, and of one list that the swap took whole.
            let entry = (!next.is_null()).then(|| *unsafe { Box::from_raw(next) })?;
            next = entry.next;
            Some(entry)
        })
    }
}
