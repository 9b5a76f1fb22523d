//! [`Mutex`]: a lock of eight bytes whose waiters spin in a queue and then sleep.
//!
//! A word says whether the lock is held; beside it stands an [`Osq`] of four bytes. A thread that
//! finds the lock held looks a few times, and then queues. Of the threads that queue and spin, the
//! one that has its turn, the *first waiter*, alone looks at the word: however many wait, one spins
//! where the holder writes. It passes its turn on when it has the lock, so that the next one spins
//! there during its section (the kernel's mutex does so, `kernel/locking/mutex.c`). Waiters sleep
//! in the queue, each on the word of its node, and the first one on the lock's.
//!
//! # State
//!
//! | bits of `state` | name | meaning | written by |
//! |---|---|---|---|
//! | 0 | `HELD` | a thread holds the lock | that thread; the last holder, with `GIVEN` |
//! | 1 | `SLEEPS` | the first waiter sleeps on the word | the first waiter |
//! | 2 | `HAND` | the first waiter asks for the lock | the first waiter |
//! | 3 | `GIVEN` | the lock is the first waiter's | the last holder, where it found `HAND` |
//! | 16 to 31 | `NEXT` | the node whose thread the holder wakes at the end | the holder |
//!
//! All bits are zero in a lock that is free.
//!
//! # One locked instruction
//!
//! A lock that no thread waits for is taken by an exchange, and freed by a store. What a store can
//! miss, a thread that queues meanwhile, the holder looks for behind the store, after a light
//! fence; a first waiter pays for that with a heavy one before it sleeps. It pays once from an
//! arrival in an empty queue until the queue is empty again, however many waiters sleep meanwhile
//! and however often. In the repository, `docs/mutex.md` has what that was chosen over, with
//! figures.
//!
//! # Which thread is next
//!
//! A thread that comes may take a lock that was freed before a waiter does: a waiter that must be
//! woken takes microseconds, in which many sections fit. A first waiter that spins asks for the
//! lock after 5 us, unless another thread wants its CPU, and one that sleeps after 1 ms: the next
//! thread that frees the lock hands it over. So a waiter is not starved, and the lock idles for a
//! sleeper once in 1 ms at most, while other threads come.
//!
//! # More threads than CPUs
//!
//! A thread that was woken to its turn does not run while another one has its CPU, often for
//! milliseconds, and passes no turn on. What sleeps behind it would sleep as long, while CPUs idle:
//!
//! ```text
//! CPU 0: wakes A, the first waiter, which is to run here, and goes on taking the lock
//! CPU 1: B and C sleep behind A
//! ```
//!
//! So a thread that sleeps behind the first waiter looks, after 2, 4, 8 and so on to 256 ms,
//! whether the lock is free, and takes it as a thread that comes does. If it is not, the thread
//! sleeps on in its place.
//!
//! # Laws
//!
//! At most one holder, whose writes the next holder sees; every waiter gets the lock or gives up;
//! no wake-up is lost. `tests/laws/locks/lock.rs`, in the repository too, checks it in all
//! three worlds.

mod guard;
mod raw;

pub use guard::{Mutex, MutexGuard};
pub use raw::RawMutex;
