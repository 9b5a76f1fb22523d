//! Laws of threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::spawn;
use crate::{Cell, JoinHandle, Ordering, Testbed, Threads, Word};

/// Checks that a join returns the thread's value, and that everything that the thread did is
/// visible after the join.
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

/// Checks that a thread also runs if its handle is dropped.
pub fn a_dropped_handle_detaches<W: Testbed>() {
    let word = Arc::new(W::U32::new_in(0));
    let theirs = Arc::clone(&word);
    drop(spawn::<W, _>(move || theirs.store(1, Ordering::Relaxed)));
    word.wait_until(Ordering::Relaxed, |value| value == 1);
}

/// Checks that a thread can distinguish its own handle from the handles of other threads.
pub fn a_thread_knows_its_own_handle<W: Testbed>() {
    type Handle<W> = <W as Threads>::JoinHandle<()>;
    let shared = Arc::new((Cell::<Option<Handle<W>>, W>::new_in(None), W::U32::new_in(0)));
    let theirs = Arc::clone(&shared);
    let thread = spawn::<W, _>(move || {
        let (handle, ready) = &*theirs;
        // Acquire: pairs with the Release of the first thread, which wrote the handle.
        ready.wait_until(Ordering::Acquire, |ready| ready == 1);
        // SAFETY: the first thread wrote it before, and looks at it no more.
        let handle = handle.with_mut(|handle| unsafe { (*handle).take() });
        let is_ours = handle.is_some_and(|handle| handle.is_current());
        // Release: pairs with the Acquire of the first thread, which ends after this.
        ready.store(2 + u32::from(is_ours), Ordering::Release);
    });
    assert!(!thread.is_current());
    let other = spawn::<W, _>(|| ());
    assert!(!other.is_current());
    other.join();
    let (handle, ready) = &*shared;
    // SAFETY: the other thread looks at it when it was told.
    handle.with_mut(|handle| unsafe { *handle = Some(thread) });
    // Release: pairs with the Acquire of the other thread.
    ready.store(1, Ordering::Release);
    // Acquire: pairs with the Release of the other thread.
    let is_theirs = ready.wait_until(Ordering::Acquire, |ready| ready >= 2);
    assert_eq!(is_theirs, 3, "a thread has its own handle");
}

/// Checks that a join raises the thread's panic in the joining thread.
pub fn a_join_raises_the_panic<W: Testbed>() {
    let thread = spawn::<W, ()>(|| std::panic::panic_any(7_u32));
    let raised = catch_unwind(AssertUnwindSafe(|| thread.join())).expect_err("the thread panicked");
    assert_eq!(raised.downcast_ref(), Some(&7_u32));
}
