//! The sections as functions, the same for every processor that has them.
//!
//! # Why they are sound
//!
//! The safety comments below say "see the module" for this, which all sections share:
//!
//! * the invariant of [`Area`](super::Area) makes what they write in the rseq area this thread's
//!   own;
//! * the index is checked against the limit, below which every slot is initialised, and the limit
//!   is read inside, so that sections obey a thread that lowers it and then fences;
//! * where a row shows the index, the CPU is below the number of rows, so its line's pointer lies
//!   in the table, and is null or points to a line for as long as there are the rows. An index that
//!   a row shows is of an initialised slot, if it is below the limit, and no other CPU's: a
//!   thread that takes it away changes the row, and fences before the next CPU gets it;
//! * what is read and written lies in that slot, and is aligned: to other threads, each access is
//!   an atomic one of its size. Reading the limit acquires, and so does reading a row; the commit
//!   of a list, a stack and a buffer releases;
//! * that nothing is lost between the first load and the commit is the kernel's doing: had another
//!   thread of this CPU run, the section would have been aborted. The sections of an unregistered
//!   thread are not aborted, but its `cpu_id` is negative, so above every limit and every number of
//!   rows, and sections that use another index look at it as well.

use core::ptr;

use super::status::{DONE, NO_SLOT, REFUSED};
use super::{Index, SlotsAt};

/// All operations, with these points in their sections, which find their index so: `Index` or
/// `InRow`.
macro_rules! operations {
    ($point:ident, $by:ident $(, $($more:tt)+)?) => {
        /// # Safety
        ///
        /// `at` is that of an [`At`](crate::restartable::At) of a word, whose invariant it takes
        /// over; and the kernel keeps the index, or the CPU number where a row shows the index.
        #[inline(always)]
        pub(crate) unsafe fn add(at: SlotsAt<$by>, delta: u64) -> bool {
            // SAFETY: see the module.
            unsafe { add!($point, $by, at, delta, { return false } $(, $($more)+)?) };
            true
        }

        /// # Safety
        ///
        /// As for [`add`].
        #[inline(always)]
        pub(crate) unsafe fn load(at: SlotsAt<$by>) -> Option<u64> {
            let (value, status): (u64, u64);
            // SAFETY: see the module.
            unsafe { load!($point, $by, at, value, status $(, $($more)+)?) };
            (status == DONE).then_some(value)
        }

        /// # Safety
        ///
        /// As for [`add`].
        #[inline(always)]
        pub(crate) unsafe fn store_if_equal(
            at: SlotsAt<$by>,
            expected: u64,
            new: u64,
        ) -> Option<Result<(), u64>> {
            let (old, status): (u64, u64);
            // SAFETY: see the module.
            unsafe {
                store_if_equal!($point, $by, at, expected, new, old, status $(, $($more)+)?);
            }
            match status {
                DONE => Some(Ok(())),
                REFUSED => Some(Err(old)),
                _ => None,
            }
        }

        /// # Safety
        ///
        /// As for [`add`].
        #[inline(always)]
        pub(crate) unsafe fn add_if(
            at: SlotsAt<$by>,
            delta: u64,
            fixed: u64,
        ) -> Option<Result<u64, u64>> {
            let (old, sum, status): (u64, u64, u64);
            // SAFETY: see the module.
            unsafe { add_if!($point, $by, at, delta, fixed, old, sum, status $(, $($more)+)?) };
            match status {
                DONE => Some(Ok(sum)),
                REFUSED => Some(Err(old)),
                _ => None,
            }
        }

        /// # Safety
        ///
        /// As for [`add`], of a list; `node` is a node that is live and in no list.
        #[inline(always)]
        pub(crate) unsafe fn list_push(at: SlotsAt<$by>, node: *mut u8) -> bool {
            // SAFETY: see the module. The link of the node is the caller's until the commit.
            unsafe { list_push!($point, $by, at, node, { return false } $(, $($more)+)?) };
            true
        }

        /// The node, or null.
        ///
        /// # Safety
        ///
        /// As for [`add`], of a list.
        #[inline(always)]
        pub(crate) unsafe fn list_pop(at: SlotsAt<$by>) -> Option<*mut u8> {
            let (node, status): (*mut u8, u64);
            // SAFETY: see the module. The first node is live: see the definition.
            unsafe { list_pop!($point, $by, at, node, status $(, $($more)+)?) };
            // Null where the list is empty.
            (status != NO_SLOT).then_some(node)
        }

        /// Whether there was room.
        ///
        /// # Safety
        ///
        /// As for [`add`], of a stack of this capacity.
        #[inline(always)]
        pub(crate) unsafe fn stack_push<const CAPACITY: usize>(
            at: SlotsAt<$by>,
            value: *mut u8,
        ) -> Option<bool> {
            // SAFETY: see the module. The entry is below the capacity.
            unsafe {
                stack_push!(
                    $point, $by, at, CAPACITY, value, { return None }, { return Some(false) }
                    $(, $($more)+)?
                );
            }
            Some(true)
        }

        /// The value, or null.
        ///
        /// # Safety
        ///
        /// As for [`add`], of a stack.
        #[inline(always)]
        pub(crate) unsafe fn stack_pop(at: SlotsAt<$by>) -> Option<*mut u8> {
            let (value, status): (*mut u8, u64);
            // SAFETY: see the module. The entry is below the length.
            unsafe { stack_pop!($point, $by, at, value, status $(, $($more)+)?) };
            match status {
                DONE => Some(value),
                REFUSED => Some(ptr::null_mut()),
                _ => None,
            }
        }

        /// How many were pushed.
        ///
        /// # Safety
        ///
        /// As for [`add`], of a stack of this capacity; there are `wanted` values.
        #[inline(always)]
        pub(crate) unsafe fn stack_push_batch<const CAPACITY: usize>(
            at: SlotsAt<$by>,
            values: *const u8,
            wanted: usize,
        ) -> Option<usize> {
            let (count, status): (usize, u64);
            // SAFETY: see the module. No entry above the capacity is written.
            unsafe {
                stack_push_batch!(
                    $point, $by, at, CAPACITY, values, wanted, count, status $(, $($more)+)?
                );
            }
            (status == DONE).then_some(count)
        }

        /// How many were popped.
        ///
        /// # Safety
        ///
        /// As for [`add`], of a stack; there is room for `wanted` values.
        #[inline(always)]
        pub(crate) unsafe fn stack_pop_batch(
            at: SlotsAt<$by>,
            into: *mut u8,
            wanted: usize,
        ) -> Option<usize> {
            let (count, status): (usize, u64);
            // SAFETY: see the module. No entry above the length is read.
            unsafe {
                stack_pop_batch!($point, $by, at, into, wanted, count, status $(, $($more)+)?);
            }
            (status == DONE).then_some(count)
        }

        /// Where the bytes begin, or that there is no room.
        ///
        /// # Safety
        ///
        /// As for [`add`], of a buffer of this capacity; there are `count` bytes, fewer than half
        /// the address space.
        #[inline(always)]
        pub(crate) unsafe fn append<const CAPACITY: usize>(
            at: SlotsAt<$by>,
            bytes: *const u8,
            count: usize,
        ) -> Option<Result<usize, ()>> {
            let (begin, status): (usize, u64);
            // SAFETY: see the module. No byte above the capacity is written.
            unsafe {
                append!(
                    $point, $by, at, CAPACITY, bytes, count, begin, status $(, $($more)+)?
                );
            }
            match status {
                DONE => Some(Ok(begin)),
                REFUSED => Some(Err(())),
                _ => None,
            }
        }
    };
}

operations!(nothing, Index);

/// The same where the index is what the row of the thread's CPU shows.
pub(crate) mod by_rows {
    use core::ptr;

    use crate::arch::status::{DONE, NO_SLOT, REFUSED};
    use crate::arch::{InRow, SlotsAt};

    operations!(nothing, InRow);
}
