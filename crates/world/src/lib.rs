//! The interface between an algorithm and the machine on which it runs.
//!
//! The crate is for authors of lock-free code and of primitives. Write an algorithm once, generic
//! over `W:` [`World`]. Then run it on this machine, on a simulated machine with hundreds of CPUs,
//! and in a model checker. Users of `coreline`'s primitives do not need this crate.
//!
//! ```
//! use std::sync::Arc;
//!
//! use coreline_world::model::{Checker, Model, Plant, check}; // feature `model`
//! use coreline_world::{Cell, JoinHandle, Native, Ordering, Placement, Testbed, Word};
//!
//! fn hand_over<W: Testbed>() {
//!     let shared = Arc::new((Cell::<u64, W>::new_in(0), W::U32::new_in(0)));
//!     let theirs = Arc::clone(&shared);
//!     let writer = W::spawn(Placement::Anywhere, move || {
//!         // SAFETY: no thread reads before it has seen the word set.
//!         theirs.0.with_mut(|data| unsafe { data.write(42) });
//!         theirs.1.store(1, Ordering::Release); // pairs with the Acquire below
//!     });
//!     shared.1.wait_until(Ordering::Acquire, |set| set == 1);
//!     // SAFETY: the only write came before the word was set.
//!     assert_eq!(shared.0.with(|data| unsafe { data.read() }), 42);
//!     writer.expect("there is room for two threads").join();
//! }
//!
//! hand_over::<Native>(); // once, as fast as this machine is
//! check(hand_over::<Model>); // in every order that the memory model allows
//!
//! // The same source without its `Release`: the model finds the data race.
//! let planted = Checker::new().plant(Plant::RELAXED_STORES);
//! assert!(planted.try_check(hand_over::<Model>).is_err());
//! ```
//!
//! In the repository, `crates/coreline/src/lock/ticket.rs` is a small primitive, and
//! CONTRIBUTING.md says how to run its laws (the tests of its properties) in all worlds.
//!
//! # The worlds
//!
//! | world | what it is | what it is for |
//! |---|---|---|
//! | [`Native`] | Linux: rseq, futex, membarrier; elsewhere, std | speed, signals |
//! | `coreline_sim::Sim` | the simulated many-core machine | scaling, preemption anywhere, faults |
//! | `model::Model` (feature `model`) | the loom model checker | weak memory order |
//!
//! The world is a type parameter and not a `cfg`, so one test binary runs one algorithm in all
//! three worlds. `Native` compiles to the same code as hand-written atomics.
//!
//! # The capabilities
//!
//! The contract consists of small traits, each in a module of its own. [`World`] combines them.
//!
//! | trait | gives | module |
//! |---|---|---|
//! | [`Words`] | atomic words, [`Cell`], padding to a line | [`word`], [`cell`] |
//! | [`Statics`] | [`WorldStatic`], [`WorldLocal`] | [`statics`] |
//! | [`Sleep`] | park on a word, wake | [`sleep`] |
//! | [`Place`] | CPU, node, cache domain, kernel concurrency ID | [`place`] |
//! | [`Restartable`] | operations on per-CPU memory that restart when preempted | [`restartable`] |
//! | [`Fences`] | fences, and the pair of a light and a heavy one | [`fences`] |
//! | [`Kick`] | interrupt another CPU; whether the scheduler wants this CPU | [`kick`] |
//! | [`SliceExtension`] | keep the CPU for a few microseconds more | [`extension`] |
//! | [`Clock`] | time | [`clock`] |
//! | [`Signals`] | block signals, tell processes and threads apart | [`signals`] |
//! | [`Memory`] | map memory, place it on a node | [`memory`] |
//!
//! An algorithm may use these capabilities. A program that runs in every world, such as a law or a
//! scenario, needs more, and uses a [`Testbed`]:
//!
//! | trait | gives | module |
//! |---|---|---|
//! | [`Threads`] | spawn in a place, join, sleep | [`threads`] |
//! | [`Work`] | compute for a while without touching shared memory | [`work`] |
//!
//! To wait until a word changes, use [`Word::wait_until`], or [`Word::wait_until_by`] with a
//! deadline.
//!
//! # Features
//!
//! No feature is on by default: `coreline` needs none of them.
//!
//! | feature | gives | for |
//! |---|---|---|
//! | `laws` | `conformance`, the laws (tests) that every world must pass | tests of a world |
//! | `model` | `model::Model`, by way of loom | tests of an algorithm |
//! | `overflow` | `native::overflow`, a hook for stack overflows | the simulator |
//! | `portable` | a [`Native`] built on std, on Linux too | programs, and tests of them |
//!
//! `portable` turns off all features that exist only on Linux. If one package of a program enables
//! `portable`, all packages get it, so a library should not enable it. The front page of `coreline`
//! lists the features that are then missing.

pub mod cell;
pub mod clock;
#[cfg(feature = "laws")]
pub mod conformance;
pub mod extension;
pub mod fences;
pub mod kick;
pub mod memory;
#[cfg(feature = "model")]
pub mod model;
pub mod native;
pub mod place;
pub mod restartable;
pub mod signals;
pub mod sleep;
mod slot;
pub mod statics;
pub mod threads;
mod track;
mod why;
pub mod word;
pub mod work;

// Sections need Linux. `native` chooses by the same condition.
#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod arch;
/// The portable world has no sections, so an operation needs none.
#[cfg(any(not(target_os = "linux"), feature = "portable"))]
mod arch {
    pub trait Sections<F, R> {}

    impl<F, R, O> Sections<F, R> for O {}
}

pub use core::sync::atomic::Ordering;

pub use cell::{Cell, CellMut, CellRef, Track};
pub use clock::{Clock, Time};
pub use extension::{Extended, SliceExtension};
pub use fences::Fences;
pub use kick::Kick;
pub use memory::{MapError, Memory};
pub use native::Native;
pub use place::Place;
pub use restartable::{Full, IndexBy, Restartable, Slot};
pub use signals::Signals;
pub use sleep::{Parked, Sleep};
pub use statics::{Statics, WorldLocal, WorldStatic};
pub use threads::{JoinHandle, Placement, SpawnError, ThreadOptions, Threads};
pub use why::Why;
pub use word::{ConstWords, Integer, Line, Unsigned, Word, Words};
pub use work::Work;

/// The combination of the capabilities, and the only type parameter that an algorithm needs.
///
/// The functions of a world are associated functions, without a receiver. The machine follows from
/// the calling thread. It is the thread's process, simulated machine or model execution.
///
/// # Safety
///
/// Primitives with `unsafe` code rely on a world's laws. For example, a wait returns only a value
/// that its condition accepted, exactly one of two racing compare-exchanges from the same value
/// succeeds, and no wake is lost. A type may be a world only if it passes every law in
/// `conformance`. By implementing this trait, the author guarantees these laws and the laws of the
/// capabilities.
pub unsafe trait World:
    Words
    + Statics
    + Sleep
    + Place
    + Restartable
    + Fences
    + Kick
    + SliceExtension
    + Clock
    + Signals
    + Memory
{
    /// The world's name in reports: `native`, `sim` or `model`.
    const NAME: &'static str;
}

/// A world in which programs run. Laws and scenarios use it as their type parameter. Algorithms do
/// not.
pub trait Testbed: World + Threads + Work {}

impl<W: World + Threads + Work> Testbed for W {}

/// A world whose objects can be built in a `static` or another `const`.
///
/// [`Native`] and `Sim` are such worlds. The model is not one, because a loom object is created
/// inside a model execution.
pub trait ConstWorld: World + ConstWords {}

impl<W: World + ConstWords> ConstWorld for W {}

/// The error for a requested capability that the world does not have.
///
/// The library returns this error and never guesses. The caller either has a documented fallback or
/// returns the error to its own caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {world} world has no {capability} here: {why}; {remedy}")]
pub struct Lacking {
    /// The world.
    pub world: &'static str,
    /// The capability.
    pub capability: &'static str,
    /// The reason.
    pub why: Why,
    /// The remedy that the user can try.
    pub remedy: &'static str,
}

/// The example of README.md, unchanged.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
