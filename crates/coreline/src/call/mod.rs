//! Calls to polling workers, without unnecessary wake-ups.
//!
//! [`Workers`] are threads, one pinned to each CPU, that run what other threads send them. A
//! **call** is a function that the caller waits for, like the kernel's `smp_call_function_single`.
//! A **task** is queued, and any worker may run it.
//!
//! ```
//! use coreline::Workers;
//! use coreline::call::CallError;
//!
//! let workers = Workers::new()?;
//! let cpu = workers.cpus().next().unwrap();
//! let mut greeting = String::from("hello");
//! let length = workers.call_on(cpu, || {
//!     greeting.push_str(" from a worker");
//!     greeting.len()
//! });
//! // A function that is refused comes back, with what it borrows: the error is the cause alone.
//! let length = length.map_err(CallError::from)?;
//! assert_eq!((length, greeting.len()), (19, 19));
//!
//! let sums: Vec<_> = (0..8).map(|n| workers.spawn(move || n * n)).collect::<Result<_, _>>()?;
//! assert_eq!(sums.into_iter().map(|task| task.wait()).sum::<i32>(), 140);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a call costs
//!
//! A worker without work polls its *wake word*, which is also a one-slot mailbox. It polls for a
//! while that adapts to the gaps between messages, and then sleeps (as the kernel's haltpoll does).
//! If other threads want its CPU, the worker sleeps at once, and so do callers on that CPU. A
//! thread that polled has noticed by the clock that it was away. Another thread tries again later.
//! A call to a worker that polls is one exchange and no system call. The line of the mailbox moves
//! to the worker. The line of the request moves there, too, and comes back with the value. A
//! function of up to three words whose value has no more lies in the line of the mailbox itself, if
//! that is free. This costs a second exchange of a line that is already there, and saves the
//! request's line both ways. A call that finds the mailbox occupied queues behind it. The nodes of
//! that queue lie on the stacks of the callers.
//!
//! A call does not announce work: the worker runs it and goes on waiting. The worker looks for
//! tasks only if the function queued one there, or if a message of another kind says so. Nayak
//! proposes this for the kernel. There the bit that means "there is work" announces a call to an
//! idle CPU, which then searches for work with interrupts off while the next call waits.
//!
//! # Law
//!
//! * A call runs exactly once, on its worker, and then its caller returns.
//! * No wake-up is lost: a worker does not sleep while a call or a task of its own waits.
//! * No task of another thread that any worker may run waits for a call to end while there is a
//!   worker that has neither a task nor a call.
//! * Workers that call each other, in whatever ring, do not wait forever: a waiting worker serves
//!   calls.
//! * After [`close`](Workers::close) no new call runs. Calls that were sent before run.
//! * If a function queues a task on the worker that runs it, that worker runs tasks next.
//!   [`need_resched`](Workers::need_resched) returns true from then on.
//!
//! # What it does not do
//!
//! * Calls should be short: other calls to that worker wait for them unless they
//!   [serve](Workers::serve), and so do tasks that a call itself queues. A call that waits for a
//!   task of its own making waits forever. [`Reply::checked_wait`] returns an error if no other
//!   worker could run it.
//! * Only workers of one set serve each other while they wait. Two sets that call each other in a
//!   ring may wait forever. So may a call that waits for a thread which calls that worker.
//! * While workers end, a worker's call to another one may be refused. Each ends when it has
//!   nothing more to do itself. A task that then waits for a task of its own making may wait
//!   forever.
//!
//! # Signals, fork, panics
//!
//! **Signals**: a handler must call nothing here: all of it allocates and waits. **Fork**: a child
//! has no workers. Its calls and tasks are refused ([`CallError::Forked`]), and dropping the
//! workers there waits for nothing. A [`Reply`] that was under way at the fork never arrives there:
//! forget it. **Panics**: a panic in a call comes out of the call. A panic in a task comes out
//! where its value is waited for. The worker survives both.
//!
//! # Source
//!
//! Nayak, ["Introducing TIF_NOTIFY_IPI flag"][nayak] (2024); `kernel/smp.c` (a request on the
//! caller's stack); haltpoll; the throttling of searching threads in Go's and Tokio's schedulers.
//!
//! [nayak]: https://lore.kernel.org/lkml/20240220171457.703-1-kprateek.nayak@amd.com

mod bell;
mod builder;
mod many;
mod parcel;
mod policy;
mod polling;
mod post;
mod refused;
mod reply;
mod request;
mod shared;
mod stats;
mod tasks;
mod users;
mod worker;

use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use std::panic::resume_unwind;
use std::sync::Arc;

use coreline_topology::{CpuId, CpuSet};
use coreline_world::{JoinHandle, Native, Threads, World};

pub use builder::{Builder, StartError};
pub use policy::Policy;
pub use refused::{CallError, OwnWorker, Refused, WaitsForItself};
pub use reply::Reply;
use request::{Caller, Outcome, Request};
use shared::Shared;
pub use stats::WorkerStats;
pub use users::{NotAWorker, Users, Using};

/// Threads, one pinned to each of some CPUs, that run calls and tasks. See the [module](self).
///
/// Dropping closes them, and waits until everything that was sent has run. On the thread of one of
/// the workers, which may have ended, it does not wait: they end when they have nothing more to do.
/// [`join`](Workers::join) returns an error there. On a worker of another set, a drop serves calls
/// while it waits. In the middle of four calls it serves only those of workers, so what these
/// workers wait for may have to be a call of a worker.
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
    /// [`StartError`]; then none runs.
    pub fn new() -> Result<Self, StartError> {
        Self::builder().start()
    }

    /// Sets which CPUs have a worker, and how these wait.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<W: World + Threads> Workers<W> {
    /// As [`builder`](Workers::builder), in every world.
    pub fn builder_in() -> Builder<W> {
        Builder::default()
    }

    /// The CPUs that have a worker, by node and cache.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.shared.workers.iter().map(|worker| worker.cpu)
    }

    /// The CPU whose worker the calling thread is; `None` if it is none of these workers.
    ///
    /// This stays the same as long as the worker lives. The thread may still run on another CPU:
    /// the kernel moves it if an administrator takes its CPU from the cpuset of the process.
    ///
    /// ```
    /// use coreline::Workers;
    /// use coreline::call::CallError;
    ///
    /// let workers = Workers::new()?;
    /// let cpu = workers.cpus().next().unwrap();
    /// assert_eq!(workers.current(), None);
    /// assert_eq!(workers.call_on(cpu, || workers.current()).map_err(CallError::from)?, Some(cpu));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn current(&self) -> Option<CpuId> {
        self.shared.current().map(|index| self.shared.workers[index].cpu)
    }

    /// Runs `function` on the worker of `cpu`, after calls that are already there, and returns its
    /// value. On that worker itself, it runs at once.
    ///
    /// While a worker waits here it serves calls, in the middle of its function. So the stack grows
    /// by what it serves meanwhile. In the middle of four calls it serves only those of workers, of
    /// which there are no more than waiting functions. The others' wait until it is done with one.
    /// So called functions should be short, and hold no lock under which they call.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the function, if there is no such worker or it is closed.
    ///
    /// # Panics
    ///
    /// Panics if the function does.
    pub fn call_on<R, F>(&self, cpu: CpuId, function: F) -> Result<R, Refused<F>>
    where
        F: FnOnce() -> R + Send,
        R: Send,
    {
        self.call(cpu, function, false)
    }

    /// Like [`call_on`](Workers::call_on), but only if no other call is there.
    ///
    /// # Errors
    ///
    /// As for `call_on`, and [`CallError::Busy`].
    ///
    /// # Panics
    ///
    /// Panics if the function does.
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
        let value = match callee.post.parcel().pack(function, Caller::new(current)) {
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
    ) -> Result<Outcome<R>, Refused<F>>
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

    /// Runs `function` on each of these CPUs, at the same time, and returns the values when all
    /// have run it. A function that waits until others have begun, too, may wait forever if calls
    /// of other threads come between.
    ///
    /// # Errors
    ///
    /// [`CallError::NoWorker`] if a CPU has no worker: the function then ran nowhere.
    /// [`CallError::Closed`]: the function ran on some of the CPUs, or on none.
    ///
    /// # Panics
    ///
    /// Panics as the function does on the first of these CPUs where it panics, after all have run
    /// it.
    pub fn call_many<R, F>(&self, cpus: &CpuSet, function: F) -> Result<Vec<(CpuId, R)>, CallError>
    where
        F: Fn(CpuId) -> R + Sync,
        R: Send,
    {
        self.shared.call_many(cpus, function)
    }

    /// Sends `function` to the worker of `cpu` and does not wait. The reply is a future of its
    /// value. Dropping the reply withdraws the call: either it runs completely or, if it has not
    /// begun, it does not run.
    ///
    /// # Errors
    ///
    /// As for [`call_on`](Workers::call_on).
    pub fn call_async<R, F>(&self, cpu: CpuId, function: F) -> Result<Reply<R, W>, Refused<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.post(Some(cpu), function, true, |index, message| {
            // SAFETY: the message keeps the letter until it was run.
            unsafe { self.shared.send(index, message, true) }
        })
    }

    /// Queues `function` as a task, which any worker may run: a worker near the caller that has no
    /// work, if there is one. On a worker, this queues it there. The reply is a future of its
    /// value. Dropping the reply leaves the task queued.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the function.
    pub fn spawn<R, F>(&self, function: F) -> Result<Reply<R, W>, Refused<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.post(None, function, false, |_, task| self.shared.spawn(tasks::Task(task)))
    }

    /// Like [`spawn`](Workers::spawn), but only for the worker of `cpu`.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the function.
    pub fn spawn_on<R, F>(&self, cpu: CpuId, function: F) -> Result<Reply<R, W>, Refused<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.post(Some(cpu), function, false, |index, task| {
            self.shared.spawn_on(index, tasks::Task(task))
        })
    }

    fn post<R, F>(
        &self,
        cpu: Option<CpuId>,
        function: F,
        withdraws: bool,
        send: impl FnOnce(usize, NonNull<request::Header<W>>) -> Result<(), CallError>,
    ) -> Result<Reply<R, W>, Refused<F>>
    where
        F: FnOnce() -> R + Send + 'static,
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
        let letter = reply::Letter::new_in(function);
        match send(index, letter.as_message()) {
            Ok(()) => {
                // A set of one worker has no other one to run a task.
                let is_bound = cpu.is_some() || self.shared.workers.len() == 1;
                let runner = is_bound.then(|| self.shared.seat_of(index));
                Ok(Reply::new(letter, withdraws, runner))
            }
            Err(why) => {
                // SAFETY: it was not sent.
                let function = unsafe { letter.take_back() };
                Err(Refused { why, function })
            }
        }
    }

    /// Whether the calling thread is one of these workers and something else waits for it: a call,
    /// a task that was queued there, or tasks of others that it should look for. A long call asks
    /// this, and returns. A long task asks this, and [serves](Workers::serve) the calls. (It
    /// returns true once for each reason: tasks still wait after that.)
    pub fn need_resched(&self) -> bool {
        self.shared.need_resched()
    }

    /// Runs the calls that wait for the calling thread's worker, and returns how many it ran. It
    /// runs neither calls that come meanwhile nor tasks. On any other thread it returns zero.
    ///
    /// Use it in a task that takes long, or a call that does:
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
    /// The calls run in the middle of the function that serves, on its stack, as in a function that
    /// waits in [`call_on`](Workers::call_on), and within the same bounds. In the middle of four
    /// calls it runs only those of workers. So a function that serves must hold no lock that a call
    /// takes, and must expect that calls change what it shares with them. A served call may call,
    /// queue tasks and serve, too. The function that served first goes on when the call is done.
    pub fn serve(&self) -> u32 {
        self.shared.serve()
    }

    /// Records which workers use something that each of them caches, so that a change can be told
    /// to those and to no others.
    pub fn users(&self) -> Users<W> {
        Users::new(Arc::clone(&self.shared))
    }

    /// Takes no more calls and tasks, except those that accepted tasks and calls make on workers
    /// that still run. The workers end when everything that was sent has run.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Closes, and waits until everything that was sent has run, as dropping does.
    ///
    /// # Errors
    ///
    /// [`OwnWorker`], with these workers unchanged, if the calling thread is one of them: it would
    /// wait for its own end.
    pub fn join(self) -> Result<(), OwnWorker<W>> {
        // Of the parent they are no threads here, and so not this one.
        if W::generation() == self.shared.generation && self.is_own_thread() {
            return Err(OwnWorker { workers: self });
        }
        Ok(())
    }

    /// Whether the calling thread is a worker of these, which may have ended. It asks the threads,
    /// because a thread's own variables may be gone before the workers are dropped.
    fn is_own_thread(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_current)
    }

    /// Counts of what each worker has done.
    pub fn stats(&self) -> impl Iterator<Item = (CpuId, WorkerStats)> + '_ {
        self.shared.workers.iter().map(|worker| (worker.cpu, worker.counts.read()))
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
        if shared::seat::<W>().is_some() {
            self.shared.wait_for_end(self.threads.len());
        }
        self.threads.drain(..).for_each(JoinHandle::join);
    }
}

impl<W: World + Threads> fmt::Debug for Workers<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("cpus", &self.shared.workers.len()).finish_non_exhaustive()
    }
}
