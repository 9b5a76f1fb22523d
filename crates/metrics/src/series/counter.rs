//! [`CounterSeries`]: a sum that only grows.

use coreline::world::{Native, Ordering, Word, World};
use coreline::{IndexBy, PerCpuCounter};

use super::{Activity, Late, Warmth, add};

/// A sum: what is in the shared word, and what all CPUs added to their own.
pub(crate) struct CounterSeries<W: World = Native> {
    pub(super) spread: Late<PerCpuCounter<W>, W>,
    word: W::U64,
    warmth: Warmth<W>,
    pub(crate) activity: Activity<W>,
}

const _: () = assert!(size_of::<CounterSeries>() <= 64, "a series is one cache line");

impl<W: World> CounterSeries<W> {
    pub(crate) fn new() -> Self {
        CounterSeries {
            spread: Late::new(),
            word: W::U64::new_in(0),
            warmth: Warmth::new(),
            activity: Activity::new(),
        }
    }

    #[inline]
    pub(crate) fn add(&self, value: u64) {
        match self.spread.get() {
            Some(counter) => counter.add(value.cast_signed()),
            None => self.add_compact(value),
        }
        self.activity.note();
    }

    #[inline(never)]
    fn add_compact(&self, value: u64) {
        add::<W>(&self.word, value);
        if self.warmth.add() {
            // Without CPU numbers it stays compact. Of two threads, one discards what it made.
            let _ = PerCpuCounter::new_in(IndexBy::Cpu).map(|counter| self.spread.set(counter));
        }
    }

    /// Makes the sum at least `value`.
    ///
    /// The shared word takes what is missing, by an exchange that fails if another thread has
    /// raised it:
    ///
    /// ```text
    /// Thread 1: reads word: 0 and the slots: 5; word: 0 to 5, so the sum is 10
    /// Thread 2: reads word: 0 and the slots: 5; an addition of 7 would make the sum 17
    /// ```
    pub(crate) fn raise(&self, value: u64) {
        loop {
            // Acquire pairs with the release below: a thread that sees what another one added for
            // the slots sees the same slots, or later ones.
            let word = self.word.load(Ordering::Acquire);
            let sum = word.wrapping_add(self.slots());
            if sum >= value {
                break;
            }
            let new = word.wrapping_add(value - sum);
            // Relaxed on failure: it is loaded again.
            let (done, failed) = (Ordering::Release, Ordering::Relaxed);
            if self.word.compare_exchange(word, new, done, failed).is_ok() {
                break;
            }
        }
        self.activity.note();
    }

    fn slots(&self) -> u64 {
        self.spread.get().map_or(0, |counter| counter.read_exact().cast_unsigned())
    }

    pub(crate) fn read(&self) -> u64 {
        // Acquire pairs with the release in `raise`.
        self.word.load(Ordering::Acquire).wrapping_add(self.slots())
    }
}
