//! [`Late`]: a value that is made once, while other threads look for it.

use std::marker::PhantomData;
use std::ptr;

use coreline::world::{Ordering, Word, World};

/// A value that is made later, once.
///
/// | the pointer | meaning | next |
/// |---|---|---|
/// | null | there is none yet | a box, by `set` |
/// | not null | a box of this value, which lives as long as `self` | none |
pub(crate) struct Late<T: 'static, W: World>(W::Ptr<T>, PhantomData<Box<T>>);

impl<T: Send + Sync + 'static, W: World> Late<T, W> {
    pub(crate) fn new() -> Self {
        Late(W::Ptr::new_in(ptr::null_mut()), PhantomData)
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // Acquire pairs with the release in `set`: the value is whole.
        // SAFETY: null, or from a box that nothing frees before `drop`, and that is only shared.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the value, unless another thread was first: then this one is dropped.
    #[cold]
    pub(crate) fn set(&self, value: T) {
        let new = Box::into_raw(Box::new(value));
        // Release pairs with the acquire in `get`. Relaxed on failure: the other is not read here.
        let (done, failed) = (Ordering::Release, Ordering::Relaxed);
        if self.0.compare_exchange(ptr::null_mut(), new, done, failed).is_err() {
            // SAFETY: from the box above, and no other thread had it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

impl<T: 'static, W: World> Drop for Late<T, W> {
    fn drop(&mut self) {
        // Relaxed: the reference is unique, and what made it so ordered all other calls before.
        let value = self.0.load(Ordering::Relaxed);
        if !value.is_null() {
            // SAFETY: from a box, and no reference to its value is left.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}
