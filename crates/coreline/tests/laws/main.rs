//! The laws of the primitives, one harness for each family, in all three worlds.
//!
//! A harness is a generic program that panics when the law is broken. [`worlds`] runs it: natively
//! as a stress test, on simulated machines with many seeds and faults, and in the model checker in
//! every interleaving. One binary holds all of it: the world is a type parameter.

mod counter;
mod lock;
mod worlds;

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
