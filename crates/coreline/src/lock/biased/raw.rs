//! [`RawBiasedRwLock`]: the lock without data, and the operations that need only one look at it.
//!
//! | constant | why this value | test |
//! |---|---|---|
//! | `MOST_READERS` | no memory has so many guards | `more_readers_than_guards_can_be_..` |

use coreline_world::restartable::definition::Add;
use coreline_world::restartable::{At, Gate};
use coreline_world::{ConstWorld, Integer, Lacking, Native, Ordering, Time, Word, World};

use super::super::RawMutex;
use super::super::count::{Event, count, slept};
use super::super::osq::Near;
use super::tally;

/// A writer has the lock.
pub(super) const HELD: u32 = 1;
/// The first writer waits for readers, and those that come wait a while.
pub(super) const CLOSED: u32 = 1 << 1;
/// A late reader comes next.
pub(super) const WANTS: u32 = 1 << 2;
/// Readers count themselves in slots.
pub(super) const BIASED: u32 = 1 << 3;
/// Readers sleep on the word, or are about to.
pub(super) const SLEEPS: u32 = 1 << 4;
/// The first writer sleeps on the word, or is about to.
pub(super) const DRAINS: u32 = 1 << 5;
/// One reader.
pub(super) const READER: u32 = 1 << 8;
/// The limit of readers in the word: more than there can be threads, and far from overflow. The
/// word is negative only while it is `BIASED`.
pub(super) const MOST_READERS: i32 = 1 << 22;

/// The readers that sleep on the word.
pub(super) const READERS: u32 = 1;
/// The first writer, if it sleeps on the word.
const WRITER: u32 = 2;

/// The error for a read beyond the 2^22 that the word of a [`RawBiasedRwLock`] can count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lock has 2^22 readers, its limit; end some reads, and look for guards that were forgotten"
)]
pub struct TooManyReads;

/// A readers-writer lock of 48 bytes, without data: see [`BiasedRwLock`](super::BiasedRwLock).
///
/// All bytes of a new lock are zero. Use it in a data structure whose protected data cannot live
/// inside a `BiasedRwLock<T>`, or where one call frees the lock of readers and writers alike.
///
/// The last holder may drop the lock, or free its memory, as soon as it has taken it: see
/// [`unlock`](RawBiasedRwLock::unlock).
// The combinations of bits in `state` that occur. `SLEEPS` may stand with each of them: it only
// says that readers may sleep. `n` is the number in the bits of `READER`.
//
// | state | what it says | left by |
// |---|---|---|
// | 0 | free | a writer: `HELD`; a reader: n |
// | n > 0 | n reads | readers; a reader that finds that it pays: `BIASED` |
// | `BIASED`, any n | n reads and those of the slots | the first writer: n' >= 0 |
// | `CLOSED`, n >= 0 | the first writer waits | it: `HELD`, or without `CLOSED` |
// | `CLOSED` `BIASED` | both came at once | the first writer: without one of them |
// | `HELD`, n >= 0 | a writer has the lock; n come in vain | the writer: without |
// | `HELD` `CLOSED` | the same, and the first writer waits | the writer or that one: without its |
// | `WANTS` with `HELD` | a late reader waits for the writer | the writer: without `HELD` |
// | `WANTS`, n >= 0, with `CLOSED` or not | it comes next | a late reader: without `WANTS` |
//
// `DRAINS` stands only with `CLOSED`. The first writer sets and clears it.
//
// Never: `HELD` with `BIASED` (a writer takes a lock only without it, and a lock is biased only by
// a reader that is there); `WANTS` with `BIASED` (a late reader asks only where it finds `HELD`,
// and no reader makes a lock biased that has `WANTS`).
#[repr(C)]
pub struct RawBiasedRwLock<W: World = Native> {
    pub(super) state: W::U32,
    pub(super) tally: W::U32,
    pub(super) writers: RawMutex<Near, W>,
    pub(super) close_at: W::U64,
    pub(super) gate: Gate<W>,
    pub(super) slots: W::Usize,
}

/// A `pthread_rwlock_t` has 56 bytes, and needs eight of them for other data.
const _: () = {
    assert!(size_of::<RawBiasedRwLock<Native>>() == 48);
    assert!(align_of::<RawBiasedRwLock<Native>>() == 8);
};

/// How many reads the word has.
pub(super) fn readers(state: u32) -> i32 {
    // An arithmetic shift: the number may be negative.
    state.cast_signed() >> READER.trailing_zeros()
}

impl<W: World> RawBiasedRwLock<W> {
    /// Creates a free lock in a const context, in any [`ConstWorld`].
    pub const fn const_new() -> Self
    where
        W: ConstWorld,
    {
        RawBiasedRwLock {
            state: W::U32_ZERO,
            tally: W::U32_ZERO,
            writers: RawMutex::const_new(),
            close_at: W::U64_ZERO,
            gate: Gate::const_new(),
            slots: W::USIZE_ZERO,
        }
    }

    /// Creates a free lock, in world `W`.
    pub fn new_in() -> Self {
        RawBiasedRwLock {
            state: W::U32::new_in(0),
            tally: W::U32::new_in(0),
            writers: RawMutex::new_in(),
            close_at: W::U64::new_in(0),
            gate: Gate::new_in(),
            slots: W::Usize::new_in(0),
        }
    }

    /// Takes the lock to read. Waits for a writer that has the lock, and at most 1 ms for waiting
    /// writers.
    ///
    /// # Panics
    ///
    /// Panics with more than 2^22 reads at one time. Only forgotten reads can reach this number.
    #[inline]
    pub fn read(&self) {
        if !self.read_at_once() {
            self.read_or_panic(None);
        }
    }

    /// Takes the lock to read, or gives up when `deadline` passes. Returns whether it took the
    /// lock. It gives up only if a writer then has the lock.
    ///
    /// # Panics
    ///
    /// Panics like [`read`](RawBiasedRwLock::read).
    #[inline]
    pub fn read_by(&self, deadline: Time) -> bool {
        self.read_at_once() || self.read_or_panic(Some(deadline))
    }

    /// Takes the lock to read, as [`read`](RawBiasedRwLock::read) does, or with a deadline as
    /// [`read_by`](RawBiasedRwLock::read_by) does. Returns whether it took the lock. Without a
    /// deadline, this is always true.
    ///
    /// # Errors
    ///
    /// [`TooManyReads`] instead of a panic. The lock is then not taken.
    ///
    /// ```
    /// use coreline::lock::RawBiasedRwLock;
    ///
    /// let lock = RawBiasedRwLock::new();
    /// assert_eq!(lock.read_checked(None), Ok(true));
    /// // SAFETY: taken just now.
    /// unsafe { lock.unlock_read() };
    /// ```
    #[inline]
    pub fn read_checked(&self, deadline: Option<Time>) -> Result<bool, TooManyReads> {
        if self.read_at_once() { Ok(true) } else { self.read_slowly(deadline) }
    }

    /// Takes the lock to read if no writer has it, even if one waits, and if there are fewer than
    /// 2^22 readers. Returns whether it took the lock.
    ///
    /// The call never makes the lock biased, so it allocates nothing.
    #[inline]
    pub fn try_read(&self) -> bool {
        self.try_read_checked() == Ok(true)
    }

    /// Tries to take the lock to read, as [`try_read`](RawBiasedRwLock::try_read) does. Returns
    /// whether it took the lock.
    ///
    /// # Errors
    ///
    /// [`TooManyReads`] if 2^22 readers have the lock, and no writer.
    #[inline]
    pub fn try_read_checked(&self) -> Result<bool, TooManyReads> {
        self.enter(HELD, 0)
    }

    #[inline]
    fn read_at_once(&self) -> bool {
        // Relaxed: a hint where to count.
        let state = self.state.load(Ordering::Relaxed);
        // One look at all bits, for a lock that has none of them.
        if state & (BIASED | HELD | CLOSED) != 0 {
            if state & BIASED != 0 && self.count_in_slot(1) {
                return true;
            }
            if state & (HELD | CLOSED) != 0 {
                return false;
            }
        }
        self.count()
    }

    /// Adds to the count of the thread's slot, if the gate is open and the slot is there.
    ///
    /// The addition is a restartable section that looks at the gate itself. So a new reader sees
    /// what the reader that opened the gate saw: all that earlier writers wrote.
    #[inline(always)]
    pub(super) fn count_in_slot(&self, delta: u64) -> bool {
        // SAFETY: the gate opens to the slots of this lock, of which each is one word, which live
        // until the lock drops. Only sections and additions to the shared slot write to them.
        let at: At<'_, W::U64, W> = unsafe { At::behind(&self.gate, 0) };
        W::run(at, Add(delta)).is_ok()
    }

    /// Counts a reader in the word, and takes it back if the lock is not open to readers.
    #[inline(always)]
    fn count(&self) -> bool {
        // Acquire: pairs with the Release in `unlock_write`. Without it, the section could begin
        // before the last writer's writes are seen.
        let state = self.state.fetch_add(READER, Ordering::Acquire);
        state == 0 && tally::is_own::<W>(&self.tally) || self.meet(state)
    }

    /// The slow path of a reader that did not find the lock free when it counted itself, or that
    /// comes after another thread.
    #[inline(never)]
    fn meet(&self, state: u32) -> bool {
        if state & (HELD | CLOSED) != 0 || readers(state) >= MOST_READERS {
            // SAFETY: counted just now.
            unsafe { Self::uncount(&raw const *self) };
            return false;
        }
        if state & BIASED != 0 {
            self.find_slot();
        } else if (readers(state) > 0 || !tally::is_own::<W>(&self.tally))
            && tally::count::<W>(&self.tally)
        {
            self.bias(readers(state) > 0);
        }
        true
    }

    /// Frees the lock, whether the caller holds it as a reader or as its writer.
    ///
    /// Once the caller no longer holds the lock, the call does not access its memory. So another
    /// thread that takes the lock to write may then free it, and drop the lock, even if this call
    /// has not returned.
    ///
    /// # Safety
    ///
    /// The caller holds the lock.
    #[inline]
    pub unsafe fn unlock(&self) {
        // Relaxed: a writer sees the bit that it has set. A reader sees no bit of an earlier
        // writer: it has read the word since, or its section has acquired the gate from a reader
        // that has. There is no bit of a later writer.
        let state = self.state.load(Ordering::Relaxed);
        // One look at both bits, for a reader of a lock that is not biased.
        if state & (HELD | BIASED) != 0 {
            if state & HELD != 0 {
                // SAFETY: the caller holds the lock, and it has a writer.
                unsafe { self.unlock_write() };
                return;
            }
            if self.count_in_slot(u64::MAX) {
                return;
            }
        }
        // SAFETY: the caller holds the lock, and it has no writer.
        unsafe { Self::uncount(&raw const *self) };
    }

    /// Frees the lock for a caller that holds it as a reader, like
    /// [`unlock`](RawBiasedRwLock::unlock).
    ///
    /// # Safety
    ///
    /// The caller holds the lock as a reader.
    #[inline]
    pub unsafe fn unlock_read(&self) {
        // Relaxed: a hint where to go. Either count will do.
        let state = self.state.load(Ordering::Relaxed);
        if state & BIASED == 0 || !self.count_in_slot(u64::MAX) {
            // SAFETY: the caller's promise.
            unsafe { Self::uncount(&raw const *self) };
        }
    }

    /// Takes a reader out of the word.
    ///
    /// It takes a pointer because the lock may be gone before this returns:
    ///
    /// ```text
    /// This reader: counts itself out, finds that the first writer sleeps
    /// That writer: wakes up because its time is over, takes the lock, frees it, drops it
    /// This reader: wakes the threads that sleep on the address
    /// ```
    ///
    /// # Safety
    ///
    /// `this` points to a lock that counts the caller in its word, or that sums it there.
    #[inline(always)]
    unsafe fn uncount(this: *const Self) {
        // SAFETY: the lock is there until the reader has gone.
        let state = unsafe { &raw const (*this).state };
        // Release: pairs with the Acquire of a writer in `write_at_once` and `take`. Without it,
        // reads inside this section could see what that writer writes.
        // SAFETY: the reader has not gone before this access.
        let found = unsafe { &*state }.fetch_sub(READER, Ordering::Release);
        if found & DRAINS != 0 {
            Self::wake_first_writer(state, found);
        }
    }

    /// Wakes the first writer, which sleeps, if this was the last reader that it waits for. Uses
    /// only the address.
    #[cold]
    #[inline(never)]
    fn wake_first_writer(state: *const W::U32, found: u32) {
        // If a writer holds the lock, the first writer waits for that one.
        if found & HELD == 0 && readers(found) == 1 {
            Self::wake_writer(state);
        }
    }

    /// Wakes the first writer. Uses only the address.
    #[cold]
    #[inline(never)]
    pub(super) fn wake_writer(state: *const W::U32) {
        count::<W>(Event::Wake);
        W::wake_groups(state, 1, WRITER);
    }

    /// Wakes all readers that sleep. Uses only the address.
    #[cold]
    #[inline(never)]
    pub(super) fn wake_readers(state: *const W::U32) {
        count::<W>(Event::Wake);
        W::wake_groups(state, u32::MAX, READERS);
    }

    /// Sleeps as the first writer while the state is `asked`, at most until `until`.
    pub(super) fn sleep_as_writer(&self, asked: u32, until: Option<Time>) {
        slept::<W>(W::park_as(&self.state, asked, until, WRITER));
    }

    /// Takes the lock to write. Waits for readers and writers.
    ///
    /// # Errors
    ///
    /// Natively, [`Lacking`] if the lock is biased and the kernel refuses `membarrier` after it
    /// once allowed it. The lock is then not taken.
    #[inline]
    pub fn write(&self) -> Result<(), Lacking> {
        if self.write_at_once() {
            return Ok(());
        }
        self.write_slowly(None).map(drop)
    }

    /// Takes the lock to write, or gives up when `deadline` passes. Returns whether it took the
    /// lock.
    ///
    /// # Errors
    ///
    /// The same errors as for [`write`](RawBiasedRwLock::write).
    #[inline]
    pub fn write_by(&self, deadline: Time) -> Result<bool, Lacking> {
        if self.write_at_once() {
            return Ok(true);
        }
        self.write_slowly(Some(deadline))
    }

    /// Takes the lock to write if no thread has it. Returns whether it took the lock.
    ///
    /// The call may also fail if another thread waits or tries to write, if a reader comes at the
    /// same time, or if a reader has waited for more than 1 ms. If the lock is biased and no thread
    /// reads, the call takes the bias back. If the kernel refuses the fence for this, the call
    /// fails.
    #[inline]
    pub fn try_write(&self) -> bool {
        self.write_at_once() || self.try_write_slowly()
    }

    #[inline(always)]
    pub(super) fn write_at_once(&self) -> bool {
        // Acquire: pairs with the Release in `unlock_write`, `uncount` and `unbias`.
        let taken = self.state.compare_exchange(0, HELD, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            tally::reset::<W>(&self.tally);
        }
        taken.is_ok()
    }

    /// Frees the lock for a caller that holds it as its writer, like
    /// [`unlock`](RawBiasedRwLock::unlock).
    ///
    /// # Safety
    ///
    /// The caller holds the lock as a writer.
    #[inline]
    pub unsafe fn unlock_write(&self) {
        // Release: pairs with the Acquire in `count`, `enter`, `write_at_once` and `take`. Relaxed
        // on failure: nothing was freed.
        let (freed, failed) = (Ordering::Release, Ordering::Relaxed);
        if self.state.compare_exchange(HELD, 0, freed, failed).is_err() {
            // SAFETY: the caller is the writer.
            unsafe { Self::hand_over(&raw const self.state, 0) };
        }
    }

    /// Turns the writer into a reader. No other writer has the lock in between.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as a writer.
    pub unsafe fn downgrade(&self) {
        // SAFETY: the caller is the writer.
        unsafe { Self::hand_over(&raw const self.state, READER) };
    }

    /// Frees the lock of its writer, which then counts as this many reads, and wakes the threads
    /// that may take it. The exchange that frees the lock also clears `SLEEPS` if readers must be
    /// woken, because the lock may be gone after it.
    ///
    /// # Safety
    ///
    /// `word` is the state of a lock that the caller holds as a writer.
    #[cold]
    #[inline(never)]
    unsafe fn hand_over(word: *const W::U32, reads: u32) {
        // SAFETY: the lock is there until the writer has freed it.
        let state = unsafe { &*word };
        // Relaxed: the exchange looks again.
        let mut found = state.load(Ordering::Relaxed);
        loop {
            // Readers that sleep for a writer that waits go on sleeping, until they are late.
            let wakes = found & SLEEPS != 0 && (found & CLOSED == 0 || found & WANTS != 0);
            let left = (found & !(HELD | if wakes { SLEEPS } else { 0 })).wrapping_add(reads);
            // Release: pairs with the Acquire in `count`, `enter`, `write_at_once` and `take`.
            // Relaxed on failure: it is tried again.
            let (freed, failed) = (Ordering::Release, Ordering::Relaxed);
            match state.compare_exchange_weak(found, left, freed, failed) {
                Ok(_) if wakes => {
                    Self::wake_readers(word);
                    break;
                }
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
        if found & DRAINS != 0 {
            Self::wake_writer(word);
        }
    }

    /// Returns whether the lock is biased: its readers count themselves on each CPU. The result is
    /// a hint, and may be out of date when the call returns.
    pub fn is_biased(&self) -> bool {
        // Relaxed: nothing follows from the answer.
        self.state.load(Ordering::Relaxed) & BIASED != 0
    }

    /// Returns whether a writer has the lock. The result is a hint, and may be out of date when the
    /// call returns.
    pub fn is_written(&self) -> bool {
        // Relaxed: nothing follows from the answer.
        self.state.load(Ordering::Relaxed) & HELD != 0
    }

    /// Returns whether any thread has the lock. The result is a hint, and may be out of date when
    /// the call returns. For a biased lock, the call adds up the slots.
    pub fn is_locked(&self) -> bool {
        // Relaxed: nothing follows from the answer.
        let state = self.state.load(Ordering::Relaxed);
        state & HELD != 0 || self.has_readers(state)
    }
}

impl_default!(
    [W: ConstWorld] RawBiasedRwLock<W>, const_new,
    "Creates a free lock, also in a `static`."
);

impl_debug!([W: World] RawBiasedRwLock<W> as it {
    written: it.is_written(),
    biased: it.is_biased()
});
