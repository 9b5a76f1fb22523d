//! The results of a run: report, statistics and lock reports, or a failure and its replay line.

pub(crate) mod failure;
pub(crate) mod false_sharing;
pub(crate) mod locks;
pub(crate) mod memory;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod statistics;
pub(crate) mod tape;
pub(crate) mod trace;
