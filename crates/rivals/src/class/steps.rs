//! Work that touches nothing shared, and takes this many nanoseconds.
//!
//! Each step of it needs the result of the one before, and the first one what it is given: what the
//! lock guards, for work inside of it. Otherwise a processor begins the work of a section before it
//! has the lock, and goes on with it while it waits for that. It stores nothing, as a locked
//! instruction waits for all stores before it. And its loops are so short that their ends are
//! foreseen: one that is not takes 7 ns, and by chance behind one lock and not behind another.
//!
//! Not the world's `Work`: that looks at the clock, which takes as long as a fifth of the shortest
//! section here.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The number of steps that take `NS` nanoseconds on an undisturbed CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps<const NS: u64>(u64);

impl<const NS: u64> Steps<NS> {
    pub(super) fn new() -> Self {
        Steps(if NS == 0 { 0 } else { (NS as f64 / step_ns()).round() as u64 })
    }

    /// Begins when `from` is known; the result is there at the end.
    #[inline(always)]
    #[must_use = "the compiler may leave out work whose result is not used"]
    pub(super) fn take(self, from: u64) -> u64 {
        if NS > 0 { steps(self.0, from) } else { from }
    }
}

#[inline(always)]
fn steps(steps: u64, from: u64) -> u64 {
    const AT_ONCE: u64 = 16;
    /// Any odd number with many ones.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |value: u64, _| (value ^ value >> 7).wrapping_mul(FACTOR);
    let most = (0..steps / AT_ONCE).fold(from, |value, _| (0..AT_ONCE).fold(value, step));
    (0..steps % AT_ONCE).fold(most, step)
}

/// How many nanoseconds a step takes; measured once.
fn step_ns() -> f64 {
    /// The length of one measurement: tens of microseconds, so few measurements are interrupted.
    const STEPS: u64 = 1 << 15;
    /// The shortest time counts, because disturbances only add time. They last long enough for the
    /// CPU to get from its resting clock to its full one.
    const MEASUREMENTS: usize = 1000;
    static STEP: OnceLock<f64> = OnceLock::new();
    *STEP.get_or_init(|| {
        let measurement = |_| {
            let start = Instant::now();
            black_box(steps(black_box(STEPS), black_box(1)));
            start.elapsed()
        };
        let shortest: Duration = (0..MEASUREMENTS).map(measurement).min().unwrap_or_default();
        shortest.as_nanos().max(1) as f64 / STEPS as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_as_many_as_nanoseconds_ask_for() {
        let (some, more) = (Steps::<100>::new().0, Steps::<500>::new().0);
        assert!(some > 0 && more.abs_diff(5 * some) <= 5, "{some}, {more}");
        assert_eq!(Steps::<0>::new().0, 0);
    }
}
