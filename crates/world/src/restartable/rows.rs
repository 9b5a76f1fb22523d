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
//! | 3 | the lower half of the row: the index | it is below the limit of the slots |
//!
//! Where it does not go on there is [no slot](super::NoSlot). What else a row says, in its upper
//! half or by a lower half that is no index, is its owner's affair.
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
use core::ptr::{self, NonNull};

use crate::{Line, Ordering, Word, Words};

/// How many rows share a line.
pub const PER_LINE: usize = 8;

/// A line of rows.
type RowLine<W> = Line<[<W as Words>::U64; PER_LINE]>;

/// A word for each CPU, in lines that appear when they are used.
///
/// Costs a pointer for each eight CPUs, and a line of 64 bytes for each eight of which one was
/// used.
#[repr(C)]
pub struct Rows<W: Words> {
    /// `lines` of them, each null until it is made. First, as sections know.
    table: NonNull<W::Ptr<RowLine<W>>>,
    /// As many rows there are. Second, as sections know.
    cpus: u32,
    /// What a row is at first.
    empty: u64,
}

// SAFETY: words, and the pointers to them, which belong to the rows.
unsafe impl<W: Words> Send for Rows<W> {}
// SAFETY: as above.
unsafe impl<W: Words> Sync for Rows<W> {}

impl<W: Words> Rows<W> {
    /// A row for each CPU number below `cpus`, at first `empty`.
    pub fn new_in(cpus: u32, empty: u64) -> Self {
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
    pub fn at(&self, cpu: usize) -> Option<&W::U64> {
        if cpu >= self.cpus as usize {
            return None;
        }
        // Acquire: pairs with the Release in `make`: the rows are there.
        let line = self.lines()[cpu / PER_LINE].load(Ordering::Acquire);
        // SAFETY: null, or from `Box::into_raw` in `make`; freed when the rows are dropped alone.
        Some(unsafe { line.as_ref() }?.get(cpu % PER_LINE)?)
    }

    /// The row of a CPU. Allocates its line if it is not there.
    ///
    /// # Panics
    ///
    /// If there is no such CPU.
    pub fn make(&self, cpu: usize) -> &W::U64 {
        assert!(cpu < self.cpus as usize, "a row for CPU {cpu} of {}", self.cpus);
        if let Some(row) = self.at(cpu) {
            return row;
        }
        let rows: RowLine<W> = Line(core::array::from_fn(|_| W::U64::new_in(self.empty)));
        let made = Box::into_raw(Box::new(rows));
        // Release: pairs with the Acquire in `at`. Acquire on failure: as there.
        let raced = self.lines()[cpu / PER_LINE].compare_exchange(
            ptr::null_mut(),
            made,
            Ordering::Release,
            Ordering::Acquire,
        );
        let there = match raced {
            Ok(_) => made,
            Err(theirs) => {
                // SAFETY: from `Box::into_raw` above, and nobody else knows it.
                drop(unsafe { Box::from_raw(made) });
                theirs
            }
        };
        // SAFETY: as in `at`.
        let rows = unsafe { &*there };
        &rows[cpu % PER_LINE]
    }
}

impl<W: Words> Drop for Rows<W> {
    fn drop(&mut self) {
        let lines = (self.cpus as usize).div_ceil(PER_LINE);
        let table = ptr::slice_from_raw_parts_mut(self.table.as_ptr(), lines);
        // SAFETY: from `Box::leak` in `new_in`, and nobody has the rows any more.
        let mut table = unsafe { Box::from_raw(table) };
        for line in &mut table {
            line.with_mut(|line| {
                if !line.is_null() {
                    // SAFETY: from `Box::into_raw` in `make`; nobody has the rows any more.
                    drop(unsafe { Box::from_raw(*line) });
                }
            });
        }
    }
}

impl<W: Words> fmt::Debug for Rows<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}

/// What sections know of the layout.
#[cfg(target_os = "linux")]
const _: () = {
    use crate::Native;
    use crate::arch::{ROWS_CPUS, ROWS_TABLE};
    use core::mem::offset_of;
    assert!(offset_of!(Rows<Native>, table) == ROWS_TABLE);
    assert!(offset_of!(Rows<Native>, cpus) == ROWS_CPUS);
    assert!(size_of::<RowLine<Native>>() == 64);
};
