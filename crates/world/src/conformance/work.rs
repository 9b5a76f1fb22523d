//! The law of work.

use core::time::Duration;

use crate::Testbed;

/// Work takes nine tenths of what was asked or more, where time runs; and no work takes no time.
pub fn work_takes_its_time<W: Testbed>() {
    W::work(Duration::ZERO);
    for span in [Duration::from_micros(20), Duration::from_millis(1)] {
        let start = W::now();
        W::work(span);
        let worked = W::now() - start;
        assert!(!W::RUNS || worked >= span * 9 / 10, "worked {worked:?} of {span:?}");
    }
}
