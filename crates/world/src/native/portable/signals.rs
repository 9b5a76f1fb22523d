//! Signals: std has no signals, so none is blocked. The numbers that tell processes and threads
//! apart.

use core::cell::Cell;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};
use std::process;

use crate::Signals;
use crate::native::Native;

std::thread_local! {
    /// The calling thread's number; 0: it has none yet.
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

impl Signals for Native {
    type Held = ();

    /// Blocks no signal, so a signal handler must not use objects that its thread may be using.
    fn hold() {}

    /// The process's number: a child has another one than its parent, unless it is the first
    /// process of a PID namespace, as its parent is of another.
    fn generation() -> NonZeroU32 {
        NonZeroU32::new(process::id()).unwrap_or(NonZeroU32::MIN)
    }

    /// The thread gets its number when it first asks. Numbers come again after 2³² − 1 threads that
    /// asked.
    #[inline]
    fn thread_id() -> NonZeroU32 {
        NonZeroU32::new(NUMBER.get()).unwrap_or_else(number)
    }

    fn is_unwinding() -> bool {
        std::thread::panicking()
    }
}

/// Gives the calling thread a number.
#[cold]
fn number() -> NonZeroU32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let next = loop {
        // Relaxed: each addition has a result of its own, and the numbers order nothing.
        if let Some(next) = NonZeroU32::new(LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1)) {
            break next;
        }
    };
    NUMBER.set(next.get());
    next
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_keeps_its_number_and_shares_it_with_none() {
        let ask = || (Native::thread_id(), Native::thread_id());
        let ours = ask();
        let theirs = thread::spawn(ask).join().unwrap();
        assert!(ours.0 == ours.1 && theirs.0 == theirs.1 && ours.0 != theirs.0);
        assert_eq!(Native::generation(), Native::generation());
    }
}
