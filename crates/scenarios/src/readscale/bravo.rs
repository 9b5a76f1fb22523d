//! `bravo`: Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019.
//!
//! While a lock is biased, a reader puts the lock into a slot of one table, which all locks of the
//! process share. The slot is found by a hash of lock and thread. A reader that finds the slot
//! taken, or a lock that is not biased, takes the underlying lock, which is `glibc` here. A reader
//! that has taken the underlying lock biases the lock, unless the bias is inhibited at that time. A
//! writer takes the underlying lock, takes the bias back, and waits until no slot has this lock.
//! Then it inhibits the bias for [`TIMES`] times as long as that took.
//!
//! The table has as many slots as the paper's, 4,096. The paper keeps the address of the lock in a
//! slot, and these locks are numbered, in 8 bytes as well.

use coreline_world::{Ordering, Testbed, Word};

use super::ReadWrite;
use super::glibc::PreferReader;
use crate::RunError;

/// The number of slots.
pub const SLOTS: usize = 4096;

/// For how long a lock is not biased again, as a multiple of the time that it took to take the bias
/// back.
pub const TIMES: u64 = 9;

/// The state that all locks share: the table, and the number of locks up to now.
pub struct Table<W: Testbed> {
    slots: Box<[W::U64]>,
    locks: W::U64,
}

/// A lock.
pub struct Bravo<W: Testbed> {
    behind: PreferReader<W>,
    /// 1: biased.
    biased: W::U32,
    /// The time from which the lock may be biased, in nanoseconds.
    until: W::U64,
    /// From 1 on.
    number: u64,
}

impl<W: Testbed> Bravo<W> {
    /// Mixes the bits of lock and thread (the finaliser of SplitMix64).
    fn slot<'a>(&self, table: &'a Table<W>, thread: usize) -> &'a W::U64 {
        let mut hash = self.number << 32 | thread as u64;
        for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb_u64)] {
            hash = (hash ^ hash >> shift).wrapping_mul(factor);
        }
        &table.slots[(hash ^ hash >> 31) as usize % SLOTS]
    }

    /// Puts the lock into the thread's slot, if it is biased and the slot is free.
    fn enter(&self, slot: &W::U64) -> bool {
        // Relaxed: looked at again below.
        if self.biased.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // SeqCst: pairs with the writer's store. Either the writer finds this reader in the table,
        // or this reader finds that the lock is not biased.
        if slot.compare_exchange(0, self.number, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return false;
        }
        // SeqCst: pairs with the same store, for the same reason. It is also an Acquire, for what
        // the last writer wrote.
        if self.biased.load(Ordering::SeqCst) != 0 {
            return true;
        }
        // Relaxed: this reader has read nothing.
        slot.store(0, Ordering::Relaxed);
        false
    }

    /// Takes the bias back, and waits for the readers in the table.
    fn revoke(&self, table: &Table<W>) {
        // SeqCst: pairs with the readers' exchanges.
        self.biased.store(0, Ordering::SeqCst);
        let begun = W::now();
        for slot in &table.slots {
            // SeqCst: pairs with the readers' exchanges; and it is an Acquire.
            if slot.load(Ordering::SeqCst) == self.number {
                // Acquire: pairs with the Release of a reader that goes.
                slot.wait_until(Ordering::Acquire, |found| found != self.number);
            }
        }
        let now = W::now();
        let until = now.as_nanos() + TIMES * now.as_nanos().saturating_sub(begun.as_nanos());
        // Relaxed: a hint.
        self.until.store(until, Ordering::Relaxed);
    }
}

impl<W: Testbed> ReadWrite<W> for Bravo<W> {
    type Shared = Table<W>;

    fn share(_: usize) -> Table<W> {
        Table { slots: (0..SLOTS).map(|_| W::U64::new_in(0)).collect(), locks: W::U64::new_in(0) }
    }

    fn new_in(table: &Table<W>, threads: usize) -> Result<Self, RunError> {
        // Relaxed, both: one thread makes the locks.
        let number = table.locks.load(Ordering::Relaxed) + 1;
        table.locks.store(number, Ordering::Relaxed);
        Ok(Bravo {
            behind: PreferReader::new_in(&(), threads)?,
            biased: W::U32::new_in(0),
            until: W::U64::new_in(0),
            number,
        })
    }

    fn read(&self, table: &Table<W>, thread: usize, section: impl FnOnce()) {
        let slot = self.slot(table, thread);
        if self.enter(slot) {
            section();
            // Release: pairs with the Acquire of a writer that looks at the table.
            slot.store(0, Ordering::Release);
            return;
        }
        self.behind.read(&(), thread, || {
            // Relaxed, both: hints. The lock behind keeps writers out.
            if self.biased.load(Ordering::Relaxed) == 0
                && W::now().as_nanos() >= self.until.load(Ordering::Relaxed)
            {
                // Relaxed: a reader that sees it looks again; a writer has the lock behind first.
                self.biased.store(1, Ordering::Relaxed);
            }
            section();
        });
    }

    fn write(&self, table: &Table<W>, thread: usize, section: impl FnOnce()) {
        self.behind.write(&(), thread, || {
            // Relaxed: ordered by the lock behind.
            if self.biased.load(Ordering::Relaxed) != 0 {
                self.revoke(table);
            }
            section();
        });
    }
}
