//! Locks whose waiters queue, spin or sleep.
//!
//! | lock | bytes | waiters |
//! |---|---|---|
//! | [`Mutex`] | 8 | spin in a queue, near ones first, and then sleep; can give up |
//! | [`RwLock`] | 8 | like those of [`Mutex`]; readers share the lock |
//! | [`ReadMostly`] | 16, and 16 for each CPU | sleep; readers write to lines of their own |
//! | [`BiasedRwLock`] | 48, later 8 for each CPU | sleep; readers wait 1 ms for waiting writers |
//! | [`Condvar`] | 8 | sleep, without the lock, until a notification |
//! | [`TicketLock`] | 8 | spin on one line, in order of arrival |
//! | [`Osq`] | 4 | spin on lines of their own, near ones first or in order; can give up |
//!
//! # More threads than CPUs
//!
//! Locks whose waiters sleep have at least ten times the throughput of locks whose waiters only
//! spin, but their longest waits are longer. The table shows 8 and 32 threads. Turns are in
//! millions per second, and the longest waits are in milliseconds:
//!
//! | lock | 8: turns | share | longest wait | 32: turns | share | longest wait |
//! |---|---|---|---|---|---|---|
//! | [`Mutex`] | 2.1–2.9 | 0.73–0.92 | 20–22 | 2.4–2.8 | 0.53–0.62 | 68–76 |
//! | [`RwLock`]¹ | 2.5–3.0 | 0.84–0.92 | 20–24 | 2.8–2.9 | 0.46–0.63 | 140–164 |
//! | [`ReadMostly`]¹ | 2.0–2.3 | 0.90–0.97 | 3.7–12 | 2.0–2.3 | 0.78–0.88 | 11–49 |
//! | [`TicketLock`] | 0.13–0.15 | 0.80–0.96 | 3.0–7.7 | 0.06–0.08 | 0.16–0.28 | 4.2–8.5 |
//! | [`Osq`] | 0.13–0.18 | 0.63–0.90 | 3.4–7.7 | 0.05–0.07 | 0.25–0.47 | 3.8–8.5 |
//! | std's `Mutex` | 2.4–2.9 | 0.78–0.91 | 24–36 | 2.0–2.7 | 0.47–0.53 | 208–276 |
//! | `parking_lot`'s `RwLock`¹ | 2.4–2.9 | 0.85–0.95 | 20–32 | 2.8–2.9 | 0.40–0.52 | 67–124 |
//!
//! The figures were measured natively on 2026-11-26, on an AMD EPYC (family 25 model 17, Zen 4)
//! with 2 CPUs and kernel 6.18. The program is the example `oversubscribed` of `coreline-rivals`.
//! Each turn takes 100 ns, with 500 ns between a thread's turns, and each run takes 1.5 s. Threads
//! are pinned to the CPUs in rotation. Each cell is the lowest and the highest result of five
//! interleaved runs. *Share* (min/max fairness) is the smallest number of turns of any thread,
//! divided by the largest. A wait lasts from the call to the turn, including the time for which
//! other threads ran on the CPU. ¹: one turn in a hundred is a write.
//!
//! Waiters of locks that sleep do not yield on CPUs that other threads want, because a yield would
//! cost a time slice. Threads learn which CPUs these are once a thread has waited in a queue.
//! On 2 CPUs, beside four threads that compute without end, 8 threads have 1.23 times as many turns
//! of [`RwLock`] as of std's. If waiters yield, the ratio is 0.85. (Sections of 100 ns, one write
//! in a hundred; `coreline-rivals rwlocks --beside 4` on an Intel Xeon, family 6 model 207, Linux
//! 6.18: medians of 6 interleaved windows of 0.5 s, both locks in the same run.)
//!
//! # Priorities
//!
//! A waiter with a real-time priority (`SCHED_FIFO`, `SCHED_RR`) may run on the CPU of a holder
//! with a lower priority. The holder cannot continue until the waiter sleeps. So every waiter
//! sleeps after a bounded time.
//!
//! A waiter for a lock with sleeping waiters spins for at most 0.1 ms before it sleeps. So do
//! shootdowns and updates that wait for others. [`TicketLock`], [`Osq`], concurrency IDs, domains,
//! and waits for contexts and readers spin and then yield. Natively, a waiter with a real-time
//! priority yields for about 1 ms, and then sleeps between checks, for 50 us to 1 ms each time. A
//! waiter with ordinary scheduling lets others run when it yields, so it sleeps only after 20 ms of
//! its CPU time. Every waiter on systems other than Linux also sleeps only after 20 ms, and so does
//! a shootdown that begins inside.
//!
//! No lock inherits priorities. A thread with a priority between those of the holder and the waiter
//! runs before the holder, for as long as it wants. If this matters, use a lock of the C library
//! with `PTHREAD_PRIO_INHERIT`.
//!
//! # One copy of the library
//!
//! A lock identifies its waiters by the numbers of nodes in a table of the library. Two copies of
//! the library have two tables, in which the same number stands for different threads. If threads
//! of both copies wait for one lock, some threads wait forever. There are two copies if
//!
//! * a plugin is linked with a copy of its own, and uses the same locks as the program;
//! * two processes use a lock in memory that they share.
//!
//! No lock detects this, because a number does not say which table it is from. Let a plugin lock by
//! calling functions of the program, link both with one dynamic library, or use a lock of std.
//! Between processes, use a lock of the C library with `PTHREAD_PROCESS_SHARED`. [`TicketLock`] has
//! no nodes, and works in both cases.
//!
//! Each copy also numbers the threads on its own. So a lock that compares such numbers may mistake
//! a thread of another copy for its owner. The checked mutex of this project's C library is such a
//! lock.
//!
//! # In an allocator
//!
//! On Linux, [`Mutex`], [`RwLock`] and [`TicketLock`] may guard the global allocator. The nodes of
//! waiters are mapped rather than allocated. Only the first wait of a process allocates, because it
//! reads which caches the CPUs share. If the allocator then needs a lock that is held, the thread
//! waits for it without a node.
//!
//! An allocator that waits for one lock while it holds another must call [`prepare`] before there
//! is a second thread. Otherwise, the first wait could allocate while the same thread holds the
//! allocator's lock. This wait would never end. [`Osq`] cannot guard the allocator, because each of
//! its turns takes a node.
//!
//! # For users of `parking_lot`
//!
//! With the feature `lock_api` (for version 0.5 of that crate) or `lock_api_0_4`, [`RawMutex`] and
//! [`RawRwLock`] implement its traits. So a program keeps its code, including mapped guards, `Arc`
//! guards and unsized data, and changes only one type:
//!
//! ```
//! # #[cfg(feature = "lock_api")] {
//! type Mutex<T> = lock_api::Mutex<coreline::lock::RawMutex, T>;
//! type RwLock<T> = lock_api::RwLock<coreline::lock::RawRwLock, T>;
//!
//! static LOCK: Mutex<u32> = Mutex::new(1);
//! *LOCK.lock() += 1;
//! let halves: &RwLock<[u32]> = &RwLock::new([1, 2]);
//! assert_eq!(*LOCK.lock() as usize, halves.read().len());
//! # }
//! ```
//!
//! [`Condvar`] takes the guards of these mutexes, too. Natively, the traits with deadlines take an
//! `Instant` of std. The methods with deadlines take a [`Time`](coreline_world::Time), which an
//! `Instant` becomes by `into()`.

#[cfg(any(feature = "lock_api", feature = "lock_api_0_4"))]
mod api;
mod biased;
mod condvar;
mod count;
mod guard;
mod mutex;
mod osq;
mod queued;
mod read_mostly;
mod rwlock;
pub(crate) mod spin;
mod stats;
mod ticket;
pub(crate) mod wanted;

pub use biased::{BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard};
pub use biased::{RawBiasedRwLock, TooManyReads};
pub use condvar::{Condvar, Suspend, TimedOut};
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard, RawMutex};
pub use osq::{Fifo, Near, Order, Osq, Turn, prepare};
pub(crate) use queued::QueuedLock;
pub use read_mostly::{RawReadMostly, ReadMostly, ReadMostlyReadGuard, ReadMostlyWriteGuard};
pub use rwlock::{MappedRwLockReadGuard, MappedRwLockWriteGuard};
pub use rwlock::{RawRwLock, Readers, SleepingReaders, SpinningReaders};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockUpgradableGuard, RwLockWriteGuard};
pub use stats::LockStats;
pub use ticket::{RawTicketLock, TicketGuard, TicketLock};
