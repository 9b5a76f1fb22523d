//! [`ReadMostly`]: a readers-writer lock whose readers write to nothing that they share.
//!
//! A reader counts itself in its CPU's slot of per-CPU memory when it comes and when it goes. A
//! writer closes the lock and waits until as many have gone as came (the kernel's
//! `percpu_rw_semaphore`, `kernel/locking/percpu-rwsem.c`). To count coming and going separately,
//! and the order in which they are read, is from the kernel's sleepable RCU,
//! `kernel/rcu/srcutree.c`. Between a reader's two accesses, to its count and to the sign that the
//! lock is closed, there is only a compiler fence: the writer makes all CPUs pass a fence.
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `closed` | `CLOSED`: a writer holds the lock or waits for readers | that writer |
//! | | `SLEPT_ON`: the same, and readers sleep on this word or are about to | readers |
//! | `calls` | how often a reader went while the lock was closed, modulo 2³² | readers |
//! | `writers` | which writer is next; also readers that slept in vain 8 times | both |
//! | `came`, `went` | for each CPU: how many readers came there, and how many went | readers |
//!
//! # Why the counts are apart
//!
//! While the writer adds up the counts, a reader may come on one CPU and go on another, or come
//! without getting the lock.
//!
//! ```text
//! Writer: reads what CPU 0 has
//! Reader: comes on CPU 0, finds the lock closed, is moved, goes on CPU 1
//! Writer: reads what CPU 1 has      <- one less than there are, if both were one count
//! ```
//!
//! So it first adds up all that went and then, after a fence, all that came. For each reader whose
//! going it saw, it also sees the coming. The two sums are equal only if all readers that came
//! before the lock was closed have left.
//!
//! # Law
//!
//! A writer is alone, and a reader sees all writes of earlier writers. In the repository,
//! `tests/laws/locks/read_mostly.rs` checks this in all three worlds.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use coreline_world::{Cell, CellMut, CellRef, IndexBy, Integer, Lacking, Native};
use coreline_world::{Ordering, Slot, Time, Word, World};

use super::RawMutex;
use super::guard::{guard, lock_impls};
use super::osq::Near;
use super::spin::{MOST, Spun, is_over, spin};
use crate::percpu::{PerCpu, PoolError};

const OPEN: u32 = 0;
const CLOSED: u32 = 1;
const SLEPT_ON: u32 = 2;

/// How often a reader that finds the lock closed sleeps until it is opened, before it queues with
/// the writers. A writer waits for all threads that queue before it, one after another. If threads
/// outnumber CPUs, each of these waits for a CPU when its turn comes.
const SLEEPS: u32 = 8;

/// The readers of one CPU.
struct Counts<W: World> {
    came: W::U64,
    went: W::U64,
}

// SAFETY: a struct, so every value has the same fields in the same places.
unsafe impl<W: World> Slot for Counts<W> {}

/// A readers-writer lock around data that is often read and seldom written.
///
/// Reading costs two additions to per-CPU memory, and no locked instruction if the machine has
/// restartable sections. The time of a read does not depend on the number of CPUs that read.
/// Writing costs a heavy fence, which interrupts the CPUs that run this process, and the wait for
/// readers. On processors that reorder stores, it costs one more fence each time that the writer
/// checks for readers.
///
/// ```
/// use coreline::lock::ReadMostly;
///
/// let routes = ReadMostly::new(vec!["near"])?;
/// assert_eq!(routes.read().len(), 1);
/// routes.write()?.push("far");
/// assert_eq!(*routes.read(), ["near", "far"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// **Fairness**: writers get their turns as in a [`Mutex`](super::Mutex). When a writer's turn
/// comes, it waits until each present reader has left its section. It does not wait for later
/// readers. Readers that arrive meanwhile sleep until the writer is done. Then all of them are
/// woken. A reader that finds the lock closed by a faster writer sleeps again. After eight sleeps,
/// it queues with the writers.
///
/// **Oversubscription**: on 2 CPUs, with one write in a hundred turns, the longest wait is 4 to 12
/// ms with 8 threads, and 11 to 49 ms with 32 threads. The fairness ratio (fewest turns of a
/// thread / most turns of a thread) is at least 0.90 with 8 threads and 0.78 with 32
/// ([measurements](super#more-threads-than-cpus)).
///
/// **Priorities**: threads get the lock in the order above, whatever their priorities. The holder
/// inherits no priority from the waiters. A waiter spins for 0.1 ms at most and then sleeps, so [a
/// holder of lower priority can run](super#priorities) on its CPU.
///
/// **Recursion**: a thread that reads must not start a second read. If a writer begins to wait in
/// between, both wait forever.
///
/// **Size**: the lock uses 16 bytes per CPU, and 16 bytes next to the data. A waiting writer also
/// uses the shared nodes that [`Osq`](super::Osq) describes.
///
/// **Panics**: a panic while a guard is alive frees the lock, and the data is not poisoned.
///
/// **Signals**: in a signal handler, use [`try_read`](ReadMostly::try_read), which does not wait.
/// In a handler, `read` waits forever if the interrupted thread writes or waits to read, or if it
/// reads while a writer waits.
///
/// **Several copies of the library**, and memory that processes share: threads may wait forever.
/// See [one copy of the library](super#one-copy-of-the-library).
///
/// **Fork**: if other threads read or write at the time of the fork, they never leave the lock in
/// the child. A writer in the child then waits forever.
#[repr(C)]
pub struct ReadMostly<T: ?Sized, W: World = Native> {
    closed: W::U32,
    calls: W::U32,
    writers: RawMutex<Near, W>,
    counts: PerCpu<Counts<W>, W>,
    /// A `Cell` is `Sync` if `T` may move between threads, but readers share it.
    not_sync: PhantomData<UnsafeCell<()>>,
    data: Cell<T, W>,
}

// SAFETY: readers give `&T` to several threads at one time, and a writer may move `T` to its own.
unsafe impl<T: ?Sized + Send + Sync, W: World> Sync for ReadMostly<T, W> {}

impl<T> ReadMostly<T> {
    /// Creates a free lock around `data`, with a slot for each CPU. Because that may fail, the type
    /// has neither `Default` nor `From`.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if there is no memory.
    pub fn new(data: T) -> Result<Self, PoolError> {
        Self::new_in(IndexBy::Cpu, data)
    }

    /// Creates a free lock, like [`new`](ReadMostly::new), with the readers' slots indexed by `by`.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new_in`](ReadMostly::new_in).
    pub fn indexed_by(by: IndexBy, data: T) -> Result<Self, PoolError> {
        Self::new_in(by, data)
    }
}

impl<T, W: World> ReadMostly<T, W> {
    /// Creates a free lock around `data`, in world `W`, with the readers' slots indexed by `by`.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if the machine does not have the index, or if there is no memory.
    pub fn new_in(by: IndexBy, data: T) -> Result<Self, PoolError> {
        let none = || Counts { came: W::U64::new_in(0), went: W::U64::new_in(0) };
        Ok(ReadMostly {
            closed: W::U32::new_in(OPEN),
            calls: W::U32::new_in(0),
            writers: RawMutex::new_in(),
            counts: PerCpu::new_in(by, none)?,
            data: Cell::new_in(data),
            not_sync: PhantomData,
        })
    }
}

impl<T: ?Sized, W: World> ReadMostly<T, W> {
    /// Takes the lock to read, and waits for a writer. Dropping the guard frees the lock.
    #[inline]
    pub fn read(&self) -> ReadMostlyReadGuard<'_, T, W> {
        if !self.come() {
            self.come_slowly(None);
        }
        // SAFETY: this thread is a reader since just now, for this guard.
        unsafe { ReadMostlyReadGuard::new(self) }
    }

    /// Takes the lock to read, or returns `None` if `deadline` passes first.
    #[inline]
    pub fn read_by(&self, deadline: Time) -> Option<ReadMostlyReadGuard<'_, T, W>> {
        // SAFETY: in the branch taken this thread is a reader since just now, for this guard.
        (self.come() || self.come_slowly(Some(deadline)))
            .then(|| unsafe { ReadMostlyReadGuard::new(self) })
    }

    /// Takes the lock to read if no writer has closed it.
    #[inline]
    pub fn try_read(&self) -> Option<ReadMostlyReadGuard<'_, T, W>> {
        // SAFETY: in the branch taken this thread is a reader since just now, for this guard.
        (self.looks_open() && self.come()).then(|| unsafe { ReadMostlyReadGuard::new(self) })
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
            W::park(&self.closed, SLEPT_ON, deadline);
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
        W::wake(&raw const self.calls, 1);
    }

    /// Ends the section of a reader whose guard was forgotten. Interfaces that have no guards, such
    /// as a C interface, need this.
    ///
    /// ```
    /// use coreline::lock::ReadMostly;
    ///
    /// let lock = ReadMostly::new(1)?;
    /// std::mem::forget(lock.read());
    /// // SAFETY: the guard was forgotten just now.
    /// unsafe { lock.force_unlock_read() };
    /// *lock.write()? += 1; // would wait forever for a reader
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    ///
    /// A [read guard](ReadMostlyReadGuard) of this lock was forgotten, by [`core::mem::forget`],
    /// and no other call has ended its section.
    #[inline]
    pub unsafe fn force_unlock_read(&self) {
        // SAFETY: the forgotten guard's, whose section ends here.
        drop(unsafe { ReadMostlyReadGuard::new(self) });
    }

    /// Ends the section of a writer whose guard was forgotten, like
    /// [`force_unlock_read`](ReadMostly::force_unlock_read).
    ///
    /// ```
    /// use coreline::lock::ReadMostly;
    ///
    /// let lock = ReadMostly::new(1)?;
    /// std::mem::forget(lock.write()?);
    /// assert!(lock.try_read().is_none());
    /// // SAFETY: the guard was forgotten just now.
    /// unsafe { lock.force_unlock_write() };
    /// assert!(lock.try_read().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The [write guard](ReadMostlyWriteGuard) of this lock was forgotten, by
    /// [`core::mem::forget`], and no other call has ended its section.
    pub unsafe fn force_unlock_write(&self) {
        // SAFETY: the forgotten guard's, whose section ends here.
        drop(unsafe { ReadMostlyWriteGuard::new(self) });
    }

    /// Takes the lock to write, and waits for readers and writers. Dropping the guard frees the
    /// lock.
    ///
    /// # Errors
    ///
    /// [`Lacking`] natively, if the kernel refuses `membarrier` after it has once allowed it. The
    /// lock is then not taken.
    pub fn write(&self) -> Result<ReadMostlyWriteGuard<'_, T, W>, Lacking> {
        self.writers.lock();
        let closed = self.close(None)?;
        Ok(closed.expect("a writer without a deadline does not give up"))
    }

    /// Takes the lock to write, or returns `Ok(None)` if `deadline` passes first.
    ///
    /// While the call waits for readers, it keeps later readers out, as [`write`] does. When it
    /// gives up, they are woken.
    ///
    /// # Errors
    ///
    /// As for [`write`].
    ///
    /// [`write`]: ReadMostly::write
    pub fn write_by(
        &self,
        deadline: Time,
    ) -> Result<Option<ReadMostlyWriteGuard<'_, T, W>>, Lacking> {
        if self.writers.lock_by(deadline) { self.close(Some(deadline)) } else { Ok(None) }
    }

    /// Takes the lock to write if no thread has it, and no other thread waits to write or tries to.
    ///
    /// If no thread seems to read, the call executes the heavy fence of a write. The call may also
    /// fail if a reader comes at the same time, and if the kernel refuses `membarrier`. A reader
    /// that comes meanwhile waits until the call returns, or until the guard drops.
    pub fn try_write(&self) -> Option<ReadMostlyWriteGuard<'_, T, W>> {
        if !self.writers.try_lock() {
            return None;
        }
        // A look without the fence: a trial beside readers closes the lock to none.
        let went = self.counts.field(|slot| &slot.went).sum();
        if self.counts.field(|slot| &slot.came).sum() != went {
            // SAFETY: locked above.
            unsafe { self.writers.unlock() };
            return None;
        }
        self.close(Some(Time::from_nanos(0))).ok().flatten()
    }

    /// Closes the lock, and waits until the readers that came before have gone. Opens it again,
    /// and frees it for the next writer, if `deadline` comes first, or if there is no fence. The
    /// caller has locked `writers`.
    fn close(
        &self,
        deadline: Option<Time>,
    ) -> Result<Option<ReadMostlyWriteGuard<'_, T, W>>, Lacking> {
        // Relaxed: the heavy fence orders it.
        self.closed.store(CLOSED, Ordering::Relaxed);
        let waited = self.wait_for_readers(deadline);
        if waited == Ok(true) {
            // SAFETY: the lock is closed, and the readers that came before have gone.
            return Ok(Some(unsafe { ReadMostlyWriteGuard::new(self) }));
        }
        self.open();
        waited.map(|_| None)
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
            W::park(&self.calls, calls, deadline);
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
            W::wake(&raw const self.closed, u32::MAX);
        }
        // SAFETY: the caller is the writer, which locked in `write`.
        unsafe { self.writers.unlock() };
    }
}

lock_impls!(ReadMostly, [W: World], try_read);

/// The proof that the caller holds a [`ReadMostly`] as a reader. Dropping it ends the section.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct ReadMostlyReadGuard<'a, T: ?Sized, W: World = Native> {
    lock: &'a ReadMostly<T, W>,
    data: ManuallyDrop<CellRef<'a, T, W>>,
    /// It is not `Send`, like std's.
    _not_send: PhantomData<*const ()>,
}

guard!(ReadMostlyReadGuard, [W: World], ReadMostly::go);

impl<'a, T: ?Sized, W: World> ReadMostlyReadGuard<'a, T, W> {
    /// # Safety
    ///
    /// The caller is a reader of `lock` and gives that to the guard.
    #[inline]
    unsafe fn new(lock: &'a ReadMostly<T, W>) -> Self {
        // SAFETY: no thread writes the data while there is a reader, and from here to the guard's
        // drop the guard is one.
        let data = ManuallyDrop::new(unsafe { lock.data.borrow() });
        ReadMostlyReadGuard { lock, data, _not_send: PhantomData }
    }
}

/// The proof that the caller holds a [`ReadMostly`] as its writer. Dropping it frees the lock.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct ReadMostlyWriteGuard<'a, T: ?Sized, W: World = Native> {
    lock: &'a ReadMostly<T, W>,
    data: ManuallyDrop<CellMut<'a, T, W>>,
    /// It is not `Send`, like std's.
    _not_send: PhantomData<*const ()>,
}

guard!(mut ReadMostlyWriteGuard, [W: World], ReadMostly::open);

impl<'a, T: ?Sized, W: World> ReadMostlyWriteGuard<'a, T, W> {
    /// # Safety
    ///
    /// The caller has closed `lock`, and its readers have gone. It gives that to the guard.
    #[inline]
    unsafe fn new(lock: &'a ReadMostly<T, W>) -> Self {
        // SAFETY: only the writer touches the data, and from here to the guard's drop the guard is
        // the writer.
        let data = ManuallyDrop::new(unsafe { lock.data.borrow_mut() });
        ReadMostlyWriteGuard { lock, data, _not_send: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::sync::Arc;

    use coreline_sim::{Machine, Sim};
    use coreline_topology::CpuId;
    use coreline_world::{Clock, JoinHandle, Placement, Sleep, Threads};

    use super::*;

    /// No writer waits for sleeping readers: all of these are woken at each opening, and find the
    /// lock closed by the next writer up to eight times before one queues.
    #[test]
    fn a_reader_queues_with_writers_when_it_has_slept_in_vain_eight_times() {
        let program = || {
            let lock = Arc::new(ReadMostly::<u32, Sim>::new_in(IndexBy::Cpu, 0).expect("memory"));
            let mut written = lock.write().expect("a fence");
            let theirs = Arc::clone(&lock);
            let reader = Sim::spawn(Placement::On(CpuId::new(1)), move || *theirs.read());
            // Each wake is to the reader what one more writer is that was faster.
            let (mut slept, end) = (0, Sim::now() + Duration::from_millis(50));
            while Sim::now() < end {
                slept += Sim::wake(&raw const lock.closed, 1);
                Sim::sleep(Duration::from_micros(50));
            }
            *written = 7;
            drop(written);
            assert_eq!(reader.expect("a thread").join(), 7);
            slept
        };
        let run = Machine::preset("host-2c").expect("a preset").run(program).expect("it ends");
        assert_eq!(run.value, SLEEPS);
    }

    #[test]
    fn a_reader_that_sees_the_lock_closed_is_not_counted() {
        let lock = ReadMostly::new(0).unwrap();
        let written = lock.write().unwrap();
        assert!(lock.try_read().is_none());
        assert_eq!(lock.counts.field(|slot| &slot.came).sum(), 0);
        drop(written);
        assert_eq!(lock.try_read().map(|data| *data), Some(0));
    }
}
