//! Sleep and wake: a table of queues, by the address of the word, each behind a lock of std.
//!
//! Why no wake-up is lost: a thread that is about to sleep compares the word under its queue's
//! lock, and joins the queue under the same hold of it. A waker changes the word first and then
//! takes the lock. One of the two has the lock first:
//!
//! ```text
//! the sleeper: it is in the queue when the waker looks there
//! the waker:   its change came before its unlock, which the sleeper's lock acquires:
//!              the sleeper compares with the changed word, and does not sleep
//! ```
//!
//! Like in the kernel's futex, words whose addresses share a queue share its lock and nothing else.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::native::Native;
use crate::{Clock, Line, Parked, Sleep, Time};

/// How many queues there are: a power of two.
const QUEUES: usize = 256;

static TABLE: [Line<Mutex<Queue>>; QUEUES] =
    [const { Line(Mutex::new(Queue { first: Cell::new(ptr::null()) })) }; QUEUES];

/// Those that sleep on words of one queue, in the order in which they came.
///
/// Its invariant: each pointer in the list, `first` and what follows it, is null or points to a
/// sleeper on the stack of a thread that does not leave `park` before it has seen its sleeper out
/// of the list, under the lock.
struct Queue {
    first: Cell<*const Sleeper>,
}

// SAFETY: every thread looks at the sleepers that it points to under the queue's lock.
unsafe impl Send for Queue {}

struct Sleeper {
    /// The address of the word.
    word: usize,
    /// The groups that the thread is a member of.
    groups: u32,
    /// Whether a waker has taken this out of the queue. Written and read under the queue's lock.
    is_woken: Cell<bool>,
    condvar: Condvar,
    /// The next one in the queue. Written and read under the queue's lock.
    next: Cell<*const Sleeper>,
}

impl Queue {
    /// The lock of the queue for an address.
    fn lock(address: usize) -> MutexGuard<'static, Queue> {
        // Fibonacci hashing: the uppermost bits of the product.
        let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let queue = &TABLE[(mixed >> (u64::BITS - QUEUES.ilog2())) as usize].0;
        // Nothing under the lock panics.
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a sleeper at the end.
    ///
    /// # Safety
    ///
    /// The caller sees to it that the invariant of the queue holds for this sleeper.
    unsafe fn append(&mut self, sleeper: &Sleeper) {
        let mut link = &self.first;
        // SAFETY: the invariant of the queue; `self` is borrowed from the lock.
        while let Some(before) = unsafe { link.get().as_ref() } {
            link = &before.next;
        }
        link.set(sleeper);
    }

    /// Takes out, in their order, those that `keep` does not want kept.
    fn retain(&mut self, mut keep: impl FnMut(&Sleeper) -> bool) {
        let mut link = &self.first;
        // SAFETY: the invariant of the queue; `self` is borrowed from the lock. One that is taken
        // out is still there while the lock is held.
        while let Some(sleeper) = unsafe { link.get().as_ref() } {
            if keep(sleeper) {
                link = &sleeper.next;
            } else {
                link.set(sleeper.next.get());
            }
        }
    }
}

impl Sleep for Native {
    fn park_as(word: &AtomicU32, expected: u32, deadline: Option<Time>, groups: u32) -> Parked {
        let address = ptr::from_ref(word).addr();
        let mut queue = Queue::lock(address);
        // Relaxed: ordered by the lock. Partner: the change that a waker made before it took the
        // lock; what changes later finds this thread in the queue.
        if word.load(Ordering::Relaxed) != expected {
            return Parked::Changed;
        }
        let sleeper = Sleeper {
            word: address,
            groups,
            is_woken: Cell::new(false),
            condvar: Condvar::new(),
            next: Cell::new(ptr::null()),
        };
        // SAFETY: there are two ways out of the loop below, and nothing there panics. One of them
        // has seen, under the lock, that a waker took the sleeper out; the other takes it out.
        unsafe { queue.append(&sleeper) };
        while !sleeper.is_woken.get() {
            let condvar = &sleeper.condvar;
            let Some(deadline) = deadline else {
                queue = condvar.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline - Native::now();
            if left.is_zero() {
                queue.retain(|other| !ptr::eq(other, &sleeper));
                return Parked::TimedOut;
            }
            queue = condvar.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Parked::Woken
    }

    /// Takes the lock of a queue.
    fn wake_groups(word: *const AtomicU32, count: u32, groups: u32) -> u32 {
        let address = word.addr();
        let mut woken = 0;
        Queue::lock(address).retain(|sleeper| {
            if sleeper.word != address || sleeper.groups & groups == 0 || woken == count {
                return true;
            }
            woken += 1;
            sleeper.is_woken.set(true);
            // Under the lock, without which the sleeper cannot go on and take this away.
            sleeper.condvar.notify_one();
            false
        });
        woken
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// More words than there are queues, so that some share one.
    const WORDS: usize = 2 * QUEUES;

    /// How many sleep on a word, as its queue has it.
    fn sleepers(word: &AtomicU32) -> u32 {
        let (address, mut count) = (ptr::from_ref(word).addr(), 0);
        Queue::lock(address).retain(|sleeper| {
            count += u32::from(sleeper.word == address);
            true
        });
        count
    }

    fn wait_for(sleeping: u32, word: &AtomicU32) {
        while sleepers(word) != sleeping {
            thread::yield_now();
        }
    }

    #[test]
    fn those_that_slept_longest_are_woken_first() {
        let (word, order) = (AtomicU32::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for number in 0..8 {
                let (word, order) = (&word, &order);
                scope.spawn(move || {
                    assert_eq!(Native::park(word, 0, None), Parked::Woken);
                    order.lock().unwrap().push(number);
                });
                wait_for(number + 1, word);
            }
            for woken in 1..=8 {
                assert_eq!(Native::wake(&raw const word, 1), 1);
                while order.lock().unwrap().len() < woken {
                    thread::yield_now();
                }
            }
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Native::wake(&raw const word, u32::MAX), 0);
    }

    #[test]
    fn words_that_share_a_queue_wake_their_own_sleepers() {
        let words: Vec<_> = (0..WORDS).map(|_| AtomicU32::new(0)).collect();
        let lock_of = |word: &AtomicU32| ptr::from_ref(&*Queue::lock(ptr::from_ref(word).addr()));
        let first = &words[0];
        let shares = |word: &&AtomicU32| ptr::eq(lock_of(word), lock_of(first));
        let other = words[1..].iter().find(shares);
        // Where no other word shares the first one's queue, another queue has to do.
        let other = other.unwrap_or(&words[1]);
        thread::scope(|scope| {
            let all = [first, other, first, other].map(|word| {
                let before = sleepers(word);
                let thread = scope.spawn(move || Native::park(word, 0, None));
                wait_for(before + 1, word);
                thread
            });
            assert_eq!(Native::wake(other, u32::MAX), 2);
            assert_eq!((sleepers(first), sleepers(other)), (2, 0));
            assert_eq!(Native::wake(first, u32::MAX), 2);
            assert_eq!(all.map(|it| it.join().unwrap()), [Parked::Woken; 4]);
        });
    }

    #[test]
    fn one_that_gives_up_leaves_the_others_in_the_queue() {
        let word = Arc::new(AtomicU32::new(0));
        let park = |deadline| {
            let word = Arc::clone(&word);
            let before = sleepers(&word);
            let theirs = Arc::clone(&word);
            let thread = thread::spawn(move || Native::park(&theirs, 0, deadline));
            // One that was late has given up.
            while sleepers(&word) == before && !thread.is_finished() {
                thread::yield_now();
            }
            thread
        };
        let first = park(None);
        let soon = park(Some(Native::now() + Duration::from_secs(1)));
        let last = park(None);
        assert_eq!(soon.join().unwrap(), Parked::TimedOut);
        assert_eq!(sleepers(&word), 2);
        assert_eq!(Native::wake(&raw const *word, u32::MAX), 2);
        assert_eq!([first, last].map(|it| it.join().unwrap()), [Parked::Woken; 2]);
        // What is over is over: a deadline in the past, and no time at all.
        assert_eq!(Native::park(&word, 0, Some(Time::from_nanos(0))), Parked::TimedOut);
        assert_eq!(Native::park(&word, 1, Some(Time::from_nanos(0))), Parked::Changed);
    }

    /// Sleepers give up all the time while others are woken one by one. Here no sleep ends for no
    /// reason, so each wake that is counted has woken one that says so, and is lost to no other.
    #[test]
    fn a_wake_that_meets_a_deadline_is_counted_by_both_or_by_neither() {
        const SLEEPS: usize = 1000;
        let (word, left) = (&AtomicU32::new(0), &AtomicU32::new(3));
        let later = |micros| Native::now() + Duration::from_micros(micros);
        let sleep = move |micros| {
            let answers = (0..SLEEPS).map(|_| Native::park(word, 0, Some(later(micros))));
            let woken = answers.filter(|answer| *answer == Parked::Woken).count();
            // Relaxed: a count.
            left.fetch_sub(1, Ordering::Relaxed);
            woken
        };
        let (counted, woken) = thread::scope(|scope| {
            let sleepers = [0, 20, 50].map(|micros| scope.spawn(move || sleep(micros)));
            let (mut counted, mut wakes) = (0, 0);
            // Relaxed: a count.
            while left.load(Ordering::Relaxed) > 0 {
                counted += Native::wake(word, 1) as usize;
                // So that some sleep to their deadline, and some of these are woken just then.
                wakes += 1;
                let next = later(wakes * 37 % 200);
                while Native::now() < next {}
            }
            (counted, sleepers.map(|it| it.join().unwrap()).iter().sum::<usize>())
        });
        assert_eq!((counted, sleepers(word)), (woken, 0));
        assert!(counted > 0, "no wake met a sleeper");
    }

    #[test]
    fn a_sleep_until_the_end_of_time_can_be_ended() {
        let word = &AtomicU32::new(0);
        thread::scope(|scope| {
            let end = Time::from_nanos(u64::MAX);
            let sleeper = scope.spawn(move || Native::park(word, 0, Some(end)));
            wait_for(1, word);
            assert_eq!(Native::wake(word, 1), 1);
            assert_eq!(sleeper.join().unwrap(), Parked::Woken);
        });
    }

    /// A thread that ends sleeps and wakes like any other, in the destructors of its locals too.
    #[test]
    fn a_thread_may_sleep_and_wake_as_it_ends() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        struct Last;
        impl Drop for Last {
            fn drop(&mut self) {
                assert_eq!(Native::park(&WORD, 0, None), Parked::Woken);
            }
        }
        std::thread_local!(static LAST: Last = const { Last });
        let sleepers = [(); 2].map(|()| thread::spawn(|| LAST.with(|_| ())));
        wait_for(2, &WORD);
        assert_eq!(Native::wake(&raw const WORD, u32::MAX), 2);
        sleepers.into_iter().for_each(|it| it.join().unwrap());
    }

    #[test]
    fn a_wake_needs_no_live_word() {
        assert_eq!(Native::wake(ptr::null(), u32::MAX), 0);
    }
}
