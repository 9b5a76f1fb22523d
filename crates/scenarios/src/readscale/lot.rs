//! `parking-lot`: a readers-writer lock like that of the crate `parking_lot`.
//!
//! A reader adds itself with an exchange. If the exchange fails because the word has changed, the
//! reader pauses, twice as long each time, before it tries again. A writer sets `WRITER`, by which
//! readers that come wait, and then waits for the readers that are there. A thread that waits
//! pauses for three rounds, each twice as long as the round before, and yields its CPU for seven
//! rounds. Then it sleeps in a FIFO queue next to the lock. A writer that frees the lock wakes the
//! readers at the front of the queue and the first writer behind them, and these try again.
//!
//! Three things differ from the crate. The queue belongs to this one lock, so no other lock shares
//! it. The queue's own lock is [`Osq`] in FIFO order. And no thread gets the lock handed over: the
//! crate does that about every half millisecond.

use coreline::lock::{Fifo, Osq};
use coreline_world::{Integer, Line, Ordering, Testbed, Word};

use super::ReadWrite;
use super::locks::shares_nothing;
use crate::RunError;

/// Threads sleep in the queue, or are about to.
const SLEEPERS: u32 = 1;
/// The writer that waits for readers sleeps, or is about to.
const DRAINS: u32 = 1 << 1;
/// A writer has the lock, or waits for readers.
const WRITER: u32 = 1 << 2;
/// One reader.
const READER: u32 = 1 << 3;

/// Rounds of pauses, and of all.
const PAUSING: u32 = 3;
const ROUNDS: u32 = 10;

/// The lock.
pub struct Lot<W: Testbed> {
    state: W::U32,
    /// 1: the writer that waits for readers sleeps on it.
    drains: W::U32,
    queue: Line<Queue<W>>,
    sleepers: Box<[Line<Sleeper<W>>]>,
}

/// Threads that sleep, by their numbers from 1 on. All but `lock` is the holder's of that.
struct Queue<W: Testbed> {
    lock: Osq<Fifo, W>,
    first: W::U32,
    last: W::U32,
}

struct Sleeper<W: Testbed> {
    /// 1: asleep.
    sleeps: W::U32,
    next: W::U32,
    writes: W::U32,
}

/// Waits for a while, in this round. Returns `false` if it has waited long enough.
fn spin<W: Testbed>(round: &mut u32) -> bool {
    *round += 1;
    if *round <= PAUSING {
        (0..1 << *round).for_each(|_| W::relax());
    } else if *round <= ROUNDS {
        W::yield_now();
    }
    *round <= ROUNDS
}

impl<W: Testbed> Lot<W> {
    fn lock_read(&self, thread: usize) {
        let (mut failures, mut round) = (0, 0);
        loop {
            // Relaxed: the exchange looks again.
            let state = self.state.load(Ordering::Relaxed);
            if state & WRITER != 0 {
                self.wait(thread, false, state, &mut round);
                continue;
            }
            // Acquire: pairs with the Release of the writer before.
            let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
            if self.state.compare_exchange_weak(state, state + READER, taken, failed).is_ok() {
                return;
            }
            failures = (failures + 1).min(ROUNDS);
            (0..1 << failures).for_each(|_| W::relax());
        }
    }

    fn unlock_read(&self) {
        // Release: pairs with the Acquire of a writer.
        let state = self.state.fetch_sub(READER, Ordering::Release);
        if state & DRAINS != 0 && state < 2 * READER {
            // Relaxed: the writer looks at the state again.
            self.state.fetch_and(!DRAINS, Ordering::Relaxed);
            // Relaxed: the writer looks at the state again.
            self.drains.store(0, Ordering::Relaxed);
            W::wake(&raw const self.drains, 1);
        }
    }

    fn lock_write(&self, thread: usize) {
        // Acquire: pairs with the Release of the writer before.
        let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
        if self.state.compare_exchange(0, WRITER, taken, failed).is_ok() {
            return;
        }
        let mut round = 0;
        loop {
            // Relaxed: the exchange looks again.
            let state = self.state.load(Ordering::Relaxed);
            if state & WRITER != 0 {
                self.wait(thread, true, state, &mut round);
                // Acquire: pairs with the Release of the writer before.
            } else if self.state.compare_exchange_weak(state, state | WRITER, taken, failed).is_ok()
            {
                return self.drain();
            }
        }
    }

    /// Waits for the readers that are there. The caller has closed the lock.
    fn drain(&self) {
        let mut round = 0;
        // Acquire: pairs with the Release of the last reader.
        while self.state.load(Ordering::Acquire) >= READER {
            if spin::<W>(&mut round) {
                continue;
            }
            // Relaxed: comes before the mark, by the order of the addition below.
            self.drains.store(1, Ordering::Relaxed);
            // Release: the reader that sees the mark writes the word after this thread.
            if self.state.fetch_or(DRAINS, Ordering::Release) >= READER {
                W::park(&self.drains, 1, None);
            } else {
                // Relaxed: a mark.
                self.state.fetch_and(!DRAINS, Ordering::Relaxed);
            }
        }
    }

    fn unlock_write(&self) {
        // Release: pairs with the Acquire of those that come next.
        let (done, failed) = (Ordering::Release, Ordering::Relaxed);
        if self.state.compare_exchange(WRITER, 0, done, failed).is_err() {
            self.wake();
        }
    }

    /// Waits for a while, or sleeps, if the lock has a writer.
    fn wait(&self, thread: usize, writes: bool, state: u32, round: &mut u32) {
        if state & SLEEPERS == 0 {
            if spin::<W>(round) {
                return;
            }
            let (marked, relaxed) = (state | SLEEPERS, Ordering::Relaxed);
            // Relaxed: a mark; the queue's lock orders what goes with it.
            if self.state.compare_exchange_weak(state, marked, relaxed, relaxed).is_err() {
                return;
            }
        }
        self.sleep(thread, writes);
        *round = 0;
    }

    /// Sleeps in the queue, if the lock has a writer and the mark still.
    fn sleep(&self, thread: usize, writes: bool) {
        let (me, mine) = (thread as u32 + 1, &self.sleepers[thread]);
        {
            let _turn = self.queue.lock.lock();
            // Relaxed, all here: under the queue's lock. A writer that leaves a marked lock takes
            // the queue's lock first.
            let marked = WRITER | SLEEPERS;
            if self.state.load(Ordering::Relaxed) & marked != marked {
                return;
            }
            mine.sleeps.store(1, Ordering::Relaxed);
            mine.next.store(0, Ordering::Relaxed);
            mine.writes.store(u32::from(writes), Ordering::Relaxed);
            // Relaxed: under the queue's lock.
            match self.queue.last.load(Ordering::Relaxed) {
                0 => self.queue.first.store(me, Ordering::Relaxed),
                // Relaxed: under the queue's lock.
                last => self.sleepers[last as usize - 1].next.store(me, Ordering::Relaxed),
            }
            // Relaxed: under the queue's lock.
            self.queue.last.store(me, Ordering::Relaxed);
        }
        // Relaxed: asks for no more than that it was woken.
        while mine.sleeps.load(Ordering::Relaxed) != 0 {
            W::park(&mine.sleeps, 1, None);
        }
    }

    /// Frees a marked lock, and wakes threads.
    fn wake(&self) {
        let queue = &self.queue;
        let turn = queue.lock.lock();
        // Relaxed, all words of the queue: under its lock.
        let front = queue.first.load(Ordering::Relaxed);
        let (mut next, mut last) = (front, 0);
        while next != 0 {
            let sleeper = &self.sleepers[next as usize - 1];
            // Relaxed: under the queue's lock.
            (last, next) = (next, sleeper.next.load(Ordering::Relaxed));
            // Relaxed: under the queue's lock.
            if sleeper.writes.load(Ordering::Relaxed) != 0 {
                break;
            }
        }
        // Relaxed: under the queue's lock.
        queue.first.store(next, Ordering::Relaxed);
        if next == 0 {
            // Relaxed: under the queue's lock.
            queue.last.store(0, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire of those that come next. No other bit can be set.
        self.state.store(if next == 0 { 0 } else { SLEEPERS }, Ordering::Release);
        drop(turn);
        let mut at = front;
        while at != 0 {
            let sleeper = &self.sleepers[at as usize - 1];
            // Relaxed: the sleeper changes it only when it has been woken.
            let after = sleeper.next.load(Ordering::Relaxed);
            // Relaxed: as in `sleep`.
            sleeper.sleeps.store(0, Ordering::Relaxed);
            W::wake(&raw const sleeper.sleeps, 1);
            at = if at == last { 0 } else { after };
        }
    }
}

impl<W: Testbed> ReadWrite<W> for Lot<W> {
    shares_nothing!();

    fn new_in((): &(), threads: usize) -> Result<Self, RunError> {
        let word = || W::U32::new_in(0);
        let sleeper = |_| Line(Sleeper { sleeps: word(), next: word(), writes: word() });
        Ok(Lot {
            state: word(),
            drains: word(),
            queue: Line(Queue { lock: Osq::new_in(), first: word(), last: word() }),
            sleepers: (0..threads).map(sleeper).collect(),
        })
    }

    fn read(&self, (): &(), thread: usize, section: impl FnOnce()) {
        self.lock_read(thread);
        section();
        self.unlock_read();
    }

    fn write(&self, (): &(), thread: usize, section: impl FnOnce()) {
        self.lock_write(thread);
        section();
        self.unlock_write();
    }
}
