//! The floor: a list of the thread's own.

use std::cell::Cell;
use std::hint::black_box;
use std::ptr;

use coreline::Lacking;

use super::{Object, Pool};

/// Free objects of a thread, linked through their first words, the last one first. The list of a
/// thread that ends is not freed. It has as many objects as the thread had in use at the same time.
pub(super) struct ThreadList;

/// An object while it is free.
#[repr(C, align(8))]
struct Free {
    next: *mut Free,
    rest: [u64; 7],
}

const _: () = {
    assert!(size_of::<Free>() == size_of::<Object>());
    assert!(align_of::<Free>() == align_of::<Object>());
};

thread_local! {
    static FIRST: Cell<*mut Free> = const { Cell::new(ptr::null_mut()) };
}

/// An object of this thread's list.
pub(super) struct OfThread(*mut Object);

// SAFETY: its holder has the object to itself, in whichever thread. One that is given back in
// another thread goes to the list of that one.
unsafe impl Send for OfThread {}

impl Pool for ThreadList {
    type Taken = OfThread;

    fn new() -> Result<Self, Lacking> {
        Ok(ThreadList)
    }

    #[inline(always)]
    fn take(&'static self, word: u64) -> OfThread {
        let object = FIRST.with(|first| {
            let free = first.get();
            if free.is_null() {
                return made();
            }
            // SAFETY: what is on the list is an object that this thread has to itself, and its
            // first word is the link that `give` wrote.
            first.set(unsafe { (*free).next });
            free.cast::<Object>()
        });
        // SAFETY: the object was made or on the list: no other reference to it is left.
        unsafe { (*object).write(word) };
        OfThread(object)
    }

    #[inline(always)]
    fn word(&'static self, taken: &OfThread) -> u64 {
        // SAFETY: the object is the holder's.
        unsafe { (*taken.0).word() }
    }

    #[inline(always)]
    fn give(&'static self, taken: OfThread) {
        let free = taken.0.cast::<Free>();
        FIRST.with(|first| {
            // SAFETY: the caller gives up its object, which is larger than a link.
            unsafe { (*free).next = first.get() };
            first.set(free);
        });
    }
}

/// A new object. To the compiler, the list is memory that other code may look at from here on.
#[cold]
#[inline(never)]
fn made() -> *mut Object {
    FIRST.with(|first| black_box(ptr::from_ref(first)));
    Box::into_raw(Box::default())
}
