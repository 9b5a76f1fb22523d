//! The sections of all operations, the same for every processor that has them.
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

use core::ptr::NonNull;

use super::status::{DONE, NO_SLOT, REFUSED};
use super::{InRow, Index, Section, SlotsAt};
use crate::restartable::definition::{
    Add, AddIf, Append, ListPop, ListPush, Load, StackPop, StackPopBatch, StackPush,
    StackPushBatch, StoreIfEqual,
};
use crate::restartable::{ArrayStack, Buffer, Full, List, ListNode};
use crate::{Integer, Words};

/// All operations as this kind of section, with these points, which find their index so: `Index`
/// or `InRow`.
macro_rules! operations {
    ($section:ident, $point:ident, $by:ident $(, $($more:tt)+)?) => {
        impl<F: Integer<Value = u64>> $section<$by, F, ()> for Add {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, F>) -> Option<()> {
                // SAFETY: see the module.
                unsafe { add!($point, $by, at, self.0, { return None } $(, $($more)+)?) };
                Some(())
            }
        }

        impl<F: Integer<Value = u64>> $section<$by, F, u64> for Load {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, F>) -> Option<u64> {
                let (value, status): (u64, u64);
                // SAFETY: see the module.
                unsafe { load!($point, $by, at, value, status $(, $($more)+)?) };
                (status == DONE).then_some(value)
            }
        }

        impl<F: Integer<Value = u64>> $section<$by, F, Result<(), u64>> for StoreIfEqual {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, F>) -> Option<Result<(), u64>> {
                let StoreIfEqual { expected, new } = self;
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
        }

        impl<F: Integer<Value = u64>> $section<$by, F, Result<u64, u64>> for AddIf {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, F>) -> Option<Result<u64, u64>> {
                let AddIf { delta, fixed } = self;
                let (old, sum, status): (u64, u64, u64);
                // SAFETY: see the module.
                unsafe {
                    add_if!($point, $by, at, delta, fixed, old, sum, status $(, $($more)+)?);
                }
                match status {
                    DONE => Some(Ok(sum)),
                    REFUSED => Some(Err(old)),
                    _ => None,
                }
            }
        }

        impl<W: Words> $section<$by, List<W>, ()> for ListPush<W> {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, List<W>>) -> Option<()> {
                let node = self.node.as_ptr();
                // SAFETY: see the module. The link of the node is the caller's until the commit.
                unsafe { list_push!($point, $by, at, node, { return None } $(, $($more)+)?) };
                Some(())
            }
        }

        impl<W: Words> $section<$by, List<W>, Option<NonNull<ListNode<W>>>> for ListPop {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, List<W>>) -> Option<Option<NonNull<ListNode<W>>>> {
                let (node, status): (*mut ListNode<W>, u64);
                // SAFETY: see the module. The first node is live: see the definition.
                unsafe { list_pop!($point, $by, at, node, status $(, $($more)+)?) };
                // Null where the list is empty.
                (status != NO_SLOT).then_some(NonNull::new(node))
            }
        }

        impl<T: 'static, const N: usize, W: Words>
            $section<$by, ArrayStack<T, N, W>, Result<(), Full>> for StackPush<T>
        {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, ArrayStack<T, N, W>>) -> Option<Result<(), Full>> {
                let value = self.0.as_ptr();
                // SAFETY: see the module. The entry is below the capacity.
                unsafe {
                    stack_push!(
                        $point, $by, at, N, value, { return None }, { return Some(Err(Full)) }
                        $(, $($more)+)?
                    );
                }
                Some(Ok(()))
            }
        }

        impl<T: 'static, const N: usize, W: Words>
            $section<$by, ArrayStack<T, N, W>, Option<NonNull<T>>> for StackPop
        {
            #[inline(always)]
            unsafe fn run(
                self,
                at: SlotsAt<$by, ArrayStack<T, N, W>>,
            ) -> Option<Option<NonNull<T>>> {
                let (value, status): (*mut T, u64);
                // SAFETY: see the module. The entry is below the length.
                unsafe { stack_pop!($point, $by, at, value, status $(, $($more)+)?) };
                match status {
                    DONE => Some(NonNull::new(value)),
                    REFUSED => Some(None),
                    _ => None,
                }
            }
        }

        impl<T: 'static, const N: usize, W: Words> $section<$by, ArrayStack<T, N, W>, usize>
            for StackPushBatch<'_, T>
        {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, ArrayStack<T, N, W>>) -> Option<usize> {
                let (values, wanted) = (self.0.as_ptr(), self.0.len());
                let (count, status): (usize, u64);
                // SAFETY: see the module. No entry above the capacity is written.
                unsafe {
                    stack_push_batch!(
                        $point, $by, at, N, values, wanted, count, status $(, $($more)+)?
                    );
                }
                (status == DONE).then_some(count)
            }
        }

        impl<T: 'static, const N: usize, W: Words> $section<$by, ArrayStack<T, N, W>, usize>
            for StackPopBatch<'_, T>
        {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, ArrayStack<T, N, W>>) -> Option<usize> {
                let (into, wanted) = (self.0.as_ptr().cast_mut(), self.0.len());
                let (count, status): (usize, u64);
                // SAFETY: see the module. No entry above the length is read, and none behind
                // `into` written.
                unsafe {
                    stack_pop_batch!($point, $by, at, into, wanted, count, status $(, $($more)+)?);
                }
                (status == DONE).then_some(count)
            }
        }

        impl<const N: usize, W: Words> $section<$by, Buffer<N, W>, Result<usize, Full>>
            for Append<'_>
        {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, Buffer<N, W>>) -> Option<Result<usize, Full>> {
                let (bytes, count) = (self.0.as_ptr(), self.0.len());
                let (begin, status): (usize, u64);
                // SAFETY: see the module. No byte above the capacity is written. A slice has
                // less than half the address space, so the sum does not wrap.
                unsafe {
                    append!($point, $by, at, N, bytes, count, begin, status $(, $($more)+)?);
                }
                match status {
                    DONE => Some(Ok(begin)),
                    REFUSED => Some(Err(Full)),
                    _ => None,
                }
            }
        }
    };
}

operations!(Section, nothing, Index);
operations!(Section, nothing, InRow);
