//! Buffers behind a lock and a semaphore: what the stores on atomics have.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Buffer, Lines};

/// At most this many buffers; those that wait for one get it in order of arrival.
pub(super) struct Pool {
    permits: Arc<Semaphore>,
    most: usize,
    /// Made and not taken.
    idle: Mutex<Vec<Lines>>,
}

/// A buffer of a pool.
pub struct PooledLines {
    lines: Lines,
    pool: Arc<Pool>,
    /// Dropped behind `drop`, so there is a buffer for the next one.
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(most: usize) -> Arc<Self> {
        let (permits, idle) = (Arc::new(Semaphore::new(most)), Mutex::default());
        Arc::new(Pool { permits, most, idle })
    }

    pub(super) async fn lease(self: Arc<Self>) -> PooledLines {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("it is never closed");
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        PooledLines { lines: idle.unwrap_or_default(), pool: self, _permit: permit }
    }

    pub(super) fn leased(&self) -> usize {
        self.most - self.permits.available_permits()
    }
}

impl Buffer for PooledLines {
    fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }
}

impl Drop for PooledLines {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(lines);
    }
}
