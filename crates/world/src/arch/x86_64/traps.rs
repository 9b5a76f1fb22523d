//! Points for tests: see [`injection`](crate::arch::injection).

use core::ffi::c_void;

/// Fires on its n-th pass, if armed. At the abort handler, counts.
macro_rules! trap {
    ("abort") => {
        "inc dword ptr [rip + {aborts}]\n"
    };
    ($point:literal) => {
        concat!(
            "
            cmp dword ptr [rip + {armed}], ",
            $point,
            "
            jne 7f
            dec dword ptr [rip + {visits}]
            jnz 7f
            int3
            7:
            "
        )
    };
}

/// Like [`trap`], in a section that forgets to reset its status when it starts over.
macro_rules! forgetful_trap {
    ("abort") => {
        concat!(trap!("abort"), "mov dword ptr [rip + {stale}], {status:e}\n")
    };
    ("1") => {
        concat!(trap!("1"), "mov {status:e}, dword ptr [rip + {stale}]\n")
    };
    ($point:literal) => {
        trap!($point)
    };
}

/// Calls a macro with these points and the operands that they need.
macro_rules! with_traps {
    ($macro:ident!($($arguments:tt)*)) => {
        $macro! {
            $($arguments)*
            armed = sym $crate::arch::injection::ARMED,
            visits = sym $crate::arch::injection::VISITS,
            aborts = sym $crate::arch::injection::ABORTS,
        }
    };
}

/// Makes the thread continue after the trap. Nothing is needed for this here.
pub(in crate::arch) fn skip_trap(_context: *mut c_void) {}
