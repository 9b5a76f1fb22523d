//! [`RawRwLock`]: the lock without data.
//!
//! | constant | why this value | test |
//! |---|---|---|
//! | `PATIENCE` | longer than a short section | `a_first_waiter_asks_..` |
//! | `PATIENCE_ASLEEP` | longer than a wake-up | `a_first_waiter_that_sleeps_asks_..` |
//! | `NAPS` | readers that wake together seldom sleep as often | none: only speed |
//! | `MOST_READERS` | no memory has so many guards | `more_readers_than_guards_can_be_..` |

use core::marker::PhantomData;
use core::time::Duration;

use coreline_world::{ConstWorld, Integer, Native, Ordering, Parked, Time, Word, World};

use super::super::count::{Event, count, ended, park};
use super::super::osq::{Manner, Near, Order, Osq, Waited};
use super::super::spin::{MOST, Spun, barge, doze, is_over, spin};
use super::{Readers, SpinningReaders};
use crate::node_pool::NONE;

/// A writer has closed the lock to readers: it holds it, or waits for those that are there.
pub(super) const WRITER: u32 = 1;
/// Threads sleep on the word, or are about to.
const SLEEPS: u32 = 1 << 1;
/// The first waiter comes next.
const WANTS: u32 = 1 << 2;
/// The writer that closed the lock sleeps until readers are gone, or is about to.
const DRAINS: u32 = 1 << 3;
/// The writer holds the lock: no reader has it, and none comes in.
pub(super) const HELD: u32 = 1 << 4;
/// One of the readers is upgradable.
pub(super) const UPGRADABLE: u32 = 1 << 5;
/// The first waiter is the next upgradable reader. Plain readers may still come.
const CLAIMS: u32 = 1 << 6;
/// One reader.
pub(super) const READER: u32 = 1 << 7;
/// The limit of readers: more than there can be threads, and far from overflow.
const MOST_READERS: u32 = READER << 24;

/// The time after which a first waiter that spins asks to come next.
const PATIENCE: Duration = Duration::from_micros(20);

/// The same for a first waiter that sleeps. It may get a CPU late, and while it is next, no other
/// thread takes a free lock. So running threads go first for longer. With a deadline, it asks after
/// half of the time at the latest. Otherwise a shorter time would end before it asks. A time below
/// 0.1 ms may still do so, because kernels wake threads late.
const PATIENCE_ASLEEP: Duration = Duration::from_millis(1);

/// How often a reader sleeps without a place in the queue, before it sleeps in its place.
const NAPS: u32 = 8;

/// A readers-writer lock of 8 bytes, without data: see [`RwLock`](super::RwLock).
///
/// Use it in a data structure whose protected data cannot live inside an `RwLock<T>`.
#[repr(C)]
pub struct RawRwLock<O: Order = Near, R: Readers = SpinningReaders, W: World = Native> {
    pub(super) state: W::U32,
    queue: Osq<O, W>,
    readers: PhantomData<fn() -> R>,
}

const _: () = {
    assert!(size_of::<RawRwLock<Near, SpinningReaders, Native>>() == 8);
    assert!(align_of::<RawRwLock<Near, SpinningReaders, Native>>() == 4);
};

/// The kind of access that a thread wants from the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Read,
    /// To read, and perhaps to write later. One thread at a time, beside plain readers.
    Upgradable,
    Write,
}

impl Want {
    /// The bits that keep even the first waiter out.
    ///
    /// Writers wait for the upgradable reader outside, and do not close the lock as they do before
    /// plain readers:
    ///
    /// ```text
    /// Thread 1: is the upgradable reader
    /// Thread 2: closes the lock to write, waits until thread 1 has read
    /// Thread 1: upgrades, waits until thread 2 has written     <- both wait for ever
    /// ```
    fn barred(self) -> u32 {
        match self {
            Want::Read => WRITER,
            Want::Upgradable | Want::Write => WRITER | UPGRADABLE,
        }
    }

    /// The word's value after a thread has taken a lock that had none of the bits in
    /// [`barred`](Want::barred).
    fn taken(self, state: u32) -> u32 {
        match self {
            Want::Read => state + READER,
            Want::Upgradable => state + READER + UPGRADABLE,
            Want::Write if state < READER => state | WRITER | HELD,
            Want::Write => state | WRITER,
        }
    }

    /// The bit by which the first waiter asks to come next.
    fn request(self) -> u32 {
        match self {
            Want::Read | Want::Write => WANTS,
            Want::Upgradable => CLAIMS,
        }
    }
}

impl<O: Order, R: Readers, W: World> RawRwLock<O, R, W> {
    /// Creates a free lock in a const context, in any [`ConstWorld`].
    pub const fn const_new() -> Self
    where
        W: ConstWorld,
    {
        RawRwLock { state: W::U32_ZERO, queue: Osq::const_new(), readers: PhantomData }
    }

    /// Creates a free lock, in world `W`.
    pub fn new_in() -> Self {
        RawRwLock { state: W::U32::new_in(0), queue: Osq::new_in(), readers: PhantomData }
    }

    /// Takes the lock to read. Waits for writers, including writers that already wait.
    #[inline]
    pub fn read(&self) {
        if !self.read_at_once() {
            self.wait(Want::Read, None);
        }
    }

    /// Takes the lock to read, or gives up when `deadline` passes. Returns whether it took the
    /// lock.
    #[inline]
    pub fn read_by(&self, deadline: Time) -> bool {
        self.read_at_once() || self.wait(Want::Read, Some(deadline))
    }

    /// Takes the lock to read if no writer holds it, the first waiter has not requested it, and
    /// there are fewer than 2^24 readers. Returns whether it took the lock.
    #[inline]
    pub fn try_read(&self) -> bool {
        // Relaxed: looks only. An addition to a lock that a writer has would hold up that writer's
        // readers for nothing.
        self.state.load(Ordering::Relaxed) & (WRITER | WANTS) == 0 && self.read_at_once()
    }

    #[inline]
    fn read_at_once(&self) -> bool {
        self.count(WRITER | WANTS)
    }

    /// Counts a reader, and takes it back if the lock had one of these bits.
    #[inline]
    fn count(&self, barred: u32) -> bool {
        // Acquire: pairs with the Release in `change`. Without it, the section could begin before
        // the last writer's writes are seen.
        let state = self.state.fetch_add(READER, Ordering::Acquire);
        if state & barred == 0 && state < MOST_READERS {
            return true;
        }
        self.refused()
    }

    #[cold]
    #[inline(never)]
    fn refused(&self) -> bool {
        self.uncount();
        false
    }

    /// Frees the lock for a caller that holds it as a reader.
    ///
    /// The call may write the lock once more after it is free, so the memory must stay until the
    /// call returns.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as a reader.
    #[inline]
    pub unsafe fn unlock_read(&self) {
        self.uncount();
    }

    #[inline]
    fn uncount(&self) {
        // Release: pairs with the Acquire of a writer in `try_write` and `drain`. Without it, reads
        // inside this section could see what that writer writes.
        let state = self.state.fetch_sub(READER, Ordering::Release);
        // Not for each thread that fails while a writer has the lock.
        if state & DRAINS != 0 && state < 2 * READER {
            self.wake();
        }
    }

    /// Takes the lock to write. Waits for readers and writers.
    #[inline]
    pub fn write(&self) {
        if !self.try_write() {
            self.wait(Want::Write, None);
        }
    }

    /// Takes the lock to write, or gives up when `deadline` passes. Returns whether it took the
    /// lock.
    #[inline]
    pub fn write_by(&self, deadline: Time) -> bool {
        self.try_write() || self.wait(Want::Write, Some(deadline))
    }

    /// Takes the lock to write if it is free now and the first waiter has not requested it. Returns
    /// whether it took the lock.
    #[inline]
    pub fn try_write(&self) -> bool {
        let taken = Want::Write.taken(0);
        // Acquire: pairs with the Release in `change` and `uncount`.
        self.state.compare_exchange(0, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Frees the lock for a caller that holds it as a writer.
    ///
    /// The call may write the lock once more after it is free, so the memory must stay until the
    /// call returns.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as a writer.
    #[inline]
    pub unsafe fn unlock_write(&self) {
        self.change(HELD | WRITER, 0);
    }

    /// Converts the caller's write lock into a read lock, with no other writer in between.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as a writer.
    pub unsafe fn downgrade(&self) {
        self.change(HELD | WRITER, READER);
    }

    /// Changes the mode in which the caller holds the lock, so that others may enter, and wakes
    /// them.
    #[inline]
    pub(super) fn change(&self, had: u32, has: u32) {
        // Release: pairs with the Acquire in `count`, `try_write`, `close`, `take` and `drain`.
        // An addition, as other threads write their bits.
        let state = self.state.fetch_add(has.wrapping_sub(had), Ordering::Release);
        if state & SLEEPS != 0 {
            self.wake();
        }
    }

    /// Returns whether a writer holds the lock, or waits for readers. The result is a hint, and may
    /// be out of date when the call returns.
    pub fn is_written(&self) -> bool {
        // Relaxed: nothing follows from the answer.
        self.state.load(Ordering::Relaxed) & WRITER != 0
    }

    /// Returns whether readers hold the lock. The result is a hint, and may be out of date when the
    /// call returns. A thread that tries to read in vain counts as a reader for a moment.
    pub fn is_read(&self) -> bool {
        // Relaxed: nothing follows from the answer. A thread sees its own reads.
        self.state.load(Ordering::Relaxed) >= READER
    }

    /// Returns whether any thread holds the lock. The result is a hint, and may be out of date when
    /// the call returns.
    pub fn is_locked(&self) -> bool {
        // Relaxed: nothing follows from the answer.
        self.state.load(Ordering::Relaxed) & !(SLEEPS | WANTS | CLAIMS | DRAINS) != 0
    }

    /// Takes the lock to read, even if the caller already reads and a writer waits.
    ///
    /// Such reads overtake waiting writers, so a stream of them can starve writers. Use
    /// [`read`](RawRwLock::read) if the caller does not read yet.
    #[inline]
    pub fn read_recursive(&self) {
        if !self.try_read_recursive() {
            self.wait(Want::Read, None);
        }
    }

    /// Takes the lock like [`read_recursive`](RawRwLock::read_recursive), or gives up when
    /// `deadline` passes. Returns whether it took the lock. A caller that already reads never
    /// waits.
    #[inline]
    pub fn read_recursive_by(&self, deadline: Time) -> bool {
        self.try_read_recursive() || self.wait(Want::Read, Some(deadline))
    }

    /// Takes the lock to read if no writer holds it, even if writers wait, and if there are fewer
    /// than 2^24 readers. Returns whether it took the lock.
    #[inline]
    pub fn try_read_recursive(&self) -> bool {
        // Relaxed: looks only, as in `try_read`.
        self.state.load(Ordering::Relaxed) & HELD == 0 && self.count(HELD)
    }

    /// Wakes all threads that sleep on the word.
    #[cold]
    #[inline(never)]
    fn wake(&self) {
        // Relaxed: asked for no more. Until they run, others may take the lock.
        self.state.fetch_and(!(SLEEPS | DRAINS), Ordering::Relaxed);
        count::<W>(Event::Wake);
        W::wake(&raw const self.state, u32::MAX);
    }

    /// Asks, and sleeps until another thread wakes it, or until the lock is not `closed`.
    fn sleep(&self, asks: u32, closed: u32, deadline: Option<Time>) {
        // Relaxed: the exchange looks again.
        let mut state = self.state.load(Ordering::Relaxed);
        while state & closed != 0 {
            let asked = state | asks;
            // Relaxed, twice: asks, and publishes nothing.
            let relaxed = Ordering::Relaxed;
            match self.state.compare_exchange(state, asked, relaxed, relaxed) {
                Ok(_) if park::<W>(&self.state, asked, deadline) != Parked::Changed => return,
                // Relaxed: as before.
                Ok(_) => state = self.state.load(Ordering::Relaxed),
                Err(found) => state = found,
            }
        }
    }

    /// Takes the lock to read, or closes it to write, without a place in the queue.
    fn enter(&self, want: Want) -> bool {
        match want {
            Want::Read => self.try_read(),
            Want::Upgradable | Want::Write => self.close(want),
        }
    }

    /// Closes the lock for a writer, or takes it for an upgradable reader, if no such thread has,
    /// and no first waiter is next. Returns whether it did. A writer has the lock when the readers
    /// are gone: see [`drain`](RawRwLock::drain).
    pub(super) fn close(&self, want: Want) -> bool {
        // Relaxed: the exchange looks again.
        let mut state = self.state.load(Ordering::Relaxed);
        while state & (want.barred() | WANTS | CLAIMS) == 0 && state < MOST_READERS {
            // Acquire: pairs with the Release in `change` and `uncount`.
            let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
            match self.state.compare_exchange(state, want.taken(state), taken, failed) {
                Ok(_) => return true,
                // It comes back to the lock anyway.
                Err(_) if want == Want::Write => return false,
                // A plain reader that comes or goes is no reason to fail.
                Err(found) => state = found,
            }
        }
        false
    }

    /// Waits until all readers that had the lock when the caller closed it have left. If `deadline`
    /// comes first, the caller keeps what it had `before`. Returns whether the lock is the
    /// caller's.
    pub(super) fn drain(&self, before: u32, deadline: Option<Time>) -> bool {
        // Relaxed: this thread alone sets it while the lock is closed by this thread.
        while self.state.load(Ordering::Relaxed) & HELD == 0 {
            let now = W::now();
            let end = deadline.map_or(now + MOST, |deadline| deadline.min(now + MOST));
            let spun = spin::<W, _>(&self.state, now, end, |state| state < READER);
            if let Spun::Ready(state) = spun {
                // An exchange: a thread that reads again may come before it.
                let held = state & !DRAINS | HELD;
                // Acquire: pairs with the Release in `uncount`. Relaxed: it looks again.
                let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
                let _ = self.state.compare_exchange(state, held, taken, failed);
            } else if is_over::<W>(deadline) {
                // Relaxed: this writer alone asks for it.
                if self.state.load(Ordering::Relaxed) & DRAINS != 0 {
                    // Relaxed: publishes nothing.
                    self.state.fetch_and(!DRAINS, Ordering::Relaxed);
                }
                self.change(WRITER, before);
                return false;
            } else {
                self.sleep(DRAINS, !(READER - 1), deadline);
            }
        }
        true
    }

    #[cold]
    #[inline(never)]
    pub(super) fn wait(&self, want: Want, deadline: Option<Time>) -> bool {
        // Readers that are as many have forgotten their guards, and no wait would end.
        // Relaxed: looks only.
        let readers = self.state.load(Ordering::Relaxed);
        assert!(
            want == Want::Write || readers < MOST_READERS,
            "more than 2^24 readers: guards were forgotten"
        );
        count::<W>(Event::Wait);
        let entered = self.wait_to_enter(want, deadline);
        ended::<W>(entered && (want != Want::Write || self.drain(0, deadline)))
    }

    fn wait_to_enter(&self, want: Want, deadline: Option<Time>) -> bool {
        let spins = want == Want::Write || R::SPIN;
        if spins && barge::<W>(|| self.enter(want)) {
            return true;
        }
        // A node in the queue would outlast the wait. Not in the model, where no time passes.
        if W::RUNS && is_over::<W>(deadline) {
            return false;
        }
        // Comes to the queue again and again where there is no node.
        let wait = |manner| {
            doze::<W, _>(deadline, || {
                match self.queue.wait(deadline, manner, None::<fn() -> Option<()>>) {
                    Waited::NoNode => self.enter(want).then_some(Waited::Entered((), NONE)),
                    waited => Some(waited),
                }
            })
        };
        let mut naps = match want {
            Want::Read if W::RUNS => NAPS,
            Want::Read => 1,
            Want::Upgradable | Want::Write => 0,
        };
        loop {
            let manner = match (spins, naps > 0) {
                (true, true) => Some(Manner::Spins),
                (true, false) => Some(Manner::SpinsAndSleeps),
                (false, true) => None,
                (false, false) => Some(Manner::Sleeps),
            };
            match manner.and_then(wait) {
                Some(Waited::Turn(first)) => {
                    let taken = self.wait_first(want, deadline, spins);
                    Osq::<O, W>::wake(self.queue.pass(first));
                    return taken;
                }
                Some(Waited::Entered((), _)) => return true,
                _ if naps > 0 => naps -= 1,
                _ => return self.enter(want),
            }
            self.sleep(SLEEPS, WRITER | WANTS, deadline);
            if self.enter(want) || spins && barge::<W>(|| self.enter(want)) {
                return true;
            }
            if W::RUNS && is_over::<W>(deadline) {
                return false;
            }
        }
    }

    /// Waits as the first waiter.
    fn wait_first(&self, want: Want, deadline: Option<Time>, spins: bool) -> bool {
        let until = |end| deadline.map_or(end, |deadline| deadline.min(end));
        let came = W::now();
        let asleep = deadline.map_or(PATIENCE_ASLEEP, |by| PATIENCE_ASLEEP.min((by - came) / 2));
        let mut has_slept = false;
        loop {
            if self.take(want) {
                return true;
            }
            let now = W::now();
            let patience = if has_slept { asleep } else { PATIENCE };
            // The model, where no time passes, is impatient after a first sleep.
            let is_patient = now - came < patience && (W::RUNS || !has_slept);
            if !is_patient {
                // Relaxed: asks, and publishes nothing.
                self.state.fetch_or(want.request(), Ordering::Relaxed);
            }
            if spins {
                let asks_soon = is_patient && !has_slept;
                let end = if asks_soon { came + PATIENCE } else { now + MOST };
                let is_open = |state| state & want.barred() == 0;
                match spin::<W, _>(&self.state, now, until(end), is_open) {
                    Spun::Ready(_) => continue,
                    Spun::Late if asks_soon && !is_over::<W>(deadline) => continue,
                    Spun::Late | Spun::Wanted => {}
                }
            }
            if is_over::<W>(deadline) {
                return self.take_or_leave(want);
            }
            // Then it asks.
            let by = (is_patient && W::RUNS).then(|| until(came + asleep)).or(deadline);
            self.sleep(SLEEPS, want.barred(), by);
            has_slept = true;
        }
    }

    /// Takes the lock for the first waiter, or closes it, if nothing bars it.
    fn take(&self, want: Want) -> bool {
        // If the lock stays open to readers, all that sleep are woken.
        let leaves = want.request() | if want == Want::Write { 0 } else { SLEEPS };
        // Relaxed: the exchange looks again.
        let mut state = self.state.load(Ordering::Relaxed);
        while state & want.barred() == 0 {
            let new = want.taken(state & !leaves);
            // Acquire: pairs with the Release in `change` and `uncount`.
            let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
            match self.state.compare_exchange_weak(state, new, taken, failed) {
                Ok(_) => {
                    if state & !new & SLEEPS != 0 {
                        count::<W>(Event::Wake);
                        W::wake(&raw const self.state, u32::MAX);
                    }
                    return true;
                }
                Err(found) => state = found,
            }
        }
        false
    }

    /// Takes the lock if that is possible now. Otherwise withdraws the request, and wakes the
    /// threads that sleep.
    fn take_or_leave(&self, want: Want) -> bool {
        if self.take(want) {
            return true;
        }
        // Relaxed: publishes nothing.
        if self.state.fetch_and(!want.request(), Ordering::Relaxed) & SLEEPS != 0 {
            // They may sleep because this thread was next.
            self.wake();
        }
        false
    }
}

impl_default!(
    [O: Order, R: Readers, W: ConstWorld] RawRwLock<O, R, W>, const_new,
    "Creates a free lock, also in a `static`."
);

impl_debug!([O: Order, R: Readers, W: World] RawRwLock<O, R, W> as it { locked: it.is_locked() });

#[cfg(test)]
mod tests;
