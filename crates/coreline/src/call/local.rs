//! Futures that live on one worker.
//!
//! A future stays on its worker from its first poll to its end, so it need not be `Send`. Its
//! *wakers* go anywhere. A waker puts the future, as a task, into the queue of its worker:
//!
//! | bits of `state` | meaning | set by | cleared by |
//! |---|---|---|---|
//! | `QUEUED` | it was woken | wakers | the worker, before a poll |
//! | `RUNS` | the worker polls it | the worker | the worker, after the poll |
//! | `ABORTED` | it is to end without its value | `abort` | no thread |
//! | `ENDED` | it was dropped, and the reply has its value | the worker | no thread |
//!
//! A message in the queue is a handle. There is at most one, because only the thread that sets
//! `QUEUED` while all else is clear sends it. If the worker finds `QUEUED` after a poll, it sends
//! the message itself.
//!
//! The value reaches the reply in a *letter*, like the value of a function. The worker runs the
//! letter when the future has ended.

use core::future::Future;
use core::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Wake;

use coreline_topology::CpuId;
use coreline_world::{Cell, Integer, Native, Ordering, Threads, Time, Word, World};

use super::Workers;
use super::locals::Waits;
use super::post;
use super::refused::{CallError, Refused};
use super::reply::Reply;
use super::request::{Caller, Header, PanicResult};
use super::shared::Shared;
use super::tasks::Task;
use crate::lock::{Fifo, Mutex};
use crate::panics::quietly;

const QUEUED: u32 = 1;
const RUNS: u32 = 2;
const ABORTED: u32 = 4;
const ENDED: u32 = 8;

type Erased = Pin<Box<dyn Future<Output = ()>>>;

/// A future on its worker.
#[repr(C)]
pub(super) struct Local<W: World> {
    header: Header<W>,
    state: W::U32,
    shared: Arc<Shared<W>>,
    index: usize,
    /// The worker's, from the first poll on. Before, all that it has is `Send`.
    future: Cell<Option<Erased>, W>,
    /// Run once, by the worker, when the future has ended.
    letter: NonNull<Header<W>>,
}

// SAFETY: only the worker uses the future, and drops it, from its first poll on. What was sent to
// the worker before is `Send`: `Workers::spawn_local_on` asks for that, and
// `Workers::spawn_local` is called on the worker.
unsafe impl<W: World> Send for Local<W> {}
// SAFETY: as for `Send`. All else is atomics and handles.
unsafe impl<W: World> Sync for Local<W> {}

/// What a future and its letter share: the function that makes the future, and then its value.
struct Slot<M, R> {
    make: Option<M>,
    value: Option<PanicResult<R>>,
}

type Shares<M, R, W> = Arc<Mutex<Slot<M, R>, Fifo, W>>;

/// A future that leaves its value, or its panic, in its slot.
struct Fills<M, F, R, W: World> {
    future: Option<Pin<Box<F>>>,
    slot: Shares<M, R, W>,
}

impl<M, F, R, W> Future for Fills<M, F, R, W>
where
    M: FnOnce() -> F,
    F: Future<Output = R>,
    W: World,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let polled = catch_unwind(AssertUnwindSafe(|| {
            if this.future.is_none() {
                let make = this.slot.lock().make.take();
                this.future = make.map(|make| Box::pin(make()));
            }
            match &mut this.future {
                Some(future) => future.as_mut().poll(cx),
                None => unreachable!("it has the function or the future"),
            }
        }));
        let value = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(panic) => Err(panic),
        };
        this.slot.lock().value = Some(value);
        Poll::Ready(())
    }
}

impl<W: World> Local<W> {
    /// Polls the future, which the queue has given to its worker.
    ///
    /// # Safety
    ///
    /// As for [`Header::run`]; the header is that of a `Local<W>`, and the message a handle of it.
    unsafe fn run(header: NonNull<Header<W>>) -> bool {
        // SAFETY: by the contract.
        let this = unsafe { Arc::from_raw(header.cast::<Self>().as_ptr().cast_const()) };
        // `QUEUED` is set, and `RUNS` is not: this changes both.
        //
        // Acquire: pairs with the Release of the wakers. Without it, the poll could miss the reason
        // of a wake-up, and no other would come.
        let state = this.state.fetch_xor(QUEUED | RUNS, Ordering::Acquire);
        if state & ENDED == 0 {
            this.poll(state);
        }
        false
    }

    fn poll(self: &Arc<Self>, state: u32) {
        let locals = &self.shared.workers[self.index].locals;
        let key = ptr::from_ref(&**self).addr();
        // SAFETY: the worker's alone, and this is the worker, inside no other poll of it.
        let future = self.future.with_mut(|at| unsafe { (*at).take() });
        let Some(mut future) = future else { return };
        let waker = Waker::from(Arc::clone(self));
        let is_over = state & ABORTED != 0 || {
            future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        };
        // SAFETY: as for `take`.
        self.future.with_mut(|at| unsafe { *at = Some(future) });
        if is_over {
            // The caller has another handle.
            locals.remove(key);
            return self.end();
        }
        locals.add(key, || Arc::clone(self) as Arc<dyn Waits>);
        // Relaxed: the next poll acquires what wakers have published, and this thread makes it.
        let state = self.state.fetch_and(!RUNS, Ordering::Relaxed);
        if state & QUEUED != 0 {
            Arc::clone(self).send();
        }
    }
}

impl<W: World> Waits for Local<W> {
    /// Drops the future, and gives the reply the value, or says that there is none. Only the worker
    /// may call this, once.
    fn end(&self) {
        // Relaxed: says nothing but itself.
        self.state.fetch_or(ENDED, Ordering::Relaxed);
        // SAFETY: the worker's alone, and this is the worker, in no poll of it.
        let future = self.future.with_mut(|at| unsafe { (*at).take() });
        quietly(|| drop(future));
        // SAFETY: `ENDED` was not set before, so the letter was not run.
        unsafe { Header::run(self.letter) };
    }
}

impl<W: World> Local<W> {
    /// Sets bits, and sends the message unless it is on its way, or the worker is to send it.
    fn wake(self: Arc<Self>, bits: u32) {
        // A child has no workers, and a lock of the queue may be that of a thread of the parent.
        if !self.shared.is_here() {
            return;
        }
        // Release: pairs with the Acquire in `run`. An exchange keeps what the exchanges before it
        // have published.
        let before = self.state.fetch_or(bits | QUEUED, Ordering::Release);
        if before & (QUEUED | RUNS | ENDED) == 0 {
            self.send();
        }
    }

    /// Puts this into the queue of its worker.
    fn send(self: Arc<Self>) {
        let (shared, index) = (Arc::clone(&self.shared), self.index);
        let message = Arc::into_raw(self);
        // SAFETY: the address in an `Arc` is not null.
        let header = unsafe { NonNull::new_unchecked(message.cast_mut()) }.cast();
        if shared.wake_on(index, Task(header)).is_err() {
            // The worker has ended, and all its futures have before.
            // SAFETY: it was not sent.
            drop(unsafe { Arc::from_raw(message) });
        }
    }
}

impl<W: World> Wake for Local<W> {
    fn wake(self: Arc<Self>) {
        self.wake(0);
    }
}

/// The error for a future that was dropped before it had a value: it was
/// [aborted](FutureReply::abort), or the workers were closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the future was dropped before it had a value: it was aborted, or its worker had nothing else \
     to run and was closed; wait for the value before you close the workers"
)]
pub struct Cancelled;

/// The value of a future that runs on a worker, from
/// [`Workers::spawn_local_on`] and [`Workers::spawn_local`]. It is itself a future, for any
/// executor.
///
/// Dropping it leaves the future running. [`abort`](FutureReply::abort) ends it.
///
/// **Panics**: polling and waiting panic if the future panicked. Polling also panics after this was
/// ready.
pub struct FutureReply<R, W: World = Native> {
    reply: Reply<Result<R, Cancelled>, W>,
    local: Arc<Local<W>>,
}

// A value is there or not, and whole: a future that panics leaves none.
impl<R, W: World> UnwindSafe for FutureReply<R, W> {}
impl<R, W: World> RefUnwindSafe for FutureReply<R, W> {}

impl<R: Send + 'static, W: World> FutureReply<R, W> {
    /// Waits for the value. The thread polls for a while and then sleeps.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the future ended without a value.
    ///
    /// # Panics
    ///
    /// Panics if the future panicked. Also panics on the future's own worker if the future has not
    /// ended, because the wait would never end. On every worker, await the reply instead. A worker
    /// that waits here serves no calls and polls no futures, so two workers that wait for each
    /// other's futures wait forever, without a panic.
    pub fn wait(self) -> Result<R, Cancelled> {
        self.reply.wait()
    }

    /// Waits for the value until `deadline`, like [`wait`](FutureReply::wait).
    ///
    /// # Errors
    ///
    /// Returns the reply if the deadline passed first.
    ///
    /// # Panics
    ///
    /// Panics if the future panicked.
    pub fn wait_by(self, deadline: Time) -> Result<Result<R, Cancelled>, Self> {
        let FutureReply { reply, local } = self;
        reply.wait_by(deadline).map_err(|reply| FutureReply { reply, local })
    }

    /// Waits for the value for at most `timeout`, like [`wait_by`](FutureReply::wait_by).
    ///
    /// # Errors
    ///
    /// Returns the reply if the time passed first.
    ///
    /// # Panics
    ///
    /// Panics if the future panicked.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Result<R, Cancelled>, Self> {
        self.wait_by(W::now() + timeout)
    }

    /// Returns whether the future has ended.
    pub fn is_finished(&self) -> bool {
        self.reply.is_finished()
    }

    /// Tells the worker to drop the future without polling it again. A poll that has begun runs to
    /// its end. If the future is ready then, the reply gets its value. Otherwise, the reply is
    /// [`Cancelled`].
    pub fn abort(&self) {
        Arc::clone(&self.local).wake(ABORTED);
    }
}

impl<R, W: World> Future for FutureReply<R, W> {
    type Output = Result<R, Cancelled>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.reply).poll(cx)
    }
}

impl_debug!([R, W: World] FutureReply<R, W> { .. });

impl<W: World + Threads> Workers<W> {
    /// Runs a future on the worker of `cpu`. That worker calls `make`, and then polls the future
    /// that it returns, so neither the future nor what it shares with others on that worker needs
    /// to be `Send`. The reply is a future of the value.
    ///
    /// The future may await anything: replies of other workers, timers and channels of another
    /// runtime, such as `tokio`. Its wakers may be used on any thread. (An object that needs the
    /// context of its runtime must be created in that context.) Each poll counts as a task. The
    /// worker runs calls between polls. Futures that are woken again and again alternate with other
    /// tasks.
    ///
    /// ```
    /// use std::cell::RefCell;
    /// use std::rc::Rc;
    ///
    /// use coreline::Workers;
    ///
    /// let workers = Workers::new()?;
    /// let cpu = workers.cpus().next().unwrap();
    /// let there = workers.call_async(cpu, || 2)?;
    /// let sum = workers.spawn_local_on(cpu, move || async move {
    ///     let shard = Rc::new(RefCell::new(vec![1])); // made there, and never sent
    ///     shard.borrow_mut().push(there.await);
    ///     shard.borrow().iter().sum::<i32>()
    /// })?;
    /// assert_eq!(sum.wait()?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// **Cancellation**: the worker drops the future, on its own thread, when the future has ended
    /// or is [aborted](FutureReply::abort). Once the workers are [closed](Workers::close) and this
    /// worker has nothing else to run, it also drops the futures that still wait. Their replies are
    /// [`Cancelled`]. A future that wakes itself in each poll never waits, so the workers end only
    /// after it has ended or was aborted. Meanwhile its worker does not look for tasks of other
    /// workers, either. A future that owns the workers in an `Arc` and waits forever keeps them
    /// alive, so give it a `Weak`. **Fork**: in a child, the future is neither polled nor dropped.
    ///
    /// # Errors
    ///
    /// [`Refused`], with `make`, as for [`spawn_on`](Workers::spawn_on).
    pub fn spawn_local_on<F, M>(
        &self,
        cpu: CpuId,
        make: M,
    ) -> Result<FutureReply<F::Output, W>, Refused<M>>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        if let Err(why) = self.shared.admit(self.shared.current()) {
            return Err(Refused { why, function: make });
        }
        let Some(index) = self.shared.worker(cpu) else {
            return Err(Refused { why: CallError::NoWorker(cpu), function: make });
        };
        // SAFETY: the function is `Send`, and makes the future on the worker.
        unsafe { self.start_local(index, make) }
    }

    /// Runs a future on the calling worker, like [`spawn_local_on`](Workers::spawn_local_on). The
    /// future need not be `Send`, so it may share data with the caller.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the future as its `function`. The reason is [`CallError::NotAWorker`] if
    /// the calling thread is not one of these workers. The other reasons are those of
    /// [`spawn_on`](Workers::spawn_on).
    pub fn spawn_local<F>(&self, future: F) -> Result<FutureReply<F::Output, W>, Refused<F>>
    where
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let Some(index) = self.current_index() else {
            return Err(Refused { why: CallError::NotAWorker, function: future });
        };
        // SAFETY: this thread is the worker.
        unsafe { self.start_local(index, move || future) }
            .map_err(|Refused { why, function }| Refused { why, function: function() })
    }

    /// Sends a future to its worker.
    ///
    /// # Safety
    ///
    /// `make` is `Send`, or the calling thread is that worker.
    unsafe fn start_local<F, M>(
        &self,
        index: usize,
        make: M,
    ) -> Result<FutureReply<F::Output, W>, Refused<M>>
    where
        M: FnOnce() -> F + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let slot: Shares<M, F::Output, W> =
            Arc::new(Mutex::new_in(Slot { make: Some(make), value: None }));
        let takes = Takes { slot: Arc::clone(&slot) };
        let letter = post::letter(move || takes.take());
        let future: Erased = Box::pin(Fills { future: None, slot: Arc::clone(&slot) });
        let local = Arc::new(Local {
            header: Header::new_in(Local::<W>::run, Caller::OUTSIDE),
            state: W::U32::new_in(QUEUED),
            shared: Arc::clone(&self.shared),
            index,
            future: Cell::new_in(Some(future)),
            letter: letter.as_message(),
        });
        let message = Arc::into_raw(Arc::clone(&local));
        // SAFETY: the address in an `Arc` is not null.
        let header = unsafe { NonNull::new_unchecked(message.cast_mut()) }.cast();
        match self.shared.spawn_on(index, Task(header)) {
            Ok(()) => {
                // SAFETY: the worker runs it when the future has ended.
                let posted = unsafe { letter.sent() };
                let runner = Some(self.shared.seat_of(index));
                Ok(FutureReply { reply: Reply::new(posted, None, false, runner), local })
            }
            Err(why) => {
                // SAFETY: neither was sent.
                drop((unsafe { Arc::from_raw(message) }, unsafe { letter.take_back() }));
                let make = slot.lock().make.take();
                Err(Refused { why, function: make.expect("it was not polled") })
            }
        }
    }
}

/// The letter's function: takes the value of a future that has ended.
struct Takes<M, R, W: World> {
    slot: Shares<M, R, W>,
}

// SAFETY: the worker runs the letter, which is never withdrawn, or the thread that could not send
// it takes it back. So what is in the slot stays where it was made, or was sent to; the value is
// `Send`.
unsafe impl<M, R: Send, W: World> Send for Takes<M, R, W> {}

impl<M, R, W: World> Takes<M, R, W> {
    fn take(self) -> Result<R, Cancelled> {
        let value = self.slot.lock().value.take();
        value.map_or(Err(Cancelled), |ended| Ok(ended.unwrap_or_else(|panic| resume_unwind(panic))))
    }
}

#[cfg(test)]
mod tests;
