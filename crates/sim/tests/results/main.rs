//! What is said of runs: failures, reports, statistics, traces, tables and claims; and what
//! documents say of them.

mod attribute;
mod claims;
#[path = "../common/mod.rs"]
mod common;
mod failures;
mod guide;
mod hosts;
mod json;
mod locks;
mod measure;
mod panics;
// Has this binary's allocator, since it is a whole test as a reader of the guide has it.
mod queue_scales;
mod statistics;
mod third_party;
mod trace;
