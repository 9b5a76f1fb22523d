//! [`LeaseFuture`]: a future that waits for a lease.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use coreline_world::{Native, World};

use super::Domain;
use super::errors::LeaseError;
use super::lease::Lease;
use super::leased_id::LeasedId;
use crate::cid::{Recent, References};
use crate::queue::{Awaited, Queue, Queues, Waiting};

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
    waiting: Waiting<'a, &'a Domain<P, W>, W>,
}

impl<'a, P: References, W: World> LeaseFuture<'a, P, W> {
    pub(super) fn new(domain: &'a Domain<P, W>) -> Self {
        LeaseFuture { waiting: Waiting::new(domain) }
    }
}

impl<'a, P: References, W: World> Awaited<'a, W> for &'a Domain<P, W> {
    type Asked = ();
    type Given = LeasedId<W>;
    type Value = Lease<'a, P, W>;
    type Error = LeaseError;

    fn unless_others_wait(&self) -> Result<Option<Lease<'a, P, W>>, LeaseError> {
        Lease::unless_others_wait(self)
    }

    fn queues(&self) -> &'a Queues<(), LeasedId<W>, W> {
        &self.shared().leasing().expect("made by the first lease").queues
    }

    fn asked(&self) {}

    fn look(&self, queue: &Queue<(), LeasedId<W>, W>, is_first: bool) -> Result<(), LeaseError> {
        if is_first {
            // Partner: the light fence in `Shared::put_back`; see `crate::queue`.
            W::try_fence_all()?;
        }
        while queue.is_wanted() {
            match self.shared().take_elsewhere() {
                Ok(held) => self.shared().give_or_put_back(held),
                Err(LeaseError::Exhausted { .. }) => break,
                // In an `init` of this domain it would keep others waiting for the lock under which
                // they look for its lease, too.
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn value(&self, held: LeasedId<W>) -> Lease<'a, P, W> {
        Lease::of(self, held)
    }

    fn leave(&self, held: Option<LeasedId<W>>) {
        if let Some(held) = held {
            self.shared().give_or_put_back(held);
        }
    }
}

impl<'a, P: References, W: World> Future for LeaseFuture<'a, P, W> {
    type Output = Result<Lease<'a, P, W>, LeaseError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.waiting.poll(context)
    }
}

impl<P: References, W: World> fmt::Debug for LeaseFuture<'_, P, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseFuture").field("waits", &self.waiting.waits()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_topology::{CpuId, Shape, Topology};
    use coreline_world::model::{Checker, Model, Plant};
    use coreline_world::{JoinHandle, Placement, Testbed};

    use crate::cid::{CidLayout, Recent};
    use crate::domain::{DomainOptions, Domains, DomainsOptions};

    /// One waits while another returns the only lease.
    fn one_waits_while_one_returns<W: Testbed>() {
        let shape = Shape {
            sockets: 1,
            nodes_per_socket: 1,
            caches_per_node: 1,
            cores_per_cache: 2,
            threads_per_core: 1,
        };
        let layout = CidLayout::new(&Topology::uniform(shape).unwrap()).unwrap();
        let options = DomainsOptions::new().leases(1);
        let domains = Domains::<Recent, W>::with_layout_in(layout, options).unwrap();
        let domain = Arc::new(domains.domain(DomainOptions::new()));
        let lease = domain.lease().unwrap();
        let theirs = Arc::clone(&domain);
        let waits = move || drop(theirs.lease_wait().unwrap());
        let waits = W::spawn(Placement::On(CpuId::new(1)), waits).unwrap();
        drop(lease);
        waits.join();
        assert_eq!(domain.usage().leased, 0);
    }

    #[test]
    fn one_that_waits_gets_what_is_returned_in_every_interleaving() {
        let checker = |plant| Checker::new().preemption_bound(2).max_branches(20_000).plant(plant);
        let law = one_waits_while_one_returns::<Model>;
        // The queue's mutex has a law that needs stores to be exchanges.
        checker(Plant::EXCHANGES).check(law);
        // That a heavy fence is missing the model does not see: freeing the mutex has a light one,
        // which orders as much there, and does not natively.
        let unfenced = Plant { light_fences: false, ..Plant::EXCHANGES };
        let failure = checker(unfenced).try_check(law).expect_err("a return without its fence");
        assert!(failure.message.contains("deadlock"), "{failure}");
    }
}
