//! The form `slots` of the class `cid`: dropping a per-CPU value and making another, by size; and
//! making a domain that leases once, which makes one such value.
//!
//! Thousands of other values of that size are there. So memory has holes where the size is not a
//! power of two, and each value that is dropped lies far from the last one. The rival is what a
//! user would allocate instead: a line for each CPU.
//!
//! A value is written when it is made, in the shared slot and in a CPU's, and thousands of values
//! are more than a first-level cache holds. So a size that leaves holes is compared with one that
//! takes the same room and leaves none: both touch as many lines, and what differs is the search.

use std::hint::black_box;
use std::sync::{Arc, Mutex};

use coreline::Lacking;
use coreline::domain::{DomainOptions, Domains, DomainsError};
use coreline::percpu::{PerCpuPool, PoolError, PoolOptions, Word32};
use coreline_world::{Native, Place};
use crossbeam_utils::CachePadded;

use super::{Form, Goal, Most, Params, Role, Subject, candidate, rounds};

const REFERENCE: &str = "boxed slice, a line for each CPU";
const EVEN: [&str; 4] = [
    "coreline PerCpu, 32 bytes",
    "coreline PerCpu, 64 bytes",
    "coreline PerCpu, 128 bytes",
    "coreline PerCpu, 192 bytes",
];
/// Those that leave holes, each with the one that takes the same room.
const UNEVEN: [(&str, &str); 5] = [
    ("coreline PerCpu, 24 bytes", EVEN[0]),
    ("coreline PerCpu, 36 bytes", EVEN[1]),
    ("coreline PerCpu, 40 bytes", EVEN[1]),
    ("coreline PerCpu, 72 bytes", EVEN[2]),
    ("coreline PerCpu, 136 bytes", EVEN[3]),
];

/// The goal, set in advance: a size that leaves holes takes at most this many times as long as one
/// of the same room that leaves none.
const MOST: f64 = 2.0;

/// How many values there are.
const VALUES: usize = 4096;
/// The distance from the last dropped value to the next one. It has no divisor in common with
/// [`VALUES`].
const STEP: usize = 1597;

pub(super) fn form() -> Form {
    let goal =
        |(name, even): (&str, &str)| Goal::everywhere(name, Most::Times(MOST, even.to_owned()));
    Form {
        title: "slots",
        threads: vec![1],
        window: None,
        params: Params::default(),
        candidates: vec![
            candidate(UNEVEN[0].0, Role::Ours, per_cpu::<6>),
            candidate(EVEN[0], Role::Ours, per_cpu::<8>),
            candidate(UNEVEN[1].0, Role::Ours, per_cpu::<9>),
            candidate(UNEVEN[2].0, Role::Ours, per_cpu::<10>),
            candidate(EVEN[1], Role::Ours, per_cpu::<16>),
            candidate(UNEVEN[3].0, Role::Ours, per_cpu::<18>),
            candidate(EVEN[2], Role::Ours, per_cpu::<32>),
            candidate(UNEVEN[4].0, Role::Ours, per_cpu::<34>),
            candidate(EVEN[3], Role::Ours, per_cpu::<48>),
            candidate("coreline domain made, leased once, dropped", Role::Ours, leasing),
            candidate(REFERENCE, Role::Rival, boxed),
        ],
        reference: REFERENCE.to_owned(),
        goals: UNEVEN.map(goal).into(),
    }
}

/// Values of this many words of 32 bits, from a pool of their own.
fn per_cpu<const WORDS: usize>() -> Result<Arc<dyn Subject>, Lacking> {
    let pool = PerCpuPool::new(PoolOptions::new())?;
    let make = move || pool.per_cpu(|| [const { Word32::new(0) }; WORDS]);
    let lacking = |error: PoolError| Lacking {
        world: "native",
        capability: "memory for each CPU",
        why: error.to_string().into(),
        remedy: "run the other classes",
    };
    let values = (0..VALUES).map(|_| make().map(Some)).collect::<Result<_, _>>();
    let make = move || make().expect("there is room for as many as before");
    Ok(Arc::new(Making { kept: Mutex::new((values.map_err(lacking)?, 0)), make }))
}

/// Domains, each of which has had a lease.
fn leasing() -> Result<Arc<dyn Subject>, Lacking> {
    let lacking = |error: DomainsError| Lacking {
        world: "native",
        capability: "domains",
        why: error.to_string().into(),
        remedy: "run the other classes",
    };
    let domains = Domains::global().map_err(lacking)?;
    let make = move || {
        let domain = domains.domain(DomainOptions::new());
        drop(domain.lease().expect("none is out"));
        domain
    };
    let values = (0..VALUES).map(|_| Some(make())).collect();
    Ok(Arc::new(Making { kept: Mutex::new((values, 0)), make }))
}

/// Lines, zeroed, one for each CPU.
fn boxed() -> Result<Arc<dyn Subject>, Lacking> {
    let cpus = Native::topology().cpu_count();
    let make = move || vec![CachePadded::new(0_u64); cpus].into_boxed_slice();
    let values = (0..VALUES).map(|_| Some(make())).collect();
    Ok(Arc::new(Making { kept: Mutex::new((values, 0)), make }))
}

/// Values, and the place of the one that is dropped next.
struct Making<T, F> {
    kept: Mutex<(Vec<Option<T>>, usize)>,
    make: F,
}

impl<T: Send, F: Fn() -> T + Send + Sync> Subject for Making<T, F> {
    fn run(&self, _: usize, ops: u64) {
        let mut kept = self.kept.lock().expect("no thread panics under it");
        let (values, at) = &mut *kept;
        rounds(ops, |_| {
            *at = (*at + STEP) % VALUES;
            // Dropped before the next one is made.
            values[*at] = None;
            values[*at] = Some(black_box((self.make)()));
        });
    }
}
