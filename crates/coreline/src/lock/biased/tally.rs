//! The word `tally` of a lock: which thread used the lock last, and how many reads slots would have
//! made cheaper.
//!
//! A read *counts* if another thread used the lock last, or if the word has another read already.
//! In the first case, the line of the lock most likely came from another CPU, and this is what
//! slots save. A lock that one thread uses never counts a read of this kind, wherever the thread
//! runs.
//!
//! | bits | name | meaning | written by |
//! |---|---|---|---|
//! | 0 to 23 | `THREAD` | the last thread's number, modulo 2^24; 0: none | readers; writers |
//! | 24 to 31 | `COUNT` | the reads that counted since the last write | readers; writers: 0 |
//!
//! A reader checks this word directly after the addition to `state` that counts it. Its core then
//! has the line of both words, so the look costs no transfer, and neither does the store. A writer
//! stores while it has the lock. Counts may be lost, which makes the lock biased later than `PAYS`
//! says, but not for good: an interrupt takes back fewer counts than `PAYS`.
//!
//! ```text
//! Reader 1: counts to 10, and is interrupted before it stores
//! Others:   count to 200
//! Reader 1: stores 10
//! ```
//!
//! A count is never from before a write: a reader that stores has the lock.
//!
//! | constant | why this value | test |
//! |---|---|---|
//! | `PAYS` | as many reads save about what the slots cost | `a_lock_is_biased_after_..` |

use coreline_world::{Ordering, Word, World};

/// After this many reads that counted, without a write in between, the lock is biased.
pub(super) const PAYS: u32 = 256;

/// The bits of the last thread.
const THREAD: u32 = ONE - 1;
/// One read that counted.
const ONE: u32 = 1 << 24;

const _: () = assert!(ONE.checked_mul(PAYS).is_none(), "a sum of `PAYS` carries out of the word");

fn own<W: World>() -> u32 {
    W::thread_id().get() & THREAD
}

/// Whether the calling thread used the lock last.
#[inline(always)]
pub(super) fn is_own<W: World>(word: &W::U32) -> bool {
    // First, so that the call that gives a thread its number has nothing to save.
    let own = W::thread_id().get();
    // Relaxed: a count of what pays.
    (own ^ word.load(Ordering::Relaxed)) & THREAD == 0
}

/// Counts a read of the calling thread, which has the lock, unless no thread used the lock before.
/// Returns whether slots pay. The count then begins again.
pub(super) fn count<W: World>(word: &W::U32) -> bool {
    // Relaxed: a count of what pays. Of two threads that count at once, one may be lost.
    let tally = word.load(Ordering::Relaxed);
    let counts = if tally & THREAD == 0 { 0 } else { ONE };
    let (count, pays) = (tally & !THREAD).overflowing_add(counts);
    // Relaxed: likewise.
    word.store(count | own::<W>(), Ordering::Relaxed);
    pays
}

/// Begins the count again. The calling thread has the lock to write.
#[inline(always)]
pub(super) fn reset<W: World>(word: &W::U32) {
    // Relaxed: a count of what pays.
    word.store(own::<W>(), Ordering::Relaxed);
}
