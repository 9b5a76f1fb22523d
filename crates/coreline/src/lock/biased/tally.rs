//! The word `tally` of a lock: which thread read last, and how many reads have shown that slots
//! would pay.
//!
//! A read *counts* if another thread than the last reader has read, or if the word has another
//! reader. Before most reads of the first kind, the line of the lock comes from another CPU, and
//! this is what slots save. Of a lock that one thread uses, the first read alone can count so,
//! wherever the thread runs.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 to 13 | `THREAD` | the number of the last reader, modulo 2^14; 0 at first |
//! | 14 to 21 | `COUNT` | how many reads counted since the last write |
//! | 22 to 30 | `SINCE` | the time when `COUNT` last became 128, in units of 2^23 ns, modulo 2^9 |
//! | 31 | `RIPE` | slots pay: a reader that comes makes the lock biased |
//!
//! A reader counts when it goes, before it frees the lock: it then needs the line anyhow, to write
//! to it. Readers that count at once may write an older count, so with many of them the lock is
//! biased later. If two threads have the same number modulo 2^14, they count as one thread. A
//! writer begins the count again while it has the lock. Times wrap around after 4.3 s, so for a
//! lock that is read seldom, one in 256 trials passes by chance.
//!
//! | constant | why this value | test |
//! |---|---|---|
//! | `PAYS` | as many reads save about what the slots cost | `a_lock_is_biased_after_..` |
//! | `SPAN` | a line that moves less often costs under 0.2 % of a CPU | `reads_that_seldom_..` |

use core::mem;

use coreline_world::{Ordering, Word, World};

/// After so many reads that counted, without a write in between, slots pay.
pub(super) const PAYS: u32 = 256;

/// From here on, the time matters: the last half of the reads must count within `SPAN`.
const HALF: u32 = PAYS / 2;

/// The unit of time: 2^23 ns, 8.4 ms.
pub(super) const SPAN: u32 = 23;

/// The bits of the last reader.
const THREAD: u32 = (1 << 14) - 1;
/// One read that counted.
const ONE: u32 = THREAD + 1;
/// The bits of `COUNT`, moved to the right.
const MOST: u32 = PAYS - 1;
/// The first bit of `SINCE`.
const SINCE: u32 = 22;
/// The bits of `SINCE`, moved to the right.
const TIME: u32 = (RIPE - 1) >> SINCE;
/// Slots pay.
const RIPE: u32 = 1 << 31;

const _: () = assert!(ONE * PAYS == 1 << SINCE, "`COUNT` ends where `SINCE` begins");

/// Whether slots pay.
#[inline(always)]
pub(super) fn is_ripe(tally: u32) -> bool {
    tally & RIPE != 0
}

/// Whether the calling thread read last.
#[inline(always)]
pub(super) fn is_own<W: World>(tally: u32) -> bool {
    (tally ^ W::thread_id().get()) & THREAD == 0
}

/// Counts a read of the calling thread, which still has the lock.
pub(super) fn count<W: World>(word: &W::U32, tally: u32) {
    if is_ripe(tally) {
        return;
    }
    let now = || ((W::now().as_nanos() >> SPAN) as u32) & TIME;
    let (mut count, mut since, mut ripe) = (((tally / ONE) & MOST) + 1, tally >> SINCE, 0);
    if count == HALF {
        since = now();
    } else if count == PAYS {
        let before = mem::replace(&mut since, now());
        // At most one unit later: within 8.4 to 16.8 ms.
        let is_soon = since.wrapping_sub(before) & TIME <= 1;
        (count, ripe) = if is_soon { (0, RIPE) } else { (HALF, 0) };
    }
    let time = since << SINCE;
    let tally = (W::thread_id().get() & THREAD) | (count * ONE) | time | ripe;
    // Relaxed: a count of what pays.
    word.store(tally, Ordering::Relaxed);
}

/// Begins to count again. The caller has the lock.
#[inline(always)]
pub(super) fn reset<W: World>(word: &W::U32) {
    // Relaxed: a count of what pays.
    let tally = word.load(Ordering::Relaxed);
    // Relaxed: likewise.
    word.store(tally & THREAD, Ordering::Relaxed);
}
