//! [`RawReadMostly`]: the lock without data.

use coreline_world::{IndexBy, Integer, Lacking, Native, Ordering, Slot, Time, Word, World};

use super::super::RawMutex;
use super::super::count::{Event, count, park};
use super::super::osq::Near;
use super::super::spin::{MOST, Spun, is_over, spin};
use crate::percpu::{PerCpu, PoolError};

const OPEN: u32 = 0;
const CLOSED: u32 = 1;
const SLEPT_ON: u32 = 2;

/// How often a reader that finds the lock closed sleeps until it is opened, before it queues with
/// the writers. A writer waits for all threads that queue before it, one after another. If threads
/// outnumber CPUs, each of these waits for a CPU when its turn comes.
pub(super) const SLEEPS: u32 = 8;

/// The readers of one CPU.
pub(super) struct Counts<W: World> {
    pub(super) came: W::U64,
    went: W::U64,
}

// SAFETY: a struct, so every value has the same fields in the same places.
unsafe impl<W: World> Slot for Counts<W> {}

/// A readers-writer lock for rare writes, without data: see [`ReadMostly`](super::ReadMostly).
///
/// Use it in a data structure whose protected data cannot live inside a `ReadMostly<T>`, or behind
/// an interface that has no guards. It cannot implement `lock_api`'s `RawRwLock`, which needs a
/// lock that is created in a `const`, because this lock allocates memory for each CPU.
///
/// ```
/// use coreline::lock::RawReadMostly;
///
/// let lock = RawReadMostly::new()?;
/// lock.read();
/// assert!(lock.try_read(), "readers share the lock");
/// assert!(!lock.try_write());
/// for _ in 0..2 {
///     // SAFETY: taken twice to read, above.
///     unsafe { lock.unlock_read() };
/// }
/// lock.write()?;
/// assert!(!lock.try_read());
/// // SAFETY: taken just now.
/// unsafe { lock.unlock_write() };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Fairness, priorities, recursion, signals and fork are those of `ReadMostly`. A read may end in a
/// thread other than the one in which it began.
///
/// An unlock may still use the lock's memory after another thread has taken the lock. So drop the
/// lock only after these calls have returned.
#[repr(C)]
pub struct RawReadMostly<W: World = Native> {
    pub(super) closed: W::U32,
    calls: W::U32,
    writers: RawMutex<Near, W>,
    pub(super) counts: PerCpu<Counts<W>, W>,
}

impl RawReadMostly {
    /// Creates a free lock, with a slot for each CPU. Because that may fail, the type has no
    /// `Default`.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if there is no memory.
    pub fn new() -> Result<Self, PoolError> {
        Self::new_in(IndexBy::Cpu)
    }

    /// Creates a free lock, like [`new`](RawReadMostly::new), with the readers' slots indexed by
    /// `by`.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new_in`](RawReadMostly::new_in).
    pub fn indexed_by(by: IndexBy) -> Result<Self, PoolError> {
        Self::new_in(by)
    }
}

impl<W: World> RawReadMostly<W> {
    /// Creates a free lock in world `W`, with the readers' slots indexed by `by`.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if the machine does not have the index, or if there is no memory.
    pub fn new_in(by: IndexBy) -> Result<Self, PoolError> {
        let none = || Counts { came: W::U64::new_in(0), went: W::U64::new_in(0) };
        Ok(RawReadMostly {
            closed: W::U32::new_in(OPEN),
            calls: W::U32::new_in(0),
            writers: RawMutex::new_in(),
            counts: PerCpu::new_in(by, none)?,
        })
    }

    /// Takes the lock to read, and waits for a writer.
    #[inline]
    pub fn read(&self) {
        if !self.come() {
            self.come_slowly(None);
        }
    }

    /// Takes the lock to read, or gives up when `deadline` passes. Returns whether it took the
    /// lock.
    #[inline]
    pub fn read_by(&self, deadline: Time) -> bool {
        self.come() || self.come_slowly(Some(deadline))
    }

    /// Takes the lock to read if no writer has closed it. Returns whether it took the lock.
    #[inline]
    pub fn try_read(&self) -> bool {
        self.looks_open() && self.come()
    }

    /// Frees the lock for a caller that holds it as a reader.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as a reader.
    #[inline]
    pub unsafe fn unlock_read(&self) {
        self.go();
    }

    /// Whether it makes sense to come. A reader that comes and fails makes the writer add up all
    /// counts again. A thread that tried again and again would keep the writer from ever finding
    /// that no reader is left.
    #[inline]
    fn looks_open(&self) -> bool {
        // Relaxed: `come` looks again.
        self.closed.load(Ordering::Relaxed) == OPEN
    }

    /// Counts a reader; returns whether the lock is open to it. If not, the reader went again.
    #[inline(always)]
    fn come(&self) -> bool {
        self.counts.field(|slot| &slot.came).add(1);
        // Partner: the heavy fence in `close`. Either this reader is counted there, or it
        // finds the lock closed here.
        W::fence_light();
        // Acquire: pairs with the Release in `open`, for what the last writer wrote.
        if self.closed.load(Ordering::Acquire) == OPEN {
            return true;
        }
        self.go();
        false
    }

    /// Waits for the writer that has closed the lock, and then reads. If later writers have closed
    /// it each time, [`SLEEPS`] times, waits in one queue with the writers.
    ///
    /// It does not queue immediately. In the queue, each waiter is woken by the previous one, which
    /// does not run while another thread has its CPU. All readers are woken together.
    ///
    /// Returns whether this thread reads: not if `deadline` comes first.
    #[cold]
    #[inline(never)]
    fn come_slowly(&self, deadline: Option<Time>) -> bool {
        // In the model, where no time passes, each sleep is one more place for a switch.
        for _ in 0..if W::RUNS { SLEEPS } else { 1 } {
            let now = W::now();
            let end = deadline.map_or(now + MOST, |deadline| deadline.min(now + MOST));
            let is_open = |closed| closed == OPEN;
            if !matches!(spin::<W, _>(&self.closed, now, end, is_open), Spun::Ready(_)) {
                self.sleep_while_closed(deadline);
            }
            if self.looks_open() && self.come() {
                return true;
            }
            if is_over::<W>(deadline) {
                return false;
            }
        }
        match deadline {
            None => self.writers.lock(),
            Some(deadline) if self.writers.lock_by(deadline) => {}
            Some(_) => return self.looks_open() && self.come(),
        }
        // The lock is open, and stays so until this thread is counted.
        self.counts.field(|slot| &slot.came).add(1);
        // SAFETY: locked above.
        unsafe { self.writers.unlock() };
        true
    }

    /// Sleeps until the lock is opened, or until `deadline`.
    fn sleep_while_closed(&self, deadline: Option<Time>) {
        // Relaxed, twice: asks to be woken, and publishes nothing.
        let (asked, found) = (Ordering::Relaxed, Ordering::Relaxed);
        let asked = self.closed.compare_exchange(CLOSED, SLEPT_ON, asked, found);
        if asked != Err(OPEN) {
            park::<W>(&self.closed, SLEPT_ON, deadline);
        }
    }

    /// Ends the section of a reader.
    #[inline]
    fn go(&self) {
        // Partner: the fence in `has_readers`, between a writer's look at `went` and its first
        // access to the data: what this reader has read came before.
        W::fence_light();
        self.counts.field(|slot| &slot.went).add(1);
        // Partner: the heavy fence in `close`. Either the writer sees that this reader went,
        // or it is told here.
        W::fence_light();
        // Relaxed: nothing is read because of it.
        if self.closed.load(Ordering::Relaxed) != OPEN {
            self.call();
        }
    }

    #[cold]
    #[inline(never)]
    fn call(&self) {
        // Release: pairs with the Acquire in `spin` and `close`: the writer that sees it sees that
        // this reader went.
        self.calls.fetch_add(1, Ordering::Release);
        count::<W>(Event::Wake);
        W::wake(&raw const self.calls, 1);
    }

    /// Takes the lock to write, and waits for readers and writers.
    ///
    /// # Errors
    ///
    /// Natively, [`Lacking`] if the kernel refuses `membarrier` after it once allowed it. The
    /// lock is then not taken.
    pub fn write(&self) -> Result<(), Lacking> {
        self.writers.lock();
        self.close(None).map(drop)
    }

    /// Takes the lock to write, or gives up when `deadline` passes. Returns whether it took the
    /// lock.
    ///
    /// While the call waits for readers, it keeps later readers out, as [`write`] does. When it
    /// gives up, they are woken.
    ///
    /// # Errors
    ///
    /// The same errors as for [`write`].
    ///
    /// [`write`]: RawReadMostly::write
    pub fn write_by(&self, deadline: Time) -> Result<bool, Lacking> {
        if self.writers.lock_by(deadline) { self.close(Some(deadline)) } else { Ok(false) }
    }

    /// Takes the lock to write if no thread has it, and no other thread waits to write or tries to.
    /// Returns whether it took the lock.
    ///
    /// If no thread seems to read, the call executes the heavy fence of a write. The call may also
    /// fail if a reader comes at the same time, or if the kernel refuses `membarrier`. A reader
    /// that comes meanwhile waits until the call returns, or until the lock is free.
    pub fn try_write(&self) -> bool {
        if !self.writers.try_lock() {
            return false;
        }
        // A look without the fence: a trial beside readers closes the lock to none.
        let went = self.counts.field(|slot| &slot.went).sum();
        if self.counts.field(|slot| &slot.came).sum() != went {
            // SAFETY: locked above.
            unsafe { self.writers.unlock() };
            return false;
        }
        self.close(Some(Time::from_nanos(0))) == Ok(true)
    }

    /// Frees the lock for a caller that holds it as its writer.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as its writer.
    #[inline]
    pub unsafe fn unlock_write(&self) {
        self.open();
    }

    /// Closes the lock, and waits until the readers that came before have gone. Returns `false`,
    /// and opens it again, and frees it for the next writer, if `deadline` comes first. It does
    /// the same if there is no fence. The caller has locked `writers`.
    fn close(&self, deadline: Option<Time>) -> Result<bool, Lacking> {
        // Relaxed: the heavy fence orders it.
        self.closed.store(CLOSED, Ordering::Relaxed);
        let waited = self.wait_for_readers(deadline);
        if waited != Ok(true) {
            self.open();
        }
        waited
    }

    /// Waits until the readers that came before the lock was closed have gone. Returns `false` if
    /// `deadline` comes first.
    fn wait_for_readers(&self, deadline: Option<Time>) -> Result<bool, Lacking> {
        // Partner: the light fences in `come` and `go`.
        W::try_fence_all()?;
        loop {
            // Acquire: pairs with the Release in `call`: a reader that called before is not waited
            // for once more.
            let calls = self.calls.load(Ordering::Acquire);
            if !self.has_readers()? {
                return Ok(true);
            }
            if is_over::<W>(deadline) {
                return Ok(false);
            }
            let now = W::now();
            let end = deadline.map_or(now + MOST, |deadline| deadline.min(now + MOST));
            spin::<W, _>(&self.calls, now, end, |found| found != calls);
            park::<W>(&self.calls, calls, deadline);
        }
    }

    /// Whether any reader that came before the lock was closed still reads.
    fn has_readers(&self) -> Result<bool, Lacking> {
        let went = self.counts.field(|slot| &slot.went).sum();
        // Partner: the light fences of readers. The coming of each reader whose going was seen is
        // seen below; and it has read what it has read before this thread writes.
        W::try_fence_seen()?;
        Ok(self.counts.field(|slot| &slot.came).sum() != went)
    }

    /// Opens the lock to readers, and frees it for the next writer.
    fn open(&self) {
        // Release: pairs with the Acquire in `come`.
        if self.closed.swap(OPEN, Ordering::Release) == SLEPT_ON {
            count::<W>(Event::Wake);
            W::wake(&raw const self.closed, u32::MAX);
        }
        // SAFETY: the caller is the writer, which locked before it closed the lock.
        unsafe { self.writers.unlock() };
    }
}

impl_debug!([W: World] RawReadMostly<W> as it {
    // Relaxed: nothing follows from the answer.
    closed: it.closed.load(Ordering::Relaxed) != OPEN
});
