//! [`Cell`]: plain shared data with accesses that the world observes, protected by a lock or a
//! protocol.
//!
//! A lock's payload is not an atomic word. But reading it moves a cache line, and reading it
//! without the lock is a data race. A `Cell` reports each access to its world. Natively, a report
//! does nothing. The simulator charges for the lines. The model checks that conflicting accesses
//! are ordered.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

pub use crate::track::Track;
use crate::{ConstWords, Words};

/// Plain shared data, like `UnsafeCell`, with accesses that the world observes.
///
/// An access covers the whole of `T`. In the simulator it touches every line of `T` once, in order,
/// as a loop over the data would. Put values that are not used together into separate cells.
#[repr(C)]
pub struct Cell<T: ?Sized, W: Words> {
    track: W::Track,
    value: UnsafeCell<T>,
}

// SAFETY: a `Cell` hands out its content only as raw pointers or through `unsafe` functions whose
// callers guarantee the exclusion; moving accesses between threads moves `T`, hence `T: Send`. The
// tracker is `Sync` by the bound on `Track`.
unsafe impl<T: ?Sized + Send, W: Words> Sync for Cell<T, W> {}

impl<T, W: Words> Cell<T, W> {
    /// Creates a cell that holds `value`. The function exists in every world.
    pub fn new_in(value: T) -> Self {
        Cell { track: W::Track::new_in(), value: UnsafeCell::new(value) }
    }

    /// Creates a cell that holds `value`, for a `static`.
    pub const fn new(value: T) -> Self
    where
        W: ConstWords,
    {
        Cell { track: W::TRACK, value: UnsafeCell::new(value) }
    }

    /// Returns the content, and consumes the cell.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, W: Words> Cell<T, W> {
    /// Reads the content. Calls `f` with a pointer that is valid for reads while `f` runs.
    ///
    /// Dereferencing the pointer is sound only if no thread writes at the same time. The caller's
    /// protocol must ensure this.
    #[inline]
    #[track_caller]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        let at = self.value.get().cast_const();
        let _reading = self.track.reading(at.cast(), size_of_val(&self.value));
        f(at)
    }

    /// Writes the content, or reads and writes it. Calls `f` with a pointer that is valid for reads
    /// and writes while `f` runs.
    ///
    /// Dereferencing the pointer is sound only if no other thread reads or writes at the same time.
    /// The caller's protocol must ensure this.
    #[inline]
    #[track_caller]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        let at = self.value.get();
        let _writing = self.track.writing(at.cast_const().cast(), size_of_val(&self.value));
        f(at)
    }

    /// Returns a shared borrow of the content.
    ///
    /// # Safety
    ///
    /// No thread may write the content until the borrow drops.
    #[inline]
    #[track_caller]
    pub unsafe fn borrow(&self) -> CellRef<'_, T, W> {
        // SAFETY: the cell is there, so its address is not null.
        let value = unsafe { NonNull::new_unchecked(self.value.get()) };
        let reading =
            self.track.reading(value.as_ptr().cast_const().cast(), size_of_val(&self.value));
        CellRef { value, _reading: reading, _borrow: PhantomData }
    }

    /// Returns an exclusive borrow of the content.
    ///
    /// # Safety
    ///
    /// No other thread may read or write the content until the borrow drops.
    #[inline]
    #[track_caller]
    pub unsafe fn borrow_mut(&self) -> CellMut<'_, T, W> {
        // SAFETY: the cell is there, so its address is not null.
        let value = unsafe { NonNull::new_unchecked(self.value.get()) };
        let writing =
            self.track.writing(value.as_ptr().cast_const().cast(), size_of_val(&self.value));
        CellMut { value, _writing: writing, _borrow: PhantomData }
    }

    /// Returns a mutable reference to the content.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized, W: Words> fmt::Debug for Cell<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").finish_non_exhaustive()
    }
}

/// A shared borrow of a [`Cell`]'s content, from [`Cell::borrow`].
///
/// Like [`CellMut`], the borrow holds a pointer and not a reference. A guard that contains such a
/// borrow may free its lock while a function that got the guard by value still runs. A reference
/// would have to be valid until that function returns.
pub struct CellRef<'a, T: ?Sized, W: Words> {
    value: NonNull<T>,
    _reading: <W::Track as Track>::Reading,
    _borrow: PhantomData<&'a T>,
}

// SAFETY: a `CellRef` gives nothing but `&T`, and its tracker's proof only exists.
unsafe impl<T: ?Sized + Sync, W: Words> Sync for CellRef<'_, T, W> {}

impl<T: ?Sized, W: Words> Deref for CellRef<'_, T, W> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the caller of `Cell::borrow` excludes writers for as long as the borrow lives.
        unsafe { self.value.as_ref() }
    }
}

impl<'a, T: ?Sized, W: Words> CellRef<'a, T, W> {
    /// Returns the borrow of a part. For its world, it is still an access to the whole content.
    ///
    /// # Safety
    ///
    /// `part` is valid for reads for `'a`, as is a part of the content that `&'a T` would give.
    pub unsafe fn part<U: ?Sized>(self, part: NonNull<U>) -> CellRef<'a, U, W> {
        CellRef { value: part, _reading: self._reading, _borrow: PhantomData }
    }
}

/// An exclusive borrow of a [`Cell`]'s content, from [`Cell::borrow_mut`].
///
/// The type is invariant in `T`, like `&mut T`. Otherwise safe code could store a value that dies
/// before the cell:
///
/// ```compile_fail
/// use coreline_world::{CellMut, Words};
///
/// fn shorten<'a, 'long: 'a, W: Words>(cell: CellMut<'a, &'long u8, W>) -> CellMut<'a, &'a u8, W> {
///     cell
/// }
/// ```
pub struct CellMut<'a, T: ?Sized, W: Words> {
    value: NonNull<T>,
    _writing: <W::Track as Track>::Writing,
    _borrow: PhantomData<&'a mut T>,
}

// SAFETY: a shared `CellMut` gives nothing but `&T`, and its tracker's proof only exists.
unsafe impl<T: ?Sized + Sync, W: Words> Sync for CellMut<'_, T, W> {}

impl<T: ?Sized, W: Words> Deref for CellMut<'_, T, W> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the caller of `Cell::borrow_mut` excludes all other threads for as long as the
        // borrow lives, and `&self` excludes its own `&mut`.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized, W: Words> DerefMut for CellMut<'_, T, W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the borrow excludes all other threads, and `&mut self` is the only path to the
        // content.
        unsafe { self.value.as_mut() }
    }
}

impl<'a, T: ?Sized, W: Words> CellMut<'a, T, W> {
    /// Returns the borrow of a part. For its world, it is still an access to the whole content.
    ///
    /// # Safety
    ///
    /// `part` is valid for reads and writes, and exclusive, for `'a`, as is a part of the content
    /// that `&'a mut T` would give.
    pub unsafe fn part<U: ?Sized>(self, part: NonNull<U>) -> CellMut<'a, U, W> {
        CellMut { value: part, _writing: self._writing, _borrow: PhantomData }
    }
}

#[cfg(all(test, feature = "laws", feature = "model"))]
mod tests {
    use super::*;
    use crate::implements;
    use crate::model::Model;

    /// `Send` but not `Sync`.
    type Unshared = core::cell::Cell<u32>;
    /// `Sync` but not `Send`.
    type Unmoved = CellRef<'static, u32, Model>;

    #[test]
    fn a_cell_is_shared_if_its_content_can_move() {
        assert!(implements!(Cell<Unshared, Model>: Sync));
        assert!(implements!(Cell<Unshared, Model>: Send));
        assert!(!implements!(Cell<Unmoved, Model>: Sync));
        assert!(!implements!(Cell<Unmoved, Model>: Send));
    }

    #[test]
    fn a_borrow_stays_with_its_thread_and_is_shared_as_its_content() {
        assert!(implements!(CellRef<'_, u32, Model>: Sync));
        assert!(implements!(CellMut<'_, u32, Model>: Sync));
        assert!(!implements!(CellRef<'_, u32, Model>: Send));
        assert!(!implements!(CellMut<'_, u32, Model>: Send));
        assert!(!implements!(CellRef<'_, Unshared, Model>: Sync));
        assert!(!implements!(CellMut<'_, Unshared, Model>: Sync));
    }
}
