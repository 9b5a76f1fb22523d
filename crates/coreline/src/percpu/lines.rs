//! [`Lines`]: where the lines of [`Rows`] come from.
//!
//! A line is made when an operation found no slot. That may be in a signal handler, so the global
//! allocator cannot be used. Lines of all rows of a world share pages with lines of the same CPUs:
//!
//! ```text
//! chunk   |link|line|line|line|line|...      a stride of memory, from the world
//! free        line -> line -> line           through their own first bytes
//! ```
//!
//! There is one part for each of the first 64 lines of a row, which cover the first 1,024 CPUs.
//! Line numbers above that use the parts modulo 64. So threads that take lines for CPUs of
//! different parts do not contend. Each part has:
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `free` | the first free line, which points to the next | the holder of `lock` |
//! | `chunks` | the chunk mapped last, which points to the one before | the holder of `lock` |
//! | `lock` | held while a line is taken or given back | [`SlotLock`] |
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `PARTS` | CPUs wait for each other | 64 bytes each | `a_thread_that_takes_a_line_..` |
//!
//! **Fork**: a child that was forked while another thread took or returned a line can continue. It
//! may lose that line, or the lines of a new chunk, and hands none out twice.

use core::alloc::Layout;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use coreline_world::restartable::Rows;
use coreline_world::restartable::rows::{PER_LINE, RowLine};
use coreline_world::{Line, MapError, Native, Ordering, Word, World, WorldStatic};

use super::lock::{SlotLock, SlotLockGuard};

/// The content of a free line, and of the beginning of a chunk.
struct Link {
    next: *mut Link,
}

/// The pool of memory for lines of rows. There is one pool for each world: see
/// [`of_world`](Lines::of_world).
pub struct Lines<W: World> {
    parts: [Line<Part<W>>; PARTS],
}

/// How many locks there are. A thread that finds one held gives up, and comes again with its next
/// operation: with a single lock all CPUs of a machine would, as long as many domains are new.
const PARTS: usize = 64;

/// The lines for some CPUs.
struct Part<W: World> {
    free: W::Ptr<Link>,
    chunks: W::Ptr<Link>,
    lock: SlotLock<W>,
}

const _: () = {
    assert!(size_of::<Part<Native>>() == 24);
    assert!(align_of::<Part<Native>>() == 8);
    assert!(size_of::<Line<Part<Native>>>() == 64);
    assert!(align_of::<Line<Part<Native>>>() == 64);
};

impl<W: World> Lines<W> {
    /// The size of a line, in bytes.
    pub const SIZE: usize = size_of::<RowLine<W>>();

    /// Returns the pool of this world: of the process, the simulated machine or the execution.
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

    /// Returns the row of a CPU. If the row's line does not exist, the call creates the line, with
    /// `empty` in its rows. The call waits while another thread takes a line for these CPUs.
    ///
    /// # Errors
    ///
    /// [`MapError`] if there is no memory left.
    ///
    /// # Panics
    ///
    /// Panics if there is no such CPU.
    ///
    /// # Safety
    ///
    /// All lines of the rows come from this pool, which lives as long as they are used. A caller
    /// that writes to the row follows the rules of [`rows`](coreline_world::restartable::rows).
    pub unsafe fn make<'a>(
        &self,
        rows: &'a Rows<W>,
        cpu: usize,
        empty: u32,
    ) -> Result<&'a W::U32, MapError> {
        // SAFETY: the caller's promise.
        if let Some(row) = unsafe { rows.at(cpu) } {
            return Ok(row);
        }
        let part = self.part(cpu / PER_LINE);
        let guard = part.lock.lock();
        let line = part.take_locked(&guard)?;
        drop(guard);
        // SAFETY: a line from here; and the caller's promise.
        Ok(unsafe { self.put(rows, cpu, empty, line) })
    }

    /// Returns the row of a CPU, like [`make`](Lines::make), without waiting. The call is
    /// async-signal-safe unless memory cannot be mapped. Returns `None` if another thread takes a
    /// line for these CPUs, or there is no memory left.
    ///
    /// # Panics
    ///
    /// Panics if there is no such CPU.
    ///
    /// # Safety
    ///
    /// The same conditions as for [`make`](Lines::make).
    pub unsafe fn try_make<'a>(
        &self,
        rows: &'a Rows<W>,
        cpu: usize,
        empty: u32,
    ) -> Option<&'a W::U32> {
        // SAFETY: the caller's promise.
        if let Some(row) = unsafe { rows.at(cpu) } {
            return Some(row);
        }
        let part = self.part(cpu / PER_LINE);
        let guard = part.lock.try_lock_by_name()?;
        let line = part.take_locked(&guard).ok()?;
        drop(guard);
        // SAFETY: a line from here; and the caller's promise.
        Some(unsafe { self.put(rows, cpu, empty, line) })
    }

    /// # Safety
    ///
    /// The line was allocated here for this CPU, and no other rows have it. Otherwise as for
    /// [`make`](Lines::make).
    unsafe fn put<'a>(
        &self,
        rows: &'a Rows<W>,
        cpu: usize,
        empty: u32,
        line: NonNull<RowLine<W>>,
    ) -> &'a W::U32 {
        assert!(cpu < rows.cpus() as usize, "a row for CPU {cpu} of {}", rows.cpus());
        // SAFETY: the line is this thread's until it is put in, and again if another one was first.
        let line = unsafe {
            line.write(Line(core::array::from_fn(|_| W::U32::new_in(empty))));
            match rows.put(cpu / PER_LINE, line) {
                Ok(()) => line,
                Err(theirs) => {
                    self.give(cpu / PER_LINE, line);
                    theirs
                }
            }
        };
        // SAFETY: a line that was put in stays as long as the rows are used.
        let line = unsafe { line.as_ref() };
        &line[cpu % PER_LINE]
    }

    /// Takes back the lines of rows.
    ///
    /// # Safety
    ///
    /// The lines came from this pool, and no code uses the rows any more.
    pub unsafe fn release(&self, rows: &Rows<W>) {
        // SAFETY: the caller's promise.
        rows.made().for_each(|(number, line)| unsafe { self.give(number, line) });
    }

    /// Drops what is in a line, and takes it back.
    ///
    /// # Safety
    ///
    /// The line was allocated here for this number, and nothing uses it any more.
    unsafe fn give(&self, number: usize, line: NonNull<RowLine<W>>) {
        let part = self.part(number);
        // SAFETY: the caller's promise.
        unsafe { line.drop_in_place() };
        let guard = part.lock.lock();
        // SAFETY: the caller's promise; what was in it is dropped.
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
        // Relaxed: the caller holds the lock, which orders it after what the last holder wrote.
        let Some(line) = NonNull::new(self.free.load(Ordering::Relaxed)) else {
            return self.map(guard);
        };
        // SAFETY: what is free holds a link.
        let next = unsafe { line.read() }.next;
        // Relaxed: the next holder takes the lock first, and a forked child may lose the line.
        self.free.store(next, Ordering::Relaxed);
        Ok(line.cast())
    }

    /// Maps a chunk, keeps all of its lines but one, and returns that.
    fn map(&self, guard: &SlotLockGuard<'_, W>) -> Result<NonNull<RowLine<W>>, MapError> {
        const { assert!(W::STRIDE >= 2 * Lines::<W>::SIZE) };
        let chunk = W::map(Self::CHUNK)?;
        // Relaxed: the caller holds the lock.
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
    /// `line` is an unused line of one of the chunks.
    unsafe fn keep(&self, line: NonNull<Link>, _guard: &SlotLockGuard<'_, W>) {
        // Relaxed: the caller holds the lock.
        let next = self.free.load(Ordering::Relaxed);
        // SAFETY: the line is larger than a link, and the caller says that nothing uses it.
        unsafe { line.write(Link { next }) };
        // Release: a forked child has the line with its link, or not.
        self.free.store(line.as_ptr(), Ordering::Release);
    }
}

impl<W: World> Drop for Part<W> {
    fn drop(&mut self) {
        // Relaxed: no other thread has it.
        let mut next = self.chunks.load(Ordering::Relaxed);
        while let Some(chunk) = NonNull::new(next) {
            // SAFETY: from `map`, which wrote the link; rows that have lines keep this alive.
            unsafe {
                next = chunk.read().next;
                W::unmap(chunk.cast(), Self::CHUNK);
            }
        }
    }
}

impl_debug!([W: World] Lines<W> { .. });

#[cfg(test)]
mod tests {
    use coreline_sim::{Machine, Sim};

    use super::*;

    /// With one lock, all CPUs of a machine would come in vain while one of them has it.
    #[test]
    fn a_thread_that_takes_a_line_holds_up_those_of_its_lines_cpus_only() {
        let program = || {
            let lines = Lines::<Sim>::of_world();
            let rows = Rows::<Sim>::new_in(96);
            let held = lines.part(0).lock.lock();
            for cpu in [0, PER_LINE - 1, PER_LINE, 95] {
                // SAFETY: all lines come from there, and no row is written.
                let row = unsafe { lines.try_make(&rows, cpu, 0) };
                assert_eq!(row.is_some(), cpu >= PER_LINE, "CPU {cpu}");
            }
            drop(held);
            // SAFETY: all lines come from there, and no code uses them any more.
            unsafe { lines.release(&rows) };
        };
        Machine::preset("kunpeng920-96c-4n").expect("a preset").run(program).expect("it ends");
    }
}
