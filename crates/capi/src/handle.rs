//! Handles: pointers to objects that the library owns.
//!
//! An object lies in a *place*, behind a word that says of which type it is, or that it was
//! destroyed. A place is never given back to the allocator, so this word can be read through a
//! pointer to an object that is gone. A later object of the same type reuses the place, the place
//! that was left first before others. From then on, an old pointer is taken for the new object: no
//! call can tell them apart.

use core::cell::UnsafeCell;
use core::mem::{MaybeUninit, offset_of};
use core::ptr::{self, NonNull};
use core::time::Duration;
use std::alloc::{self, Layout};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use coreline::world::{Native, Signals};

use crate::boundary::Outcome;
use crate::code::coreline_code_t as Code;

/// A type of which C has pointers only.
pub(crate) trait Opaque: Sized + 'static {
    /// The type of the object behind the pointer.
    type Value: Send + Sync + 'static;
    /// The value of the place's first word while an object is there: a word for each type.
    const MAGIC: u64;
    /// The places of objects that were destroyed.
    fn left() -> &'static Left<Self::Value>;
}

/// Makes a type opaque. The magic word is eight letters.
macro_rules! opaque {
    ($Name:ident, $Value:ty, $magic:literal) => {
        impl $crate::handle::Opaque for $Name {
            type Value = $Value;
            const MAGIC: u64 = u64::from_ne_bytes(*$magic);
            fn left() -> &'static $crate::handle::Left<$Value> {
                static LEFT: $crate::handle::Left<$Value> = $crate::handle::Left::new();
                &LEFT
            }
        }
    };
}

pub(crate) use opaque;

/// The value of that word after the object was destroyed.
const DESTROYED: u64 = u64::from_ne_bytes(*b"-no-more");

/// Where an object lies.
#[repr(C, align(16))]
pub(crate) struct Place<T> {
    magic: AtomicU64,
    /// The place that became free before this one. Used only while this place has no object.
    next: Option<NonNull<Place<T>>>,
    value: MaybeUninit<T>,
}

/// How far behind a handle its object lies.
pub(crate) const fn offset<H: Opaque>() -> usize {
    offset_of!(Place<H::Value>, value)
}

/// The mark that inline functions of the header compare: the last four letters of a type's magic
/// word.
pub(crate) const fn mark<H: Opaque>() -> u32 {
    let [.., a, b, c, d] = H::MAGIC.to_ne_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The places without an object, in the order in which they were left.
///
/// | `holder` | meaning | written by |
/// |---|---|---|
/// | 0 | no thread uses the list | the thread that used it |
/// | a generation of memory | a thread of a process with this generation uses it | that thread |
///
/// In the child of a fork, a holder of another generation does not exist, so the child takes the
/// list over. The places of another generation are lost to it. Pages of a child are copies of
/// different moments, so what they have of the list need not fit together:
///
/// ```text
/// Child: has the page of place a, whose next one is b
/// Thread of the parent: takes a and b, and leaves b and then a
/// Child: has the page of place b, whose next one is a   <- would take places without end
/// ```
pub(crate) struct Left<T> {
    holder: AtomicU32,
    /// The holder's.
    ends: UnsafeCell<Ends<T>>,
}

/// The first and the last place of a list, which is that of the processes of a generation.
struct Ends<T> {
    generation: u32,
    ends: Option<[NonNull<Place<T>>; 2]>,
}

// SAFETY: a place without an object is the list's, and has nothing of `T`. Only the holder uses the
// list.
unsafe impl<T> Sync for Left<T> {}

/// How often a thread lets others run before it sleeps for this long: the holder may have a lower
/// priority.
const YIELDS: (u32, Duration) = (64, Duration::from_micros(50));

impl<T> Left<T> {
    pub(crate) const fn new() -> Self {
        let ends = Ends { generation: 0, ends: None };
        Left { holder: AtomicU32::new(0), ends: UnsafeCell::new(ends) }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Option<[NonNull<Place<T>>; 2]>) -> R) -> R {
        let own = Native::generation().get();
        let mut looks = 0;
        loop {
            // Acquire: pairs with the Release below. Relaxed: without success nothing is read.
            let take = |from| {
                self.holder.compare_exchange(from, own, Ordering::Acquire, Ordering::Relaxed)
            };
            match take(0) {
                Ok(_) => break,
                Err(found) if found != own && take(found).is_ok() => break,
                Err(_) if looks < YIELDS.0 => thread::yield_now(),
                Err(_) => thread::sleep(YIELDS.1),
            }
            looks += 1;
        }
        // SAFETY: this thread is the holder. No panic is possible while the list is changed.
        let Ends { generation, ends } = unsafe { &mut *self.ends.get() };
        if *generation != own {
            (*generation, *ends) = (own, None);
        }
        let result = f(ends);
        // Release: pairs with the Acquire of the next holder.
        self.holder.store(0, Ordering::Release);
        result
    }

    fn push(&self, place: NonNull<Place<T>>) {
        self.with(|ends| {
            // SAFETY: the place has no object, so it is the list's. So is the last one.
            unsafe {
                (*place.as_ptr()).next = None;
                if let Some([_, last]) = ends {
                    (*last.as_ptr()).next = Some(place);
                }
            }
            *ends = Some([ends.map_or(place, |[first, _]| first), place]);
        });
    }

    fn pop(&self) -> Option<NonNull<Place<T>>> {
        self.with(|ends| {
            let [first, last] = (*ends)?;
            // SAFETY: it is the list's, and from here the caller's.
            let next = unsafe { first.as_ref().next };
            *ends = next.map(|next| [next, last]);
            Some(first)
        })
    }
}

/// The place of a handle.
type PlaceOf<H> = NonNull<Place<<H as Opaque>::Value>>;

/// Gives an object its place, and its handle to the caller.
pub(crate) fn create<H: Opaque>(value: H::Value, out: &mut MaybeUninit<*mut H>) -> Outcome {
    let layout = Layout::new::<Place<H::Value>>();
    let place = match H::left().pop() {
        Some(place) => place,
        None => {
            // SAFETY: the layout has a size.
            let bytes = unsafe { alloc::alloc(layout) };
            let place = bytes.cast::<Place<H::Value>>();
            let place = NonNull::new(place).ok_or(Code::CORELINE_ERROR_NO_MEMORY)?;
            let (magic, value) = (AtomicU64::new(DESTROYED), MaybeUninit::uninit());
            // SAFETY: memory for a place, just allocated.
            unsafe { place.write(Place { magic, next: None, value }) };
            place
        }
    };
    // SAFETY: no object is there, so the place is this thread's. Other threads may read the word
    // through an old pointer, so one that has been there is only stored to.
    unsafe {
        let place = place.as_ptr();
        ptr::write(&raw mut (*place).value, MaybeUninit::new(value));
        // Release: pairs with the Acquire in `get`, for a thread that has the pointer by a relaxed
        // access.
        (*place).magic.store(H::MAGIC, Ordering::Release);
    }
    out.write(place.as_ptr().cast());
    Ok(())
}

/// The word before the object to which an aligned, non-null pointer points.
///
/// # Safety
///
/// As [`get`].
#[inline(always)]
unsafe fn place<'a, H: Opaque>(handle: *const H) -> Result<(PlaceOf<H>, &'a AtomicU64), Code> {
    let place = handle.cast_mut().cast::<Place<H::Value>>();
    let Some(known) = NonNull::new(place) else {
        return Err(Code::CORELINE_ERROR_NULL);
    };
    if !place.is_aligned() {
        return Err(Code::CORELINE_ERROR_HANDLE);
    }
    // SAFETY: a handle's place stays, and all places begin with such a word. Only this word is
    // borrowed.
    Ok((known, unsafe { &(*place).magic }))
}

/// The object of a handle.
///
/// # Safety
///
/// The pointer is null or not aligned, or was once the handle of an object of any type. No thread
/// destroys the object during `'a`.
#[inline(always)]
pub(crate) unsafe fn get<'a, H: Opaque>(handle: *const H) -> Result<&'a H::Value, Code> {
    // SAFETY: the caller's promise.
    let (place, magic) = unsafe { place(handle) }?;
    // Acquire: pairs with the Release in `create`.
    if magic.load(Ordering::Acquire) != H::MAGIC {
        return Err(Code::CORELINE_ERROR_HANDLE);
    }
    // SAFETY: the word says that an object of this type is there.
    Ok(unsafe { (*place.as_ptr()).value.assume_init_ref() })
}

/// Takes the object out of its place. Of threads that do so at the same time, one succeeds.
///
/// # Safety
///
/// The pointer is null or not aligned, or was once the handle of an object of any type. No other
/// thread uses the object.
pub(crate) unsafe fn take<H: Opaque>(handle: *mut H) -> Result<H::Value, Code> {
    // SAFETY: the caller's promise.
    let (place, magic) = unsafe { place(handle) }?;
    // Acquire: pairs with the Release in `create`. Relaxed: without success nothing is read.
    let done = magic.compare_exchange(H::MAGIC, DESTROYED, Ordering::Acquire, Ordering::Relaxed);
    if done.is_err() {
        return Err(Code::CORELINE_ERROR_HANDLE);
    }
    // SAFETY: this thread alone changed the word, and then takes the object that was there.
    let value = unsafe { ptr::read(&raw const (*place.as_ptr()).value).assume_init() };
    H::left().push(place);
    Ok(value)
}

/// Destroys the object of a handle.
///
/// # Safety
///
/// As [`take`].
pub(crate) unsafe fn destroy<H: Opaque>(handle: *mut H) -> Code {
    crate::boundary::boundary(|| {
        // SAFETY: the caller's promise.
        unsafe { take(handle) }.map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One;
    struct Two;
    opaque!(One, Box<u32>, b"test-one");
    opaque!(Two, Box<u32>, b"test-two");

    fn new<H: Opaque<Value = Box<u32>>>(value: u32) -> *mut H {
        let mut out = MaybeUninit::uninit();
        create::<H>(Box::new(value), &mut out).expect("memory");
        // SAFETY: written by `create`.
        unsafe { out.assume_init() }
    }

    #[test]
    fn a_handle_that_is_not_one_is_told() {
        let (one, two) = (new::<One>(1), new::<Two>(2));
        // SAFETY: null, not aligned, and handles.
        unsafe {
            assert_eq!(get(one), Ok(&Box::new(1)));
            assert_eq!(get(two), Ok(&Box::new(2)));
            assert_eq!(get(one.cast::<Two>()), Err(Code::CORELINE_ERROR_HANDLE));
            assert_eq!(take(one.cast::<Two>()), Err(Code::CORELINE_ERROR_HANDLE));
            assert_eq!(get(ptr::null::<One>()), Err(Code::CORELINE_ERROR_NULL));
            assert_eq!(get(one.byte_add(8)), Err(Code::CORELINE_ERROR_HANDLE));
            assert_eq!(take(one), Ok(Box::new(1)));
            assert_eq!(take(one), Err(Code::CORELINE_ERROR_HANDLE));
            assert_eq!(get(one), Err(Code::CORELINE_ERROR_HANDLE));
            assert_eq!(destroy(two), Code::CORELINE_OK);
        }
    }

    /// The longer a place is without an object, the longer a second destruction is told.
    #[test]
    fn places_are_reused_in_the_order_in_which_they_were_left() {
        struct Three;
        opaque!(Three, Box<u32>, b"test-3rd");
        let old = [0, 1, 2].map(new::<Three>);
        for number in [1, 0, 2] {
            // SAFETY: a handle.
            assert_eq!(unsafe { destroy(old[number]) }, Code::CORELINE_OK);
        }
        let again = [0, 1, 2].map(new::<Three>);
        assert_eq!(again, [old[1], old[0], old[2]]);
        let other = new::<Three>(3);
        assert!(!old.contains(&other), "all were taken");
        // SAFETY: handles.
        again.into_iter().chain([other]).for_each(|it| _ = unsafe { destroy(it) });
    }

    /// A child of a fork has no thread that could free the list, and no list that it could trust.
    #[test]
    fn a_list_of_another_generation_is_taken_over() {
        struct Four;
        opaque!(Four, Box<u32>, b"test-4th");
        let old = new::<Four>(0);
        // SAFETY: a handle.
        assert_eq!(unsafe { destroy(old) }, Code::CORELINE_OK);
        let other = Native::generation().get().wrapping_add(1);
        Four::left().with(|_| {});
        Four::left().holder.store(other, Ordering::Relaxed);
        // SAFETY: no other thread uses the list.
        unsafe { (*Four::left().ends.get()).generation = other };
        let own = new::<Four>(1);
        assert_ne!(own, old, "the list may have been half changed");
        // SAFETY: a handle.
        assert_eq!(unsafe { destroy(own) }, Code::CORELINE_OK);
        assert_eq!(new::<Four>(2), own);
    }
}
