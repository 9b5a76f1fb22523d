//! The form `domain` of the class `cid`: what a domain's own concurrency IDs are good for, beside
//! one uncontended atomic addition.
//!
//! Each of our candidates has one domain for all threads, so each operation finds its CPU's ID
//! first. The rivals know their thread beforehand: the reference is an addition to a line that is
//! the thread's alone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use coreline::Lacking;
use coreline::domain::{Domain, DomainLocal, DomainOptions, Domains, DomainsOptions};
use coreline::mask::PresenceOptions;
use coreline::percpu::Word64;
use crossbeam_utils::CachePadded;

use super::{Form, Goal, Most, Params, Role, Subject, candidate, rounds};

const ADD: &str = "coreline DomainLocal add";
const LEASE: &str = "coreline domain lease and return";
const REFERENCE: &str = "AtomicU64 fetch_add, a thread's own";

/// The goals, set in advance, as times the reference; that of an addition where it is a section,
/// and on atomics.
const ADD_MOST: f64 = 1.2;
const ADD_MOST_ON_ATOMICS: f64 = 3.0;
const LEASE_MOST: f64 = 2.0;

/// The most threads.
const THREADS: usize = 8;

pub(super) fn form() -> Form {
    let goal = |name: &str, most| Goal::everywhere(name, Most::Times(most, REFERENCE.to_owned()));
    let sections = Domains::global().is_ok_and(|domains| domains.pool().section().is_rseq());
    let add_most = if sections { ADD_MOST } else { ADD_MOST_ON_ATOMICS };
    Form {
        title: "domain",
        threads: vec![1, 2, THREADS],
        window: None,
        params: Params::default(),
        candidates: vec![
            candidate(ADD, Role::Ours, || subject(Adding::new)),
            candidate("coreline domain enter, add, leave", Role::Ours, || subject(Entering::new)),
            candidate(LEASE, Role::Ours, || subject(|| Ok(Leasing(Domain::new()?)))),
            candidate(REFERENCE, Role::Rival, || Ok(Arc::new(Own::default()))),
            candidate("std Mutex<Vec> pop and push, a thread's own", Role::Rival, || {
                Ok(Arc::new(Pools::default()))
            }),
        ],
        reference: REFERENCE.to_owned(),
        goals: vec![goal(ADD, add_most), goal(LEASE, LEASE_MOST)],
    }
}

fn subject<S: Subject + 'static>(
    make: impl FnOnce() -> Result<S, Box<dyn std::error::Error>>,
) -> Result<Arc<dyn Subject>, Lacking> {
    let lacking = |error: Box<dyn std::error::Error>| Lacking {
        world: "native",
        capability: "domain",
        why: error.to_string().into(),
        remedy: "run the other classes",
    };
    Ok(Arc::new(make().map_err(lacking)?))
}

/// A counter of a domain.
struct Adding(DomainLocal<Word64>);

impl Adding {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        Ok(Adding(Domain::new()?.local(|| Word64::new(0))?))
    }
}

impl Subject for Adding {
    fn run(&self, _: usize, ops: u64) {
        rounds(ops, |_| self.0.add(1));
    }

    fn total(&self) -> Option<u64> {
        Some(self.0.sum())
    }
}

/// The same, with the domain entered for each addition, as an executor does for each poll.
struct Entering {
    domain: Domain,
    count: DomainLocal<Word64>,
}

impl Entering {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let domains = Domains::new(DomainsOptions::new())?;
        let domain = domains.domain(DomainOptions::new().presence(PresenceOptions::new()));
        let count = domain.local(|| Word64::new(0))?;
        Ok(Entering { domain, count })
    }
}

impl Subject for Entering {
    fn run(&self, _: usize, ops: u64) {
        let mut member = self.domain.join();
        rounds(ops, |_| {
            let _inside = member.enter();
            self.count.add(1);
        });
    }

    fn total(&self) -> Option<u64> {
        Some(self.count.sum())
    }
}

/// A domain that leases IDs.
struct Leasing(Domain);

impl Subject for Leasing {
    fn run(&self, _: usize, ops: u64) {
        rounds(ops, |_| drop(self.0.lease().expect("there are more than threads")));
    }
}

/// A line for each thread.
#[derive(Default)]
struct Own([CachePadded<AtomicU64>; THREADS]);

impl Subject for Own {
    fn run(&self, thread: usize, ops: u64) {
        let own = &self.0[thread];
        // Relaxed: a count publishes nothing but itself; so below.
        rounds(ops, |_| _ = own.fetch_add(1, Ordering::Relaxed));
    }

    fn total(&self) -> Option<u64> {
        Some(self.0.iter().map(|own| own.load(Ordering::Relaxed)).sum())
    }
}

/// A pool of numbers for each thread.
struct Pools([CachePadded<Mutex<Vec<u32>>>; THREADS]);

impl Default for Pools {
    fn default() -> Self {
        Pools([(); THREADS].map(|()| CachePadded::new(Mutex::new(vec![0, 1, 2, 3]))))
    }
}

impl Subject for Pools {
    fn run(&self, thread: usize, ops: u64) {
        let pool = &self.0[thread];
        let lock = || pool.lock().expect("no thread panics under it");
        rounds(ops, |_| {
            let number = lock().pop().expect("it was given back");
            lock().push(number);
        });
    }
}
