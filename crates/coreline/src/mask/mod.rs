//! CPU masks whose operations read before they write.
//!
//! A [`CpuMask`] records which CPUs take part in an activity. For example, they run a tenant's
//! tasks, hold a cached value, or want to be notified of a change. All CPUs set and clear bits
//! often, but mostly to the value that the bit already has. So [`set`](CpuMask::set) and
//! [`clear`](CpuMask::clear) read first, and write only if the bit changes. With an unconditional
//! locked write, the mask's cache line moves through all CPUs, and each of them waits for the line.
//! On 120 CPUs, this line is the hottest line of a whole linpack run, in the kernel before van
//! Riel's ["sched/x86: Optimize switch_mm() for multi-threaded workloads"][riel] (2013).
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
//! summary lists the lines in which bits are set, so a read of the whole mask reads few lines even
//! on a big machine. In the repository, `bits.rs` has the table of states.
//!
//! **Signals, fork**: every operation may run in a signal handler, where it behaves as if the
//! interrupted thread had been preempted. The exceptions are [`snapshot`](CpuMask::snapshot),
//! `iter` and `union`, because they allocate. A forked child has a copy of the mask. If another
//! thread was in [`trim`](CpuMask::trim) at the time of the fork, later reads of the whole mask in
//! the child read every line.

mod bits;
mod layout;
mod presence;
mod roll;
mod rolls;
mod versioned;

use std::sync::Arc;

use coreline_topology::{CpuId, CpuSet};
use coreline_world::{Native, World, WorldStatic};

use bits::{Bits, Position};
pub use layout::MaskLayout;
pub use presence::{Entry, Inside, Late, Member, Presence, PresenceOptions, Shot};
pub use versioned::{Reader, Reading, Reclaimer, Versioned};

/// The reason why an operation on a mask failed.
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
        /// The number of CPUs that have a bit.
        has: u32,
    },
}

// Every `set` returns one, or might.
const _: () = assert!(size_of::<Result<bool, MaskError>>() <= 16);

/// A set of CPUs that all CPUs change. Each CPU mostly changes its own bit.
///
/// It has a bit for every CPU of the machine. It uses 80 bytes, a cache line (64 bytes) for each
/// last-level cache, and one more line for each 63 of these lines. For 384 CPUs under 24 caches,
/// the lines take 1,600 bytes. The [`MaskLayout`] stores the positions of bits once for all masks
/// of the machine.
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
    /// Creates an empty mask for this machine.
    pub fn new() -> Self {
        CpuMask::new_in()
    }

    /// Creates an empty mask for the CPUs of a layout.
    pub fn with_layout(layout: &MaskLayout) -> Self {
        CpuMask::with_layout_in(layout)
    }
}

impl_default!([] CpuMask, new);

impl<W: World> CpuMask<W> {
    /// Creates an empty mask, like [`new`](CpuMask::new), in world `W`.
    pub fn new_in() -> Self {
        static LAYOUT: WorldStatic = WorldStatic::new("layout of CPU masks");
        LAYOUT.with::<W, _, _>(|| MaskLayout::new(&W::topology()), CpuMask::with_layout_in)
    }

    /// Creates an empty mask, like [`with_layout`](CpuMask::with_layout), in world `W`.
    pub fn with_layout_in(layout: &MaskLayout) -> Self {
        CpuMask { layout: layout.clone(), bits: Bits::new_in(Arc::clone(layout.used())) }
    }

    /// Returns the layout, which determines the positions of the bits.
    pub fn layout(&self) -> &MaskLayout {
        &self.layout
    }

    #[cold]
    #[inline(never)]
    fn no_such(&self, cpu: CpuId) -> MaskError {
        MaskError::NoSuchCpu { cpu, has: self.cpus().count() as u32 }
    }

    /// Sets the CPU's bit. Returns true if the bit was clear. If the bit is already set, the call
    /// reads one word and writes nothing.
    ///
    /// A thread that finds the bit set sees everything that the setter wrote before. A call that
    /// returns false publishes nothing. To publish writes also in that case, execute a fence that
    /// pairs with a fence of the reader.
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

    /// Sets the CPU's bit. Returns whether the bit was already set.
    ///
    /// # Errors
    ///
    /// [`MaskError::NoSuchCpu`] if the mask has no bit for the CPU.
    #[inline]
    pub fn test_and_set(&self, cpu: CpuId) -> Result<bool, MaskError> {
        self.set(cpu).map(|set| !set)
    }

    /// Clears the CPU's bit. Returns whether the bit was set. If the bit is already clear, the call
    /// reads one word and writes nothing.
    ///
    /// Suppose that a thread reads the mask after the bit was set, and finds the bit clear. Then it
    /// sees everything that the clearing thread did before the clear. A call that returns false
    /// does not count as such a read.
    ///
    /// # Errors
    ///
    /// [`MaskError::NoSuchCpu`] if the mask has no bit for the CPU.
    #[inline]
    pub fn clear(&self, cpu: CpuId) -> Result<bool, MaskError> {
        let at = self.layout.position(cpu).ok_or_else(|| self.no_such(cpu))?;
        Ok(self.bits.clear(at))
    }

    /// Returns whether the CPU's bit is set, or false if the mask has no bit for the CPU.
    #[inline]
    pub fn test(&self, cpu: CpuId) -> bool {
        // SAFETY: the bits are in the layout's leaves.
        self.layout.entry(cpu).is_some_and(|at| unsafe { self.bits.test_unchecked(at) })
    }

    /// Returns the CPUs for which the mask has bits, in ascending order.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.layout.cpus()
    }

    /// Returns the lowest CPU whose bit is clear.
    pub fn first_zero(&self) -> Option<CpuId> {
        self.cpus().find(|&cpu| !self.test(cpu))
    }

    /// Returns the number of set bits.
    pub fn weight(&self) -> usize {
        let mut weight = 0;
        self.bits.each(|_| weight += 1);
        weight
    }

    /// Returns whether no bit is set.
    pub fn is_empty(&self) -> bool {
        self.weight() == 0
    }

    /// Returns the CPUs whose bits are set.
    ///
    /// The result contains every CPU whose [`set`](CpuMask::set) happened before the call, and
    /// whose bit was not cleared. It is not a snapshot of one moment. If two bits change during the
    /// call, it may include only the later change.
    pub fn snapshot(&self) -> CpuSet {
        let mut found = Vec::new();
        self.bits.each(|at| found.push(at));
        found.sort_unstable();
        let set = |(_, at): &(CpuId, Position)| found.binary_search(at).is_ok();
        self.layout.positions().filter(set).map(|(cpu, _)| cpu).collect()
    }

    /// Returns the CPUs of a [`snapshot`](CpuMask::snapshot), in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + use<W> {
        self.snapshot().iter().collect::<Vec<_>>().into_iter()
    }

    /// Returns the CPUs whose bits are set in this mask or in `other`.
    pub fn union(&self, other: &CpuMask<W>) -> CpuSet {
        self.snapshot().union(&other.snapshot())
    }

    /// Lets later reads of the whole mask skip cache lines in which no bit is set. Use it for masks
    /// whose bits are often set and cleared, but not after every [`clear`](CpuMask::clear), because
    /// it writes a line that every reader of the mask reads.
    pub fn trim(&self) {
        self.bits.trim();
    }
}

impl_debug!([W: World] CpuMask<W> as it (format_args!("{}", it.snapshot())));
