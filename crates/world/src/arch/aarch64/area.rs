//! The place of a thread's rseq areas: relative to `tpidr_el0`, the thread pointer.

use core::arch::asm;

use crate::arch::Reading;
use crate::arch::block::{BLOCK, READING};

/// The linker puts the number in, in place of the load, where it knows it.
#[inline]
pub(in crate::arch) fn block() -> isize {
    let offset;
    // SAFETY: loads a constant that the dynamic linker filled in before any code of ours ran.
    unsafe {
        asm!(
            "adrp {offset}, :gottprel:{block}",
            "ldr {offset}, [{offset}, :gottprel_lo12:{block}]",
            offset = out(reg) offset,
            block = sym BLOCK,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    offset
}

#[inline]
pub(in crate::arch) fn offset_of_reading<const WORD: usize>() -> isize {
    let beyond_block: isize;
    // SAFETY: a relaxed load of a word of this program or library. Not `pure`: it changes once.
    unsafe {
        asm!(
            "adrp {word}, {reading}",
            "add {word}, {word}, :lo12:{reading}",
            "ldr {word}, [{word}, {at}]",
            word = out(reg) beyond_block,
            reading = sym READING,
            at = const WORD,
            options(nostack, preserves_flags, readonly),
        );
    }
    block().wrapping_add(beyond_block)
}

/// Like [`offset_of_reading`], for the area that sections run on. The compiler may use what it has
/// read before: see [`Area::of_sections`](crate::arch::Area::of_sections).
#[inline]
pub(in crate::arch) fn offset_of_sections() -> isize {
    let beyond_block: isize;
    // SAFETY: a relaxed load of a word of this program or library. It changes once, and either
    // value will do: so this may be called pure, and free of memory.
    unsafe {
        asm!(
            "adrp {word}, {reading}",
            "add {word}, {word}, :lo12:{reading}",
            "ldr {word}, [{word}, {at}]",
            word = out(reg) beyond_block,
            reading = sym READING,
            at = const Reading::Sections as usize * 8,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    block().wrapping_add(beyond_block)
}

/// The thread pointer. It stays the same for the thread's life, so it may be read early.
#[inline]
pub(in crate::arch) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register that user space may read.
    unsafe {
        asm!(
            "mrs {pointer}, tpidr_el0",
            pointer = out(reg) pointer,
            options(nomem, nostack, preserves_flags),
        );
    }
    pointer
}

/// # Safety
///
/// At `offset` from the thread pointer lies an area or a block that has a word at `FIELD`.
#[inline]
pub(in crate::arch) unsafe fn read<const FIELD: usize>(offset: isize) -> u32 {
    let value: u32;
    // SAFETY: the caller promises a word there. Not `pure`: the kernel changes fields behind the
    // compiler's back, and the thread gets its number once.
    unsafe {
        asm!(
            "ldr {value:w}, [{area}, {field}]",
            value = lateout(reg) value,
            area = in(reg) thread_pointer().wrapping_add_signed(offset),
            field = const FIELD,
            options(nostack, preserves_flags, readonly),
        );
    }
    value
}
