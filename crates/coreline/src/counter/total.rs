//! [`Total`]: a counter that only grows.

use coreline_world::{Native, World};

use super::PerCpuCounter;
use super::constructors::constructors;
use crate::percpu::PerCpuPool;
use crate::{IndexBy, Lacking};

/// An unsigned [`PerCpuCounter`] that only grows, for example bytes sent or requests served.
///
/// ```
/// use coreline::counter::Total;
///
/// static SENT: Total = Total::const_new();
///
/// SENT.add(1500);
/// SENT.add(64);
/// assert_eq!((SENT.drain(), SENT.read_exact()), (1564, 0));
/// ```
///
/// **Memory, signals, fork**: see [`PerCpuCounter`].
pub struct Total<W: World = Native>(PerCpuCounter<W>);

constructors!([] Total<>, "a total at zero");

impl Total {
    /// Creates a total at zero in a const context, like [`PerCpuCounter::const_new`].
    pub const fn const_new() -> Self {
        Total(PerCpuCounter::const_new())
    }
}

impl Default for Total {
    /// Creates a total at zero, like [`const_new`](Total::const_new).
    fn default() -> Self {
        Self::const_new()
    }
}

impl<W: World> Total<W> {
    /// Creates a total at zero whose slots come from this pool.
    pub fn from_pool(pool: &PerCpuPool<W>) -> Self {
        Total(PerCpuCounter::from_pool(pool))
    }

    /// Adds `delta`, wrapping. The addition is relaxed.
    #[inline]
    pub fn add(&self, delta: u64) {
        self.0.add(delta.cast_signed());
    }

    /// Returns the sum, like [`PerCpuCounter::read_exact`].
    pub fn read_exact(&self) -> u64 {
        self.0.read_exact().cast_unsigned()
    }

    /// Returns the sum and subtracts it from the total, like [`PerCpuCounter::drain`].
    pub fn drain(&self) -> u64 {
        self.0.drain().cast_unsigned()
    }

    /// Returns whether the total has per-CPU slots, rather than one shared word.
    pub fn is_spread(&self) -> bool {
        self.0.is_spread()
    }
}

impl_debug!([W: World] Total<W> as it { value: it.read_exact(), slots: it.0.spread });
