//! Restartable operations: in rseq sections where those are proven to work, else on atomics.

use core::fmt;
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64};

use coreline_topology::Cid;

use crate::arch::{self, CPU_ID, InRow, Index, MM_CID, SlotsAt, by_rows};
use crate::native::{Native, place, rseq};
use crate::restartable::rows::PER_LINE;
use crate::restartable::{At, NoSlot, Rows};
use crate::{
    ArrayStack, Buffer, Full, IndexBy, Lacking, Line, List, ListNode, Place, Restartable, World,
};

/// How restartable operations run natively: in rseq sections, or on atomics.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// In the area of threads that are never registered, where operations run on atomics.
    index: Index,
    by: IndexBy,
    rseq: bool,
}

impl Section {
    /// Whether operations run in rseq sections rather than on atomics.
    pub fn is_rseq(&self) -> bool {
        self.rseq
    }

    /// What picks the slot.
    pub fn index_by(&self) -> IndexBy {
        self.by
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_rseq() { "rseq" } else { "atomics" };
        write!(f, "Section({how}, {})", self.index_by())
    }
}

/// The section of an operation, and what becomes of its result. Whether there are rows is known
/// when this is compiled: nothing is left of the other arm.
macro_rules! section {
    (
        $at:expr, $operation:ident $(::<$const:ident>)? ($($argument:expr),*),
        |$result:ident| $then:expr
    ) => {{
        let (index, limit) = ($at.section().index, ptr::from_ref($at.limit()));
        let first = $at.first().as_ptr().cast();
        match $at.rows() {
            None => {
                let slots = SlotsAt { index, limit, first };
                // SAFETY: `At` has the invariant that the operation asks for, the assertions below
                // hold for the layout, and there is memory by concurrency ID only where the kernel
                // keeps them.
                let $result = unsafe { arch::$operation $(::<$const>)? (slots $(, $argument)*) };
                $then
            }
            Some(rows) => {
                let index = InRow { cpu: index, rows: ptr::from_ref(rows).cast() };
                let at = SlotsAt { index, limit, first };
                // SAFETY: the same, and `Indexing` promises that indexes in rows have slots.
                let $result = unsafe { by_rows::$operation $(::<$const>)? (at $(, $argument)*) };
                $then
            }
        }
    }};
}

impl Restartable for Native {
    type Section = Section;

    const STRIDE: usize = 1 << arch::STRIDE_SHIFT;

    fn section(by: IndexBy) -> Result<(Section, usize), Lacking> {
        if by == IndexBy::KernelCid && !rseq::has_cids() {
            return Err(Lacking {
                world: Native::NAME,
                capability: "kernel concurrency ID",
                why: rseq::why_no_cid().into(),
                remedy: "index by cpu-id instead",
            });
        }
        let rseq = rseq::sections().is_ok();
        let index = rseq::area().index(match by {
            IndexBy::Cpu => CPU_ID,
            IndexBy::KernelCid => MM_CID,
        });
        Ok((Section { index, by, rseq }, place::cpu_limit()))
    }

    fn index_by(section: &Section) -> IndexBy {
        section.by
    }

    fn runs_sections(section: &Section) -> bool {
        section.rseq
    }

    fn index(section: &Section) -> usize {
        match section.by {
            // On atomics any slot will do.
            IndexBy::Cpu if !section.rseq => Native::cpu_hint().index(),
            IndexBy::Cpu if !rseq::register_thread() => usize::MAX,
            IndexBy::Cpu => Native::cpu().index(),
            IndexBy::KernelCid => rseq::cid().map_or(usize::MAX, Cid::index),
        }
    }

    #[inline]
    fn add(at: At<'_, AtomicU64, Self>, delta: u64) -> Result<(), NoSlot> {
        section!(at, add(delta), |done| if done { Ok(()) } else { Err(NoSlot) })
    }

    #[inline]
    fn load(at: At<'_, AtomicU64, Self>) -> Result<u64, NoSlot> {
        section!(at, load(), |value| value.ok_or(NoSlot))
    }

    #[inline]
    fn store_if_equal(
        at: At<'_, AtomicU64, Self>,
        expected: u64,
        new: u64,
    ) -> Result<Result<(), u64>, NoSlot> {
        section!(at, store_if_equal(expected, new), |stored| stored.ok_or(NoSlot))
    }

    #[inline]
    fn add_if(
        at: At<'_, AtomicU64, Self>,
        delta: u64,
        fixed: u64,
    ) -> Result<Result<u64, u64>, NoSlot> {
        section!(at, add_if(delta, fixed), |added| added.ok_or(NoSlot))
    }

    #[inline]
    unsafe fn list_push(
        at: At<'_, List<Self>, Self>,
        node: NonNull<ListNode<Self>>,
    ) -> Result<(), NoSlot> {
        let node = node.as_ptr().cast();
        section!(at, list_push(node), |done| if done { Ok(()) } else { Err(NoSlot) })
    }

    #[inline]
    fn list_pop(at: At<'_, List<Self>, Self>) -> Result<Option<NonNull<ListNode<Self>>>, NoSlot> {
        section!(at, list_pop(), |node| Ok(NonNull::new(node.ok_or(NoSlot)?.cast())))
    }

    #[inline]
    fn stack_push<T: 'static, const N: usize>(
        at: At<'_, ArrayStack<T, N, Self>, Self>,
        value: NonNull<T>,
    ) -> Result<Result<(), Full>, NoSlot> {
        let value = value.as_ptr().cast();
        section!(at, stack_push::<N>(value), |pushed| {
            Ok(if pushed.ok_or(NoSlot)? { Ok(()) } else { Err(Full) })
        })
    }

    #[inline]
    fn stack_pop<T: 'static, const N: usize>(
        at: At<'_, ArrayStack<T, N, Self>, Self>,
    ) -> Result<Option<NonNull<T>>, NoSlot> {
        section!(at, stack_pop(), |value| Ok(NonNull::new(value.ok_or(NoSlot)?.cast())))
    }

    #[inline]
    fn stack_push_batch<T: 'static, const N: usize>(
        at: At<'_, ArrayStack<T, N, Self>, Self>,
        values: &[NonNull<T>],
    ) -> Result<usize, NoSlot> {
        let (from, wanted) = (values.as_ptr().cast(), values.len());
        section!(at, stack_push_batch::<N>(from, wanted), |count| count.ok_or(NoSlot))
    }

    #[inline]
    fn stack_pop_batch<T: 'static, const N: usize>(
        at: At<'_, ArrayStack<T, N, Self>, Self>,
        into: &mut [Option<NonNull<T>>],
    ) -> Result<usize, NoSlot> {
        let (to, wanted) = (into.as_mut_ptr().cast(), into.len());
        section!(at, stack_pop_batch(to, wanted), |count| count.ok_or(NoSlot))
    }

    #[inline]
    fn append<const N: usize>(
        at: At<'_, Buffer<N, Self>, Self>,
        bytes: &[u8],
    ) -> Result<Result<usize, Full>, NoSlot> {
        let (from, count) = (bytes.as_ptr(), bytes.len());
        section!(at, append::<N>(from, count), |begin| {
            Ok(begin.ok_or(NoSlot)?.map_err(|()| Full))
        })
    }
}

// What the sections take for granted.
const _: () = {
    assert!(offset_of!(List<Native>, first) == 0);
    assert!(offset_of!(ListNode<Native>, next) == 0);
    assert!(offset_of!(ArrayStack<u8, 3, Native>, len) == 0);
    assert!(offset_of!(ArrayStack<u8, 3, Native>, entries) == 16);
    assert!(offset_of!(Buffer<3, Native>, len) == 0);
    assert!(offset_of!(Buffer<3, Native>, bytes) == 16);
    let [table, cpus] = Rows::<Native>::LAYOUT;
    assert!(table == arch::ROWS_TABLE && cpus == arch::ROWS_CPUS);
    assert!(size_of::<Line<[AtomicU32; PER_LINE]>>() == PER_LINE * size_of::<AtomicU32>());
    // `Option<NonNull<T>>` is a pointer that may be null.
    assert!(size_of::<Option<NonNull<u8>>>() == 8);
};
