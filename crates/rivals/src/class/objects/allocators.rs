//! Allocators of memory, as pools.

use std::marker::PhantomData;
use std::ptr::NonNull;

use coreline::Lacking;

use super::{Object, Pool};
use crate::native;

/// An allocator, called by its own names.
pub(super) trait Allocator: Sync + 'static {
    /// # Errors
    ///
    /// [`Lacking`] if this build does not have it.
    fn present() -> Result<(), Lacking> {
        Ok(())
    }

    /// This many bytes, aligned for a word; null if there are none.
    fn allocate(size: usize) -> *mut u8;

    /// The same, all 0.
    fn allocate_zeroed(size: usize) -> *mut u8;

    /// # Safety
    ///
    /// This came from this allocator, with this size, and is used no more.
    unsafe fn free(at: *mut u8, size: usize);
}

/// The C library's, and the process's.
pub(super) struct Glibc;

impl Allocator for Glibc {
    #[inline(always)]
    fn allocate(size: usize) -> *mut u8 {
        native::malloc(size)
    }

    #[inline(always)]
    fn allocate_zeroed(size: usize) -> *mut u8 {
        native::calloc(size)
    }

    #[inline(always)]
    unsafe fn free(at: *mut u8, _: usize) {
        // SAFETY: the caller's promise.
        unsafe { native::free(at) }
    }
}

pub(super) struct Mimalloc;

impl Allocator for Mimalloc {
    #[inline(always)]
    fn allocate(size: usize) -> *mut u8 {
        // SAFETY: it takes any size.
        unsafe { libmimalloc_sys::mi_malloc(size) }.cast()
    }

    #[inline(always)]
    fn allocate_zeroed(size: usize) -> *mut u8 {
        // SAFETY: it takes any size.
        unsafe { libmimalloc_sys::mi_zalloc(size) }.cast()
    }

    #[inline(always)]
    unsafe fn free(at: *mut u8, _: usize) {
        // SAFETY: the caller's promise.
        unsafe { libmimalloc_sys::mi_free(at.cast()) }
    }
}

pub(super) struct Jemalloc;

#[cfg(feature = "jemalloc")]
impl Allocator for Jemalloc {
    #[inline(always)]
    fn allocate(size: usize) -> *mut u8 {
        // SAFETY: it takes any size.
        unsafe { tikv_jemalloc_sys::malloc(size) }.cast()
    }

    #[inline(always)]
    fn allocate_zeroed(size: usize) -> *mut u8 {
        // SAFETY: it takes any size.
        unsafe { tikv_jemalloc_sys::calloc(1, size) }.cast()
    }

    #[inline(always)]
    unsafe fn free(at: *mut u8, size: usize) {
        // SAFETY: the caller's promise; no flag is the alignment that `malloc` and `calloc` give.
        unsafe { tikv_jemalloc_sys::sdallocx(at.cast(), size, 0) }
    }
}

pub(super) struct Snmalloc;

#[cfg(feature = "snmalloc")]
impl Snmalloc {
    /// The alignment that the allocator is told, which is in the size class with the size.
    const ALIGN: usize = align_of::<Object>();
}

#[cfg(feature = "snmalloc")]
impl Allocator for Snmalloc {
    #[inline(always)]
    fn allocate(size: usize) -> *mut u8 {
        // SAFETY: the alignment is a power of two.
        unsafe { snmalloc_sys::sn_rust_alloc(Self::ALIGN, size) }.cast()
    }

    #[inline(always)]
    fn allocate_zeroed(size: usize) -> *mut u8 {
        // SAFETY: the alignment is a power of two.
        unsafe { snmalloc_sys::sn_rust_alloc_zeroed(Self::ALIGN, size) }.cast()
    }

    #[inline(always)]
    unsafe fn free(at: *mut u8, size: usize) {
        // SAFETY: the caller's promise; the alignment is that of the allocation. What the binding
        // says that it returns is C's void.
        unsafe { snmalloc_sys::sn_rust_dealloc(at.cast(), Self::ALIGN, size) };
    }
}

/// The replacement for an allocator in a build without its feature.
macro_rules! absent {
    ($($allocator:ident, $feature:literal, $remedy:literal;)*) => {$(
        #[cfg(not(feature = $feature))]
        impl Allocator for $allocator {
            fn present() -> Result<(), Lacking> {
                Err(Lacking {
                    world: "native",
                    capability: $feature,
                    why: "this build is without it".to_owned().into(),
                    remedy: $remedy,
                })
            }

            fn allocate(_: usize) -> *mut u8 {
                std::ptr::null_mut()
            }

            fn allocate_zeroed(_: usize) -> *mut u8 {
                std::ptr::null_mut()
            }

            unsafe fn free(_: *mut u8, _: usize) {}
        }
    )*};
}

absent! {
    Jemalloc, "jemalloc", "build with --features jemalloc, which needs make";
    Snmalloc, "snmalloc", "build with --features snmalloc, which needs a compiler of C++20";
}

/// An allocator as a pool.
pub(super) struct Allocated<A>(PhantomData<A>);

/// An object that came from an allocator.
pub(super) struct Owned(NonNull<Object>);

// SAFETY: its holder has the object to itself, and allocators take memory from any thread.
unsafe impl Send for Owned {}

impl<A: Allocator> Pool for Allocated<A> {
    type Taken = Owned;

    fn new() -> Result<Self, Lacking> {
        A::present()?;
        Ok(Allocated(PhantomData))
    }

    #[inline(always)]
    fn take(&'static self, word: u64) -> Owned {
        let object = A::allocate(size_of::<Object>()).cast::<Object>();
        let mut object = NonNull::new(object).expect("there is memory for an object");
        // SAFETY: the memory is this caller's, of an object's size and aligned for a word. Words
        // that are not written before they are read are not read: only the first is.
        unsafe { object.as_mut() }.write(word);
        Owned(object)
    }

    #[inline(always)]
    fn word(&'static self, taken: &Owned) -> u64 {
        // SAFETY: the object is the holder's, and its first word was written when it was taken.
        unsafe { taken.0.as_ref() }.word()
    }

    #[inline(always)]
    fn give(&'static self, taken: Owned) {
        // SAFETY: it came from this allocator, and the holder gives it up.
        unsafe { A::free(taken.0.as_ptr().cast(), size_of::<Object>()) };
    }
}
