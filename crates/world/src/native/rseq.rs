//! Restartable operations: in rseq sections where those are proven to work, else on atomics.
//!
//! # Whose area
//!
//! A thread has one rseq area, registered once; who comes second is refused. glibc registers every
//! thread from version 2.35 on and publishes where (`__rseq_offset`, found by name so that a
//! program also starts where there is none). coreline uses that area, and writes only `rseq_cs`
//! there, which belongs to whoever runs a section. Other C libraries register nothing; there
//! operations run on atomics.
//!
//! A thread can still be unregistered: one started behind the C library's back, or one that gave
//! its registration up so that another library could register an area of its own. The kernel aborts
//! nothing in the C library's area for it, so every section checks, and such a thread adds to the
//! shared slot atomically.
//!
//! # One choice for all
//!
//! A plain addition and an atomic one to the same slot can lose an update between them. So the
//! process chooses once, before its first slot exists, and never changes: [`Section`] carries the
//! choice into each memory that is made. Sections are chosen only if all of this holds:
//!
//! 1. `CORELINE_RSEQ` is not `off`;
//! 2. the processor has sections here ([`crate::arch`]);
//! 3. the C library registered an area;
//! 4. the [self-test](super::self_test) saw the kernel abort a preempted section.
//!
//! Else [`NoSections`] says which does not, the operations run on atomics, and
//! [`probe`](super::probe()) reports it.
//!
//! # The kernel's concurrency IDs
//!
//! `mm_cid` lies at byte 24 of the area. `__rseq_size` does not tell whether the kernel fills it
//! in: glibc 2.35 to 2.40 say 20 or 32 whatever the kernel does, since they always register 32
//! bytes. The rule here is librseq's: the kernel says in the auxiliary vector that it fills in at
//! least 28 bytes (the end of `mm_cid`), and the C library's registration succeeded.
//!
//! Sources: `Documentation/userspace-api/rseq.rst` of Linux; the glibc manual, *Restartable
//! Sequences*; librseq.

use core::ffi::CStr;
use core::fmt;
use core::num::NonZeroU32;
use core::sync::atomic::AtomicU64;
use std::env;
use std::sync::OnceLock;

use coreline_topology::{Cid, CpuId};

use crate::arch::{self, Area};
use crate::native::self_test::{self, SelfTestError};
use crate::native::{Native, place};
use crate::{IndexBy, Lacking, Ordering, PerCpuWords, Restartable, World};

/// The environment variable that switches rseq off; its only value is `off`.
pub(crate) const SWITCH: &str = "CORELINE_RSEQ";

/// `AT_RSEQ_FEATURE_SIZE`: how many bytes of the area the kernel fills in.
const AT_FEATURE_SIZE: libc::c_ulong = 27;
/// `AT_RSEQ_ALIGN`: the alignment that the kernel asks of an area.
const AT_ALIGN: libc::c_ulong = 28;
/// Where `mm_cid` ends in the area.
const MM_CID_END: u64 = 28;

/// Why restartable operations do not run in rseq sections here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoSections {
    /// The environment says so.
    #[error("{SWITCH}=off in the environment switches them off; unset it to have them")]
    SwitchedOff,
    /// There is no assembly for this processor.
    #[error("coreline has none for this processor; it has them for x86-64")]
    Processor,
    /// The C library publishes no rseq area.
    #[error(
        "the C library registers no threads for rseq; glibc does from version 2.35 on, where it is \
         linked dynamically"
    )]
    NoArea,
    /// The C library published an area, but did not register it.
    #[error(
        "the C library could not register this process for rseq: the kernel has none, a filter \
         refuses it, or GLIBC_TUNABLES sets glibc.pthread.rseq=0"
    )]
    NotRegistered,
    /// The area is there, but did not pass the test of behaviour.
    #[error("they failed the start-up self-test: {0}")]
    SelfTest(#[from] SelfTestError),
}

/// What the C library and the kernel say about this process's rseq areas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// Bytes from a thread's thread pointer to its area.
    pub offset: isize,
    /// `__rseq_size`: the C library's idea of how many bytes are in use. Zero if it registered
    /// nothing.
    pub size: u32,
}

/// The C library's registration; `None` if it does not know rseq.
pub(crate) fn registration() -> Option<Registration> {
    let offset = symbol(c"__rseq_offset")?.cast::<isize>();
    let size = symbol(c"__rseq_size")?.cast::<u32>();
    // SAFETY: these are glibc's names for constants of these types, set before any code of ours
    // runs.
    Some(unsafe { Registration { offset: *offset, size: *size } })
}

fn symbol(name: &CStr) -> Option<*const libc::c_void> {
    // SAFETY: the name is a C string, and the default scope needs no open handle.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address.cast_const())
}

/// How many bytes of the area the kernel fills in, and the alignment that it asks for; zeros from a
/// kernel that does not say.
pub(crate) fn auxiliary() -> (u64, u64) {
    // SAFETY: reads the auxiliary vector; an unknown entry reads as zero.
    unsafe { (libc::getauxval(AT_FEATURE_SIZE), libc::getauxval(AT_ALIGN)) }
}

/// The rseq area of each thread, whether or not sections may be used. Settled at the first call.
#[inline]
pub(crate) fn area() -> Result<Area, &'static NoSections> {
    static AREA: OnceLock<Result<Area, NoSections>> = OnceLock::new();
    AREA.get_or_init(find_area).as_ref().copied()
}

fn find_area() -> Result<Area, NoSections> {
    if env::var_os(SWITCH).is_some_and(|value| value == "off") {
        return Err(NoSections::SwitchedOff);
    }
    let registration = registration().ok_or(NoSections::NoArea)?;
    if registration.size == 0 {
        return Err(NoSections::NotRegistered);
    }
    // SAFETY: the C library published this offset as that of the area which it owns in every
    // thread's control block. It registers at least the 32 bytes of the first `struct rseq`, under
    // the one signature that each processor has.
    unsafe { Area::at(registration.offset) }.ok_or(NoSections::Processor)
}

/// The rseq area of each thread, if sections work: the choice of this process. The first call runs
/// the self-test, which takes some milliseconds, and seconds at worst.
pub(crate) fn sections() -> Result<Area, &'static NoSections> {
    static SECTIONS: OnceLock<Result<Area, NoSections>> = OnceLock::new();
    let chosen = SECTIONS.get_or_init(|| {
        let area = area().map_err(NoSections::clone)?;
        self_test::run(area)?;
        Ok(area)
    });
    chosen.as_ref().copied()
}

/// The CPU that runs the caller, if its thread is registered. No system call.
#[inline]
pub(crate) fn cpu() -> Option<CpuId> {
    let cpu = area().ok()?.cpu_id();
    (cpu <= i32::MAX.cast_unsigned()).then_some(CpuId::new(cpu))
}

/// The caller's concurrency ID, if the kernel keeps them and its thread is registered.
#[inline]
pub(crate) fn cid() -> Option<Cid> {
    let area = area().ok()?;
    // An unregistered thread's ID would look like 0.
    let cid = (keeps_cids() && cpu().is_some()).then(|| area.mm_cid())?;
    // Every kernel keeps its IDs below the number of possible CPUs.
    ((cid as usize) < place::cpu_limit()).then_some(Cid::new(cid))
}

/// Whether the kernel fills in `mm_cid`.
pub(crate) fn keeps_cids() -> bool {
    static KEEPS: OnceLock<bool> = OnceLock::new();
    *KEEPS.get_or_init(|| auxiliary().0 >= MM_CID_END)
}

/// How restartable operations run natively: in rseq sections, or on atomics.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Section(How);

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// In sections, indexed by CPU number; every index used is below the limit.
    Cpu(Area, NonZeroU32),
    /// In sections, indexed by concurrency ID; every index used is below the limit.
    Cid(Area, NonZeroU32),
    /// On atomics.
    Atomics(IndexBy),
}

impl Section {
    /// Whether operations run in rseq sections rather than on atomics.
    pub fn is_rseq(&self) -> bool {
        !matches!(self.0, How::Atomics(_))
    }

    /// What picks the slot.
    pub fn index_by(&self) -> IndexBy {
        match self.0 {
            How::Cpu(..) => IndexBy::Cpu,
            How::Cid(..) => IndexBy::KernelCid,
            How::Atomics(by) => by,
        }
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_rseq() { "rseq" } else { "atomics" };
        write!(f, "Section({how}, {})", self.index_by())
    }
}

impl Restartable for Native {
    type Section = Section;

    fn section(by: IndexBy) -> Result<(Section, usize), Lacking> {
        if by == IndexBy::KernelCid && cid().is_none() {
            return Err(Lacking {
                world: Native::NAME,
                capability: "kernel concurrency ID",
                why: why_no_cid(),
                remedy: format!("index by {} instead", IndexBy::Cpu),
            });
        }
        let indexes = place::cpu_limit();
        let limit = u32::try_from(indexes).ok().and_then(NonZeroU32::new);
        let how = match (sections(), limit, by) {
            (Ok(area), Some(limit), IndexBy::Cpu) => How::Cpu(area, limit),
            (Ok(area), Some(limit), IndexBy::KernelCid) => How::Cid(area, limit),
            _ => How::Atomics(by),
        };
        Ok((Section(how), indexes))
    }

    #[inline]
    fn index(section: &Section) -> usize {
        let cid = || cid().map_or(usize::MAX, Cid::index);
        match section.0 {
            How::Cpu(area, _) => area.cpu_id() as usize,
            How::Cid(..) | How::Atomics(IndexBy::KernelCid) => cid(),
            How::Atomics(IndexBy::Cpu) => place::cpu().index(),
        }
    }

    #[inline]
    fn add(words: &PerCpuWords<Self>, delta: u64) {
        let slots = words.slots().as_ptr();
        let added = match words.section().0 {
            // SAFETY: a `PerCpuWords` has the slots that `section`, above, counted, and one more.
            How::Cpu(area, limit) => unsafe { arch::add_by_cpu(area, limit, slots, delta) },
            // SAFETY: the same; and `section` saw a concurrency ID.
            How::Cid(area, limit) => unsafe { arch::add_by_cid(area, limit, slots, delta) },
            How::Atomics(_) => return add_atomically(words, delta),
        };
        if !added {
            add_shared(words, delta);
        }
    }
}

#[inline(never)]
fn add_atomically(words: &PerCpuWords<Native>, delta: u64) {
    let slot = words.slots().get(Native::index(words.section()));
    let slot: &AtomicU64 = slot.map_or(words.shared(), |line| line);
    // Relaxed: a slot carries nothing but its own value.
    slot.fetch_add(delta, Ordering::Relaxed);
}

#[cold]
#[inline(never)]
fn add_shared(words: &PerCpuWords<Native>, delta: u64) {
    // Relaxed: as above. Atomic, because threads without an index run anywhere, several at a time.
    words.shared().fetch_add(delta, Ordering::Relaxed);
}

fn why_no_cid() -> String {
    match area() {
        Err(no_area) => no_area.to_string(),
        Ok(_) if !keeps_cids() => {
            let filled = auxiliary().0;
            format!(
                "the kernel fills in {filled} bytes of an rseq area, the ID ends at {MM_CID_END}"
            )
        }
        Ok(_) => "the calling thread is not registered for rseq".to_owned(),
    }
}
