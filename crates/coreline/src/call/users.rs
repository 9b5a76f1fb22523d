//! Records which workers use something that each of them caches, and calls only those.
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `TRIM_EVERY` | workers are called in | they leave in vain | `a_shootdown_a_second_..` |

use core::marker::PhantomData;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;
use std::sync::Arc;

use coreline_world::{Line, Native, Ordering, Time, Word, World};

use super::CallError;
use super::shared::Shared;
use crate::TicketLock;
use crate::mask::{CpuMask, Entry, PresenceOptions, Shot};

/// The error for a calling thread that is not one of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the calling thread is not one of these workers; call `enter` only in calls and tasks that \
     they run"
)]
pub struct NotAWorker;

/// A record of which workers use some cached data, so that only these workers are notified of a
/// change. It corresponds to the kernel's `mm_cpumask`, and to calls to the CPUs in that mask.
/// [`Workers::users`](super::Workers::users) creates it.
///
/// A worker enters when it begins to use its cached data, and leaves when it is done. Leaving
/// clears no bit. [`shootdown`](Users::shootdown) calls a function on each worker whose bit is set.
/// The function runs on that worker between tasks, or while the worker waits for messages. So a
/// worker without work answers immediately, and need not look for changes, unlike a
/// [`Member`](crate::mask::Member).
///
/// ```
/// use coreline::Workers;
/// use coreline::mask::Entry;
///
/// let workers = Workers::new()?;
/// let users = workers.users();
/// let cpu = workers.cpus().next().unwrap();
/// let entry = || users.enter().unwrap().1;
/// assert_eq!(workers.call_on(cpu, entry)?, Entry::MustRefresh);
/// assert_eq!(workers.call_on(cpu, entry)?, Entry::Current);
/// let shot = users.shootdown(|| ())?;
/// assert_eq!(shot.reached + shot.away, 1, "no other worker used it");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// **Costs**: entering takes one load from the mask and one store to the worker's own cache line. A
/// shootdown calls all workers whose bits are set, at the same time. **Signals, fork**: see
/// [`Workers`](super::Workers).
///
/// # Law
///
/// A worker that enters during a shootdown either runs the shootdown's function or sees everything
/// that happened before the shootdown. After the shootdown, no worker uses data that it cached
/// before. Workers whose bit was set have run the function. The other workers get
/// [`Entry::MustRefresh`] when they next enter.
///
/// # Source
///
/// Nayak, ["Introducing TIF_NOTIFY_IPI flag"][nayak] (2024); van Riel, ["sched/x86: Optimize
/// switch_mm() for multi-threaded workloads"][riel] (2013); `should_flush_tlb` and the trimming of
/// `mm_cpumask` in the kernel since 6.13.
///
/// [nayak]: https://lore.kernel.org/lkml/20240220171457.703-1-kprateek.nayak@amd.com
/// [riel]: https://lore.kernel.org/r/20130731221421.616d3d20@annuminas.surriel.com
pub struct Users<W: World = Native> {
    shared: Arc<Shared<W>>,
    bits: CpuMask<W>,
    /// For each worker: how often it is inside. Only the worker writes it.
    inside: Box<[Line<W::U32>]>,
    /// When bits were last cleared.
    trimmed: TicketLock<Option<Time>, W>,
}

// If a function panics, the other workers still run it, and bits are cleared before a worker runs
// it.
impl<W: World> UnwindSafe for Users<W> {}
impl<W: World> RefUnwindSafe for Users<W> {}

impl<W: World> Users<W> {
    /// How often bits of workers that have left are cleared at most; see
    /// [`PresenceOptions::TRIM_EVERY`].
    const TRIM_EVERY: Duration = PresenceOptions::TRIM_EVERY;

    pub(super) fn new(shared: Arc<Shared<W>>) -> Self {
        let inside = shared.workers.iter().map(|_| Line(W::U32::new_in(0))).collect();
        Users { bits: CpuMask::new_in(), inside, trimmed: TicketLock::new_in(None), shared }
    }

    /// Enters, so that the calling worker may use its cached data until the guard is dropped. The
    /// returned [`Entry`] says whether the cached data is still valid. Later shootdowns reach this
    /// worker.
    ///
    /// A worker that waits for a call serves other calls meanwhile, including shootdowns, even
    /// while it holds the guard. So data that the worker read from its cache before the wait may be
    /// out of date after the wait.
    ///
    /// # Errors
    ///
    /// [`NotAWorker`] if the calling thread is not one of the workers.
    #[inline]
    pub fn enter(&self) -> Result<(Using<'_, W>, Entry), NotAWorker> {
        let index = self.shared.current().ok_or(NotAWorker)?;
        let inside = &*self.inside[index];
        // Relaxed, twice: the worker's own.
        inside.store(inside.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let using = Using { inside, _here: PhantomData };
        // Only the worker itself clears the bit: if the bit is set, the worker has run the
        // function.
        let is_new = self.bits.set(self.shared.workers[index].cpu).unwrap_or(true);
        if !is_new {
            return Ok((using, Entry::Current));
        }
        // Between the bit and the worker's look at what it will cache:
        //
        //   Announcer: changes it, finds the bit clear
        //   Worker:    sets the bit, caches what was there before     <- for ever
        //
        // Partner: the fence in `shootdown`.
        W::fence(Ordering::SeqCst);
        Ok((using, Entry::MustRefresh))
    }

    /// Runs `f` on each worker that may have cached data, and returns when all of them have run it.
    /// The result is the number of workers that it reached, and the number that had left. A
    /// worker that had left gets [`Entry::MustRefresh`] when it enters again.
    ///
    /// If the caller is a worker that uses the cached data, too, `f` also runs on that worker. The
    /// caller may hold a guard.
    ///
    /// # Errors
    ///
    /// [`CallError::Closed`] if the workers are closed, and [`CallError::Forked`] in a forked
    /// child. Then `f` may not have run on some workers. Once the [`Workers`](super::Workers) are
    /// dropped, no worker uses cached data any more.
    ///
    /// # Panics
    ///
    /// Panics if `f` panics on any worker, after all have run it. The call resumes the panic of the
    /// first such worker.
    pub fn shootdown(&self, f: impl Fn() + Sync) -> Result<Shot, CallError> {
        // Before the lock: a forked child may find that of another thread.
        self.shared.admit(self.shared.current())?;
        // Partner: the fence in `enter`.
        W::fence(Ordering::SeqCst);
        let users = self.bits.snapshot();
        let trims = self.trims();
        let tell = |cpu| {
            let index = self.shared.worker(cpu).expect("only workers enter");
            // Relaxed: the worker's own, and this runs on it.
            if trims && self.inside[index].load(Ordering::Relaxed) == 0 {
                // A worker has a bit: the mask is as wide as the machine.
                let _ = self.bits.clear(cpu);
                return false;
            }
            f();
            true
        };
        let told = self.shared.call_many(&users, tell)?;
        let reached = told.iter().filter(|(_, is_here)| *is_here).count();
        Ok(Shot { reached, away: told.len() - reached })
    }

    /// Whether it is time to clear bits.
    fn trims(&self) -> bool {
        let now = W::now();
        let mut trimmed = self.trimmed.lock();
        let is_time = trimmed.is_none_or(|at| now - at >= Self::TRIM_EVERY);
        if is_time {
            *trimmed = Some(now);
        }
        is_time
    }
}

/// The guard of a worker that uses its cached data. Dropping the guard ends the use. The drop costs
/// one store to the worker's own cache line.
pub struct Using<'a, W: World = Native> {
    inside: &'a W::U32,
    /// It is not `Send`: the worker that entered is the one that uses the cached thing.
    _here: PhantomData<*const ()>,
}

impl<W: World> Drop for Using<'_, W> {
    #[inline]
    fn drop(&mut self) {
        // Relaxed, twice: the worker's own.
        self.inside.store(self.inside.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }
}

impl_debug!([W: World] Users<W> as it { bits: it.bits, .. });

impl_debug!([W: World] Using<'_, W> { .. });

#[cfg(test)]
mod tests;
