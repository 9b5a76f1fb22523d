//! [`Rows`]: an index that a program hands out itself, CPU by CPU.
//!
//! The kernel says which CPU a thread has, and inside of a section that stays so. A program that
//! wants other indexes (concurrency IDs of its own, of which each of its domains has a space) keeps
//! a word for each CPU, a *row*, and a section reads its CPU's row for the index.
//!
//! # What a section reads
//!
//! | step | reads | goes on if |
//! |---|---|---|
//! | 1 | the CPU | it is below the number of CPUs |
//! | 2 | the pointer to the line of the CPU's row | it is not null |
//! | 3 | the row: the index | it is below the limit of the slots |
//!
//! Where it does not go on there is [no slot](super::NoSlot). What a row says by a word that is no
//! index is its owner's affair.
//!
//! # Who may change a row
//!
//! Whoever gives a CPU an index, by a release store, sees to it before that the slot is there and
//! that no other CPU has the index. Who takes it away changes the row first, and then
//! [fences](crate::Fences::fence_restartable): a section that has read the row starts over.
//!
//! ```text
//! Thread 1, on CPU 2: reads its row: 5
//! Thread 2:           CPU 2's row = none;  CPU 7's row = 5
//! Thread 3, on CPU 7: reads its row: 5; adds to slot 5
//! Thread 1:           commits to slot 5                  <- two CPUs at once
//! ```
//!
//! The fence belongs between thread 2's two steps.

use core::fmt;
use core::mem::offset_of;
use core::ptr::{self, NonNull};

use super::Lines;
use crate::{Line, MapError, Ordering, Word, Words, World};

/// How many rows share a line.
pub const PER_LINE: usize = 16;

/// A line of rows.
pub(super) type RowLine<W> = Line<[<W as Words>::U32; PER_LINE]>;

/// A word for each CPU, in lines that appear when they are used, and come from [`Lines`].
///
/// Costs a pointer for each sixteen CPUs, and a line of 64 bytes for each sixteen of which one was
/// used.
#[repr(C)]
pub struct Rows<W: Words> {
    /// `lines` of them, each null until it is made. First, as sections know.
    table: NonNull<W::Ptr<RowLine<W>>>,
    /// As many rows there are. Second, as sections know.
    cpus: u32,
    /// What a row is at first.
    empty: u32,
}

// SAFETY: words, and the pointers to them, which belong to the rows.
unsafe impl<W: Words> Send for Rows<W> {}
// SAFETY: as above.
unsafe impl<W: Words> Sync for Rows<W> {}

impl<W: Words> Rows<W> {
    /// Where the pointer to the table lies, and the number of CPUs: native sections look there.
    pub const LAYOUT: [usize; 2] = [offset_of!(Self, table), offset_of!(Self, cpus)];

    /// A row for each CPU number below `cpus`, at first `empty`.
    ///
    /// # Panics
    ///
    /// If that is 2^31 or more: the CPU of a thread that the kernel does not know reads as a number
    /// from there on, and must have no row.
    pub fn new_in(cpus: u32, empty: u32) -> Self {
        assert!(i32::try_from(cpus).is_ok(), "rows for {cpus} CPUs");
        let lines = (cpus as usize).div_ceil(PER_LINE);
        let table: Box<[W::Ptr<RowLine<W>>]> =
            (0..lines).map(|_| W::Ptr::new_in(ptr::null_mut())).collect();
        let table = NonNull::from(Box::leak(table)).cast();
        Rows { table, cpus, empty }
    }

    /// How many rows there are.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    fn lines(&self) -> &[W::Ptr<RowLine<W>>] {
        let lines = (self.cpus as usize).div_ceil(PER_LINE);
        // SAFETY: that many, from `new_in`.
        unsafe { core::slice::from_raw_parts(self.table.as_ptr(), lines) }
    }

    /// The row of a CPU, if its line is there; `None` also where there is no such CPU.
    ///
    /// # Safety
    ///
    /// Who writes to it does as the [module](self) says. So nobody can who has the slots alone:
    ///
    /// ```compile_fail
    /// use coreline_world::restartable::{Indexing, Slots};
    /// use coreline_world::{Native, Ordering, Slot, Word};
    ///
    /// fn give<T: Slot, I: Indexing<Native>>(slots: &Slots<T, Native, I>) {
    ///     let row = slots.indexing().rows().unwrap().at(0).unwrap();
    ///     row.store(3, Ordering::Relaxed);
    /// }
    /// ```
    pub unsafe fn at(&self, cpu: usize) -> Option<&W::U32> {
        self.row(cpu)
    }

    /// What a section on this CPU would read as its index, if it is one. Stale when it is given.
    pub fn index_at(&self, cpu: usize) -> Option<u32> {
        // SAFETY: it is read alone.
        let row = unsafe { self.at(cpu) }?;
        // Relaxed: a glance.
        Some(row.load(Ordering::Relaxed))
    }

    fn row(&self, cpu: usize) -> Option<&W::U32> {
        if cpu >= self.cpus as usize {
            return None;
        }
        // SAFETY: there is one for each CPU, from `new_in`. (Not by way of `lines`: the bound would
        // be computed, and compared once more.)
        let line = unsafe { self.table.add(cpu / PER_LINE).as_ref() };
        // Acquire: pairs with the Release in `put`: the rows are there.
        let line = line.load(Ordering::Acquire);
        // SAFETY: null, or written by `put`; given back when nobody uses the rows any more.
        unsafe { line.as_ref() }?.get(cpu % PER_LINE)
    }

    /// The lines that are there, with their numbers.
    fn made(&self) -> impl Iterator<Item = (usize, NonNull<RowLine<W>>)> {
        // Relaxed: who goes on to use one has the rows to itself.
        let there = |line: &W::Ptr<RowLine<W>>| NonNull::new(line.load(Ordering::Relaxed));
        let lines = self.lines().iter().enumerate();
        lines.filter_map(move |(number, line)| Some((number, there(line)?)))
    }

    /// The bytes of the table and of the lines that are there.
    pub fn bytes(&self) -> usize {
        size_of_val(self.lines()) + self.made().count() * size_of::<RowLine<W>>()
    }
}

impl<W: World> Rows<W> {
    /// The row of a CPU, whose line comes from `lines` if it is not there; waits for who takes one
    /// there, too.
    ///
    /// # Errors
    ///
    /// [`MapError`] if there is no memory for it.
    ///
    /// # Panics
    ///
    /// If there is no such CPU.
    ///
    /// # Safety
    ///
    /// It is always the same `lines`, which live as long as the rows are used.
    pub unsafe fn make(&self, cpu: usize, lines: &Lines<W>) -> Result<&W::U32, MapError> {
        // SAFETY: a line for these rows.
        let made = || lines.take(cpu / PER_LINE).map(|line| unsafe { self.put(cpu, line, lines) });
        self.row(cpu).map_or_else(made, Ok)
    }

    /// As [`make`](Rows::make), async-signal-safe and without waiting: `None` if another thread
    /// takes a line this moment, or there is no memory.
    ///
    /// # Panics
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn try_make(&self, cpu: usize, lines: &Lines<W>) -> Option<&W::U32> {
        // SAFETY: a line for these rows.
        let made =
            || lines.try_take(cpu / PER_LINE).map(|line| unsafe { self.put(cpu, line, lines) });
        self.row(cpu).map_or_else(made, Some)
    }

    /// # Safety
    ///
    /// The line came from `lines`, for these rows.
    unsafe fn put(&self, cpu: usize, line: NonNull<RowLine<W>>, lines: &Lines<W>) -> &W::U32 {
        assert!(cpu < self.cpus as usize, "a row for CPU {cpu} of {}", self.cpus);
        let empty = Line(core::array::from_fn(|_| W::U32::new_in(self.empty)));
        // SAFETY: the caller's promise.
        unsafe { line.write(empty) };
        // Release: pairs with the Acquire in `at`. Acquire on failure: as there.
        let raced = self.lines()[cpu / PER_LINE].compare_exchange(
            ptr::null_mut(),
            line.as_ptr(),
            Ordering::Release,
            Ordering::Acquire,
        );
        let there = match raced {
            Ok(_) => line.as_ptr(),
            Err(theirs) => {
                // SAFETY: nobody else knows it.
                unsafe {
                    line.drop_in_place();
                    lines.give(cpu / PER_LINE, line);
                }
                theirs
            }
        };
        // SAFETY: as in `at`.
        let rows = unsafe { &*there };
        &rows[cpu % PER_LINE]
    }

    /// Gives the lines back. Rows that are dropped without leave their lines unused for ever.
    ///
    /// # Safety
    ///
    /// They came from these `lines`, and nobody uses the rows any more.
    pub unsafe fn release(&mut self, lines: &Lines<W>) {
        for (number, line) in self.made() {
            // SAFETY: the caller's promise.
            unsafe {
                line.drop_in_place();
                lines.give(number, line);
            }
        }
    }
}

impl<W: Words> Drop for Rows<W> {
    fn drop(&mut self) {
        let lines = (self.cpus as usize).div_ceil(PER_LINE);
        let table = ptr::slice_from_raw_parts_mut(self.table.as_ptr(), lines);
        // SAFETY: from `Box::leak` in `new_in`, and nobody has the rows any more.
        drop(unsafe { Box::from_raw(table) });
    }
}

impl<W: Words> fmt::Debug for Rows<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}
