//! The functions of the next library, usually of glibc, for locks that are not ours.

use core::ffi::{CStr, c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::fatal;

/// A function that is looked up when this library is loaded, or before if it is called before.
struct Next {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Next { name, at: AtomicPtr::new(ptr::null_mut()) }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name is a string. The call is from this library, so the search begins behind
        // it.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            fatal(
                "no library that is searched after this one has the function ",
                &[self.name.to_bytes()],
            );
        }
        self.at.store(found, Ordering::Relaxed);
        found
    }

    fn get(&self) -> *mut c_void {
        match self.at.load(Ordering::Relaxed) {
            at if at.is_null() => self.find(),
            at => at,
        }
    }
}

/// Functions `f` that call the C function `name` of the next library.
macro_rules! next {
    ($($(#[$doc:meta])* $f:ident = $name:literal ($($arg:ident: $type:ty),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As the C function says.
        pub(crate) unsafe fn $f($($arg: $type),*) -> c_int {
            let at = NEXT.$f.get();
            // SAFETY: the C function of this name has this type; and the caller's promise.
            unsafe {
                let f: unsafe extern "C" fn($($type),*) -> c_int = mem::transmute(at);
                f($($arg),*)
            }
        }
    )*
        struct All {
            $($f: Next),*
        }

        static NEXT: All = All { $($f: Next::new($name)),* };

        /// Looks all of them up.
        pub(crate) fn find_all() {
            $(NEXT.$f.get();)*
        }
    };
}

type Lock = *mut libc::pthread_rwlock_t;
type At = *const libc::timespec;
pub(crate) type Start = extern "C" fn(*mut c_void) -> *mut c_void;

next! {
    /// Initialises a lock.
    init = c"pthread_rwlock_init" (lock: Lock, attributes: *const libc::pthread_rwlockattr_t);
    /// Destroys a lock.
    destroy = c"pthread_rwlock_destroy" (lock: Lock);
    /// Takes a lock to read.
    read = c"pthread_rwlock_rdlock" (lock: Lock);
    /// Takes a lock to read, if that needs no wait.
    try_read = c"pthread_rwlock_tryrdlock" (lock: Lock);
    /// Takes a lock to read, before a time of the real-time clock.
    timed_read = c"pthread_rwlock_timedrdlock" (lock: Lock, at: At);
    /// Takes a lock to read, before a time of a clock.
    clock_read = c"pthread_rwlock_clockrdlock" (lock: Lock, clock: libc::clockid_t, at: At);
    /// Takes a lock to write.
    write = c"pthread_rwlock_wrlock" (lock: Lock);
    /// Takes a lock to write, if that needs no wait.
    try_write = c"pthread_rwlock_trywrlock" (lock: Lock);
    /// Takes a lock to write, before a time of the real-time clock.
    timed_write = c"pthread_rwlock_timedwrlock" (lock: Lock, at: At);
    /// Takes a lock to write, before a time of a clock.
    clock_write = c"pthread_rwlock_clockwrlock" (lock: Lock, clock: libc::clockid_t, at: At);
    /// Frees a lock.
    unlock = c"pthread_rwlock_unlock" (lock: Lock);
    /// Creates a thread.
    create = c"pthread_create" (
        thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t, start: Start,
        argument: *mut c_void
    );
}
