//! A deterministic simulated many-core machine.
//!
//! [`Machine::run`] runs a program whose shared memory belongs to the world [`Sim`], on up to 4,096
//! simulated CPUs and one host thread, and charges it for every cache line that moves. It says how
//! the program would scale, finds mistakes that need a preemption at an unlucky moment, and gives
//! the same answer for the same seed on any host.
//!
//! | item | what |
//! |---|---|
//! | [`Machine`], [`Run`], [`Report`] | what to run on, the run, what it cost |
//! | [`Statistics`], [`Details`], [`name()`] | what explains it: by line, source and CPU |
//! | [`transfers()`] | the same by line, while the program runs |
//! | [`Spec`], [`presets`] | machine files: tree and costs, each with its source |
//! | [`Class`], [`Transfer`], [`PingPong`] | published latencies, and what transfers cost |
//! | [`atomic`], [`sync`], [`thread`], [`time`], [`hint`] | std's modules, simulated |
//! | [`locks`] | reports on each lock of a run |
//! | [`claim`] | what must hold over all that is unknown of a machine |
//! | [`Faults`], [`on_signal`], [`Kernel`] | what the machine does to the program |
//! | [`interrupts`] | from CPU to CPU, masked, and monitored waits |
//! | [`Schedule`], [`search()`], [`Explore`] | which thread runs next; looking for mistakes |
//! | [`Failure`], [`Replay`] | what went wrong, and the line that brings it back |
//! | [`Allocator`] | the simulated program's memory; must be the global allocator |
//!
//! The user's guide is `docs/simulating.md`.
//!
//! What is left out of the model is listed in [`NOT_MODELLED`] and printed with every result.

mod arena;
pub mod atomic;
mod calibration;
pub mod claim;
mod coherence;
mod crowd;
mod effect;
mod engine;
mod explore;
mod failure;
mod faults;
pub mod hint;
pub mod interrupts;
mod kernel;
pub mod locks;
mod machine;
mod memory;
mod replay;
mod report;
mod restartable;
mod rng;
mod schedule;
mod signals;
mod spec;
mod statistics;
pub mod sync;
pub mod thread;
pub mod time;
mod words;
mod world;

pub use arena::Allocator;
pub use calibration::{Class, PingPong, Transfer};
pub use crowd::{Arbitration, ParseArbitrationError};
pub use explore::{Explore, Explored, search};
pub use failure::{CpuState, Doing, Failure, FailureKind, ThreadState};
pub use faults::{Faults, ParseFaultsError};
pub use kernel::Kernel;
pub use locks::{Handoffs, LockReport};
pub use machine::{Machine, Run};
pub use replay::{ParseReplayError, Replay};
pub use report::{
    AccessCost, CpuTime, Details, LineCost, NOT_MODELLED, Report, SiteCost, SourceSite, Statistics,
    Transfers, WordCost,
};
pub use restartable::SimSection;
pub use schedule::{Choices, ParseScheduleError, Schedule};
pub use signals::{SimHeld, on_signal};
pub use spec::{Cost, Costs, Spec, SpecError, presets};
pub use statistics::{name, transfers};
pub use words::{SimPtr, SimTrack, SimU8, SimU32, SimU64, SimUsize};
pub use world::{SimJoinHandle, exec};

/// The simulated machine's world. A name for a type parameter; it has no values of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sim;
