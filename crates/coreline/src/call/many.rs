//! Calls to several workers at the same time.

use core::future::Future;
use core::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;

use coreline_topology::{CpuId, CpuSet};
use coreline_world::{Native, Threads, World};

use super::reply::{FOREVER, Reply};
use super::request::{Caller, Header, PanicResult, Request};
use super::shared::Shared;
use super::{CallError, Workers};
use crate::block_on::block_on;
use crate::panics::quietly;

impl<W: World> Shared<W> {
    /// [`Workers::call_many`](super::Workers::call_many).
    pub(super) fn call_many<R, F>(
        &self,
        cpus: &CpuSet,
        function: F,
    ) -> Result<Vec<(CpuId, R)>, CallError>
    where
        F: Fn(CpuId) -> R + Sync,
        R: Send,
    {
        let current = self.current();
        self.admit(current)?;
        let worker = |cpu| self.worker(cpu).ok_or(CallError::NoWorker(cpu));
        let callees: Vec<usize> = cpus.iter().map(worker).collect::<Result<_, _>>()?;
        let function = &function;
        let caller = Caller::new(current);
        let request = |cpu| Request::new_in(move || function(cpu), caller);
        let requests: Vec<_> = cpus.iter().map(request).collect();
        let mut sent = Vec::with_capacity(requests.len());
        for (request, index) in requests.iter().zip(&callees) {
            sent.push(if current == Some(*index) {
                Ok(())
            } else {
                // SAFETY: this waits below until every request that was sent is done.
                unsafe { self.send(*index, request.as_message(), true) }
            });
        }
        // When the others have it: it may wait for them.
        let own = callees.iter().position(|index| current == Some(*index));
        if let Some(own) = own {
            // SAFETY: it was sent to no other thread.
            unsafe { Header::run(requests[own].as_message()) };
        }
        for ((request, index), sent) in requests.iter().zip(&callees).zip(&sent) {
            if sent.is_ok() && current != Some(*index) {
                self.wait(current, request.header(), &self.workers[*index]);
            }
        }
        let mut refused = None;
        let mut results = Vec::new();
        for (request, sent) in requests.into_iter().zip(sent) {
            match sent {
                Ok(()) => results.push(request.into_value()),
                Err(why) => _ = refused.get_or_insert(why),
            }
        }
        let values = first_panic_or(results);
        match refused {
            None => Ok(cpus.iter().zip(values).collect()),
            Some(why) => {
                values.into_iter().for_each(|value| quietly(|| drop(value)));
                Err(why)
            }
        }
    }
}

/// The values, or the first panic, which goes on. All else ends here, one by one, and not while
/// that unwinds: what panics once more then, as the destructor of a payload may, aborts the
/// process.
fn first_panic_or<R>(results: Vec<PanicResult<R>>) -> Vec<R> {
    let (mut values, mut panicked) = (Vec::with_capacity(results.len()), None);
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(panic) if panicked.is_none() => panicked = Some(panic),
            Err(panic) => quietly(|| drop(panic)),
        }
    }
    if let Some(panic) = panicked {
        values.into_iter().for_each(|value| quietly(|| drop(value)));
        resume_unwind(panic);
    }
    values
}

/// The values of pending calls to several workers, from [`Workers::call_many_async`]: a future for
/// any executor. To block instead, call [`wait`](Replies::wait).
///
/// Dropping it withdraws the calls that have not begun. Calls that have begun run to their end.
///
/// **Panics**: if the function panicked on any of the CPUs, polling and waiting panic after all
/// have run it, with the panic of the first such CPU. Polling also panics after the future was
/// ready.
#[must_use = "dropping the replies withdraws the calls"]
pub struct Replies<R, W: World = Native> {
    each: Vec<(CpuId, Each<R, W>)>,
    is_ready: bool,
}

enum Each<R, W: World> {
    Pending(Reply<R, W>),
    Ended(PanicResult<R>),
}

// Values are there or not, and whole: a function that panics leaves none.
impl<R, W: World> UnwindSafe for Replies<R, W> {}
impl<R, W: World> RefUnwindSafe for Replies<R, W> {}
// SAFETY: a shared reference gives no access to the values and the panics.
unsafe impl<R: Send, W: World> Sync for Replies<R, W> {}
// No value is pinned.
impl<R, W: World> Unpin for Replies<R, W> {}

impl<R: Send + 'static, W: World> Replies<R, W> {
    /// Waits for the values. On a worker, it serves no calls meanwhile, as in [`Reply::wait`].
    ///
    /// # Panics
    ///
    /// Panics if the function panicked, and also if the calling thread is one of these workers and
    /// has not run the function yet, because the wait would never end.
    pub fn wait(self) -> Vec<(CpuId, R)> {
        let is_own = |each: &Each<R, W>| match each {
            Each::Pending(reply) => reply.waits_for_itself(),
            Each::Ended(_) => false,
        };
        assert!(!self.each.iter().any(|(_, each)| is_own(each)), "{FOREVER}");
        block_on::<W, _>(self, None).expect("it waits for as long as it takes")
    }
}

impl<R, W: World> Future for Replies<R, W> {
    type Output = Vec<(CpuId, R)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.is_ready, "replies were polled after they were ready");
        let mut is_ready = true;
        for (_, each) in &mut self.each {
            let Each::Pending(reply) = each else { continue };
            let reply = Pin::new(reply);
            match catch_unwind(AssertUnwindSafe(|| reply.poll(cx))) {
                Ok(Poll::Pending) => is_ready = false,
                Ok(Poll::Ready(value)) => *each = Each::Ended(Ok(value)),
                Err(panic) => *each = Each::Ended(Err(panic)),
            }
        }
        if !is_ready {
            return Poll::Pending;
        }
        self.is_ready = true;
        let (mut cpus, mut results) = (Vec::new(), Vec::new());
        for (cpu, each) in core::mem::take(&mut self.each) {
            let Each::Ended(result) = each else { continue };
            cpus.push(cpu);
            results.push(result);
        }
        Poll::Ready(cpus.into_iter().zip(first_panic_or(results)).collect())
    }
}

impl_debug!([R, W: World] Replies<R, W> as it { ready: it.is_ready, .. });

impl<W: World + Threads> Workers<W> {
    /// Runs `function` on all workers at the same time, and returns the values when all have run
    /// it, like [`call_many`](Workers::call_many) with [`cpus`](Workers::cpus).
    ///
    /// ```
    /// let workers = coreline::Workers::new()?;
    /// let squares = [1, 4, 9];
    /// let sums = workers.broadcast(|_cpu| squares.iter().sum::<u32>())?;
    /// assert!(sums.len() == workers.cpus().count() && sums.iter().all(|(_cpu, sum)| *sum == 14));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CallError::Closed`] if the workers are closed, and [`CallError::Forked`] in a forked
    /// child.
    ///
    /// # Panics
    ///
    /// Panics if the function panics on any worker, after all have run it.
    pub fn broadcast<R, F>(&self, function: F) -> Result<Vec<(CpuId, R)>, CallError>
    where
        F: Fn(CpuId) -> R + Sync,
        R: Send,
    {
        self.call_many(&self.cpus().collect(), function)
    }

    /// Sends `function` to the workers of all of these CPUs, and does not wait. The replies are a
    /// future of the values.
    ///
    /// ```
    /// let workers = coreline::Workers::new()?;
    /// let cpus = workers.cpus().collect();
    /// let replies = workers.call_many_async(&cpus, |cpu| cpu.get())?;
    /// assert!(replies.wait().into_iter().all(|(cpu, number)| cpu.get() == number));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CallError::NoWorker`] if a CPU has no worker, and [`CallError::Forked`] in a forked child.
    /// Then the function runs nowhere. [`CallError::Closed`] if the workers are closed. Then it may
    /// run on some of the CPUs.
    pub fn call_many_async<R, F>(
        &self,
        cpus: &CpuSet,
        function: F,
    ) -> Result<Replies<R, W>, CallError>
    where
        F: Fn(CpuId) -> R + Send + Sync + 'static,
        R: Send + 'static,
    {
        self.shared.admit(self.shared.current())?;
        if let Some(cpu) = cpus.iter().find(|cpu| self.shared.worker(*cpu).is_none()) {
            return Err(CallError::NoWorker(cpu));
        }
        let function = Arc::new(function);
        let call = |cpu| {
            let function = Arc::clone(&function);
            Ok((cpu, Each::Pending(self.call_async(cpu, move || function(cpu))?)))
        };
        let each = cpus.iter().map(call).collect::<Result<_, CallError>>()?;
        Ok(Replies { each, is_ready: false })
    }
}
