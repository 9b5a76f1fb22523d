//! [`State`]: the chunks of a pool, and the index of those with room.
//!
//! # Memory that goes back
//!
//! [`trim`](super::PerCpuPool::trim) unmaps the chunks that are completely free. It removes one
//! chunk from all lists under the lock, and unmaps it afterwards. Then no thread can find the
//! chunk, and none has an item of it. No section runs there either, because no thread uses freed
//! items. The map decides whether a chunk is free, and `live` does not: a thread sets the bits of
//! the map before it knows the address.
//!
//! **Fork**: one store removes a chunk from the list of all chunks. The chunk is unmapped only
//! after that store. In the other order, a child could find a chunk that is not mapped:
//!
//! ```text
//! Thread 1: unmaps a chunk of its list
//! Thread 2: forks; the child allocates, and looks at the chunk's map
//! ```
//!
//! A child that is forked between the two loses the chunk's address space.
//!
//! Then `trim` discards free pages in the other chunks. A thread takes the pages like an item.
//! Without the lock, it returns their memory in every slot to the machine. Then it gives the pages
//! back to the pool. So no other thread gets an item there meanwhile, and the chunk stays mapped:
//!
//! ```text
//! Thread 1: finds free pages
//! Thread 2: allocates an item there, and writes to it
//! Thread 1: discards the pages: the item is zeros
//! ```
//!
//! A child that is forked meanwhile loses these bytes.

use core::alloc::Layout;
use core::ops::Range;
use core::ptr::{self, NonNull};

use coreline_world::{Ordering, Word, World};

use super::checked::Checks;
use super::chunk::Chunk;
use super::granules::{EXACT, GRANULE, PAGE, granules};
use super::rooms::{Rooms, TRIES, class_of};

/// Free pages that a thread has taken, to give them back to the machine.
pub(super) struct Pages {
    chunk: NonNull<Chunk>,
    /// The address of slot 0 of the chunk. The chunk itself is for holders of the lock.
    pub(super) memory: NonNull<u8>,
    pub(super) granules: Range<usize>,
}

/// Read and written under the lock.
pub(super) struct State<W: World> {
    /// The chunk that was mapped last, and from there the others; null: there is none. A word, so
    /// that a forked child has a chunk whole or not at all.
    chunks: W::Ptr<Chunk>,
    /// Apart: a world charges an access to the state for all of it.
    pub(super) rooms: Box<Rooms>,
    pub(super) checks: Option<Checks>,
}

// SAFETY: a thread that touches the state holds the pool's lock; the chunks belong to the pool.
unsafe impl<W: World> Send for State<W> {}

impl<W: World> State<W> {
    /// The class of a chunk in which all is free, and of no other: a stride is a power of two, and
    /// such numbers begin a class.
    pub(super) const WHOLE: u8 = {
        let granules = W::STRIDE / GRANULE;
        assert!(granules > EXACT && class_of(granules) > class_of(granules - 1));
        class_of(granules)
    };

    /// Without chunks.
    pub(super) fn new(checked: bool) -> Self {
        State {
            chunks: W::Ptr::new_in(ptr::null_mut()),
            rooms: Box::new(Rooms::NEW),
            checks: checked.then(Checks::default),
        }
    }

    pub(super) fn head(&self) -> Option<NonNull<Chunk>> {
        // Relaxed: the caller holds the lock.
        NonNull::new(self.chunks.load(Ordering::Relaxed))
    }

    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        // SAFETY: chunks live as long as they are in the list, and the caller holds the lock.
        let chunk = |at: NonNull<Chunk>| unsafe { at.as_ref() };
        core::iter::successors(self.head().map(chunk), move |at| at.next.map(chunk))
    }

    /// Rebuilds the lists of chunks in memory that a fork copied.
    pub(super) fn settle(&mut self) {
        if self.rooms.are_of(W::generation().get()) {
            return;
        }
        let (mut before, mut next) = (None, self.head());
        while let Some(mut chunk) = next {
            // SAFETY: chunks live as long as they are in the list, and the caller holds the lock.
            // The chunk is in no list of this generation, whatever its place says.
            unsafe {
                chunk.as_mut().settle(before);
                self.rooms.raise(chunk, Self::WHOLE);
                (before, next) = (Some(chunk), chunk.as_ref().next);
            }
        }
    }

    /// Puts a chunk first in the list of all.
    ///
    /// # Safety
    ///
    /// The caller holds the lock. The chunk is mapped and in no list.
    pub(super) unsafe fn link(&mut self, mut chunk: NonNull<Chunk>) {
        let next = self.head();
        // SAFETY: the caller's promise; chunks live as long as they are in the list.
        unsafe {
            chunk.as_mut().next = next;
            if let Some(mut next) = next {
                next.as_mut().before = Some(chunk);
            }
        }
        // Release: a child that is forked meanwhile has the chunk whole, or not.
        self.chunks.store(chunk.as_ptr(), Ordering::Release);
    }

    /// Takes a chunk out of the list of all.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and the chunk is in the list.
    unsafe fn unlink(&mut self, chunk: NonNull<Chunk>) {
        // SAFETY: the caller's promise; chunks live as long as they are in the list.
        unsafe {
            let (before, next) = (chunk.as_ref().before, chunk.as_ref().next);
            // By one store: a child that is forked meanwhile has the chunk in its list, or not.
            match before {
                Some(mut before) => before.as_mut().next = next,
                None => {
                    let next = next.map_or(ptr::null_mut(), NonNull::as_ptr);
                    // Relaxed: the next to read it takes the lock first. A system call unmaps it.
                    // Without this store, a forked child would not see that.
                    self.chunks.store(next, Ordering::Relaxed);
                }
            }
            if let Some(mut next) = next {
                next.as_mut().before = before;
            }
        }
    }

    /// Takes a chunk out of all lists in which no byte is taken, if there is one.
    pub(super) fn take_out_empty(&mut self) -> Option<NonNull<Chunk>> {
        // Those of lower classes have something.
        while let Some(chunk) = self.rooms.first(Self::WHOLE) {
            // SAFETY: chunks live as long as they are in the list, and the caller holds the lock.
            unsafe {
                if chunk.as_ref().is_empty() {
                    self.rooms.unlist(chunk);
                    self.unlink(chunk);
                    return Some(chunk);
                }
                // It goes down a class, so that this ends.
                if !self.rooms.measured(chunk, chunk.as_ref().largest()) {
                    break;
                }
            }
        }
        None
    }

    /// Gives back the pages that were taken last, if any, and takes the next free ones: of the same
    /// chunk, or of those behind it in the list.
    ///
    /// # Safety
    ///
    /// `last` came from here, and once.
    pub(super) unsafe fn next_free_pages(&mut self, last: Option<Pages>) -> Option<Pages> {
        let (mut next, mut from) = (self.head(), 0);
        // SAFETY: chunks live as long as they are in the list, and the caller holds the lock. That
        // of `last` is there, as its pages were taken: it was not empty.
        unsafe {
            if let Some(Pages { mut chunk, granules, .. }) = last {
                (next, from) = (Some(chunk), granules.end);
                let largest = chunk.as_mut().give_back_pages(granules);
                self.rooms.raise(chunk, class_of(largest));
            }
            while let Some(mut chunk) = next {
                // Most chunks have none, and then no word of their maps is looked at.
                if chunk.as_ref().room.may_have(class_of(PAGE))
                    && let Some(granules) = chunk.as_mut().take_pages(from)
                {
                    let memory = chunk.as_ref().memory();
                    return Some(Pages { chunk, memory, granules });
                }
                (next, from) = (chunk.as_ref().next, 0);
            }
        }
        None
    }

    /// Takes bytes of this layout in a chunk that has room.
    pub(super) fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let granules = granules(layout);
        let mut next = self.rooms.next(class_of(granules.0));
        while let Some(class) = next {
            let mut tries = 0;
            while let Some(mut chunk) = self.rooms.first(class).filter(|_| tries < TRIES) {
                // SAFETY: chunks live as long as they are in the list, and the caller holds the
                // lock.
                unsafe {
                    if let Some(first) = chunk.as_mut().take(granules) {
                        return Some(first);
                    }
                    tries += usize::from(!self.rooms.measured(chunk, chunk.as_ref().largest()));
                }
                if self.rooms.first(class) == Some(chunk) {
                    // It is the only one.
                    break;
                }
            }
            next = self.rooms.next(class + 1);
        }
        None
    }
}
