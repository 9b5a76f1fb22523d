//! Sleep and wake of the model: a futex table.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use loom::sync::{Mutex, Notify};

use super::Model;
use crate::{Ordering, Parked, Sleep, Time, Word};

/// The sleepers of a word, with their groups.
type Sleepers = VecDeque<(Arc<Notify>, u32)>;

loom::lazy_static! {
    /// The sleepers of each word, longest sleeper first. One lock for all words, as the kernel has
    /// one for the words of a hash bucket.
    static ref SLEEPERS: Mutex<BTreeMap<usize, Sleepers>> = Mutex::new(BTreeMap::new());
}

loom::thread_local! {
    /// The object on which this thread sleeps. A thread keeps the same object, because loom lets
    /// each `Notify` wake its waiter spuriously once. So loom explores one spurious wake-up for
    /// each thread, in each of its parks, and a loop around a park still ends.
    static SLEEPER: Arc<Notify> = Arc::new(Notify::new());
}

/// A thread that is not woken stays asleep, and loom reports a deadlock. Each thread also wakes
/// spuriously, once, at any of its parks.
///
/// What this hides: the table's lock orders park and wake, as the lock of the kernel's hash bucket
/// does, but a park that returns has also seen all that the waker did. A missing acquire on the
/// word after a park is therefore found only in executions in which the thread did not sleep.
impl Sleep for Model {
    fn park_as(word: &Self::U32, expected: u32, deadline: Option<Time>, groups: u32) -> Parked {
        let address = core::ptr::from_ref(word).addr();
        let sleeper = SLEEPER.with(Arc::clone);
        {
            let mut sleepers = sleepers();
            // Relaxed, partner: the waker's store to the word. A waker that took the lock earlier
            // made its store visible with it; one that takes it later finds this thread in the
            // queue. Neither is missed.
            if word.load(Ordering::Relaxed) != expected {
                return Parked::Changed;
            }
            if deadline.is_none() {
                sleepers.entry(address).or_default().push_back((Arc::clone(&sleeper), groups));
            }
        }
        if deadline.is_some() {
            loom::thread::yield_now();
            return Parked::TimedOut;
        }
        sleeper.wait();
        // After a spurious wake-up the thread still stands in the queue.
        if let Some(queue) = sleepers().get_mut(&address) {
            queue.retain(|(other, _)| !Arc::ptr_eq(other, &sleeper));
        }
        Parked::Woken
    }

    fn wake_groups(word: *const Self::U32, count: u32, groups: u32) -> u32 {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut woken = Vec::new();
        let done = attempt!(if let Some(queue) = sleepers().get_mut(&word.addr()) {
            queue.retain(|(sleeper, theirs)| {
                let wakes = theirs & groups != 0 && woken.len() < count;
                if wakes {
                    woken.push(Arc::clone(sleeper));
                }
                !wakes
            });
        });
        done.unwrap_or_default();
        // Not under the lock, as in the kernel: a sleeper that woke spuriously meanwhile gets the
        // notification at its next park, which is one more spurious wake-up.
        for sleeper in &woken {
            attempt!(sleeper.notify());
        }
        u32::try_from(woken.len()).expect("at most `count`")
    }
}

fn sleepers() -> loom::sync::MutexGuard<'static, BTreeMap<usize, Sleepers>> {
    SLEEPERS.lock().expect("no user code runs under this lock")
}
