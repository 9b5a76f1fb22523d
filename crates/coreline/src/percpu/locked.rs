//! The interpreter for where no section can run: one slot, under its lock, never interrupted.

use coreline_world::restartable::{At, Ended, Steps};
use coreline_world::{Cell, Ordering, Restartable, Word};

/// Runs the steps of an operation on the slot with this number. Whoever makes one holds the lock
/// that excludes everybody else from the slot.
pub(super) struct Locked {
    index: usize,
}

impl Locked {
    /// # Safety
    ///
    /// The slot `index` of the operation that is run exists and is initialised, its lock is held,
    /// and no section can work on it: it is the shared one, or there are none, or they are stopped.
    pub(super) unsafe fn on(index: usize) -> Self {
        Locked { index }
    }
}

// SAFETY: each step does what it says; nobody interrupts, by the promise of `on`.
unsafe impl<W: Restartable> Steps<W> for Locked {
    fn slot<'a, F>(&mut self, at: &At<'a, F, W>) -> Result<&'a F, Ended> {
        // SAFETY: the promise of `on`.
        Ok(unsafe { at.slot(self.index) })
    }

    fn load<T: Word>(&mut self, word: &T) -> Result<T::Value, Ended> {
        // Relaxed: the lock orders the operations on a slot.
        Ok(word.load(Ordering::Relaxed))
    }

    fn store<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended> {
        // Relaxed: nobody reads it before the commit.
        word.store(value, Ordering::Relaxed);
        Ok(())
    }

    fn copy<const N: usize>(
        &mut self,
        to: &Cell<[u8; N], W>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), Ended> {
        // SAFETY: nobody else writes there, by the promise of `on`; and nobody reads there before
        // the commit.
        unsafe { to.write_at(offset, bytes, || true) };
        Ok(())
    }

    fn commit<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended> {
        // Release pairs with the acquire of a reader without the lock, such as `Buffer::len`.
        word.store(value, Ordering::Release);
        Ok(())
    }
}

/// The result of an operation whose interpreter never ends it early.
pub(super) fn complete<R>(result: Result<R, Ended>) -> R {
    result.unwrap_or_else(|ended| unreachable!("a locked operation ended as {ended:?}"))
}
