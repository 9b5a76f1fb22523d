//! The class `cid`: reading the number that picks a slot of per-CPU memory, using a number that a
//! domain of the program's own [hands out](super::domains), and [making](super::slots) slots.
//!
//! A thread's own number costs a rival one load, but says nothing of the CPU: memory indexed by it
//! needs a slot per thread, and atomics as soon as numbers are shared.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;

use coreline::{IndexBy, Lacking, PerCpuCounter};
use coreline_topology::Cid;
use coreline_world::{Native, Place};

use super::{Bench, Form, Goal, Most, Params, Role, Subject, candidate, does, rounds};
use super::{domains, slots};
use crate::native;

const OURS: [&str; 2] = ["coreline Place::cpu", "coreline Place::kernel_cid"];
const REFERENCE: &str = "sched_getcpu";

/// The goal, set in advance: in a loop, the rest of an iteration hides next to nothing.
const MOST_NS: f64 = 0.5;

pub(super) fn bench() -> Bench {
    let form = Form {
        title: "index",
        threads: vec![1, 2],
        window: None,
        params: Params::default(),
        candidates: vec![
            candidate(OURS[0], Role::Ours, || reading(|| Native::cpu().get())),
            candidate(OURS[1], Role::Ours, || {
                // The counter's error says why there is no such ID.
                PerCpuCounter::<Native>::new_in(IndexBy::KernelCid)?;
                reading(|| Native::kernel_cid().map_or(u32::MAX, Cid::get))
            }),
            candidate(REFERENCE, Role::Rival, || reading(native::sched_getcpu)),
            candidate("thread_local! const Cell", Role::Rival, || reading(local)),
            candidate("empty loop", Role::Floor, || reading(|| 0)),
        ],
        reference: REFERENCE.to_owned(),
        goals: OURS.map(|name| Goal::everywhere(name, Most::Ns(MOST_NS))).into(),
    };
    Bench { operation: "an operation", forms: vec![form, domains::form(), slots::form()] }
}

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

#[inline(always)]
fn local() -> u32 {
    NUMBER.with(Cell::get)
}

fn reading<F>(read: F) -> Result<Arc<dyn Subject>, Lacking>
where
    F: Fn() -> u32 + Send + Sync + 'static,
{
    does((), move |(), thread, ops| {
        // The compiler must assume that other code may change it.
        NUMBER.with(|number| black_box(number).set(thread as u32));
        rounds(ops, |_| {
            black_box(read());
        });
    })
}
