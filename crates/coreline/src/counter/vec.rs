//! [`CounterVec`]: a set of counters whose number is known at run time.

use core::fmt;

use coreline_world::restartable::Gate;
use coreline_world::{Native, World};

use super::constructors::constructors;
use super::{CounterSet, Nonzero};
use crate::percpu::PerCpuPool;
use crate::{IndexBy, Lacking};

/// A [`CounterSet`] whose number of counters is chosen at run time, without a limit. Use it, for
/// example, for one count per route. A [`Histogram`](super::Histogram) uses a vector.
///
/// Each group of 32 counters allocates its own slots once a second CPU adds to it, or after 256
/// additions. Groups without additions therefore use no per-CPU memory.
///
/// ```
/// use coreline::counter::CounterVec;
///
/// let routes = ["/", "/search", "/health"];
/// let requests = CounterVec::new(routes.len())?;
/// requests.add(1, 3);
/// assert_eq!(requests.read_exact(), [0, 3, 0]);
/// # Ok::<(), coreline::Lacking>(())
/// ```
///
/// **Memory**: a vector uses 24 bytes, and about 21 bytes per counter. With slots, each counter
/// uses 8 more bytes in each slot. The number of counters is rounded up to a multiple of 32.
///
/// **Signals, fork, no memory**: each group behaves like a [`PerCpuCounter`](super::PerCpuCounter).
/// Reads of all counters allocate, so a signal handler must not call them.
pub struct CounterVec<W: World = Native> {
    parts: Box<[CounterSet<PART, W>]>,
    len: usize,
}

constructors!([] CounterVec<>, "`len` counters at zero", len: usize);

/// The number of counters in a group.
const PART: usize = CounterVec::<Native>::GROUP;

impl<W: World> CounterVec<W> {
    /// The number of counters that are adjacent in each slot, on four cache lines. The groups are
    /// adjacent in memory, and each is a `CounterSet` of this many counters.
    pub const GROUP: usize = 32;

    /// Creates `len` counters at zero whose slots come from this pool.
    pub fn from_pool(pool: &PerCpuPool<W>, len: usize) -> Self {
        let part = |_| CounterSet::from_pool(pool);
        CounterVec { parts: (0..len.div_ceil(PART)).map(part).collect(), len }
    }

    /// Returns the number of counters.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no counters.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the part that contains a counter, and the counter's index in the part.
    #[inline]
    fn at(&self, index: usize) -> (&CounterSet<PART, W>, usize) {
        let len = self.len;
        assert!(index < len, "counter index {index} is out of range: there are {len} counters");
        (&self.parts[index / PART], index % PART)
    }

    /// Adds `delta` to a counter, wrapping. The addition is relaxed.
    ///
    /// # Panics
    ///
    /// Panics if the index is out of range, like a slice.
    #[inline]
    pub fn add(&self, index: usize, delta: i64) {
        let (part, index) = self.at(index);
        part.add(index, delta);
    }

    /// Returns the address of the gate of the first [group](CounterVec::GROUP), like
    /// [`CounterSet::gate`]. The gates of the other groups follow, each
    /// `size_of::<CounterSet<32>>()` bytes after the previous one. The address dangles if there are
    /// no counters.
    pub fn gates(&self) -> *const Gate<W> {
        self.parts.as_ptr().cast()
    }

    /// Returns the sum of one counter, like [`CounterSet::read_one`].
    ///
    /// # Panics
    ///
    /// Panics if the index is out of range, like a slice.
    pub fn read_one(&self, index: usize) -> i64 {
        let (part, index) = self.at(index);
        part.read_one(index)
    }

    /// Returns the exact sum of each counter, like [`CounterSet::read_exact`].
    pub fn read_exact(&self) -> Vec<i64> {
        self.each(CounterSet::read_exact)
    }

    /// Returns all sums and subtracts them from the counters, like [`CounterSet::drain`].
    pub fn drain(&self) -> Vec<i64> {
        self.each(CounterSet::drain)
    }

    fn each(&self, values: impl Fn(&CounterSet<PART, W>) -> [i64; PART]) -> Vec<i64> {
        self.parts.iter().flat_map(values).take(self.len).collect()
    }

    /// Checks that all counters are at zero, like [`CounterSet::check_zero`].
    ///
    /// # Errors
    ///
    /// Returns the first counter that is not at zero.
    pub fn check_zero(&self) -> Result<(), Nonzero> {
        for (number, part) in self.parts.iter().enumerate() {
            let in_all = |first: Nonzero| Nonzero { index: number * PART + first.index, ..first };
            part.check_zero().map_err(in_all)?;
        }
        Ok(())
    }

    /// Returns whether this counter has a slot for each CPU, rather than one shared word.
    ///
    /// # Panics
    ///
    /// Panics if the index is out of range, like a slice.
    pub fn is_spread(&self, index: usize) -> bool {
        self.at(index).0.is_spread()
    }
}

impl<W: World> fmt::Debug for CounterVec<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots: Vec<_> = self.parts.iter().map(CounterSet::slots).collect();
        f.debug_struct("CounterVec")
            .field("values", &self.read_exact())
            .field("slots", &slots)
            .finish()
    }
}
