//! `glibc`: a model of `pthread_rwlock_t` with its default attributes, by which readers come first.
//!
//! The model follows the design that `nptl/pthread_rwlock_common.c` describes, and what the library
//! does: glibc 2.36 executes one locked instruction in `pthread_rwlock_rdlock` and one in
//! `pthread_rwlock_unlock`, an addition and an exchange. All words are on one line, which fits a
//! `pthread_rwlock_t` at a multiple of 64 bytes.
//!
//! | bits of `readers` | name | meaning |
//! |---|---|---|
//! | 0 | `PHASE` | the lock is in a write phase: readers that come wait |
//! | 1 | `LOCKED` | a writer, the *primary* one, has or wants the lock |
//! | 3 to 31 | `READER` | how many readers have or want the lock |
//!
//! A primary writer begins a write phase if there are no readers. Otherwise the last reader that
//! goes begins it for the writer. If a writer goes and readers wait, it ends the phase. If none
//! wait, the phase lasts, and the next reader ends it. So readers never wait for a writer that
//! waits, and a writer waits as long as reads overlap.
//!
//! A thread that waits sleeps immediately. Writers that are not the primary one sleep on `next`.

use coreline_world::{Integer, Ordering, Testbed, Word};

use super::ReadWrite;
use super::locks::shares_nothing;
use crate::RunError;

const PHASE: u32 = 1;
const LOCKED: u32 = 1 << 1;
const READER: u32 = 1 << 3;

/// Bits of `phase` and `next`. Threads sleep only on a word in which the first bit is set. `phase`
/// has it in a write phase, and `next` while a primary writer has the lock.
const BEGUN: u32 = 1;
/// Threads sleep on the word, or are about to.
const SLEEPERS: u32 = 2;

/// The lock.
#[repr(C)]
pub struct PreferReader<W: Testbed> {
    readers: W::U32,
    /// The number of writers that wait behind the primary one.
    writers: W::U32,
    /// Follows `PHASE`. Readers sleep on it in a write phase, and the primary writer before it.
    phase: W::U32,
    /// The other writers sleep on it.
    next: W::U32,
    /// The thread that writes, which each call reads: it finds deadlocks, and tells writers from
    /// readers in `unlock`.
    writer: W::U32,
}

impl<W: Testbed> PreferReader<W> {
    fn lock_read(&self) {
        // Relaxed: a thread finds its own number, or another one.
        self.writer.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of the writer before.
        let mut state = self.readers.fetch_add(READER, Ordering::Acquire).wrapping_add(READER);
        if state & PHASE == 0 {
            return;
        }
        // A phase without a writer: the first reader ends it.
        while state & (PHASE | LOCKED) == PHASE {
            // Acquire: pairs with the Release of the writer before.
            let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
            match self.readers.compare_exchange_weak(state, state ^ PHASE, taken, failed) {
                Ok(_) => return self.end_phase(),
                Err(found) => state = found,
            }
        }
        loop {
            // Acquire: pairs with the Release in `end_phase`.
            while self.phase.load(Ordering::Acquire) & BEGUN != 0 {
                self.sleep(&self.phase, BEGUN);
            }
            // Acquire: pairs with the Release of a writer that ended the phase.
            let state = self.readers.load(Ordering::Acquire);
            if state & PHASE == 0 {
                return;
            }
            // The phase has begun, and its word follows.
            W::relax();
        }
    }

    /// Wakes the readers that sleep because of a write phase, which the caller has ended.
    fn end_phase(&self) {
        // Release: pairs with the Acquire of readers that wait.
        if self.phase.swap(0, Ordering::Release) & SLEEPERS != 0 {
            W::wake(&raw const self.phase, u32::MAX);
        }
    }

    /// Sleeps while the word has this value, and marks it.
    fn sleep(&self, word: &W::U32, value: u32) {
        let marked = value | SLEEPERS;
        // Relaxed, twice: asks to be woken, and publishes nothing.
        let (asked, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        match word.compare_exchange(value, marked, asked, failed) {
            Ok(_) => drop(W::park(word, marked, None)),
            Err(found) if found == marked => drop(W::park(word, marked, None)),
            Err(_) => {}
        }
    }

    fn unlock_read(&self) {
        // Relaxed: as in `lock_read`.
        self.writer.load(Ordering::Relaxed);
        // Relaxed: the exchange looks again.
        let mut state = self.readers.load(Ordering::Relaxed);
        loop {
            let mut left = state.wrapping_sub(READER);
            if left < READER {
                // The last reader begins the phase of a writer that waits.
                left |= PHASE * u32::from(left & LOCKED != 0);
            }
            // Release: pairs with the Acquire of a writer.
            let (done, failed) = (Ordering::Release, Ordering::Relaxed);
            match self.readers.compare_exchange_weak(state, left, done, failed) {
                Ok(_) if left == LOCKED | PHASE => return self.begin_phase(),
                Ok(_) => return,
                Err(found) => state = found,
            }
        }
    }

    /// Wakes the primary writer, whose phase the caller has begun.
    fn begin_phase(&self) {
        // Release: pairs with the Acquire of the writer.
        if self.phase.swap(BEGUN, Ordering::Release) & SLEEPERS != 0 {
            W::wake(&raw const self.phase, u32::MAX);
        }
    }

    fn lock_write(&self, thread: usize) {
        // Relaxed: as in `lock_read`.
        self.writer.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of the writer before.
        let mut state = self.readers.fetch_or(LOCKED, Ordering::Acquire);
        let mut others_sleep = false;
        if state & LOCKED != 0 {
            (state, others_sleep) = self.become_primary();
        }
        if state & PHASE == 0 {
            self.await_phase(state);
        }
        // Relaxed: other writers may sleep from now on.
        self.next.store(BEGUN | (SLEEPERS * u32::from(others_sleep)), Ordering::Relaxed);
        // Relaxed: see `writer`.
        self.writer.store(thread as u32 + 1, Ordering::Relaxed);
    }

    /// Waits behind the primary writer. Returns the state in which the caller became that, and
    /// whether other writers may sleep.
    fn become_primary(&self) -> (u32, bool) {
        let mut has_slept = false;
        // Relaxed: a number of writers.
        self.writers.fetch_add(1, Ordering::Relaxed);
        loop {
            // Relaxed: the addition of the bit looks again.
            if self.readers.load(Ordering::Relaxed) & LOCKED == 0 {
                // Acquire: pairs with the Release of the writer before.
                let state = self.readers.fetch_or(LOCKED, Ordering::Acquire);
                if state & LOCKED == 0 {
                    // Relaxed: a number of writers.
                    self.writers.fetch_sub(1, Ordering::Relaxed);
                    return (state, has_slept);
                }
            }
            // Relaxed: the exchange in `sleep` looks again.
            if self.next.load(Ordering::Relaxed) & BEGUN == 0 {
                W::relax();
            } else {
                self.sleep(&self.next, BEGUN);
                has_slept = true;
            }
        }
    }

    /// Waits until a write phase begins, or begins it. The caller is the primary writer.
    fn await_phase(&self, mut state: u32) {
        loop {
            if state & PHASE == 0 && state < READER {
                // Acquire: pairs with the Release of the last reader.
                let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
                let begun = LOCKED | PHASE;
                match self.readers.compare_exchange_weak(LOCKED, begun, taken, failed) {
                    // Relaxed: readers that wait for the end see it at any time.
                    Ok(_) => return self.phase.store(BEGUN, Ordering::Relaxed),
                    Err(found) => state = found,
                }
                continue;
            }
            // Acquire: pairs with the Release in `begin_phase`.
            let begun = self.phase.load(Ordering::Acquire) & BEGUN != 0;
            if !begun {
                self.sleep(&self.phase, 0);
            }
            // Acquire: pairs with the Release of the last reader.
            state = self.readers.load(Ordering::Acquire);
            // Without the bit, the word is that of an earlier phase, which a reader is ending.
            if begun && state & PHASE != 0 {
                return;
            }
        }
    }

    fn unlock_write(&self) {
        // Relaxed: see `writer`.
        self.writer.store(0, Ordering::Relaxed);
        // Relaxed: the mark is of threads that sleep on the word.
        let sleepers = self.next.swap(0, Ordering::Relaxed) & SLEEPERS != 0;
        // Relaxed: the exchange looks again.
        let mut state = self.readers.load(Ordering::Relaxed);
        loop {
            let ends = if state < READER { 0 } else { PHASE };
            // Release: pairs with the Acquire of those that come next.
            let (done, failed) = (Ordering::Release, Ordering::Relaxed);
            match self.readers.compare_exchange_weak(state, state ^ LOCKED ^ ends, done, failed) {
                Ok(_) if ends != 0 => break self.end_phase(),
                Ok(_) => break,
                Err(found) => state = found,
            }
        }
        if sleepers {
            W::wake(&raw const self.next, 1);
        }
    }
}

impl<W: Testbed> ReadWrite<W> for PreferReader<W> {
    shares_nothing!();

    fn new_in((): &(), _: usize) -> Result<Self, RunError> {
        let word = || W::U32::new_in(0);
        Ok(PreferReader {
            readers: word(),
            writers: word(),
            phase: word(),
            next: word(),
            writer: word(),
        })
    }

    fn read(&self, (): &(), _: usize, section: impl FnOnce()) {
        self.lock_read();
        section();
        self.unlock_read();
    }

    fn write(&self, (): &(), thread: usize, section: impl FnOnce()) {
        self.lock_write(thread);
        section();
        self.unlock_write();
    }
}
