//! Slice extension: only whether the kernel offers it. No code that asks for one is here, because
//! none has run yet.
//!
//! The kernel says in the thread's rseq area whether the thread could have extensions. `prctl` does
//! not: `PR_RSEQ_SLICE_EXTENSION_GET` answers 0 where `rseq_slice_ext=0` on the kernel's command
//! line switched them off, and where a thread has not enabled them.
//!
//! Source: `kernel/rseq.c` of Linux 7.3.

use crate::arch::Area;
use crate::native::Native;
use crate::{Lacking, SliceExtension, Why, World};

/// `RSEQ_CS_FLAG_SLICE_EXT_AVAILABLE`, which no registration of 32 bytes has.
const AVAILABLE: u32 = 1 << 4;

/// Whether the calling thread, whose area this is, could enable extensions.
pub(crate) fn is_available(area: Area) -> bool {
    area.flags() & AVAILABLE != 0
}

impl SliceExtension for Native {
    fn enable_extension() -> Result<(), Lacking> {
        Err(Lacking {
            world: Native::NAME,
            capability: "slice extension",
            why: Why::new("this library does not use them on this system"),
            remedy: "run the program on a simulated machine",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn the_flags_of_the_area_say_whether_there_are_extensions() {
        #[repr(align(64))]
        struct MadeUp([u32; 16]);

        // As the kernel wrote them: nothing; offered; enabled, too; bits of 2018 that never did
        // anything.
        for (flags, available) in [(0, false), (0x10, true), (0x30, true), (0b111, false)] {
            let mut words = [0; 16];
            words[4] = flags;
            let made_up = Box::new(MadeUp(words));
            let distance = made_up.0.as_ptr().expose_provenance() as isize;
            let here = Area::own().address() as isize - Area::own().offset();
            // SAFETY: the fields are there while this thread, the only one to use it, does.
            let area = unsafe { Area::at(distance.wrapping_sub(here)) };
            assert_eq!(is_available(area), available, "{flags:#x}");
        }
        assert!(!is_available(Area::blank()));
    }
}
