//! A deterministic simulated many-core machine.
//!
//! [`Machine::run`] runs a program whose shared memory is of the world [`Sim`], on up to 4,096
//! simulated CPUs and one host thread, and charges it for every cache line that moves. It says how
//! the program would scale, finds what depends on preemption at an unlucky moment, and gives the
//! same answer for the same seed on any host.
//!
//! | item | what |
//! |---|---|
//! | [`Machine`], [`Run`], [`Report`] | what to run on, the run, what it cost |
//! | [`Statistics`], [`Details`], [`name()`] | what explains it: by line, source and CPU |
//! | [`Spec`], [`presets`] | machine files: tree and costs, each with its source |
//! | [`Faults`], [`Kernel`] | what the machine does to the program |
//! | [`Failure`], [`Replay`] | what went wrong, and the line that brings it back |
//! | [`Allocator`] | the simulated program's memory; must be the global allocator |
//!
//! What is left out of the model is listed in [`NOT_MODELLED`] and printed with every result.

mod arena;
mod coherence;
mod crowd;
mod engine;
mod failure;
mod faults;
mod kernel;
mod machine;
mod memory;
mod report;
mod restartable;
mod rng;
mod spec;
mod statistics;
mod words;
mod world;

pub use arena::Allocator;
pub use crowd::{Arbitration, ParseArbitrationError};
pub use failure::{Doing, Failure, FailureKind, ParseReplayError, Replay, ThreadState};
pub use faults::{Faults, ParseFaultsError};
pub use kernel::Kernel;
pub use machine::{Machine, Run};
pub use report::{
    AccessCost, CpuTime, Details, LineCost, NOT_MODELLED, Report, SiteCost, SourceSite, Statistics,
    Transfers, WordCost,
};
pub use restartable::SimSection;
pub use spec::{Cost, Costs, Spec, SpecError, presets};
pub use statistics::name;
pub use words::{SimPtr, SimTrack, SimU8, SimU32, SimU64, SimUsize};
pub use world::SimJoinHandle;

/// The simulated machine's world. A name for a type parameter; it has no values of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sim;
