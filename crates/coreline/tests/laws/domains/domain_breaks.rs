//! What broke domains: leases where there are none, all but none, or none just now; and slots that
//! cannot be made.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32};

use coreline::cid::{Clustered, Recent};
use coreline::domain::{Domain, DomainOptions, Domains, DomainsOptions, Lease, LeaseError};
use coreline::percpu::Slot;
use coreline_sim::{Faults, Machine, Schedule, Sim};
use coreline_topology::{Cid, CpuId, NodeId};
use coreline_world::model::{Model, Plant};
use coreline_world::{
    JoinHandle, Native, Ordering, Place, Placement, Testbed, Threads, Word, Words,
};

use crate::worlds::{self, TORN};

/// Leases that a machine of several nodes has none of.
fn there_are_no_leases() {
    let domains = Domains::<Clustered, Sim>::new_in(DomainsOptions::new().leases(0)).unwrap();
    let domain = domains.domain(DomainOptions::new());
    let error = domain.lease().err();
    assert_eq!(error, Some(LeaseError::Exhausted { most: 0 }));
}

#[test]
fn a_machine_of_two_nodes_may_have_no_leases() {
    let law = there_are_no_leases;
    worlds::simulate("breaks::no_leases", "epyc-7003-2s", Faults::NONE, law).unwrap();
}

/// One lease, which another thread takes and returns: the thread that finds it out says so.
fn a_refusal_says_what_it_found() {
    let domains = Domains::<Recent, Sim>::new_in(DomainsOptions::new().leases(1)).unwrap();
    let domain = Arc::new(domains.domain(DomainOptions::new()));
    let theirs = Arc::clone(&domain);
    let over = Arc::new(<Sim as Words>::U32::new_in(0));
    let seen = Arc::clone(&over);
    let other = Sim::spawn(Placement::On(CpuId::new(1)), move || {
        // Relaxed: carries nothing but itself.
        while seen.load(Ordering::Relaxed) == 0 {
            let lease = theirs.lease();
            (0..20).for_each(|_| Sim::relax());
            drop(lease);
        }
    });
    let mut refused = 0;
    while refused < 10 {
        if let Err(error) = domain.lease() {
            assert_eq!(error, LeaseError::Exhausted { most: 1 });
            refused += 1;
        }
    }
    over.store(1, Ordering::Relaxed);
    other.unwrap().join();
}

#[test]
fn a_refusal_counts_the_leases_that_were_out() {
    let machines = (0..60).map(|seed| {
        let machine = Machine::preset("desktop-12c").unwrap().seed(seed);
        machine.schedule(Schedule::Random).step_limit(1_000_000)
    });
    coreline_sim::search(machines, a_refusal_says_what_it_found).unwrap();
}

/// As many threads as there are leases, each with one at a time: there is always one left.
fn there_is_a_lease_for_each(threads: u32) {
    let options = DomainsOptions::new().leases(threads as usize);
    let domains = Domains::<Recent, Sim>::new_in(options).unwrap();
    let domain = Arc::new(domains.domain(DomainOptions::new()));
    let threads = (0..threads).map(|_| {
        let domain = Arc::clone(&domain);
        let live = move || {
            for _ in 0..12 {
                drop(domain.lease().expect("each other thread has one at most"));
            }
        };
        Sim::spawn(Placement::Anywhere, live).unwrap()
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(JoinHandle::join);
    assert_eq!(domain.usage().leased, 0);
}

#[test]
fn leases_are_exhausted_only_if_all_are_out() {
    let faults = Faults { preempt: 10, migrate: 5, preempt_access: 20, ..Faults::NONE };
    for threads in [2, 3] {
        let machines = (0..150).map(|seed| {
            let depth = 1 + seed / 2 % 4;
            let schedule = match seed % 2 {
                0 => Schedule::Random,
                _ => Schedule::Pct { depth, steps: 3000 },
            };
            let machine = Machine::preset("host-2c").unwrap().seed(seed.into()).faults(faults);
            machine.schedule(schedule).step_limit(1_000_000)
        });
        coreline_sim::search(machines, move || there_is_a_lease_for_each(threads)).unwrap();
    }
}

/// More leases at once than a magazine has rounds come back. They are met again, unless the thread
/// goes to another CPU or other domains are given slots meanwhile (not `exactly`).
fn many_at_once<W: Testbed>(exactly: bool) {
    let domains = Domains::<Recent, W>::new_in(DomainsOptions::new()).unwrap();
    let domain = domains.domain(DomainOptions::new());
    let lease =
        |number: usize| -> Vec<_> { (0..number).map(|_| domain.lease().unwrap()).collect() };
    for round in 0..2 {
        let leases = lease(12);
        let cids: BTreeSet<_> = leases.iter().map(Lease::cid).collect();
        let width = domains.layout().width() as u32;
        assert_eq!(cids.len(), 12);
        if round == 0 || exactly {
            assert_eq!(cids, (width..width + 12).map(Cid::new).collect());
        }
        assert_eq!(domain.usage().leased, 12);
        // In the other order than they were leased in.
        leases.into_iter().rev().for_each(drop);
        assert_eq!(domain.usage().leased, 0);
    }
    // Those that are out keep their rounds; the others come and go beside them.
    let kept = lease(6);
    for _ in 0..20 {
        let passing = lease(6);
        assert_eq!(domain.usage().leased, kept.len() + passing.len());
    }
    drop(kept);
    assert_eq!(domain.usage().leased, 0);
}

#[test]
fn more_leases_than_rounds_come_back() {
    many_at_once::<Native>(false);
    let law = || many_at_once::<Sim>(true);
    worlds::simulate("breaks::many", "host-2c", Faults::NONE, law).unwrap();
    worlds::simulate("breaks::many_torn", "desktop-12c", TORN, law).unwrap();
}

/// One thread goes from one CPU's lease to the other's; the other thread finds one nevertheless.
#[test]
fn a_search_finds_one_while_another_goes_from_one_lease_to_the_other() {
    worlds::check_planted(Plant::EXCHANGES, || {
        let domains = Domains::<Recent, Model>::new_in(DomainsOptions::new().leases(2)).unwrap();
        let domain = Arc::new(domains.domain(DomainOptions::new()));
        let lease_at = |cpu| {
            Model::migrate(CpuId::new(cpu));
            domain.lease().expect("the other thread has one at most")
        };
        // Both wait, each in a magazine of its own.
        let [zero, one] = [0, 1].map(lease_at);
        assert_ne!(zero.cid(), one.cid());
        drop((zero, one));
        let zero = lease_at(0);
        let theirs = Arc::clone(&domain);
        let other = Model::spawn(Placement::On(CpuId::new(2)), move || {
            drop(theirs.lease().expect("the other thread has one at most"));
        });
        drop(zero);
        drop(lease_at(1));
        other.unwrap().join();
        assert_eq!(domain.usage().leased, 0);
    });
}

/// A lease whose slots cannot be made comes back.
fn a_lease_comes_back_in_a_panic<W: Testbed>() {
    let domains = Domains::<Recent, W>::new_in(DomainsOptions::new().leases(1)).unwrap();
    let domain: Domain<Recent, W> = domains.domain(DomainOptions::new());
    let planted = Arc::new(AtomicBool::new(false));
    let panics = Arc::clone(&planted);
    let init = move || {
        // Relaxed: one thread alone.
        assert!(!panics.swap(false, Ordering::Relaxed), "planted");
        W::U64::new_in(0)
    };
    // This CPU gets its slot, so that the next one is the lease's. If other domains are given slots
    // meanwhile, this one may go without, and the next one may be the CPU's.
    let local = domain.local(init).unwrap();
    local.add(1);
    planted.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| domain.lease().map(drop))).is_err());
    assert_eq!(domain.usage().leased, 0);
    assert!(domain.lease().is_ok());
}

#[test]
fn a_lease_comes_back_where_a_slot_cannot_be_made() {
    a_lease_comes_back_in_a_panic::<Native>();
    let law = a_lease_comes_back_in_a_panic::<Sim>;
    worlds::simulate("breaks::unmade", "host-2c", TORN, law).unwrap();
}

/// The first lease of a domain is asked for where a slot of it is made.
fn the_first_lease_is_asked_for_in_an_init<W: Testbed>() {
    let domains = Domains::<Recent, W>::new_in(DomainsOptions::new()).unwrap();
    let domain: Domain<Recent, W> = domains.domain(DomainOptions::new());
    let (theirs, asked) = (domain.clone(), AtomicU32::new(0));
    let local = domain.local(move || {
        // The shared slot is made without the domain's lock. Relaxed: a count.
        if asked.fetch_add(1, Ordering::Relaxed) > 0 {
            assert_eq!(theirs.lease().err(), Some(LeaseError::Nested));
        }
        W::U64::new_in(0)
    });
    let local = local.unwrap();
    local.add(1);
    assert_eq!((local.sum(), local.iter().count()), (1, 2));
}

#[test]
fn the_first_lease_in_an_init_is_refused_as_every_other_natively() {
    the_first_lease_is_asked_for_in_an_init::<Native>();
}

/// A slot whose end makes others of its domain, as that of the first lease.
struct Leaving<W: Testbed> {
    mark: W::U64,
    live: Arc<AtomicI64>,
    domain: Domain<Recent, W>,
}

const MADE: u64 = 0x600d;

// SAFETY: a struct: every value has the same live fields in the same places.
unsafe impl<W: Testbed> Slot for Leaving<W> {}

impl<W: Testbed> Drop for Leaving<W> {
    fn drop(&mut self) {
        // Relaxed, here and below: no other thread has it; and a count.
        assert_eq!(self.mark.swap(0, Ordering::Relaxed), MADE, "dropped, and never made");
        self.live.fetch_sub(1, Ordering::Relaxed);
        assert!(self.domain.lease().is_ok());
    }
}

/// A local that goes has the slots that it had, and no others that the domain makes meanwhile.
fn values_are_dropped_that_were_made<W: Testbed>() {
    let domains = Domains::<Recent, W>::new_in(DomainsOptions::new()).unwrap();
    let domain = domains.domain(DomainOptions::new());
    let live = Arc::new(AtomicI64::new(0));
    let (theirs, count) = (domain.clone(), Arc::clone(&live));
    let local = domain.local(move || {
        count.fetch_add(1, Ordering::Relaxed);
        let (live, domain) = (Arc::clone(&count), theirs.clone());
        Leaving::<W> { mark: Word::new_in(MADE), live, domain }
    });
    let local = local.unwrap();
    let indexes = local.indexes();
    let there = |upto| (0..upto).filter(|&index| local.get(index).is_some()).count() as i64;
    assert_eq!(there(indexes), 0, "no CPU has an ID");
    assert_eq!(local.field(|slot| &slot.mark).load(), MADE);
    assert_eq!(there(indexes + 100), live.load(Ordering::Relaxed), "with the shared one");
    drop(local);
    assert_eq!(live.load(Ordering::Relaxed), 0);
}

#[test]
fn a_local_that_goes_drops_what_it_had_natively() {
    values_are_dropped_that_were_made::<Native>();
}

#[test]
fn a_local_that_goes_drops_what_it_had_in_a_simulated_machine() {
    let law = values_are_dropped_that_were_made::<Sim>;
    worlds::simulate("breaks::dropped", "host-2c", TORN, law).unwrap();
}

/// A lease goes back on the other node, and the next one there is of that node nevertheless.
fn leases_are_near() {
    const LEASES: u32 = 8;
    let options = DomainsOptions::new().leases(LEASES as usize);
    let domains = Domains::<Clustered, Sim>::new_in(options).unwrap();
    let width = domains.layout().width() as u32;
    // Leases that are sent to a thread borrow what is never dropped.
    let domain: &Domain<Clustered, Sim> = Box::leak(Box::new(domains.domain(DomainOptions::new())));
    let topology = Sim::topology();
    let first_of = |node| topology.cpus().find(|cpu| cpu.node == NodeId::new(node)).unwrap().id;
    let lease = |node: u32| {
        let lease = Sim::spawn(Placement::On(first_of(node)), || domain.lease().unwrap());
        let lease = lease.unwrap().join();
        assert_eq!((lease.cid().get() - width) / (LEASES / 2), node, "{lease:?}");
        lease
    };
    for (leased, returned) in [(0, 1), (1, 1), (1, 0), (0, 0)] {
        let lease = lease(leased);
        Sim::spawn(Placement::On(first_of(returned)), || drop(lease)).unwrap().join();
    }
    [0, 1].map(lease).into_iter().for_each(drop);
}

#[test]
fn leases_are_of_the_memory_of_their_node() {
    worlds::simulate("breaks::near", "epyc-7003-2s", Faults::NONE, leases_are_near).unwrap();
}
