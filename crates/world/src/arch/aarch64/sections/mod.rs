//! What all sections share: their beginning, their end, and the registers in between. And the
//! section of the self-test.

use core::arch::asm;
use core::num::NonZeroU32;
use core::sync::atomic::AtomicU32;

use super::{Area, SIGNATURE};
use crate::arch::Watched;

/// Arms, enters, and leaves the address of the thread's slot in `{slot}`; goes to `$no_slot` if
/// there is none. Points 0 to 2. `$prepare` is done at every start. Afterwards `{scratch}` is free.
macro_rules! enter {
    ($point:ident) => {
        enter!($point, "{no_slot}", "")
    };
    ($point:ident, status) => {
        enter!($point, "8f", "mov {status}, {no_slot}")
    };
    ($point:ident, $no_slot:literal, $prepare:literal) => {
        concat!(
            $point!("0"),
            "
            2:
            ",
            $prepare,
            "
            mrs {scratch}, tpidr_el0
            add {scratch}, {scratch}, {area}
            adrp {slot}, 5f
            add {slot}, {slot}, :lo12:5f
            str {slot}, [{scratch}, 8]
            3:
            ",
            $point!("1"),
            "
            tbnz {index}, 2, 9f
            ldr {slot:w}, [{scratch}, {cpu_id}]
            cmp {slot:w}, 0
            b.lt ",
            $no_slot,
            "
            9:
            and {slot}, {index}, 31
            ldr {slot:w}, [{scratch}, {slot}]
            ",
            $point!("2"),
            "
            ldar {scratch:w}, [{limit}]
            cmp {slot:w}, {scratch:w}
            b.hs ",
            $no_slot,
            "
            add {slot}, {first}, {slot}, lsl {stride_shift}
            "
        )
    };
}

/// The end of the section, behind the commit; its descriptor and its abort handler. The descriptor
/// holds addresses that the dynamic linker fills in, hence a writable section. The handler lies
/// away from the code it belongs to, as nobody goes there often.
macro_rules! leave {
    ($point:ident) => {
        concat!(
            "
            4:
            ",
            $point!("9"),
            "
            .pushsection __rseq_cs, \"aw\"
            .balign 32
            5:
            .long 0, 0
            .quad 3b, 4b - 3b, 6f
            .popsection
            .subsection 1
            .inst {signature}
            6:
            ",
            $point!("abort"),
            "
            b 2b
            .previous
            "
        )
    };
    ($point:ident, status) => {
        concat!(
            leave!($point),
            "
            mov {status}, {done}
            8:
            "
        )
    };
}

/// A section around its text: the slot's address is in `{slot}`, and `{scratch}` is a register.
/// Without a slot the thread goes to a block, or leaves with [`NO_SLOT`] in its status.
///
/// [`NO_SLOT`]: crate::arch::status::NO_SLOT
macro_rules! section {
    ($point:ident, $at:expr, $no_slot:block, [$($text:tt)*], $($operands:tt)*) => {
        ::core::arch::asm!(
            enter!($point),
            $($text)*
            leave!($point),
            no_slot = label $no_slot,
            slot = out(reg) _,
            scratch = out(reg) _,
            area = in(reg) $at.index.area().offset,
            index = in(reg) $at.index.offset,
            limit = in(reg) $at.limit,
            first = in(reg) $at.first,
            $($operands)*
            cpu_id = const $crate::arch::CPU_ID,
            stride_shift = const $crate::arch::STRIDE_SHIFT,
            signature = const $crate::arch::SIGNATURE,
            options(nostack),
        )
    };
    ($point:ident, $at:expr, $status:ident, [$($text:tt)*], $($operands:tt)*) => {
        ::core::arch::asm!(
            enter!($point, status),
            $($text)*
            leave!($point, status),
            status = out(reg) $status,
            no_slot = const $crate::arch::status::NO_SLOT,
            done = const $crate::arch::status::DONE,
            slot = out(reg) _,
            scratch = out(reg) _,
            area = in(reg) $at.index.area().offset,
            index = in(reg) $at.index.offset,
            limit = in(reg) $at.limit,
            first = in(reg) $at.first,
            $($operands)*
            cpu_id = const $crate::arch::CPU_ID,
            stride_shift = const $crate::arch::STRIDE_SHIFT,
            signature = const $crate::arch::SIGNATURE,
            options(nostack),
        )
    };
}

#[macro_use]
mod buffers;
#[macro_use]
mod lists;
#[macro_use]
mod stacks;
#[macro_use]
mod words;

/// Stands in a section for at most `spins` pauses, or until `word` is seen to change.
///
/// [`Watched::Changed`] means that another thread wrote the word, between two reads of the section,
/// and the section was not aborted.
pub(crate) fn watch(area: Area, word: &AtomicU32, spins: NonZeroU32) -> Watched {
    // SAFETY: the invariant of `Area::at`; the word is only read, as relaxed loads would.
    unsafe {
        asm!(
            "mrs {scratch}, tpidr_el0",
            "add {scratch}, {scratch}, {area}",
            "adrp {seen}, 5f",
            "add {seen}, {seen}, :lo12:5f",
            "str {seen}, [{scratch}, 8]",
            "3:",
            "ldr {seen:w}, [{word}]",
            "9:",
            "ldr {scratch:w}, [{word}]",
            "cmp {scratch:w}, {seen:w}",
            "b.ne {changed}",
            "isb",
            "subs {spins:w}, {spins:w}, 1",
            "b.ne 9b",
            "4:",
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "5:",
            ".long 0, 0",
            ".quad 3b, 4b - 3b, 6f",
            ".popsection",
            ".subsection 1",
            ".inst {signature}",
            "6:",
            "b {aborted}",
            ".previous",
            scratch = out(reg) _,
            seen = out(reg) _,
            area = in(reg) area.offset,
            word = in(reg) word.as_ptr(),
            spins = inout(reg) spins.get() => _,
            signature = const SIGNATURE,
            changed = label { return Watched::Changed },
            aborted = label { return Watched::Aborted },
            options(nostack),
        );
    }
    Watched::Expired
}
