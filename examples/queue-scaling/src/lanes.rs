//! [`Lanes`]: what scales.

use std::cell::Cell;

use crate::ring::{Line, Ring};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{thread, thread_local};
use crate::{Queue, TooLarge};

/// Rings of which each thread has one that it uses first; it goes on to the others where that is
/// full or empty. While threads find something in their own ring, no two of them change one line.
///
/// It promises no order, not even to one thread: what went into another ring while its own was
/// full may come out behind what it put into its own later. To find all rings empty takes a look at
/// each, one after the other: `None` says of no moment that all were, and a value that was put into
/// one meanwhile may be there.
pub struct Lanes<T> {
    /// One for each CPU.
    rings: Box<[Ring<T>]>,
    /// The number of the next thread that has none.
    next: Line<AtomicUsize>,
}

thread_local! {
    /// From the first `Lanes` that the thread used. In others it may share its ring with a thread.
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

impl<T> Lanes<T> {
    /// All rings, the calling thread's first.
    fn rings_from_mine(&self) -> impl Iterator<Item = &Ring<T>> {
        let number = NUMBER.get().unwrap_or_else(|| {
            // Relaxed: each number is given once, and nothing else is handed on.
            let number = self.next.0.fetch_add(1, Ordering::Relaxed);
            NUMBER.set(Some(number));
            number
        });
        let (before, from) = self.rings.split_at(number % self.rings.len());
        from.iter().chain(before)
    }
}

impl<T: Send> Queue<T> for Lanes<T> {
    fn new(capacity: usize) -> Result<Self, TooLarge> {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let ring = |_| Ring::new(capacity.div_ceil(count)).map_err(|_| TooLarge { capacity });
        let rings = (0..count).map(ring).collect::<Result<_, _>>()?;
        Ok(Lanes { rings, next: Line::default() })
    }

    fn push(&self, mut value: T) -> Result<(), T> {
        for ring in self.rings_from_mine() {
            match ring.push(value) {
                Ok(()) => return Ok(()),
                Err(full) => value = full,
            }
        }
        Err(value)
    }

    fn pop(&self) -> Option<T> {
        self.rings_from_mine().find_map(Ring::pop)
    }
}
