//! [`Lines`]: where the lines of [`Rows`](super::Rows) come from.
//!
//! A line is made where an operation found no slot, which may be in a signal handler, and so not by
//! the global allocator. Lines of all rows of a world share pages, those of the same CPUs:
//!
//! ```text
//! chunk   |link|line|line|line|line|...      a stride of memory, from the world
//! free        line -> line -> line           through their own first bytes
//! ```
//!
//! A part for each of the first 64 lines of rows, so of the first 1,024 CPUs, and for those that
//! are a multiple away, so that who takes lines for CPUs of different lines has nothing to do with
//! each other. Each has:
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `free` | the first line that is nobody's, which points to the next | the holder of `lock` |
//! | `chunks` | the chunk mapped last, which points to the one before | the holder of `lock` |
//! | `lock` | who takes a line or gives one back | [`SlotLock`] |
//!
//! **Fork**: a child that was forked while another thread took a line or gave one back goes on; it
//! may lose that line, or those of a new chunk, and hands none out twice.

use core::alloc::Layout;
use core::fmt;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use super::rows::RowLine;
use super::{SlotLock, SlotLockGuard};
use crate::{Line, MapError, Ordering, Word, World, WorldStatic};

/// What lies where a line does that is nobody's, and at the beginning of a chunk.
struct Link {
    next: *mut Link,
}

/// Memory for lines of rows, which comes back to it. One for each world: see
/// [`of_world`](Lines::of_world).
pub struct Lines<W: World> {
    parts: [Line<Part<W>>; PARTS],
}

/// How many locks there are. Who finds one held gives up, and comes again with its next operation:
/// all CPUs of a machine would, if there was one for all, as long as many domains are new.
const PARTS: usize = 64;

/// See the module.
struct Part<W: World> {
    free: W::Ptr<Link>,
    chunks: W::Ptr<Link>,
    lock: SlotLock<W>,
}

impl<W: World> Lines<W> {
    /// The bytes of a line.
    pub const SIZE: usize = size_of::<RowLine<W>>();

    /// The lines of this world: of the process, of the simulated machine, of the execution.
    pub fn of_world() -> Arc<Self> {
        static LINES: WorldStatic = WorldStatic::new("lines of rows");
        let part = |_| {
            let [free, chunks] = [ptr::null_mut(); 2].map(W::Ptr::new_in);
            Line(Part { free, chunks, lock: SlotLock::new_in() })
        };
        let lines = || Arc::new(Lines::<W> { parts: core::array::from_fn(part) });
        W::with_static(&LINES, lines, Arc::clone)
    }

    fn part(&self, number: usize) -> &Part<W> {
        &self.parts[number % PARTS]
    }

    /// The line of this number for some rows; waits for who takes one there, too.
    ///
    /// # Errors
    ///
    /// [`MapError`] if there is no memory left.
    pub(super) fn take(&self, number: usize) -> Result<NonNull<RowLine<W>>, MapError> {
        let part = self.part(number);
        let guard = part.lock.lock();
        part.take_locked(&guard)
    }

    /// The same; `None` if somebody else takes one there this moment, or there is no memory left.
    pub(super) fn try_take(&self, number: usize) -> Option<NonNull<RowLine<W>>> {
        let part = self.part(number);
        let guard = part.lock.try_lock_by_name()?;
        part.take_locked(&guard).ok()
    }

    /// Takes a line back.
    ///
    /// # Safety
    ///
    /// It came from here for this number, nobody uses it any more, and what was in it is dropped.
    pub(super) unsafe fn give(&self, number: usize, line: NonNull<RowLine<W>>) {
        let part = self.part(number);
        let guard = part.lock.lock();
        // SAFETY: the caller's promise.
        unsafe { part.keep(line.cast(), &guard) };
    }
}

impl<W: World> Part<W> {
    /// A stride of memory, aligned as a line is.
    const CHUNK: Layout = match Layout::from_size_align(W::STRIDE, align_of::<RowLine<W>>()) {
        Ok(layout) => layout,
        Err(_) => panic!("a stride is a power of two"),
    };

    fn take_locked(&self, guard: &SlotLockGuard<'_, W>) -> Result<NonNull<RowLine<W>>, MapError> {
        // Relaxed, here and below: the caller holds the lock.
        let Some(line) = NonNull::new(self.free.load(Ordering::Relaxed)) else {
            return self.map(guard);
        };
        // SAFETY: what is free holds a link.
        let next = unsafe { line.read() }.next;
        self.free.store(next, Ordering::Relaxed);
        Ok(line.cast())
    }

    /// Maps a chunk, keeps all of its lines but one, and returns that.
    fn map(&self, guard: &SlotLockGuard<'_, W>) -> Result<NonNull<RowLine<W>>, MapError> {
        const { assert!(W::STRIDE >= 2 * Lines::<W>::SIZE) };
        let chunk = W::map(Self::CHUNK)?;
        let next = self.chunks.load(Ordering::Relaxed);
        // SAFETY: just mapped, and larger than two lines, each of which is larger than a link.
        let line = unsafe {
            chunk.cast().write(Link { next });
            // Release: a forked child has the chunk with its link, or not.
            self.chunks.store(chunk.as_ptr().cast(), Ordering::Release);
            let lines = 1..W::STRIDE / Lines::<W>::SIZE;
            let line = |number| chunk.byte_add(number * Lines::<W>::SIZE);
            lines.clone().skip(1).rev().for_each(|number| self.keep(line(number).cast(), guard));
            line(lines.start)
        };
        Ok(line.cast())
    }

    /// # Safety
    ///
    /// A line of one of the chunks, which nobody uses.
    unsafe fn keep(&self, line: NonNull<Link>, _guard: &SlotLockGuard<'_, W>) {
        let next = self.free.load(Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { line.write(Link { next }) };
        // Release: a forked child has the line with its link, or not.
        self.free.store(line.as_ptr(), Ordering::Release);
    }
}

impl<W: World> Drop for Part<W> {
    fn drop(&mut self) {
        // Relaxed: nobody else has it.
        let mut next = self.chunks.load(Ordering::Relaxed);
        while let Some(chunk) = NonNull::new(next) {
            // SAFETY: from `map`, which wrote the link; whoever has rows with lines has this.
            unsafe {
                next = chunk.read().next;
                W::unmap(chunk.cast(), Self::CHUNK);
            }
        }
    }
}

impl<W: World> fmt::Debug for Lines<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}
