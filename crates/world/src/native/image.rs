//! The lookup of the program or library that contains an address.

use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use core::ptr;

/// A location in a loaded program or library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InImage {
    /// The name of the file, without its folder.
    pub image: String,
    /// The address within the file, as `nm` prints it for the symbol at this address.
    pub offset: usize,
}

/// Returns the program or library that contains an address, if any. A program or library contains
/// its statics, but not the heap, stacks or a `thread_local!`. The result is also `None` if there
/// is no dynamic linker to ask.
pub fn find(address: usize) -> Option<InImage> {
    if cfg!(any(target_feature = "crt-static", miri)) {
        return None;
    }
    let mut object = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` only looks the address up, whatever it is, and writes what it is given, of
    // which zeros are a value. The name is a C string that lives as long as the library.
    let (object, path) = unsafe {
        if libc::dladdr(ptr::without_provenance::<c_void>(address), object.as_mut_ptr()) == 0 {
            return None;
        }
        let object = object.assume_init();
        (object, CStr::from_ptr(object.dli_fname).to_string_lossy().into_owned())
    };
    let image = path.rsplit('/').next().unwrap_or_default().to_owned();
    // A program that is not relocated has its addresses from 0 on.
    let base = object.dli_fbase.addr();
    Some(InImage { image, offset: if base < 1 << 32 { address } else { address - base } })
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use super::*;

    static ZERO: AtomicU64 = AtomicU64::new(0);
    static ONE: AtomicU64 = AtomicU64::new(1);

    #[test]
    fn a_static_is_told_from_other_memory() {
        if cfg!(any(target_feature = "crt-static", miri)) {
            return;
        }
        let found = [&ZERO, &ONE].map(|word| find((&raw const *word).addr()).unwrap());
        assert_eq!(found[0].image, found[1].image);
        let between = (&raw const ZERO).addr().abs_diff((&raw const ONE).addr());
        assert_eq!(found[0].offset.abs_diff(found[1].offset), between);
        let (heap, stack) = (Box::new(0_u64), 0_u64);
        assert_eq!(find((&raw const *heap).addr()), None);
        assert_eq!(find((&raw const stack).addr()), None);
    }
}
