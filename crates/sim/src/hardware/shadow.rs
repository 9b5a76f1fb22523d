//! The state of each 16 bytes of an arena, and the effect of misusing a block.
//!
//! An arena has a *shadow*: a byte for each 16 bytes. Blocks begin at multiples of 16 bytes, so
//! no two share one.
//!
//! | value | meaning of the 16 bytes | written by |
//! |---|---|---|
//! | 0 | never given out | (fresh memory) |
//! | `FIRST` and a count | a block begins here; so many bytes may be used | an allocation |
//! | a count, 1 to 16 | a later part of a block; of a machine that checks accesses | as `FIRST` |
//! | `BETWEEN` | behind a block's end; of such a machine | as `FIRST` |
//! | `FREED`, perhaps with `FIRST` | a part of a block that was freed | a free |
//!
//! Without checks of accesses only the first byte of a block's shadow is written. This is enough to
//! notice a double free, and a free of an address at which no block begins.
//!
//! With checks, a machine's *keeper*, which is the engine's, decides which freed block is given out
//! again, and when.

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};
use std::io::Write as _;

/// Bytes of memory for each byte of the shadow.
pub(super) const GRANULE: usize = 16;

const COUNT: u8 = 0x1f;
const BETWEEN: u8 = 0x20;
const FIRST: u8 = 0x40;
const FREED: u8 = 0x80;

/// With checks, the first bytes after each block, this many, belong to no block.
pub(super) const BEHIND: usize = GRANULE;

/// The pattern in freed memory. A pointer of it is aligned, and to no memory.
const POISON: u8 = 0xf0;

/// The number of bytes of a freed block that are filled.
const MOST_POISON: usize = 4096;

/// Why a block cannot be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It was freed before.
    Twice,
    /// No block begins there.
    Nothing,
    /// It lies on a simulated stack.
    Stack,
}

/// The state of the address of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A block that is in use.
    Live,
    /// A block that was freed.
    Freed,
    /// No block.
    Nothing,
}

/// The part of a machine that keeps account of its blocks.
pub(crate) struct Keeper {
    /// A freed block of a class and alignment that may be given out again.
    pub(crate) reuse: fn(class: usize, align: usize) -> Option<usize>,
    /// A block was allocated: the requested size, its class, and the size that it takes.
    pub(crate) made: fn(block: usize, size: usize, class: usize, room: usize),
    /// A block was given back with that size.
    pub(crate) freed: fn(block: usize, size: usize),
    /// The running thread has done something wrong. Does not return.
    pub(crate) mistaken: fn(block: usize, wrong: Wrong) -> !,
}

thread_local! {
    /// The keeper of the machine that runs on this host thread.
    static KEEPER: Cell<Option<&'static Keeper>> = const { Cell::new(None) };
}

/// From now on, this host thread's machine has this keeper, or has none.
pub(crate) fn set_keeper(keeper: Option<&'static Keeper>) {
    KEEPER.set(keeper);
}

pub(super) fn keeper() -> Option<&'static Keeper> {
    KEEPER.get()
}

/// The running simulated thread frees what it must not, if one runs; otherwise the host's code
/// does, and the process ends, as with the system's allocator.
#[cold]
pub(super) fn mistaken(block: usize, wrong: Wrong, is_simulated: bool) -> ! {
    if is_simulated && let Some(keeper) = keeper() {
        (keeper.mistaken)(block, wrong);
    }
    let what = match wrong {
        Wrong::Twice => "freed twice",
        Wrong::Nothing => "freed, but is not a block",
        Wrong::Stack => "freed, but lies on a stack",
    };
    // The allocator must not unwind. Nothing is left to do if stderr is closed.
    let says = "coreline-sim: memory of a simulated machine was";
    _ = writeln!(std::io::stderr(), "{says} {what} by code outside of a simulated machine");
    std::process::abort();
}

/// An arena's shadow. Its memory is the arena's.
#[derive(Clone, Copy)]
pub(crate) struct Shadow(NonNull<AtomicU8>);

impl Shadow {
    /// The shadow at an address.
    ///
    /// # Safety
    ///
    /// Zeroed memory, large enough for an arena, which is mapped as long as the shadow is used.
    pub(super) unsafe fn new(at: NonNull<u8>) -> Shadow {
        Shadow(at.cast())
    }

    /// Where it is.
    pub(super) fn start(self) -> NonNull<u8> {
        self.0.cast()
    }

    /// The byte of an offset.
    #[inline]
    fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: offsets are below the arena's size, for which the memory is large enough.
        unsafe { self.0.add(offset / GRANULE).as_ref() }
    }

    /// A block is given out. Relaxed, here and below: the hand-off of the block to the thread that
    /// frees it orders the two.
    #[inline]
    pub(super) fn give(&self, offset: usize) {
        self.byte(offset).store(FIRST | GRANULE as u8, Ordering::Relaxed);
    }

    /// A block is given back. The mistake in this access, if there is one.
    #[inline]
    pub(super) fn take(&self, offset: usize) -> Option<Wrong> {
        if !offset.is_multiple_of(GRANULE) {
            return Some(Wrong::Nothing);
        }
        // One of two threads that free a block on different host threads at one time finds what the
        // other wrote.
        match self.byte(offset).swap(FIRST | FREED, Ordering::Relaxed) {
            was if was & (FIRST | FREED) == FIRST => None,
            was if was == FIRST | FREED => Some(Wrong::Twice),
            was => {
                self.byte(offset).store(was, Ordering::Relaxed);
                Some(if was & FREED == 0 { Wrong::Nothing } else { Wrong::Twice })
            }
        }
    }

    /// Records that a block of `size` bytes is allocated. The program uses the first `used` bytes.
    pub(super) fn give_all(&self, offset: usize, used: usize, size: usize) {
        for at in (0..size).step_by(GRANULE) {
            let count = used.saturating_sub(at).min(GRANULE) as u8;
            let value = if count == 0 { BETWEEN } else { count };
            self.byte(offset + at).store(value, Ordering::Relaxed);
        }
        self.byte(offset).fetch_or(FIRST, Ordering::Relaxed);
    }

    /// A block of `size` bytes was given back, and [taken](Shadow::take).
    pub(crate) fn take_all(&self, offset: usize, size: usize) {
        for at in (GRANULE..size).step_by(GRANULE) {
            self.byte(offset + at).store(FREED, Ordering::Relaxed);
        }
    }

    /// The state at an offset, on a machine that checks accesses.
    #[inline]
    pub(crate) fn find(&self, offset: usize) -> Found {
        let value = self.byte(offset).load(Ordering::Relaxed);
        match value & (COUNT | FREED) {
            count @ 1..=COUNT if offset % GRANULE < count as usize => Found::Live,
            FREED.. => Found::Freed,
            _ => Found::Nothing,
        }
    }

    /// The offset of the block that an offset is in or behind, from `lowest` on.
    pub(crate) fn block(&self, offset: usize, lowest: usize) -> Option<usize> {
        let granules = (lowest / GRANULE..=offset / GRANULE).rev();
        let mut blocks = granules.map(|granule| granule * GRANULE);
        blocks.find(|&at| self.byte(at).load(Ordering::Relaxed) & FIRST != 0)
    }
}

/// Fills a block that was freed.
///
/// # Safety
///
/// The block has that many bytes, and belongs to no thread.
pub(crate) unsafe fn poison(block: *mut u8, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { block.write_bytes(POISON, size.min(MOST_POISON)) };
}

/// The first byte of a freed block that was written since.
///
/// # Safety
///
/// The block has that many bytes, and belongs to no thread.
pub(crate) unsafe fn spoilt(block: *const u8, size: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { core::slice::from_raw_parts(block, size.min(MOST_POISON)) };
    bytes.iter().position(|&byte| byte != POISON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_knows_blocks_and_their_ends() {
        let mut memory = vec![0_u8; 64];
        // SAFETY: zeroed, and large enough for the offsets below.
        let shadow = unsafe { Shadow::new(NonNull::new(memory.as_mut_ptr()).unwrap()) };
        assert_eq!((shadow.find(16), shadow.take(16)), (Found::Nothing, Some(Wrong::Nothing)));
        shadow.give_all(32, 20, 48);
        let found = [31, 32, 51, 52, 79, 80].map(|offset| shadow.find(offset));
        let (live, nothing) = (Found::Live, Found::Nothing);
        assert_eq!(found, [nothing, live, live, nothing, nothing, nothing]);
        assert_eq!([32, 50, 79].map(|offset| shadow.block(offset, 0)), [Some(32); 3]);
        assert_eq!(shadow.block(31, 0), None);
        // Neither inside of it nor in the middle of 16 bytes does a block begin.
        assert_eq!([48, 40].map(|offset| shadow.take(offset)), [Some(Wrong::Nothing); 2]);
        assert_eq!(shadow.take(32), None);
        shadow.take_all(32, 48);
        assert_eq!([32, 51, 79].map(|offset| shadow.find(offset)), [Found::Freed; 3]);
        assert_eq!([32, 48].map(|offset| shadow.take(offset)), [Some(Wrong::Twice); 2]);
        shadow.give(32);
        assert_eq!((shadow.take(32), shadow.take(32)), (None, Some(Wrong::Twice)));
    }

    #[test]
    fn a_write_to_freed_memory_is_seen() {
        let mut block = [0_u8; 100];
        let at = block.as_mut_ptr();
        // SAFETY: that many bytes, and no one's.
        unsafe {
            poison(at, 100);
            assert_eq!(spoilt(at, 100), None);
            at.add(77).write(1);
            assert_eq!(spoilt(at, 100), Some(77));
        }
    }
}
