//! Calls to polling workers, without unnecessary wake-ups.
//!
//! [`Workers`] are threads, one pinned to each CPU, that run functions for other threads. A
//! **call** is a function that the caller waits for, like the kernel's `smp_call_function_single`.
//! A **task** is queued, and any worker may run it. The tasks of a [scope](Workers::scope) may
//! borrow. A **future** of a worker [lives on it](Workers::spawn_local_on) and need not be `Send`.
//!
//! ```
//! use coreline::Workers;
//!
//! let workers = Workers::new()?;
//! let cpu = workers.cpus().next().unwrap();
//! let mut greeting = String::from("hello");
//! let length = workers.call_on(cpu, || {
//!     greeting.push_str(" from a worker");
//!     greeting.len()
//! });
//! assert_eq!((length?, greeting.len()), (19, 19));
//!
//! let sums: Vec<_> = (0..8).map(|n| workers.spawn(move || n * n)).collect::<Result<_, _>>()?;
//! assert_eq!(sums.into_iter().map(|task| task.wait()).sum::<i32>(), 140);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a call costs
//!
//! A worker without work polls its *wake word*, which is also a one-slot mailbox. The polling time
//! adapts to the gaps between messages. After the polling time, the worker sleeps, as with the
//! kernel's haltpoll. If other threads want its CPU, the worker polls for a few microseconds only.
//! A caller on such a CPU polls for up to 100 us, and does not yield, because a yield would cost a
//! time slice. It does so even if the worker of its own CPU must run before the answer comes,
//! unless it called that worker. A polling thread detects by the clock that it did not run for a
//! while, because other threads want its CPU. Later, it tries a yield again, in case they are gone.
//! A call
//! to a polling worker costs one exchange and no system call. The cache line of the mailbox moves
//! to the worker. The line of the request moves to the worker, too, and returns with the value. If
//! the function and its value have at most three words each, the request fits into the mailbox's
//! line, provided that this line is free. This costs a second exchange on a line that the caller's
//! CPU already owns, and saves both transfers of the request's line. A small
//! [`call_async`](Workers::call_async) uses the line in the same way until its reply has the value,
//! so keep no replies of calls for long: meanwhile other calls need a second line. A call that
//! finds the mailbox occupied queues behind it. The nodes of that queue lie on the stacks of the
//! callers, or on the heap.
//!
//! A call does not announce work. The worker runs the call and continues to wait. The worker looks
//! for tasks only if the function queued a task on that worker, or if a message of another kind
//! tells it to. Nayak proposes the same for the kernel. In the kernel, the bit that means "there is
//! work" also announces a call to an idle CPU. The idle CPU then searches for work with interrupts
//! off, while the next call waits.
//!
//! # Law
//!
//! * A call runs exactly once, on its worker, and then its caller returns.
//! * No wake-up is lost. A worker does not sleep while a call to it waits, or while a task in its
//!   own queue waits.
//! * Suppose that another thread queued a task that any worker may run. The task does not wait for
//!   a call to end while some worker has neither a task nor a call.
//! * Workers that call each other, even in a cycle, do not wait forever, because a waiting worker
//!   serves calls.
//! * After [`close`](Workers::close) no new call is accepted. Calls that were sent before still
//!   run.
//! * A [scope](Workers::scope) ends after its tasks, even if it or they panic. It ends even if its
//!   owner is the only worker.
//! * A future is polled and dropped on its worker alone. It is polled after each wake-up until it
//!   ends.
//! * If a function queues a task on the worker that runs it, that worker runs tasks next, and
//!   [`need_resched`](Workers::need_resched) returns true from then on.
//!
//! # What it does not do
//!
//! * Calls should be short, because other calls to the same worker wait for them unless they
//!   [serve](Workers::serve). Tasks that a call queues on its worker also wait for the call. A call
//!   that waits for a task that it queued on its own worker waits forever. In that case
//!   [`Reply::checked_wait`] returns an error if no other worker could run the task.
//! * Only workers of one set serve each other while they wait. Two sets that call each other in a
//!   cycle may wait forever. A call may also wait forever if it waits for a thread that calls the
//!   same worker.
//! * While workers end, a worker's call to another worker may be refused, because each worker ends
//!   when it has nothing more to do itself. A task that then waits for a task that it queued may
//!   wait forever.
//!
//! # Signals, fork, panics
//!
//! **Signals**: a signal handler must not use this module, because its functions allocate and wait.
//! **Fork**: a child has no workers. Its calls and tasks are refused ([`CallError::Forked`]), and
//! dropping the workers in the child does not wait. A [`Reply`] that was pending at the fork never
//! becomes ready in the child, so pass it to `mem::forget`. A child that a worker has forked must
//! exit, or begin another program, before the function that forked returns. If the function
//! returns, calls that the worker has taken before may also run in the child, and a function that
//! waits for another worker waits forever. Otherwise, the thread ends without running any further
//! task, future or hook, and the child ends with it. **Panics**: a panic in a called
//! function is resumed in the caller. A panic in a task is resumed in the thread that waits for its
//! value. The worker survives both.
//!
//! # Source
//!
//! Nayak, ["Introducing TIF_NOTIFY_IPI flag"][nayak] (2024); `kernel/smp.c` (a request on the
//! caller's stack); haltpoll; the limit on the number of searching threads in Go's and Tokio's
//! schedulers.
//!
//! [nayak]: https://lore.kernel.org/lkml/20240220171457.703-1-kprateek.nayak@amd.com

mod builder;
mod current;
mod event_count;
mod local;
mod locals;
mod mailbox;
mod many;
mod parcel;
mod policy;
mod polling;
mod post;
mod refused;
mod reply;
mod request;
mod scope;
mod shared;
mod stats;
mod tasks;
mod users;
mod waits;
mod worker;

use core::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;

use coreline_topology::{CpuId, CpuSet};
use coreline_world::{JoinHandle, Native, Threads, World};

pub use builder::{Builder, StartError};
pub use local::{Cancelled, FutureReply};
pub use many::Replies;
pub use policy::Policy;
use post::Posted;
pub use refused::{CallError, OwnWorker, Refused};
pub use reply::{Reply, WaitsForItself};
use request::{Caller, PanicResult, Request, keep_first};
pub use scope::Scope;
use shared::Shared;
pub use stats::WorkerStats;
pub use users::{NotAWorker, Users, Using};
use worker::Worker;

use crate::panics::quietly;

/// A set of threads, each pinned to its own CPU, that run calls and tasks. See the [module](self).
///
/// Dropping the value closes the set, and waits until all calls and tasks that were sent have run.
/// If the dropping thread is a worker of this set, even a worker that has ended its work, the drop
/// does not wait. The workers then end when they have nothing more to do, and
/// [`join`](Workers::join) returns an error on such a thread. On a worker of another set, a drop
/// serves calls while it waits. If the drop is nested in four calls, it serves only calls that come
/// from workers. So if these workers wait for a call from another thread, the drop may never end.
pub struct Workers<W: World + Threads = Native> {
    shared: Arc<Shared<W>>,
    threads: Vec<W::JoinHandle<()>>,
}

// A function that panics leaves the workers as they were: the panic goes to its caller.
impl<W: World + Threads> UnwindSafe for Workers<W> {}
impl<W: World + Threads> RefUnwindSafe for Workers<W> {}

impl Workers {
    /// Starts a worker on each CPU that the calling thread may use.
    ///
    /// # Errors
    ///
    /// [`StartError`] if a worker cannot be started. Then no worker runs.
    pub fn new() -> Result<Self, StartError> {
        Self::builder().start()
    }

    /// Returns a builder, which chooses the CPUs that have a worker, and how workers wait.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<W: World + Threads> Workers<W> {
    /// Returns a builder, like [`builder`](Workers::builder), for workers in world `W`.
    pub fn builder_in() -> Builder<W> {
        Builder::default()
    }

    /// Returns the CPUs that have a worker, ordered by node and cache.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.shared.workers.iter().map(|worker| worker.cpu)
    }

    /// Runs `function` on the worker of `cpu`, and returns its value. If the caller is that worker
    /// itself, `function` runs immediately.
    ///
    /// The calls to a worker mostly run in the order of their arrival. But a call that arrives
    /// while the worker runs another one may run after calls that arrive later, and after one task.
    ///
    /// While a worker waits here, it serves calls nested in its own function. So its stack grows by
    /// the frames of the served calls. If four calls are nested, the worker serves only calls from
    /// workers. There are at most as many of these calls as waiting functions. Calls from other
    /// threads, and those of [`call_async`](Workers::call_async) from any thread, wait until the
    /// worker has finished one of the four calls. Keep the functions that you call this way short,
    /// and let them hold no lock while they call.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the function, if the CPU has no worker, if the workers are closed, or in a
    /// forked child.
    ///
    /// # Panics
    ///
    /// Panics if `function` panics.
    pub fn call_on<R, F>(&self, cpu: CpuId, function: F) -> Result<R, Refused<F>>
    where
        F: FnOnce() -> R + Send,
        R: Send,
    {
        self.call(cpu, function, false)
    }

    /// Runs `function` on the worker of `cpu`, like [`call_on`](Workers::call_on), but only if the
    /// worker's mailbox is free. The mailbox is occupied by a call, or by the news of a task, until
    /// the worker takes it. Then the mailbox is free, even while the worker runs that call and more
    /// calls wait. So an accepted call may still wait.
    ///
    /// # Errors
    ///
    /// The same errors as for [`call_on`](Workers::call_on), and [`CallError::Busy`].
    ///
    /// # Panics
    ///
    /// Panics if `function` panics.
    pub fn try_call_on<R, F>(&self, cpu: CpuId, function: F) -> Result<R, Refused<F>>
    where
        F: FnOnce() -> R + Send,
        R: Send,
    {
        self.call(cpu, function, true)
    }

    #[inline]
    fn call<R, F>(&self, cpu: CpuId, function: F, tries: bool) -> Result<R, Refused<F>>
    where
        F: FnOnce() -> R + Send,
        R: Send,
    {
        let shared = &*self.shared;
        let current = shared.current();
        if let Err(why) = shared.admit(current) {
            return Err(Refused { why, function });
        }
        let Some(index) = shared.worker(cpu) else {
            return Err(Refused { why: CallError::NoWorker(cpu), function });
        };
        if current == Some(index) {
            return Ok(function());
        }
        let callee = &shared.workers[index];
        let value = match callee.mailbox.parcel().pack(function, Caller::new(current)) {
            Ok(parcel) => {
                // SAFETY: the parcel is the worker's as long as this is borrowed, and this waits
                // below until the call is done.
                match unsafe { callee.send(parcel.as_message(), false, shared.kicks()) } {
                    Ok(_) => {
                        shared.wait(current, parcel.header(), callee);
                        // SAFETY: it was sent, and is done.
                        unsafe { parcel.into_value() }
                    }
                    Err(why) => {
                        // SAFETY: it was not sent.
                        let function = unsafe { parcel.unpack() };
                        if tries || why != CallError::Busy {
                            return Err(Refused { why, function });
                        }
                        self.call_from_stack(current, index, function, tries)?
                    }
                }
            }
            Err(function) => self.call_from_stack(current, index, function, tries)?,
        };
        Ok(value.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// Calls a worker from another thread, with a request on this thread's stack.
    fn call_from_stack<R, F>(
        &self,
        current: Option<usize>,
        index: usize,
        function: F,
        tries: bool,
    ) -> Result<PanicResult<R>, Refused<F>>
    where
        F: FnOnce() -> R + Send,
        R: Send,
    {
        let request = Request::new_in(function, Caller::new(current));
        let message = request.as_message();
        // SAFETY: this waits below until the request is done, and does not unwind before.
        let sent = unsafe { self.shared.send(index, message, !tries) };
        if let Err(why) = sent {
            return Err(Refused { why, function: request.into_function() });
        }
        self.shared.wait(current, request.header(), &self.shared.workers[index]);
        Ok(request.into_value())
    }

    /// Runs `function` on all of these CPUs at the same time, and returns the values when all CPUs
    /// have run it. A function that waits until it has begun on the other CPUs may wait forever.
    /// On one of those CPUs, the call of another thread may run first and wait in the same way.
    ///
    /// # Errors
    ///
    /// [`CallError::NoWorker`] if a CPU has no worker. Then the function ran nowhere.
    /// [`CallError::Closed`] if the workers are closed. Then the function ran on some of the CPUs,
    /// or on none.
    ///
    /// # Panics
    ///
    /// Panics if the function panics on any of these CPUs, after all have run it. The call resumes
    /// the panic of the first such CPU.
    pub fn call_many<R, F>(&self, cpus: &CpuSet, function: F) -> Result<Vec<(CpuId, R)>, CallError>
    where
        F: Fn(CpuId) -> R + Sync,
        R: Send,
    {
        self.shared.call_many(cpus, function)
    }

    /// Sends `function` to the worker of `cpu` and does not wait. The reply is a future of the
    /// value. Dropping the reply withdraws the call. A call that has begun still runs to its end. A
    /// call that has not begun does not run.
    ///
    /// A worker that is inside four nested calls puts this one off, even if a worker sent it. So a
    /// function that a worker waits for must not wait for a reply of that worker. There, use
    /// [`call_on`](Workers::call_on).
    ///
    /// # Errors
    ///
    /// The same errors as for [`call_on`](Workers::call_on).
    pub fn call_async<R, F>(&self, cpu: CpuId, function: F) -> Result<Reply<R, W>, Refused<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let shared = &self.shared;
        self.post(Some(cpu), function, true, |index, function| {
            let callee = &shared.workers[index];
            let function = match callee.mailbox.parcel().post(function) {
                Ok(parcel) => {
                    // SAFETY: the parcel stays as long as the reply keeps `shared`.
                    match unsafe { callee.send(parcel.as_message(), false, shared.kicks()) } {
                        // SAFETY: it was sent, and the reply keeps `shared`.
                        Ok(_) => return Ok((unsafe { parcel.sent() }, Some(Arc::clone(shared)))),
                        Err(why) => {
                            // SAFETY: it was not sent.
                            let function = unsafe { parcel.take_back() };
                            if why != CallError::Busy {
                                return Err(Refused { why, function });
                            }
                            function
                        }
                    }
                }
                Err(function) => function,
            };
            // SAFETY: the letter stays until it was run.
            Self::mail(function, |message| unsafe { shared.send(index, message, true) })
        })
    }

    /// Queues `function` as a task, which any worker may run. If a worker without work is near the
    /// caller, that worker runs it. If the caller is a worker, the task is queued on that worker.
    /// The reply is a future of the value. Dropping the reply leaves the task queued.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the function, if the workers are closed, or in a forked child.
    pub fn spawn<R, F>(&self, function: F) -> Result<Reply<R, W>, Refused<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.post(None, function, false, |_, function| {
            Self::mail(function, |task| self.shared.spawn(tasks::Task(task), tasks::For::Any))
        })
    }

    /// Like [`spawn`](Workers::spawn), but only for the worker of `cpu`. If both kinds of tasks
    /// wait in its queue, it runs them in turn.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the function, if the CPU has no worker, if the workers are closed, or in a
    /// forked child.
    pub fn spawn_on<R, F>(&self, cpu: CpuId, function: F) -> Result<Reply<R, W>, Refused<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.post(Some(cpu), function, false, |index, function| {
            Self::mail(function, |task| self.shared.spawn_on(index, tasks::Task(task)))
        })
    }

    /// Sends `function` by `send`, and returns the reply to it. `withdraws`: dropping the reply
    /// withdraws the function.
    fn post<R, F>(
        &self,
        cpu: Option<CpuId>,
        function: F,
        withdraws: bool,
        send: impl FnOnce(usize, F) -> Result<Sent<R, W>, Refused<F>>,
    ) -> Result<Reply<R, W>, Refused<F>>
    where
        R: Send + 'static,
    {
        if let Err(why) = self.shared.admit(self.shared.current()) {
            return Err(Refused { why, function });
        }
        let index = match cpu.map(|cpu| self.shared.worker(cpu).ok_or(CallError::NoWorker(cpu))) {
            Some(Err(why)) => return Err(Refused { why, function }),
            Some(Ok(index)) => index,
            None => 0,
        };
        let (posted, keeps) = send(index, function)?;
        // A set of one worker has no other one to run a task.
        let is_bound = cpu.is_some() || self.shared.workers.len() == 1;
        let runner = is_bound.then(|| self.shared.seat_of(index));
        Ok(Reply::new(posted, keeps, withdraws, runner))
    }

    /// Sends `function` in a letter.
    fn mail<R, F>(
        function: F,
        send: impl FnOnce(NonNull<request::Header<W>>) -> Result<(), CallError>,
    ) -> Result<Sent<R, W>, Refused<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let letter = post::letter(function);
        match send(letter.as_message()) {
            // SAFETY: it was sent, and is no parcel.
            Ok(()) => Ok((unsafe { letter.sent() }, None)),
            // SAFETY: it was not sent.
            Err(why) => Err(Refused { why, function: unsafe { letter.take_back() } }),
        }
    }

    /// Returns whether the calling thread is one of these workers and other work waits for it. Such
    /// work is a call, a task in its own queue, or tasks of other workers that it should look for.
    /// A long call should return if this is true. A long task should [serve](Workers::serve) the
    /// calls. The method only looks, so it returns true until the work is done or another worker
    /// must do it.
    pub fn need_resched(&self) -> bool {
        self.shared.need_resched()
    }

    /// Runs calls that wait for the calling worker, and returns their number. On a thread that is
    /// not a worker, it returns zero.
    ///
    /// `serve` runs the call in the mailbox, then the calls that have queued behind a message by
    /// then, and then at most one call that was put off because four were nested. So it ends even
    /// if calls arrive without end, and a call that arrives meanwhile may have to wait for the next
    /// `serve`. It runs no tasks.
    ///
    /// Use it in a long task, or in a long call:
    ///
    /// ```
    /// use std::sync::{Arc, mpsc};
    ///
    /// use coreline::Workers;
    ///
    /// let workers = Arc::new(Workers::new()?);
    /// let cpu = workers.cpus().next().unwrap();
    /// let (theirs, (ends, over)) = (Arc::clone(&workers), mpsc::channel());
    /// let task = workers.spawn_on(cpu, move || {
    ///     // Until the call has run, here or before this task.
    ///     while over.try_recv().is_err() {
    ///         // A part of the work, and then:
    ///         if theirs.need_resched() {
    ///             theirs.serve();
    ///         }
    ///     }
    /// })?;
    /// workers.call_async(cpu, move || ends.send(()))?.wait()?;
    /// task.wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The calls run nested in the function that serves, on its stack. The same limits hold as for
    /// a function that waits in [`call_on`](Workers::call_on). If four calls are nested, `serve`
    /// runs only calls from workers. So a function that serves must hold no lock that a call takes,
    /// and must expect that calls change data that it shares with them. A served call may itself
    /// call, queue tasks and serve. The function that serves continues when the call returns.
    pub fn serve(&self) -> u32 {
        self.shared.serve()
    }

    /// Creates a record of which workers use some cached data, so that only these workers are
    /// notified of a change.
    pub fn users(&self) -> Users<W> {
        Users::new(Arc::clone(&self.shared))
    }

    /// Closes the set to new calls and tasks. Accepted calls and tasks may still send calls and
    /// tasks to workers that still run. The workers end when all accepted calls and tasks have run.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Closes the set, and waits until all calls and tasks have run, as dropping does.
    ///
    /// # Errors
    ///
    /// [`OwnWorker`], with these workers unchanged, if the calling thread is one of them. It would
    /// wait for its own end.
    pub fn join(self) -> Result<(), OwnWorker<W>> {
        // They are threads of the parent, which do not exist here, so this one is none of them.
        if W::generation() == self.shared.generation && self.is_own_thread() {
            return Err(OwnWorker { workers: self });
        }
        Ok(())
    }

    /// Closes the set, and waits until all calls and tasks have run, like [`join`](Workers::join).
    /// The functions that still run may use the set meanwhile.
    ///
    /// Returns `false` immediately if the calling thread is one of these workers, because it would
    /// wait for its own end. Then the set is not closed. In a forked child, which has no workers,
    /// the method does not wait.
    pub fn close_and_wait(&self) -> bool {
        if W::generation() != self.shared.generation {
            return true;
        }
        if self.is_own_thread() {
            return false;
        }
        self.shared.close();
        self.shared.wait_for_end(self.threads.len());
        true
    }

    /// Whether the calling thread is a worker of these, which may have ended. It asks the threads,
    /// because a thread's own variables may be gone before the workers are dropped.
    fn is_own_thread(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_current)
    }

    /// A function that returns the sum of [`stats`](Workers::stats), or `None` once the workers
    /// have been dropped. It keeps none of them.
    pub(crate) fn later_stats(&self) -> impl Fn() -> Option<WorkerStats> + Send + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || {
            let shared = shared.upgrade()?;
            let read = |it: &Worker<W>| it.counts.read(u64::from(it.tasks.depth()));
            Some(shared.workers.iter().map(read).fold(WorkerStats::default(), |all, it| all + it))
        }
    }

    /// Returns the counts of each worker's operations.
    pub fn stats(&self) -> impl Iterator<Item = (CpuId, WorkerStats)> + '_ {
        let read = |worker: &Worker<W>| worker.counts.read(u64::from(worker.tasks.depth()));
        self.shared.workers.iter().map(move |worker| (worker.cpu, read(worker)))
    }
}

impl<W: World + Threads> Drop for Workers<W> {
    fn drop(&mut self) {
        if W::generation() != self.shared.generation {
            // Threads of the parent: there is nothing to wait for.
            self.threads.drain(..).for_each(core::mem::forget);
            return;
        }
        self.shared.close();
        // A worker cannot wait for itself, nor for another one, which may wait for a call to this.
        if self.is_own_thread() {
            return;
        }
        if waits::seat::<W>().is_some() {
            self.shared.wait_for_end(self.threads.len());
        }
        // Each is waited for, also if a hook of one before has panicked.
        let mut panic = Ok(());
        for thread in self.threads.drain(..) {
            keep_first(&mut panic, catch_unwind(AssertUnwindSafe(|| thread.join())));
        }
        match panic {
            Err(panic) if !W::is_unwinding() => resume_unwind(panic),
            // A second panic would end the process.
            panic => quietly(|| drop(panic)),
        }
    }
}

/// The reply's end of what was sent, and what keeps its place.
type Sent<R, W> = (Posted<R, W>, Option<Arc<Shared<W>>>);

impl_debug!([W: World + Threads] Workers<W> as it { cpus: it.shared.workers.len(), .. });
