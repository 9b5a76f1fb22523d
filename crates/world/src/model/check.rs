//! The checker, which runs a program under loom.

use core::sync::atomic::AtomicU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Plant, place, statics};
use crate::Ordering;

/// Explores all executions of `program` with loom's default bounds.
///
/// # Panics
///
/// Panics if an execution fails, like [`Checker::check`].
pub fn check(program: impl Fn() + Send + Sync + 'static) {
    Checker::new().check(program);
}

/// The limits for the exploration of a program, and the planted bug.
///
/// loom's environment variables (`LOOM_MAX_PREEMPTIONS`, `LOOM_MAX_BRANCHES`, `LOOM_LOCATION`,
/// `LOOM_MAX_DURATION`, `LOOM_MAX_PERMUTATIONS`) override the settings in the test's source, so
/// that a single run can explore more executions or print more details. `LOOM_LOG` has no effect.
///
/// ```
/// use coreline_world::model::{Checker, Model};
/// use coreline_world::{Integer, JoinHandle, Ordering, Placement, Threads, Word, Words};
/// use std::sync::Arc;
///
/// Checker::new().preemption_bound(2).check(|| {
///     let word = Arc::new(<Model as Words>::U32::new_in(0));
///     let theirs = Arc::clone(&word);
///     let add = |word: &<Model as Words>::U32| word.fetch_add(1, Ordering::Relaxed);
///     let other = Model::spawn(Placement::Anywhere, move || add(&theirs));
///     add(&word);
///     other.expect("there is room for two threads").join();
///     assert_eq!(word.load(Ordering::Relaxed), 2);
/// });
/// ```
#[derive(Debug, Clone, Default)]
pub struct Checker {
    preemption_bound: Option<usize>,
    max_branches: Option<usize>,
    plant: Plant,
}

impl Checker {
    /// Creates a checker that explores every execution, with loom's default limit of 1,000 branches
    /// each, and without a planted bug (see [`Plant`]).
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the exploration to executions with at most `bound` preemptions. Two or three find
    /// most mistakes, and keep programs of three threads feasible.
    #[must_use]
    pub fn preemption_bound(mut self, bound: usize) -> Self {
        self.preemption_bound = Some(bound);
        self
    }

    /// Sets the maximum number of branches in an execution. A branch is a point at which loom
    /// chooses a thread or a value. A program with more branches fails the check, so it cannot pass
    /// unexplored.
    #[must_use]
    pub fn max_branches(mut self, branches: usize) -> Self {
        self.max_branches = Some(branches);
        self
    }

    /// Puts the planted bug `plant` into the program, in place of an earlier planted bug.
    #[must_use]
    pub fn plant(mut self, plant: Plant) -> Self {
        self.plant = plant;
        self
    }

    /// Explores `program`. The check passes if no execution panics, races or deadlocks.
    ///
    /// # Panics
    ///
    /// Panics with the [`Failure`] if the check does not pass.
    pub fn check(&self, program: impl Fn() + Send + Sync + 'static) {
        if let Err(failure) = self.try_check(program) {
            panic!("{failure}");
        }
    }

    /// Explores `program`, and returns the number of its executions.
    ///
    /// The panic that fails an execution is printed when it happens, like any panic. The failed
    /// thread unwinds. If loom fails again, the thread's destructors read the last values of words,
    /// and their accesses to cells are not checked. Statics and the stacks of the execution's other
    /// threads are leaked.
    ///
    /// # Errors
    ///
    /// The first execution that failed. Later executions were not explored.
    pub fn try_check(&self, program: impl Fn() + Send + Sync + 'static) -> Result<u64, Failure> {
        self.explore(Box::new(program))
    }

    /// Not generic over the program, so that loom's part of a check is compiled once.
    fn explore(&self, program: Box<dyn Fn() + Send + Sync>) -> Result<u64, Failure> {
        // loom's threads have small stacks; what can be built before is.
        place::topology();
        let builder = self.builder();
        let _planted = self.plant.put_in();
        let started = Arc::new(AtomicU64::new(0));
        let executions = Arc::clone(&started);
        let explored = catch_unwind(AssertUnwindSafe(|| {
            builder.check(move || {
                // Relaxed, here and below: one host thread counts, the one that reads the count.
                executions.fetch_add(1, Ordering::Relaxed);
                program();
                statics::end_thread();
            });
        }));
        let executions = started.load(Ordering::Relaxed);
        match explored {
            Ok(()) => Ok(executions),
            Err(panic) => Err(Failure {
                message: panic
                    .downcast::<String>()
                    .map(|text| *text)
                    .or_else(|panic| panic.downcast::<&str>().map(|text| (*text).to_owned()))
                    .unwrap_or_else(|_| "a panic without a text".to_owned()),
                execution: executions,
                preemption_bound: builder.preemption_bound,
                max_branches: builder.max_branches,
            }),
        }
    }

    fn builder(&self) -> loom::model::Builder {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(self.preemption_bound);
        if let (Some(branches), None) = (self.max_branches, std::env::var_os("LOOM_MAX_BRANCHES")) {
            builder.max_branches = branches;
        }
        builder
    }
}

/// An execution that loom found to be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}\nthis was execution {execution}; to see it again, with the source lines involved, run the \
     same test with{} LOOM_MAX_BRANCHES={max_branches} LOOM_LOCATION=1",
    message.trim_end(),
    preemption_bound.map_or_else(String::new, |bound| format!(" LOOM_MAX_PREEMPTIONS={bound}")),
)]
pub struct Failure {
    /// The text of the panic, which is from loom (`Causality violation`, `deadlock`) or from an
    /// assertion.
    pub message: String,
    /// The number of the failed execution, counted from 1. The order is the same in every run with
    /// the same bounds.
    pub execution: u64,
    /// The bound on preemptions of this check.
    pub preemption_bound: Option<usize>,
    /// The bound on branches of this check.
    pub max_branches: usize,
}
