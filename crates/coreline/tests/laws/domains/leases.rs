//! What is leased when others come and go: a lease is one thread's, its holder sees what was done
//! under it before, and a thread that is told that there is none is told the truth.

use std::mem;
use std::sync::Arc;

use coreline::cid::{CidLayout, Clustered, Recent};
use coreline::domain::{Domain, DomainOptions, Domains, DomainsOptions, Exclusive};
use coreline_sim::{Faults, Machine, Schedule, Sim};
use coreline_topology::{CpuId, Shape, Topology};
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{
    Cell, Integer, JoinHandle, Ordering, Placement, Testbed, Threads, Word, Words,
};

use crate::worlds;

fn on(cpu: u32) -> Placement {
    Placement::On(CpuId::new(cpu))
}

/// A domain with so many leases, in whose layout are the first CPUs alone.
fn domain_of<W: Testbed>(cpus: u32, leases: usize) -> Arc<Domain<Recent, W>> {
    let shape = Shape { cores_per_cache: cpus, ..Shape::default() };
    let layout = CidLayout::new(&Topology::uniform(shape).unwrap()).unwrap();
    let options = DomainsOptions::new().leases(leases);
    let domains = Domains::with_layout_in(layout, options).unwrap();
    Arc::new(domains.domain(DomainOptions::new()))
}

/// Two threads, on these CPUs, want the only lease, which waits in the magazine of CPU 0.
///
/// Words are what they are: where stores were exchanges, one that should be a release would pass.
fn two_want_one(cpus: [u32; 2]) {
    Checker::new().preemption_bound(2).check(move || {
        let domain = domain_of::<Model>(2, 1);
        let uses = Arc::new(domain.local(|| Exclusive::new(Cell::new_in(0))).unwrap());
        drop(domain.lease().unwrap());
        let (theirs, values) = (Arc::clone(&domain), Arc::clone(&uses));
        let live = move || {
            let Ok(mut lease) = theirs.lease() else { return 0 };
            // SAFETY: a lease is exclusive: that is what is tested.
            lease.get_mut(&values).unwrap().with_mut(|uses| unsafe { *uses += 1 });
            1
        };
        let other = Model::spawn(on(cpus[1]), live.clone()).unwrap();
        Model::migrate(CpuId::new(cpus[0]));
        let leased = live() + other.join();
        drop(live);
        let mut uses = Arc::into_inner(uses).expect("no other thread has it");
        // SAFETY: this thread alone has the local.
        let of =
            |value: &mut Exclusive<Cell<u32, Model>>| value.get_mut().with(|uses| unsafe { *uses });
        assert_eq!(uses.iter_mut().map(of).sum::<u32>(), leased, "a lease has two holders");
    });
}

#[test]
fn a_lease_is_one_threads_of_those_on_its_cpu() {
    two_want_one([0, 0]);
}

#[test]
fn a_lease_is_one_threads_of_those_on_two_cpus() {
    two_want_one([0, 1]);
}

/// A thread goes from one lease to another, the first of which has no round in a magazine; another
/// thread finds one nevertheless.
#[test]
fn a_search_finds_one_while_another_returns_what_has_no_round() {
    worlds::check_planted(Plant::EXCHANGES, || {
        let domain = domain_of::<Model>(1, 2);
        let lease_at = |cpu| {
            Model::migrate(CpuId::new(cpu));
            domain.lease().expect("the other thread has one at most")
        };
        let roundless = lease_at(1);
        drop(lease_at(0));
        let theirs = Arc::clone(&domain);
        let other = Model::spawn(on(1), move || {
            drop(theirs.lease().expect("the other thread has one at most"));
        });
        drop(roundless);
        drop(lease_at(0));
        other.unwrap().join();
        assert_eq!(domain.usage().leased, 0);
    });
}

/// Two threads take turns: each has the lease of its CPU's magazine, never both at once. A third
/// one, whose CPU has no magazine, looks for the other lease.
fn a_search_finds_one() {
    /// A magazine's. All but the first are out for good, so the first ones stay where they are.
    const ROUNDS: u32 = 4;
    const TURNS: u32 = 100;
    let domain = domain_of::<Sim>(2, 2 * ROUNDS as usize);
    for cpu in 0..2 {
        let domain = Arc::clone(&domain);
        let fill = move || {
            let _first = domain.lease().unwrap();
            (1..ROUNDS).for_each(|_| mem::forget(domain.lease().unwrap()));
        };
        Sim::spawn(on(cpu), fill).unwrap().join();
    }
    let turn = Arc::new(<Sim as Words>::U32::new_in(0));
    let takes_turns = |cpu: u32| {
        let (domain, turn) = (Arc::clone(&domain), Arc::clone(&turn));
        Sim::spawn(on(cpu), move || {
            for _ in 0..TURNS {
                // Acquire: pairs with the Release below.
                while turn.load(Ordering::Acquire) % 2 != cpu {
                    Sim::relax();
                }
                let lease = domain.lease().expect("the third thread has one at most");
                (0..4).for_each(|_| Sim::relax());
                drop(lease);
                turn.fetch_add(1, Ordering::Release);
            }
        })
    };
    let turns = [0, 1].map(takes_turns);
    // Relaxed: whether it goes on.
    while turn.load(Ordering::Relaxed) < 2 * TURNS {
        drop(domain.lease().expect("one waits at every moment"));
    }
    turns.into_iter().for_each(|thread| thread.unwrap().join());
    assert_eq!(domain.usage().leased, 2 * ROUNDS as usize - 2);
}

#[test]
fn a_search_finds_one_while_others_take_turns() {
    let machines = (0..60).map(|seed| {
        let faults = Faults { preempt_access: 5 * (seed % 3), ..Faults::NONE };
        let machine = Machine::preset("desktop-12c").unwrap().seed(seed.into()).faults(faults);
        machine.schedule(Schedule::Random).step_limit(2_000_000)
    });
    let law = || Sim::spawn(on(2), a_search_finds_one).unwrap().join();
    coreline_sim::search(machines, law).unwrap();
}

/// A lease of the other node gets no round in this CPU's magazine: the next one is near again.
fn the_next_one_is_near() {
    /// Of each node: four have rounds in a magazine, four more can wait there, one in the depot.
    const LEASES: u32 = 9;
    const ROUNDS: usize = 4;
    let options = DomainsOptions::new().leases(2 * LEASES as usize);
    let domains = Domains::<Clustered, Sim>::new_in(options).unwrap();
    let far = domains.layout().width() as u32 + LEASES;
    let domain: &Domain<Clustered, Sim> = Box::leak(Box::new(domains.domain(DomainOptions::new())));
    let lease_at = |cpu| Sim::spawn(on(cpu), || domain.lease().unwrap()).unwrap().join();
    // Those of this node are out, and all but the first have no round.
    let mut near: Vec<_> = (0..LEASES).map(|_| lease_at(0)).collect();
    assert!(near.iter().all(|lease| lease.cid().get() < far));
    let lease = lease_at(1);
    assert!(lease.cid().get() >= far, "{lease:?}");
    drop(lease);
    near.truncate(ROUNDS);
    let lease = lease_at(1);
    assert!(lease.cid().get() < far, "{lease:?}");
}

#[test]
fn a_lease_of_another_node_is_in_no_magazine() {
    worlds::simulate("leases::near", "epyc-7003-2s", Faults::NONE, the_next_one_is_near).unwrap();
}

/// Many CPUs lease for the first time, all at once.
fn all_have_a_magazine() {
    const CPUS: u32 = 12;
    let domain = domain_of::<Sim>(CPUS, CPUS as usize);
    drop(domain.lease().unwrap());
    let live = |cpu| {
        let domain = Arc::clone(&domain);
        Sim::spawn(on(cpu), move || drop(domain.lease().unwrap())).unwrap()
    };
    let threads: Vec<_> = (0..CPUS).map(live).collect();
    threads.into_iter().for_each(JoinHandle::join);
    assert_eq!(domain.usage().ids, CPUS as usize, "a CPU without an ID has no magazine");
}

#[test]
fn a_cpu_whose_thread_waited_for_a_lease_has_a_magazine_then() {
    let machines = (0..20).map(|seed| {
        let machine = Machine::preset("desktop-12c").unwrap().seed(seed);
        machine.schedule(Schedule::Random).step_limit(1_000_000)
    });
    coreline_sim::search(machines, all_have_a_magazine).unwrap();
}
