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
    /// Picoseconds.
    pub(crate) at: u64,
}

/// All accesses of a run in their order; the machine and the one that started it share it.
pub(crate) type Tape = Rc<RefCell<Vec<Record>>>;

/// An access of a simulated program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedAccess {
    /// The source location of the access.
    pub site: SourceSite,
    /// The word's address, as an offset in the machine's memory.
    pub address: u64,
    /// The CPU that made the access.
    pub cpu: CpuId,
    /// The time at which the access took effect, in simulated nanoseconds since the start.
    pub at_ns: u64,
}

impl fmt::Display for TracedAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TracedAccess { site, address, cpu, at_ns } = self;
        write!(f, "{cpu} at {at_ns} ns accessed {address:#x} at {site}")
    }
}

impl Record {
    pub(crate) fn traced(&self) -> TracedAccess {
        TracedAccess {
            site: SourceSite::of(self.site),
            address: self.address,
            cpu: CpuId::new(self.cpu),
            at_ns: self.at / 1000,
        }
    }

    /// Whether two runs did the same. The compiler may have made several locations of one place.
    pub(crate) fn is_as(&self, other: &Record) -> bool {
        (self.address, self.cpu, self.at) == (other.address, other.cpu, other.at)
            && (core::ptr::eq(self.site, other.site) || self.site == other.site)
    }
}
