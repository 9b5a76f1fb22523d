//! How threads that are no workers of a set wait for it, and how workers serve calls meanwhile.

use core::time::Duration;

use coreline_world::{Ordering, Word, World};

use super::current::with_current;
use super::shared::{Seat, Shared};

/// How often a worker that waits for another set looks for calls.
const BETWEEN_CALLS: Duration = Duration::from_micros(100);

/// The worker that the calling thread is, in any set.
pub(super) fn seat<W: World>() -> Option<Seat> {
    let set = with_current::<W, _>(|current| current.shared.get().cast::<Shared<W>>());
    // SAFETY: the thread of a worker has a handle of its set from before it says so there until
    // after it has taken that back.
    let shared = unsafe { set.as_ref() }?;
    shared.current().filter(|_| shared.is_here()).map(|index| shared.seat_of(index))
}

/// Runs the calls that wait for the calling thread's worker, in any set.
fn serve_own<W: World>() {
    let set = with_current::<W, _>(|current| current.shared.get().cast::<Shared<W>>());
    // SAFETY: the thread of a worker has a handle of its set from before it says so there until
    // after it has taken that back.
    if let Some(shared) = unsafe { set.as_ref() } {
        shared.serve();
    }
}

/// Sleeps until `is_over` accepts the value of a word, with Acquire. A worker of another set serves
/// calls meanwhile:
///
///   Worker of A: calls a worker of B, which is in a task
///   Worker of B: drops A in that task, and waits for the worker of A   <- both forever
pub(super) fn sleep_until<W: World>(word: &W::U32, is_over: impl Fn(u32) -> bool) {
    loop {
        serve_own::<W>();
        // Acquire: the caller names the partner.
        let value = word.load(Ordering::Acquire);
        if is_over(value) {
            return;
        }
        // Calls of its own set notify another event count, so it looks for them now and then.
        let deadline = seat::<W>().map(|_| W::now() + BETWEEN_CALLS);
        W::park(word, value, deadline);
    }
}

impl<W: World> Shared<W> {
    /// [`Workers::serve`](super::Workers::serve).
    pub(super) fn serve(&self) -> u32 {
        let Some(index) = self.current().filter(|_| self.is_here()) else { return 0 };
        self.workers[index].serve_calls(&self.workers)
    }

    /// Waits until this many workers have ended.
    pub(super) fn wait_for_end(&self, count: usize) {
        // Acquire, in `sleep_until`: pairs with the Release of each worker at its end.
        sleep_until::<W>(&self.ended, |ended| ended as usize >= count);
    }
}
