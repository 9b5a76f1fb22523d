//! Leases beyond a magazine's rounds: where they wait, and that each is found, by one thread.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use coreline::cid::{Clustered, Recent};
use coreline::domain::{
    Domain, DomainLocal, DomainOptions, Domains, DomainsOptions, Exclusive, Lease,
};
use coreline_sim::{Faults, Sim};
use coreline_topology::{CpuId, NodeId};
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{Cell, JoinHandle, Ordering, Place, Placement, Threads, Word, Words};

use crate::worlds;

type Modelled = Arc<Domain<Recent, Model>>;
type Leased<'a> = Lease<'a, Recent, Model>;

/// How many leases have a round in the magazine of a CPU.
const ROUNDS: usize = 4;

fn domain(leases: usize) -> Modelled {
    let domains = Domains::new_in(DomainsOptions::new().leases(leases)).unwrap();
    Arc::new(domains.domain(DomainOptions::new()))
}

fn lease_at(domain: &Modelled, cpu: u32) -> Leased<'_> {
    Model::migrate(CpuId::new(cpu));
    domain.lease().expect("one is free")
}

/// As many as have a round, on CPU 0.
fn keep(domain: &Modelled) -> Vec<Leased<'_>> {
    (0..ROUNDS).map(|_| lease_at(domain, 0)).collect()
}

/// In every interleaving with few preemptions. That there are many leases takes many steps.
fn check(plant: Plant, law: impl Fn() + Send + Sync + 'static) {
    Checker::new().preemption_bound(3).max_branches(5000).plant(plant).check(law);
}

/// Runs `live` in another thread, on a CPU.
fn spawn(
    domain: &Modelled,
    cpu: u32,
    live: impl FnOnce(&Modelled) + Send + 'static,
) -> impl JoinHandle<()> {
    let theirs = Arc::clone(domain);
    Model::spawn(Placement::On(CpuId::new(cpu)), move || live(&theirs)).unwrap()
}

/// Another thread, on a CPU that has no magazine, looks for a lease and must find one.
fn look(domain: &Modelled) -> impl JoinHandle<()> {
    spawn(domain, 2, |domain| {
        drop(domain.lease().expect("the first thread has one at most"));
    })
}

type Uses = DomainLocal<Exclusive<Cell<u64, Model>>, Recent, Model>;

/// Whether there was a lease, and so its value was used.
fn is_used(domain: &Modelled, uses: &Uses) -> bool {
    domain.lease().is_ok_and(|mut lease| {
        let uses = lease.get_mut(uses).unwrap();
        // SAFETY: a lease is exclusive: that is what is tested.
        uses.with_mut(|uses| unsafe { *uses += 1 });
        true
    })
}

/// What was written under a lease that had no round is seen under the next.
#[test]
fn a_lease_from_an_open_round_is_exclusive_in_every_interleaving() {
    check(Plant::NONE, || {
        let domain = domain(ROUNDS + 1);
        let uses: Arc<Uses> = Arc::new(domain.local(|| Exclusive::new(Cell::new_in(0))).unwrap());
        let kept = keep(&domain);
        assert!(is_used(&domain, &uses));
        let theirs = Arc::clone(&uses);
        let other = spawn(&domain, 0, move |domain| {
            is_used(domain, &theirs);
        });
        // The other thread may have it.
        is_used(&domain, &uses);
        other.join();
        assert!(is_used(&domain, &uses), "the lease is lost");
        assert_eq!(domain.usage().leased, kept.len());
    });
}

/// One thread returns to an open round of a CPU and takes from a reserved one of another; the other
/// thread finds one nevertheless.
#[test]
fn a_search_finds_one_while_another_goes_from_an_open_to_a_reserved_round() {
    check(Plant::EXCHANGES, || {
        let domain = domain(ROUNDS + 2);
        // The open rounds are looked at first.
        let kept = keep(&domain);
        let roundless = lease_at(&domain, 0);
        drop(lease_at(&domain, 1));
        Model::migrate(CpuId::new(0));
        let other = look(&domain);
        drop(roundless);
        drop(lease_at(&domain, 1));
        other.join();
        assert_eq!(domain.usage().leased, kept.len());
    });
}

/// The same, where the lease gets its round while the other thread looks.
#[test]
fn a_search_finds_one_while_a_lease_gets_a_round() {
    check(Plant::EXCHANGES, || {
        let domain = domain(ROUNDS + 1);
        let mut kept = keep(&domain);
        drop(lease_at(&domain, 0));
        // Moves to the other magazine, and leaves room.
        drop(kept.pop());
        drop(lease_at(&domain, 1));
        let other = look(&domain);
        drop(lease_at(&domain, 0));
        drop(lease_at(&domain, 1));
        other.join();
        assert_eq!(domain.usage().leased, kept.len());
    });
}

/// A lease takes the round of one that moved to another CPU meanwhile, and is not overwritten.
#[test]
fn a_round_goes_from_one_lease_to_another_in_every_interleaving() {
    check(Plant::NONE, || {
        let domain = domain(ROUNDS + 2);
        let elsewhere = lease_at(&domain, 1);
        let mut kept = keep(&domain);
        drop(lease_at(&domain, 0));
        let moving = kept.pop().unwrap();
        let cid = moving.cid();
        let other = spawn(&domain, 0, |domain| drop(domain.lease()));
        drop(moving);
        let moved = lease_at(&domain, 1);
        let has_moved = moved.cid() == cid;
        drop(moved);
        other.join();
        // Else the other thread had that one.
        if has_moved {
            assert_eq!(domain.usage().leased, kept.len() + 1, "{elsewhere:?} and those on CPU 0");
        }
    });
}

/// Whether a lease on CPU 0 takes no lock: a thread can have it while it holds the lock.
fn takes_no_lock(domain: &Modelled) -> bool {
    Model::migrate(CpuId::new(0));
    let theirs = Domain::clone(domain);
    let (asked, had) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&had);
    let local = domain.local(move || {
        // The shared slot is made before the lock is taken. Relaxed: counts.
        if asked.fetch_add(1, Ordering::Relaxed) == 1 {
            counted.store(u32::from(theirs.lease().is_ok()), Ordering::Relaxed);
        }
        <Model as Words>::U64::new_in(0)
    });
    drop(local.unwrap());
    had.load(Ordering::Relaxed) == 1
}

#[test]
fn a_holder_of_many_takes_no_lock_for_one_more() {
    check(Plant::NONE, || {
        let domain = domain(ROUNDS + 1);
        let kept = keep(&domain);
        let before = takes_no_lock(&domain);
        let one = lease_at(&domain, 0);
        // A search in vain leaves marks where leases wait later.
        assert!(domain.lease().is_err());
        drop(one);
        let after = takes_no_lock(&domain);
        drop(kept);
        drop(domain);
        assert_eq!([before, after], [false, true]);
    });
}

/// Nor if all that are left waited on another CPU.
#[test]
fn a_holder_of_many_takes_no_lock_for_one_from_elsewhere() {
    check(Plant::NONE, || {
        let domain = domain(ROUNDS + 1);
        drop(lease_at(&domain, 1));
        let kept = keep(&domain);
        let before = takes_no_lock(&domain);
        drop(lease_at(&domain, 0));
        let after = takes_no_lock(&domain);
        drop(kept);
        drop(domain);
        assert_eq!([before, after], [false, true]);
    });
}

/// The rounds of leases that moved away are free for those that come back.
#[test]
fn a_thread_whose_leases_moved_takes_no_lock_for_as_many_again() {
    check(Plant::NONE, || {
        let most = 2 * ROUNDS;
        let domain = domain(most);
        for cpu in [0, 1, 0] {
            drop((0..most).map(|_| lease_at(&domain, cpu)).collect::<Vec<_>>());
        }
        let kept: Vec<_> = (1..most).map(|_| lease_at(&domain, 0)).collect();
        let last = takes_no_lock(&domain);
        drop(kept);
        drop(domain);
        assert!(last);
    });
}

/// A lease of another node's memory does not wait where it would be met before those of the own.
fn far_leases_wait_in_no_open_round() {
    let share = ROUNDS + 2;
    let options = DomainsOptions::new().leases(2 * share);
    let domains = Domains::<Clustered, Sim>::new_in(options).unwrap();
    let width = domains.layout().width();
    let domain = domains.domain(DomainOptions::new());
    let cpu = Sim::topology().cpus().find(|cpu| cpu.node == NodeId::new(1)).unwrap().id;
    let live = move || {
        let node = |lease: &Lease<'_, Clustered, Sim>| (lease.cid().index() - width) / share;
        let mut leases: Vec<_> = (0..=share).map(|_| domain.lease().unwrap()).collect();
        let far = leases.pop().unwrap();
        assert_eq!((leases.iter().map(node).min(), node(&far)), (Some(1), 0));
        drop(far);
        leases.truncate(ROUNDS);
        assert_eq!(node(&domain.lease().unwrap()), 1);
    };
    Sim::spawn(Placement::On(cpu), live).unwrap().join();
}

#[test]
fn leases_of_another_node_wait_in_no_open_round() {
    let law = far_leases_wait_in_no_open_round;
    worlds::simulate("lease_magazines::far", "epyc-7003-2s", Faults::NONE, law).unwrap();
}

/// A lease that is taken from a far magazine leaves room there, and does not return to it.
fn leases_leave_far_magazines() {
    let share = ROUNDS + 2;
    let options = DomainsOptions::new().leases(2 * share);
    let domains = Domains::<Clustered, Sim>::new_in(options).unwrap();
    // Leases that are sent to a thread borrow what is never dropped.
    let domain: &Domain<Clustered, Sim> = Box::leak(Box::new(domains.domain(DomainOptions::new())));
    let topology = Sim::topology();
    let on = |node| {
        let cpu = topology.cpus().find(|cpu| cpu.node == NodeId::new(node));
        Placement::On(cpu.unwrap().id)
    };
    let lease = |count: usize| (0..count).map(|_| domain.lease().unwrap()).collect::<Vec<_>>();
    let roundless = Sim::spawn(on(0), move || {
        let mut leases = lease(share);
        drop(leases.split_off(ROUNDS + 1));
        leases
    });
    let mut roundless = roundless.unwrap().join();
    // The last is that of the far open round.
    let mut all = Sim::spawn(on(1), move || lease(share + 1)).unwrap().join();
    let far = all.pop();
    Sim::spawn(on(0), move || drop(roundless.pop().map(|one| (one, roundless)))).unwrap().join();
    drop((far, all));
    assert_eq!(domain.usage().leased, 0);
}

#[test]
fn leases_from_far_magazines_do_not_return_there() {
    let law = leases_leave_far_magazines;
    worlds::simulate("lease_magazines::far_room", "epyc-7003-2s", Faults::NONE, law).unwrap();
}
