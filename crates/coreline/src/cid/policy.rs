//! The interface of a policy to a space.

use core::fmt;
use core::ops::Range;
use std::sync::Arc;

use coreline_topology::CpuSet;
use coreline_world::{MapError, Time, World};

use super::base::Base;
use super::places::{Parts, Place};

/// A policy, which determines how IDs are handed out: [`FirstFit`](super::FirstFit),
/// [`Recent`](super::Recent), [`Owned`](super::Owned) or [`Clustered`](super::Clustered). This
/// trait is sealed.
pub trait Policy: Sealed {
    /// The name of the policy in the `coreline` program and its results.
    const NAME: &'static str;
}

/// The part that only this crate implements.
pub trait Sealed: Sized + fmt::Debug + 'static {
    /// The state machine.
    type Engine<W: World>: Engine<W>;

    /// Whether the CPUs under each last-level cache have a range of IDs of their own.
    const CLUSTERED: bool = false;
}

/// A policy under which CPUs keep references to IDs.
pub trait References: Policy {
    /// Whether the policy has the changes of Desnoyers 2024: recent IDs, expansion, the union of
    /// allowed CPUs.
    const CACHE_LOCAL: bool;
}

/// The state machine of a policy. A layout defines the numbers of CPUs and IDs. The methods of
/// [`CidSpace`](super::CidSpace) say what each call means.
pub trait Engine<W: World>: Send + Sync {
    /// The data of a task.
    type Task: Send + Sync;

    fn new_in(layout: &Arc<Parts>) -> Self;
    fn base(&self) -> &Base<W>;
    fn bounded(&self, place: Place) -> Range<u32>;
    fn enter(&self, allowed: &CpuSet) -> Self::Task;
    fn leave(&self, task: &Self::Task);
    fn allow(&self, task: &Self::Task, cpus: &CpuSet);
    /// Returns `None` if a task runs there. If there is no memory for the row, nothing has changed.
    fn switch_in(
        &self,
        now: Time,
        place: Place,
        task: &Self::Task,
    ) -> Result<Option<u32>, MapError>;
    fn switch_out(&self, now: Time, place: Place, task: &Self::Task);
    fn migrate(&self, now: Time, task: &Self::Task, from: Place, to: Place);
    fn expire(&self, now: Time);
    fn exec(&self, now: Time, task: &Self::Task, allowed: &CpuSet);
}
