//! Slots of a domain's locals are made before they are met, in every interleaving of two threads:
//! by an index, or by the row of a CPU.

use std::sync::Arc;

use coreline::cid::FirstFit;
use coreline::domain::{DomainLocal, DomainOptions, Domains, DomainsOptions};
use coreline_topology::CpuId;
use coreline_world::model::{Checker, Faithful, Model, Plant, RelaxedLoads, RelaxedStores};
use coreline_world::{JoinHandle, Ordering, Placement, Threads, Word, Words};

type Counts<P> = DomainLocal<<Model<P> as Words>::U64, FirstFit, Model<P>>;

const CPU: CpuId = CpuId::new(0);

/// One thread is the first to add on a CPU, and so makes the slot of its ID. The other, which hears
/// of that through a word that orders nothing, does this there, and says how many it has added.
fn made_before<P: Plant>(meet: fn(&Counts<P>) -> u64) {
    let domains = Domains::new_in(DomainsOptions::new().leases(0)).unwrap();
    let domain = domains.domain(DomainOptions::new());
    let local: Arc<Counts<P>> = Arc::new(domain.local(|| Word::new_in(0)).unwrap());
    let told = Arc::new(<Model<P> as Words>::U32::new_in(0));
    let (theirs, tell) = (Arc::clone(&local), Arc::clone(&told));
    let other = Model::<P>::spawn(Placement::On(CPU), move || {
        theirs.add(1);
        // Relaxed, here and below: it orders nothing. Without it, loom would not try an addition
        // that comes first, as it forgets a load that is followed by a store of the same word.
        tell.store(1, Ordering::Relaxed);
    });
    Model::<P>::migrate(CPU);
    told.wait_until(Ordering::Relaxed, |told| told == 1);
    let added = meet(&local);
    other.unwrap().join();
    assert_eq!(local.sum(), 1 + added);
}

/// Nothing but the number of slots that are there says that this one is.
fn by_index<P: Plant>(local: &Counts<P>) -> u64 {
    // Relaxed: that the slot is there is what is tested.
    let found = local.get(0).map(|slot| slot.load(Ordering::Relaxed));
    assert!(found.is_none_or(|count| count < 2));
    0
}

/// Nothing but the row says that the CPU has an ID, and that its slot is there.
fn by_row<P: Plant>(local: &Counts<P>) -> u64 {
    local.add(1);
    1
}

fn checker() -> Checker {
    Checker::new().preemption_bound(3)
}

#[test]
fn a_slot_is_made_before_its_index_is_told() {
    checker().check(|| made_before::<Faithful>(by_index));
}

#[test]
fn a_slot_is_made_before_a_row_shows_its_id() {
    checker().check(|| made_before::<Faithful>(by_row));
}

/// Says whether an execution fails for want of an ordering.
fn is_caught<P: Plant>(meet: fn(&Counts<P>) -> u64) -> bool {
    let checked = checker().try_check(move || made_before::<P>(meet));
    checked.is_err_and(|failure| failure.message.contains("Causality violation"))
}

#[test]
fn slots_that_are_met_without_an_ordering_are_caught() {
    assert!(is_caught::<RelaxedStores>(by_index));
    assert!(is_caught::<RelaxedLoads>(by_index));
    assert!(is_caught::<RelaxedStores>(by_row));
    assert!(is_caught::<RelaxedLoads>(by_row));
}
