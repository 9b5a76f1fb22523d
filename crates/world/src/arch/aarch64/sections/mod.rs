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
    ($point:ident, $by:ident) => {
        enter!($point, $by, "{no_slot}", "")
    };
    ($point:ident, $by:ident, status) => {
        enter!($point, $by, "8f", "mov {status}, {no_slot}")
    };
    ($point:ident, $by:ident, $no_slot:literal, $prepare:literal) => {
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
            read_index!($point, $by, $no_slot),
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

/// Leaves the thread's index in `{slot}`, or goes to `$no_slot`; the area is in `{scratch}`.
///
/// In a row: a pointer to a line has eight bytes. So it lies as far behind the table's beginning as
/// the CPU's number says when it is shifted by three bits less than to the line's number, but for
/// the three bits that this leaves.
macro_rules! read_index {
    ($point:ident, Index, $no_slot:literal) => {
        concat!(
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
            "
        )
    };
    ($point:ident, InRow, $no_slot:literal) => {
        concat!(
            "
            ldr {slot:w}, [{scratch}, {cpu_id}]
            ldr {scratch:w}, [{rows}, {cpus}]
            cmp {slot:w}, {scratch:w}
            b.hs ",
            $no_slot,
            $point!("10"),
            "
            ldr {scratch}, [{rows}, {table}]
            add {scratch}, {scratch}, {slot}, lsr {pointer_of_line}
            and {scratch}, {scratch}, -8
            ldr {scratch}, [{scratch}]
            cbz {scratch}, ",
            $no_slot,
            "
            and {slot}, {slot}, {cpu_in_line}
            add {scratch}, {scratch}, {slot}, lsl 2
            ",
            $point!("11"),
            "
            ldar {slot:w}, [{scratch}]
            "
        )
    };
}

/// The end of the section, behind the commit; its descriptor and its abort handler. The descriptor
/// holds addresses that the dynamic linker fills in, hence a writable section. The handler lies
/// away from the code it belongs to, as it seldom runs.
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
    ($point:ident, $by:ident, $at:expr, $no_slot:block, [$($text:tt)*], $($operands:tt)*) => {
        assemble!(
            $by, $at,
            [enter!($point, $by), $($text)* leave!($point),],
            [no_slot = label $no_slot,],
            $($operands)*
        )
    };
    ($point:ident, $by:ident, $at:expr, $status:ident, [$($text:tt)*], $($operands:tt)*) => {
        assemble!(
            $by, $at,
            [enter!($point, $by, status), $($text)* leave!($point, status),],
            [
                status = out(reg) $status,
                no_slot = const $crate::arch::status::NO_SLOT,
                done = const $crate::arch::status::DONE,
            ],
            $($operands)*
        )
    };
}

/// A section's whole text with the operands that all have, and those of its way to an index.
macro_rules! assemble {
    (Index, $at:expr, [$($text:tt)*], [$($ends:tt)*], $($operands:tt)*) => {
        ::core::arch::asm!(
            $($text)*
            $($ends)*
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
    (InRow, $at:expr, [$($text:tt)*], [$($ends:tt)*], $($operands:tt)*) => {
        ::core::arch::asm!(
            $($text)*
            $($ends)*
            slot = out(reg) _,
            scratch = out(reg) _,
            area = in(reg) $at.index.cpu.area().offset,
            rows = in(reg) $at.index.rows,
            limit = in(reg) $at.limit,
            first = in(reg) $at.first,
            $($operands)*
            table = const $crate::arch::ROWS_TABLE,
            cpus = const $crate::arch::ROWS_CPUS,
            pointer_of_line = const $crate::arch::LINE_OF_CPU - 3,
            cpu_in_line = const $crate::arch::CPU_IN_LINE,
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
