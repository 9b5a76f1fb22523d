//! The laws of domains and their leases, and of object caches.
//!
//! How laws are run in the three worlds: [`worlds`].

mod domain;
mod domain_breaks;
mod lease_magazines;
mod lease_queue;
mod lease_rates;
mod leases;
mod left;
mod made;
mod object;
mod object_ends;
mod object_panics;
#[allow(dead_code, reason = "each family uses a part of it")]
#[path = "../worlds.rs"]
mod worlds;

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
