//! [`Panics`]: the first panic of what a caller lets run, while all the rest is done. And
//! [`quietly`]: what runs without a caller that waits.

use core::any::Any;
use core::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use coreline_world::World;

/// Runs a function that does not belong to the worker and that no thread waits for. If it panics,
/// the panic has no place to go. The worker may be in the middle of a call, which must not be left
/// before it ends.
pub(crate) fn quietly(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        // Not dropped: that may panic, too.
        core::mem::forget(panic);
    }
}

/// See the module. A panic that is not resumed is forgotten and never dropped, because its drop may
/// panic, too.
#[must_use]
pub(crate) struct Panics(Option<ManuallyDrop<Box<dyn Any + Send>>>);

impl Panics {
    pub(crate) const NONE: Panics = Panics(None);

    /// Runs what may panic.
    pub(crate) fn run(&mut self, f: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
            let panic = ManuallyDrop::new(panic);
            self.0.get_or_insert(panic);
        }
    }

    /// Drops each of these.
    pub(crate) fn drop_each<T>(&mut self, values: impl IntoIterator<Item = T>) {
        values.into_iter().for_each(|value| self.run(|| drop(value)));
    }

    /// Whether [`resume`](Panics::resume) does not return. A thread that is already unwinding
    /// continues with its first panic, because a second panic would end the process.
    pub(crate) fn goes_on<W: World>(&self) -> bool {
        self.0.is_some() && !W::is_unwinding()
    }

    /// Resumes the panic, if there was one and the thread [may resume it](Panics::goes_on).
    pub(crate) fn resume<W: World>(self) {
        if self.goes_on::<W>()
            && let Some(panic) = self.0
        {
            resume_unwind(ManuallyDrop::into_inner(panic));
        }
    }
}
