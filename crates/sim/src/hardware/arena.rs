//! The simulated program's memory.
//!
//! Which words share a cache line decides what a simulated program costs, and where the host's
//! allocator happens to put an object must not. So while simulated code runs, allocations come from
//! the machine's own arena, where the n-th allocation of a program has the same offset in every
//! run; the coherence model knows memory by that offset. [`Allocator`] does the switching, as the
//! global allocator of the program or test that simulates:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
//! # fn main() {}
//! ```
//!
//! Outside of simulated code, and in programs that never simulate, it is the system's allocator
//! behind one test of a thread-local pointer, and at each free one look at a table that is empty
//! until a machine runs.
//!
//! Statics of the host's code belong to no program: a `static` or `thread_local!` that allocates at
//! its first use takes the block from whichever machine runs first, and all later blocks of that
//! machine lie elsewhere than in the next run. Simulated programs use `WorldStatic` and
//! `WorldLocal`.
//!
//! # Blocks that outlive their machine
//!
//! A value may leave the machine (the result of a run) and be freed at any later time, on any
//! thread. So the arena counts its live blocks, plus one for the machine, and returns its memory to
//! the system when the count reaches zero. A block freed while its arena is not the thread's
//! current one is counted, but not used again.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::System;

use coreline_world::{MapError, Memory, Native};

/// Bytes of an arena, and its alignment: the arena of an address is the address with the low bits
/// cut off. Address space only, of which the host promises no memory: pages that are not touched
/// cost nothing, and a host with less memory than this runs the same programs. Room for ten
/// thousand values of a line each, for each of 384 CPUs.
const ARENA: usize = 512 << 20;

/// Lines of an arena, of 64 bytes.
pub(crate) const LINES: usize = ARENA / 64;

/// Where blocks begin in an arena, behind the header. Whole pages.
const HEADER: usize = 4096;

/// Entries of [`ARENAS`]: room for the machines that run at one time, for results that outlive
/// theirs, and for a long search through seeds that fail, since a failed machine's threads leak
/// what they own.
const MOST_ARENAS: usize = 1 << 16;

/// How far an arena's entry may lie from its hash. Bounds what `dealloc` looks at.
const PROBES: usize = 16;

/// Blocks up to this size come in multiples of 16 bytes; larger ones, and those that are aligned to
/// more, in powers of two.
const SMALL: usize = 1024;

/// Size classes: 64 small ones, then one for each power of two from 32 bytes to the whole arena.
const CLASSES: usize = 64 + 25;

/// The addresses of all arenas with live blocks, for `dealloc`, which knows nothing but an address.
///
/// Open addressing by address: an arena's entry lies at its hash or behind, with no empty entry in
/// between at the time when it was entered; entries that were removed read [`GONE`].
static ARENAS: [AtomicUsize; MOST_ARENAS] = [const { AtomicUsize::new(0) }; MOST_ARENAS];

/// An entry of [`ARENAS`] that was used and is free. Not the address of any arena.
const GONE: usize = 1;

thread_local! {
    /// The arena of the simulated code that runs on this thread now; null while host code runs.
    static CURRENT: Cell<*mut Header> = const { Cell::new(ptr::null_mut()) };
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
}

const _: () = assert!(size_of::<Header>() <= HEADER);

/// The global allocator of programs that simulate: serves simulated code from its machine's memory,
/// 512 MiB in which the n-th allocation of a program has the same place in every run, and all other
/// code from the system.
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
            // SAFETY: `block` is a live block of this arena, by the caller's promise.
            Some(arena) => unsafe { free(arena, block, layout) },
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

/// The size class of a layout, and what its blocks measure: size and alignment.
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
    let (class, size, align) = class(layout);
    // SAFETY: the machine holds the arena.
    let header = unsafe { arena.as_ref() };
    let list = header.free.get(class)?;
    let head = list.get();
    let block = if !head.is_null() && (head as usize).is_multiple_of(align) {
        // SAFETY: a block on the list is free, at least 16 bytes, and holds the address of the
        // next.
        list.set(unsafe { head.cast::<*mut u8>().read() });
        head
    } else {
        let start = header.top.get().next_multiple_of(align);
        if size > ARENA - start.min(ARENA) {
            return None;
        }
        header.top.set(start + size);
        // SAFETY: `start` is inside the arena's one allocation, which `arena` points to all of; a
        // pointer made from `header` would reach no further than the header.
        unsafe { arena.cast::<u8>().as_ptr().add(start) }
    };
    // Relaxed: a count on its own; the machine's own count keeps it from zero here.
    header.live.fetch_add(1, Ordering::Relaxed);
    NonNull::new(block)
}

/// Frees a block of an arena.
///
/// # Safety
///
/// `block` is live, lies in `arena` and has this layout.
unsafe fn free(arena: *mut Header, block: *mut u8, layout: Layout) {
    if CURRENT.get() == arena {
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
    let address = arena as usize;
    for step in 0..PROBES {
        // Relaxed: no other thread changes this entry, and an arena without live blocks has no
        // address to look up.
        let entry = &ARENAS[slot(address, step)];
        if entry.load(Ordering::Relaxed) == address {
            entry.store(GONE, Ordering::Relaxed);
            break;
        }
    }
    if let Some(start) = NonNull::new(arena.cast()) {
        // SAFETY: mapped so in `Arena::new`, and nothing points into it any more.
        unsafe { Native::unmap(start, layout()) };
    }
}

fn layout() -> Layout {
    // Both are powers of two, checked where they are written.
    Layout::from_size_align(ARENA, ARENA).expect("the arena's size is a power of two")
}

fn slot(address: usize, step: usize) -> usize {
    (address / ARENA + step) % MOST_ARENAS
}

/// The arena that an address lies in.
fn arena_of(block: *mut u8) -> Option<*mut Header> {
    let start = block.addr() & !(ARENA - 1);
    for step in 0..PROBES {
        // Relaxed: the freeing thread got the address from the allocating one, after the arena was
        // entered here; that hand-over orders the two.
        match ARENAS[slot(start, step)].load(Ordering::Relaxed) {
            0 => return None,
            // Exposed in `Arena::new`: a pointer to the whole arena, which the block's own is not.
            entry if entry == start => return Some(ptr::with_exposed_provenance_mut(start)),
            _ => {}
        }
    }
    None
}

/// Why there is no arena.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoArena {
    /// The host has no address space left. Twice as much, so that there is an aligned part.
    #[error(
        "its arena takes {} MiB of address space, and as much again while it is made: {}; raise \
         the limit (ulimit -v), or run fewer machines that fail, as those keep theirs",
        ARENA >> 20, .0.why
    )]
    Memory(#[from] MapError),
    /// [`ARENAS`] has no room.
    #[error(
        "more than {MOST_ARENAS} arenas are in use, most of them by machines that failed, which \
         keep theirs: run them in several processes"
    )]
    Table,
}

/// A machine's hold on its arena.
pub(crate) struct Arena {
    start: NonNull<Header>,
}

impl Arena {
    /// A fresh arena.
    pub(crate) fn new() -> Result<Arena, NoArena> {
        let start = Native::map(layout())?.cast::<Header>();
        let header = Header {
            live: AtomicUsize::new(1),
            top: Cell::new(HEADER),
            free: [const { Cell::new(ptr::null_mut()) }; CLASSES],
        };
        // SAFETY: fresh memory, large enough and aligned.
        unsafe { start.write(header) };
        let address = start.as_ptr().expose_provenance();
        let entered = (0..PROBES).any(|step| {
            let entry = &ARENAS[slot(address, step)];
            // Relaxed: see `arena_of`.
            [0, GONE].into_iter().any(|free| {
                entry.compare_exchange(free, address, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            })
        });
        if !entered {
            // SAFETY: mapped just above with this layout, and its address was not published.
            unsafe { Native::unmap(start.cast(), layout()) };
            return Err(NoArena::Table);
        }
        Ok(Arena { start })
    }

    /// The way in, as a value that does not borrow the arena.
    pub(crate) fn entry(&self) -> Entry {
        Entry(self.start)
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
        unsafe { release(self.start.as_ptr()) };
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

/// Restores the thread's allocations to what they were before.
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
mod tests {
    use super::*;

    fn allocate_in(arena: &Arena, size: usize, align: usize) -> (*mut u8, Layout) {
        let layout = Layout::from_size_align(size, align).unwrap();
        let _inside = arena.entry().enter();
        // SAFETY: the size is not zero.
        (unsafe { Allocator.alloc(layout) }, layout)
    }

    fn free_in(arena: Option<&Arena>, (block, layout): (*mut u8, Layout)) {
        let _inside = arena.map(|arena| arena.entry().enter());
        // SAFETY: allocated by `allocate_in` with this layout and freed once.
        unsafe { Allocator.dealloc(block, layout) };
    }

    #[test]
    fn the_same_requests_get_the_same_offsets() {
        let offsets = || {
            let arena = Arena::new().unwrap();
            let sizes = [(1, 1), (64, 64), (24, 8), (5000, 8), (1 << 20, 4096), (100, 128)];
            let blocks = sizes.map(|(size, align)| allocate_in(&arena, size, align));
            let offsets = blocks.map(|(block, layout)| {
                assert!(block.addr().is_multiple_of(layout.align()));
                arena.offset(block.addr()).unwrap()
            });
            blocks.into_iter().for_each(|block| free_in(Some(&arena), block));
            offsets
        };
        assert_eq!(offsets(), offsets());
    }

    #[test]
    fn blocks_are_disjoint_and_used_again() {
        let arena = Arena::new().unwrap();
        let blocks: Vec<_> = (1..200).map(|n| allocate_in(&arena, n * 7, 8)).collect();
        let mut ranges: Vec<_> =
            blocks.iter().map(|(block, layout)| (block.addr(), layout.size())).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));

        let again = blocks[10];
        free_in(Some(&arena), again);
        assert_eq!(allocate_in(&arena, again.1.size(), 8).0, again.0);
    }

    #[test]
    fn a_small_block_of_large_alignment_takes_its_size() {
        let arena = Arena::new().unwrap();
        let blocks: Vec<_> = (0..100).map(|_| allocate_in(&arena, 64, 64)).collect();
        assert!(blocks.windows(2).all(|pair| pair[0].0.addr() + 64 == pair[1].0.addr()));
    }

    #[test]
    fn a_block_changes_its_size_and_owner_and_keeps_its_bytes() {
        let arena = Arena::new().unwrap();
        let (mut block, mut layout) = allocate_in(&arena, 1, 8);
        // SAFETY: live, and one byte long.
        unsafe { block.write(7) };
        for size in [10, 100, 5000, 3] {
            for inside in [true, false, false] {
                let _inside = inside.then(|| arena.entry().enter());
                // SAFETY: the block is live and has this layout, now and after.
                unsafe {
                    block = Allocator.realloc(block, layout, size);
                    layout = Layout::from_size_align_unchecked(size, 8);
                    assert_eq!(block.read(), 7);
                }
                assert_eq!(arena.offset(block.addr()).is_some(), inside);
            }
        }
        free_in(None, (block, layout));
    }

    #[test]
    fn a_zeroed_block_is_zero_though_used_before() {
        let arena = Arena::new().unwrap();
        for inside in [true, false] {
            let _inside = inside.then(|| arena.entry().enter());
            let layout = Layout::from_size_align(100, 8).unwrap();
            for _ in 0..2 {
                // SAFETY: the size is not zero; the block is written and read within it and freed
                // once.
                unsafe {
                    let block = Allocator.alloc_zeroed(layout);
                    assert!((0..100).all(|byte| block.add(byte).read() == 0));
                    block.write_bytes(1, 100);
                    Allocator.dealloc(block, layout);
                }
            }
        }
    }

    #[test]
    fn a_block_may_outlive_its_machine_and_its_thread() {
        let arena = Arena::new().unwrap();
        let (block, layout) = allocate_in(&arena, 4096, 8);
        drop(arena);
        // SAFETY: still live: it was not freed.
        unsafe { block.write_bytes(7, 4096) };
        let address = block.expose_provenance();
        std::thread::spawn(move || {
            let block = ptr::with_exposed_provenance_mut(address);
            assert!(arena_of(block).is_some());
            free_in(None, (block, layout));
            assert!(arena_of(block).is_none());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_host_promises_no_memory_for_an_arena() {
        let read = |path| std::fs::read_to_string(path).unwrap();
        if read("/proc/sys/vm/overcommit_memory").trim() == "2" {
            // This host promises all that is mapped.
            return;
        }
        let arena = Arena::new().unwrap();
        // The lines of a mapping begin with its addresses, and end with its flags.
        let mut maps = String::new();
        for line in read("/proc/self/smaps").lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bounds = range.map(|(begin, end)| {
                [begin, end].map(|bound| usize::from_str_radix(bound, 16).unwrap_or(0))
            });
            match (bounds, line.strip_prefix("VmFlags:")) {
                (Some([begin, end]), _) => {
                    let found = (begin..end).contains(&arena.address(0));
                    maps = if found { line.to_owned() } else { String::new() };
                }
                (None, Some(flags)) if !maps.is_empty() => {
                    // "No swap space is reserved", in proc(5)'s words.
                    return assert!(flags.split(' ').any(|flag| flag == "nr"), "{maps}:{flags}");
                }
                _ => {}
            }
        }
        panic!("the arena is in no mapping");
    }

    #[test]
    fn a_full_arena_falls_back_to_the_system() {
        let arena = Arena::new().unwrap();
        let huge = allocate_in(&arena, ARENA, 8);
        assert!(!huge.0.is_null());
        assert_eq!(arena.offset(huge.0.addr()), None);
        free_in(Some(&arena), huge);
    }
}
