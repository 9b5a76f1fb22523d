//! `std::hint`, simulated: [`spin_loop`] costs what the machine file says of a pause.
//!
//! [`work`] is not in std. A program's own computation takes no simulated time; where its length
//! matters, between two uses of a lock for instance, the program states it.

pub use core::hint::{assert_unchecked, black_box, unreachable_unchecked};

use core::time::Duration;

use coreline_world::Work as _;

use crate::Sim;

/// Like [`std::hint::spin_loop`]: one turn of a spin loop passes, and others run meanwhile.
///
/// Outside of a machine it is std's.
pub fn spin_loop() {
    crate::words::atomic::spin_loop_hint();
}

/// Computes for about `span`, touching nothing shared.
///
/// # Panics
///
/// Outside of a machine.
pub fn work(span: Duration) {
    Sim::work(span);
}
