//! What all sections share: their beginning, their end, and the registers in between. And the
//! section of the self-test.

use core::arch::asm;
use core::num::NonZeroU32;
use core::sync::atomic::AtomicU32;

use super::{Area, SIGNATURE};
use crate::arch::Watched;

/// Arms, enters, and leaves the offset of the thread's slot in `{slot}`; goes to `$no_slot` if
/// there is none. Points 0 to 2. `$prepare` is done at every start.
macro_rules! enter {
    ($point:ident, $by:ident) => {
        enter!($point, $by, "{no_slot}", "", "{line}")
    };
    ($point:ident, $by:ident, status) => {
        enter!($point, $by, "8f", "mov {status:e}, {no_slot}", "{status}")
    };
    ($point:ident, $by:ident, $no_slot:literal, $prepare:literal, $line:literal) => {
        concat!(
            $point!("0"),
            "
            2:
            ",
            $prepare,
            "
            lea {slot}, [rip + 5f]
            mov qword ptr fs:[{area} + 8], {slot}
            3:
            ",
            $point!("1"),
            read_index!($point, $by, $no_slot, $prepare, $line),
            $point!("2"),
            "
            cmp {slot:e}, dword ptr [{limit}]
            jae ",
            $no_slot,
            "
            shl {slot}, {stride_shift}
            "
        )
    };
}

/// Leaves the thread's index in `{slot}`, or goes to `$no_slot`.
///
/// In a row: no register is free for the line in the longest sections. It has that of the status,
/// which is prepared once more; a line that is not there needs no preparation, as null is no slot.
/// And the CPU gives its register to the line's number and is read again: in a section it is the
/// same.
macro_rules! read_index {
    ($point:ident, Index, $no_slot:literal, $prepare:literal, $line:literal) => {
        concat!(
            "
            test {index:l}, {cpu_id}
            jnz 9f
            mov {slot:e}, dword ptr fs:[{area} + {cpu_id}]
            test {slot:e}, {slot:e}
            js ",
            $no_slot,
            "
            9:
            mov {slot:e}, dword ptr fs:[{index}]
            "
        )
    };
    ($point:ident, InRow, $no_slot:literal, $prepare:literal, $line:literal) => {
        concat!(
            "
            mov {slot:e}, dword ptr fs:[{area} + {cpu_id}]
            cmp {slot:e}, dword ptr [{rows} + {cpus}]
            jae ",
            $no_slot,
            $point!("10"),
            "
            mov ",
            $line,
            ", qword ptr [{rows} + {table}]
            shr {slot:e}, {line_of_cpu}
            mov ",
            $line,
            ", qword ptr [",
            $line,
            " + {slot} * 8]
            test ",
            $line,
            ", ",
            $line,
            "
            jz ",
            $no_slot,
            "
            mov {slot:e}, dword ptr fs:[{area} + {cpu_id}]
            and {slot:e}, {cpu_in_line}
            ",
            $point!("11"),
            "
            mov {slot:e}, dword ptr [",
            $line,
            " + {slot} * 4]
            ",
            $prepare
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
            .pushsection __rseq_failure, \"ax\"
            .byte 0x0f, 0xb9, 0x3d
            .long {signature}
            6:
            ",
            $point!("abort"),
            "
            jmp 2b
            .popsection
            "
        )
    };
    ($point:ident, status) => {
        concat!(
            leave!($point),
            "
            mov {status:e}, {done}
            8:
            "
        )
    };
}

/// A section around its text: the slot's offset is in `{slot}`, that of slot 0 is `{first}`.
/// Without a slot the thread goes to a block, or leaves with [`NO_SLOT`] in its status.
///
/// [`NO_SLOT`]: crate::arch::status::NO_SLOT
macro_rules! section {
    ($point:ident, Index, $at:expr, $no_slot:block, [$($text:tt)*], $($operands:tt)*) => {
        assemble!(
            Index, $at,
            [enter!($point, Index), $($text)* leave!($point),],
            [no_slot = label $no_slot,],
            $($operands)*
        )
    };
    ($point:ident, InRow, $at:expr, $no_slot:block, [$($text:tt)*], $($operands:tt)*) => {
        assemble!(
            InRow, $at,
            [enter!($point, InRow), $($text)* leave!($point),],
            [no_slot = label $no_slot, line = out(reg) _,],
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
            area = in(reg) $at.index.cpu.area().offset,
            rows = in(reg) $at.index.rows,
            limit = in(reg) $at.limit,
            first = in(reg) $at.first,
            $($operands)*
            table = const $crate::arch::ROWS_TABLE,
            cpus = const $crate::arch::ROWS_CPUS,
            line_of_cpu = const $crate::arch::LINE_OF_CPU,
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
            "lea {scratch}, [rip + 5f]",
            "mov qword ptr fs:[{area} + 8], {scratch}",
            "3:",
            "mov {scratch:e}, dword ptr [{word}]",
            "9:",
            "cmp dword ptr [{word}], {scratch:e}",
            "jne {changed}",
            "pause",
            "dec {spins:e}",
            "jnz 9b",
            "4:",
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "5:",
            ".long 0, 0",
            ".quad 3b, 4b - 3b, 6f",
            ".popsection",
            ".pushsection __rseq_failure, \"ax\"",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long {signature}",
            "6:",
            "jmp {aborted}",
            ".popsection",
            scratch = out(reg) _,
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
