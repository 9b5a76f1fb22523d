//! The sections of all operations, the same for every processor that has them.
//!
//! # Why they are sound
//!
//! The safety comments below say "see the module" for this, which all sections share:
//!
//! * the invariant of [`Area`](super::Area) makes what they write in the rseq area this thread's
//!   own;
//! * the index is checked against the limit, below which every slot is initialised, and the limit
//!   is read inside, so that sections obey a thread that lowers it and then fences. The limit for
//!   the other kind of index is always 0, so that no index is below it;
//! * where a row shows the index, the CPU is below the number of rows, so its line's pointer lies
//!   in the table, and is null or points to a line for as long as there are the rows. An index that
//!   a row shows is of an initialised slot, if it is below the limit, and no other CPU's: a
//!   thread that takes it away changes the row, and fences before the next CPU gets it;
//! * where a gate says where slot 0 lies, it has done so before it opened, and for good;
//! * what is read and written lies in that slot, and is aligned: to other threads, each access is
//!   an atomic one of its size, which for a word is that of what it holds. Reading the limit
//!   acquires, and so does reading a row; the commit of a pointer and a stack releases;
//! * that nothing is lost between the first load and the commit is the kernel's doing: had another
//!   thread of this CPU run, the section would have been aborted. The sections of an unregistered
//!   thread are not aborted, but its `cpu_id` is negative, so above every limit and every number of
//!   rows; and a negative one makes of every concurrency ID the largest number there is.

use core::mem::offset_of;
use core::ptr::NonNull;

use super::status::{DONE, REFUSED};
use super::{Gated, InRow, Index, Section, SlotsAt};
use crate::restartable::definition::{
    Add, AddIf, Exchange, Load, StackPop, StackPopBatch, StackPush, StackPushBatch, StackResize,
    StoreIfEqual,
};
use crate::restartable::{Full, ResizableStack};
use crate::{Integer, Word, Words};

/// An operation as this kind of section, and how that runs; `None` if there is no slot.
macro_rules! section_of {
    (
        [$($generics:tt)*] $section:ident, $by:ident, $operation:ty: $on:ty => $output:ty,
        |$given:pat_param, $at:ident| $run:block
    ) => {
        impl<$($generics)*> $section<$by, $on, $output> for $operation {
            #[inline(always)]
            unsafe fn run(self, $at: SlotsAt<$by, $on>) -> Option<$output> {
                let $given = self;
                $run
            }
        }
    };
}

/// Operations on words that hold a `$value`, which is so wide: `half`, `whole` or a `pointer`.
macro_rules! on_words {
    (
        $section:ident, $point:ident, $by:ident, $width:ident,
        [$($target:ident: $static:lifetime)?], $value:ty, $($more:tt)*
    ) => {
        section_of!([$($target: $static,)? F: Word<Value = $value>] $section, $by,
            Load: F => $value, |_, at| {
            let (value, status): ($value, u64);
            // SAFETY: see the module.
            unsafe {
                text!(load $width, $point, $by, at, status, value = out(reg) value, $($more)*);
            }
            (status == DONE).then_some(value)
        });

        section_of!([$($target: $static,)? F: Word<Value = $value>] $section, $by,
            Exchange<$value>: F => $value, |operation, at| {
            let (old, status): ($value, u64);
            // SAFETY: see the module.
            unsafe {
                text!(
                    exchange $width, $point, $by, at, status,
                    old = out(reg) old, new = in(reg) operation.0, $($more)*
                );
            }
            (status == DONE).then_some(old)
        });

        section_of!([$($target: $static,)? F: Word<Value = $value>] $section, $by,
            StoreIfEqual<$value>: F => Result<(), $value>, |StoreIfEqual { expected, new }, at| {
            let (old, status): ($value, u64);
            // SAFETY: see the module.
            unsafe {
                text!(
                    store_if_equal $width, $point, $by, at, status,
                    old = out(reg) old, expected = in(reg) expected, new = in(reg) new,
                    refused = const REFUSED, $($more)*
                );
            }
            ended(status, Ok(()), Err(old))
        });
    };
}

/// Like [`on_words`], with operations on integers.
macro_rules! on_integers {
    (
        $section:ident, $point:ident, $by:ident, $width:ident, $value:ty, $($more:tt)*
    ) => {
        on_words!($section, $point, $by, $width, [], $value, $($more)*);

        section_of!([F: Integer<Value = $value>] $section, $by,
            Add<$value>: F => (), |operation, at| {
            // SAFETY: see the module.
            unsafe {
                text!(
                    add $width, $point, $by, at, { return None },
                    delta = in(reg) operation.0, $($more)*
                );
            }
            Some(())
        });

        section_of!([F: Integer<Value = $value>] $section, $by,
            AddIf<$value>: F => Result<$value, $value>, |AddIf { delta, fixed }, at| {
            let (old, sum, status): ($value, $value, u64);
            // SAFETY: see the module.
            unsafe {
                text!(
                    add_if $width, $point, $by, at, status,
                    old = out(reg) old, sum = out(reg) sum,
                    delta = in(reg) delta, fixed = in(reg) fixed,
                    refused = const REFUSED, $($more)*
                );
            }
            ended(status, Ok(sum), Err(old))
        });
    };
}

/// How an operation ended whose section had this status.
#[inline(always)]
pub(super) fn ended<R>(status: u64, done: R, refused: R) -> Option<R> {
    match status {
        DONE => Some(done),
        REFUSED => Some(refused),
        _ => None,
    }
}

impl<I, F> SlotsAt<I, F> {
    /// A field of the same slots, this many bytes after the beginning. (The slots may not be there
    /// while the limit is 0, so this is arithmetic with an address.)
    #[inline(always)]
    pub(super) fn field<G>(self, offset: usize) -> SlotsAt<I, G> {
        let SlotsAt { index, limits, first } = self;
        SlotsAt { index, limits, first: first.wrapping_byte_add(offset).cast() }
    }
}

impl<I, T: 'static, const N: usize, W: Words> SlotsAt<I, ResizableStack<T, N, W>> {
    /// The length, which lies between the capacity and the entries.
    #[inline(always)]
    pub(super) fn length(self) -> SlotsAt<I, W::U64> {
        self.field(offset_of!(ResizableStack<T, N, W>, len))
    }
}

/// All operations as this kind of section, with these points, which find their slot so: `Index`,
/// `InRow` or `Gated`.
macro_rules! operations {
    ($section:ident, $point:ident, $by:ident, $($more:tt)*) => {
        on_integers!($section, $point, $by, half, u32, $($more)*);
        on_integers!($section, $point, $by, whole, u64, $($more)*);
        on_integers!($section, $point, $by, whole, usize, $($more)*);
        on_words!($section, $point, $by, pointer, [T: 'static], *mut T, $($more)*);

        section_of!([T: 'static, const N: usize, W: Words] $section, $by,
            StackPush<T>: ResizableStack<T, N, W> => Result<(), Full>, |operation, at| {
            let (at, value) = (at.length(), operation.0.as_ptr());
            // SAFETY: see the module. The entry is below the capacity, which is at most `N`.
            unsafe {
                text!(
                    stack_push, $point, $by, at, { return None },
                    value = in(reg) value, full = label { return Some(Err(Full)) }, $($more)*
                );
            }
            Some(Ok(()))
        });

        section_of!([T: 'static, const N: usize, W: Words] $section, $by,
            StackPop: ResizableStack<T, N, W> => Option<NonNull<T>>, |_, at| {
            let at = at.length();
            let (value, status): (*mut T, u64);
            // SAFETY: see the module. The entries are below the length.
            unsafe {
                text!(
                    stack_pop, $point, $by, at, status or null,
                    value = out(reg) value, refused = const REFUSED, $($more)*
                );
            }
            // The value first: it alone tells the usual way.
            match NonNull::new(value) {
                Some(value) => Some(Some(value)),
                None => (status == REFUSED).then_some(None),
            }
        });

        section_of!([T: 'static, const N: usize, W: Words] $section, $by,
            StackPushBatch<'_, T>: ResizableStack<T, N, W> => usize, |operation, at| {
            let (at, values, wanted) = (at.length(), operation.0.as_ptr(), operation.0.len());
            let (count, status): (usize, u64);
            // SAFETY: see the module. No entry above the capacity is written, which is at most
            // `N`.
            unsafe {
                text!(
                    stack_push_batch, $point, $by, at, status,
                    count = out(reg) count,
                    values = in(reg) values, wanted = in(reg) wanted, $($more)*
                );
            }
            (status == DONE).then_some(count)
        });

        section_of!([T: 'static, const N: usize, W: Words] $section, $by,
            StackPopBatch<'_, T>: ResizableStack<T, N, W> => usize, |operation, at| {
            let at = at.length();
            let (into, wanted) = (operation.0.as_ptr().cast_mut(), operation.0.len());
            let (count, status): (usize, u64);
            // SAFETY: see the module. No entry above the length is read, and none behind
            // `into` written.
            unsafe {
                text!(
                    stack_pop_batch, $point, $by, at, status,
                    count = out(reg) count, into = in(reg) into, wanted = in(reg) wanted,
                    $($more)*
                );
            }
            (status == DONE).then_some(count)
        });

        // The exchange of the word that the stack begins with.
        section_of!([T: 'static, const N: usize, W: Words] $section, $by,
            StackResize: ResizableStack<T, N, W> => usize, |operation, at| {
            let (at, capacity) = (at.field::<W::U64>(0), Exchange(operation.0.min(N) as u64));
            // SAFETY: the caller's promise, for the word.
            unsafe { $section::run(capacity, at) }.map(|old| old as usize)
        });
    };
}

operations!(Section, nothing, Index,);
operations!(Section, nothing, InRow,);
operations!(Section, nothing, Gated,);
