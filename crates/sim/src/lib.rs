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

mod engine;
mod experiments;
mod hardware;
mod machine;
mod mirrors;
mod results;
mod settings;
mod words;
mod world;

pub use experiments::claim;
pub use experiments::explore::{Explore, Explored, search};
pub use hardware::arena::Allocator;
pub use hardware::class::Class;
pub use hardware::contention::{Arbitration, ParseArbitrationError};
pub use hardware::spec::{Cost, Costs, Spec, SpecError, presets};
pub use machine::calibration::{PingPong, Transfer};
pub use machine::{Machine, Run};
pub use mirrors::{atomic, hint, sync, thread, time};
pub use results::failure::{CpuState, Doing, Failure, FailureKind, ThreadState};
pub use results::locks::{Handoffs, LockReport};
pub use results::replay::{ParseReplayError, Replay};
pub use results::report::{
    AccessCost, CpuTime, Details, LineCost, NOT_MODELLED, Report, SiteCost, SourceSite, Statistics,
    Transfers, WordCost,
};
pub use settings::faults::{Faults, ParseFaultsError};
pub use settings::kernel::Kernel;
pub use settings::schedule::{Choices, ParseScheduleError, Schedule};
pub use words::{SimPtr, SimTrack, SimU8, SimU32, SimU64, SimUsize};
pub use world::probes::{name, transfers};
pub use world::restartable::SimSection;
pub use world::signals::{SimHeld, on_signal};
pub use world::{SimJoinHandle, exec, interrupts, locks};

/// The simulated machine's world. A name for a type parameter; it has no values of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sim;
