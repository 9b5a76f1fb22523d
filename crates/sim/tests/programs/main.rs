//! Programs as users write them, the laws of a world, and random ones: they do in the machine what
//! they do elsewhere, and what is wrong in them is found.

#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod luck;
mod memory;
mod mirrors;
mod planted;
mod races;
mod random_programs;
mod schedules;

use coreline_sim::{Allocator, Failure, Machine};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The replay line of a failure brings the same failure back.
fn replays(failure: &Failure, program: impl FnOnce() + 'static) {
    let line = failure.replay.to_string();
    let again = Machine::replay(&line.parse().unwrap()).unwrap().run(program).unwrap_err();
    assert_eq!(*failure, *again, "{line}");
}
