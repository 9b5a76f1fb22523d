//! [`Stocks`]: permits that each CPU has taken in advance.
//!
//! | a stock's word | meaning | next |
//! |---|---|---|
//! | 0 to the batch | so many permits, for any thread | less; `LOCKED` |
//! | [`LOCKED`] | a thread fills it, with up to a batch in hand | 0 to the batch |
//!
//! Only the thread that locked a word changes it from then on. Other threads do without that stock,
//! so no thread waits. The lock keeps the sum bounded. Without it, each preempted thread of a CPU
//! could have a batch in hand:
//!
//! ```text
//! Thread 1: finds the stock empty; takes a batch from the limiter; is preempted
//! Thread 2: finds the stock empty; takes a batch from the limiter; is preempted
//! A long time passes, and the limiter is full. It is emptied by thread 3.
//! Thread 1, thread 2: fill the stock, one after the other
//! ```
//!
//! The words are atomic, and not slots of restartable operations: threads take permits from the
//! stocks of other CPUs at any time, without stopping them.
//!
//! All accesses are relaxed. A permit publishes nothing, and each word by itself never gives one
//! out twice.

use core::iter;

use coreline_world::{Line, Ordering, Word, World};

pub(super) const LOCKED: u64 = 1 << 63;

#[derive(Debug)]
pub(super) struct Stocks<W: World> {
    /// By CPU; none if the limiter has no stocks.
    words: Box<[Line<W::U64>]>,
}

/// The calling CPU's stock, locked.
pub(super) struct Locked<'a, W: World> {
    word: &'a W::U64,
    /// The permits that were in it.
    pub(super) hand: u64,
}

impl<W: World> Stocks<W> {
    pub(super) fn new_in(cpus: usize) -> Self {
        let empty = iter::repeat_with(|| Line(W::U64::new_in(0)));
        Stocks { words: empty.take(cpus).collect() }
    }

    #[inline]
    pub(super) fn own(&self) -> Option<&W::U64> {
        self.words.get(W::cpu_hint().get() as usize).map(|line| &**line)
    }

    /// Takes this many permits from the calling CPU's stock, if it has them.
    #[inline]
    pub(super) fn take(&self, permits: u64) -> bool {
        let Some(word) = self.own() else {
            return false;
        };
        // Relaxed, here and below: see the module.
        let (mut seen, relaxed) = (word.load(Ordering::Relaxed), Ordering::Relaxed);
        while seen & LOCKED == 0 && seen >= permits {
            match word.compare_exchange_weak(seen, seen - permits, relaxed, relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Locks the calling CPU's stock, if there is one that no other thread has locked.
    pub(super) fn lock(&self) -> Option<Locked<'_, W>> {
        let word = self.own()?;
        // Relaxed: see the module.
        let (mut seen, relaxed) = (word.load(Ordering::Relaxed), Ordering::Relaxed);
        while seen & LOCKED == 0 {
            match word.compare_exchange_weak(seen, LOCKED, relaxed, relaxed) {
                Ok(hand) => return Some(Locked { word, hand }),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// How many permits there are that any thread can take.
    pub(super) fn sum(&self) -> u64 {
        // Relaxed: see the module.
        let seen = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        seen.filter(|seen| seen & LOCKED == 0).sum()
    }

    /// Takes up to this many permits from all stocks. Returns how many they are.
    pub(super) fn steal(&self, permits: u64) -> u64 {
        let mut left = permits;
        for word in &self.words {
            // Relaxed, here and below: see the module.
            let (mut seen, relaxed) = (word.load(Ordering::Relaxed), Ordering::Relaxed);
            while left > 0 && seen > 0 && seen & LOCKED == 0 {
                let some = left.min(seen);
                match word.compare_exchange_weak(seen, seen - some, relaxed, relaxed) {
                    Ok(_) => {
                        left -= some;
                        break;
                    }
                    Err(now) => seen = now,
                }
            }
        }
        permits - left
    }
}

impl<W: World> Locked<'_, W> {
    /// Unlocks the stock, with this many permits: at most a batch.
    pub(super) fn unlock(self, permits: u64) {
        // Relaxed: see the module.
        self.word.store(permits, Ordering::Relaxed);
    }
}
