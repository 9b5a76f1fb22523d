//! `parking-lot`: a lock like that of the crate `parking_lot`, generic over its world.
//!
//! The lock is one byte. A waiter spins for as long as in the crate. It pauses for three rounds,
//! each twice as long as the round before, and yields its CPU for seven rounds. Then it sleeps in a
//! queue next to the lock. An arriving thread may take a free lock before sleeping threads. About
//! every half millisecond, a holder instead hands the lock to the thread that has slept longest.
//! This is called *eventual fairness*. The crate chooses a random time from 0 to 1 ms.
//!
//! There are two differences from the crate. The queue belongs to this one lock, so no other lock
//! shares it. The queue's own lock is [`Osq`] in FIFO order, whose waiters never sleep, so they
//! lose no time by sleeping. The crate uses a word whose waiters spin and then sleep.

use core::time::Duration;

use coreline::lock::{Fifo, Osq};
use coreline_world::{Line, Ordering, Testbed, Time, Word};

use super::Lock;
use super::test_and_set::Dice;

/// A lock of one byte, with a queue next to it.
///
/// | bit | name | meaning |
/// |---|---|---|
/// | 0 | `HELD` | a thread has the lock |
/// | 1 | `SLEEPERS` | threads sleep in the queue, or one is about to |
pub struct Lot<W: Testbed> {
    state: W::U8,
    queue: Line<Queue<W>>,
    sleepers: Box<[Line<Sleeper<W>>]>,
}

const HELD: u8 = 1;
const SLEEPERS: u8 = 2;

/// Threads that sleep, by their numbers from 1 on. All but `lock` is the holder's of that.
struct Queue<W: Testbed> {
    lock: Osq<Fifo, W>,
    first: W::U32,
    last: W::U32,
    /// When the lock is handed on next, in nanoseconds.
    fair_at: W::U64,
    dice: Dice<W>,
}

struct Sleeper<W: Testbed> {
    /// [`ASLEEP`], or how it was woken.
    how: W::U32,
    next: W::U32,
}

const ASLEEP: u32 = 0;
const WOKEN: u32 = 1;
const HAS_LOCK: u32 = 2;

/// The span between two hand-offs is drawn from this.
const FAIR_WITHIN: u32 = 1_000_000;

/// Rounds of pauses, and of all.
const PAUSING: u32 = 3;
const ROUNDS: u32 = 10;

impl<W: Testbed> Lot<W> {
    fn acquire(&self, thread: usize) {
        let mut round = 0;
        // Relaxed: the exchanges look again.
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & HELD == 0 {
                // Acquire: pairs with the Release exchange or store of the holder before.
                let (held, fail) = (state | HELD, Ordering::Relaxed);
                match self.state.compare_exchange_weak(state, held, Ordering::Acquire, fail) {
                    Ok(_) => return,
                    Err(now) => state = now,
                }
                continue;
            }
            if state & SLEEPERS == 0 {
                if round < ROUNDS {
                    round += 1;
                    if round <= PAUSING {
                        (0..1 << round).for_each(|_| W::relax());
                    } else {
                        W::yield_now();
                    }
                    // Relaxed: the exchanges look again.
                    state = self.state.load(Ordering::Relaxed);
                    continue;
                }
                let (marked, relaxed) = (state | SLEEPERS, Ordering::Relaxed);
                // Relaxed: a mark; the queue's lock orders what goes with it.
                if let Err(now) = self.state.compare_exchange_weak(state, marked, relaxed, relaxed)
                {
                    state = now;
                    continue;
                }
            }
            if self.sleep(thread) {
                return;
            }
            round = 0;
            // Relaxed: the exchanges look again.
            state = self.state.load(Ordering::Relaxed);
        }
    }

    /// Sleeps, if the lock is held and marked still; whether it was handed over.
    fn sleep(&self, thread: usize) -> bool {
        let (me, mine) = (thread as u32 + 1, &self.sleepers[thread]);
        {
            let _turn = self.queue.lock.lock();
            // Relaxed, all here: under the queue's lock. A holder that leaves a marked lock takes
            // the queue's lock first.
            if self.state.load(Ordering::Relaxed) != HELD | SLEEPERS {
                return false;
            }
            mine.how.store(ASLEEP, Ordering::Relaxed);
            mine.next.store(0, Ordering::Relaxed);
            // Relaxed: under the queue's lock.
            match self.queue.last.load(Ordering::Relaxed) {
                0 => self.queue.first.store(me, Ordering::Relaxed),
                // Relaxed: under the queue's lock.
                last => self.sleepers[last as usize - 1].next.store(me, Ordering::Relaxed),
            }
            // Relaxed: under the queue's lock.
            self.queue.last.store(me, Ordering::Relaxed);
        }
        loop {
            // Acquire: pairs with the Release in `wake_one`, of a holder that hands the lock over.
            match mine.how.load(Ordering::Acquire) {
                ASLEEP => W::park(&mine.how, ASLEEP, None),
                how => return how == HAS_LOCK,
            };
        }
    }

    /// Gives a marked lock back.
    fn wake_one(&self) {
        let queue = &self.queue;
        let turn = queue.lock.lock();
        // Relaxed, all words of the queue: under its lock.
        let first = queue.first.load(Ordering::Relaxed);
        if first == 0 {
            // The thread that marked it has not come, and will see that the lock is free.
            // Release: pairs with the Acquire of the next holder.
            return self.state.store(0, Ordering::Release);
        }
        let sleeper = &self.sleepers[first as usize - 1];
        // Relaxed: under the queue's lock.
        let next = sleeper.next.load(Ordering::Relaxed);
        // Relaxed: under the queue's lock.
        queue.first.store(next, Ordering::Relaxed);
        if next == 0 {
            // Relaxed: under the queue's lock.
            queue.last.store(0, Ordering::Relaxed);
        }
        let mark = if next == 0 { 0 } else { SLEEPERS };
        let how = if self.is_fair_now() {
            // Relaxed: the lock stays held, by the thread that is woken.
            self.state.store(HELD | mark, Ordering::Relaxed);
            HAS_LOCK
        } else {
            // Release: pairs with the Acquire of the next holder.
            self.state.store(mark, Ordering::Release);
            WOKEN
        };
        // Release: pairs with the Acquire in `sleep`.
        sleeper.how.store(how, Ordering::Release);
        drop(turn);
        W::wake(&raw const sleeper.how, 1);
    }

    fn is_fair_now(&self) -> bool {
        let now = W::now();
        // Relaxed: under the queue's lock.
        let is_due = now >= Time::from_nanos(self.queue.fair_at.load(Ordering::Relaxed));
        if is_due {
            let span = Duration::from_nanos(u64::from(self.queue.dice.draw() % FAIR_WITHIN));
            // Relaxed: under the queue's lock.
            self.queue.fair_at.store((now + span).as_nanos(), Ordering::Relaxed);
        }
        is_due
    }
}

impl<W: Testbed> Lock<W> for Lot<W> {
    fn new_in(nodes: &[u32]) -> Self {
        let word = || W::U32::new_in(0);
        let queue = Queue {
            lock: Osq::new_in(),
            first: word(),
            last: word(),
            fair_at: W::U64::new_in(W::now().as_nanos()),
            dice: Dice::new_in(0),
        };
        let sleeper = |_: &u32| Line(Sleeper { how: word(), next: word() });
        let sleepers = nodes.iter().map(sleeper).collect();
        Lot { state: W::U8::new_in(0), queue: Line(queue), sleepers }
    }

    fn hold(&self, thread: usize, turn: impl FnOnce()) {
        // Acquire: pairs with the Release exchange or store of the holder before.
        let taken = self.state.compare_exchange_weak(0, HELD, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            self.acquire(thread);
        }
        turn();
        // Release: pairs with the Acquire of the next holder.
        let left = self.state.compare_exchange(HELD, 0, Ordering::Release, Ordering::Relaxed);
        if left.is_err() {
            self.wake_one();
        }
    }
}
