//! The common part of the sections of all processors: the operands around their texts.
//!
//! A processor says the rest: the beginning and the end of a section ([`enter`], [`leave`]), the
//! [text](`text`) of each operation between them, with the registers that it uses up, and the
//! registers that all of its sections have beside ([`with_registers`]).

/// An interruption point of production code.
macro_rules! nothing {
    ($point:literal) => {
        ""
    };
}

/// A section around its text. Without a slot the thread goes to a block, or leaves with
/// [`NO_SLOT`] in its status; `or null`: and with null for its value. Then a value that is not null
/// says that the section is done, and the status does not.
///
/// [`NO_SLOT`]: crate::arch::status::NO_SLOT
macro_rules! section {
    (
        $point:ident, [$($text:tt)*], [$($used:ident)*], $by:ident, $at:expr, $no_slot:block,
        $($operands:tt)*
    ) => {
        with_registers!($by, block, assemble!(
            $by, $at,
            [enter!($point, $by), $($text)* leave!($point),],
            [no_slot = label $no_slot,],
            $($used = out(reg) _,)* $($operands)*
        ))
    };
    (
        $point:ident, [$($text:tt)*], [$($used:ident)*], $by:ident, $at:expr, $status:ident,
        $($operands:tt)*
    ) => {
        with_registers!($by, status, assemble!(
            $by, $at,
            [enter!($point, $by, status), $($text)* leave!($point, status),],
            [
                status = out(reg) $status,
                no_slot = const $crate::arch::status::NO_SLOT,
                done = const $crate::arch::status::DONE,
            ],
            $($used = out(reg) _,)* $($operands)*
        ))
    };
    (
        $point:ident, [$($text:tt)*], [$($used:ident)*], $by:ident, $at:expr,
        $status:ident or null, $($operands:tt)*
    ) => {
        with_registers!($by, status, assemble!(
            $by, $at,
            [enter!($point, $by, status or null), $($text)* leave!($point, status or null),],
            [status = out(reg) $status, no_slot = const $crate::arch::status::NO_SLOT,],
            $($used = out(reg) _,)* $($operands)*
        ))
    };
}

/// The descriptor of the section from 3 to 4, whose abort handler is at 6. It holds addresses that
/// the dynamic linker fills in, hence a writable section.
macro_rules! descriptor {
    () => {
        "
        .pushsection __rseq_cs, \"aw\"
        .balign 32
        5:
        .long 0, 0
        .quad 3b, 4b - 3b, 6f
        .popsection
        "
    };
}

/// A section's whole text with the operands that all have, and those of its way to an index. The
/// processor's registers stand before the slot's, and behind it.
macro_rules! assemble {
    ($before:tt, $behind:tt, Index, $at:expr, $($section:tt)*) => {
        assemble!(
            @ $before, $behind, $at, [],
            [mm_cid = const $crate::arch::MM_CID, cids = const $crate::arch::LIMIT_OF_CIDS,],
            $($section)*
        )
    };
    ($before:tt, $behind:tt, Gated, $at:expr, $($section:tt)*) => {
        assemble!(
            @ $before, $behind, $at, [],
            [
                mm_cid = const $crate::arch::MM_CID,
                cids = const $crate::arch::LIMIT_OF_CIDS,
                gate_first = const $crate::arch::GATE_FIRST,
            ],
            $($section)*
        )
    };
    ($before:tt, $behind:tt, InRow, $at:expr, $($section:tt)*) => {
        assemble!(
            @ $before, $behind, $at,
            [rows = in(reg) $at.index.rows,],
            [
                table = const $crate::arch::ROWS_TABLE,
                cpus = const $crate::arch::ROWS_CPUS,
                line_of_cpu = const $crate::arch::LINE_OF_CPU,
                cpu_in_line = const $crate::arch::CPU_IN_LINE,
            ],
            $($section)*
        )
    };
    (
        @ [$($before:tt)*], [$($behind:tt)*], $at:expr, [$($index:tt)*], [$($rows:tt)*],
        [$($text:tt)*], [$($ends:tt)*], $($operands:tt)*
    ) => {
        ::core::arch::asm!(
            $($text)*
            $($ends)*
            $($before)*
            slot = out(reg) _,
            $($behind)*
            area = in(reg) $at.index.area().offset,
            $($index)*
            limits = in(reg) $at.limits,
            first = in(reg) $at.first,
            $($operands)*
            $($rows)*
            cpu_id = const $crate::arch::CPU_ID,
            stride_shift = const $crate::arch::STRIDE_SHIFT,
            signature = const $crate::arch::SIGNATURE,
            options(nostack),
        )
    };
}
