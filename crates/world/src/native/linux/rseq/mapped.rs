//! Keeps this code mapped, even after its library is closed.
//!
//! The kernel may read a section's descriptor even after a thread has left the section. When a
//! thread that coreline registered ends, a function of this crate unregisters it. The area of such
//! a thread is part of this crate's thread-local memory. All of this would disappear if the library
//! were unmapped. So a library with sections opens itself permanently, before its first section
//! runs.
//!
//! If operations run on atomics, the library can be unmapped like any other.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

static STAYS: AtomicBool = AtomicBool::new(false);

/// Keeps the library that this code is part of loaded, even if `dlclose` closes it. Changes nothing
/// for a program, which cannot be closed. The first per-CPU memory of a process calls this.
///
/// The first call waits for the dynamic linker, if another thread loads a library meanwhile and
/// runs its constructors. A library whose callers must not wait for this calls the function in its
/// own constructor.
pub fn stay_mapped() {
    // Relaxed, here and below: a thread that misses the change does the same again.
    if cfg!(target_feature = "crt-static") || STAYS.load(Ordering::Relaxed) {
        // Without a dynamic linker, there is nothing to do either.
        return;
    }
    let here = (stay_mapped as fn() as *const ()).cast::<c_void>();
    let mut object = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is one of this code; `dladdr` writes what it is given, of which zeros are
    // a value. The name is a C string that lives as long as the library. To open what is open runs
    // no code of it; the handle is never closed.
    unsafe {
        if libc::dladdr(here, object.as_mut_ptr()) != 0 {
            let name = object.assume_init().dli_fname;
            libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
    // Relaxed: as above.
    STAYS.store(true, Ordering::Relaxed);
}
