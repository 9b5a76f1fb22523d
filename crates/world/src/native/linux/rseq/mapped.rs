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
use core::sync::atomic::{AtomicBool, Ordering};

static STAYS: AtomicBool = AtomicBool::new(false);

/// Keeps the library that this code is part of loaded, even if `dlclose` closes it. Changes nothing
/// for a program, which cannot be closed. The first per-CPU memory of a process calls this.
///
/// The first call waits for the dynamic linker: for a thread that loads a library meanwhile, and
/// runs its constructors. A library whose callers must not wait so calls this from its own
/// constructor.
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
