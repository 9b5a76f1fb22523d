//! [`RwLock`]: many readers or one writer, in eight bytes.
//!
//! A word counts the readers and says whether a writer has closed the lock. Next to it is an
//! [`Osq`](super::Osq) of four bytes, in which readers and writers wait in one order. Only the
//! first waiter looks at the word. It passes its turn on when it has the lock, or has closed it.
//!
//! # State
//!
//! | bits of `state` | name | meaning | written by |
//! |---|---|---|---|
//! | 0 | `WRITER` | a writer has the lock, or waits for readers to leave | that writer |
//! | 1 | `SLEEPS` | threads sleep on the word, or are about to | those threads; their waker |
//! | 2 | `WANTS` | the first waiter comes next: all others queue | the first waiter |
//! | 3 | `DRAINS` | the writer sleeps until readers have left, or is about to | as `SLEEPS` |
//! | 4 | `HELD` | the writer has the lock: no reader has it | that writer |
//! | 5 | `UPGRADABLE` | one of the readers is upgradable | that reader |
//! | 6 | `CLAIMS` | the first waiter is the next upgradable reader | the first waiter |
//! | 7 to 31 | `READER` | how many readers hold the lock, or find that they cannot | readers |
//!
//! These combinations occur. `SLEEPS` may stand with each of them, and `n` is the number in the
//! bits of `READER`.
//!
//! | state | what it says | left by |
//! |---|---|---|
//! | 0 | free | a reader: n; an upgradable one: `UPGRADABLE`; a writer: `WRITER` `HELD` |
//! | n > 0 | n readers | readers; a writer: `WRITER`; an upgradable reader: `UPGRADABLE` |
//! | `UPGRADABLE`, n > 0 | it, and n - 1 others | it: without; upgrading: the next, or the last |
//! | `WRITER`, n >= 0 | a writer waits for n readers | it: `HELD`, or what it had before |
//! | `WRITER` `HELD`, n >= 0 | the writer has the lock, and n come in vain | it: 0, or a reader |
//!
//! `WANTS` or `CLAIMS` stands with each of them while there is a first waiter, and `DRAINS` only
//! with `WRITER` without `HELD`. Never: `HELD` without `WRITER` (they go together); `WRITER` with
//! `UPGRADABLE` (see `Want::barred` in the source).
//!
//! Three kinds of threads sleep on the word: the first waiter, the writer that waits for readers,
//! and readers that spun without success, which leave the queue before they sleep. All are woken
//! together when the lock opens. They are also woken when the last reader leaves and the writer
//! sleeps.
//!
//! # More threads than CPUs
//!
//! A thread that was woken for its turn does not run while another thread has its CPU, often for
//! milliseconds. Meanwhile it does not pass its turn on. The threads that sleep behind it in the
//! queue would sleep as long, although CPUs are idle.
//!
//! ```text
//! CPU 0: wakes A, the first waiter, which is to run here, and goes on reading
//! CPU 1: B, C and D, readers, sleep behind A
//! ```
//!
//! So readers sleep outside of the queue, eight times at most, and then in the queue. A writer that
//! finds no other writer closes the lock and waits for readers without queueing.
//!
//! # Fairness
//!
//! A closed lock admits no more readers. Its writer waits only for those that already read. A first
//! waiter that waits for a writer lets running threads overtake it for 20 us, or for 1 ms if it
//! sleeps. So neither side starves the other. While a first waiter is next, trying to take the lock
//! fails, even if no thread holds it. Recursive reads are the exception: they overtake all waiters.
//!
//! # Whether readers spin
//!
//! In the kernel, readers do not spin since commit 617f3ef95177, "locking/rwsem: Remove reader
//! optimistic spinning" (2020). This change made [MongoDB 13 % faster on x86, and 27 % on
//! arm64][mongo]. But with spinning restored, [apps on Android start 1.4 to 7.4 % faster][android].
//! So here the user chooses, by a type parameter.
//!
//! [mongo]: https://lore.kernel.org/r/20230207190135.25258-1-shaoyi@amazon.com
//! [android]: https://lore.kernel.org/r/20230901010704.18493-1-bongkyu7.kim@samsung.com
//!
//! # Laws
//!
//! A writer is alone. A reader sees all writes of earlier writers. Every waiter gets the lock or
//! gives up. No wake-up is lost. In the repository, `tests/laws/locks/rwlock.rs` checks this in all
//! three worlds.

mod guard;
mod raw;
mod upgradable;

pub use guard::{MappedRwLockReadGuard, MappedRwLockWriteGuard};
pub use guard::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use raw::RawRwLock;
pub use upgradable::RwLockUpgradableGuard;

/// The choice whether waiting readers spin before they sleep. It is [`SpinningReaders`] or
/// [`SleepingReaders`]. Writers always spin first.
pub trait Readers: sealed::Sealed + 'static {
    /// Whether waiting readers spin.
    const SPIN: bool;
}

mod sealed {
    pub trait Sealed {}
}

/// The choice that readers spin for a while before they sleep, as writers do. Use it for short
/// sections.
#[derive(Debug, Clone, Copy)]
pub struct SpinningReaders;

/// The choice that readers sleep immediately. Use it for sections of many microseconds, or if there
/// are few CPUs.
#[derive(Debug, Clone, Copy)]
pub struct SleepingReaders;

impl sealed::Sealed for SpinningReaders {}
impl sealed::Sealed for SleepingReaders {}

impl Readers for SpinningReaders {
    const SPIN: bool = true;
}

impl Readers for SleepingReaders {
    const SPIN: bool = false;
}
