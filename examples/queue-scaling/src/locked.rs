//! [`Locked`]: what one writes first.

use std::collections::VecDeque;
use std::sync::PoisonError;

use crate::sync::Mutex;
use crate::{Queue, TooLarge};

/// First in, first out. All threads wait for one lock.
#[derive(Debug)]
pub struct Locked<T> {
    values: Mutex<VecDeque<T>>,
    capacity: usize,
}

impl<T: Send> Queue<T> for Locked<T> {
    fn new(capacity: usize) -> Result<Self, TooLarge> {
        let mut values = VecDeque::new();
        values.try_reserve_exact(capacity).map_err(|_| TooLarge { capacity })?;
        Ok(Locked { values: Mutex::new(values), capacity })
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
