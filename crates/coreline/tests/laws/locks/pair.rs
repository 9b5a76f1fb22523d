//! What the laws of readers-writer locks have in common.

use std::sync::Arc;
use std::time::Duration;

use coreline_world::{JoinHandle, Line, Testbed, Time};

use crate::worlds::Effort;

/// What a lock guards, on two lines: a writer that is not alone, or a reader that does not see all
/// of the last writer's writes, finds them different.
pub(crate) struct Pair(pub(crate) Line<u64>, pub(crate) Line<u64>);

impl Pair {
    pub(crate) fn new() -> Self {
        Pair(Line(0), Line(0))
    }

    /// Writes to both lines. Returns how often that was done.
    pub(crate) fn add(&mut self) -> u64 {
        self.0.0 += 1;
        self.1.0 += 1;
        self.0.0
    }

    /// What a turn returns that read this.
    pub(crate) fn seen(&self) -> Option<u64> {
        (self.0.0 == self.1.0).then_some(0)
    }

    /// Both lines were written to so often, or else this has happened.
    #[track_caller]
    pub(crate) fn is(&self, written: u64, otherwise: &str) {
        assert_eq!((self.0.0, self.1.0), (written, written), "{otherwise}");
    }
}

/// Threads take turns with a lock, and no reader meets a writer. A turn gets the thread's number
/// and the round's. It returns how often it wrote, or `None` if it met a writer. (It does not
/// panic: natively others would wait for ever.) Returns how often all wrote.
pub(crate) fn share<W: Testbed, L: Send + Sync + 'static>(
    effort: Effort,
    lock: &Arc<L>,
    turn: impl Fn(&L, u32, u32) -> Option<u64> + Copy + Send + 'static,
) -> u64 {
    let threads = effort.crew::<W, _, _>(|number| {
        let lock = Arc::clone(lock);
        move || (0..effort.rounds).map(|round| turn(&lock, number, round)).sum::<Option<u64>>()
    });
    let all: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
    all.into_iter().sum::<Option<u64>>().expect("a reader met a writer")
}

/// A moment that comes while others have the lock.
pub(crate) fn soon<W: Testbed>() -> Time {
    W::now() + Duration::from_nanos(700)
}
