//! [`Panics`]: the first panic of what a caller lets run, while all the rest is done.

use core::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// See the module. One that is dropped is forgotten.
#[must_use]
pub(super) struct Panics(Option<Box<dyn Any + Send>>);

impl Panics {
    pub(super) const NONE: Panics = Panics(None);

    /// Runs what may panic.
    pub(super) fn run(&mut self, f: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
            self.0.get_or_insert(panic);
        }
    }

    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Goes on with the panic, if there was one.
    pub(super) fn resume(self) {
        if let Some(panic) = self.0 {
            resume_unwind(panic);
        }
    }
}
