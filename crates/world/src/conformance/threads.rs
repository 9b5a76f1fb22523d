//! Laws of threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::spawn;
use crate::{Cell, JoinHandle, Ordering, Testbed, Word};

/// A join returns the thread's value, and everything that the thread did is visible after it.
pub fn a_join_returns_the_value<W: Testbed>() {
    let data = Arc::new(Cell::<u64, W>::new_in(0));
    let theirs = Arc::clone(&data);
    let thread = spawn::<W, _>(move || {
        // SAFETY: until the join only this thread looks at the cell.
        theirs.with_mut(|data| unsafe { data.write(1) });
        String::from("done")
    });
    assert_eq!(thread.join(), "done");
    // SAFETY: the writer has been joined.
    assert_eq!(data.with(|data| unsafe { data.read() }), 1);
}

/// A thread whose handle is dropped runs all the same.
pub fn a_dropped_handle_detaches<W: Testbed>() {
    let word = Arc::new(W::U32::new_in(0));
    let theirs = Arc::clone(&word);
    drop(spawn::<W, _>(move || theirs.store(1, Ordering::Relaxed)));
    word.wait_until(Ordering::Relaxed, |value| value == 1);
}

/// A join raises the thread's panic in the joining thread.
pub fn a_join_raises_the_panic<W: Testbed>() {
    let thread = spawn::<W, ()>(|| std::panic::panic_any(7_u32));
    let raised = catch_unwind(AssertUnwindSafe(|| thread.join())).expect_err("the thread panicked");
    assert_eq!(raised.downcast_ref(), Some(&7_u32));
}
