//! Restartable operations: in rseq sections if these are proven to work, and otherwise on atomics.

use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use coreline_topology::Cid;

use crate::arch::{self, Area, CPU_ID, Gated, InRow, LIMIT_OF_CIDS, SlotsAt};
use crate::native::linux::{place, rseq};
use crate::native::{Native, Section};
use crate::restartable::rows::PER_LINE;
use crate::restartable::{At, Gate, Limits, NoSlot, Operation, ResizableStack, Rows};
use crate::{IndexBy, Lacking, Line, Place, Restartable, World};

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
        Ok((Section { by, rseq }, place::cpu_limit()))
    }

    #[inline]
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
    fn run<F, O: Operation<Self, F>>(
        at: At<'_, F, Self>,
        operation: O,
    ) -> Result<O::Output, NoSlot> {
        // The same for all slots of a process. Where operations run on atomics it is the blank one,
        // or the limits are 0.
        let index = Area::of_sections().index(CPU_ID);
        let limits = ptr::from_ref(at.limits()).cast();
        // Which it is is known when this is compiled: nothing is left of the other arms.
        //
        // SAFETY: `At` has the invariant that a section asks for, the assertions below hold for the
        // layout, there is memory by concurrency ID only where the kernel keeps them, and an index
        // that a row shows has a slot if it is below the limit.
        let output: Option<O::Output> = unsafe {
            match (at.gate(), at.rows()) {
                (Some((gate, offset)), _) => {
                    let (limits, first) =
                        (ptr::from_ref(gate).cast(), ptr::without_provenance_mut(offset));
                    arch::Section::run(operation, SlotsAt { index: Gated(index), limits, first })
                }
                (None, None) => {
                    arch::Section::run(operation, SlotsAt { index, limits, first: at.first() })
                }
                (None, Some(rows)) => {
                    let index = InRow { cpu: index, rows: ptr::from_ref(rows).cast() };
                    arch::Section::run(operation, SlotsAt { index, limits, first: at.first() })
                }
            }
        };
        output.ok_or(NoSlot)
    }
}

/// Returns how many bytes from the thread pointer each thread has the rseq area on which sections
/// run. Use it for a section of another language, on slots of this library.
///
/// If this process runs no sections, the area is memory of the thread in which `cpu_id` is always
/// -1, and limits of slots are always 0. A section on this area finds no slot, and may still store
/// to `rseq_cs`. The same holds in a thread that is not registered: the next operation of this
/// library on per-CPU memory registers the thread.
///
/// The result is final after the first per-CPU memory of the process was created. It is 0 on
/// processors for which there are no sections.
///
/// Async-signal-safe.
pub fn area_of_sections() -> isize {
    Area::of_sections().offset()
}

// What the sections take for granted.
const _: () = {
    assert!(offset_of!(ResizableStack<u8, 3, Native>, capacity) == 0);
    assert!(offset_of!(ResizableStack<u8, 3, Native>, len) == 8);
    assert!(offset_of!(ResizableStack<u8, 3, Native>, entries) == 16);
    let [cpu, cid] = Limits::<Native>::LAYOUT;
    assert!(cpu == 0 && cid == LIMIT_OF_CIDS);
    assert!(Gate::<Native>::LAYOUT == arch::GATE_FIRST);
    let [table, cpus] = Rows::<Native>::LAYOUT;
    assert!(table == arch::ROWS_TABLE && cpus == arch::ROWS_CPUS);
    assert!(size_of::<Line<[AtomicU32; PER_LINE]>>() == PER_LINE * size_of::<AtomicU32>());
    // What is `half` a register, and what a `whole` one.
    assert!(size_of::<AtomicU32>() == 4 && size_of::<AtomicU64>() == 8);
    assert!(size_of::<AtomicUsize>() == 8 && size_of::<AtomicPtr<u8>>() == 8);
    // `Option<NonNull<T>>` is a pointer that may be null.
    assert!(size_of::<Option<NonNull<u8>>>() == 8);
};
