//! Slots of a domain's locals are made before they are met, in every interleaving of two threads:
//! by an index, or by the row of a CPU.

use std::sync::Arc;

use coreline::cid::FirstFit;
use coreline::domain::{DomainLocal, DomainOptions, Domains, DomainsOptions};
use coreline_topology::CpuId;
use coreline_world::model::{Model, Plant};
use coreline_world::{JoinHandle, Ordering, Placement, Threads, Word, Words};

use crate::worlds::{self, RACE, assert_caught};

type Counts = DomainLocal<<Model as Words>::U64, FirstFit, Model>;

const CPU: CpuId = CpuId::new(0);

/// One thread is the first to add on a CPU, and so makes the slot of its ID. The other, which hears
/// of that through a word that orders nothing, does this there, and says how many it has added.
fn made_before(meet: fn(&Counts) -> u64) {
    let domains = Domains::new_in(DomainsOptions::new().leases(0)).unwrap();
    let domain = domains.domain(DomainOptions::new());
    let local: Arc<Counts> = Arc::new(domain.local(|| Word::new_in(0)).unwrap());
    let told = Arc::new(<Model as Words>::U32::new_in(0));
    let (theirs, tell) = (Arc::clone(&local), Arc::clone(&told));
    let other = Model::spawn(Placement::On(CPU), move || {
        theirs.add(1);
        // Relaxed, here and below: it orders nothing. Without it, loom would not try an addition
        // that comes first, as it forgets a load that is followed by a store of the same word.
        tell.store(1, Ordering::Relaxed);
    });
    Model::migrate(CPU);
    told.wait_until(Ordering::Relaxed, |told| told == 1);
    let added = meet(&local);
    other.unwrap().join();
    assert_eq!(local.sum(), 1 + added);
}

/// Nothing but the number of slots that are there says that this one is.
fn by_index(local: &Counts) -> u64 {
    // Relaxed: that the slot is there is what is tested.
    let found = local.get(0).map(|slot| slot.load(Ordering::Relaxed));
    assert!(found.is_none_or(|count| count < 2));
    0
}

/// Nothing but the row says that the CPU has an ID, and that its slot is there.
fn by_row(local: &Counts) -> u64 {
    local.add(1);
    1
}

#[test]
fn a_slot_is_made_before_its_index_is_told() {
    worlds::check(|| made_before(by_index));
}

#[test]
fn a_slot_is_made_before_a_row_shows_its_id() {
    worlds::check(|| made_before(by_row));
}

#[test]
fn slots_that_are_met_without_an_ordering_are_caught() {
    for plant in [Plant::RELAXED_STORES, Plant::RELAXED_LOADS] {
        assert_caught(plant, RACE, || made_before(by_index));
        assert_caught(plant, RACE, || made_before(by_row));
    }
}
