//! A counter that is cheap to add to from every CPU at once.
//!
//! One shared word costs a line transfer for every addition, because each CPU must own the line to
//! add: with n CPUs adding, n times the latency of one transfer. So each CPU gets a word of its own
//! on a line of its own, and reading sums them up. The kernel's `percpu_counter` does the same.
//!
//! The addition is a [restartable operation](coreline_world::restartable), so it needs no atomic
//! instruction either: a plain add to memory, on the CPU that owns the slot.
//!
//! The law: after any set of additions has happened, and while none is under way, [`sum`] is their
//! sum. `tests/laws/counter.rs` checks it in all three worlds.
//!
//! Sources: `include/linux/percpu_counter.h`; seed 002 (per-CPU counters of an `mm`).
//!
//! [`sum`]: PerCpuCounter::sum

use core::fmt;

use coreline_world::{IndexBy, Lacking, Native, PerCpuWords, Restartable};

/// A signed counter with one slot per CPU.
///
/// ```
/// let hits = coreline::PerCpuCounter::new()?;
/// hits.add(2);
/// hits.add(-3);
/// assert_eq!(hits.sum(), -1);
/// # Ok::<(), coreline::Lacking>(())
/// ```
///
/// **Memory**: 64 bytes for each CPU that the machine can have, and 64 more.
///
/// **Signals**: [`add`](PerCpuCounter::add) and [`sum`](PerCpuCounter::sum) are async-signal-safe.
/// An addition in a handler that interrupts an addition loses neither.
///
/// **Fork**: the child has its own copy with the values at the time of the fork. An addition that
/// another thread had under way is in or out, never torn.
pub struct PerCpuCounter<W: Restartable = Native> {
    words: PerCpuWords<W>,
}

impl PerCpuCounter {
    /// A counter at zero, indexed by CPU number.
    ///
    /// # Errors
    ///
    /// None natively; see [`new_in`](PerCpuCounter::new_in).
    pub fn new() -> Result<Self, Lacking> {
        Self::new_in(IndexBy::Cpu)
    }
}

impl<W: Restartable> PerCpuCounter<W> {
    /// A counter at zero in world `W`, with the slots indexed as asked.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index: some kernels keep no concurrency IDs.
    pub fn new_in(by: IndexBy) -> Result<Self, Lacking> {
        Ok(PerCpuCounter { words: PerCpuWords::new_in(by)? })
    }

    /// Adds `delta`, wrapping: one plain addition to the calling CPU's slot.
    ///
    /// Orders nothing: an addition publishes only itself.
    #[inline]
    pub fn add(&self, delta: i64) {
        // Two's complement: the wrapping sum of the bit patterns is the bit pattern of the wrapping
        // sum.
        self.words.add(delta.cast_unsigned());
    }

    /// The sum of all slots, wrapping. Reads one line per CPU.
    ///
    /// Exact if nobody adds meanwhile. Otherwise every addition that happened before the call is
    /// in, and each concurrent one is in or out.
    pub fn sum(&self) -> i64 {
        self.words.sum().cast_signed()
    }

    /// The memory behind the counter, for inspection.
    pub fn words(&self) -> &PerCpuWords<W> {
        &self.words
    }
}

impl<W: Restartable> fmt::Debug for PerCpuCounter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCpuCounter").field("words", &self.words).finish()
    }
}
