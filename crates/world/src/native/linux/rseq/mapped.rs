//! Keeps this code mapped, even after the library that it is part of is closed.
//!
//! The kernel looks at a section's descriptor also after the section was left; a thread that
//! coreline registered is unregistered by a function of ours when it ends, and its area is part of
//! our thread-local memory. All of that goes when a library is unmapped, so a library that has
//! sections never is: it opens itself for good, before its first section runs.
//!
//! Where operations run on atomics the library goes as any other does.

use core::ffi::c_void;
use core::mem::MaybeUninit;

/// Sees to it that `dlclose` leaves this code where it is. Changes nothing for a program, which
/// cannot be closed.
///
/// Waits for the dynamic linker: for a thread that loads a library meanwhile, its constructors
/// included.
pub(super) fn stay() {
    if cfg!(target_feature = "crt-static") {
        // There is no dynamic linker.
        return;
    }
    let here = (stay as fn() as *const ()).cast::<c_void>();
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
}
