//! x86-64: the restartable section of *load, add, store*, and the section of the self-test.
//!
//! # The rules of a section
//!
//! A section is announced by a descriptor ([`struct rseq_cs`]): where it starts, how long it is,
//! where to go on when it is aborted. The thread stores the descriptor's address into `rseq_cs` of
//! its own rseq area and enters. When the kernel is about to return to a thread that it preempted,
//! moved or has a signal for, it looks: if the thread stands between the section's start and its
//! end, it goes on at the abort handler, with `rseq_cs` cleared.
//!
//! | offset | field of the area | written by | here |
//! |---|---|---|---|
//! | 0 | `cpu_id_start` | kernel | read by the self-test |
//! | 4 | `cpu_id`; negative while the thread is not registered | kernel | index, read inside |
//! | 8 | `rseq_cs` | thread, kernel | the descriptor's address |
//! | 24 | `mm_cid`, where the kernel has it | kernel | index, read inside |
//!
//! Nothing here writes an ID field (a kernel may kill the process for that) or touches another
//! thread's area.
//!
//! * **Arming is the last instruction before the start.** Were there one between, a thread
//!   preempted there would stand outside the section, the kernel would clear `rseq_cs`, and the
//!   section would run unprotected.
//! * **Nothing clears `rseq_cs` at the end.** A thread that has left stands outside the section, so
//!   the kernel finds nothing to abort and clears the field itself. That saves a store per
//!   operation. The price: until the next preemption the field points at the descriptor, and the
//!   kernel kills a process whose descriptor it cannot read, so code with sections in it must never
//!   be unmapped (`dlclose`).
//! * **The abort handler is preceded by the signature** that the C library registered with the
//!   kernel, so that a corrupted descriptor cannot send a thread just anywhere. Here the signature
//!   is the operand of an undefined instruction, `ud1 <signature>(%rip), %edi`, so that
//!   disassemblers keep their step.
//! * **Nothing in a section calls the kernel.** The kernel does not allow it.
//!
//! Labels are numeric because a section is inlined into many callers, and start at 2 because labels
//! of zeros and ones read as binary numbers in this syntax.
//!
//! Sources: `Documentation/userspace-api/rseq.rst` and `kernel/rseq.c` of Linux; librseq, whose
//! names for operations and whose numbered injection points are used here.
//!
//! [`struct rseq_cs`]: https://docs.kernel.org/userspace-api/rseq.html

use core::arch::asm;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::Line;
use crate::arch::Watched;

/// Where each thread's rseq area lies: so many bytes from its thread pointer, which is `fs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Area {
    offset: isize,
}

impl Area {
    /// The area at `offset` from the thread pointer. (`None` on processors without sections.)
    ///
    /// # Safety
    ///
    /// At `offset` from the thread pointer of each thread of this process lie, for the thread's
    /// whole life, the 32 bytes of a `struct rseq` whose owner is the C library: it registers the
    /// area with the kernel under [`SIGNATURE`] or not at all, and leaves `rseq_cs` to the thread.
    pub(crate) unsafe fn at(offset: isize) -> Option<Area> {
        Some(Area { offset })
    }

    /// The CPU that runs the thread; 0 while the thread is not registered.
    pub(crate) fn cpu_id_start(self) -> u32 {
        self.read::<0>()
    }

    /// The CPU that runs the thread; above `i32::MAX` while the thread is not registered.
    #[inline]
    pub(crate) fn cpu_id(self) -> u32 {
        self.read::<4>()
    }

    /// The thread's concurrency ID; meaningless where the kernel keeps none, and while the thread
    /// is not registered.
    #[inline]
    pub(crate) fn mm_cid(self) -> u32 {
        self.read::<24>()
    }

    #[inline]
    fn read<const FIELD: usize>(self) -> u32 {
        let value: u32;
        // SAFETY: the invariant of `at`: the area of the calling thread lies there. Not `pure`: the
        // kernel changes the field behind the compiler's back.
        unsafe {
            asm!(
                "mov {value:e}, dword ptr fs:[{area} + {field}]",
                value = lateout(reg) value,
                area = in(reg) self.offset,
                field = const FIELD,
                options(nostack, preserves_flags, readonly),
            );
        }
        value
    }
}

/// What must stand in memory before an abort handler: the C library registers every thread under
/// it.
const SIGNATURE: u32 = 0x5305_3053;

/// The descriptor of the section between labels 3 and 4, at label 5, and the head of its abort
/// handler at label 6. What the handler does, and `.popsection`, follow.
///
/// The descriptor holds addresses that the dynamic linker fills in, hence a writable section. The
/// handler lies away from the code it belongs to, as nobody goes there often.
macro_rules! descriptor_and_abort {
    () => {
        "
        .pushsection __rseq_cs, \"aw\"
        .balign 32
        5:
        .long 0, 0
        .quad 3b, 4b - 3b, 6f
        .popsection
        .pushsection __rseq_failure, \"ax\"
        .byte 0x0f, 0xb9, 0x3d
        .long {signature}
        6:
        "
    };
}

/// The section of `load, add, store`: see [`restartable::add`](crate::restartable::add).
///
/// `$point` is called with the number of each place where the thread can be interrupted, and gives
/// the text to put there: nothing, or a trap in tests. The text may use no register, and may change
/// the flags.
macro_rules! load_add_store {
    (
        index = $index:literal, registered = $registered:literal, point = $point:ident,
        $area:expr, $limit:expr, $slots:expr, $delta:expr, $no_index:block
        $(, $($operand:tt)+)?
    ) => {
        asm!(
            $point!("0"),
            "2:",
            // Arm.
            "lea {scratch}, [rip + 5f]",
            "mov qword ptr fs:[{area} + 8], {scratch}",
            "3:",
            $point!("1"),
            // load_index
            $registered,
            concat!("mov {scratch:e}, dword ptr fs:[{area} + ", $index, "]"),
            $point!("2"),
            "cmp {scratch:e}, {limit:e}",
            "jae {no_index}",
            "shl {scratch}, 6",
            $point!("3"),
            // load, commit
            "add qword ptr [{slots} + {scratch}], {delta}",
            "4:",
            $point!("4"),
            descriptor_and_abort!(),
            $point!("abort"),
            "jmp 2b",
            ".popsection",
            scratch = out(reg) _,
            area = in(reg) $area.offset,
            limit = in(reg) $limit.get(),
            slots = in(reg) $slots,
            delta = in(reg) $delta,
            signature = const SIGNATURE,
            no_index = label $no_index,
            $($($operand)+,)?
            options(nostack),
        )
    };
}

/// An interruption point of production code: nothing.
macro_rules! nothing {
    ($point:literal) => {
        ""
    };
}

/// Adds to the slot of the CPU; `false`, with nothing done, if the thread has no index below
/// `limit`.
///
/// Anybody may read the slots. A write by other means than this, atomic or not, can be lost.
///
/// # Safety
///
/// `slots` points to `limit` slots.
#[inline(always)]
pub(crate) unsafe fn add_by_cpu(
    area: Area,
    limit: NonZeroU32,
    slots: *const Line<AtomicU64>,
    delta: u64,
) -> bool {
    // SAFETY: the invariant of `Area::at` makes the loads and the store at `fs` this thread's own.
    // The index is checked against `limit`, so the addition hits a slot, with an aligned 8-byte
    // load and an aligned 8-byte store: to other threads, a relaxed load and a relaxed store. That
    // no update is lost between the two is the kernel's doing: had another thread of this CPU run,
    // the section would have been aborted. Nobody aborts the sections of an unregistered thread,
    // but its `cpu_id` is above every `limit`, as a limit counts CPUs.
    unsafe {
        load_add_store!(
            index = "4",
            registered = "",
            point = nothing,
            area,
            limit,
            slots,
            delta,
            { return false }
        );
    }
    true
}

/// As [`add_by_cpu`], for the slot of the thread's concurrency ID.
///
/// # Safety
///
/// As for [`add_by_cpu`]; and the kernel keeps concurrency IDs.
#[inline(always)]
pub(crate) unsafe fn add_by_cid(
    area: Area,
    limit: NonZeroU32,
    slots: *const Line<AtomicU64>,
    delta: u64,
) -> bool {
    // SAFETY: as in `add_by_cpu`, but the `mm_cid` of an unregistered thread looks like an ID (the
    // kernel leaves 0 there), so the section asks `cpu_id` first whether the thread is registered.
    unsafe {
        load_add_store!(
            index = "24",
            registered = "cmp dword ptr fs:[{area} + 4], 0
                          js {no_index}",
            point = nothing,
            area,
            limit,
            slots,
            delta,
            { return false }
        );
    }
    true
}

/// Stands in a section for at most `spins` pauses, or until `word` is seen to change.
///
/// [`Watched::Changed`] means that another thread wrote the word, between two reads of the section,
/// and the section was not aborted.
pub(crate) fn watch(area: Area, word: &AtomicU32, spins: NonZeroU32) -> Watched {
    // SAFETY: the invariant of `Area::at`, as above; the word is only read, as relaxed loads would.
    unsafe {
        asm!(
            "lea {scratch}, [rip + 5f]",
            "mov qword ptr fs:[{area} + 8], {scratch}",
            "3:",
            "mov {scratch:e}, dword ptr [{word}]",
            "7:",
            "cmp dword ptr [{word}], {scratch:e}",
            "jne {changed}",
            "pause",
            "dec {spins:e}",
            "jnz 7b",
            "4:",
            descriptor_and_abort!(),
            "jmp {aborted}",
            ".popsection",
            scratch = out(reg) _,
            area = in(reg) area.offset,
            word = in(reg) word.as_ptr(),
            spins = inout(reg) spins.get() => _,
            signature = const SIGNATURE,
            changed = label { return Watched::Changed },
            aborted = label { return Watched::Aborted },
            options(nostack),
        );
    }
    Watched::Expired
}

// Last, so that the macros above are in scope.
#[cfg(test)]
mod tests;
