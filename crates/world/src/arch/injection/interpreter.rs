//! The interpreter of definitions that ends an operation before one of its steps, once.

use core::sync::atomic::Ordering;

use super::bench::{Answer, Bench, Op};
use crate::restartable::{At, Ended, Steps};
use crate::{IndexBy, Native, Word};

/// The point at which an operation is aborted, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// The step of this number. Finding the slot is two steps, or four where the index is in a row.
    Step(usize),
    /// The store of this number; the commit is one, too.
    Store(usize),
    /// The commit; or the end, where an operation ends without one.
    Last,
}

/// Runs the steps of an operation on the slot of one index, or on that of one CPU's row.
pub(super) struct Interpreter {
    index: usize,
    abort: Option<Before>,
    taken: usize,
    stored: usize,
    committed: bool,
}

/// The special effect of a step.
enum StepKind {
    Plain,
    Store,
    Commit,
    /// The end of an operation without a commit.
    End,
}

impl Interpreter {
    pub(super) fn new(index: usize, abort: Option<Before>) -> Interpreter {
        Interpreter { index, abort, taken: 0, stored: 0, committed: false }
    }

    pub(super) fn undisturbed(index: usize) -> Interpreter {
        Interpreter::new(index, None)
    }

    /// An operation that is not aborted.
    pub(super) fn complete(mut self, bench: &Bench, op: Op) -> Answer {
        self.attempt(bench, op).expect("nothing was to abort it")
    }

    /// One attempt at an operation; `None` if it was aborted.
    pub(super) fn attempt(&mut self, bench: &Bench, op: Op) -> Option<Answer> {
        (self.taken, self.stored, self.committed) = (0, 0, false);
        let ended = bench.define(op, self).and_then(|answer| {
            // An operation that has nothing to commit can be aborted before it ends as well.
            if !self.committed {
                self.step(StepKind::End)?;
            }
            Ok(answer)
        });
        match ended {
            Ok(answer) => Some(answer),
            Err(Ended::NoSlot) => Some(None),
            Err(Ended::Aborted) => None,
        }
    }

    fn step(&mut self, kind: StepKind) -> Result<(), Ended> {
        let stores = matches!(kind, StepKind::Store | StepKind::Commit);
        let here = match self.abort {
            Some(Before::Step(number)) => number == self.taken,
            Some(Before::Store(number)) => stores && number == self.stored,
            Some(Before::Last) => matches!(kind, StepKind::Commit | StepKind::End),
            None => false,
        };
        self.taken += 1;
        self.stored += usize::from(stores);
        if here {
            self.abort = None;
            return Err(Ended::Aborted);
        }
        Ok(())
    }
}

// SAFETY: each step does what it says, or ends the operation.
unsafe impl Steps<Native> for Interpreter {
    fn slot<'a, F>(&mut self, at: &At<'a, F, Native>) -> Result<&'a F, Ended> {
        self.step(StepKind::Plain)?;
        let mut index = self.index;
        if let Some(rows) = at.rows() {
            self.step(StepKind::Plain)?;
            // SAFETY: it is read.
            let row = unsafe { rows.at(index) }.ok_or(Ended::NoSlot)?;
            self.step(StepKind::Plain)?;
            index = row.load(Ordering::Relaxed) as usize;
        }
        self.step(StepKind::Plain)?;
        if index >= at.limits().by(IndexBy::Cpu).load(Ordering::Relaxed) as usize {
            return Err(Ended::NoSlot);
        }
        // SAFETY: slots below the limit are live.
        Ok(unsafe { at.slot(index) })
    }

    fn load<T: Word>(&mut self, word: &T) -> Result<T::Value, Ended> {
        self.step(StepKind::Plain)?;
        Ok(word.load(Ordering::Relaxed))
    }

    fn store<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended> {
        self.step(StepKind::Store)?;
        word.store(value, Ordering::Relaxed);
        Ok(())
    }

    fn commit<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended> {
        self.step(StepKind::Commit)?;
        self.committed = true;
        word.store(value, Ordering::Relaxed);
        Ok(())
    }
}
