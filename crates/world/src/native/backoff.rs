//! How a waiting thread gives its CPU to others: it yields, and sleeps when that has not helped.

use core::time::Duration;

use crate::native::{Native, system};
use crate::{Clock, Threads, Time};

/// How often a waiting thread with a real-time priority yields before it sleeps between two checks:
/// for about a millisecond.
const YIELDS_REAL_TIME: u32 = 512;

/// How often any other thread yields before it sleeps: for some 20 ms of its CPU. The threads that
/// it lets run do not count: such waits are also long if there are far more threads than CPUs.
///
/// Threads that queue and sleep pass a lock on more slowly, wait longer for that, and so sleep
/// again the next time. Fewer than 400 threads in one queue do not get there.
const YIELDS: u32 = 8192;

/// How long a nap lasts, at least and at most.
const NAPS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

/// The part of a wait that one nap takes, between these two. It is small, so that threads in one
/// queue, each of which naps when its turn comes, do not wait for longer and longer naps.
const NAP_PART: u32 = 256;

/// A thread sleeps no longer than until so long before its deadline: the kernel wakes it late, by
/// the slack of its timer (50 us, if the thread has not asked for more).
const EARLY: Duration = Duration::from_micros(100);

/// How a waiting thread gives its CPU away.
///
/// Yielding is not always enough. The kernel takes a thread with a real-time priority back
/// immediately, and threads of lower priority never run on that CPU:
///
/// ```text
/// Holder: runs on CPU 0, in its critical section
/// Waiter: is woken on CPU 0, with a higher priority, and the holder no longer runs
/// Waiter: yields, looks, yields ...            <- the holder never ends its section
/// ```
pub(super) struct Backoff {
    /// When the thread gave its CPU away for the first time.
    since: Option<Time>,
    /// How often it has yielded; [`YIELDS`], if it yields no more.
    yields: u32,
    /// The wait ends then.
    deadline: Option<Time>,
}

impl Backoff {
    #[inline(always)]
    pub(super) fn new(deadline: Option<Time>) -> Self {
        Backoff { since: None, yields: 0, deadline }
    }

    /// Yields, or sleeps if the thread has yielded for long. Away from the loop that looks: it is
    /// compiled once for all words.
    #[cold]
    #[inline(never)]
    pub(super) fn snooze(&mut self) {
        if self.yields == 0 {
            self.since = Some(Native::now());
        }
        if self.yields == YIELDS_REAL_TIME && system::is_real_time() {
            self.yields = YIELDS;
        }
        let nap = if self.yields < YIELDS { None } else { self.nap() };
        let Some(nap) = nap else {
            self.yields += u32::from(self.yields < YIELDS);
            return Native::yield_now();
        };
        system::nap(nap);
    }

    /// How long the thread may sleep, if at all.
    fn nap(&self) -> Option<Duration> {
        let now = Native::now();
        let waited = self.since.map_or(Duration::ZERO, |since| now - since);
        let nap = (waited / NAP_PART).clamp(NAPS.0, NAPS.1);
        let Some(deadline) = self.deadline else { return Some(nap) };
        let left = (deadline - now).saturating_sub(EARLY);
        (!left.is_zero()).then(|| nap.min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_yielded_for_long_sleeps() {
        for deadline in [None, Some(Time::from_nanos(u64::MAX))] {
            let mut backoff = Backoff::new(deadline);
            let given = |backoff: &mut Backoff| {
                let before = Native::now();
                backoff.snooze();
                Native::now() - before
            };
            let yields = (0..2 * YIELDS).take_while(|_| {
                backoff.snooze();
                backoff.yields < YIELDS
            });
            assert!(yields.count() < YIELDS as usize, "it yields for ever");
            let naps: Duration = (0..20).map(|_| given(&mut backoff)).sum();
            assert!(naps >= 10 * NAPS.0, "20 naps took {naps:?}");
        }
    }

    /// A nap ends before the deadline, which the wait then looks for awake.
    #[test]
    fn naps_end_before_the_deadline() {
        let asleep = |since: Time, deadline| {
            Backoff { since: Some(since), yields: YIELDS, deadline: Some(deadline) }.nap()
        };
        let (start, hour) = (Time::from_nanos(0), Duration::from_secs(3600));
        assert_eq!(asleep(start, start), None, "the deadline has passed");
        let now = Native::now();
        assert_eq!(asleep(now, now + EARLY), None);
        let soon = NAPS.0 / 2;
        assert!(asleep(now, now + EARLY + soon) <= Some(soon));
        let late = Native::now() + hour;
        assert_eq!(asleep(late, late + hour), Some(NAPS.0), "a wait that has just begun");
    }
}
