//! [`Rooms`]: an index that finds a chunk with room without searching all chunks of a pool.
//!
//! Each chunk is in a list by the *class* of the largest item that may fit into it. A bit for each
//! list records whether it is not empty. An allocation searches the first chunks in the list of its
//! class and in higher ones. A chunk may have no place for the item, for three reasons. The type
//! may need more alignment than others of its size. The item may be too large by less than a class.
//! Or the place may have been taken since. Such a chunk is measured, and moves to the end of the
//! list where it belongs. A hole between items counts as the largest aligned item that fits there,
//! and not by its length. So no chunk is searched for useless holes. A free moves its chunk into
//! the list of the largest item that it makes room for, if that is higher. Each step down is
//! amortised by an earlier step up. Of chunks that stay in their list, an allocation searches at
//! most [`TRIES`], and the next one searches others. So neither cost depends on the number of
//! chunks. (The kernel's `pcpu_chunk_lists` are similar.)
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `TRIES` | a chunk is mapped too soon | a search is long | `a_search_tries_four_chunks_..` |
//!
//! **Fork**: a thread that does not exist in the child may have been changing the lists. So the
//! lists belong to one generation of the memory. The first thread of another generation rebuilds
//! them from the pool's list of all chunks.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::chunk::{Chunk, Room};
use super::granules::EXACT;

/// The maximum number of chunks in their proper list that a take examines without success.
pub(super) const TRIES: usize = 4;

/// How many classes there are: as many as bits in a word.
pub(super) const CLASSES: u8 = 64;

/// The class of an item of this many granules. Exact up to [`EXACT`]; above, four for each
/// doubling, so that a whole stride of up to 8,192 granules has a class of its own.
pub(super) const fn class_of(granules: usize) -> u8 {
    debug_assert!(granules > 0);
    if granules <= EXACT {
        return granules as u8 - 1;
    }
    let log = granules.ilog2();
    let class = EXACT as u32 + (log - 5) * 4 + (granules >> (log - 2) & 3) as u32;
    let last = CLASSES as u32 - 1;
    if class < last { class as u8 } else { last as u8 }
}

/// See the module. All functions are for the holder of the pool's lock, and all chunks are the
/// pool's, which live as long as they are in its list.
pub(super) struct Rooms {
    first: [Option<NonNull<Chunk>>; CLASSES as usize],
    last: [Option<NonNull<Chunk>>; CLASSES as usize],
    /// A bit for each list that has a chunk.
    some: u64,
    /// The generation of the memory in which the lists were made; 0: they were not.
    generation: u32,
}

impl Rooms {
    /// Without chunks.
    pub(super) const NEW: Rooms = {
        let none = [None; CLASSES as usize];
        Rooms { first: none, last: none, some: 0, generation: 0 }
    };

    /// Whether the lists are of this generation. Otherwise they are emptied, and the caller lists
    /// all chunks again.
    pub(super) fn are_of(&mut self, generation: u32) -> bool {
        let before = self.generation;
        if before != generation {
            *self = Rooms { generation, ..Rooms::NEW };
        }
        before == generation
    }

    /// The first class from this one on that has chunks.
    pub(super) fn next(&self, class: u8) -> Option<u8> {
        let higher = self.some.checked_shr(u32::from(class)).filter(|higher| *higher != 0)?;
        Some(class + higher.trailing_zeros() as u8)
    }

    /// The first chunk of a list.
    pub(super) fn first(&self, class: u8) -> Option<NonNull<Chunk>> {
        self.first[usize::from(class)]
    }

    /// Says that a chunk that was looked at has a place for this many granules at most, and returns
    /// whether it was taken for one with more room.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and the chunk is the pool's.
    pub(super) unsafe fn measured(&mut self, chunk: NonNull<Chunk>, largest: usize) -> bool {
        let class = (largest > 0).then(|| class_of(largest));
        // SAFETY: the caller's promise.
        unsafe {
            let before = (*chunk.as_ptr()).room.class;
            self.unlist(chunk);
            if let Some(class) = class {
                self.list(chunk, class, false);
            }
            class < before
        }
    }

    /// Says that a chunk has a place for an item of this class.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and the chunk is the pool's.
    pub(super) unsafe fn raise(&mut self, chunk: NonNull<Chunk>, class: u8) {
        // SAFETY: the caller's promise.
        unsafe {
            if (*chunk.as_ptr()).room.class < Some(class) {
                self.unlist(chunk);
                self.list(chunk, class, true);
            }
        }
    }

    /// Gives back bytes that a chunk [has](Chunk::has).
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and the chunk is the pool's.
    pub(super) unsafe fn give_back(
        &mut self,
        mut chunk: NonNull<Chunk>,
        first: NonNull<u8>,
        layout: Layout,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let largest = chunk.as_mut().give_back(first, layout);
            self.raise(chunk, class_of(largest));
        }
    }

    /// Puts a chunk that is in no list into that of a class, as the first or the last.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and the chunk is the pool's.
    unsafe fn list(&mut self, chunk: NonNull<Chunk>, class: u8, as_first: bool) {
        let at = usize::from(class);
        let (before, behind) =
            if as_first { (None, self.first[at]) } else { (self.last[at], None) };
        // SAFETY: the caller's promise.
        unsafe { (*chunk.as_ptr()).room = Room { class: Some(class), before, behind } };
        // SAFETY: the chunk's neighbours are the pool's, too.
        unsafe { self.link(at, before, Some(chunk), behind, Some(chunk)) };
        self.some |= 1 << class;
    }

    /// Takes a chunk out of its list, if it is in one.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and the chunk is the pool's.
    pub(super) unsafe fn unlist(&mut self, chunk: NonNull<Chunk>) {
        // SAFETY: the caller's promise.
        let room = unsafe { core::mem::replace(&mut (*chunk.as_ptr()).room, Room::NONE) };
        let Room { class: Some(class), before, behind } = room else { return };
        let at = usize::from(class);
        // SAFETY: the chunk's neighbours are the pool's, too.
        unsafe { self.link(at, before, behind, behind, before) };
        if self.first[at].is_none() {
            self.some &= !(1 << class);
        }
    }

    /// Sets what comes behind `before`, or first, and what comes before `behind`, or last.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and the chunks are the pool's.
    unsafe fn link(
        &mut self,
        at: usize,
        before: Option<NonNull<Chunk>>,
        next: Option<NonNull<Chunk>>,
        behind: Option<NonNull<Chunk>>,
        last: Option<NonNull<Chunk>>,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match before {
                Some(before) => (*before.as_ptr()).room.behind = next,
                None => self.first[at] = next,
            }
            match behind {
                Some(behind) => (*behind.as_ptr()).room.before = last,
                None => self.last[at] = last,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_item_is_of_no_lower_class() {
        let classes: Vec<u8> = (1..=1 << 13).map(class_of).collect();
        assert!(classes.is_sorted());
        assert_eq!(classes[..32], (0..32).collect::<Vec<u8>>());
        assert_eq!((classes[32], classes[38], classes[39]), (31, 31, 32), "of 33, 39 and 40");
        let last = classes.last();
        assert_eq!(last, Some(&63));
        assert_eq!(classes.iter().filter(|class| Some(*class) == last).count(), 1);
    }
}
