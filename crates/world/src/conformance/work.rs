//! The law of work.

use core::time::Duration;

use crate::Testbed;

/// Checks that work takes at least nine tenths of the requested time, if time passes. Zero work
/// must take no time.
pub fn work_takes_its_time<W: Testbed>() {
    W::work(Duration::ZERO);
    for span in [Duration::from_micros(20), Duration::from_millis(1)] {
        let start = W::now();
        W::work(span);
        let worked = W::now() - start;
        assert!(!W::RUNS || worked >= span * 9 / 10, "worked {worked:?} of {span:?}");
    }
}
