//! `lines`: a lock whose readers count themselves on a line for each thread (the "big-reader lock"
//! of Linux 2.4; Hsieh and Weihl, "Scalable reader-writer locks for parallel systems", 1992).
//!
//! A reader adds 1 to its own count, and then looks whether there is a writer. If so, it takes the
//! addition back and waits. A writer sets the word, and then waits for each count to be zero. Both
//! the addition and the writer's exchange are full fences, so at least one of the two sees the
//! other. A lock has 64 bytes for each thread.
//!
//! Writers and the readers that wait for them spin. The word serves them in no order.

use coreline_world::{Integer, Line, Ordering, Testbed, Word};

use super::ReadWrite;
use super::locks::shares_nothing;
use crate::RunError;

/// The lock.
pub struct Lines<W: Testbed> {
    /// 1: a writer has the lock, or waits for readers.
    writer: Line<W::U32>,
    /// By thread.
    counts: Box<[Line<W::U32>]>,
}

impl<W: Testbed> ReadWrite<W> for Lines<W> {
    shares_nothing!();

    fn new_in((): &(), threads: usize) -> Result<Self, RunError> {
        let line = || Line(W::U32::new_in(0));
        Ok(Lines { writer: line(), counts: (0..threads).map(|_| line()).collect() })
    }

    fn read(&self, (): &(), thread: usize, section: impl FnOnce()) {
        let mine = &self.counts[thread];
        loop {
            // SeqCst: pairs with the writer's exchange. Either the writer finds this reader, or
            // this reader finds the writer.
            mine.fetch_add(1, Ordering::SeqCst);
            // SeqCst: pairs with the same exchange, for the same reason. It is also an Acquire, for
            // what the last writer wrote.
            if self.writer.load(Ordering::SeqCst) == 0 {
                break;
            }
            // Relaxed: this reader has read nothing.
            mine.fetch_sub(1, Ordering::Relaxed);
            // Relaxed: the loop looks again.
            self.writer.wait_until(Ordering::Relaxed, |writer| writer == 0);
        }
        section();
        // Release: pairs with the Acquire of the writer that waits for this count.
        mine.fetch_sub(1, Ordering::Release);
    }

    fn write(&self, (): &(), _: usize, section: impl FnOnce()) {
        loop {
            // Relaxed: the exchange looks again.
            self.writer.wait_until(Ordering::Relaxed, |writer| writer == 0);
            // SeqCst: pairs with the readers' additions; and it is an Acquire.
            let taken = self.writer.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed);
            if taken.is_ok() {
                break;
            }
        }
        for count in &self.counts {
            // SeqCst: pairs with the readers' additions; and it is an Acquire.
            if count.load(Ordering::SeqCst) != 0 {
                // Acquire: pairs with the Release of a reader that goes.
                count.wait_until(Ordering::Acquire, |count| count == 0);
            }
        }
        section();
        // Release: pairs with the SeqCst accesses of those that come next.
        self.writer.store(0, Ordering::Release);
    }
}
