//! [`Waiting`]: a future's state that waits in a [`Queue`].

use core::mem;
use core::task::{self, Context, Poll};

use coreline_world::{Lacking, World};

use super::{Queue, Queues};

/// Something that callers wait for, as one caller asks for it.
pub(crate) trait Awaited<'a, W: World> {
    /// The data that the queue keeps for a caller that waits.
    type Asked: 'static;
    /// The data that a waiting caller is given.
    type Given: 'static;
    /// The result for the caller.
    type Value;
    type Error: From<Lacking>;

    /// The value, unless others wait or there is none.
    fn unless_others_wait(&self) -> Result<Option<Self::Value>, Self::Error>;

    /// The queue for this. It is there once there was no value.
    fn queues(&self) -> &'a Queues<Self::Asked, Self::Given, W>;

    fn asked(&self) -> Self::Asked;

    /// Gives the available amount to the callers that wait in the queue. The first caller of a
    /// queue makes a fence before the look. Later callers rely on that fence.
    fn look(
        &self,
        queue: &Queue<Self::Asked, Self::Given, W>,
        is_first: bool,
    ) -> Result<(), Self::Error>;

    fn value(&self, given: Self::Given) -> Self::Value;

    /// The caller waits no longer. `given` is the amount that it was given, if any.
    fn leave(&self, given: Option<Self::Given>);
}

/// A place in a queue, with the caller's ticket.
type Place<'a, S, W> =
    (&'a Queue<<S as Awaited<'a, W>>::Asked, <S as Awaited<'a, W>>::Given, W>, u64);

/// The state of a future that waits for `S`, or is ready.
pub(crate) struct Waiting<'a, S: Awaited<'a, W>, W: World> {
    source: S,
    /// Its place in the queue; `None` before that, and when it is ready.
    place: Option<Place<'a, S, W>>,
}

impl<'a, S: Awaited<'a, W>, W: World> Waiting<'a, S, W> {
    pub(crate) fn new(source: S) -> Self {
        Waiting { source, place: None }
    }

    pub(crate) fn waits(&self) -> bool {
        self.place.is_some()
    }

    /// Begins to wait, unless there is a value.
    fn join(&mut self, context: &Context<'_>) -> Result<Option<S::Value>, S::Error> {
        if let Some(value) = self.source.unless_others_wait()? {
            return Ok(Some(value));
        }
        let queue = self.source.queues().queue();
        let (ticket, is_first) = queue.join(self.source.asked(), context.waker().clone());
        self.place = Some((queue, ticket));
        let relied_on = is_first.then(|| ReliedOn(queue));
        self.source.look(queue, is_first)?;
        mem::forget(relied_on);
        Ok(None)
    }

    /// Stops waiting. What it has got.
    fn leave(&mut self) -> Option<S::Given> {
        let (queue, ticket) = self.place.take()?;
        if queue.is_own() {
            return queue.leave(ticket);
        }
        self.source.queues().queue().leave_parents(queue, ticket)
    }

    /// Stops waiting, and wants nothing.
    fn give_up(&mut self) {
        if self.waits() {
            let given = self.leave();
            self.source.leave(given);
        }
    }

    /// [`Future::poll`](core::future::Future::poll).
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<S::Value, S::Error>> {
        if self.place.is_some_and(|(queue, _)| !queue.is_own())
            && let Some(given) = self.leave()
        {
            return Poll::Ready(Ok(self.source.value(given)));
        }
        loop {
            if let Some((queue, ticket)) = self.place {
                let mut waker = context.waker().clone();
                if let Some(looked) = queue.look(ticket, &mut waker) {
                    let given = task::ready!(looked);
                    self.place = None;
                    let value = self.source.value(given);
                    // Not before: if that panics the value goes back.
                    drop(waker);
                    return Poll::Ready(Ok(value));
                }
            }
            self.place = None;
            match self.join(context) {
                Ok(None) => {}
                Ok(Some(value)) => return Poll::Ready(Ok(value)),
                Err(error) => {
                    self.give_up();
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

impl<'a, S: Awaited<'a, W>, W: World> Drop for Waiting<'a, S, W> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The look of a future that found `waiting` at 0. Later ones rely on it. If it is dropped before
/// its end (by an error or a panic), it makes each of them look for itself.
struct ReliedOn<'a, A: 'static, G: 'static, W: World>(&'a Queue<A, G, W>);

impl<A: 'static, G: 'static, W: World> Drop for ReliedOn<'_, A, G, W> {
    fn drop(&mut self) {
        self.0.send_away();
    }
}
