//! The laws of locks.
//!
//! How laws are run in the three worlds: [`worlds`].

mod biased;
mod condvar;
mod lock;
mod osq;
mod pair;
mod read_mostly;
mod rwlock;
mod upgradable;
mod waits;
#[allow(dead_code, reason = "each family uses a part of it")]
#[path = "../worlds.rs"]
mod worlds;

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
