//! The laws of per-CPU memory, of concurrency IDs and of counters.
//!
//! How laws are run in the three worlds: [`worlds`].

mod bag;
mod budget;
mod budget_wait;
mod cid;
mod counter;
mod drain;
mod histogram;
mod limiter;
mod lossy;
mod percpu;
mod pool;
mod readings;
mod slots;
mod wide;
#[allow(dead_code, reason = "each family uses a part of it")]
#[path = "../worlds.rs"]
mod worlds;

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
