//! Calls and tasks whose senders do not wait: a letter on the heap, and the reply to it.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll, Waker};
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use coreline_topology::CpuId;
use coreline_world::{Native, Time, World};

use super::polling::poll;
use super::request::{Caller, Header, PanicResult};
use super::shared::{Seat, seat};
use crate::TicketLock;
use crate::block_on::block_on;
use crate::lock::spin::MOST;

/// The states of a letter.
enum Stage<F, R> {
    Waits(F, Option<Waker>),
    Runs(Option<Waker>),
    Done(PanicResult<R>),
    /// Its value was taken, or is no longer wanted.
    Over,
}

/// A function on its way to a worker, and its value on the way back.
#[repr(C)]
pub(super) struct Letter<F, R, W: World> {
    header: Header<W>,
    stage: TicketLock<Stage<F, R>, W>,
}

// SAFETY: the function and its value are behind the lock, and go from thread to thread by move. The
// header's words are shared, and its pointers are followed by the worker that has the message.
unsafe impl<F: Send, R: Send, W: World> Send for Letter<F, R, W> {}
// SAFETY: as for `Send`.
unsafe impl<F: Send, R: Send, W: World> Sync for Letter<F, R, W> {}

impl<F, R, W> Letter<F, R, W>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
    W: World,
{
    pub(super) fn new_in(function: F) -> Arc<Self> {
        Arc::new(Letter {
            header: Header::new_in(Self::run, Caller::OUTSIDE),
            stage: TicketLock::new_in(Stage::Waits(function, None)),
        })
    }

    /// The message to send: one handle of the letter, which [`run`](Header::run) gives back.
    pub(super) fn as_message(self: &Arc<Self>) -> NonNull<Header<W>> {
        let message = Arc::into_raw(Arc::clone(self));
        // SAFETY: no handle is null.
        unsafe { NonNull::new_unchecked(message.cast_mut()).cast() }
    }

    /// The function of a letter that could not be sent.
    ///
    /// # Safety
    ///
    /// [`as_message`](Letter::as_message) was called once, and its result was not sent.
    pub(super) unsafe fn take_back(self: Arc<Self>) -> F {
        // SAFETY: the handle in the message.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&self)) };
        match self.swap(Stage::Over) {
            Stage::Waits(function, _) => function,
            _ => unreachable!("a letter that was not sent waits"),
        }
    }

    fn swap(&self, stage: Stage<F, R>) -> Stage<F, R> {
        core::mem::replace(&mut *self.stage.lock(), stage)
    }

    /// # Safety
    ///
    /// As for [`Header::run`]; the header is that of a `Letter<F, R, W>`, and came from
    /// `as_message`.
    unsafe fn run(header: NonNull<Header<W>>) -> bool {
        // SAFETY: by the contract; the message held one handle.
        let this = unsafe { Arc::from_raw(header.cast::<Self>().as_ptr().cast_const()) };
        this.open();
        // The value, if no reply is left.
        quietly(|| drop(this));
        false
    }

    /// Runs the function, unless it was withdrawn.
    fn open(&self) {
        let function = {
            let mut stage = self.stage.lock();
            match core::mem::replace(&mut *stage, Stage::Over) {
                Stage::Waits(function, waker) => {
                    *stage = Stage::Runs(waker);
                    function
                }
                // Withdrawn.
                _ => return,
            }
        };
        let value = catch_unwind(AssertUnwindSafe(function));
        let mut stage = self.stage.lock();
        let Stage::Runs(waker) = core::mem::replace(&mut *stage, Stage::Over) else {
            drop(stage);
            // The reply is gone.
            return quietly(|| drop(value));
        };
        *stage = Stage::Done(value);
        drop(stage);
        // A thread that waits awake looks there.
        Header::<W>::finish(&self.header.state);
        quietly(|| _ = waker.map(Waker::wake));
    }
}

/// Runs a function that does not belong to the worker and that no thread waits for. If it panics,
/// the panic has no place to go. The worker may be in the middle of a call, which must not be left
/// before it ends.
pub(super) fn quietly(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        // Not dropped: that may panic, too.
        core::mem::forget(panic);
    }
}

/// A letter, as its sender sees it.
trait Sent<R>: Send + Sync {
    /// Whether its value is there, or was taken.
    fn is_done(&self) -> bool;

    /// Waits awake if that may help; returns the value if it came. `runner`: the CPU of the worker
    /// that runs it, if that is known.
    fn wait_awake(&self, runner: Option<CpuId>) -> Option<PanicResult<R>>;

    fn poll(&self, waker: &Waker) -> Poll<PanicResult<R>>;

    /// Whether the function had not begun, and will not run.
    fn withdraw(&self) -> bool;

    /// The reply is dropped. `withdraws`: the function must not run if it has not begun.
    fn leave(&self, withdraws: bool);
}

impl<F, R, W> Sent<R> for Letter<F, R, W>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
    W: World,
{
    fn is_done(&self) -> bool {
        matches!(*self.stage.lock(), Stage::Done(_) | Stage::Over)
    }

    fn wait_awake(&self, runner: Option<CpuId>) -> Option<PanicResult<R>> {
        // Acquire, in `poll`: pairs with the Release in `finish`.
        poll::<W, _>(&self.header.state, MOST, runner, Header::<W>::says_done)?;
        match self.swap(Stage::Over) {
            Stage::Done(value) => Some(value),
            _ => unreachable!("a reply that is waited for is done when its word says so"),
        }
    }

    fn poll(&self, waker: &Waker) -> Poll<PanicResult<R>> {
        // Made and dropped by what is none of ours: not under the lock.
        let mut new = None;
        loop {
            let mut stage = self.stage.lock();
            match &mut *stage {
                Stage::Waits(_, at) | Stage::Runs(at) => {
                    if at.as_ref().is_some_and(|old| old.will_wake(waker)) {
                        return Poll::Pending;
                    }
                    if new.is_some() {
                        let old = core::mem::replace(at, new);
                        drop(stage);
                        drop(old);
                        return Poll::Pending;
                    }
                }
                Stage::Done(_) => {
                    let Stage::Done(value) = core::mem::replace(&mut *stage, Stage::Over) else {
                        unreachable!("it was done, and is locked");
                    };
                    return Poll::Ready(value);
                }
                Stage::Over => panic!("a reply was polled after it was ready"),
            }
            drop(stage);
            new = Some(waker.clone());
        }
    }

    fn withdraw(&self) -> bool {
        let mut stage = self.stage.lock();
        if !matches!(*stage, Stage::Waits(..)) {
            return false;
        }
        // Over: the worker finds it, and runs nothing.
        let left = core::mem::replace(&mut *stage, Stage::Over);
        // The function may have destructors: not under the lock.
        drop(stage);
        drop(left);
        true
    }

    fn leave(&self, withdraws: bool) {
        let mut stage = self.stage.lock();
        let left = match &mut *stage {
            Stage::Waits(_, waker) if !withdraws => (None, waker.take()),
            // Over: the worker finds it, and drops the value itself.
            stage => (Some(core::mem::replace(stage, Stage::Over)), None),
        };
        // What was left behind may have destructors: not under the lock.
        drop(stage);
        drop(left);
    }
}

/// The value of a pending call or task. It is a future for any executor. To block instead, call
/// [`wait`](Reply::wait).
///
/// Dropping a reply from [`call_async`](super::Workers::call_async) withdraws the call. Dropping a
/// reply from [`spawn`](super::Workers::spawn) leaves the task queued.
///
/// **Panics**: polling and waiting panic if the function panicked. Polling also panics after the
/// future was ready.
#[must_use = "dropping the reply of a call withdraws the call"]
pub struct Reply<R, W: World = Native> {
    /// `None`: it is ready.
    letter: Option<Arc<dyn Sent<R>>>,
    withdraws: bool,
    /// The only worker that can run it, if there is only one such worker.
    runner: Option<Seat>,
    world: core::marker::PhantomData<fn() -> W>,
}

// A value is there or not, and whole: a function that panics leaves none.
impl<R, W: World> UnwindSafe for Reply<R, W> {}
impl<R, W: World> RefUnwindSafe for Reply<R, W> {}

impl<R: Send + 'static, W: World> Reply<R, W> {
    pub(super) fn new<F>(
        letter: Arc<Letter<F, R, W>>,
        withdraws: bool,
        runner: Option<Seat>,
    ) -> Self
    where
        F: FnOnce() -> R + Send + 'static,
    {
        Reply { letter: Some(letter), withdraws, runner, world: core::marker::PhantomData }
    }

    /// Drops the reply without withdrawing the function, which still runs.
    pub fn detach(mut self) {
        self.withdraws = false;
    }

    /// Waits for the value. The thread polls for a while, as in
    /// [`call_on`](super::Workers::call_on), and then sleeps. On a worker of the same
    /// [`Workers`](super::Workers), it neither serves calls nor runs tasks meanwhile. Two workers
    /// that wait for each other's replies wait forever.
    ///
    /// # Panics
    ///
    /// Panics if the function panicked. The call also panics if
    /// [`checked_wait`](Reply::checked_wait) would return an error, because the wait would never
    /// end.
    pub fn wait(self) -> R {
        self.checked_wait().unwrap_or_else(|refused| panic!("{refused}"))
    }

    /// Waits for the value, like [`wait`](Reply::wait), but only if the wait can end.
    ///
    /// # Errors
    ///
    /// [`WaitsForItself`], with the reply, if the calling thread is the only worker that can run
    /// the function, and has not run it yet. The worker runs it after its present function has
    /// returned. A call that has not begun also runs when the present function
    /// [serves](super::Workers::serve).
    ///
    /// # Panics
    ///
    /// Panics if the function panicked.
    pub fn checked_wait(mut self) -> Result<R, WaitsForItself<R, W>> {
        // What this thread has begun and not ended lies below this on its stack.
        if self.runner.is_some() && self.runner == seat::<W>() && !self.is_done() {
            return Err(WaitsForItself { reply: self });
        }
        let letter = self.letter.as_ref().expect("a reply was waited for after it was ready");
        if let Some(value) = letter.wait_awake(self.runner.map(|seat| seat.cpu)) {
            self.letter = None;
            return Ok(value.unwrap_or_else(|panic| resume_unwind(panic)));
        }
        Ok(block_on::<W, _>(self, None).expect("it waits for as long as it takes"))
    }

    /// Waits for the value until `deadline`, like [`wait`](Reply::wait). If the deadline has
    /// passed, the call only looks whether the value is there.
    ///
    /// ```
    /// use coreline::Workers;
    /// use coreline::world::{Clock, Native, Time};
    ///
    /// let workers = Workers::new()?;
    /// let mut reply = workers.spawn(|| 7)?;
    /// let value = loop {
    ///     match reply.wait_by(Native::now()) {
    ///         Ok(value) => break value,
    ///         // Other work, and then:
    ///         Err(pending) => reply = pending,
    ///     }
    /// };
    /// assert_eq!(value, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the reply if the deadline passed first. On the only worker that can run the
    /// function, that is always so if the function has not run yet.
    ///
    /// # Panics
    ///
    /// Panics if the function panicked.
    pub fn wait_by(mut self, deadline: Time) -> Result<R, Self> {
        let letter = self.letter.as_ref().expect("a reply was waited for after it was ready");
        let runner = self.runner.map(|seat| seat.cpu);
        let is_over = deadline <= W::now();
        if let Some(value) = (!is_over).then(|| letter.wait_awake(runner)).flatten() {
            self.letter = None;
            return Ok(value.unwrap_or_else(|panic| resume_unwind(panic)));
        }
        let value = if is_over {
            match Pin::new(&mut self).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(value) => Some(value),
                Poll::Pending => None,
            }
        } else {
            block_on::<W, _>(&mut self, Some(deadline))
        };
        value.ok_or(self)
    }

    /// Withdraws the call or the task, so that the function does not run.
    ///
    /// # Errors
    ///
    /// Returns the reply if the function has begun. It may have ended, too.
    pub fn withdraw(mut self) -> Result<(), Self> {
        match self.letter.as_ref().is_some_and(|letter| letter.withdraw()) {
            true => {
                self.letter = None;
                Ok(())
            }
            false => Err(self),
        }
    }

    fn is_done(&self) -> bool {
        self.letter.as_ref().is_none_or(|letter| letter.is_done())
    }
}

impl<R, W: World> Future for Reply<R, W> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let letter = self.letter.as_ref().expect("a reply was polled after it was ready");
        let value = core::task::ready!(letter.poll(cx.waker()));
        self.letter = None;
        Poll::Ready(value.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl<R, W: World> Drop for Reply<R, W> {
    fn drop(&mut self) {
        if let Some(letter) = self.letter.take() {
            letter.leave(self.withdraws);
        }
    }
}

impl_debug!([R, W: World] Reply<R, W> as it { ready: it.letter.is_none() });

/// The error for a worker that would wait forever. Only this worker can run the awaited function,
/// and not before its present function ends. The error contains the reply.
pub struct WaitsForItself<R, W: World = Native> {
    /// The reply, so that another thread can wait for it.
    pub reply: Reply<R, W>,
}

impl_debug!([R, W: World] WaitsForItself<R, W> { .. });

impl<R, W: World> fmt::Display for WaitsForItself<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this worker would wait forever, because only it can run that call or task, and only \
             after its present function; return first, or wait on another thread",
        )
    }
}

impl<R, W: World> core::error::Error for WaitsForItself<R, W> {}
