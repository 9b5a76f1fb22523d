//! What the machine's kernel does: which thread runs when, for how long a thread computes or waits,
//! what interrupts it, and what faults hit it.

#[path = "../common/mod.rs"]
mod common;
mod extension;
mod faults;
mod hooks;
mod interrupts;
mod scheduling;
mod seams;
mod waits;
mod work;

use std::sync::Arc;

use coreline_sim::{Allocator, Machine, Report};
use coreline_world::{Line, Word};

use common::{U32, machine};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// A machine of two CPUs that gives up soon.
fn host() -> Machine {
    machine("host-2c", 1).step_limit(1_000_000)
}

/// What a program returns that ends well, and what it cost.
fn run<T: 'static>(machine: Machine, program: impl FnOnce() -> T + 'static) -> (T, Report) {
    let run = machine.run(program).unwrap_or_else(|failure| panic!("{failure}"));
    (run.value, run.report)
}

/// A word on a line of its own, from inside a machine.
fn word(value: u32) -> Arc<Line<U32>> {
    Arc::new(Line(U32::new_in(value)))
}
