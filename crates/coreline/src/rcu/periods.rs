//! Grace periods: the counts of read-side critical sections, and the steps of a grace period.
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `index` | the pair of counts, 0 or 1, for new sections | holders of the lock of [`Steps`] |
//! | `came[i]` | for each CPU: how many sections of pair `i` began there | readers |
//! | `went[i]` | for each CPU: how many sections of pair `i` ended there | readers |
//! | `lost[i]` | sections of pair `i` whose threads a fork left behind | a child's only thread |
//!
//! | `Steps::phase` | the grace period | the next step |
//! |---|---|---|
//! | `Idle` | none is in progress | fence, if one is wanted |
//! | `Other` | waits for sections of the pair that is not in use | flip `index` |
//! | `Flipped` | waits for sections of the pair that was in use before the flip | it is over |
//!
//! # Why both pairs are waited for
//!
//! A reader loads the index, and is stopped before it counts itself. Meanwhile, any number of grace
//! periods may pass, so it may count itself in either pair. The proof that a grace period is safe
//! does not use the index at all:
//!
//! ```text
//! Reader:  counts itself in came[i]; light fence;  reads the structure
//! Updater: unlinks a node;           heavy fence;  adds up came[0] and came[1]
//! ```
//!
//! One of the two fences is first. If it is the reader's, the updater sees the reader in the sum of
//! its pair, and the sums of both pairs are compared after the fence. If it is the updater's, the
//! reader does not find the node. The index makes the wait end: new readers use the other pair, so
//! that the sums of a pair become equal although readers come all the time.
//!
//! # Why the counts are apart, and in which order they are read
//!
//! A reader may come on one CPU and go on another while the sums are taken, so one count of both
//! could be too low. `went` is added up first, and then, after a fence, `came`. If a reader's
//! departure was seen, its arrival is seen, too. So the sums are equal only if all readers whose
//! arrival was seen have left. `lock/read_mostly.rs` plays the interleaving.
//!
//! # Source
//!
//! Linux, `kernel/rcu/srcutree.c`: [sleepable RCU][srcu], whose readers have two pairs of counts
//! per CPU. Its `srcu_read_lock_fast` has no fence, because a grace period of RCU stands in for the
//! readers' fences. Here, the membarrier system call does.
//!
//! [srcu]: https://docs.kernel.org/RCU/Design/Requirements/Requirements.html#sleepable-rcu

use coreline_world::{IndexBy, Lacking, Ordering, Slot, Word, World};

use crate::percpu::{PerCpu, PoolError};

/// The sections of one CPU, by pair.
struct Counts<W: World> {
    came: [W::U64; 2],
    went: [W::U64; 2],
}

// SAFETY: a struct of arrays of words, so every value has the same fields in the same places.
unsafe impl<W: World> Slot for Counts<W> {}

/// The readers of a collector.
pub(super) struct Readers<W: World> {
    index: W::U32,
    counts: PerCpu<Counts<W>, W>,
    lost: [W::U64; 2],
}

/// A grace period, or none. Used under a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Other,
    Flipped,
}

/// The grace periods of a collector. Used under a lock.
#[derive(Debug)]
pub(super) struct Steps {
    phase: Phase,
    /// How many grace periods have begun.
    begun: u64,
    /// How many grace periods are over: as many as have begun, or one less.
    over: u64,
}

/// The pair of counts that a reader must remember until it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair(u32);

impl Pair {
    fn at(self) -> usize {
        // It says to the compiler that there are two.
        (self.0 & 1) as usize
    }

    fn other(self) -> Pair {
        Pair(self.0 ^ 1)
    }
}

impl<W: World> Readers<W> {
    pub(super) fn new_in(by: IndexBy) -> Result<Self, PoolError> {
        let zeros = || [W::U64::new_in(0), W::U64::new_in(0)];
        let none = move || Counts { came: zeros(), went: zeros() };
        Ok(Readers { index: W::U32::new_in(0), counts: PerCpu::new_in(by, none)?, lost: zeros() })
    }

    /// Counts a reader.
    #[inline(always)]
    pub(super) fn come(&self) -> Pair {
        // Relaxed: see the module. No proof but that of the end of a wait uses it.
        let pair = Pair(self.index.load(Ordering::Relaxed));
        self.counts.field(|slot| &slot.came[pair.at()]).add(1);
        // Partner: the heavy fence in `step`. Either this reader is counted there, or it finds
        // what was done before that fence.
        W::fence_light();
        pair
    }

    /// Ends a section of any thread, on any CPU.
    #[inline(always)]
    pub(super) fn go(&self, pair: Pair) {
        // Partner: the fence in `are_there`. What this reader has read, it read before that
        // thread frees it.
        W::fence_light();
        self.counts.field(|slot| &slot.went[pair.at()]).add(1);
    }

    /// Whether sections of this pair are in progress.
    fn are_there(&self, pair: Pair) -> Result<bool, Lacking> {
        let went = self.counts.field(|slot| &slot.went[pair.at()]).sum();
        // Partner: the light fences of readers. The coming of each reader whose going was seen is
        // seen below; and it has read what it has read before this thread returns.
        W::try_fence_seen()?;
        // Relaxed: written by the only thread of a child, which started all others.
        let lost = self.lost[pair.at()].load(Ordering::Relaxed);
        let came = self.counts.field(|slot| &slot.came[pair.at()]).sum();
        Ok(came != went.wrapping_add(lost))
    }

    /// How many sections are in progress, if none begins or ends meanwhile.
    pub(super) fn number(&self) -> u64 {
        let one = |pair: Pair| {
            let went = self.counts.field(|slot| &slot.went[pair.at()]).sum();
            // Relaxed: a report.
            let gone = went.wrapping_add(self.lost[pair.at()].load(Ordering::Relaxed));
            let came = self.counts.field(|slot| &slot.came[pair.at()]).sum();
            // One that moves meanwhile may be seen to go only.
            came.wrapping_sub(gone).cast_signed().max(0).cast_unsigned()
        };
        one(Pair(0)) + one(Pair(1))
    }

    /// Treats all sections in progress as ended. The caller is the only thread of a child, and has
    /// no section.
    pub(super) fn lose_all(&self) {
        for pair in [Pair(0), Pair(1)] {
            let went = self.counts.field(|slot| &slot.went[pair.at()]).sum();
            let came = self.counts.field(|slot| &slot.came[pair.at()]).sum();
            // Relaxed: there is no other thread.
            self.lost[pair.at()].store(came.wrapping_sub(went), Ordering::Relaxed);
        }
    }
}

impl Steps {
    pub(super) const NONE: Steps = Steps { phase: Phase::Idle, begun: 0, over: 0 };

    /// The number of the first grace period that begins after this call.
    pub(super) fn next(&self) -> u64 {
        self.begun + 1
    }

    /// The number of the last grace period that is over.
    pub(super) fn over(&self) -> u64 {
        self.over
    }

    /// Continues as far as possible without waiting, until the grace period `wanted` is over.
    /// Begins at most one grace period.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if a heavy fence is refused. The next call tries again.
    pub(super) fn step<W: World>(
        &mut self,
        readers: &Readers<W>,
        wanted: u64,
    ) -> Result<(), Lacking> {
        // Relaxed: only holders of the lock write it.
        let index = || Pair(readers.index.load(Ordering::Relaxed));
        loop {
            self.phase = match self.phase {
                Phase::Idle => {
                    if self.over >= wanted {
                        return Ok(());
                    }
                    // Partner: the light fence in `come`. It covers what other threads did before
                    // they had the lock, such as the unlinking of what they retired.
                    W::try_fence_all()?;
                    self.begun += 1;
                    Phase::Other
                }
                Phase::Other => {
                    if readers.are_there(index().other())? {
                        return Ok(());
                    }
                    // Relaxed: readers may find it late, and take the old pair.
                    readers.index.store(index().other().0, Ordering::Relaxed);
                    Phase::Flipped
                }
                Phase::Flipped => {
                    if readers.are_there(index().other())? {
                        return Ok(());
                    }
                    self.over = self.begun;
                    Phase::Idle
                }
            };
        }
    }
}
