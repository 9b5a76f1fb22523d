//! [`Rows`]: an index that the program itself assigns to each CPU.
//!
//! The kernel says on which CPU a thread runs. Inside a section, this CPU does not change. A
//! program may want other indexes, such as concurrency IDs with a separate space for each of its
//! domains. Such a program keeps a word for each CPU, a *row*, and a section takes the index from
//! its CPU's row.
//!
//! There is [no slot](super::NoSlot) if the CPU number is too large, if the row's line does not
//! exist, or if the row is not below the limit of the slots. The owner of the rows decides the
//! meaning of a word that is not below the limit.
//!
//! # How a row is changed
//!
//! A thread that assigns an index to a CPU, by a release store, first ensures that the slot exists
//! and that no other CPU has the index. To revoke the index, it first changes the row, and then
//! [fences](crate::Fences::fence_restartable), so that a section that has read the row starts over.
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

/// The number of rows in a line.
pub const PER_LINE: usize = 16;

/// A line of rows.
pub type RowLine<W> = Line<[<W as Words>::U32; PER_LINE]>;

/// A table with a word for each CPU, in lines that are added when they are needed.
///
/// The table uses a pointer for each sixteen CPUs, and a line of 64 bytes for each group of sixteen
/// CPUs of which at least one was used. The lines belong to the owner of the rows, which adds them.
#[repr(C)]
pub struct Rows<W: Words> {
    /// `lines` of them, each null until it is made. First, as sections know.
    table: NonNull<W::Ptr<RowLine<W>>>,
    /// The number of rows. Second, as sections know.
    cpus: u32,
}

// SAFETY: the table belongs to the rows, and holds words, which may be sent.
unsafe impl<W: Words> Send for Rows<W> {}
// SAFETY: the table holds words, which may be shared; nothing else changes.
unsafe impl<W: Words> Sync for Rows<W> {}

impl<W: Words> Rows<W> {
    /// The offsets of the pointer to the table and of the number of CPUs, for native sections that
    /// read them.
    pub const LAYOUT: [usize; 2] = [offset_of!(Self, table), offset_of!(Self, cpus)];

    /// Creates a table for the CPU numbers below `cpus`. At first the table has no line, so no CPU
    /// has a row.
    ///
    /// # Panics
    ///
    /// Panics if `cpus` is 2^31 or more. A thread whose CPU the kernel does not know reads such a
    /// number, which must have no row.
    pub fn new_in(cpus: u32) -> Self {
        assert!(i32::try_from(cpus).is_ok(), "rows for {cpus} CPUs");
        let lines = (cpus as usize).div_ceil(PER_LINE);
        let table: Box<[W::Ptr<RowLine<W>>]> =
            (0..lines).map(|_| W::Ptr::new_in(ptr::null_mut())).collect();
        let table = NonNull::from(Box::leak(table)).cast();
        Rows { table, cpus }
    }

    /// Returns the number of rows.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    fn lines(&self) -> &[W::Ptr<RowLine<W>>] {
        let lines = (self.cpus as usize).div_ceil(PER_LINE);
        // SAFETY: that many, from `new_in`.
        unsafe { core::slice::from_raw_parts(self.table.as_ptr(), lines) }
    }

    /// Returns the row of a CPU. Returns `None` if the row's line does not exist or there is no
    /// such CPU.
    ///
    /// # Safety
    ///
    /// A caller that writes to the row must follow the rules of the [module](self).
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

    /// Returns the index that a section on this CPU would read, if there is an index. The value may
    /// be out of date when the call returns.
    pub fn index_at(&self, cpu: usize) -> Option<u32> {
        // SAFETY: the row is only read.
        let row = unsafe { self.at(cpu) }?;
        // Relaxed: it is stale when it is given, and nothing is read behind it.
        Some(row.load(Ordering::Relaxed))
    }

    /// Adds the line with this number, which holds the rows of [`PER_LINE`] CPUs.
    ///
    /// # Errors
    ///
    /// Returns the existing line if there is one.
    ///
    /// # Panics
    ///
    /// Panics if there is no CPU whose row would be on that line.
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

    /// Returns the existing lines, with their numbers.
    pub fn made(&self) -> impl Iterator<Item = (usize, NonNull<RowLine<W>>)> {
        // Relaxed: they are counted, or given back by a caller that has the rows to itself.
        let there = |line: &W::Ptr<RowLine<W>>| NonNull::new(line.load(Ordering::Relaxed));
        let lines = self.lines().iter().enumerate();
        lines.filter_map(move |(number, line)| Some((number, there(line)?)))
    }

    /// Returns the size of the table and of the existing lines, in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(self.lines()) + self.made().count() * size_of::<RowLine<W>>()
    }
}

/// A copy of the location of the rows, which lies next to the other words that sections read.
///
/// If all rows are on one line, this value also holds the pointer to that line. The pointer is null
/// until [`look`](RowsBeside::look) has found the line.
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
    /// Creates a copy of the location of these rows.
    ///
    /// # Safety
    ///
    /// The rows live as long as the returned value, at their present address or elsewhere.
    pub unsafe fn new(of: &Rows<W>) -> Self {
        let rows = ManuallyDrop::new(Rows { table: of.table, cpus: of.cpus });
        RowsBeside { rows, line: W::Ptr::new_in(ptr::null_mut()) }
    }

    /// Makes sections find the only line through this copy, without a read of the table. The call
    /// does nothing unless the table has room for exactly one line.
    ///
    /// # Safety
    ///
    /// The rows exist and are not moved any more. No `&mut` to them is created until they drop,
    /// because a pointer in them points back to them.
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

    /// Copies the line's pointer here, if the table has room for only one line and that line was
    /// added since.
    ///
    /// # Safety
    ///
    /// `of` must be the rows from which this copy was created.
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

    /// Returns the rows.
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
