//! [`Mutex`]: a lock of eight bytes whose waiters spin in a queue and then sleep.
//!
//! A word says whether the lock is held. Beside it there is an [`Osq`] of four bytes. A thread that
//! finds the lock held checks it a few times, and then queues. Of the threads that queue and spin,
//! only the one that has its turn, the *first waiter*, looks at the word. So only one waiter spins
//! on the line that the holder writes. It passes its turn on when it has the lock, so that the next
//! one spins there during its section (as in the kernel's mutex, `kernel/locking/mutex.c`). Waiters
//! sleep in the queue, each on the word of its node. The first waiter sleeps on the lock's word.
//!
//! # State
//!
//! | bits of `state` | name | meaning | written by |
//! |---|---|---|---|
//! | 0 | `HELD` | a thread holds the lock | that thread; with `GIVEN`, the last holder |
//! | 1 | `SLEEPS` | the first waiter sleeps on the word | the first waiter |
//! | 2 | `HAND` | the first waiter asks for the lock | the first waiter |
//! | 3 | `GIVEN` | the lock is the first waiter's | the last holder: it found `HAND`, or is fair |
//! | 4 to 31 | `NEXT` | node of the thread that the holder wakes | the holder |
//!
//! All bits are zero in a free lock.
//!
//! # One locked instruction
//!
//! If no thread waits, an exchange takes the lock, and a store frees it. The store may miss a
//! thread that queues meanwhile. So the holder looks at the queue after the store and a light
//! fence. The first waiter pays for that with a heavy fence before it sleeps. It pays once from an
//! arrival in an empty queue until the queue is empty again, however many waiters sleep meanwhile
//! and however often. In the repository, `docs/mutex.md` has the alternatives that we rejected,
//! with figures.
//!
//! # Which thread is next
//!
//! A new thread may take a freed lock before a waiter does. A waiter takes microseconds to wake up,
//! which is enough for many sections. A first waiter that spins asks for the lock after 5 us,
//! unless another thread wants its CPU. One that sleeps asks after 1 ms. Then the next thread that
//! frees the lock hands it over. So no waiter starves. The lock idles for a sleeper at most once in
//! 1 ms while other threads come.
//!
//! A holder that frees the lock fairly hands it over at once, if a thread is in the queue. Each
//! hand-over to a thread that sleeps then takes as long as a wake-up.
//!
//! | constant | why this value | test in `tests.rs` |
//! |---|---|---|
//! | `PATIENCE_SPINNING` | some line transfers | `a_first_waiter_that_spins_..`, both |
//! | `PATIENCE` | far longer than a wake-up | `a_first_waiter_that_sleeps_asks_..` |
//!
//! No test fails if a first waiter that sleeps asks immediately: simulated wake-ups are short.
//!
//! # More threads than CPUs
//!
//! A thread that was woken for its turn does not run while another thread has its CPU, often for
//! milliseconds. Meanwhile it does not pass its turn on. The threads that sleep behind it would
//! sleep as long, although CPUs are idle.
//!
//! ```text
//! CPU 0: wakes A, the first waiter, which is to run here, and goes on taking the lock
//! CPU 1: B and C sleep behind A
//! ```
//!
//! So a thread that sleeps behind the first waiter checks after 2, 4, 8 and so on to 256 ms whether
//! the lock is free. If so, it takes the lock as a new thread does. If not, it keeps its position
//! in the queue and sleeps again.
//!
//! # Laws
//!
//! There is at most one holder, and the next holder sees its writes. Every waiter gets the lock or
//! gives up. No wake-up is lost. `tests/laws/locks/lock.rs`, in the repository, checks this in all
//! three worlds.

mod guard;
mod raw;

pub use guard::{MappedMutexGuard, Mutex, MutexGuard};
pub use raw::RawMutex;

#[cfg(test)]
mod tests;
