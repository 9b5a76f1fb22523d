//! The laws of calls to workers, of masks, and of what is told to those that are present.
//!
//! How laws are run in the three worlds: [`worlds`].

mod beyond_seats;
mod call;
mod call_breaks;
mod call_serves;
mod call_users;
mod mask;
mod nested;
mod page;
mod pools;
mod presence;
mod rcu;
mod rcu_barriers;
mod reads;
mod reclaim;
mod refused;
mod replies;
mod schedules;
mod scopes;
mod seats;
mod updates;
#[allow(dead_code, reason = "each family uses a part of it")]
#[path = "../worlds.rs"]
mod worlds;

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
