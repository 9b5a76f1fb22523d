//! [`CounterSet`]: several counters in one block.

use core::array;
use core::fmt;

use coreline_world::restartable::definition::Add;
use coreline_world::{Integer, Native, Ordering, Word, World};

use super::spread::Spread;
use crate::percpu::PerCpuPool;
use crate::{IndexBy, Lacking};

/// A counter of a set that should be at zero and is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("counter {index} of the set is at {value} and should be at 0")]
pub struct Nonzero {
    /// Its index.
    pub index: usize,
    /// Its value.
    pub value: i64,
}

/// `N` signed counters that lie side by side in each CPU's slot: the counts of one thing, as a
/// process's pages by kind, which the same CPU changes together.
///
/// ```
/// use coreline::CounterSet;
///
/// const READS: usize = 0;
/// const WRITES: usize = 1;
///
/// let accesses = CounterSet::<2>::new()?;
/// accesses.add(READS, 3);
/// accesses.add(WRITES, 1);
/// assert_eq!(accesses.read_exact(), [3, 1]);
/// # Ok::<(), coreline::Lacking>(())
/// ```
///
/// **Memory**: 24 bytes, and 120 of the global allocator with two words for each counter; `N` words
/// in each slot once it has slots. A slot has room for 8,192 counters natively, and for 512 in
/// other worlds: a set of more does not compile. A [`CounterVec`](super::CounterVec) has no limit.
///
/// ```compile_fail
/// coreline::CounterSet::<8193>::new();
/// ```
///
/// **No memory**: as [`PerCpuCounter`](super::PerCpuCounter).
///
/// **Signals, fork**: as [`PerCpuCounter`](super::PerCpuCounter).
pub struct CounterSet<const N: usize, W: World = Native> {
    spread: Spread<[W::U64; N], W>,
}

impl<const N: usize> CounterSet<N> {
    /// Counters at zero, indexed by CPU number, from the process's global pool.
    ///
    /// # Errors
    ///
    /// None natively; see [`new_in`](CounterSet::new_in).
    pub fn new() -> Result<Self, Lacking> {
        Self::new_in(IndexBy::Cpu)
    }

    /// As [`new`](CounterSet::new), with the slots indexed as asked.
    ///
    /// # Errors
    ///
    /// As [`new_in`](CounterSet::new_in).
    pub fn indexed_by(by: IndexBy) -> Result<Self, Lacking> {
        Self::new_in(by)
    }

    /// As [`new`](CounterSet::new), for statics: at most 512 counters, or it does not compile. The
    /// first addition allocates, so that one is not async-signal-safe.
    pub const fn const_new() -> Self {
        // The first addition makes them on its thread's stack.
        const { assert!(N <= 512, "more counters than a static may have") };
        CounterSet { spread: Spread::const_new() }
    }
}

impl<const N: usize> Default for CounterSet<N> {
    /// As [`const_new`](CounterSet::const_new).
    fn default() -> Self {
        Self::const_new()
    }
}

/// What words begin as.
fn zeros<const N: usize, W: World>() -> [W::U64; N] {
    array::from_fn(|_| W::U64::new_in(0))
}

impl<const N: usize, W: World> CounterSet<N, W> {
    /// Counters at zero in world `W`, with the slots indexed as asked, from the world's global
    /// pool.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    pub fn new_in(by: IndexBy) -> Result<Self, Lacking> {
        Ok(Self::from_pool(&PerCpuPool::global_in(by)?))
    }

    /// Counters at zero whose slots come from this pool.
    pub fn from_pool(pool: &PerCpuPool<W>) -> Self {
        const {
            assert!(
                size_of::<[W::U64; N]>() <= W::STRIDE,
                "more counters than a slot has room for: use a `CounterVec`"
            );
        }
        CounterSet { spread: Spread::new_in(pool.clone(), zeros::<N, W>) }
    }

    /// Adds `delta` to a counter, wrapping. Orders nothing.
    ///
    /// # Panics
    ///
    /// If there is no counter of this index, as with a slice.
    #[inline]
    pub fn add(&self, index: usize, delta: i64) {
        let delta = delta.cast_unsigned();
        assert!(index < N, "counter index {index} is out of range: the set has {N} counters");
        // SAFETY: there are `N` words.
        if W::run(unsafe { self.spread.at(index) }, Add(delta)).is_err() {
            self.add_otherwise(index, delta);
        }
    }

    #[inline(never)]
    fn add_otherwise(&self, index: usize, delta: u64) {
        match self.spread.note_addition(true, zeros::<N, W>) {
            Ok(slots) => slots.field(|words| &words[index]).add(delta),
            Err(compact) => {
                // Relaxed: a counter carries nothing but its own value.
                compact[index].fetch_add(delta, Ordering::Relaxed);
            }
        }
    }

    /// The sums of all that was added, wrapping. Reads the slots of the CPUs that added.
    ///
    /// Each is exact if no thread adds to it meanwhile. Otherwise every addition that happened
    /// before the call is in, and each concurrent one is in or out. They are read one after the
    /// other, which is no snapshot of all.
    pub fn read_exact(&self) -> [i64; N] {
        array::from_fn(|index| self.read_one(index))
    }

    /// The sum of one counter, as [`read_exact`](CounterSet::read_exact).
    ///
    /// # Panics
    ///
    /// If there is no counter of this index, as with a slice.
    pub fn read_one(&self, index: usize) -> i64 {
        assert!(index < N, "counter index {index} is out of range: the set has {N} counters");
        self.spread.sum(|words| &words[index]).cast_signed()
    }

    /// As [`read_exact`](CounterSet::read_exact), and takes what it returns out of the counters,
    /// one after the other: each addition is in what one call returns, or still in its counter. It
    /// is no snapshot: of two additions that one thread does, the first may stay and the second
    /// not.
    ///
    /// Counters that are only added to never return less than 0. Keeps the slots.
    pub fn drain(&self) -> [i64; N] {
        array::from_fn(|index| self.spread.drain(|words| &words[index]).cast_signed())
    }

    /// Whether all counters are at zero: what should hold when the thing that they count goes away.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn check_zero(&self) -> Result<(), Nonzero> {
        let values = self.read_exact();
        match values.into_iter().enumerate().find(|(_, value)| *value != 0) {
            Some((index, value)) => Err(Nonzero { index, value }),
            None => Ok(()),
        }
    }

    /// What `Debug` says of the slots.
    pub(super) fn slots(&self) -> &impl fmt::Debug {
        &self.spread
    }

    /// Whether the counters have slots, rather than a word each.
    pub fn is_spread(&self) -> bool {
        self.spread.slots().is_some()
    }
}

impl<const N: usize, W: World> fmt::Debug for CounterSet<N, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterSet")
            .field("values", &self.read_exact())
            .field("slots", &self.spread)
            .finish()
    }
}
