//! The record of a run, access by access, for the comparison of two runs.

use core::fmt;
use std::cell::RefCell;
use std::rc::Rc;

use coreline_topology::CpuId;

use crate::results::report::{Site, SourceSite};

/// An access as the engine puts it down.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) site: Site,
    /// An offset in the machine's memory.
    pub(crate) address: u64,
    pub(crate) cpu: u32,
    pub(crate) thread: u32,
    /// Picoseconds.
    pub(crate) at: u64,
}

/// The accesses of a run in their order, or the first of them; the machine and the one that started
/// it share it.
pub(crate) type Tape = Rc<RefCell<Records>>;

/// What is on a tape.
pub(crate) struct Records {
    kept: Vec<Record>,
    /// How many are kept.
    most: usize,
}

impl Records {
    /// Keeps the first accesses, up to this number.
    pub(crate) fn first(most: usize) -> Tape {
        Rc::new(RefCell::new(Records { kept: Vec::new(), most }))
    }

    pub(crate) fn push(&mut self, record: Record) {
        if self.kept.len() < self.most {
            self.kept.push(record);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.kept)
    }
}

/// An access of a simulated program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedAccess {
    /// The source location of the access.
    pub site: SourceSite,
    /// The word's address, as an offset in the machine's memory.
    pub address: u64,
    /// The CPU that made the access.
    pub cpu: CpuId,
    /// The number of the thread that had the CPU.
    pub thread: u32,
    /// The time at which the access took effect, in simulated nanoseconds since the start.
    pub at_ns: u64,
}

impl fmt::Display for TracedAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TracedAccess { site, address, cpu, thread, at_ns } = self;
        write!(f, "thread {thread} on {cpu} at {at_ns} ns accessed {address:#x} at {site}")
    }
}

impl Record {
    pub(crate) fn traced(&self) -> TracedAccess {
        TracedAccess {
            site: SourceSite::of(self.site),
            address: self.address,
            cpu: CpuId::new(self.cpu),
            thread: self.thread,
            at_ns: self.at / 1000,
        }
    }

    /// Whether two runs did the same. The compiler may have made several locations of one place.
    pub(crate) fn is_as(&self, other: &Record) -> bool {
        let key = |of: &Record| (of.address, of.cpu, of.thread, of.at);
        key(self) == key(other) && (core::ptr::eq(self.site, other.site) || self.site == other.site)
    }
}
