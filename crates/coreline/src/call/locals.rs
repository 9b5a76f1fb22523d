//! The futures of a worker that wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use coreline_world::World;

use crate::lock::{Fifo, Mutex};

/// A future that waits to be woken.
pub(super) trait Waits: Send + Sync {
    /// Ends without a value.
    fn end(&self);
}

/// The futures of a worker that were polled and have not ended, by their addresses. Only the worker
/// uses this: it ends them when it ends.
pub(super) struct Locals<W: World>(Mutex<BTreeMap<usize, Arc<dyn Waits>>, Fifo, W>);

impl<W: World> Locals<W> {
    pub(super) fn new_in() -> Self {
        Locals(Mutex::new_in(BTreeMap::new()))
    }

    /// Adds a future, unless it is there.
    pub(super) fn add(&self, key: usize, future: impl FnOnce() -> Arc<dyn Waits>) {
        self.0.lock().entry(key).or_insert_with(future);
    }

    /// Forgets a future. The caller has a handle, so nothing is dropped under the lock.
    pub(super) fn remove(&self, key: usize) {
        self.0.lock().remove(&key);
    }

    /// Takes one of the futures out. The caller ends it without the lock: what it drops may start
    /// other futures.
    pub(super) fn pop(&self) -> Option<Arc<dyn Waits>> {
        self.0.lock().pop_first().map(|(_, future)| future)
    }
}
