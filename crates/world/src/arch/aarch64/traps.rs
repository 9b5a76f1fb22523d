//! Points for tests: see [`injection`](crate::arch::injection).

use core::ffi::c_void;

/// Fires on its n-th pass, if armed. At the abort handler, counts.
macro_rules! trap {
    ("abort") => {
        "
        adrp {trap}, {aborts}
        add {trap}, {trap}, :lo12:{aborts}
        ldr {number:w}, [{trap}]
        add {number:w}, {number:w}, 1
        str {number:w}, [{trap}]
        "
    };
    ($point:literal) => {
        concat!(
            "
            adrp {trap}, {armed}
            ldr {number:w}, [{trap}, :lo12:{armed}]
            cmp {number:w}, ",
            $point,
            "
            b.ne 7f
            adrp {trap}, {visits}
            add {trap}, {trap}, :lo12:{visits}
            ldr {number:w}, [{trap}]
            subs {number:w}, {number:w}, 1
            str {number:w}, [{trap}]
            b.ne 7f
            brk 1
            7:
            "
        )
    };
}

/// Like [`trap`], in a section that forgets to reset its status when it starts over.
macro_rules! forgetful_trap {
    ("abort") => {
        concat!(
            trap!("abort"),
            "
            adrp {trap}, {stale}
            str {status:w}, [{trap}, :lo12:{stale}]
            "
        )
    };
    ("1") => {
        concat!(
            trap!("1"),
            "
            adrp {trap}, {stale}
            ldr {status:w}, [{trap}, :lo12:{stale}]
            "
        )
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
            trap = out(reg) _,
            number = out(reg) _,
        }
    };
}

/// `brk 1`
const TRAP: u32 = 0xd420_0020;

/// Makes the thread continue after the trap, if it was not sent to an abort handler.
pub(in crate::arch) fn skip_trap(context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the context that a signal handler got; code can be read.
    unsafe {
        let next = &raw mut (*context).uc_mcontext.pc;
        if *core::ptr::with_exposed_provenance::<u32>(*next as usize) == TRAP {
            *next += 4;
        }
    }
}
