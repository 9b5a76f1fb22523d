//! Operations without a section: they run by their definition, on one slot, under its lock.

use coreline_world::restartable::{At, Ended, Operation, Steps};
use coreline_world::{Ordering, Word, World};

use super::guarded::Guarded;

/// Runs an operation on slot `index`, which is `guarded`, under the lock there.
///
/// # Safety
///
/// `at` is that of what is guarded, the slot is initialised, and no section can work on it: it is
/// the shared one, or there are no sections, or they are stopped.
pub(super) unsafe fn run<F, W: World, O: Operation<W, F>>(
    guarded: &Guarded<F, W>,
    at: At<'_, F, W>,
    index: usize,
    operation: O,
) -> O::Output {
    let _guard = guarded.lock.lock();
    let output = operation.attempt(&mut Locked { index }, at);
    output.unwrap_or_else(|ended| unreachable!("a locked operation ended as {ended:?}"))
}

/// The interpreter that is never interrupted. [`run`] alone makes one, with the lock held that
/// excludes all others from the slot of this index.
struct Locked {
    index: usize,
}

// SAFETY: each step does what it says; nothing interrupts it, by the promise of `run`.
unsafe impl<W: World> Steps<W> for Locked {
    fn slot<'a, F>(&mut self, at: &At<'a, F, W>) -> Result<&'a F, Ended> {
        // SAFETY: the slot is initialised, by the promise of `run`.
        Ok(unsafe { at.slot(self.index) })
    }

    fn load<T: Word>(&mut self, word: &T) -> Result<T::Value, Ended> {
        // Relaxed: the lock orders the operations on a slot.
        Ok(word.load(Ordering::Relaxed))
    }

    fn store<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended> {
        // Relaxed: no other thread reads it before the commit, except for hints such as
        // `ResizableStack::len`, behind which nothing is read.
        word.store(value, Ordering::Relaxed);
        Ok(())
    }

    fn commit<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended> {
        // Release, as `Steps::commit` promises: it pairs with the acquire of a reader without the
        // lock, which could else follow a pointer to what it does not see yet.
        word.store(value, Ordering::Release);
        Ok(())
    }
}
