//! `test-and-set`: a word that waiters read until it is free, and then try to set, with randomised
//! exponential backoff. The sources are T. Anderson, "The performance of spin lock alternatives",
//! 1990, and the best of the test-and-set locks in Mellor-Crummey and Scott, 1991.
//!
//! The backoff is at most [`MOST`] pauses, which is as long as several turns. With limits from 4 to
//! 4,096, the figures of the scenario hardly differ (see `docs/appendix/lockscale.md`).

use coreline_world::{Line, Ordering, Testbed, Word};

use super::Lock;

/// A lock of one word, which all threads try to set.
pub struct TestAndSet<W: Testbed> {
    /// 1: held.
    word: W::U32,
    dice: Box<[Line<Dice<W>>]>,
}

/// Pauses after the first try that failed, at most; each further one doubles that.
const LEAST: u32 = 4;

/// The maximum number of pauses between two tries.
pub const MOST: u32 = 1024;

impl<W: Testbed> Lock<W> for TestAndSet<W> {
    fn new_in(nodes: &[u32]) -> Self {
        let dice = (0..nodes.len()).map(|thread| Line(Dice::new_in(thread))).collect();
        TestAndSet { word: W::U32::new_in(0), dice }
    }

    fn hold(&self, thread: usize, turn: impl FnOnce()) {
        let mut most = LEAST;
        loop {
            // Relaxed: the swap looks again.
            self.word.wait_until(Ordering::Relaxed, |word| word == 0);
            // Acquire: pairs with the Release below, of the holder before.
            if self.word.swap(1, Ordering::Acquire) == 0 {
                break;
            }
            (0..=self.dice[thread].draw() % most).for_each(|_| W::relax());
            most = (2 * most).min(MOST);
        }
        turn();
        // Release: pairs with the Acquire of the next holder.
        self.word.store(0, Ordering::Release);
    }
}

/// Numbers that look random, one after the other, from a word that one thread has (G. Marsaglia,
/// "Xorshift RNGs", 2003).
pub(super) struct Dice<W: Testbed>(W::U32);

impl<W: Testbed> Dice<W> {
    pub(super) fn new_in(thread: usize) -> Self {
        Dice(W::U32::new_in((thread as u32 + 1).wrapping_mul(0x9e37_79b9)))
    }

    pub(super) fn draw(&self) -> u32 {
        // Relaxed: one thread's own.
        let mut word = self.0.load(Ordering::Relaxed);
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        // Relaxed: one thread's own.
        self.0.store(word, Ordering::Relaxed);
        word
    }
}
