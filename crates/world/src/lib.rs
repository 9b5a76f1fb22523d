//! The seam of coreline: what an algorithm may ask of the machine that it runs on.
//!
//! For authors of lock-free code and of primitives. Write an algorithm once, generic over `W:`
//! [`World`], and run it on this machine, on a simulated one with hundreds of CPUs, and in a model
//! checker. (To use the primitives of `coreline` you need nothing from here.)
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
//! In the repository, a small primitive is `crates/coreline/src/lock/ticket.rs`; how its laws are
//! run in all worlds, CONTRIBUTING.md says there.
//!
//! # The worlds
//!
//! | world | what it is | what it is good for |
//! |---|---|---|
//! | [`Native`] | Linux: rseq, futex, membarrier; elsewhere, what std has | speed, signals |
//! | `coreline_sim::Sim` | the simulated many-core machine | scaling, preemption anywhere, faults |
//! | `model::Model` (feature `model`) | the loom model checker | weak memory order |
//!
//! The parameter is a type, never a `cfg`, so one test binary runs one algorithm in all three.
//! `Native` compiles to what hand-written atomics compile to.
//!
//! # The capabilities
//!
//! The contract is cut into small traits, each with a module of its own. [`World`] is their sum.
//!
//! | trait | gives | module |
//! |---|---|---|
//! | [`Words`] | atomic words, [`Cell`], padding to a line | [`word`], [`cell`] |
//! | [`Statics`] | [`WorldStatic`], [`WorldLocal`] | [`statics`] |
//! | [`Sleep`] | park on a word, wake | [`sleep`] |
//! | [`Place`] | CPU, node, cache domain, kernel concurrency ID | [`place`] |
//! | [`Restartable`] | operations on per-CPU memory that restart when preempted | [`restartable`] |
//! | [`Fences`] | fences, and the pair of a light and a heavy one | [`fences`] |
//! | [`Kick`] | interrupt another CPU; whether the scheduler wants this one | [`kick`] |
//! | [`Clock`] | time | [`clock`] |
//! | [`Signals`] | hold signals off, tell processes and threads apart | [`signals`] |
//! | [`Memory`] | map memory, place it on a node | [`memory`] |
//!
//! That is what an algorithm may ask. A program that runs in every world, such as a law or a
//! scenario, needs more, and asks for a [`Testbed`]:
//!
//! | trait | gives | module |
//! |---|---|---|
//! | [`Threads`] | spawn in a place, join, sleep | [`threads`] |
//! | [`Work`] | compute for a while, touching nothing shared | [`work`] |
//!
//! Waiting for a word to change is a method of the word: [`Word::wait_until`], and with a deadline
//! [`Word::wait_until_by`].
//!
//! # Features
//!
//! None is on by default: `coreline` needs none of them.
//!
//! | feature | gives | for |
//! |---|---|---|
//! | `laws` | `conformance`, the laws that every world must pass | tests of a world |
//! | `model` | `model::Model`, by way of loom | tests of an algorithm |
//! | `overflow` | `native::overflow`, a hook for stack overflows | the simulator |
//! | `portable` | a [`Native`] of what std has, on Linux too | programs, and tests of them |
//!
//! `portable` takes away what only Linux has, and one package of a program that asks for it has it
//! for all: a library should not ask. The front page of `coreline` says what is missing then.

pub mod cell;
pub mod clock;
#[cfg(feature = "laws")]
pub mod conformance;
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
pub mod statics;
pub mod threads;
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
pub use fences::Fences;
pub use kick::Kick;
pub use memory::{MapError, Memory};
pub use native::Native;
pub use place::Place;
pub use restartable::{ArrayStack, Buffer, Full, IndexBy, List, ListNode, Restartable, Slot};
pub use signals::Signals;
pub use sleep::{Parked, Sleep};
pub use statics::{Statics, WorldLocal, WorldStatic};
pub use threads::{JoinHandle, Placement, SpawnError, Threads};
pub use why::Why;
pub use word::{ConstWords, Integer, Line, Unsigned, Word, Words};
pub use work::Work;

/// The sum of the capabilities: what an algorithm names as its one type parameter.
///
/// The functions of a world are associated functions, without a receiver: which machine is meant
/// follows from where the calling code runs (the process, the simulated machine or the model
/// execution that the calling thread belongs to).
///
/// # Safety
///
/// Primitives with `unsafe` code in them rely on a world's laws: that a wait returns only a value
/// that was accepted, that one exchange wins, that a wake is not lost. A type may be a world only
/// if it passes every law in `conformance`; this trait is where its author vouches for that, and
/// for the capabilities beneath it.
pub unsafe trait World:
    Words + Statics + Sleep + Place + Restartable + Fences + Kick + Clock + Signals + Memory
{
    /// The world's name in reports: `native`, `sim` or `model`.
    const NAME: &'static str;
}

/// A world in which programs run: what laws and scenarios name as their type parameter, and what no
/// algorithm asks for.
pub trait Testbed: World + Threads + Work {}

impl<W: World + Threads + Work> Testbed for W {}

/// A world whose objects can be built in a `static` or another `const`.
///
/// [`Native`] and `Sim` are such worlds; a loom object is born inside a model execution, so the
/// model is not.
pub trait ConstWorld: World + ConstWords {}

impl<W: World + ConstWords> ConstWorld for W {}

/// A capability that was asked of a world and is not there.
///
/// Returned, never guessed around: the caller either has a documented fallback or passes this on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {world} world has no {capability} here: {why}; {remedy}")]
pub struct Lacking {
    /// The world that was asked.
    pub world: &'static str,
    /// What was asked of it.
    pub capability: &'static str,
    /// What was found instead.
    pub why: Why,
    /// What the reader can do about it.
    pub remedy: &'static str,
}

/// The example of README.md, as it stands there.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
