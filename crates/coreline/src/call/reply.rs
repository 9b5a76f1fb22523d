//! [`Reply`]: the value of a call or a task whose sender does not wait.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::panic::{RefUnwindSafe, UnwindSafe, resume_unwind};
use std::sync::Arc;

use coreline_world::{Native, Time, World};

use super::post::Posted;
use super::shared::{Seat, Shared};
use super::waits::seat;
use crate::block_on::block_on;
use crate::lock::spin::MOST;

pub(super) const FOREVER: &str = "this worker would wait forever, because it cannot run that call \
                                  or task before it returns from its present function; return \
                                  first, or wait on another thread";

const READY: &str = "a reply was polled after it was ready";

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
    posted: Option<Posted<R, W>>,
    /// Keeps the worker's line there, for a parcel. So it is dropped last.
    _keeps: Option<Arc<Shared<W>>>,
    withdraws: bool,
    /// The only worker that can run it, if there is only one such worker.
    runner: Option<Seat>,
}

// A value is there or not, and whole: a function that panics leaves none.
impl<R, W: World> UnwindSafe for Reply<R, W> {}
impl<R, W: World> RefUnwindSafe for Reply<R, W> {}

impl<R: Send + 'static, W: World> Reply<R, W> {
    pub(super) fn new(
        posted: Posted<R, W>,
        keeps: Option<Arc<Shared<W>>>,
        withdraws: bool,
        runner: Option<Seat>,
    ) -> Self {
        Reply { posted: Some(posted), _keeps: keeps, withdraws, runner }
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
    /// [`WaitsForItself`], with the reply, if only the calling worker can run the function and has
    /// not run it yet. The worker runs it after its present function has
    /// returned. A call that has not begun also runs when the present function
    /// [serves](super::Workers::serve).
    ///
    /// # Panics
    ///
    /// Panics if the function panicked.
    pub fn checked_wait(mut self) -> Result<R, WaitsForItself<R, W>> {
        if self.waits_for_itself() {
            return Err(WaitsForItself { reply: self });
        }
        if let Some(value) = self.wait_awake(MOST) {
            return Ok(value);
        }
        Ok(block_on::<W, _>(self, None).expect("it waits for as long as it takes"))
    }

    /// Waits for the value until `deadline`, like [`wait`](Reply::wait). If the deadline has
    /// passed, the call only checks whether the value is there.
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
        let left = deadline - W::now();
        let is_over = left.is_zero();
        if let Some(value) = (!is_over).then(|| self.wait_awake(left.min(MOST))).flatten() {
            return Ok(value);
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

    /// Waits for the value for at most `timeout`, like [`wait_by`](Reply::wait_by).
    ///
    /// # Errors
    ///
    /// Returns the reply if the time passed first.
    ///
    /// # Panics
    ///
    /// Panics if the function panicked.
    pub fn wait_timeout(self, timeout: Duration) -> Result<R, Self> {
        let deadline = W::now() + timeout;
        self.wait_by(deadline)
    }

    /// Returns whether the function has ended, so that no wait would be long. It may have panicked.
    pub fn is_finished(&self) -> bool {
        self.is_done()
    }

    /// Withdraws the call or the task, so that the function does not run.
    ///
    /// # Errors
    ///
    /// Returns the reply if the function has begun. It may have ended, too.
    pub fn withdraw(mut self) -> Result<(), Self> {
        match self.posted.take().expect(READY).withdraw() {
            Ok(()) => Ok(()),
            Err(posted) => {
                self.posted = Some(posted);
                Err(self)
            }
        }
    }

    /// Whether the calling thread is the only worker that can run the function, and has not run it.
    pub(super) fn waits_for_itself(&self) -> bool {
        // What this thread has begun and not ended lies below this on its stack.
        self.runner.is_some() && self.runner == seat::<W>() && !self.is_done()
    }

    fn is_done(&self) -> bool {
        self.posted.as_ref().is_none_or(Posted::is_done)
    }

    /// Waits awake for this long if that may help; returns the value if it came.
    #[inline]
    fn wait_awake(&mut self, span: Duration) -> Option<R> {
        let runner = self.runner.map(|seat| seat.cpu);
        self.posted.as_ref().expect(READY).wait_awake(span, runner).then(|| self.take())
    }
}

impl<R, W: World> Reply<R, W> {
    /// The value, which is there.
    fn take(&mut self) -> R {
        let posted = self.posted.take().expect(READY);
        posted.take().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<R, W: World> Future for Reply<R, W> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        match self.posted.as_ref().expect(READY).poll(cx.waker()) {
            true => Poll::Ready(self.take()),
            false => Poll::Pending,
        }
    }
}

impl<R, W: World> Drop for Reply<R, W> {
    fn drop(&mut self) {
        if let Some(posted) = self.posted.take().filter(|_| self.withdraws) {
            // If it has begun, dropping the rest leaves the value to the worker.
            let _ = posted.withdraw();
        }
    }
}

impl_debug!([R, W: World] Reply<R, W> as it { ready: it.posted.is_none() });

/// The error for a worker that would wait forever. Only this worker can run the awaited function,
/// and not before its present function ends. The error contains the reply.
pub struct WaitsForItself<R, W: World = Native> {
    /// The reply, so that another thread can wait for it.
    pub reply: Reply<R, W>,
}

impl_debug!([R, W: World] WaitsForItself<R, W> { .. });

impl<R, W: World> fmt::Display for WaitsForItself<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FOREVER)
    }
}

impl<R, W: World> core::error::Error for WaitsForItself<R, W> {}
