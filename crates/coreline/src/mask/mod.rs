//! CPU masks whose operations read before they write.
//!
//! A [`CpuMask`] says which CPUs take part in something: they run a tenant's tasks, hold a cached
//! value, or want to be told of a change. All CPUs set and clear bits often, mostly to the value
//! that these already have. So [`set`](CpuMask::set) and [`clear`](CpuMask::clear) look first, and
//! write only a change. With an unconditional locked write, the mask's line moves through all CPUs,
//! and each of them waits for it. On 120 CPUs that was the hottest line of a whole linpack run, in
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
//! summary names the lines that have bits, so a read of the whole mask of a big machine reads few
//! lines. `bits.rs` has the table of states.
//!
//! **Signals, fork**: every operation may run in a signal handler, where it behaves as if the
//! interrupted thread had been preempted. The exceptions return a set or the CPUs of one
//! ([`snapshot`](CpuMask::snapshot), `iter`, `union`): they allocate. A forked child has a copy of
//! the mask. If another thread was in [`trim`](CpuMask::trim) then, reads of the whole mask in the
//! child read every line from there on.

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

/// Why a mask cannot do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaskError {
    /// The mask has no bit for this CPU.
    #[error(
        "the mask has no bit for {cpu}; `CpuMask::cpus` lists the {has} CPUs for which it has \
         bits"
    )]
    NoSuchCpu {
        /// The CPU.
        cpu: CpuId,
        /// How many CPUs have a bit.
        has: u32,
    },
}

// Every `set` returns one, or might.
const _: () = assert!(size_of::<Result<bool, MaskError>>() <= 16);

/// A set of CPUs that all of them change, each mostly its own bit.
///
/// It is as wide as the machine. It takes a line of memory (64 bytes) for each last-level cache,
/// and one more for each 63 of them: 1,600 bytes for 384 CPUs under 24 caches, besides its own 80.
/// The [`MaskLayout`] says where bits lie, once for all masks of the machine.
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
    /// Makes an empty mask for this machine.
    pub fn new() -> Self {
        CpuMask::new_in()
    }

    /// Makes an empty mask for the CPUs of a layout.
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

    /// Sets the CPU's bit; returns whether it was clear and this call set it. If the bit is already
    /// set, this reads one word and writes nothing.
    ///
    /// A thread that finds the bit set sees everything that the setter wrote before. A call that
    /// returns false publishes nothing. To publish later writes, pass a fence that pairs with the
    /// looker's.
    ///
    /// # Errors
    ///
    /// [`MaskError::NoSuchCpu`] if the mask has no bit for the CPU.
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

    /// Sets the CPU's bit; returns whether it was already set.
    ///
    /// # Errors
    ///
    /// [`MaskError::NoSuchCpu`] if the mask has no bit for the CPU.
    #[inline]
    pub fn test_and_set(&self, cpu: CpuId) -> Result<bool, MaskError> {
        self.set(cpu).map(|set| !set)
    }

    /// Clears the CPU's bit; returns whether it was set. If the bit is already clear, this reads
    /// one word and writes nothing.
    ///
    /// A thread that looks after a set and does not find the bit sees everything that the caller
    /// that cleared it did before. A call that returns false does not count as such a look.
    ///
    /// # Errors
    ///
    /// [`MaskError::NoSuchCpu`] if the mask has no bit for the CPU.
    #[inline]
    pub fn clear(&self, cpu: CpuId) -> Result<bool, MaskError> {
        let at = self.layout.position(cpu).ok_or_else(|| self.no_such(cpu))?;
        Ok(self.bits.clear(at))
    }

    /// Whether the CPU's bit is set; false if the mask has no bit for the CPU.
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
    /// does not show one moment: of two bits that change meanwhile, it may have only the later.
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

    /// Lets later reads of the whole mask skip cache lines in which no bit is set. Use it for masks
    /// whose CPUs come and go, but not after every [`clear`](CpuMask::clear): it writes a line that
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
