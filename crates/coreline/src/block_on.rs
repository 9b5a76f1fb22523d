//! [`block_on`]: a thread sleeps until a future is ready.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::task::{Wake, Waker};

use coreline_world::{Integer, Ordering, Parked, Time, Word, World};

/// The future's value; `None` if it was pending when the deadline came.
pub(crate) fn block_on<W: World, F: Future>(
    future: F,
    deadline: Option<Time>,
) -> Option<F::Output> {
    let mut future = pin!(future);
    let wake_ups = Arc::new(WakeUps::<W>(W::U32::new_in(0)));
    let waker = Waker::from(Arc::clone(&wake_ups));
    loop {
        // Acquire: pairs with the Release in `wake`: what was done before is seen by the poll. A
        // wake-up that is not counted here makes `park` refuse.
        let seen = wake_ups.0.load(Ordering::Acquire);
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
        if W::park(&wake_ups.0, seen, deadline) == Parked::TimedOut {
            // It may have become ready at the last moment.
            return match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => Some(value),
                Poll::Pending => None,
            };
        }
    }
}

/// Counts wake-ups. The thread sleeps on this word.
struct WakeUps<W: World>(W::U32);

impl<W: World> Wake for WakeUps<W> {
    fn wake(self: Arc<Self>) {
        // Release: pairs with the Acquire in `block_on`.
        self.0.fetch_add(1, Ordering::Release);
        W::wake(&raw const self.0, 1);
    }
}
