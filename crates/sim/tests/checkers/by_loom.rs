//! loom: every execution that C11's memory model permits, depth first.

#[path = "programs.rs"]
mod programs;

mod api {
    pub(super) use loom::cell::UnsafeCell;
    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    pub(super) use loom::sync::{Arc, Condvar, Mutex, RwLock};
    pub(super) use loom::thread;
}

use super::{Program, child, runs};

const PROGRAMS: &[Program] = compiled!();

pub(super) fn check(program: usize, mistaken: bool) {
    let mut builder = loom::model::Builder::new();
    builder.max_permutations = Some(runs(mistaken) as usize);
    builder.check(child::counting(PROGRAMS[program], mistaken));
}
