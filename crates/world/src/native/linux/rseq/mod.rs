//! Restartable sequences: which area, which choice, which thread.
//!
//! # Whose area
//!
//! A thread has one rseq area, which is registered once. A second registration is refused. glibc
//! registers every thread from version 2.35 on, and publishes the area's location (`__rseq_offset`,
//! found by name so that a program also starts without it). coreline uses that area, and writes
//! only `rseq_cs` there, which belongs to the code that runs a section. If the C library registers
//! nothing (musl, an older glibc, `GLIBC_TUNABLES=glibc.pthread.rseq=0`), each thread registers
//! [our own area](crate::arch::Area::own) when it first needs it. Nothing here ever writes an ID
//! field.
//!
//! A thread can still have no registration that we may use: one that was started without the C
//! library, one whose registration has another library's area, or one that is about to end. Its
//! `cpu_id` is negative in our area or the C library's. Every section checks that, and such a
//! thread uses the shared slot atomically.
//!
//! # One choice for all
//!
//! A plain addition and an atomic one to the same slot can lose an update between them. So the
//! process chooses once, before its first slot exists. Sections are chosen only if all of this
//! holds:
//!
//! 1. `CORELINE_RSEQ` is not `off`;
//! 2. the processor has sections here ([`crate::arch`]);
//! 3. the C library registered an area, or the kernel registers ours;
//! 4. the [self-test](self_test) saw the kernel abort a preempted section.
//!
//! Otherwise, [`NoSections`] says which condition does not hold, and operations run on atomics.
//!
//! # An area, whatever is chosen
//!
//! Three words say which area is used for what, each as bytes beyond the blank area:
//!
//! | word | for | 0, the blank area | the C library's | our own |
//! |---|---|---|---|---|
//! | [`Sections`](crate::arch::Reading) | sections | not settled, or atomics | chosen | chosen |
//! | [`Reading::Cpu`](crate::arch::Reading) | `cpu_id` | not looked, or none | published | chosen |
//! | [`Reading::Cid`](crate::arch::Reading) | `mm_cid` | the same, or no IDs | published | chosen |
//!
//! Each changes once, from 0. A read of IDs, or a section, on the blank area finds -1: so *not
//! settled*, *switched off*, *no such field* and *thread not registered* are one case on the fast
//! path. The IDs of the C library's area are read whether or not sections were proven to work.
//!
//! # The kernel's concurrency IDs
//!
//! `mm_cid` lies at byte 24 of the area. `__rseq_size` does not tell whether the kernel fills it
//! in: glibc 2.35 to 2.40 say 20 or 32 whatever the kernel does, since they always register 32
//! bytes. The rule here is librseq's: the kernel says in the auxiliary vector that it fills in at
//! least 28 bytes (the end of `mm_cid`), and there is a registration.
//!
//! Sources: `Documentation/userspace-api/rseq.rst` and `kernel/rseq.c` of Linux; the glibc manual,
//! *Restartable Sequences*; librseq.

mod choice;
mod errors;
mod hint;
mod mapped;
mod registration;
mod self_test;

use core::ffi::CStr;

use coreline_topology::{Cid, CpuId};

pub use errors::{NoSections, SelfTestError};
pub use mapped::stay_mapped;
pub use registration::Registration;

pub(crate) use choice::{find_published, is_switched_off, sections, switch};
pub(crate) use registration::published;

use crate::arch::Area;
use crate::native::linux::auxv::{self, MM_CID_END};
use crate::native::linux::getcpu::cpu_by_call;

/// The environment variable that switches rseq off; its only value is `off`.
const SWITCH: &str = "CORELINE_RSEQ";
const SWITCH_C: &CStr = c"CORELINE_RSEQ";

/// Gives the calling thread an index in the area of sections, if it has none; `false` if it cannot
/// have one. It is for operations whose section found no index.
///
/// Asks the kernel at most once in a thread's life. Settles nothing: making the memory did.
///
/// Async-signal-safe: one system call, and a thread-specific value of a key low enough that the C
/// library has room for it.
#[cold]
pub(crate) fn register_thread() -> bool {
    let Some(Ok(area)) = choice::made() else { return false };
    if *area == Area::own() {
        registration::register_own();
    }
    is_id(area.cpu_id())
}

/// The CPU that runs the caller. No system call if its thread is registered, but two loads and a
/// branch (three loads in a library that `dlopen` may load).
///
/// Never runs the self-test: where only coreline could register the thread, the kernel is asked
/// until the process has chosen [`sections`].
#[inline]
pub(crate) fn cpu() -> CpuId {
    let cpu = Area::of_cpu().cpu_id();
    if is_id(cpu) { CpuId::new(cpu) } else { cpu_slowly() }
}

/// A field that holds no ID is negative. Every kernel keeps its IDs far below that.
#[inline]
pub(crate) fn is_id(field: u32) -> bool {
    field.cast_signed() >= 0
}

/// The same, or what it was a while ago: without rseq, refreshed by `getcpu` at every 64th call.
#[inline]
pub(crate) fn cpu_hint() -> CpuId {
    let cpu = Area::of_cpu().cpu_id();
    if is_id(cpu) { CpuId::new(cpu) } else { remembered_cpu() }
}

#[cold]
#[inline(never)]
fn remembered_cpu() -> CpuId {
    hint::cpu(cpu_slowly)
}

#[cold]
#[inline(never)]
fn cpu_slowly() -> CpuId {
    find_published();
    register_thread();
    let cpu = Area::of_cpu().cpu_id();
    if is_id(cpu) { CpuId::new(cpu) } else { cpu_by_call() }
}

/// The caller's concurrency ID, if the kernel keeps them and its thread is registered. Three loads
/// and a branch (four in a library that `dlopen` may load).
///
/// If the C library registers nothing, the first call makes the choice of [`sections`].
#[inline]
pub(crate) fn cid() -> Option<Cid> {
    // Not by way of `Option::or_else`, which rustc compiles to six instructions more.
    match read_cid() {
        Some(cid) => Some(cid),
        None => cid_slowly(),
    }
}

#[inline]
fn read_cid() -> Option<Cid> {
    let area = Area::of_cid();
    // An unregistered thread's `mm_cid` can look like an ID, so `cpu_id` must not be negative
    // either.
    let (cpu, cid) = (area.cpu_id(), area.mm_cid());
    if is_id(cpu | cid) { Some(Cid::new(cid)) } else { None }
}

#[cold]
#[inline(never)]
fn cid_slowly() -> Option<Cid> {
    find_published();
    if Area::of_cpu() == Area::blank() {
        // Whether there is an area is for the choice to find out. An error is as good as an answer.
        let _ = sections();
    }
    register_thread();
    read_cid()
}

/// How many bytes of its rseq area the kernel has registered for the calling thread. `None` if the
/// thread is not registered, or the kernel does not say.
pub(crate) fn registered_bytes() -> Option<u32> {
    let area = registration::published_area().unwrap_or_else(Area::own);
    let said = published().map_or(0, |published| published.size);
    let filled_in = u32::try_from(auxv::rseq_feature_size()).unwrap_or(0);
    registration::registered_bytes(area, &[registration::LENGTH, filled_in, said])
}

/// Whether the kernel fills in `mm_cid`.
fn keeps_cids() -> bool {
    auxv::rseq_feature_size() >= MM_CID_END
}

/// Whether registered threads of this process have concurrency IDs. Makes the choice of
/// [`sections`] if that is what it depends on.
pub(crate) fn has_cids() -> bool {
    find_published();
    keeps_cids() && (Area::of_cid() != Area::blank() || sections().is_ok())
}

/// Why [`has_cids`] is false, or [`cid`] is `None`.
pub(crate) fn why_no_cid() -> String {
    if Area::of_cpu() == Area::blank() {
        return match sections() {
            Err(why) => why.to_string(),
            Ok(_) => "no thread is registered for rseq yet".to_owned(),
        };
    }
    if !keeps_cids() {
        let filled = auxv::rseq_feature_size();
        return format!(
            "the kernel fills in {filled} bytes of an rseq area, and the ID ends at byte \
             {MM_CID_END}"
        );
    }
    "the calling thread is not registered for rseq".to_owned()
}
