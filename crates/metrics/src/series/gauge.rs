//! [`GaugeSeries`]: a value that is set, or goes up and down.
//!
//! The value is the *base*, a word that all CPUs share, plus the sum of what the CPUs added to
//! their own words. Setting it discards that sum, so it must empty the CPUs' words: it takes the
//! lock, and one heavy fence if there is something to discard. Until increments pay again, they go
//! to the base.

use coreline::counter::{PerCpuFold, Sum};
use coreline::lock::Near;
use coreline::world::{Native, Ordering, Word, World};
use coreline::{IndexBy, Mutex};

use super::{Activity, Late, Warmth, change};

pub(crate) struct GaugeSeries<W: World = Native> {
    spread: Late<PerCpuFold<Sum<f64>, W>, W>,
    base: W::U64,
    /// Held to set the gauge, and to read it, if there are CPUs' words.
    ///
    /// ```text
    /// Thread 1: empties the CPUs' words, which had 5;               base: 0 to 3
    /// Thread 2:                                      reads base: 0, words: 0
    /// ```
    setting: Mutex<(), Near, W>,
    warmth: Warmth<W>,
    pub(crate) activity: Activity<W>,
}

const _: () = assert!(size_of::<GaugeSeries>() <= 64, "a series is one cache line");

impl<W: World> GaugeSeries<W> {
    pub(crate) fn new() -> Self {
        GaugeSeries {
            spread: Late::new(),
            base: W::U64::new_in(0.0_f64.to_bits()),
            setting: Mutex::new_in(()),
            warmth: Warmth::new(),
            activity: Activity::new(),
        }
    }

    #[inline]
    pub(crate) fn add(&self, value: f64) {
        match self.spread.get() {
            Some(words) if self.warmth.is_hot() => words.record(value),
            _ => self.add_compact(value),
        }
        self.activity.note();
    }

    #[inline(never)]
    fn add_compact(&self, value: f64) {
        change::<W>(&self.base, |old| old + value);
        if self.warmth.add() && self.spread.get().is_none() {
            // Without CPU numbers it stays compact. Of two threads, one discards what it made.
            let _ = PerCpuFold::new_in(IndexBy::Cpu).map(|words| self.spread.set(words));
        }
    }

    pub(crate) fn set(&self, value: f64) {
        match self.spread.get() {
            // An addition that happened before this call went to the base: its thread saw no other
            // words, so neither did one that it told of this.
            None => self.base.store(value.to_bits(), Ordering::Relaxed),
            Some(words) => self.set_spread(words, value),
        }
        self.activity.note();
    }

    fn set_spread(&self, words: &PerCpuFold<Sum<f64>, W>, value: f64) {
        let _setting = self.setting.lock();
        self.warmth.cool();
        // Words that make no difference stay, so a gauge that is only set interrupts no CPU. A NaN
        // is different from 0, and so discarded.
        let differs = words.read() != 0.0;
        // Without a fence of sections, or in a handler that interrupted another drain, the base
        // takes away what the words have.
        let left = if differs && words.drain().is_err() { words.read() } else { 0.0 };
        // Relaxed: a metric carries nothing but its own value. The lock orders it for readers.
        self.base.store((value - left).to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> f64 {
        // Relaxed: a metric carries nothing but its own value.
        let base = || f64::from_bits(self.base.load(Ordering::Relaxed));
        match self.spread.get() {
            None => base(),
            Some(words) => {
                let _setting = self.setting.lock();
                base() + words.read()
            }
        }
    }
}
