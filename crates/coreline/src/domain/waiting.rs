//! [`LeaseFuture`]: a future that waits for a lease.

use core::fmt;
use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{self, Context, Poll};

use coreline_world::{Native, World};

use super::Domain;
use super::errors::LeaseError;
use super::held::Held;
use super::lease::Lease;
use super::queue::Queue;
use crate::cid::{Recent, References};

/// A future that resolves to a [`Lease`](super::Lease), from
/// [`Domain::lease_async`](super::Domain::lease_async).
///
/// Waiting futures get leases in the order in which they were first polled. **Cancelling**:
/// dropping the future cancels the wait. If the future already has a lease, the next waiter gets
/// that lease. A future that is neither polled nor dropped after it was woken withholds its lease
/// from the other waiters, as with any fair lock. **Signals**: signal handlers must not use it.
/// **Fork**: in the child, a future that has got its lease keeps it, unless another thread used the
/// queue at the time of the fork. Any other future goes to the end of the queue.
#[must_use = "a future does nothing unless it is polled"]
pub struct LeaseFuture<'a, P: References = Recent, W: World = Native> {
    domain: &'a Domain<P, W>,
    /// Its place in the queue; `None` before that, and when it is ready.
    place: Option<(&'a Queue<W>, u64)>,
}

impl<'a, P: References, W: World> LeaseFuture<'a, P, W> {
    pub(super) fn new(domain: &'a Domain<P, W>) -> Self {
        LeaseFuture { domain, place: None }
    }

    /// Begins to wait, unless there is a lease.
    fn join(&mut self, context: &Context<'_>) -> Result<Option<Lease<'a, P, W>>, LeaseError> {
        if let Some(lease) = Lease::unless_others_wait(self.domain)? {
            return Ok(Some(lease));
        }
        let shared = self.domain.shared();
        let leasing = shared.leasing().expect("made by the first lease");
        let queue = leasing.queue();
        let (ticket, is_first) = queue.join(context.waker().clone());
        self.place = Some((queue, ticket));
        let relied_on = is_first.then(|| ReliedOn(queue));
        if is_first {
            // Partner: the light fence in `Shared::put_back`; see `queue.rs`.
            W::try_fence_all()?;
        }
        while queue.is_wanted() {
            match shared.take_elsewhere() {
                Ok(held) => shared.give_or_put_back(held),
                Err(LeaseError::Exhausted { .. }) => break,
                // In an `init` of this domain it would keep others waiting for the lock under which
                // they look for its lease, too.
                Err(error) => return Err(error),
            }
        }
        mem::forget(relied_on);
        Ok(None)
    }

    /// Stops waiting. The lease that it has got.
    fn leave(&mut self) -> Option<Held<W>> {
        let (queue, ticket) = self.place.take()?;
        if queue.is_own() {
            return queue.leave(ticket);
        }
        self.domain.shared().leasing()?.queue().leave_parents(queue, ticket)
    }

    /// Stops waiting, and wants no lease.
    fn give_up(&mut self) {
        if let Some(held) = self.leave() {
            self.domain.shared().give_or_put_back(held);
        }
    }
}

/// The look of a future that found `waiting` at 0. Later ones rely on it. If it is dropped before
/// its end (by an error or a panic), it makes each of them look for itself.
struct ReliedOn<'a, W: World>(&'a Queue<W>);

impl<W: World> Drop for ReliedOn<'_, W> {
    fn drop(&mut self) {
        self.0.send_away();
    }
}

impl<'a, P: References, W: World> Future for LeaseFuture<'a, P, W> {
    type Output = Result<Lease<'a, P, W>, LeaseError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.place.is_some_and(|(queue, _)| !queue.is_own())
            && let Some(held) = this.leave()
        {
            return Poll::Ready(Ok(Lease::of(this.domain, held)));
        }
        loop {
            if let Some((queue, ticket)) = this.place {
                let mut waker = context.waker().clone();
                if let Some(looked) = queue.look(ticket, &mut waker) {
                    let held = task::ready!(looked);
                    this.place = None;
                    let lease = Lease::of(this.domain, held);
                    // Not before: if that panics the lease goes back.
                    drop(waker);
                    return Poll::Ready(Ok(lease));
                }
            }
            this.place = None;
            match this.join(context) {
                Ok(None) => {}
                Ok(Some(lease)) => return Poll::Ready(Ok(lease)),
                Err(error) => {
                    this.give_up();
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

impl<P: References, W: World> Drop for LeaseFuture<'_, P, W> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<P: References, W: World> fmt::Debug for LeaseFuture<'_, P, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseFuture").field("waits", &self.place.is_some()).finish_non_exhaustive()
    }
}
