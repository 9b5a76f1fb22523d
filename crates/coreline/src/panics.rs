//! [`Panics`]: the first panic of what a caller lets run, while all the rest is done.

use core::any::Any;
use core::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// See the module. What is not resumed is forgotten, never dropped: its drop may panic, too.
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

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Goes on with the panic, if there was one.
    pub(crate) fn resume(self) {
        if let Some(panic) = self.0 {
            resume_unwind(ManuallyDrop::into_inner(panic));
        }
    }
}
