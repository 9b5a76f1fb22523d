//! [`RawRwLock`]: the lock without data.

use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

use coreline_world::{ConstWorld, Integer, Native, Ordering, Time, Word, World};

use super::super::osq::{Near, Order, Osq, Waited};
use super::super::spin::{MOST, Spun, barge, doze, is_over, spin};
use super::{Readers, SpinningReaders};

/// A writer holds the lock.
const WRITER: u32 = 1;
/// The first waiter sleeps on the word, or is about to.
const SLEEPS: u32 = 1 << 1;
/// The first waiter comes next.
const WANTS: u32 = 1 << 2;
/// One reader.
const READER: u32 = 1 << 3;
/// More readers than memory has room for guards that were not forgotten; far from overflow.
const MOST_READERS: u32 = READER << 28;

/// A first waiter that waits for writers asks to come next after so long.
const PATIENCE: Duration = Duration::from_micros(20);

/// A readers-writer lock without data, of 8 bytes: see [`RwLock`](super::RwLock).
///
/// For data structures that guard something which is not behind a reference.
#[repr(C)]
pub struct RawRwLock<O: Order = Near, R: Readers = SpinningReaders, W: World = Native> {
    state: W::U32,
    queue: Osq<O, W>,
    readers: PhantomData<fn() -> R>,
}

const _: () = {
    assert!(size_of::<RawRwLock<Near, SpinningReaders, Native>>() == 8);
    assert!(align_of::<RawRwLock<Near, SpinningReaders, Native>>() == 4);
};

/// What a thread wants of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Read,
    Write,
}

impl Want {
    /// Whether the first waiter can have the lock.
    fn is_open(self, state: u32) -> bool {
        match self {
            Want::Read => state & WRITER == 0,
            Want::Write => state & WRITER == 0 && state < READER,
        }
    }

    /// What the word holds when the first waiter has taken the lock.
    fn taken(self, state: u32) -> u32 {
        match self {
            Want::Read => (state & !(SLEEPS | WANTS)) + READER,
            Want::Write => WRITER,
        }
    }
}

impl RawRwLock {
    /// A free lock, also for a `static`.
    pub const fn new() -> Self {
        Self::const_new()
    }
}

impl<O: Order, R: Readers, W: World> RawRwLock<O, R, W> {
    /// A free lock in any world that has constants.
    pub const fn const_new() -> Self
    where
        W: ConstWorld,
    {
        RawRwLock { state: W::U32_ZERO, queue: Osq::const_new(), readers: PhantomData }
    }

    /// A free lock, in every world.
    pub fn new_in() -> Self {
        RawRwLock { state: W::U32::new_in(0), queue: Osq::new_in(), readers: PhantomData }
    }

    /// Takes the lock to read; waits for writers, those that wait before this thread among them.
    #[inline]
    pub fn read(&self) {
        if !self.read_at_once() {
            self.wait(Want::Read, None);
        }
    }

    /// Takes the lock to read, or gives up when `deadline` has come; says whether it took it.
    #[inline]
    pub fn read_by(&self, deadline: Time) -> bool {
        self.read_at_once() || self.wait(Want::Read, Some(deadline))
    }

    /// Takes the lock to read if no writer holds it, and no first waiter is next; says whether it
    /// did.
    #[inline]
    pub fn try_read(&self) -> bool {
        // Relaxed: looks only. An addition to a lock that a writer has would hold up that writer's
        // readers for nothing.
        self.state.load(Ordering::Relaxed) & (WRITER | WANTS) == 0 && self.read_at_once()
    }

    /// Counts a reader, and takes it back where the lock is not open to one.
    #[inline]
    fn read_at_once(&self) -> bool {
        // Acquire: pairs with the Release in `unlock_write`. Without it, the section could begin
        // before the last writer's writes are seen.
        let state = self.state.fetch_add(READER, Ordering::Acquire);
        if state & (WRITER | WANTS) == 0 && state < MOST_READERS {
            return true;
        }
        self.refused(state)
    }

    #[cold]
    #[inline(never)]
    fn refused(&self, state: u32) -> bool {
        self.uncount();
        assert!(state < MOST_READERS, "more than 2^28 readers: guards were forgotten");
        false
    }

    /// Frees the lock of one reader.
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
        // Release: pairs with the Acquire of a writer in `try_write` and `take`. Without it, reads
        // inside this section could see what that writer writes.
        let state = self.state.fetch_sub(READER, Ordering::Release);
        if state & (WRITER | SLEEPS) == SLEEPS && state < 2 * READER {
            self.wake_first();
        }
    }

    /// Takes the lock to write; waits for readers and writers.
    #[inline]
    pub fn write(&self) {
        if !self.try_write() {
            self.wait(Want::Write, None);
        }
    }

    /// Takes the lock to write, or gives up when `deadline` has come; says whether it took it.
    #[inline]
    pub fn write_by(&self, deadline: Time) -> bool {
        self.try_write() || self.wait(Want::Write, Some(deadline))
    }

    /// Takes the lock to write if it is free now, and no first waiter is next; says whether it did.
    #[inline]
    pub fn try_write(&self) -> bool {
        // Acquire: pairs with the Release in `unlock_write` and `uncount`.
        self.state.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Frees the lock of its writer.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as a writer.
    #[inline]
    pub unsafe fn unlock_write(&self) {
        // Release: pairs with the Acquire in `read_at_once`, `try_write` and `take`.
        let state = self.state.fetch_sub(WRITER, Ordering::Release);
        if state & SLEEPS != 0 {
            self.wake_first();
        }
    }

    /// Turns the caller's hold as a writer into one as a reader, with no other writer in between.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as a writer.
    pub unsafe fn downgrade(&self) {
        // Release: as in `unlock_write`.
        let state = self.state.fetch_add(READER - WRITER, Ordering::Release);
        if state & SLEEPS != 0 {
            self.wake_first();
        }
    }

    /// Whether a writer holds the lock. A hint: stale when it is given.
    pub fn is_written(&self) -> bool {
        // Relaxed: nothing follows from the answer.
        self.state.load(Ordering::Relaxed) & WRITER != 0
    }

    /// Whether any thread holds the lock. A hint: stale when it is given.
    pub fn is_locked(&self) -> bool {
        // Relaxed: nothing follows from the answer.
        self.state.load(Ordering::Relaxed) & !(SLEEPS | WANTS) != 0
    }

    #[cold]
    #[inline(never)]
    fn wake_first(&self) {
        // Relaxed: asked for no more. Until the first waiter runs, others may take the lock.
        self.state.fetch_and(!SLEEPS, Ordering::Relaxed);
        W::wake(&raw const self.state, 1);
    }

    fn try_to(&self, want: Want) -> bool {
        match want {
            Want::Read => self.try_read(),
            Want::Write => self.try_write(),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, want: Want, deadline: Option<Time>) -> bool {
        let spins = want == Want::Write || R::SPIN;
        let take_soon = || {
            // Relaxed: `try_to` looks again.
            let state = self.state.load(Ordering::Relaxed);
            state & WANTS == 0 && want.is_open(state) && self.try_to(want)
        };
        if spins && barge::<W>(take_soon) {
            return true;
        }
        // A node in the queue would outlast the wait. Not in the model, where no time passes.
        if W::RUNS && is_over::<W>(deadline) {
            return false;
        }
        let first = match self.queue.wait(deadline, spins) {
            Waited::Turn(first) => first,
            Waited::Late => return self.try_to(want),
            Waited::NoNode => return doze::<W>(deadline, || self.try_to(want)),
        };
        let taken = self.wait_first(want, deadline, spins);
        Osq::<O, W>::wake(self.queue.pass(first));
        taken
    }

    /// Waits as the first waiter.
    fn wait_first(&self, want: Want, deadline: Option<Time>, spins: bool) -> bool {
        let until = |end| deadline.map_or(end, |deadline| deadline.min(end));
        let came = W::now();
        let mut has_slept = false;
        loop {
            if self.take(want) {
                return true;
            }
            let now = W::now();
            // The model, where no time passes, is impatient after a first sleep.
            let is_patient = now - came < PATIENCE && (W::RUNS || !has_slept);
            // Relaxed: `ask` looks again.
            let has_readers = self.state.load(Ordering::Relaxed) >= READER;
            // Readers come and go: a writer asks at once that no more of them come.
            if !is_patient || want == Want::Write && has_readers {
                self.ask(want, WANTS);
            }
            if spins {
                let end = if is_patient { came + PATIENCE } else { now + MOST };
                match spin::<W, _>(&self.state, now, until(end), |state| want.is_open(state)) {
                    Spun::Ready(_) => continue,
                    Spun::Late if is_patient && !is_over::<W>(deadline) => continue,
                    Spun::Late | Spun::Wanted => {}
                }
            }
            if is_over::<W>(deadline) {
                return self.take_or_leave(want);
            }
            if let Some(asked) = self.ask(want, SLEEPS) {
                W::park(&self.state, asked, deadline);
                has_slept = true;
                // Relaxed: what was asked for is undone, and publishes nothing.
                self.state.fetch_and(!SLEEPS, Ordering::Relaxed);
            }
        }
    }

    /// Writes what the first waiter asks for into the word of a lock that is not open to it. What
    /// stands there then; `None` if it was not written.
    fn ask(&self, want: Want, asks: u32) -> Option<u32> {
        // Relaxed: the exchange looks again.
        let state = self.state.load(Ordering::Relaxed);
        if want.is_open(state) {
            return None;
        }
        // Relaxed, twice: asks, and publishes nothing.
        self.state
            .compare_exchange(state, state | asks, Ordering::Relaxed, Ordering::Relaxed)
            .map(|_| state | asks)
            .ok()
    }

    /// Takes the lock for the first waiter if it is open to it.
    fn take(&self, want: Want) -> bool {
        // Relaxed: the exchange looks again.
        let mut state = self.state.load(Ordering::Relaxed);
        while want.is_open(state) {
            // Acquire: pairs with the Release in `unlock_write` and `uncount`.
            let taken = self.state.compare_exchange_weak(
                state,
                want.taken(state),
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => return true,
                Err(found) => state = found,
            }
        }
        false
    }

    /// Takes the lock if that is possible now; else nothing is asked for any more.
    fn take_or_leave(&self, want: Want) -> bool {
        let taken = self.take(want);
        if !taken {
            // Relaxed: publishes nothing.
            self.state.fetch_and(!(SLEEPS | WANTS), Ordering::Relaxed);
        }
        taken
    }
}

impl<O: Order, R: Readers, W: ConstWorld> Default for RawRwLock<O, R, W> {
    fn default() -> Self {
        Self::const_new()
    }
}

impl<O: Order, R: Readers, W: World> fmt::Debug for RawRwLock<O, R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawRwLock").field("locked", &self.is_locked()).finish()
    }
}
