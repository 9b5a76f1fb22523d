//! The thread that is inside a member of a presence, or a reader of a value.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::boundary::Outcome;
use crate::code::coreline_code_t as Code;
use crate::lock::this_thread;

/// The thread that is inside, or none. What belongs to the thread inside is used by this thread
/// alone, as far as a call can tell: two threads that enter at the same time are not told.
pub(crate) struct Owner {
    /// 0, or the number of the thread.
    thread: AtomicU64,
}

impl Owner {
    pub(crate) const fn none() -> Self {
        Owner { thread: AtomicU64::new(0) }
    }

    /// Makes the calling thread the one inside.
    #[inline]
    pub(crate) fn enter(&self) -> Outcome {
        // Acquire: pairs with the Release in `leave`, for a program that passes a member to another
        // thread by a relaxed access. A thread finds its own number only if it wrote it last.
        match self.thread.load(Ordering::Acquire) {
            0 => {
                // Relaxed: the thread itself finds it, and others only compare it.
                self.thread.store(this_thread(), Ordering::Relaxed);
                Ok(())
            }
            own if own == this_thread() => Err(Code::CORELINE_ERROR_INSIDE),
            _ => Err(Code::CORELINE_ERROR_NOT_OWNER),
        }
    }

    /// Finds that the calling thread is inside.
    #[inline]
    pub(crate) fn is_inside(&self) -> Outcome {
        // Relaxed: a thread finds its own number only if it wrote it last.
        match self.thread.load(Ordering::Relaxed) {
            0 => Err(Code::CORELINE_ERROR_OUTSIDE),
            own if own == this_thread() => Ok(()),
            _ => Err(Code::CORELINE_ERROR_NOT_OWNER),
        }
    }

    /// Finds that no thread is inside, for a caller that destroys what has this.
    pub(crate) fn is_outside(&self) -> Outcome {
        match self.is_inside() {
            Ok(()) => Err(Code::CORELINE_ERROR_INSIDE),
            Err(Code::CORELINE_ERROR_OUTSIDE) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// The calling thread, which is inside, leaves.
    #[inline]
    pub(crate) fn leave(&self) {
        // Release: pairs with the Acquire in `enter`.
        self.thread.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Threads that begin later may have the memory of the one that ended.
    #[test]
    fn a_thread_that_ended_inside_is_no_later_thread() {
        let owner = Owner::none();
        let in_a_thread = |f: fn(&Owner) -> Outcome| {
            thread::scope(|scope| scope.spawn(|| f(&owner)).join().expect("no panic"))
        };
        assert_eq!(in_a_thread(Owner::enter), Ok(()));
        for _ in 0..10 {
            let found = [Owner::enter, Owner::is_inside, Owner::is_outside].map(in_a_thread);
            assert_eq!(found, [Err(Code::CORELINE_ERROR_NOT_OWNER); 3]);
        }
    }

    #[test]
    fn one_thread_is_inside() {
        let owner = Owner::none();
        assert_eq!(owner.is_inside(), Err(Code::CORELINE_ERROR_OUTSIDE));
        assert_eq!((owner.is_outside(), owner.enter()), (Ok(()), Ok(())));
        assert_eq!(owner.is_inside(), Ok(()));
        assert_eq!(owner.enter(), Err(Code::CORELINE_ERROR_INSIDE));
        assert_eq!(owner.is_outside(), Err(Code::CORELINE_ERROR_INSIDE));
        thread::scope(|scope| {
            let other = || [owner.enter(), owner.is_inside(), owner.is_outside()];
            let found = scope.spawn(other).join().expect("no panic");
            assert_eq!(found, [Err(Code::CORELINE_ERROR_NOT_OWNER); 3]);
        });
        owner.leave();
        assert_eq!(owner.enter(), Ok(()));
    }
}
