//! [`InDomain`]: futures that enter a domain whenever they are polled.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use coreline_world::{Native, World};
use pin_project_lite::pin_project;

use super::{Domain, Member};
use crate::cid::{Recent, References};
use crate::mask::Entry;

/// An extension of futures: `future.in_domain(&domain)` makes a future a user of a domain.
///
/// It works like `tracing::Instrument` for spans. The wrapper enters the domain before each poll of
/// the future, and leaves it afterwards, on the thread on which the executor polls. So the future
/// holds no part of the domain between polls. The wrapper works with any executor. The crate itself
/// has no executor.
///
/// ```
/// use coreline::domain::{Domain, InDomain};
/// use coreline::percpu::Word64;
/// use std::sync::Arc;
///
/// let tenant = Domain::new()?;
/// let requests = Arc::new(tenant.local(|| Word64::new(0))?);
/// let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
/// runtime.block_on(async {
///     let serve = |requests: Arc<_>| async move {
///         let requests: &coreline::domain::DomainLocal<Word64> = &requests;
///         requests.add(1);
///         tokio::task::yield_now().await;
///         requests.add(1);
///     };
///     let tasks: Vec<_> = (0..8)
///         .map(|_| tokio::spawn(serve(Arc::clone(&requests)).in_domain(&tenant)))
///         .collect();
///     assert!(tenant.usage().users <= 8);
///     for task in tasks {
///         task.await?;
///     }
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// assert_eq!(requests.sum(), 16);
/// assert_eq!(tenant.usage().users, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait InDomain: Future + Sized {
    /// Makes the future a user of the domain. The future [joins](Domain::join) now, enters on every
    /// poll, and stays a user until it is ready or dropped.
    fn in_domain<P: References, W: World>(self, domain: &Domain<P, W>) -> DomainFuture<Self, P, W> {
        DomainFuture { future: self, member: Some(domain.join()), refresh: ignore }
    }
}

impl<F: Future> InDomain for F {}

/// The refresh of a task that caches nothing.
fn ignore() {}

pin_project! {
    /// A future that is a user of a domain, from [`InDomain::in_domain`].
    ///
    /// The future is inside the domain during each poll. So it must not wait for all members that
    /// are inside, as [`Domain::shootdown`] does. Call `shootdown` outside the future.
    ///
    /// **Panics**: a panic in the future also leaves the domain. A panic in the function of
    /// [`on_refresh`] leaves the future unchanged, and the function is not called again for this
    /// refresh. **Signals, fork**: see [`Member`].
    ///
    /// [`on_refresh`]: DomainFuture::on_refresh
    ///
    /// A future that is forgotten between two polls is a forgotten member. It is not inside the
    /// domain, so it blocks no shootdown.
    #[must_use = "a future does nothing unless it is polled"]
    pub struct DomainFuture<F, P: References = Recent, W: World = Native, R = fn()> {
        #[pin]
        future: F,
        // `None`: the future is ready, and no user any more.
        member: Option<Member<P, W>>,
        refresh: R,
    }
}

impl<F, P: References, W: World, R> DomainFuture<F, P, W, R> {
    /// Calls `refresh` before the first poll, and before each poll after the domain's members
    /// missed a change. `refresh` must renew what the task
    /// [cached](crate::mask::Entry::MustRefresh). `refresh` replaces the function that was set
    /// before. If the domain has no presence, `refresh` is never called.
    ///
    /// If a [shootdown](Domain::shootdown) waits for this future, the shootdown's function runs
    /// before `refresh`.
    pub fn on_refresh<S: FnMut()>(self, refresh: S) -> DomainFuture<F, P, W, S> {
        let DomainFuture { future, member, .. } = self;
        DomainFuture { future, member, refresh }
    }

    /// Returns the domain, or `None` once the future is ready.
    pub fn domain(&self) -> Option<&Domain<P, W>> {
        self.member.as_ref().map(Member::domain)
    }
}

impl<F: Future, P: References, W: World, R: FnMut()> Future for DomainFuture<F, P, W, R> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let Some(member) = this.member else {
            // It was ready before: what another poll does is up to the future.
            return this.future.poll(context);
        };
        let (inside, entry) = member.enter();
        if entry == Entry::MustRefresh {
            (this.refresh)();
        }
        let outcome = this.future.poll(context);
        drop(inside);
        if outcome.is_ready() {
            *this.member = None;
        }
        outcome
    }
}

impl_debug!([F, P: References, W: World, R] DomainFuture<F, P, W, R> as it {
    member: it.member, ..
});
