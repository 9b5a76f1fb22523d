//! What Yoo 2025 does when a charge fails, kept as the "before" of a cache with a budget; found by
//! runs that the lines beside them bring back.
//!
//! Yoo's patch constructs an `mm_struct` with its row of concurrency IDs, and charges for it at
//! each life. Its `mm_init`, in its order:
//!
//! ```text
//!     init_new_context(p, mm)               the context of this life
//!     charge, or goto failed_charge
//!     mm_init_cid(mm)                       writes to the row
//!     ...
//! failed_charge:
//!     mm_destroy_cid(mm)                    1. destroys what was constructed
//!                                           2. the label with destroy_context(mm) is gone
//! fail_nocontext:
//!     mm_free_id(mm) ...  free_mm(mm)       back to the cache, as if it were constructed
//! ```
//!
//! 1. It **destroys a row that stays with the object**: the cache hands the object out again, and
//!    the next life writes to a row that is gone. In the kernel the pointer is null then, which
//!    names the beginning of each CPU's own memory.
//! 2. It **skips a step of the undo**: the context of the life that failed is never destroyed.
//!
//! [`ObjectCache`] charges before it takes an object: then there is nothing to undo.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;

use coreline::IndexBy;
use coreline::object::{Budget, Object, ObjectCache};
use coreline::percpu::PerCpu;
use coreline_sim::{Machine, Sim};
use coreline_topology::CpuId;
use coreline_world::{JoinHandle, Placement, Threads, Work};

/// An `mm_struct` in the cache. `None` is a row that is destroyed.
struct Mm {
    row: Option<PerCpu<<Sim as coreline_world::Words>::U64, Sim>>,
}

impl Mm {
    fn construct() -> Result<Mm, coreline::percpu::PoolError> {
        Ok(Mm { row: Some(PerCpu::words_in(IndexBy::Cpu)?) })
    }
}

/// What was found. The host's words: what is counted takes no time.
#[derive(Debug, Default)]
struct Found {
    refused: AtomicU64,
    /// Lives that found the row destroyed.
    astray: AtomicU64,
    /// Contexts that are there.
    contexts: AtomicU64,
}

impl Found {
    /// A life begins: `init_new_context`.
    fn init_context(&self) {
        self.contexts.fetch_add(1, Ordering::Relaxed);
    }

    fn destroy_context(&self) {
        self.contexts.fetch_sub(1, Ordering::Relaxed);
    }

    /// A life that was charged, and its end.
    fn live(&self, mm: &Mm) {
        match &mm.row {
            Some(row) => row.field(|word| word).add(1),
            None => _ = self.astray.fetch_add(1, Ordering::Relaxed),
        }
        Sim::work(Duration::from_nanos(300));
        if let Some(row) = &mm.row {
            row.field(|word| word).add(1_u64.wrapping_neg());
        }
        self.destroy_context();
    }
}

/// How objects are taken and charged.
trait Charged: Send + Sync + 'static {
    fn new(budget: Budget<Sim>) -> Self;
    /// A life, or none if the charge is refused.
    fn try_life(&self, found: &Found);
    fn cache(&self) -> &ObjectCache<Mm, (), Sim>;
}

/// As Yoo's patch does it.
struct Patched {
    cache: ObjectCache<Mm, (), Sim>,
    budget: Budget<Sim>,
}

impl Charged for Patched {
    fn new(budget: Budget<Sim>) -> Self {
        let cache = ObjectCache::builder_in("mm_struct").build(Mm::construct).unwrap();
        Patched { cache, budget }
    }

    fn try_life(&self, found: &Found) {
        let mut mm: Object<'_, Mm, (), Sim> = self.cache.get().unwrap();
        found.init_context();
        if self.budget.charge(1).is_err() {
            // The label `failed_charge`; that with `destroy_context` is gone.
            mm.row = None;
            found.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        found.live(&mm);
        self.budget.uncharge(1);
    }

    fn cache(&self) -> &ObjectCache<Mm, (), Sim> {
        &self.cache
    }
}

/// Ours.
struct Ours(ObjectCache<Mm, (), Sim>);

impl Charged for Ours {
    fn new(budget: Budget<Sim>) -> Self {
        let cache = ObjectCache::builder_in("mm_struct").budget(budget, 1);
        Ours(cache.build(Mm::construct).unwrap())
    }

    fn try_life(&self, found: &Found) {
        let Ok(mm) = self.0.get() else {
            found.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        found.init_context();
        found.live(&mm);
    }

    fn cache(&self) -> &ObjectCache<Mm, (), Sim> {
        &self.0
    }
}

/// Four threads on CPUs of their own, and a budget for two lives at a time. Refused charges, lives
/// that found no row, contexts that are left, objects that wait without a row, what is charged.
fn storm<C: Charged>() -> [u64; 5] {
    let budget = Budget::new_in("mm_struct", 2).unwrap();
    let shared = Arc::new((C::new(budget.clone()), Found::default()));
    let threads: Vec<_> = (0..4)
        .map(|cpu| {
            let shared = Arc::clone(&shared);
            let live = move || (0..50).for_each(|_| shared.0.try_life(&shared.1));
            Sim::spawn(Placement::On(CpuId::new(cpu)), live).unwrap()
        })
        .collect();
    threads.into_iter().for_each(JoinHandle::join);
    let (charged, found) = &*shared;
    // All that wait: each is taken once.
    let idle = charged.cache().stats().idle;
    let used = budget.used();
    let held: Vec<_> = (0..idle.min(2)).filter_map(|_| charged.cache().get().ok()).collect();
    let without = held.iter().filter(|mm| mm.row.is_none()).count();
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    [get(&found.refused), get(&found.astray), get(&found.contexts), without as u64, used]
}

const LINES: [&str; 2] = [
    "coreline-sim/1 machine=desktop-12c seed=1 request=30 faults=none \
     program=charge that fails",
    "coreline-sim/1 machine=desktop-12c seed=2 request=30 faults=none schedule=random \
     program=charge that fails",
];

fn replay<C: Charged>(line: &str) -> [u64; 5] {
    let machine = Machine::replay(&line.parse().unwrap()).unwrap();
    machine.run(storm::<C>).unwrap_or_else(|failure| panic!("{failure}")).value
}

#[test]
fn the_patchs_failed_charge_destroys_a_row_that_is_used_again() {
    for line in LINES {
        let [refused, astray, ..] = replay::<Patched>(line);
        assert!(refused > 0 && astray > 0, "{refused} refused, {astray} without a row: {line}");
    }
}

#[test]
fn the_patchs_failed_charge_leaves_a_context() {
    for line in LINES {
        let [refused, _, contexts, ..] = replay::<Patched>(line);
        assert!(refused > 0 && contexts == refused, "{contexts} of {refused}: {line}");
    }
}

#[test]
fn a_refused_object_of_ours_stays_constructed_and_nothing_is_left() {
    for line in LINES {
        let [refused, rest @ ..] = replay::<Ours>(line);
        assert!(refused > 0, "{line}");
        assert_eq!(rest, [0; 4], "{line}");
    }
}
