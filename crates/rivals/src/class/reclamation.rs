//! The class `reclamation`: reading a pointer in a section that keeps what it points to, and
//! replacing it so that the old value is freed when no section can hold it.
//!
//! All replace a box of the same size, made by the same allocator. The state that a rival keeps for
//! a thread (a hazard pointer) is made once for all operations.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use arc_swap::ArcSwap;
use coreline::rcu::{Collector, Rcu};
use crossbeam_epoch::{self as epoch, Atomic, Owned};
use haphazard::HazardPointer;
use seize::Guard as _;

use super::{Bench, Form, Goal, Most, Params, Role, candidate, does, rounds};

const READS: [&str; 2] = ["coreline Rcu", "coreline Collector"];
const REPLACES: [&str; 2] = ["coreline Rcu, replace", "coreline Collector, replace"];
const READERS: &[&str] = &["crossbeam-epoch", "seize", "haphazard"];
const WRITERS: &[&str] = &[
    "crossbeam-epoch, replace",
    "seize, replace",
    "seize, replace in a section",
    "haphazard, replace",
];

/// The goals, set in advance: times the best rival.
const MOST_TO_READ: f64 = 1.0;
const MOST_TO_RETIRE: f64 = 1.5;

/// What is read.
const VALUE: u64 = 7;

pub(super) fn bench() -> Bench {
    let form = |title, ours: [&str; 2], most, rivals: &'static [&'static str], candidates| Form {
        title,
        threads: vec![1, 2],
        window: None,
        params: Params::default(),
        candidates,
        reference: rivals[0].to_owned(),
        goals: ours.map(|name| Goal::everywhere(name, Most::Best(most, rivals))).into(),
    };
    let read = form("read in a section", READS, MOST_TO_READ, READERS, reads());
    let retire = form("replace and retire", REPLACES, MOST_TO_RETIRE, WRITERS, replaces());
    Bench { operation: "a read or a replacement", forms: vec![read, retire] }
}

fn reads() -> Vec<super::Candidate> {
    vec![
        candidate(READS[0], Role::Ours, || {
            does(Rcu::new(VALUE).expect("memory"), |value, _, ops| {
                rounds(ops, |_| {
                    black_box(*value.read());
                });
            })
        }),
        candidate(READS[1], Role::Ours, || {
            does(ByHand::new(), |value, _, ops| {
                rounds(ops, |_| {
                    let section = value.collector.enter();
                    // SAFETY: what is found is kept by the section.
                    black_box(unsafe { *value.at.load(Ordering::Acquire) });
                    drop(section);
                });
            })
        }),
        candidate(READERS[0], Role::Rival, || {
            does(Atomic::new(VALUE), |value, _, ops| {
                rounds(ops, |_| {
                    let guard = epoch::pin();
                    // SAFETY: never null, and kept by the guard.
                    black_box(unsafe { *value.load(Ordering::Acquire, &guard).deref() });
                });
            })
        }),
        candidate(READERS[1], Role::Rival, || {
            does(Seized::new(), |value, _, ops| {
                rounds(ops, |_| {
                    let guard = value.collector.enter();
                    // SAFETY: kept by the guard.
                    black_box(unsafe { *guard.protect(&value.at, Ordering::Acquire) });
                });
            })
        }),
        candidate(READERS[2], Role::Rival, || {
            does(haphazard::AtomicPtr::from(Box::new(VALUE)), |value, _, ops| {
                let mut pointer = HazardPointer::new();
                rounds(ops, |_| {
                    black_box(*value.safe_load(&mut pointer).expect("never null"));
                    pointer.reset_protection();
                });
            })
        }),
        candidate("arc-swap", Role::Rival, || {
            does(ArcSwap::from_pointee(VALUE), |value, _, ops| {
                rounds(ops, |_| {
                    black_box(**value.load());
                });
            })
        }),
        candidate("no section", Role::Floor, || {
            does(ByHand::new(), |value, _, ops| {
                rounds(ops, |_| {
                    // SAFETY: no thread replaces it.
                    black_box(unsafe { *value.at.load(Ordering::Acquire) });
                });
            })
        }),
    ]
}

fn replaces() -> Vec<super::Candidate> {
    vec![
        candidate(REPLACES[0], Role::Ours, || {
            does(Rcu::new(VALUE).expect("memory"), |value, _, ops| {
                rounds(ops, |_| value.store(VALUE));
            })
        }),
        candidate(REPLACES[1], Role::Ours, || {
            does(ByHand::new(), |value, _, ops| {
                rounds(ops, |_| {
                    let new = Box::into_raw(Box::new(VALUE));
                    let old = value.at.swap(new, Ordering::AcqRel);
                    // SAFETY: from a box, and unlinked by this thread.
                    unsafe { value.collector.retire(old) };
                });
            })
        }),
        candidate(WRITERS[0], Role::Rival, || {
            does(Atomic::new(VALUE), |value, _, ops| {
                rounds(ops, |_| {
                    let guard = epoch::pin();
                    let old = value.swap(Owned::new(VALUE), Ordering::AcqRel, &guard);
                    // SAFETY: unlinked by this thread.
                    unsafe { guard.defer_destroy(old) };
                });
            })
        }),
        candidate(WRITERS[1], Role::Rival, || {
            does(Seized::new(), |value, _, ops| {
                rounds(ops, |_| {
                    let new = Box::into_raw(Box::new(VALUE));
                    let old = value.at.swap(new, Ordering::AcqRel);
                    // SAFETY: from a box, and unlinked by this thread.
                    unsafe { value.collector.retire(old, seize::reclaim::boxed) };
                });
            })
        }),
        candidate(WRITERS[2], Role::Rival, || {
            does(Seized::new(), |value, _, ops| {
                rounds(ops, |_| {
                    let guard = value.collector.enter();
                    let new = Box::into_raw(Box::new(VALUE));
                    let old = guard.swap(&value.at, new, Ordering::AcqRel);
                    // SAFETY: from a box, and unlinked by this thread.
                    unsafe { guard.defer_retire(old, seize::reclaim::boxed) };
                });
            })
        }),
        candidate(WRITERS[3], Role::Rival, || {
            does(haphazard::AtomicPtr::from(Box::new(VALUE)), |value, _, ops| {
                rounds(ops, |_| {
                    let old = value.swap(Box::new(VALUE)).expect("never null");
                    // SAFETY: from a box, and unlinked by this thread.
                    unsafe { old.retire() };
                });
            })
        }),
        candidate("arc-swap, replace", Role::Rival, || {
            does(ArcSwap::from_pointee(VALUE), |value, _, ops| {
                rounds(ops, |_| value.store(Arc::new(VALUE)));
            })
        }),
    ]
}

/// A structure of one's own: a pointer to a box.
struct ByHand {
    at: AtomicPtr<u64>,
    collector: Collector,
}

impl ByHand {
    fn new() -> Self {
        let at = AtomicPtr::new(Box::into_raw(Box::new(VALUE)));
        ByHand { at, collector: Collector::new().expect("memory") }
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        // SAFETY: from a box, and there is no reader.
        drop(unsafe { Box::from_raw(*self.at.get_mut()) });
    }
}

/// The same with seize.
struct Seized {
    at: AtomicPtr<u64>,
    collector: seize::Collector,
}

impl Seized {
    fn new() -> Self {
        let at = AtomicPtr::new(Box::into_raw(Box::new(VALUE)));
        Seized { at, collector: seize::Collector::new() }
    }
}

impl Drop for Seized {
    fn drop(&mut self) {
        // SAFETY: from a box, and there is no reader.
        drop(unsafe { Box::from_raw(*self.at.get_mut()) });
    }
}
