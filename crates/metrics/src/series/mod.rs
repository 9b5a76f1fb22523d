//! What a series keeps: the values of one key.
//!
//! Each kind begins with shared words, on one cache line, to which additions are atomic. It gets
//! per-CPU memory once that pays ([`Warmth`]). A key that one CPU uses now and then therefore costs
//! little memory.
//!
//! The types are generic over the world: the tests run them on simulated machines, too.

mod counter;
mod gauge;
mod histogram;
mod late;
#[cfg(test)]
mod tests;

use coreline::world::{Integer, Ordering, Word, World};

pub(crate) use counter::CounterSeries;
pub(crate) use gauge::GaugeSeries;
pub(crate) use histogram::{Counts, HistogramSeries};
use late::Late;

/// Whether a series was used since the last look, and whether pages show it.
///
/// | value | meaning | written by |
/// |---|---|---|
/// | `USED` | it was used since the last look | a use, unless it is there already |
/// | `QUIET` | it was not | a look |
/// | `HIDDEN` | it is not on pages, until the next use | a look, or a removal |
///
/// A use of a series that is `USED` only reads the word, so its line stays in all caches.
pub(crate) struct Activity<W: World>(W::U32);

const USED: u32 = 0;
const QUIET: u32 = 1;
const HIDDEN: u32 = 2;

impl<W: World> Activity<W> {
    fn new() -> Self {
        Activity(W::U32::new_in(USED))
    }

    /// Notes a use, which has changed the value already: a look that does not see this use finds
    /// the series used at the next look.
    ///
    /// A thread may read `USED` just before a look takes it away, and so leave no note of this one
    /// use. The series is then hidden earlier, by the time between two looks. Its value counts.
    #[inline]
    fn note(&self) {
        // Relaxed: a hint. A thread that knows of a removal reads `HIDDEN` or a later value,
        // because reads of one word never go back.
        if self.0.load(Ordering::Relaxed) != USED {
            self.note_first();
        }
    }

    #[cold]
    fn note_first(&self) {
        // Release pairs with the acquire in `look`: a page that shows the series again has the
        // change.
        self.0.store(USED, Ordering::Release);
    }

    /// Returns whether the series was used since the last look.
    pub(crate) fn look(&self) -> bool {
        // Acquire pairs with the release in `note_first`. Relaxed on failure: nothing is read.
        let (done, failed) = (Ordering::Acquire, Ordering::Relaxed);
        self.0.compare_exchange(USED, QUIET, done, failed).is_ok()
    }

    /// Hides a series that was not used since the last look. Returns whether it did.
    pub(crate) fn hide_quiet(&self) -> bool {
        // Relaxed: pages read the word alone. A use that comes meanwhile makes this fail.
        let (done, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        self.0.compare_exchange(QUIET, HIDDEN, done, failed).is_ok()
    }

    /// Hides the series until the next use. Returns whether it was shown.
    pub(crate) fn hide(&self) -> bool {
        // Relaxed: see `hide_quiet`.
        self.0.swap(HIDDEN, Ordering::Relaxed) != HIDDEN
    }

    pub(crate) fn is_hidden(&self) -> bool {
        // Acquire pairs with the release in `note_first`.
        self.0.load(Ordering::Acquire) == HIDDEN
    }
}

/// How much per-CPU memory would pay: additions to shared words, and how many of them came from
/// another CPU than the one before.
///
/// Both words are hints. Of two threads that write at the same time, one may be lost.
pub(crate) struct Warmth<W: World> {
    /// The CPU of the last addition, plus one; 0: there was none.
    last_cpu: W::U32,
    points: W::U32,
}

/// From so many points on, per-CPU memory pays. A line that moves between CPUs gets there after 32
/// moves. A line that stays gets there after 4,096 additions, each of which then costs less.
const HOT: u32 = 4096;
/// Points for an addition from another CPU.
const MOVED: u32 = 128;

impl<W: World> Warmth<W> {
    fn new() -> Self {
        Warmth { last_cpu: W::U32::new_in(0), points: W::U32::new_in(0) }
    }

    #[inline]
    fn is_hot(&self) -> bool {
        // Relaxed: a hint.
        self.points.load(Ordering::Relaxed) >= HOT
    }

    /// Notes an addition to shared words. Returns whether per-CPU memory pays from now on.
    fn add(&self) -> bool {
        let cpu = W::cpu_hint().get() + 1;
        // Relaxed: a hint.
        let last = self.last_cpu.load(Ordering::Relaxed);
        if last != cpu {
            // Relaxed: a hint.
            self.last_cpu.store(cpu, Ordering::Relaxed);
        }
        let moved = last != cpu && last != 0;
        // Relaxed: a hint.
        let points = self.points.load(Ordering::Relaxed) + if moved { MOVED } else { 1 };
        // Relaxed: a hint.
        self.points.store(points.min(HOT), Ordering::Relaxed);
        points >= HOT
    }

    /// Back to shared words.
    fn cool(&self) {
        // Relaxed: a hint.
        self.points.store(0, Ordering::Relaxed);
    }
}

/// Replaces the `f64` in a word by what `change` makes of it.
fn change<W: World>(word: &W::U64, change: impl Fn(f64) -> f64) {
    // Relaxed: a metric carries nothing but its own value.
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let new = change(f64::from_bits(old)).to_bits();
        if new == old {
            return;
        }
        // Relaxed: a metric carries nothing but its own value.
        match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

/// Adds to a word, wrapping.
fn add<W: World>(word: &W::U64, value: u64) {
    // Relaxed: a metric carries nothing but its own value.
    word.fetch_add(value, Ordering::Relaxed);
}
