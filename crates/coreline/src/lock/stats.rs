//! [`LockStats`]: what threads did that found a lock taken.

use coreline_world::{Native, World};

use super::count::{self, Event};
use super::osq;

/// Counts of all locks of the process, since [`begin`](LockStats::begin).
///
/// The counts are those of [`Mutex`](super::Mutex), [`RwLock`](super::RwLock) and
/// [`Osq`](super::Osq), also inside the library and in the data structures that it offers. A
/// [`BiasedRwLock`](super::BiasedRwLock) and a [`ReadMostly`](super::ReadMostly) count their sleeps
/// and wakes, and the waits of writers for each other. A [`TicketLock`](super::TicketLock) counts
/// nothing, and neither does the wait for a [`Condvar`](super::Condvar).
///
/// Only a thread that finds a lock taken counts, so a lock that is always free adds nothing. Each
/// number is exact once the threads have left the locks, but the numbers together are no snapshot.
///
/// ```
/// use std::time::Duration;
///
/// use coreline::Mutex;
/// use coreline::lock::LockStats;
///
/// static LOCK: Mutex<u32> = Mutex::new(0);
///
/// LockStats::begin();
/// let before = LockStats::read().expect("it counts");
/// let held = LOCK.lock();
/// std::thread::scope(|scope| {
///     scope.spawn(|| assert!(LOCK.try_lock_for(Duration::from_millis(1)).is_none()));
/// });
/// drop(held);
/// let counts = LockStats::read().expect("it counts") - before;
/// assert!(counts.waits >= 1 && counts.timeouts >= 1);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// The number of times that a thread found a lock taken, and waited or gave up.
    pub waits: u64,
    /// The number of times that a thread slept. A wait may have many sleeps, or none.
    pub sleeps: u64,
    /// The number of times that a thread woke others. Each is a system call.
    pub wakes: u64,
    /// The number of waits that ended without the lock, because their deadline passed.
    pub timeouts: u64,
    /// The number of hand-offs in a queue to a thread under the same last-level cache.
    /// Threads arrive at a queue on one CPU and may move to another one while they wait. Then the
    /// CPU of the arrival counts. With more than 32 last-level caches, some of them count as one.
    pub same_cache: u64,
    /// The number of hand-offs to a thread under another last-level cache of the same node.
    pub same_node: u64,
    /// The number of hand-offs to a thread on another node.
    pub other_node: u64,
}

impl LockStats {
    /// Makes the locks of this process count. They count until it ends. Later calls do nothing.
    ///
    /// **Memory**: one line of cache for each CPU of the machine. **Fork**: a child goes on with a
    /// copy of its parent's counts. **Signals**: a signal handler must not call it.
    pub fn begin() {
        Self::begin_in::<Native>();
    }

    /// Makes the locks of world `W` count. In the simulator, counting costs simulated time, like
    /// any other code. In the model, locks count nothing.
    pub fn begin_in<W: World>() {
        count::begin::<W>(osq::nodes_of_places::<W>);
    }

    /// Returns the counts, or `None` before [`begin`](LockStats::begin). It is async-signal-safe.
    pub fn read() -> Option<LockStats> {
        Self::read_in::<Native>()
    }

    /// Returns the counts of world `W`, or `None` before [`begin_in`](LockStats::begin_in).
    pub fn read_in<W: World>() -> Option<LockStats> {
        count::read::<W, _>(|count| LockStats {
            waits: count(Event::Wait),
            sleeps: count(Event::Sleep),
            wakes: count(Event::Wake),
            timeouts: count(Event::Timeout),
            same_cache: count(Event::SameCache),
            same_node: count(Event::SameNode),
            other_node: count(Event::OtherNode),
        })
    }
}

/// The difference to `earlier`.
impl core::ops::Sub for LockStats {
    type Output = LockStats;

    fn sub(self, earlier: LockStats) -> LockStats {
        LockStats {
            waits: self.waits.wrapping_sub(earlier.waits),
            sleeps: self.sleeps.wrapping_sub(earlier.sleeps),
            wakes: self.wakes.wrapping_sub(earlier.wakes),
            timeouts: self.timeouts.wrapping_sub(earlier.timeouts),
            same_cache: self.same_cache.wrapping_sub(earlier.same_cache),
            same_node: self.same_node.wrapping_sub(earlier.same_node),
            other_node: self.other_node.wrapping_sub(earlier.other_node),
        }
    }
}
