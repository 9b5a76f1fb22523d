//! The simulated program's memory.
//!
//! The cost of a simulated program depends on which words share a cache line. It must not depend on
//! where the host's allocator places an object. So while simulated code runs, allocations use the
//! machine's own arena. There the n-th allocation of a program has the same offset in every run,
//! and the coherence model identifies memory by that offset. [`Allocator`] switches between the
//! two, as the global allocator of the program or test that simulates:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
//! # fn main() {}
//! ```
//!
//! Outside of simulated code, and in programs that never simulate, it is the system's allocator
//! with two additional checks. Each call tests a thread-local pointer. Each free also reads a table
//! that is empty until a machine runs.
//!
//! An arena lies in its machine's place ([`places`]), so its addresses are also the same in every
//! process.
//!
//! Statics of the host's code belong to no program. A `static` or `thread_local!` that allocates at
//! its first use takes the block from the first machine that runs. All later blocks of that machine
//! then have other addresses than in the next run. Simulated programs use `WorldStatic` and
//! `WorldLocal`.
//!
//! # Blocks that outlive their machine
//!
//! A value may leave the machine (the result of a run) and be freed at any later time, on any
//! thread. So the arena counts its live blocks, plus one for the machine, and returns its memory to
//! the system when the count reaches zero. A block freed while its arena is not the thread's
//! current one is counted, but not reused.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::{Cell, RefCell};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::System;

use coreline_world::native::fixed;

use crate::hardware::places::{self, NoPlace, PLACE};
use crate::hardware::shadow::{self, BEHIND, GRANULE, Keeper, Shadow, Wrong};

/// Bytes of an arena. Address space only, of which the host promises no memory: pages that are not
/// touched cost nothing, and a host with less memory than this runs the same programs. Room for ten
/// thousand values of a line each, for each of 384 CPUs.
const ARENA: usize = 512 << 20;

/// Lines of an arena, of 64 bytes.
pub(crate) const LINES: usize = ARENA / 64;

/// The offset in an arena at which blocks begin, after the header. Whole pages.
const HEADER: usize = 4096;

/// Bytes of an arena's shadow, at the end of its place.
const SHADOW: usize = ARENA / GRANULE;

/// The maximum number of threads of a machine that have a stack at one time. It is the number of
/// stacks of 292 KiB that fit after the arena.
pub(super) const MOST_STACKS: usize = 192 * 64;

/// Blocks up to this size come in multiples of 16 bytes; larger ones, and those that are aligned to
/// more, in powers of two.
const SMALL: usize = 1024;

/// Size classes: 64 small ones, then one for each power of two from 32 bytes to the whole arena.
const CLASSES: usize = 64 + 25;

thread_local! {
    /// The arena of the simulated code that runs on this thread now; null while host code runs.
    static CURRENT: Cell<*mut Header> = const { Cell::new(ptr::null_mut()) };
    /// Whether allocations in it are put down, and those since that was asked last.
    static IS_LOGGED: Cell<bool> = const { Cell::new(false) };
    static LOG: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
}

/// From now on, this host thread's allocations in an arena are recorded, or are not recorded.
pub(crate) fn log_allocations(are_logged: bool) {
    IS_LOGGED.set(are_logged);
    LOG.take();
}

/// Calls `f` with the address and size of each block since the last call.
pub(crate) fn take_allocations(mut f: impl FnMut(usize, usize)) {
    LOG.with_borrow_mut(|log| log.drain(..).for_each(|(start, size)| f(start, size)));
}

#[cold]
fn log(block: *mut u8, size: usize) {
    let _host = leave();
    LOG.with_borrow_mut(|log| log.push((block.addr(), size)));
}

/// The first bytes of an arena.
#[repr(C)]
struct Header {
    /// Live blocks, and one for the machine.
    live: AtomicUsize,
    /// Offset of the first byte that was never given out. Like `free`, only the machine's thread
    /// uses it.
    top: Cell<usize>,
    /// Per size class, the list of free blocks; each holds the address of the next.
    free: [Cell<*mut u8>; CLASSES],
    /// Whether a block was asked for that did not fit. As `free`.
    is_full: Cell<bool>,
    /// A bit for each room for a stack, set if it is in use. As `free`.
    stacks: [Cell<u64>; MOST_STACKS / 64],
    /// The first word of `stacks` that may have a bit that is not set.
    first_free: Cell<usize>,
    shadow: Shadow,
    /// Whether a keeper decides which blocks are used again.
    is_kept: Cell<bool>,
}

const _: () = assert!(size_of::<Header>() <= HEADER);

/// The global allocator of programs that simulate. It serves simulated code from its machine's
/// memory of 512 MiB, in which the n-th allocation of a program has the same address in every run.
/// It serves all other code from the system's allocator.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allocator;

// SAFETY: blocks come from `System` or from an arena. An arena's blocks are disjoint (`top` only
// grows, a free block is on one list), large and aligned enough for their class, and stay mapped
// until the last of them is freed. Neither path unwinds or allocates through this allocator.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(arena) = NonNull::new(CURRENT.get()) {
            // SAFETY: `CURRENT` is an arena of this thread that a machine holds.
            if let Some(block) = unsafe { allocate(arena, layout) } {
                return block.as_ptr();
            }
        }
        // SAFETY: the caller's promise about `layout`, passed on.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match arena_of(block) {
            // SAFETY: `block` is a block of this arena; if it is not live, that is noticed.
            Some(arena) => unsafe { free(arena, block, layout) },
            None if places::start_of(block.addr()).is_some() => {
                shadow::mistaken(block.addr(), Wrong::Stack, is_entered());
            }
            // SAFETY: not from an arena, so from `System`, with this layout.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !is_entered() {
            // SAFETY: the caller's promise about `layout`, passed on.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's promise about `layout`, passed on.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: a fresh block of this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !is_entered() && arena_of(block).is_none() {
            // SAFETY: not from an arena, so from `System`; the caller's promise, passed on.
            return unsafe { System.realloc(block, layout, new_size) };
        }
        // SAFETY: the caller promises that the new size makes a layout with the old alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the new size is not zero, by the caller's promise.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            // SAFETY: the old block is live, the new one fresh, and both are that long.
            unsafe {
                new.copy_from_nonoverlapping(block, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
        }
        new
    }
}

/// The size class of a layout, and the size and alignment of its blocks.
fn class(layout: Layout) -> (usize, usize, usize) {
    let size = layout.size().max(16);
    if size <= SMALL && layout.align() <= 16 {
        let size = size.next_multiple_of(16);
        return (size / 16 - 1, size, 16);
    }
    let size = size.max(layout.align()).next_power_of_two();
    // Aligned to their size, up to a page: any block of a class serves any layout of it that asks
    // for no more than a page.
    (64 + (size / 32).ilog2() as usize, size, layout.align().max(size.min(4096)))
}

/// A block, or `None` if the arena is full.
///
/// # Safety
///
/// `arena` is current on this thread.
unsafe fn allocate(arena: NonNull<Header>, layout: Layout) -> Option<NonNull<u8>> {
    // SAFETY: the machine holds the arena.
    let header = unsafe { arena.as_ref() };
    if header.is_kept.get()
        && let Some(keeper) = shadow::keeper()
    {
        return allocate_kept(arena, header, layout, keeper);
    }
    let (class, size, align) = class(layout);
    let Some(list) = header.free.get(class) else {
        header.is_full.set(true);
        return None;
    };
    let head = list.get();
    let block = if !head.is_null() && (head as usize).is_multiple_of(align) {
        // SAFETY: a block on the list is free, at least 16 bytes, and holds the address of the
        // next.
        list.set(unsafe { head.cast::<*mut u8>().read() });
        head
    } else {
        fresh(arena, header, size, align)?
    };
    header.shadow.give(block.addr() - arena.addr().get());
    // Relaxed: a count on its own; the machine's own count keeps it from zero here.
    header.live.fetch_add(1, Ordering::Relaxed);
    if IS_LOGGED.get() {
        log(block, size);
    }
    NonNull::new(block)
}

/// Memory that was never given out; `None` if the arena is full.
fn fresh(arena: NonNull<Header>, header: &Header, size: usize, align: usize) -> Option<*mut u8> {
    let start = header.top.get().next_multiple_of(align);
    if size > ARENA - start.min(ARENA) {
        header.is_full.set(true);
        return None;
    }
    header.top.set(start + size);
    // SAFETY: `start` is inside the arena's one allocation, which `arena` points to all of; a
    // pointer made from `header` would reach no further than the header.
    Some(unsafe { arena.cast::<u8>().as_ptr().add(start) })
}

/// Like [`allocate`], on a machine that checks accesses.
fn allocate_kept(
    arena: NonNull<Header>,
    header: &Header,
    layout: Layout,
    keeper: &Keeper,
) -> Option<NonNull<u8>> {
    let padded = layout.size().saturating_add(BEHIND);
    let Ok(padded) = Layout::from_size_align(padded, layout.align()) else {
        header.is_full.set(true);
        return None;
    };
    let (class, size, align) = class(padded);
    let start = arena.cast::<u8>().as_ptr();
    let block = match (keeper.reuse)(class, align) {
        Some(address) => start.with_addr(address),
        None => fresh(arena, header, size, align)?,
    };
    header.shadow.give_all(block.addr() - start.addr(), layout.size(), size);
    (keeper.made)(block.addr(), layout.size(), class, size);
    // Relaxed: as in `allocate`.
    header.live.fetch_add(1, Ordering::Relaxed);
    if IS_LOGGED.get() {
        log(block, size);
    }
    NonNull::new(block)
}

/// Frees a block of an arena.
///
/// # Safety
///
/// `block` lies in `arena` and has this layout; if it is not live, that is noticed.
unsafe fn free(arena: *mut Header, block: *mut u8, layout: Layout) {
    // SAFETY: the arena is mapped while it has a place, which was asked for.
    let header = unsafe { &*arena };
    let is_current = CURRENT.get() == arena;
    let offset = block.addr() - arena.addr();
    if let Some(wrong) = header.shadow.take(offset) {
        shadow::mistaken(block.addr(), wrong, is_current);
    }
    if is_current
        && header.is_kept.get()
        && let Some(keeper) = shadow::keeper()
    {
        (keeper.freed)(block.addr(), layout.size());
    } else if is_current {
        let (class, ..) = class(layout);
        // SAFETY: the arena is current on this thread, so no other thread uses its lists; the
        // caller has given the block up, and it has at least 16 bytes.
        unsafe {
            let list = &(&(*arena).free)[class];
            // The next one to get the block may use all of it, not only what this one asked for.
            let block = arena.cast::<u8>().with_addr(block.addr());
            block.cast::<*mut u8>().write(list.get());
            list.set(block);
        }
    }
    // SAFETY: the block held one count until now.
    unsafe { release(arena) };
}

/// Gives up one count of an arena, and the arena with the last.
///
/// # Safety
///
/// The caller owns a count.
unsafe fn release(arena: *mut Header) {
    // AcqRel: the Release half pairs with the Acquire half of the release that drops the last
    // count, so that all uses of the arena's memory come before its return to the system. SAFETY:
    // the caller's count keeps the arena mapped.
    if unsafe { (*arena).live.fetch_sub(1, Ordering::AcqRel) } > 1 {
        return;
    }
    if let Some(start) = NonNull::new(arena.cast()) {
        // SAFETY: the header is still there.
        let shadow = unsafe { (*arena).shadow }.start();
        // SAFETY: mapped so in `Arena::new`, and nothing points into them any more.
        unsafe {
            fixed::unmap(shadow, SHADOW);
            fixed::unmap(start, ARENA);
        }
        places::free(start.addr().get());
    }
}

/// The arena that an address lies in.
#[inline]
fn arena_of(block: *mut u8) -> Option<*mut Header> {
    let start = places::start_of(block.addr())?;
    // Exposed in `Arena::new`: a pointer to the whole arena, which the block's own is not.
    (block.addr() - start < ARENA).then(|| ptr::with_exposed_provenance_mut(start))
}

/// A machine's hold on its arena.
pub(crate) struct Arena {
    start: NonNull<Header>,
}

impl Arena {
    /// A fresh arena, in the place that `home` says.
    pub(crate) fn new(home: Option<u64>) -> Result<Arena, NoPlace> {
        let (start, shadow) = places::claim(home, |at| {
            let start = fixed::map(at, ARENA, 0)?;
            match fixed::map(at.saturating_add(PLACE - SHADOW), SHADOW, 0) {
                Ok(shadow) => Ok((start.cast::<Header>(), shadow)),
                Err(error) => {
                    // SAFETY: mapped just now, and not used.
                    unsafe { fixed::unmap(start, ARENA) };
                    Err(error)
                }
            }
        })?;
        let header = Header {
            live: AtomicUsize::new(1),
            top: Cell::new(HEADER),
            free: [const { Cell::new(ptr::null_mut()) }; CLASSES],
            is_full: Cell::new(false),
            stacks: [const { Cell::new(0) }; MOST_STACKS / 64],
            first_free: Cell::new(0),
            // SAFETY: fresh memory, for a byte of each granule; it goes with the arena.
            shadow: unsafe { Shadow::new(shadow) },
            is_kept: Cell::new(false),
        };
        // SAFETY: fresh memory, large enough and aligned.
        unsafe { start.write(header) };
        start.as_ptr().expose_provenance();
        Ok(Arena { start })
    }

    /// The lowest room for a stack of `size` bytes that is free; all stacks of a machine have one
    /// size. `None` if all are in use.
    pub(super) fn slot(&self, size: usize) -> Option<Slot> {
        // SAFETY: the machine's count keeps the header alive.
        let header = unsafe { self.start.as_ref() };
        let mut words = header.stacks.iter().enumerate().skip(header.first_free.get());
        let (word, bits) = words.find(|(_, bits)| bits.get() != u64::MAX)?;
        let bit = bits.get().trailing_ones();
        let offset = ARENA + (word * 64 + bit as usize) * size;
        if offset + size > PLACE - SHADOW {
            return None;
        }
        header.first_free.set(word);
        bits.set(bits.get() | 1 << bit);
        Some(Slot { arena: self.start, word, bit, offset })
    }

    /// A count of its own, which keeps the place as a block does.
    pub(super) fn hold(&self) -> Hold {
        // Relaxed: as in `allocate`. SAFETY: the machine's count keeps the header alive.
        unsafe { self.start.as_ref() }.live.fetch_add(1, Ordering::Relaxed);
        Hold(self.start)
    }

    /// The way in, as a value that does not borrow the arena.
    pub(crate) fn entry(&self) -> Entry {
        Entry(self.start)
    }

    /// From now on the keeper decides which blocks are used again.
    pub(crate) fn keep(&self) {
        // SAFETY: the machine's count keeps the header alive.
        unsafe { self.start.as_ref() }.is_kept.set(true);
    }

    /// The shadow of its memory.
    pub(crate) fn shadow(&self) -> Shadow {
        // SAFETY: the machine's count keeps the header alive.
        unsafe { self.start.as_ref() }.shadow
    }

    /// The offset of an address that is a block's.
    pub(crate) fn to_offset(&self, address: usize) -> usize {
        address - self.start.addr().get()
    }

    /// The address of the block that an offset is in or behind.
    pub(crate) fn block(&self, offset: usize) -> Option<usize> {
        Some(self.start.addr().get() + self.shadow().block(offset, HEADER)?)
    }

    /// A pointer to a block, by its address.
    pub(crate) fn pointer(&self, address: usize) -> *mut u8 {
        self.start.cast::<u8>().as_ptr().with_addr(address)
    }

    /// Whether the program has asked for more than there is.
    pub(crate) fn is_full(&self) -> bool {
        // SAFETY: the machine's count keeps the header alive.
        unsafe { self.start.as_ref() }.is_full.get()
    }

    /// The address of an offset.
    pub(crate) fn address(&self, offset: u64) -> usize {
        self.start.addr().get() + offset as usize
    }

    /// The offset of an address in the arena's blocks, if it is one.
    pub(crate) fn offset(&self, address: usize) -> Option<u64> {
        let offset = address.checked_sub(self.start.addr().get())?;
        // SAFETY: the machine's count keeps the header alive.
        let top = unsafe { self.start.as_ref() }.top.get();
        (HEADER..top).contains(&offset).then_some(offset as u64)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: gives up the machine's count.
        places::leave(self.start.addr().get(), || unsafe { release(self.start.as_ptr()) });
    }
}

/// Keeps an arena, and with it the place.
pub(super) struct Hold(NonNull<Header>);

impl Drop for Hold {
    fn drop(&mut self) {
        // SAFETY: gives up the count of `Arena::hold`.
        unsafe { release(self.0.as_ptr()) };
    }
}

/// Room for a stack after the arena of a machine. Used on that machine's thread alone.
pub(super) struct Slot {
    arena: NonNull<Header>,
    word: usize,
    bit: u32,
    offset: usize,
}

impl Slot {
    /// Where the room begins.
    pub(super) fn address(&self) -> usize {
        self.arena.addr().get() + self.offset
    }

    /// The room is free again, for the next.
    pub(super) fn give_back(&self) {
        // SAFETY: a stack's `Hold`, or the machine that makes one, keeps the header alive.
        let header = unsafe { self.arena.as_ref() };
        let bits = &header.stacks[self.word];
        bits.set(bits.get() & !(1 << self.bit));
        header.first_free.set(header.first_free.get().min(self.word));
    }
}

/// The way into an arena, valid as long as its machine.
pub(crate) struct Entry(NonNull<Header>);

impl Entry {
    /// Serves this thread's allocations from the arena until the guard drops.
    pub(crate) fn enter(self) -> Entered {
        Entered { before: CURRENT.replace(self.0.as_ptr()) }
    }
}

/// Whether this thread's allocations come from an arena now: whether it runs simulated code.
pub(crate) fn is_entered() -> bool {
    !CURRENT.get().is_null()
}

/// Restores the thread's previous setting for allocations.
pub(crate) struct Entered {
    before: *mut Header,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// Serves this thread's allocations from the system until the guard drops: for the engine's own
/// memory.
pub(crate) fn leave() -> Entered {
    Entered { before: CURRENT.replace(ptr::null_mut()) }
}

#[cfg(test)]
mod tests;
