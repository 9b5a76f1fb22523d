//! The class `masks`: setting a bit that is set already, each thread its own CPU's.
//!
//! This is the most frequent operation on a mask of CPUs: a thread comes back to a CPU where it was
//! a moment ago.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coreline::{CpuMask, Lacking};
use coreline_topology::CpuId;
use crossbeam_utils::CachePadded;

use super::{Bench, Form, Goal, Most, Params, Role, Subject, candidate, does, rounds};

const OURS: &str = "coreline CpuMask::set";
const REFERENCE: &str = "fetch_or";

/// The goal, set in advance: times the reference.
const MOST: f64 = 0.1;

pub(super) fn bench() -> Bench {
    let form = Form {
        title: "set-a-set-bit",
        threads: vec![1, 2],
        window: None,
        params: Params::default(),
        candidates: vec![
            candidate(OURS, Role::Ours, ours),
            candidate(REFERENCE, Role::Rival, || {
                word(|word, bit| {
                    word.fetch_or(bit, Ordering::AcqRel);
                })
            }),
            candidate("load+test+fetch_or", Role::Rival, || {
                word(|word, bit| {
                    if word.load(Ordering::Acquire) & bit == 0 {
                        word.fetch_or(bit, Ordering::AcqRel);
                    }
                })
            }),
            // No mask can do less. Where this takes 0.1 times the reference, the goal is out of
            // reach for one thread: a mask of many words must find the word first.
            candidate("load", Role::Floor, || {
                word(|word, _| {
                    word.load(Ordering::Acquire);
                })
            }),
            candidate("empty loop over bits", Role::Floor, || {
                word(|_, bit| {
                    black_box(bit);
                })
            }),
        ],
        reference: REFERENCE.to_owned(),
        goals: vec![Goal::everywhere(OURS, Most::Times(MOST, REFERENCE.to_owned()))],
    };
    Bench { operation: "a set", forms: vec![form] }
}

fn ours() -> Result<Arc<dyn Subject>, Lacking> {
    does(CpuMask::new(), |mask, thread, ops| {
        let cpus: Vec<CpuId> = mask.cpus().collect();
        let cpu = cpus[thread % cpus.len()];
        rounds(ops, |_| {
            // The result is not used, as with its rivals.
            mask.set(black_box(cpu)).expect("it is one of the mask's");
        });
    })
}

/// A mask of one word, on a line of its own.
fn word<F>(set: F) -> Result<Arc<dyn Subject>, Lacking>
where
    F: Fn(&AtomicU64, u64) + Send + Sync + 'static,
{
    does(CachePadded::default(), move |word, thread, ops| {
        rounds(ops, |_| set(word, 1 << (black_box(thread) % 64)));
    })
}
