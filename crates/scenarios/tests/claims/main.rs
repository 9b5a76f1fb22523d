//! All tests of the library: that the scenarios' checks can fail, that they measure what they say,
//! and what is claimed of each. They are one program, so that what is generic over a world is
//! compiled once.

mod all;
mod band;
mod config;
mod execstorm;
mod filecopy;
mod intermittent;
mod ipistorm;
mod kernel;
mod kernlock;
mod lazymm;
mod lineops;
mod lockscale;
mod metric;
mod pingserve;
mod point;
mod readscale;
mod shootdown;
mod switchstorm;
mod tenants;
mod threadstorm;

/// The simulated programs' memory comes from their machine.
#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
