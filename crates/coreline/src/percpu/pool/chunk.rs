//! A chunk: one stride of memory for each index, and its metadata.
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `HUGE` | no huge page fits | address space | `a_pool_with_huge_pages_is_aligned_to_them` |

use core::alloc::Layout;
use core::ops::Range;
use core::ptr::NonNull;

use coreline_topology::NodeId;
use coreline_world::{Lacking, MapError, World};

use super::granules::{GRANULE, Granules, granules};

/// The node that an index's slots should lie on; `None`: that of the first user.
pub(super) type NodeOf = dyn Fn(usize) -> Option<NodeId> + Send + Sync;

/// The alignment of a large chunk, so that it can have huge pages.
const HUGE: usize = 2 << 20;

/// Memory for `indexes + 1` slots of one stride each. Written only under the pool's lock.
///
/// It lies behind its slots, in the same mapping, and so does the map: a pool grows without the
/// global allocator, and may grow in a signal handler.
pub(super) struct Chunk {
    memory: NonNull<u8>,
    pub(super) layout: Layout,
    /// The bytes of a stride that are taken.
    granules: Granules,
    /// How many items there are.
    pub(super) live: usize,
    /// The chunk's place in the pool's lists of chunks with room.
    pub(super) room: Room,
    /// The pool's list of all chunks. A forked child finds them by `next`, and `before` may be torn
    /// until [`settle`](Chunk::settle).
    pub(super) next: Option<NonNull<Chunk>>,
    pub(super) before: Option<NonNull<Chunk>>,
    /// The reason why a part of it could not be placed or could not be given huge pages, if there
    /// is one.
    pub(super) lacking: Option<Lacking>,
}

/// A chunk's place in the lists of [`Rooms`](super::rooms::Rooms).
pub(super) struct Room {
    /// The class of the largest item that may have a place in the chunk; `None`: no granule is
    /// free, and the chunk is in no list.
    pub(super) class: Option<u8>,
    pub(super) before: Option<NonNull<Chunk>>,
    pub(super) behind: Option<NonNull<Chunk>>,
}

impl Room {
    /// The state of a chunk that is in no list.
    pub(super) const NONE: Room = Room { class: None, before: None, behind: None };

    /// Whether the chunk may have a place for an item of this class.
    pub(super) fn may_have(&self, class: u8) -> bool {
        self.class >= Some(class)
    }
}

impl Chunk {
    /// Maps a chunk, each slot on the node that it should lie on.
    pub(super) fn map<W: World>(
        node_of: &NodeOf,
        indexes: u32,
        huge_pages: bool,
    ) -> Result<NonNull<Chunk>, MapError> {
        let slots = (indexes as usize + 1) * W::STRIDE;
        let words = W::STRIDE / GRANULE / u64::BITS as usize;
        const { assert!(W::STRIDE / GRANULE / 64 <= u16::MAX as usize) };
        let size = slots + size_of::<Chunk>() + words * size_of::<u64>();
        let align = if huge_pages { W::STRIDE.max(HUGE) } else { W::STRIDE };
        let layout = Layout::from_size_align(size, align)
            .expect("a stride is a power of two, and 2^32 of them fit into an address space");
        let memory = W::map(layout)?;
        // SAFETY: just mapped.
        let huge = huge_pages.then(|| unsafe { W::advise_huge(memory, slots) }.err()).flatten();
        let placed = place::<W>(memory, indexes as usize, node_of);
        // SAFETY: behind the slots there is room for both, a stride is a multiple of what they are
        // aligned to, and zeros are words.
        unsafe {
            let chunk = memory.byte_add(slots).cast::<Chunk>();
            let taken = NonNull::slice_from_raw_parts(chunk.add(1).cast(), words);
            let lacking = huge.or(placed);
            chunk.write(Chunk {
                memory,
                layout,
                granules: Granules::new(taken),
                live: 0,
                room: Room::NONE,
                next: None,
                before: None,
                lacking,
            });
            Ok(chunk)
        }
    }

    /// The chunk that has this address in its slot 0, of this many indexes.
    ///
    /// # Safety
    ///
    /// There is such a chunk.
    pub(super) unsafe fn of<W: World>(first: NonNull<u8>, indexes: u32) -> NonNull<Chunk> {
        let offset = first.addr().get() % W::STRIDE;
        // SAFETY: slot 0 begins at a multiple of the stride, and the chunk lies behind the slots.
        unsafe { first.byte_sub(offset).byte_add((indexes as usize + 1) * W::STRIDE).cast() }
    }

    /// Gives all of it back.
    ///
    /// # Safety
    ///
    /// Mapped by [`map`](Chunk::map), and not used any more.
    pub(super) unsafe fn unmap<W: World>(chunk: NonNull<Chunk>) {
        // SAFETY: the caller's promise. The chunk is read out of the memory that goes.
        unsafe {
            let chunk = chunk.read();
            W::unmap(chunk.memory, chunk.layout);
        }
    }

    /// Where slot 0 begins.
    pub(super) fn begin(&self) -> usize {
        self.memory.addr().get()
    }

    /// Takes this many granules, which begin at a multiple of `align`; returns where they lie in
    /// slot 0.
    pub(super) fn take(&mut self, granules: (usize, usize)) -> Option<NonNull<u8>> {
        let begin = self.granules.take(granules)?;
        self.live += 1;
        // SAFETY: an offset in slot 0.
        Some(unsafe { self.memory.byte_add(begin * GRANULE) })
    }

    /// Whether these are bytes of slot 0 of this chunk, and all of them are taken.
    pub(super) fn has(&self, first: NonNull<u8>, layout: Layout) -> bool {
        let (count, _) = granules(layout);
        let offset = first.addr().get().wrapping_sub(self.begin());
        offset.is_multiple_of(GRANULE) && self.granules.are_taken(offset / GRANULE, count)
    }

    /// Gives back bytes that the chunk [has](Chunk::has); returns the largest item, in granules,
    /// that has a place where they were.
    pub(super) fn give_back(&mut self, first: NonNull<u8>, layout: Layout) -> usize {
        let (count, _) = granules(layout);
        let begin = (first.addr().get() - self.begin()) / GRANULE;
        self.granules.give_back(begin, count)
    }

    /// Takes free granules from `from` on that are whole pages, for [`discard`](Chunk::discard).
    pub(super) fn take_pages(&mut self, from: usize) -> Option<Range<usize>> {
        self.granules.take_pages(from)
    }

    /// Gives back granules that [`take_pages`](Chunk::take_pages) took; returns the same as
    /// [`give_back`](Chunk::give_back).
    pub(super) fn give_back_pages(&mut self, pages: Range<usize>) -> usize {
        self.granules.give_back(pages.start, pages.len())
    }

    /// Gives the pages of these granules back to the machine, those of every slot.
    ///
    /// # Safety
    ///
    /// `memory` is that of a chunk of this many indexes, whose pages the caller has taken.
    pub(super) unsafe fn discard<W: World>(memory: NonNull<u8>, indexes: u32, pages: Range<usize>) {
        let (begin, len) = (pages.start * GRANULE, pages.len() * GRANULE);
        for slot in 0..=indexes as usize {
            // SAFETY: in the slot, as the granules are; no other thread has them.
            unsafe { W::discard(memory.byte_add(slot * W::STRIDE + begin), len) };
        }
    }

    /// Where slot 0 begins.
    pub(super) fn memory(&self) -> NonNull<u8> {
        self.memory
    }

    /// The largest item that has a place, in granules.
    pub(super) fn largest(&self) -> usize {
        self.granules.largest()
    }

    /// Whether all of its bytes are free.
    pub(super) fn is_empty(&self) -> bool {
        self.granules.is_empty()
    }

    /// Makes it ready for the lists of a memory that a fork copied.
    pub(super) fn settle(&mut self, before: Option<NonNull<Chunk>>) {
        self.granules.forget();
        self.room = Room::NONE;
        self.before = before;
    }
}

/// Asks for each slot's pages from its node.
fn place<W: World>(memory: NonNull<u8>, indexes: usize, node_of: &NodeOf) -> Option<Lacking> {
    let topology = W::topology();
    if topology.node_count() < 2 {
        return None;
    }
    let mut slots = (0..indexes).map(|index| (index, node_of(index))).peekable();
    while let Some((first, node)) = slots.next() {
        let mut last = first;
        // One call for neighbours of one node.
        while let Some((next, _)) = slots.next_if(|(_, other)| *other == node) {
            last = next;
        }
        let Some(node) = node else { continue };
        let (begin, len) = (first * W::STRIDE, (last - first + 1) * W::STRIDE);
        // A node of CPUs alone has its memory elsewhere.
        let node = topology.nearest_memory(node).unwrap_or(node);
        // SAFETY: every index is below the number for which the memory was mapped.
        let placed = unsafe { W::place(memory.byte_add(begin), len, node) };
        if let Err(lacking) = placed {
            // What is refused for one is refused for all.
            return Some(lacking);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(words: usize) -> Chunk {
        Chunk {
            // As a mapping would be; nothing is read or written there.
            memory: NonNull::without_provenance(core::num::NonZero::new(1 << 20).unwrap()),
            layout: Layout::new::<u64>(),
            // SAFETY: zeros, that nothing else uses.
            granules: unsafe { Granules::new(NonNull::from_mut(Box::leak(vec![0; words].into()))) },
            live: 0,
            room: Room::NONE,
            next: None,
            before: None,
            lacking: None,
        }
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn items_do_not_overlap_and_come_back() {
        let mut chunk = chunk(4);
        let stride = 4 * 64 * GRANULE;
        let sizes = [8, 24, 1, 64, 8, 200, 16, 48, 512];
        let mut items: Vec<_> = sizes
            .iter()
            .map(|&size| (chunk.take(granules(layout(size, 8))).unwrap(), layout(size, 8)))
            .collect();
        items.sort_by_key(|(at, _)| *at);
        let end = |(at, layout): &(NonNull<u8>, Layout)| at.addr().get() + layout.size();
        assert!(items.windows(2).all(|pair| end(&pair[0]) <= pair[1].0.addr().get()), "{items:?}");
        assert!(end(items.last().unwrap()) <= chunk.begin() + stride);
        for (at, layout) in items {
            assert!(chunk.has(at, layout));
            chunk.give_back(at, layout);
            assert!(!chunk.has(at, layout));
        }
        assert!(chunk.granules.is_empty());
    }

    #[test]
    fn a_small_item_is_on_one_line() {
        let mut chunk = chunk(16);
        while let Some(at) = chunk.take(granules(layout(40, 8))) {
            let at = at.addr().get() - chunk.begin();
            assert_eq!(at / 64, (at + 39) / 64);
        }
        assert_eq!(chunk.live, 16 * 64 * GRANULE / 64);
    }

    #[test]
    fn what_is_full_says_so() {
        let mut chunk = chunk(1);
        assert_eq!(chunk.take(granules(layout(513, 8))), None);
        assert_eq!(chunk.take(granules(layout(512, 512))), Some(chunk.memory));
        assert_eq!(chunk.take(granules(layout(1, 1))), None);
    }

    #[test]
    fn what_is_not_there_is_not_had() {
        let mut chunk = chunk(1);
        let at = chunk.take(granules(layout(64, 8))).unwrap();
        let stride = 64 * GRANULE;
        for wrong in [1, 64, stride, usize::MAX / 2] {
            let at = NonNull::new(at.as_ptr().wrapping_add(wrong)).unwrap();
            assert!(!chunk.has(at, layout(64, 8)), "{wrong} bytes behind");
        }
        assert!(!chunk.has(at, layout(65, 8)));
    }
}
