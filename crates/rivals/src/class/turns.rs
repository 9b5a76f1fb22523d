//! Work that touches nothing shared: turns of an empty loop, for so many nanoseconds.
//!
//! Not the world's `Work`: that looks at the clock, which takes as long as a fifth of the shortest
//! section here.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// As many turns as take `NS` nanoseconds on an undisturbed CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turns<const NS: u64>(u64);

impl<const NS: u64> Turns<NS> {
    pub(super) fn new() -> Self {
        Turns((NS as f64 / turn_ns()).round() as u64)
    }

    #[inline(always)]
    pub(super) fn take(self) {
        if NS > 0 {
            turns(self.0);
        }
    }
}

#[inline(always)]
fn turns(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// How many nanoseconds a turn takes; measured once.
fn turn_ns() -> f64 {
    /// Of one measurement: tens of microseconds, so few are interrupted.
    const TURNS: u64 = 1 << 16;
    /// The shortest counts: what disturbs only adds. They last long enough for the CPU to get from
    /// its resting clock to its full one.
    const MEASUREMENTS: usize = 1000;
    static TURN: OnceLock<f64> = OnceLock::new();
    *TURN.get_or_init(|| {
        let measurement = |_| {
            let start = Instant::now();
            turns(black_box(TURNS));
            start.elapsed()
        };
        let shortest: Duration = (0..MEASUREMENTS).map(measurement).min().unwrap_or_default();
        shortest.as_nanos().max(1) as f64 / TURNS as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_as_many_as_nanoseconds_ask_for() {
        let (some, more) = (Turns::<100>::new().0, Turns::<500>::new().0);
        assert!(some > 0 && more.abs_diff(5 * some) <= 5, "{some}, {more}");
        assert_eq!(Turns::<0>::new().0, 0);
    }
}
