//! The common parts of all sections: their beginning and their end. And the section of the
//! self-test.

use core::arch::asm;
use core::num::NonZeroU32;
use core::sync::atomic::AtomicU32;

use super::{Area, SIGNATURE};
use crate::arch::Watched;

/// Arms, enters, and leaves the offset of the thread's slot in `{slot}`, of a gate's its address;
/// goes to `$no_slot` if there is none. Points 0 to 2. `$prepare` is done at every start.
macro_rules! enter {
    ($point:ident, $by:ident) => {
        enter!($point, $by, "{no_slot}", "", "{line}")
    };
    ($point:ident, $by:ident, status) => {
        enter!($point, $by, "8f", "mov {status:e}, {no_slot}", "{status}")
    };
    ($point:ident, $by:ident, status or null) => {
        enter!(
            $point,
            $by,
            "8f",
            "
            mov {status:e}, {no_slot}
            xor {value:e}, {value:e}
        ",
            "{status}"
        )
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
            find_index!($point, $by, $no_slot, $prepare, $line),
            "
            shl {slot}, {stride_shift}
            ",
            begin_at_gate!($by),
        )
    };
}

/// Where a gate says where slot 0 lies: adds that to `{slot}`.
macro_rules! begin_at_gate {
    (Gated) => {
        "
        add {slot}, qword ptr [{limits} + {gate_first}]
        "
    };
    ($by:ident) => {
        ""
    };
}

/// Leaves the thread's index in `{slot}`, or goes to `$no_slot` if it is not below its limit.
///
/// By concurrency ID: the sign of `cpu_id` is in all bits of what the ID is joined with, so that
/// there is none of a thread that is not registered.
///
/// In a row: no register is free for the line in the longest sections. It has that of the status,
/// which is prepared once more; a line that is not there needs no preparation, as null is no slot.
/// And the CPU gives its register to the line's number and is read again: in a section it is the
/// same.
macro_rules! find_index {
    ($point:ident, Index, $no_slot:literal, $prepare:literal, $line:literal) => {
        concat!(
            "
            mov {slot:e}, dword ptr fs:[{area} + {cpu_id}]
            ",
            $point!("2"),
            "
            cmp {slot:e}, dword ptr [{limits}]
            jb 9f
            sar {slot:e}, 31
            or {slot:e}, dword ptr fs:[{area} + {mm_cid}]
            ",
            $point!("2"),
            "
            cmp {slot:e}, dword ptr [{limits} + {cids}]
            jae ",
            $no_slot,
            "
            9:
            "
        )
    };
    ($point:ident, Gated, $no_slot:literal, $prepare:literal, $line:literal) => {
        find_index!($point, Index, $no_slot, $prepare, $line)
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
            $prepare,
            $point!("2"),
            "
            cmp {slot:e}, dword ptr [{limits}]
            jae ",
            $no_slot,
            "
            "
        )
    };
}

/// The end of the section, behind the commit; its descriptor and its abort handler, which lies away
/// from the code it belongs to, as it seldom runs.
macro_rules! leave {
    ($point:ident) => {
        concat!(
            "
            4:
            ",
            $point!("9"),
            descriptor!(),
            "
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
    ($point:ident, status or null) => {
        concat!(
            leave!($point),
            "
            8:
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

/// The registers that sections have here beside their operands: without a status, whose register
/// serves, one for the line of a row.
macro_rules! with_registers {
    (InRow, block, $macro:ident!($($arguments:tt)*)) => {
        $macro!([line = out(reg) _,], [], $($arguments)*)
    };
    ($by:ident, $end:ident, $macro:ident!($($arguments:tt)*)) => {
        $macro!([], [], $($arguments)*)
    };
}

/// Stands in a section for at most `spins` pauses, or until `word` is seen to change.
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
            descriptor!(),
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
