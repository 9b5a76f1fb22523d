//! The place of a thread's rseq areas: relative to `fs`, the thread pointer.

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
            "mov {offset}, qword ptr [rip + {block}@gottpoff]",
            offset = out(reg) offset,
            block = sym BLOCK,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    offset
}

#[inline]
pub(in crate::arch) fn offset_of_reading<const WORD: usize>() -> isize {
    let offset;
    // SAFETY: a relaxed load of a word of this program or library, and a constant that the linker
    // puts there. Not `pure`: the word changes once.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + {reading} + {word}]",
            "add {offset}, qword ptr [rip + {block}@gottpoff]",
            offset = out(reg) offset,
            reading = sym READING,
            word = const WORD,
            block = sym BLOCK,
            options(nostack, readonly),
        );
    }
    offset
}

/// Like [`offset_of_reading`], for the area that sections run on. The compiler may use what it has
/// read before: see [`Area::of_sections`](crate::arch::Area::of_sections).
#[inline]
pub(in crate::arch) fn offset_of_sections() -> isize {
    let offset;
    // SAFETY: a relaxed load of a word of this program or library, and a constant that the linker
    // puts there. The word changes once, and either value will do: so this may be called pure, and
    // free of memory.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + {reading} + {word}]",
            "add {offset}, qword ptr [rip + {block}@gottpoff]",
            offset = out(reg) offset,
            reading = sym READING,
            word = const Reading::Sections as usize * 8,
            block = sym BLOCK,
            options(pure, nomem, nostack),
        );
    }
    offset
}

/// The thread pointer: the first word that it points to is its own value.
#[inline]
pub(in crate::arch) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the ABI of this processor says what stands there.
    unsafe {
        asm!(
            "mov {pointer}, qword ptr fs:[0]",
            pointer = out(reg) pointer,
            options(nostack, preserves_flags, readonly),
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
            "mov {value:e}, dword ptr fs:[{offset} + {field}]",
            value = lateout(reg) value,
            offset = in(reg) offset,
            field = const FIELD,
            options(nostack, preserves_flags, readonly),
        );
    }
    value
}
