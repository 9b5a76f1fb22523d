//! [`Vacant`]: the memory in which a constructor builds an object in place.

use core::marker::PhantomData;
use core::mem::{self, MaybeUninit};
use core::ptr::NonNull;

/// A lifetime that stands for one object: neither longer nor shorter ones fit.
type Brand<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// The memory for one object, for [`build_in_place`](super::Builder::build_in_place). The object is
/// built here and never moved, so it may be larger than the stack.
///
/// Each method that builds the object returns a [`Built`], which the constructor must return. The
/// lifetime is unique to this object, so the compiler rejects the proof of another object.
pub struct Vacant<'a, T> {
    at: NonNull<T>,
    brand: Brand<'a>,
}

/// The proof that a constructor has built an object in place. Dropping the proof drops the object,
/// unless the constructor returns it.
pub struct Built<'a, T> {
    at: NonNull<T>,
    brand: Brand<'a>,
}

impl<'a, T> Vacant<'a, T> {
    /// # Safety
    ///
    /// The memory is the caller's, aligned and large enough, and holds no object; the lifetime
    /// stands for it alone.
    pub(super) unsafe fn new(at: NonNull<T>) -> Self {
        Vacant { at, brand: PhantomData }
    }

    /// Moves an object into the memory. The object must fit onto the stack. Before that, the
    /// compiler may move the object any number of times.
    pub fn write(mut self, object: T) -> Built<'a, T> {
        self.as_uninit().write(object);
        // SAFETY: just written.
        unsafe { self.assume_built() }
    }

    /// Returns the memory of the object, as uninitialised memory. Use it to write fields through
    /// pointers before [`assume_built`](Vacant::assume_built).
    pub fn as_uninit(&mut self) -> &mut MaybeUninit<T> {
        // SAFETY: the promise of `new`.
        unsafe { self.at.cast().as_mut() }
    }

    /// Asserts that the object is built.
    ///
    /// # Safety
    ///
    /// The whole object was written through [`as_uninit`](Vacant::as_uninit), and is a valid `T`.
    pub unsafe fn assume_built(self) -> Built<'a, T> {
        Built { at: self.at, brand: PhantomData }
    }
}

impl<'a, E, const N: usize> Vacant<'a, [E; N]> {
    /// Builds an array in place, element by element. If `element` panics, the elements before it
    /// are dropped.
    pub fn fill_with(self, mut element: impl FnMut(usize) -> E) -> Built<'a, [E; N]> {
        let mut filled = Filled { first: self.at.cast::<E>(), len: 0 };
        while filled.len < N {
            // SAFETY: within the array, which is this one's alone.
            unsafe { filled.first.add(filled.len).write(element(filled.len)) };
            filled.len += 1;
        }
        mem::forget(filled);
        // SAFETY: all elements were written.
        unsafe { self.assume_built() }
    }
}

/// The first elements of an array.
struct Filled<E> {
    first: NonNull<E>,
    len: usize,
}

impl<E> Drop for Filled<E> {
    fn drop(&mut self) {
        let elements = NonNull::slice_from_raw_parts(self.first, self.len);
        // SAFETY: this many were written, and nothing uses them.
        unsafe { elements.drop_in_place() };
    }
}

impl<T> Built<'_, T> {
    /// The object stays where it is, and is the caller's.
    pub(super) fn keep(self) {
        mem::forget(self);
    }
}

impl<T> Drop for Built<'_, T> {
    fn drop(&mut self) {
        // SAFETY: built, and used by nothing.
        unsafe { self.at.drop_in_place() };
    }
}

impl_debug!([T] Vacant<'_, T> as it (it.at));

impl_debug!([T] Built<'_, T> as it (it.at));
