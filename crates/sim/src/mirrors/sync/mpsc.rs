//! `std::sync::mpsc`, simulated: a queue under a mutex.
//!
//! The functions, errors and blocking are std's. The cost differs: std's queues are lock-free lists
//! of blocks and rings, and this module has a [`Mutex`] and two [`Condvar`]s. Use it for code that
//! incidentally passes messages. Do not use it to compare channels.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

use super::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use crate::mirrors::time::Instant;

/// The state that both ends share.
struct Shared<T> {
    state: Mutex<State<T>>,
    /// A message came, or the last sender left.
    came: Condvar,
    /// A message was taken, or the receiver left.
    taken: Condvar,
}

struct State<T> {
    queue: VecDeque<T>,
    /// How many messages may wait: `None` for any number. With none allowed, a message waits only
    /// while the receiver does.
    bound: Option<usize>,
    senders: usize,
    has_receiver: bool,
    /// Whether the receiver waits for a message.
    receives: bool,
    /// How many messages were taken.
    taken: u64,
    /// How many messages came.
    came: u64,
}

impl<T> Shared<T> {
    #[track_caller]
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    fn send(&self, value: T, wait: bool) -> Result<(), TrySendError<T>> {
        let mut state = self.lock();
        loop {
            if !state.has_receiver {
                return Err(TrySendError::Disconnected(value));
            }
            let room = match state.bound {
                None => true,
                Some(0) => state.queue.is_empty() && (wait || state.receives),
                Some(bound) => state.queue.len() < bound,
            };
            if room {
                break;
            }
            if !wait {
                return Err(TrySendError::Full(value));
            }
            state = self.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.queue.push_back(value);
        state.came += 1;
        let number = state.came;
        self.came.notify_one();
        // A channel without room: the message was sent when it is taken.
        while wait && state.bound == Some(0) && state.taken < number {
            if !state.has_receiver {
                let value = state.queue.pop_back();
                return value.map_or(Ok(()), |value| Err(TrySendError::Disconnected(value)));
            }
            state = self.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// The next message; waits for one until the deadline, forever without one.
    #[track_caller]
    fn receive(&self, deadline: Option<Instant>) -> Result<T, RecvTimeoutError> {
        let mut state = self.lock();
        loop {
            if let Some(value) = state.take() {
                self.taken.notify_all();
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(RecvTimeoutError::Disconnected);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(RecvTimeoutError::Timeout);
            }
            state.receives = true;
            state = match left {
                None => self.came.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    self.came.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.receives = false;
        }
    }

    #[track_caller]
    fn add_sender(&self) {
        self.lock().senders += 1;
    }

    fn sender_left(&self) {
        let mut state = self.lock();
        state.senders -= 1;
        if state.senders == 0 {
            self.came.notify_all();
        }
    }
}

impl<T> State<T> {
    fn take(&mut self) -> Option<T> {
        let value = self.queue.pop_front()?;
        self.taken += 1;
        Some(value)
    }
}

/// Like [`std::sync::mpsc::Sender`].
pub struct Sender<T>(Arc<Shared<T>>);

/// Like [`std::sync::mpsc::SyncSender`].
pub struct SyncSender<T>(Arc<Shared<T>>);

/// Like [`std::sync::mpsc::Receiver`].
pub struct Receiver<T>(Arc<Shared<T>>);

#[track_caller]
fn new<T>(bound: Option<usize>) -> (Arc<Shared<T>>, Receiver<T>) {
    let state = State {
        queue: VecDeque::new(),
        bound,
        senders: 1,
        has_receiver: true,
        receives: false,
        taken: 0,
        came: 0,
    };
    let shared = Shared { state: Mutex::new(state), came: Condvar::new(), taken: Condvar::new() };
    let shared = Arc::new(shared);
    (Arc::clone(&shared), Receiver(shared))
}

/// Creates a channel without a bound on the number of queued messages.
#[track_caller]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (shared, receiver) = new(None);
    (Sender(shared), receiver)
}

/// Creates a channel that queues at most `bound` messages. With 0, each send waits until its
/// message is received.
#[track_caller]
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let (shared, receiver) = new(Some(bound));
    (SyncSender(shared), receiver)
}

impl<T> Sender<T> {
    /// Sends a message without waiting.
    ///
    /// # Errors
    ///
    /// An error that holds the message, if the receiver was dropped.
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send(value, true).map_err(SendError::from_try)
    }
}

impl<T> SyncSender<T> {
    /// Sends a message, and waits if the queue is full.
    ///
    /// # Errors
    ///
    /// An error that holds the message, if the receiver was dropped.
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send(value, true).map_err(SendError::from_try)
    }

    /// Sends a message if there is room in the queue.
    ///
    /// # Errors
    ///
    /// An error that holds the message, if the queue is full or the receiver was dropped.
    #[track_caller]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.0.send(value, false)
    }
}

/// The result of a send that waits.
trait FromTry<T> {
    fn from_try(error: TrySendError<T>) -> Self;
}

impl<T> FromTry<T> for SendError<T> {
    fn from_try(error: TrySendError<T>) -> SendError<T> {
        let (TrySendError::Full(value) | TrySendError::Disconnected(value)) = error;
        SendError(value)
    }
}

impl<T> Receiver<T> {
    /// Returns the next message, and waits if there is none.
    ///
    /// # Errors
    ///
    /// An error if the queue is empty and no sender is left.
    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.0.receive(None).map_err(|_| RecvError)
    }

    /// Returns the next message, like [`recv`](Receiver::recv), but waits for at most `span`.
    ///
    /// # Errors
    ///
    /// An error if no message arrived in time, or if the queue is empty and no sender is left.
    #[track_caller]
    pub fn recv_timeout(&self, span: Duration) -> Result<T, RecvTimeoutError> {
        self.0.receive(Instant::now().checked_add(span))
    }

    /// Returns the next message without waiting.
    ///
    /// # Errors
    ///
    /// An error if no message is queued.
    #[track_caller]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.lock();
        match state.take() {
            Some(value) => {
                self.0.taken.notify_all();
                Ok(value)
            }
            None if state.senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Returns an iterator over all messages, which ends when no sender is left.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self)
    }

    /// Returns an iterator over the queued messages. The iterator does not wait.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter(self)
    }
}

/// An iterator over received values, like [`std::sync::mpsc::Iter`].
#[derive(Debug)]
pub struct Iter<'a, T>(&'a Receiver<T>);

/// Like [`std::sync::mpsc::TryIter`].
#[derive(Debug)]
pub struct TryIter<'a, T>(&'a Receiver<T>);

/// An owning iterator over received values, like [`std::sync::mpsc::IntoIter`].
#[derive(Debug)]
pub struct IntoIter<T>(Receiver<T>);

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.0.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_receiver = false;
        // Of a channel without room, the sender that waits takes its message back.
        let left =
            if state.bound == Some(0) { VecDeque::new() } else { std::mem::take(&mut state.queue) };
        drop(state);
        self.0.taken.notify_all();
        drop(left);
    }
}

macro_rules! senders {
    ($($name:ident)+) => {$(
        impl<T> Clone for $name<T> {
            #[track_caller]
            fn clone(&self) -> Self {
                self.0.add_sender();
                $name(Arc::clone(&self.0))
            }
        }

        impl<T> Drop for $name<T> {
            fn drop(&mut self) {
                self.0.sender_left();
            }
        }
    )+};
}

senders! { Sender SyncSender }

macro_rules! debug {
    ($($name:ident)+) => {$(
        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )+};
}

debug! { Sender SyncSender Receiver }
