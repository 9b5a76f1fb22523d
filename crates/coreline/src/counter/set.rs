//! [`CounterSet`]: several counters in one block.

use core::array;
use core::fmt;

use coreline_world::restartable::Gate;
use coreline_world::restartable::definition::Add;
use coreline_world::{Integer, Native, Ordering, Word, World};

use super::constructors::constructors;
use super::spread::Spread;
use crate::percpu::PerCpuPool;
use crate::{IndexBy, Lacking};

/// The error for a counter of a set that should be zero but is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("counter {index} of the set is {value}, and should be 0")]
pub struct Nonzero {
    /// The index of the counter.
    pub index: usize,
    /// The value of the counter.
    pub value: i64,
}

/// `N` signed counters that are adjacent in each CPU's slot. Use it for counts that one CPU changes
/// together, such as a process's pages by kind.
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
/// **Memory**: a set uses 24 bytes, and 120 bytes plus two words per counter from the global
/// allocator. With slots, it uses `N` more words in each slot. A slot can hold 8,192 counters
/// natively, and 512 in other worlds. A larger set does not compile. A
/// [`CounterVec`](super::CounterVec) has no limit.
///
/// ```compile_fail
/// coreline::CounterSet::<8193>::new();
/// ```
///
/// **No memory**: see [`PerCpuCounter`](super::PerCpuCounter).
///
/// **Signals, fork**: see [`PerCpuCounter`](super::PerCpuCounter).
#[repr(transparent)]
pub struct CounterSet<const N: usize, W: World = Native> {
    spread: Spread<[W::U64; N], W>,
}

constructors!([const N: usize,] CounterSet<N>, "counters at zero");

impl<const N: usize> CounterSet<N> {
    /// Creates counters at zero, like [`new`](CounterSet::new), in a const context. A set of more
    /// than 512 counters does not compile. The first addition allocates, so it is not
    /// async-signal-safe.
    pub const fn const_new() -> Self {
        // The first addition makes them on its thread's stack.
        const { assert!(N <= 512, "more counters than a static may have") };
        CounterSet { spread: Spread::const_new() }
    }
}

impl<const N: usize> Default for CounterSet<N> {
    /// Creates counters at zero, like [`const_new`](CounterSet::const_new).
    fn default() -> Self {
        Self::const_new()
    }
}

/// Returns the initial value of words.
fn zeros<const N: usize, W: World>() -> [W::U64; N] {
    array::from_fn(|_| W::U64::new_in(0))
}

impl<const N: usize, W: World> CounterSet<N, W> {
    /// Creates counters at zero whose slots come from this pool.
    pub fn from_pool(pool: &PerCpuPool<W>) -> Self {
        const {
            assert!(
                size_of::<[W::U64; N]>() <= W::STRIDE,
                "more counters than a slot has room for: use a `CounterVec`"
            );
        }
        CounterSet { spread: Spread::new_in(pool.clone(), zeros::<N, W>) }
    }

    /// Adds `delta` to a counter, wrapping. The addition is relaxed.
    ///
    /// # Panics
    ///
    /// Panics if the index is out of range, like a slice.
    #[inline]
    pub fn add(&self, index: usize, delta: i64) {
        let delta = delta.cast_unsigned();
        assert!(index < N, "counter index {index} is out of range: the set has {N} counters");
        // SAFETY: there are `N` words.
        if W::run(unsafe { self.spread.at(index) }, Add(delta)).is_err() {
            self.add_otherwise(index, delta);
        }
    }

    /// Returns the address of the gate to the counters' words in each slot, like
    /// [`PerCpuCounter::gate`](super::PerCpuCounter::gate). Counter *i* is the word at 8 *i*.
    pub fn gate(&self) -> *const Gate<W> {
        self.spread.gate()
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

    /// Returns the wrapping sum of each counter. The call reads the slots of the CPUs that added.
    ///
    /// A sum is exact if no thread adds to its counter meanwhile. Otherwise it includes every
    /// addition that happened before the call. A concurrent addition may or may not be included.
    /// The counters are read one after the other, so the result is not a snapshot.
    pub fn read_exact(&self) -> [i64; N] {
        array::from_fn(|index| self.read_one(index))
    }

    /// Returns the sum of one counter, like [`read_exact`](CounterSet::read_exact).
    ///
    /// # Panics
    ///
    /// Panics if the index is out of range, like a slice.
    pub fn read_one(&self, index: usize) -> i64 {
        assert!(index < N, "counter index {index} is out of range: the set has {N} counters");
        self.spread.sum(|words| &words[index]).cast_signed()
    }

    /// Returns the sums, like [`read_exact`](CounterSet::read_exact), and subtracts them from the
    /// counters. It does so one counter after the other. Each addition is in the result of one
    /// call, or still in its counter. The result is not a snapshot. If one thread made two
    /// additions, the result may include only the second.
    ///
    /// If all additions are positive, no result is negative. The slots stay allocated.
    pub fn drain(&self) -> [i64; N] {
        array::from_fn(|index| self.spread.drain(|words| &words[index]).cast_signed())
    }

    /// Checks that all counters are at zero. Use it when the counted things should all be gone.
    ///
    /// # Errors
    ///
    /// Returns the first counter that is not at zero.
    pub fn check_zero(&self) -> Result<(), Nonzero> {
        let values = self.read_exact();
        match values.into_iter().enumerate().find(|(_, value)| *value != 0) {
            Some((index, value)) => Err(Nonzero { index, value }),
            None => Ok(()),
        }
    }

    /// The `Debug` output for the slots.
    pub(super) fn slots(&self) -> &impl fmt::Debug {
        &self.spread
    }

    /// Returns whether the counters have per-CPU slots, rather than one shared word each.
    pub fn is_spread(&self) -> bool {
        self.spread.slots().is_some()
    }
}

impl_debug!([const N: usize, W: World] CounterSet<N, W> as it {
    values: it.read_exact(), slots: it.spread
});
