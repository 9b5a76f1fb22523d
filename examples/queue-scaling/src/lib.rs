//! Three queues that many threads put into and take from at the same time, and tests that say which
//! of them scales.
//!
//! | queue | is |
//! |---|---|
//! | [`Locked`] | a `VecDeque` in a mutex |
//! | [`Ring`] | a ring without locks: Vyukov's bounded queue |
//! | [`Lanes`] | several rings, of which each thread has one that it uses first |
//!
//! Their atomics and locks come from `src/sync.rs`: std's, and in tests those of the simulated
//! machine.
//!
//! ```
//! use queue_scaling::{Lanes, Queue};
//!
//! let queue = Lanes::new(64).unwrap();
//! queue.push(7).unwrap();
//! assert_eq!((queue.pop(), queue.pop()), (Some(7), None));
//! ```

mod lanes;
mod locked;
mod ring;
mod sync;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;

pub use lanes::Lanes;
pub use locked::Locked;
pub use ring::Ring;

/// A queue cannot have this many places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    /// How many were asked for.
    pub capacity: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no memory for {} places: ask for fewer", self.capacity)
    }
}

impl Error for TooLarge {}

/// A queue of bounded length.
pub trait Queue<T>: Send + Sync {
    /// An empty one, for as many values as this, or more: up to a power of two.
    ///
    /// # Errors
    ///
    /// [`TooLarge`] if there is no memory for this many places.
    fn new(capacity: usize) -> Result<Self, TooLarge>
    where
        Self: Sized;

    /// Puts a value in.
    ///
    /// # Errors
    ///
    /// The value, if the queue is full.
    fn push(&self, value: T) -> Result<(), T>;

    /// Takes a value out; `None` if there is none.
    fn pop(&self) -> Option<T>;
}
