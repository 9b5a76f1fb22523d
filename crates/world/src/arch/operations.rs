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
//!   an atomic one of its size, which for a word is that of what it holds. Reading the limit
//!   acquires, and so does reading a row; the commit of a pointer, a list, a stack and a buffer
//!   releases;
//! * that nothing is lost between the first load and the commit is the kernel's doing: had another
//!   thread of this CPU run, the section would have been aborted. The sections of an unregistered
//!   thread are not aborted, but its `cpu_id` is negative, so above every limit and every number of
//!   rows, and sections that use another index look at it as well.

use core::mem::offset_of;
use core::ptr::NonNull;

use super::status::{DONE, NO_SLOT, REFUSED};
use super::{InRow, Index, Section, SlotsAt};
use crate::restartable::definition::{
    Add, AddIf, Append, Exchange, ListPop, ListPush, Load, StackPop, StackPopBatch, StackPush,
    StackPushBatch, StackResize, StoreIfEqual,
};
use crate::restartable::{ArrayStack, Buffer, Full, List, ListNode, ResizableStack};
use crate::{Integer, Word, Words};

/// Operations on words that hold a `$value`, which is so wide: `half`, `whole` or a `pointer`.
macro_rules! on_words {
    (
        $section:ident, $point:ident, $by:ident, $width:ident,
        [$($target:ident: $static:lifetime)?], $value:ty $(, $($more:tt)+)?
    ) => {
        impl<$($target: $static,)? F: Word<Value = $value>> $section<$by, F, $value> for Load {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, F>) -> Option<$value> {
                let (value, status): ($value, u64);
                // SAFETY: see the module.
                unsafe { load!($point, $by, $width, at, value, status $(, $($more)+)?) };
                (status == DONE).then_some(value)
            }
        }

        impl<$($target: $static,)? F: Word<Value = $value>> $section<$by, F, $value>
            for Exchange<$value>
        {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, F>) -> Option<$value> {
                let (old, status): ($value, u64);
                // SAFETY: see the module.
                unsafe { exchange!($point, $by, $width, at, self.0, old, status $(, $($more)+)?) };
                (status == DONE).then_some(old)
            }
        }

        impl<$($target: $static,)? F: Word<Value = $value>> $section<$by, F, Result<(), $value>>
            for StoreIfEqual<$value>
        {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, F>) -> Option<Result<(), $value>> {
                let StoreIfEqual { expected, new } = self;
                let (old, status): ($value, u64);
                // SAFETY: see the module.
                unsafe {
                    store_if_equal!(
                        $point, $by, $width, at, expected, new, old, status $(, $($more)+)?
                    );
                }
                match status {
                    DONE => Some(Ok(())),
                    REFUSED => Some(Err(old)),
                    _ => None,
                }
            }
        }
    };
}

/// As [`on_words`], and operations on integers.
macro_rules! on_integers {
    (
        $section:ident, $point:ident, $by:ident, $width:ident, $value:ty $(, $($more:tt)+)?
    ) => {
        on_words!($section, $point, $by, $width, [], $value $(, $($more)+)?);

        impl<F: Integer<Value = $value>> $section<$by, F, ()> for Add<$value> {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, F>) -> Option<()> {
                // SAFETY: see the module.
                unsafe { add!($point, $by, $width, at, self.0, { return None } $(, $($more)+)?) };
                Some(())
            }
        }

        impl<F: Integer<Value = $value>> $section<$by, F, Result<$value, $value>>
            for AddIf<$value>
        {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, F>) -> Option<Result<$value, $value>> {
                let AddIf { delta, fixed } = self;
                let (old, sum, status): ($value, $value, u64);
                // SAFETY: see the module.
                unsafe {
                    add_if!(
                        $point, $by, $width, at, delta, fixed, old, sum, status $(, $($more)+)?
                    );
                }
                match status {
                    DONE => Some(Ok(sum)),
                    REFUSED => Some(Err(old)),
                    _ => None,
                }
            }
        }
    };
}

impl<I, F> SlotsAt<I, F> {
    /// A field of the same slots, so many bytes behind the beginning. (The slots may not be there
    /// while the limit is 0, so this is arithmetic with an address.)
    #[inline(always)]
    pub(super) fn field<G>(self, offset: usize) -> SlotsAt<I, G> {
        let SlotsAt { index, limit, first } = self;
        SlotsAt { index, limit, first: first.wrapping_byte_add(offset).cast() }
    }
}

impl<I, T: 'static, const N: usize, W: Words, const WORDS: usize>
    SlotsAt<I, ArrayStack<T, N, W, WORDS>>
{
    /// The length, which lies between the capacity, if there is a word of it, and the entries.
    #[inline(always)]
    pub(super) fn length(self) -> SlotsAt<I, W::U64> {
        self.field(offset_of!(ArrayStack<T, N, W, WORDS>, len))
    }
}

/// All operations as this kind of section, with these points, which find their index so: `Index`
/// or `InRow`.
macro_rules! operations {
    ($section:ident, $point:ident, $by:ident $(, $($more:tt)+)?) => {
        on_integers!($section, $point, $by, half, u32 $(, $($more)+)?);
        on_integers!($section, $point, $by, whole, u64 $(, $($more)+)?);
        on_integers!($section, $point, $by, whole, usize $(, $($more)+)?);
        on_words!($section, $point, $by, pointer, [T: 'static], *mut T $(, $($more)+)?);

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

        impl<T: 'static, const N: usize, W: Words, const WORDS: usize>
            $section<$by, ArrayStack<T, N, W, WORDS>, Result<(), Full>> for StackPush<T>
        {
            #[inline(always)]
            unsafe fn run(
                self,
                at: SlotsAt<$by, ArrayStack<T, N, W, WORDS>>,
            ) -> Option<Result<(), Full>> {
                let (at, value) = (at.length(), self.0.as_ptr());
                // SAFETY: see the module. The entry is below the capacity, which is at most `N`.
                unsafe {
                    if WORDS == 0 {
                        stack_push!(
                            $point, $by, const N, at, value, { return None },
                            { return Some(Err(Full)) } $(, $($more)+)?
                        );
                    } else {
                        stack_push!(
                            $point, $by, word, at, value, { return None },
                            { return Some(Err(Full)) } $(, $($more)+)?
                        );
                    }
                }
                Some(Ok(()))
            }
        }

        impl<T: 'static, const N: usize, W: Words, const WORDS: usize>
            $section<$by, ArrayStack<T, N, W, WORDS>, Option<NonNull<T>>> for StackPop
        {
            #[inline(always)]
            unsafe fn run(
                self,
                at: SlotsAt<$by, ArrayStack<T, N, W, WORDS>>,
            ) -> Option<Option<NonNull<T>>> {
                let at = at.length();
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

        impl<T: 'static, const N: usize, W: Words, const WORDS: usize>
            $section<$by, ArrayStack<T, N, W, WORDS>, usize> for StackPushBatch<'_, T>
        {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, ArrayStack<T, N, W, WORDS>>) -> Option<usize> {
                let (at, values, wanted) = (at.length(), self.0.as_ptr(), self.0.len());
                let (count, status): (usize, u64);
                // SAFETY: see the module. No entry above the capacity is written, which is at most
                // `N`.
                unsafe {
                    if WORDS == 0 {
                        stack_push_batch!(
                            $point, $by, const N, at, values, wanted, count, status
                            $(, $($more)+)?
                        );
                    } else {
                        stack_push_batch!(
                            $point, $by, word, at, values, wanted, count, status
                            $(, $($more)+)?
                        );
                    }
                }
                (status == DONE).then_some(count)
            }
        }

        impl<T: 'static, const N: usize, W: Words, const WORDS: usize>
            $section<$by, ArrayStack<T, N, W, WORDS>, usize> for StackPopBatch<'_, T>
        {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, ArrayStack<T, N, W, WORDS>>) -> Option<usize> {
                let at = at.length();
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

        /// The exchange of the word that the stack begins with.
        impl<T: 'static, const N: usize, W: Words> $section<$by, ResizableStack<T, N, W>, usize>
            for StackResize
        {
            #[inline(always)]
            unsafe fn run(self, at: SlotsAt<$by, ResizableStack<T, N, W>>) -> Option<usize> {
                let (at, capacity) = (at.field::<W::U64>(0), Exchange(self.0.min(N) as u64));
                // SAFETY: the caller's promise, for the word.
                unsafe { $section::run(capacity, at) }.map(|old| old as usize)
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
