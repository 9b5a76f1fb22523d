//! [`Lines`]: where the lines of [`Rows`](super::Rows) come from.
//!
//! A line is made where an operation found no slot, which may be in a signal handler, and so not by
//! the global allocator. Lines of all rows of a world share pages:
//!
//! ```text
//! chunk   |link|line|line|line|line|...      a stride of memory, from the world
//! free        line -> line -> line           through their own first bytes
//! ```
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `free` | the first line that is nobody's; each holds a pointer to the next | the holder of `lock` |
//! | `chunks` | the chunk that was mapped last; each begins with a pointer to the one before | the same |
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
use crate::{MapError, Ordering, Word, World, WorldStatic};

/// What lies where a line does that is nobody's, and at the beginning of a chunk.
struct Link {
    next: *mut Link,
}

/// Memory for lines of rows, which comes back to it. One for each world: see
/// [`of_world`](Lines::of_world).
pub struct Lines<W: World> {
    free: W::Ptr<Link>,
    chunks: W::Ptr<Link>,
    lock: SlotLock<W>,
}

impl<W: World> Lines<W> {
    /// The bytes of a line.
    pub const SIZE: usize = size_of::<RowLine<W>>();

    /// A stride of memory, aligned as a line is.
    const CHUNK: Layout = match Layout::from_size_align(W::STRIDE, align_of::<RowLine<W>>()) {
        Ok(layout) => layout,
        Err(_) => panic!("a stride is a power of two"),
    };

    /// The lines of this world: of the process, of the simulated machine, of the execution.
    pub fn of_world() -> Arc<Self> {
        static LINES: WorldStatic = WorldStatic::new("lines of rows");
        let lines = || {
            let [free, chunks] = [ptr::null_mut(); 2].map(W::Ptr::new_in);
            Arc::new(Lines::<W> { free, chunks, lock: SlotLock::new_in() })
        };
        W::with_static(&LINES, lines, Arc::clone)
    }

    /// A line; waits for who takes one, too.
    ///
    /// # Errors
    ///
    /// [`MapError`] if there is no memory left.
    pub(super) fn take(&self) -> Result<NonNull<RowLine<W>>, MapError> {
        let guard = self.lock.lock();
        self.take_locked(&guard)
    }

    /// A line; `None` if somebody else takes one this moment, or there is no memory left.
    pub(super) fn try_take(&self) -> Option<NonNull<RowLine<W>>> {
        let guard = self.lock.try_lock_by_name()?;
        self.take_locked(&guard).ok()
    }

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
        const { assert!(W::STRIDE >= 2 * Self::SIZE) };
        let chunk = W::map(Self::CHUNK)?;
        let next = self.chunks.load(Ordering::Relaxed);
        // SAFETY: just mapped, and larger than two lines, each of which is larger than a link.
        let line = unsafe {
            chunk.cast().write(Link { next });
            // Release: a forked child has the chunk with its link, or not.
            self.chunks.store(chunk.as_ptr().cast(), Ordering::Release);
            let lines = 1..W::STRIDE / Self::SIZE;
            let line = |number| chunk.byte_add(number * Self::SIZE);
            lines.clone().skip(1).rev().for_each(|number| self.keep(line(number).cast(), guard));
            line(lines.start)
        };
        Ok(line.cast())
    }

    /// Takes a line back.
    ///
    /// # Safety
    ///
    /// It came from here, nobody uses it any more, and what was in it is dropped.
    pub(super) unsafe fn give(&self, line: NonNull<RowLine<W>>) {
        let guard = self.lock.lock();
        // SAFETY: the caller's promise.
        unsafe { self.keep(line.cast(), &guard) };
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

impl<W: World> Drop for Lines<W> {
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
