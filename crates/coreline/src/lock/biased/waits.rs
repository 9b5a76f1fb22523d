//! How threads wait for a [`RawBiasedRwLock`].
//!
//! | constant | why this value | test |
//! |---|---|---|
//! | `PATIENCE` | far longer than a section and a wake-up | `a_reader_that_reads_again_..` |
//! | `SHARE` | nine of ten parts of the time are the readers' | `a_thread_that_reads_on_..` |
//! | `NAP` | a writer then looks nine times | `a_writer_that_opened_the_lock_..` |

use core::time::Duration;

use coreline_world::{Integer, Lacking, Ordering, Time, Word, World};

use super::super::RawMutex;
use super::super::count::slept;
use super::super::osq::Near;
use super::super::spin::{MOST, Spun, barge, is_over, nap, spin};
use super::raw::{
    BIASED, CLOSED, DRAINS, HELD, MOST_READERS, READER, READERS, RawBiasedRwLock, SLEEPS,
    TooManyReads, WANTS, readers,
};
use super::tally;

/// A reader that has waited for this long is late. A first writer that has waited for this long for
/// readers lets others in.
pub(super) const PATIENCE: Duration = Duration::from_millis(1);

/// For how long a first writer leaves the lock open, as a multiple of the time for which it has
/// kept readers out.
pub(super) const SHARE: u32 = 9;

/// The interval at which the first writer checks during that time whether the lock is free.
const NAP: Duration = Duration::from_millis(1);

/// Whether a writer that waits may take a lock in this state.
fn is_free(state: u32) -> bool {
    state & (HELD | WANTS | BIASED) == 0 && readers(state) == 0
}

/// The turn of the first writer, which ends when this drops.
struct Turn<'a, W: World>(&'a RawMutex<Near, W>);

impl<W: World> Drop for Turn<'_, W> {
    fn drop(&mut self) {
        // SAFETY: the thread that made this holds the mutex.
        unsafe { self.0.unlock() };
    }
}

/// The events for which the first writer waits, besides that the lock becomes free.
enum Next {
    /// To close the lock at this time.
    Close(Time),
    /// To open it at this time, or never while a writer has the lock.
    Open(Option<Time>),
}

/// Readers.
impl<W: World> RawBiasedRwLock<W> {
    /// Counts a reader where the state has no bit of `closed`, and clears those of `clears`.
    /// Returns whether it counted one.
    pub(super) fn enter(&self, closed: u32, clears: u32) -> Result<bool, TooManyReads> {
        // Relaxed: the exchange looks again.
        let mut state = self.state.load(Ordering::Relaxed);
        while state & closed == 0 {
            if state & BIASED != 0 && self.count_in_slot(1) {
                return Ok(true);
            }
            if readers(state) >= MOST_READERS {
                return Err(TooManyReads);
            }
            let entered = (state & !clears).wrapping_add(READER);
            // Acquire: pairs with the Release in `unlock_write`. Relaxed on failure: the
            // exchange looks again.
            let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
            match self.state.compare_exchange_weak(state, entered, taken, failed) {
                Ok(_) => return Ok(true),
                Err(found) => state = found,
            }
        }
        Ok(false)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn read_or_panic(&self, deadline: Option<Time>) -> bool {
        self.read_slowly(deadline).unwrap_or_else(|too_many| panic!("{too_many}"))
    }

    /// The slow path of a reader.
    ///
    /// Unlike a writer, it does not [`barge`]: [`spin`] sees as soon that the lock is open, and
    /// looks at the line less often. With many readers, each look delays those that go, for which
    /// the first writer waits.
    #[cold]
    #[inline(never)]
    pub(super) fn read_slowly(&self, deadline: Option<Time>) -> Result<bool, TooManyReads> {
        let came = W::now();
        let (mut has_slept, mut asked) = (false, 0);
        loop {
            let now = W::now();
            // In the model, where no time passes, a reader is late when it has slept.
            let is_late = if W::RUNS { now - came >= PATIENCE } else { has_slept };
            let closed = if is_late { HELD } else { HELD | CLOSED };
            let mut entered = self.enter(closed, asked);
            let gives_up = entered == Ok(false) && is_over::<W>(deadline);
            if gives_up {
                entered = self.enter(HELD, asked);
            }
            if entered == Ok(true) {
                return entered;
            }
            if gives_up || entered.is_err() {
                self.withdraw(asked);
                return entered;
            }
            if is_late {
                asked = WANTS;
                self.sleep(SLEEPS | WANTS, closed, deadline);
                continue;
            }
            let late_at = came + PATIENCE;
            let until = deadline.map_or(late_at, |deadline| deadline.min(late_at));
            let is_open = |state| state & closed == 0;
            if let Spun::Late | Spun::Wanted =
                spin::<W, _>(&self.state, now, until.min(now + MOST), is_open)
            {
                self.sleep(SLEEPS, closed, Some(until));
                has_slept = true;
            }
        }
    }

    /// Unless the lock is not `closed`, asks, and sleeps until another thread wakes it or until
    /// `until`, if the word does not change before.
    fn sleep(&self, asks: u32, closed: u32, until: Option<Time>) {
        // Relaxed: the exchange looks again.
        let mut state = self.state.load(Ordering::Relaxed);
        while state & closed != 0 {
            let asked = state | asks;
            // Relaxed, twice: asks, and publishes nothing.
            let relaxed = Ordering::Relaxed;
            match self.state.compare_exchange(state, asked, relaxed, relaxed) {
                Ok(_) => {
                    slept::<W>(W::park_as(&self.state, asked, until, READERS));
                    return;
                }
                Err(found) => state = found,
            }
        }
    }

    /// Gives up. Takes the request of a late reader back. Others that have asked, too, are woken,
    /// and ask again. The lock may be free now for the first writer.
    fn withdraw(&self, asked: u32) {
        if asked == 0 {
            return;
        }
        // Relaxed: asks for no more.
        let state = self.state.fetch_and(!asked, Ordering::Relaxed);
        if state & SLEEPS != 0 {
            Self::wake_readers(&raw const self.state);
        }
        if state & DRAINS != 0 {
            Self::wake_writer(&raw const self.state);
        }
    }
}

/// Writers.
impl<W: World> RawBiasedRwLock<W> {
    #[cold]
    #[inline(never)]
    pub(super) fn write_slowly(&self, deadline: Option<Time>) -> Result<bool, Lacking> {
        // Relaxed: the exchange looks again.
        let is_zero = || self.state.load(Ordering::Relaxed) == 0;
        if barge::<W>(|| is_zero() && self.write_at_once()) {
            return Ok(true);
        }
        match deadline {
            None => self.writers.lock(),
            Some(deadline) if self.writers.lock_by(deadline) => {}
            Some(_) => return Ok(self.write_at_once()),
        }
        let _turn = Turn(&self.writers);
        self.drain(deadline)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn try_write_slowly(&self) -> bool {
        // Relaxed: looks only.
        let state = self.state.load(Ordering::Relaxed);
        if !self.seems_free(state) || !self.writers.try_lock() {
            return false;
        }
        let _turn = Turn(&self.writers);
        loop {
            // Acquire: pairs with the Release in `become_biased`.
            let state = self.state.load(Ordering::Acquire);
            if self.take(state) {
                return true;
            }
            if state & BIASED == 0 {
                if !is_free(state) {
                    return false;
                }
            } else if !self.seems_free(state) || self.unbias() != Ok(true) {
                return false;
            }
        }
    }

    /// Whether no thread seems to have the lock. If readers have it, a trial that ends the bias
    /// would fail.
    fn seems_free(&self, state: u32) -> bool {
        match state & BIASED {
            0 => is_free(state),
            _ => !self.has_readers(state),
        }
    }

    /// Takes a lock in this state, which is free, if it still is so.
    fn take(&self, state: u32) -> bool {
        // Acquire: pairs with the Release in `unlock_write`, `uncount` and `unbias`. Relaxed on
        // failure: nothing was taken.
        let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let is_taken = is_free(state)
            && self.state.compare_exchange(state, state & SLEEPS | HELD, taken, failed).is_ok();
        if is_taken {
            tally::reset::<W>(&self.tally);
        }
        is_taken
    }

    /// Waits until no thread has the lock, and takes it; opens it again if `deadline` comes first.
    /// Returns whether it took the lock. The caller is the first writer.
    fn drain(&self, deadline: Option<Time>) -> Result<bool, Lacking> {
        // Since it keeps readers out that wait for it alone.
        let mut since = None;
        loop {
            // Acquire: pairs with the Release in `become_biased`.
            let state = self.state.load(Ordering::Acquire);
            if self.take(state) {
                // Relaxed: a hint. The reads for which the lock was opened are over.
                self.close_at.store(0, Ordering::Relaxed);
                return Ok(true);
            }
            let now = W::now();
            if is_over::<W>(deadline) && !(state & BIASED != 0 && self.seems_free(state)) {
                self.open(now, since);
                return Ok(false);
            }
            if state & BIASED != 0 {
                let unbiased = self.unbias();
                if unbiased != Ok(true) {
                    self.open(now, since);
                    since = None;
                    unbiased?;
                    nap::<W>(deadline.map_or(now + NAP, |end| end.min(now + NAP)));
                }
                continue;
            }
            since = match state & (CLOSED | HELD) {
                CLOSED => since.or(Some(now)),
                _ => None,
            };
            match self.next(state, since) {
                Next::Close(at) if now >= at => {
                    // Relaxed: asks readers to wait, and publishes nothing.
                    self.state.fetch_or(CLOSED, Ordering::Relaxed);
                }
                Next::Close(at) => self.wait_open(now, deadline.map_or(at, |end| end.min(at))),
                Next::Open(Some(at)) if now >= at => self.open(now, since),
                Next::Open(at) => {
                    self.wait_closed(state, now, [deadline, at].into_iter().flatten().min());
                }
            }
        }
    }

    /// The next step of the first writer if the state stays as it is.
    fn next(&self, state: u32, since: Option<Time>) -> Next {
        if state & CLOSED == 0 {
            // Relaxed: written by first writers, which the mutex orders.
            Next::Close(Time::from_nanos(self.close_at.load(Ordering::Relaxed)))
        } else {
            // In the model, where no time passes, readers alone see to it that all go on.
            Next::Open(since.filter(|_| W::RUNS).map(|since| since + PATIENCE))
        }
    }

    /// Waits while the lock is closed: until it may be free, until a writer has freed it that had
    /// it in this state, or `until`.
    fn wait_closed(&self, before: u32, now: Time, until: Option<Time>) {
        let is_news = |state| is_free(state) || (state ^ before) & HELD != 0;
        let end = until.map_or(now + MOST, |until| until.min(now + MOST));
        if let Spun::Ready(_) = spin::<W, _>(&self.state, now, end, is_news) {
            return;
        }
        // Relaxed: asks, and publishes nothing. The last reader that goes, or the writer, changes
        // the word after this, and finds the bit; or the sleep does not begin.
        let state = self.state.fetch_or(DRAINS, Ordering::Relaxed);
        if !is_news(state) {
            self.sleep_as_writer(state | DRAINS, until);
        }
        // Relaxed: asks for no more.
        self.state.fetch_and(!DRAINS, Ordering::Relaxed);
    }

    /// Waits while the lock is open: until it may be free, or `until`. Readers that come and go
    /// change the word all the time, so this looks from time to time.
    fn wait_open(&self, now: Time, until: Time) {
        let is_news = |state| is_free(state) || state & BIASED != 0;
        if let Spun::Late | Spun::Wanted =
            spin::<W, _>(&self.state, now, until.min(now + MOST), is_news)
        {
            nap::<W>(until.min(W::now() + NAP));
        }
    }

    /// Opens the lock for readers, for nine times as long as the caller has kept them out. The
    /// caller is the first writer.
    fn open(&self, now: Time, since: Option<Time>) {
        if let Some(since) = since {
            // Relaxed: a hint for the next first writer, and for readers.
            self.close_at.store((now + SHARE * (now - since)).as_nanos(), Ordering::Relaxed);
        }
        // Relaxed: the exchange looks again.
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            // If a writer has the lock, it wakes the readers.
            let wakes = state & (HELD | SLEEPS) == SLEEPS;
            let opened = state & !(CLOSED | if wakes { SLEEPS } else { 0 });
            // Relaxed, twice: publishes nothing.
            let relaxed = Ordering::Relaxed;
            match self.state.compare_exchange_weak(state, opened, relaxed, relaxed) {
                Ok(_) if wakes => return Self::wake_readers(&raw const self.state),
                Ok(_) => return,
                Err(found) => state = found,
            }
        }
    }
}
