//! CPU masks that are read before they are written.
//!
//! A [`CpuMask`] says which CPUs take part in something: run a tenant's tasks, hold a cached value,
//! want to be told. Bits are set and cleared often and by all CPUs, mostly to what they are
//! already; so [`set`](CpuMask::set) and [`clear`](CpuMask::clear) look first, and write only what
//! changes. An unconditional locked write makes the mask's line travel through all CPUs instead,
//! and each of them waits for it: on 120 CPUs that was the hottest line of a whole linpack run, in
//! the kernel before van Riel's ["sched/x86: Optimize switch_mm() for multi-threaded
//! workloads"][riel] (2013).
//!
//! [riel]: https://lore.kernel.org/r/20130731221421.616d3d20@annuminas.surriel.com
//!
//! ```
//! use coreline::CpuMask;
//! use coreline::topology::CpuId;
//!
//! let mask = CpuMask::new();
//! let cpu = mask.cpus().next().unwrap();
//! assert!(mask.set(cpu)?, "it was clear");
//! assert!(!mask.set(cpu)?, "it was set: nothing was written");
//! assert_eq!(mask.snapshot().len(), 1);
//! assert!(mask.clear(cpu)?);
//! assert!(mask.set(CpuId::new(1 << 20)).is_err(), "no machine has that many");
//! # Ok::<(), coreline::mask::MaskError>(())
//! ```
//!
//! # Layout
//!
//! The CPUs under one last-level cache share a line of the mask, which no other CPU writes. A
//! summary names the lines that have bits, so that to read the whole mask of a big machine is to
//! read few lines. See the table of states in `bits.rs`.
//!
//! **Signals, fork**: every operation may run in a signal handler, where it is as if the
//! interrupted thread had been preempted, but for those that return a set or the CPUs of one
//! ([`snapshot`](CpuMask::snapshot), `iter`, `union`), which allocate; a forked child has the mask
//! as it was, and if another thread was in [`trim`](CpuMask::trim) then, reads of the whole mask
//! read every line from there on.

mod bits;
mod layout;
mod presence;
mod roll;
mod rolls;
mod versioned;

use core::fmt;
use std::sync::Arc;

use coreline_topology::{CpuId, CpuSet};
use coreline_world::{Native, World, WorldStatic};

use bits::{Bits, Position};
pub use layout::MaskLayout;
pub use presence::{Entry, Inside, Late, Member, Presence, PresenceOptions, Shot};
pub use versioned::{Reader, Reading, Reclaimer, Versioned};

/// What a mask cannot do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaskError {
    /// The mask has no bit for this CPU.
    #[error("the mask has no bit for {cpu}: it has bits for {has} CPUs; CpuMask::cpus lists them")]
    NoSuchCpu {
        /// The CPU.
        cpu: CpuId,
        /// How many CPUs have one.
        has: u32,
    },
}

// Every `set` returns one, or might.
const _: () = assert!(size_of::<Result<bool, MaskError>>() <= 16);

/// A set of CPUs that all of them change, each its own bit mostly.
///
/// As wide as the machine. Takes a line of memory (64 bytes) for each last-level cache, and one
/// more for each 63 of them: 1,600 bytes for 384 CPUs under 24 caches, beside its 80 own. Where
/// bits lie is in the [`MaskLayout`], once for all masks of the machine.
pub struct CpuMask<W: World = Native> {
    layout: MaskLayout,
    /// In the layout's leaves.
    bits: Bits<W>,
}

const _: () = {
    assert!(size_of::<CpuMask<Native>>() == 80);
    assert!(align_of::<CpuMask<Native>>() == 8);
};

impl CpuMask {
    /// An empty mask for this machine.
    pub fn new() -> Self {
        CpuMask::new_in()
    }

    /// An empty mask for the CPUs of a layout.
    pub fn with_layout(layout: &MaskLayout) -> Self {
        CpuMask::with_layout_in(layout)
    }
}

impl Default for CpuMask {
    fn default() -> Self {
        CpuMask::new()
    }
}

impl<W: World> CpuMask<W> {
    /// As [`new`](CpuMask::new), in every world.
    pub fn new_in() -> Self {
        static LAYOUT: WorldStatic = WorldStatic::new("layout of CPU masks");
        LAYOUT.with::<W, _, _>(|| MaskLayout::new(&W::topology()), CpuMask::with_layout_in)
    }

    /// As [`with_layout`](CpuMask::with_layout), in every world.
    pub fn with_layout_in(layout: &MaskLayout) -> Self {
        CpuMask { layout: layout.clone(), bits: Bits::new_in(Arc::clone(layout.used())) }
    }

    /// Where the bits lie.
    pub fn layout(&self) -> &MaskLayout {
        &self.layout
    }

    #[cold]
    #[inline(never)]
    fn no_such(&self, cpu: CpuId) -> MaskError {
        MaskError::NoSuchCpu { cpu, has: self.cpus().count() as u32 }
    }

    /// Sets the CPU's bit; returns whether it was clear and this call set it. If it is set already,
    /// reads one word and writes nothing.
    ///
    /// A thread that finds the bit set sees what the caller that set it wrote before. A call that
    /// returns false publishes nothing: to be found with what was written since, pass a fence that
    /// pairs with the looker's.
    ///
    /// # Errors
    ///
    /// [`MaskError::NoSuchCpu`].
    #[inline]
    pub fn set(&self, cpu: CpuId) -> Result<bool, MaskError> {
        if self.test(cpu) { Ok(false) } else { self.set_clear(cpu) }
    }

    /// Sets a bit that was clear a moment ago, or that does not exist.
    #[cold]
    #[inline(never)]
    fn set_clear(&self, cpu: CpuId) -> Result<bool, MaskError> {
        let at = self.layout.position(cpu).ok_or_else(|| self.no_such(cpu))?;
        Ok(self.bits.set_clear(at))
    }

    /// Sets the CPU's bit; returns whether it was set before.
    ///
    /// # Errors
    ///
    /// [`MaskError::NoSuchCpu`].
    #[inline]
    pub fn test_and_set(&self, cpu: CpuId) -> Result<bool, MaskError> {
        self.set(cpu).map(|set| !set)
    }

    /// Clears the CPU's bit; returns whether it was set. If it is clear already, reads one word and
    /// writes nothing.
    ///
    /// A thread that looks after a set and does not find the bit sees what the caller that cleared
    /// it did before. A call that returns false is no such look.
    ///
    /// # Errors
    ///
    /// [`MaskError::NoSuchCpu`].
    #[inline]
    pub fn clear(&self, cpu: CpuId) -> Result<bool, MaskError> {
        let at = self.layout.position(cpu).ok_or_else(|| self.no_such(cpu))?;
        Ok(self.bits.clear(at))
    }

    /// Whether the CPU's bit is set; false for a CPU that the mask has no bit for.
    #[inline]
    pub fn test(&self, cpu: CpuId) -> bool {
        // SAFETY: the bits are in the layout's leaves.
        self.layout.entry(cpu).is_some_and(|at| unsafe { self.bits.test_unchecked(at) })
    }

    /// The CPUs that the mask has bits for, ascending.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.layout.cpus()
    }

    /// The lowest CPU whose bit is clear.
    pub fn first_zero(&self) -> Option<CpuId> {
        self.cpus().find(|&cpu| !self.test(cpu))
    }

    /// How many bits are set.
    pub fn weight(&self) -> usize {
        let mut weight = 0;
        self.bits.each(|_| weight += 1);
        weight
    }

    /// Whether no bit is set.
    pub fn is_empty(&self) -> bool {
        self.weight() == 0
    }

    /// The CPUs whose bits are set.
    ///
    /// It has every CPU whose [`set`](CpuMask::set) came before, and whose bit was not cleared. It
    /// is no picture of one moment: of two bits that change meanwhile, it may have the later.
    pub fn snapshot(&self) -> CpuSet {
        let mut found = Vec::new();
        self.bits.each(|at| found.push(at));
        found.sort_unstable();
        let set = |(_, at): &(CpuId, Position)| found.binary_search(at).is_ok();
        self.layout.positions().filter(set).map(|(cpu, _)| cpu).collect()
    }

    /// The CPUs of a [`snapshot`](CpuMask::snapshot), ascending.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + use<W> {
        self.snapshot().iter().collect::<Vec<_>>().into_iter()
    }

    /// The CPUs whose bits are set here or in `other`.
    pub fn union(&self, other: &CpuMask<W>) -> CpuSet {
        self.snapshot().union(&other.snapshot())
    }

    /// Lets later reads of the whole mask skip the lines that have no bits any more. For masks
    /// whose CPUs come and go; not for every [`clear`](CpuMask::clear), since it writes a line that
    /// every reader of the mask reads.
    pub fn trim(&self) {
        self.bits.trim();
    }
}

impl<W: World> fmt::Debug for CpuMask<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CpuMask").field(&format_args!("{}", self.snapshot())).finish()
    }
}
