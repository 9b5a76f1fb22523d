//! `std::hint`, simulated: [`spin_loop`] costs the machine file's time of a pause.
//!
//! [`work`] is not in std. A program's own computation takes no simulated time. If its length
//! matters, for example between two uses of a lock, the program states it with `work`.

pub use core::hint::{assert_unchecked, black_box, unreachable_unchecked};

use core::time::Duration;

use coreline_world::Work as _;

use crate::Sim;

/// Executes one iteration of a spin loop, in which other threads may run, like
/// [`std::hint::spin_loop`].
///
/// Outside of a machine, the function calls std's function.
pub fn spin_loop() {
    crate::words::atomic::spin_loop_hint();
}

/// Computes for about `span` without accesses to shared memory.
///
/// # Panics
///
/// Panics outside of a machine.
pub fn work(span: Duration) {
    Sim::work(span);
}
