//! [`Collector`]: readers, grace periods, and the values that wait for these.
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `HELP` | the backlog stays | a call is long | `a_call_frees_two_batches_..`, in `tests.rs` |
//! | two batches wait for the lock | a list grows | | `a_list_has_at_most_two_batches_..` |
//! | `patience` | readers hold up memory | | `beside_a_stuck_reader_..`, in the laws of calls |

use core::mem;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;

use coreline_world::{Cell, CellMut, IndexBy, Lacking, Line, Native};
use coreline_world::{Ordering, Time, Word, World};

use super::backlog::{Backlog, Lists, Retired};
use super::periods::{Readers, Steps};
use crate::lock::spin::{barge, doze};
use crate::panics::Panics;
use crate::percpu::{PoolError, SlotLock, SlotLockGuard};
use crate::reclaim::{self, Reclaimers};

/// A call of `retire` frees this many times as many values as it adds, so that the backlog shrinks.
/// It does not count batches: those that others made may have few values.
const HELP: usize = 2;

/// The options of a [`Collector`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct CollectorOptions {
    index_by: IndexBy,
    batch: usize,
    limit: usize,
    patience: Duration,
}

impl CollectorOptions {
    /// Creates the default options: counts by CPU number, batches of 256 values, a limit of 65,536
    /// values, and a patience of 1 ms.
    pub const fn new() -> Self {
        let patience = Duration::from_millis(1);
        CollectorOptions { index_by: IndexBy::Cpu, batch: 256, limit: 1 << 16, patience }
    }

    /// Sets the index that selects a reader's counts.
    pub const fn index_by(mut self, by: IndexBy) -> Self {
        self.index_by = by;
        self
    }

    /// Sets how many values a CPU's list takes before they become a batch, at least 1. Each batch
    /// costs a grace period, with its heavy fence, unless another batch shares it.
    pub const fn batch(mut self, values: usize) -> Self {
        self.batch = if values == 0 { 1 } else { values };
        self
    }

    /// Sets how many values in batches may wait before [`retire`](Collector::retire) waits for the
    /// grace period, and the maximum time of that wait. See [`Collector`] about memory.
    pub const fn limit(mut self, values: usize, patience: Duration) -> Self {
        (self.limit, self.patience) = (values, patience);
        self
    }
}

impl_default!([] CollectorOptions, new);

/// A domain of readers, and of values that are freed when no reader can hold them any more.
///
/// See [the module](super) for an example, for what each call costs, and for the rules.
///
/// **Law**: a value that a section may have found is freed after the section ends. A call of
/// [`synchronize`](Collector::synchronize) returns after the end of all sections that were in
/// progress when the call began, even if new sections begin all the time.
///
/// **Memory**: a collector uses 32 bytes for each CPU that reads, 64 bytes for each CPU of the
/// machine, and 4 KiB for each CPU that retires. Of the values themselves,
///
/// - fewer than [`batch`](CollectorOptions::batch) stay on each CPU that retired, until more are
///   retired there, or until a [`barrier`](Collector::barrier) or a
///   [reclaimer](Collector::reclaimer) frees them. If another thread drives a grace period when a
///   batch is full, up to two batches stay. Then `retire` waits for that thread;
/// - values that were retired since the oldest section began stay until it ends, because it may
///   have found them. If a reader is stuck, these are all later values;
/// - if more values than the [limit](CollectorOptions::limit) wait, each CPU's `retire` waits for
///   up to the patience, once for each batch. By default, a stuck reader then costs memory for 256
///   values per millisecond and retiring thread. With a patience of [`Duration::MAX`], the bound is
///   strict: the limit, and two batches for each retiring thread and each CPU. Then a stuck reader
///   stops all threads that retire, and no thread may retire in a section of its own: see [the
///   rules](super#rules). A drop that itself retires values does not wait, so these values are not
///   part of the bound.
///
/// If the kernel refuses `membarrier` after it once allowed it, no further value is freed before
/// the collector is dropped, and `retire` does not wait.
///
/// To check the backlog before you unlink a value, read [`pending`](Collector::pending).
///
/// **Panics**: if a deferred function or the drop of a retired value panics, the others of its
/// batch still run. Then the call that ran them (`retire`, `defer`, `barrier` or the drop of the
/// collector) resumes the first panic. A reclaimer's thread continues.
///
/// **Priorities**: readers never wait. A thread that waits for a grace period sleeps between its
/// checks, so readers of lower priority can run. Readers inherit no priority from it.
///
/// **Signals**: in a signal handler, [`enter`](Collector::enter) and the drop of a
/// [`Guard`](super::Guard) are async-signal-safe. No other call is, and neither is the drop of an
/// [`OwnedGuard`](super::OwnedGuard), which may drop the collector.
///
/// **Thread exit**: the collector keeps no state of threads. A thread that ends with a forgotten
/// guard leaves a section that never ends. Then no value that is retired later is freed before the
/// collector is dropped.
///
/// **Fork**: see [`after_fork`](Collector::after_fork). Without that call, sections of the parent's
/// other threads never end in the child.
///
/// **Drop**: dropping the collector frees all values that wait. At that time no guard exists,
/// because guards borrow the collector or own a handle. A deferred function that owns a handle
/// keeps the collector alive until the function has run. If it owns the last handle, it never runs,
/// and the collector leaks.
pub struct Collector<W: World = Native> {
    pub(super) readers: Readers<W>,
    lists: Lists<W>,
    options: CollectorOptions,
    /// The generation of the memory in which a reclaimer runs, or 0 if there is no reclaimer.
    served: W::U32,
    /// On a line of its own: readers look at what comes before.
    periods: Line<Periods<W>>,
    pub(super) asked: W::U32,
}

/// Grace periods and what waits for them, under a lock that is not FIFO: in a queue, a waiter that
/// is not running would hold up all others.
struct Periods<W: World> {
    lock: SlotLock<W>,
    /// 1: a thread changes the state. Found by the holder of the lock, or by the owner, it says
    /// that a fork left that thread behind.
    torn: W::U32,
    state: Cell<State, W>,
}

struct State {
    steps: Steps,
    backlog: Backlog,
    reclaimers: Reclaimers,
}

impl State {
    /// In the child of a fork, whose batches are not whole: their values are never freed.
    fn forget_torn(&mut self) {
        mem::forget(mem::replace(&mut self.backlog, Backlog::NONE));
    }
}

/// The proof that the caller holds the lock. The access ends before the lock is free.
struct Locked<'a, W: World> {
    state: CellMut<'a, State, W>,
    torn: &'a W::U32,
    _lock: SlotLockGuard<'a, W, ()>,
}

impl<W: World> Periods<W> {
    fn new_in() -> Self {
        let (steps, backlog, reclaimers) = (Steps::NONE, Backlog::NONE, Reclaimers::NONE);
        let state = Cell::new_in(State { steps, backlog, reclaimers });
        Periods { lock: SlotLock::new_in(), torn: W::U32::new_in(0), state }
    }

    fn lock(&self) -> Locked<'_, W> {
        self.locked(self.lock.lock_outside_handlers())
    }

    fn try_lock(&self) -> Option<Locked<'_, W>> {
        self.lock.try_lock_outside_handlers().map(|lock| self.locked(lock))
    }

    fn locked<'a>(&'a self, lock: SlotLockGuard<'a, W, ()>) -> Locked<'a, W> {
        // SAFETY: the lock keeps all other threads away.
        let mut state = unsafe { self.state.borrow_mut() };
        // Relaxed: only holders of the lock write it.
        if self.torn.load(Ordering::Relaxed) != 0 {
            state.forget_torn();
        }
        // Relaxed: the fence orders it.
        self.torn.store(1, Ordering::Relaxed);
        // Release: a fork copies no later change of the state without the 1.
        W::fence(Ordering::Release);
        Locked { state, torn: &self.torn, _lock: lock }
    }
}

impl<W: World> Deref for Locked<'_, W> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl<W: World> DerefMut for Locked<'_, W> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl<W: World> Drop for Locked<'_, W> {
    fn drop(&mut self) {
        // Release: a fork copies the 0 only with all changes of the state.
        self.torn.store(0, Ordering::Release);
    }
}

// A panic leaves nothing half-way: values are freed outside of the locks.
impl<W: World> UnwindSafe for Collector<W> {}
impl<W: World> RefUnwindSafe for Collector<W> {}

impl Collector {
    /// Creates a collector without readers, with the default options.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if there is no memory.
    pub fn new() -> Result<Self, PoolError> {
        Self::with_options(CollectorOptions::new())
    }

    /// Creates a collector without readers, with these options.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if the machine does not have the index, or if there is no memory.
    pub fn with_options(options: CollectorOptions) -> Result<Self, PoolError> {
        Self::new_in(options)
    }
}

impl<W: World> Collector<W> {
    /// Creates a collector, like [`with_options`](Collector::with_options), in world `W`.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if the machine does not have the index, or if there is no memory.
    pub fn new_in(options: CollectorOptions) -> Result<Self, PoolError> {
        Ok(Collector {
            readers: Readers::new_in(options.index_by)?,
            lists: Lists::new_in()?,
            options,
            served: W::U32::new_in(0),
            periods: Line(Periods::new_in()),
            asked: W::U32::new_in(0),
        })
    }

    /// Waits for a grace period: until all sections that are now in progress have ended. The caller
    /// then frees what it unlinked before. In a section of the same collector, the call waits
    /// forever.
    ///
    /// # Errors
    ///
    /// Natively, [`Lacking`] if the kernel refuses `membarrier` after it once allowed it.
    pub fn synchronize(&self) -> Result<(), Lacking> {
        self.wait(None).map(|_| ())
    }

    /// Waits like [`synchronize`](Collector::synchronize), but until `deadline` at most. Returns
    /// false if a section that was in progress may still be.
    ///
    /// # Errors
    ///
    /// The same errors as for [`synchronize`](Collector::synchronize).
    pub fn synchronize_by(&self, deadline: Time) -> Result<bool, Lacking> {
        self.wait(Some(deadline))
    }

    fn wait(&self, deadline: Option<Time>) -> Result<bool, Lacking> {
        let mut wanted = None;
        until::<W, _>(deadline, || {
            let mut periods = self.periods.0.lock();
            let wanted = *wanted.get_or_insert(periods.steps.next());
            let stepped = periods.steps.step(&self.readers, wanted);
            stepped.map(|()| (periods.steps.over() >= wanted).then_some(())).transpose()
        })
    }

    /// Retires a value that came from [`Box::into_raw`]: drops its box after a grace period.
    ///
    /// The value may be dropped on any thread that uses the collector, in any later call of
    /// `retire`, `defer` or `barrier`. So its drop must take no lock that a caller of these methods
    /// may hold, and must not wait for a grace period.
    ///
    /// The call does not wait for readers, unless more values wait than the
    /// [limit](CollectorOptions::limit). Then it waits for up to the patience. If the caller
    /// itself is in a section, this wait is useless, and endless with a patience of
    /// [`Duration::MAX`].
    ///
    /// # Safety
    ///
    /// - The value is unlinked: no section that begins later finds it.
    /// - No other call retires or frees it.
    /// - Until the grace period is over, only readers in sections of this collector use the value,
    ///   through shared references.
    pub unsafe fn retire<T: Send + 'static>(&self, value: *mut T) {
        unsafe fn free<T>(value: *mut T) {
            // SAFETY: from a box, and freed once.
            drop(unsafe { Box::from_raw(value) });
        }
        // SAFETY: the caller's promise.
        unsafe { self.retire_with(value, free::<T>) };
    }

    /// Retires a value of any origin, like [`retire`](Collector::retire): calls `free(value)` after
    /// a grace period. Use it for values of an allocator, a pool or a cache of your own.
    ///
    /// # Safety
    ///
    /// The conditions of [`retire`](Collector::retire) hold. After the grace period, the call
    /// `free(value)` is sound on any thread, even while the collector is dropped.
    #[inline]
    pub unsafe fn retire_with<T: Send + 'static>(&self, value: *mut T, free: unsafe fn(*mut T)) {
        // SAFETY: the caller's promise.
        self.push(unsafe { Retired::new(value, free) });
    }

    /// Calls `f` after a grace period, when all sections that are now in progress have ended.
    /// Otherwise, the call works like [`retire`](Collector::retire).
    pub fn defer(&self, f: impl FnOnce() + Send + 'static) {
        self.push(Retired::call(f));
    }

    #[inline]
    fn push(&self, retired: Retired) {
        let (at, len) = self.lists.push(retired, self.options.batch);
        if len == 1 || len >= self.options.batch {
            self.pushed(at, len);
        }
    }

    /// A list has its first value, or is full.
    #[cold]
    #[inline(never)]
    fn pushed(&self, at: usize, len: usize) {
        let batch = self.options.batch;
        // Not at each one, if another thread helps for long; but that one may be preempted, and
        // the list must not grow meanwhile.
        let locked = if !len.is_multiple_of(batch) {
            None
        } else if len / 2 >= batch {
            Some(self.periods.0.lock())
        } else {
            self.periods.0.try_lock()
        };
        let Some(mut periods) = locked else {
            // Relaxed: a reclaimer that starts meanwhile looks at all lists when it begins.
            let served = self.served.load(Ordering::Relaxed) == W::generation().get();
            // The first of a list may fill it, too: a batch of one.
            if served && (len == 1 || len.is_multiple_of(batch)) {
                reclaim::ask::<W>(&self.asked);
            }
            return;
        };
        let next = periods.steps.next();
        periods.backlog.take(&self.lists, at, batch, next);
        // Under the lock, so that no value is freed here after a reclaimer has begun.
        let served = periods.reclaimers.are_there::<W>();
        let help = if served { 0 } else { batch.saturating_mul(HELP) };
        let mut panics = Panics::NONE;
        // No fence: all stays for the next time.
        let helped = self.help(periods, &mut Share::of(help), &mut panics);
        if served {
            reclaim::ask::<W>(&self.asked);
        }
        if helped == Ok(true) {
            self.throttle(help, &mut panics);
        }
        panics.resume::<W>();
    }

    /// Goes on with the grace period, and frees a share of what is ready. Returns whether the
    /// caller may wait for the rest: not inside a batch.
    fn help<'a>(
        &'a self,
        mut periods: Locked<'a, W>,
        share: &mut Share,
        panics: &mut Panics,
    ) -> Result<bool, Lacking> {
        let wanted = periods.backlog.wanted();
        periods.steps.step(&self.readers, wanted)?;
        while share.values > 0 {
            let over = periods.steps.over();
            let Some(ready) = periods.backlog.ready::<W>(over, share.batches) else { break };
            drop(periods);
            share.values = share.values.saturating_sub(ready.len());
            let ready = ready.run(panics);
            if share.end.is_some_and(|end| !W::RUNS || W::now() >= end) {
                share.values = 0;
            }
            periods = self.periods.0.lock();
            periods.backlog.finish(ready);
        }
        Ok(!periods.backlog.is_run_here::<W>())
    }

    /// Waits while too many values wait, for as long as the options say.
    fn throttle(&self, help: usize, panics: &mut Panics) {
        let is_over = || {
            let periods = self.periods.0.lock();
            let within = periods.backlog.values() <= self.options.limit;
            let share = &mut Share::of(help);
            (within || self.help(periods, share, panics).is_err()).then_some(Ok(()))
        };
        if W::RUNS && self.periods.0.lock().backlog.values() > self.options.limit {
            let end = W::now() + self.options.patience;
            let _: Result<bool, ()> = until::<W, _>(Some(end), is_over);
        }
    }

    /// Waits until everything that was retired or deferred before this call is freed, and frees a
    /// part of it. The kernel has `rcu_barrier` for this. In a section of the same collector, or in
    /// a deferred function, the call waits forever.
    ///
    /// ```
    /// use coreline::rcu::Collector;
    /// use std::sync::mpsc::channel;
    ///
    /// let collector = Collector::new()?;
    /// let (tell, told) = channel();
    /// collector.defer(move || tell.send("no section is left").unwrap());
    /// collector.barrier()?;
    /// assert_eq!(told.try_recv(), Ok("no section is left"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The same errors as for [`synchronize`](Collector::synchronize).
    pub fn barrier(&self) -> Result<(), Lacking> {
        self.drain_and_resume(None).map(|_| ())
    }

    /// Waits like [`barrier`](Collector::barrier), but until `deadline` at most. The call finishes
    /// a batch that it has begun to free, and may begin its first one after the deadline. Returns
    /// false if some values are left.
    ///
    /// # Errors
    ///
    /// The same errors as for [`synchronize`](Collector::synchronize).
    pub fn barrier_by(&self, deadline: Time) -> Result<bool, Lacking> {
        self.drain_and_resume(Some(deadline))
    }

    fn drain_and_resume(&self, deadline: Option<Time>) -> Result<bool, Lacking> {
        let mut panics = Panics::NONE;
        let drained = self.drain(deadline, deadline, &mut panics);
        panics.resume::<W>();
        drained
    }

    /// Frees what was retired before this call. It waits for readers until `deadline` at most, and
    /// begins no further batch after `end`.
    pub(super) fn drain(
        &self,
        deadline: Option<Time>,
        end: Option<Time>,
        panics: &mut Panics,
    ) -> Result<bool, Lacking> {
        let mut all = None;
        let mut share = Share { end, ..Share::of(usize::MAX) };
        until::<W, _>(deadline, || {
            let mut periods = self.periods.0.lock();
            let next = periods.steps.next();
            let all = *all.get_or_insert_with(|| {
                periods.backlog.take_all(&self.lists, next);
                periods.backlog.batches()
            });
            // Not those that come later: they may come all the time.
            share.batches = all;
            let done = self.help(periods, &mut share, panics);
            let done = done.map(|_| self.periods.0.lock().backlog.is_done(all).then_some(()));
            done.transpose()
        })
    }

    /// Returns the number of values that were retired and not freed, including deferred functions
    /// that have not run. It does not count the values of a batch that a thread is freeing.
    ///
    /// The call takes the lock of each CPU's list.
    pub fn pending(&self) -> usize {
        // Under the lock, so that no value moves from a list that is not counted yet to a batch.
        let periods = self.periods.0.lock();
        periods.backlog.values() + self.lists.len()
    }

    /// Returns the number of sections that are in progress. It is exact if none begins or ends
    /// meanwhile. If values wait for a long time, the number distinguishes a stuck reader from a
    /// grace period that no thread drives.
    pub fn readers(&self) -> u64 {
        self.readers.number()
    }

    /// Makes the collector usable in the child of a fork: ends the sections of the parent's other
    /// threads, and frees locks that they held.
    ///
    /// Without this call, these sections never end in the child, and a call of the child may wait
    /// for a list that another thread used. Values that such a thread was about to retire, and
    /// those of a list or of batches that it was changing or running, are never freed in the child.
    ///
    /// # Safety
    ///
    /// The caller is the only thread of a child since the fork. It is not in a signal handler, and
    /// is in no call of this collector. No guard from before the fork is ever dropped or used in
    /// the child.
    pub unsafe fn after_fork(&self) {
        // SAFETY: the caller is the only thread, and in no call.
        unsafe { self.lists.take_over() };
        self.readers.lose_all();
        self.periods.0.lock().backlog.lose_running();
    }

    pub(super) fn with_reclaimers(&self, f: &mut dyn FnMut(&mut Reclaimers)) {
        let mut periods = self.periods.0.lock();
        f(&mut periods.reclaimers);
        let here = periods.reclaimers.are_there::<W>();
        let served = if here { W::generation().get() } else { 0 };
        // Relaxed: a hint, for `pushed`.
        self.served.store(served, Ordering::Relaxed);
    }
}

/// What a call frees of the batches that are ready.
struct Share {
    /// Batches until so many values are freed.
    values: usize,
    /// None behind the first so many.
    batches: u64,
    /// Then no further one.
    end: Option<Time>,
}

impl Share {
    fn of(values: usize) -> Self {
        Share { values, batches: u64::MAX, end: None }
    }
}

/// Looks until something is done, at once and then less and less often. Returns `false` if
/// `deadline` comes first. It does not spin for long: a reader of lower priority may want the CPU.
fn until<W: World, E>(
    deadline: Option<Time>,
    mut look: impl FnMut() -> Option<Result<(), E>>,
) -> Result<bool, E> {
    let mut found = None;
    let mut look_at = || {
        found = look();
        found.is_some()
    };
    if !barge::<W>(&mut look_at) {
        let _: Option<()> = doze::<W, _>(deadline, || look_at().then_some(()));
    }
    found.map_or(Ok(false), |done| done.map(|()| true))
}

impl<W: World> Drop for Collector<W> {
    fn drop(&mut self) {
        let periods = &mut self.periods.0;
        let state = periods.state.get_mut();
        // In a child that did not call `after_fork`. Relaxed: the owner is the only thread.
        if periods.torn.load(Ordering::Relaxed) != 0 {
            state.forget_torn();
        }
        let mut panics = Panics::NONE;
        state.backlog.rest().for_each(|ready| _ = ready.run(&mut panics));
        self.lists.drain().for_each(|retired| panics.run(|| retired.free()));
        panics.resume::<W>();
    }
}

impl_debug!([W: World] Collector<W> as it {
    readers: it.readers(),
    options: it.options,
    ..
});

#[cfg(test)]
mod tests;
