//! [`wait`]: a thread that waits for a future, asleep.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::task::{Wake, Waker};

use coreline_world::{Integer, Ordering, Parked, Time, Word, World};

/// The future's value; `None` if it was pending when the deadline came.
pub(crate) fn wait<W: World, F: Future>(future: F, deadline: Option<Time>) -> Option<F::Output> {
    let mut future = pin!(future);
    let ear = Arc::new(Ear::<W>(W::U32::new_in(0)));
    let waker = Waker::from(Arc::clone(&ear));
    loop {
        // Acquire: pairs with the Release in `wake`: what was done before is seen by the poll. A
        // wake-up that is not heard here makes `park` refuse.
        let heard = ear.0.load(Ordering::Acquire);
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
        if W::park(&ear.0, heard, deadline) == Parked::TimedOut {
            // It may have become ready at the last moment.
            return match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => Some(value),
                Poll::Pending => None,
            };
        }
    }
}

/// Counts wake-ups: what the thread sleeps on.
struct Ear<W: World>(W::U32);

impl<W: World> Wake for Ear<W> {
    fn wake(self: Arc<Self>) {
        // Release: pairs with the Acquire in `wait`.
        self.0.fetch_add(1, Ordering::Release);
        W::wake(&raw const self.0, 1);
    }
}
