//! [`Panics`]: the first panic of what a caller lets run, while all the rest is done.

use core::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use coreline_world::World;

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

    /// Whether [`resume`](Panics::resume) does not return. A thread that unwinds already goes on
    /// with that: a second panic would end the process.
    pub(super) fn goes_on<W: World>(&self) -> bool {
        self.0.is_some() && !W::is_unwinding()
    }

    /// Goes on with the panic, if there was one, and it [goes on](Panics::goes_on).
    pub(super) fn resume<W: World>(self) {
        if self.goes_on::<W>()
            && let Some(panic) = self.0
        {
            resume_unwind(panic);
        }
    }
}
