//! The common parts of all sections: their beginning and their end. And the section of the
//! self-test.

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
    ($point:ident, $by:ident, status or null) => {
        enter!(
            $point,
            $by,
            "8f",
            "
            mov {status}, {no_slot}
            mov {value}, xzr
        "
        )
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
            find_index!($point, $by, $no_slot),
            "
            add {slot}, {first}, {slot}, lsl {stride_shift}
            ",
            begin_at_gate!($by),
        )
    };
}

/// Where a gate says where slot 0 lies: adds that to `{slot}`. The limit was acquired.
macro_rules! begin_at_gate {
    (Gated) => {
        "
        ldr {scratch}, [{limits}, {gate_first}]
        add {slot}, {slot}, {scratch}
        "
    };
    ($by:ident) => {
        ""
    };
}

/// Leaves the thread's index in `{slot}`, or goes to `$no_slot` if it is not below its limit; the
/// area is in `{scratch}`.
///
/// In a row: a pointer to a line has eight bytes. So it lies as far behind the table's beginning as
/// the CPU's number says when it is shifted by three bits less than to the line's number, except
/// for the three bits that this leaves.
macro_rules! find_index {
    ($point:ident, Index, $no_slot:literal) => {
        concat!(
            "
            ldr {slot:w}, [{scratch}, {cpu_id}]
            ",
            $point!("2"),
            "
            ldar {scratch:w}, [{limits}]
            cmp {slot:w}, {scratch:w}
            b.lo 9f
            cmp {slot:w}, 0
            b.lt ",
            $no_slot,
            "
            mrs {scratch}, tpidr_el0
            add {scratch}, {scratch}, {area}
            ldr {slot:w}, [{scratch}, {mm_cid}]
            ",
            $point!("2"),
            "
            add {scratch}, {limits}, {cids}
            ldar {scratch:w}, [{scratch}]
            cmp {slot:w}, {scratch:w}
            b.hs ",
            $no_slot,
            "
            9:
            "
        )
    };
    ($point:ident, Gated, $no_slot:literal) => {
        find_index!($point, Index, $no_slot)
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
            add {scratch}, {scratch}, {slot}, lsr #({line_of_cpu} - 3)
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
            ",
            $point!("2"),
            "
            ldar {scratch:w}, [{limits}]
            cmp {slot:w}, {scratch:w}
            b.hs ",
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
            mov {status}, {done}
            8:
            "
        )
    };
}

/// The registers that sections have here beside their operands.
macro_rules! with_registers {
    ($by:ident, $end:ident, $macro:ident!($($arguments:tt)*)) => {
        $macro!([], [scratch = out(reg) _,], $($arguments)*)
    };
}

/// Stands in a section for at most `spins` pauses, or until `word` is seen to change.
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
            descriptor!(),
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
