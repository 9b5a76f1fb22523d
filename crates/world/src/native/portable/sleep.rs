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
//! As the kernel's futex, words whose addresses share a queue share its lock and nothing else.

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
    /// Whether a waker has taken this out of the queue. Written and read under the queue's lock.
    is_woken: Cell<bool>,
    condvar: Condvar,
    /// The next one in the queue. Written and read under the queue's lock.
    next: Cell<*const Sleeper>,
}

impl Queue {
    /// The lock of the queue for an address.
    fn lock(address: usize) -> MutexGuard<'static, Queue> {
        // Fibonacci hashing, by the upper half of the product. Words lie four bytes apart.
        let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let queue = &TABLE[mixed as usize % QUEUES].0;
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
    fn park(word: &AtomicU32, expected: u32, deadline: Option<Time>) -> Parked {
        let address = ptr::from_ref(word).addr();
        let mut queue = Queue::lock(address);
        // Relaxed: ordered by the lock. Partner: the change that a waker made before it took the
        // lock; what changes later finds this thread in the queue.
        if word.load(Ordering::Relaxed) != expected {
            return Parked::Changed;
        }
        let sleeper = Sleeper {
            word: address,
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
    fn wake(word: *const AtomicU32, count: u32) -> u32 {
        let address = word.addr();
        let mut woken = 0;
        Queue::lock(address).retain(|sleeper| {
            if sleeper.word != address || woken == count {
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
