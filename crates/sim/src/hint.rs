//! `std::hint`, simulated: [`spin_loop`] costs what the machine file says of a pause.

pub use core::hint::black_box;

use crate::engine;

/// As [`std::hint::spin_loop`]: one turn of a spin loop passes, and others run meanwhile.
///
/// Outside of a machine it is std's.
pub fn spin_loop() {
    if engine::runs() {
        engine::pause();
    } else {
        core::hint::spin_loop();
    }
}
