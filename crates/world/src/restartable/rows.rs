//! [`Rows`]: an index that a program hands out itself, CPU by CPU.
//!
//! The kernel says on which CPU a thread runs, and inside a section that does not change. A program
//! that wants other indexes (concurrency IDs of its own, of which each of its domains has a space)
//! keeps a word for each CPU, a *row*, and a section takes the index from its CPU's row.
//!
//! If the number of CPUs is exceeded, a row's line does not exist, or the row is not below the
//! limit of the slots, there is [no slot](super::NoSlot). The owner of the rows decides the meaning
//! of a word that is not below the limit.
//!
//! # How a row is changed
//!
//! A thread that gives a CPU an index, by a release store, first makes sure that the slot exists
//! and that no other CPU has the index. To take it away, it changes the row first, and then
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
use core::mem::{ManuallyDrop, offset_of};
use core::ptr::{self, NonNull};

use crate::{Line, Ordering, Word, Words};

/// How many rows share a line.
pub const PER_LINE: usize = 16;

/// A line of rows.
pub type RowLine<W> = Line<[<W as Words>::U32; PER_LINE]>;

/// A word for each CPU, in lines that are added when they are needed.
///
/// It costs a pointer for each sixteen CPUs, and a line of 64 bytes for each sixteen of which one
/// was used. The lines belong to the owner of the rows, which adds them.
#[repr(C)]
pub struct Rows<W: Words> {
    /// `lines` of them, each null until it is made. First, as sections know.
    table: NonNull<W::Ptr<RowLine<W>>>,
    /// As many rows there are. Second, as sections know.
    cpus: u32,
}

// SAFETY: the table belongs to the rows, and holds words, which may be sent.
unsafe impl<W: Words> Send for Rows<W> {}
// SAFETY: the table holds words, which may be shared; nothing else changes.
unsafe impl<W: Words> Sync for Rows<W> {}

impl<W: Words> Rows<W> {
    /// The place of the pointer to the table and of the number of CPUs, where native sections read
    /// them.
    pub const LAYOUT: [usize; 2] = [offset_of!(Self, table), offset_of!(Self, cpus)];

    /// Makes a row for each CPU number below `cpus`, without any line.
    ///
    /// # Panics
    ///
    /// Panics if that is 2^31 or more: the CPU of a thread that the kernel does not know reads as
    /// such a number, and must have no row.
    pub fn new_in(cpus: u32) -> Self {
        assert!(i32::try_from(cpus).is_ok(), "rows for {cpus} CPUs");
        let lines = (cpus as usize).div_ceil(PER_LINE);
        let table: Box<[W::Ptr<RowLine<W>>]> =
            (0..lines).map(|_| W::Ptr::new_in(ptr::null_mut())).collect();
        let table = NonNull::from(Box::leak(table)).cast();
        Rows { table, cpus }
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

    /// The row of a CPU, if its line exists; `None` also if there is no such CPU.
    ///
    /// # Safety
    ///
    /// A caller that writes to it must follow the rules of the [module](self).
    pub unsafe fn at(&self, cpu: usize) -> Option<&W::U32> {
        if cpu >= self.cpus as usize {
            return None;
        }
        // SAFETY: there is one for each CPU, from `new_in`. (Not by way of `lines`: the bound would
        // be computed, and compared once more.)
        let line = unsafe { self.table.add(cpu / PER_LINE).as_ref() };
        // Acquire pairs with the release in `put`: without it the rows could be read before they
        // are initialised.
        let line = line.load(Ordering::Acquire);
        // SAFETY: null, or a line that `put` was promised to stay as long as the rows are used.
        unsafe { line.as_ref() }?.get(cpu % PER_LINE)
    }

    /// The index that a section on this CPU would read, if it is one. The value may be out of date
    /// when it returns.
    pub fn index_at(&self, cpu: usize) -> Option<u32> {
        // SAFETY: the row is only read.
        let row = unsafe { self.at(cpu) }?;
        // Relaxed: it is stale when it is given, and nothing is read behind it.
        Some(row.load(Ordering::Relaxed))
    }

    /// Puts in the line of this number, which holds the rows of [`PER_LINE`] CPUs.
    ///
    /// # Errors
    ///
    /// Returns the existing line if there already is one.
    ///
    /// # Panics
    ///
    /// Panics if there is no CPU whose row would be there.
    ///
    /// # Safety
    ///
    /// The line is initialised and stays as long as the rows are used.
    pub unsafe fn put(
        &self,
        number: usize,
        line: NonNull<RowLine<W>>,
    ) -> Result<(), NonNull<RowLine<W>>> {
        // Release pairs with the acquire in `at`: without it a section could read a row before the
        // line is initialised. Acquire on failure pairs with the release of the thread that was
        // first: the caller could else read its line before it is initialised.
        let (done, failed) = (Ordering::Release, Ordering::Acquire);
        let place = &self.lines()[number];
        place
            .compare_exchange(ptr::null_mut(), line.as_ptr(), done, failed)
            .map_or_else(|there| NonNull::new(there).map_or(Ok(()), Err), |_| Ok(()))
    }

    /// The existing lines, with their numbers.
    pub fn made(&self) -> impl Iterator<Item = (usize, NonNull<RowLine<W>>)> {
        // Relaxed: they are counted, or given back by a caller that has the rows to itself.
        let there = |line: &W::Ptr<RowLine<W>>| NonNull::new(line.load(Ordering::Relaxed));
        let lines = self.lines().iter().enumerate();
        lines.filter_map(move |(number, line)| Some((number, there(line)?)))
    }

    /// The bytes of the table and of the existing lines.
    pub fn bytes(&self) -> usize {
        size_of_val(self.lines()) + self.made().count() * size_of::<RowLine<W>>()
    }
}

/// A second copy of the rows' place, for sections that find it next to the other words that they
/// read.
///
/// Where all rows are on one line, the pointer to that is here, too: null until it was
/// [looked for](RowsBeside::look) and found.
#[repr(C)]
pub struct RowsBeside<W: Words> {
    rows: ManuallyDrop<Rows<W>>,
    line: W::Ptr<RowLine<W>>,
}

// SAFETY: as the rows; the table is theirs, or the word here.
unsafe impl<W: Words> Send for RowsBeside<W> {}
// SAFETY: as the rows.
unsafe impl<W: Words> Sync for RowsBeside<W> {}

impl<W: Words> RowsBeside<W> {
    /// These rows.
    ///
    /// # Safety
    ///
    /// They live, there or elsewhere, as long as what is returned.
    pub unsafe fn new(of: &Rows<W>) -> Self {
        let rows = ManuallyDrop::new(Rows { table: of.table, cpus: of.cpus });
        RowsBeside { rows, line: W::Ptr::new_in(ptr::null_mut()) }
    }

    /// Has the only line found here, without a look at the table.
    ///
    /// # Safety
    ///
    /// They are there, are not moved any more, and no `&mut` to them is made until they drop: a
    /// pointer in them leads back to them.
    pub unsafe fn settle(this: NonNull<Self>) {
        let this = this.as_ptr();
        // SAFETY: the caller's promise. No reference, whose end would be that of the pointer.
        unsafe {
            let rows = (&raw mut (*this).rows).cast::<Rows<W>>();
            if (*rows).lines().len() == 1 {
                (*rows).table = NonNull::new_unchecked(&raw mut (*this).line);
            }
        }
    }

    /// Looks for the line, if there is only one and it was put into the rows since.
    ///
    /// # Safety
    ///
    /// They are those that this was made of.
    pub unsafe fn look(&self, of: &Rows<W>) {
        let [line] = of.lines() else { return };
        // Acquire pairs with the release in `put`: rows could be read before they are initialised.
        let line = line.load(Ordering::Acquire);
        // Relaxed: a hint. Sections of all CPUs read what lies here.
        if self.line.load(Ordering::Relaxed) != line {
            // Release pairs with the acquire in `at`: see there.
            self.line.store(line, Ordering::Release);
        }
    }

    /// The rows.
    #[inline]
    pub fn rows(&self) -> &Rows<W> {
        &self.rows
    }
}

impl<W: Words> fmt::Debug for RowsBeside<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.fmt(f)
    }
}

impl<W: Words> Drop for Rows<W> {
    fn drop(&mut self) {
        let lines = (self.cpus as usize).div_ceil(PER_LINE);
        let table = ptr::slice_from_raw_parts_mut(self.table.as_ptr(), lines);
        // SAFETY: from `Box::leak` in `new_in`, and nothing uses the rows any more.
        drop(unsafe { Box::from_raw(table) });
    }
}

impl<W: Words> fmt::Debug for Rows<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}
