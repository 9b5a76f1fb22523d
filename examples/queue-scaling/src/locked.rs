//! [`Locked`]: what one writes first.

use std::collections::VecDeque;
use std::sync::PoisonError;

use crate::Queue;
use crate::sync::Mutex;

/// First in, first out. All threads wait for one lock.
#[derive(Debug)]
pub struct Locked<T> {
    values: Mutex<VecDeque<T>>,
    capacity: usize,
}

impl<T: Send> Queue<T> for Locked<T> {
    fn new(capacity: usize) -> Self {
        Locked { values: Mutex::new(VecDeque::with_capacity(capacity)), capacity }
    }

    fn push(&self, value: T) -> Result<(), T> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        if values.len() == self.capacity {
            return Err(value);
        }
        values.push_back(value);
        Ok(())
    }

    fn pop(&self) -> Option<T> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}
