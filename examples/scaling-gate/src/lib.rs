//! Two types that many threads change at once: [`Hits`] and [`Sessions`]. A test for each of their
//! operations measures the throughput on a simulated machine, and CI compares it with
//! `coreline-scale.toml`.

mod hits;
#[cfg(test)]
mod scaling;
mod sessions;
mod sync;

pub use hits::Hits;
pub use sessions::Sessions;
