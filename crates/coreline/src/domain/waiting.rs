//! [`LeaseFuture`]: one that waits for a lease.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use coreline_world::{Native, World};

use super::Domain;
use super::errors::LeaseError;
use super::lease::Lease;
use super::queue::Queue;
use crate::cid::{Recent, References};

/// A lease that may have to be waited for, from [`Domain::lease_async`].
///
/// Those that wait get leases in the order in which they were first polled. **Cancelling**: one
/// that is dropped waits no longer, and a lease that it has got already goes to the next. One that
/// is neither polled nor dropped after it was woken keeps its lease from the others, as with any
/// fair lock. **Signals**: not in handlers. **Fork**: in the child, it comes last once more.
#[must_use = "a future does nothing unless it is polled"]
pub struct LeaseFuture<'a, P: References = Recent, W: World = Native> {
    domain: &'a Domain<P, W>,
    /// Where it waits; `None` before that, and when it is ready.
    place: Option<(&'a Queue<W>, u64)>,
}

impl<'a, P: References, W: World> LeaseFuture<'a, P, W> {
    pub(super) fn new(domain: &'a Domain<P, W>) -> Self {
        LeaseFuture { domain, place: None }
    }

    /// Comes to wait, unless there is a lease.
    fn join(&mut self, context: &Context<'_>) -> Result<Option<Lease<'a, P, W>>, LeaseError> {
        if let Some(lease) = Lease::unless_others_wait(self.domain)? {
            return Ok(Some(lease));
        }
        let shared = self.domain.shared();
        let leasing = shared.leasing().expect("made by the first lease");
        let queue = leasing.queue();
        let (ticket, is_first) = queue.join(context.waker().clone());
        self.place = Some((queue, ticket));
        if is_first {
            // Partner: the light fence in `Shared::put_back`; see `queue.rs`.
            W::try_fence_all().inspect_err(|_| self.leave())?;
        }
        while queue.is_wanted()
            && let Ok(held) = shared.take_elsewhere()
        {
            shared.give_or_put_back(held);
        }
        Ok(None)
    }

    /// Waits no longer.
    fn leave(&mut self) {
        if let Some((queue, ticket)) = self.place.take()
            && queue.is_own()
            && let Some(held) = queue.leave(ticket)
        {
            self.domain.shared().give_or_put_back(held);
        }
    }
}

impl<'a, P: References, W: World> Future for LeaseFuture<'a, P, W> {
    type Output = Result<Lease<'a, P, W>, LeaseError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.place = this.place.filter(|(queue, _)| queue.is_own());
        if this.place.is_none()
            && let Some(ready) = this.join(context).transpose()
        {
            return Poll::Ready(ready);
        }
        let (queue, ticket) = this.place.expect("joined");
        let held = core::task::ready!(queue.look(ticket, context.waker()));
        this.place = None;
        Poll::Ready(Ok(Lease::of(this.domain, held)))
    }
}

impl<P: References, W: World> Drop for LeaseFuture<'_, P, W> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<P: References, W: World> fmt::Debug for LeaseFuture<'_, P, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseFuture").field("waits", &self.place.is_some()).finish_non_exhaustive()
    }
}
