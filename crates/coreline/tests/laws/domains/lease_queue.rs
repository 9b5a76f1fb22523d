//! The laws of waiting for a lease: a lease is one holder's, one that waits gets one, in order of
//! arrival, and one that gives up leaves its lease to the next. In every interleaving of the model
//! they are in `domain/waiting.rs`.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use coreline::cid::{CidLayout, Recent};
use coreline::domain::{
    Domain, DomainOptions, Domains, DomainsOptions, Exclusive, LeaseError, LeaseFuture,
};
use coreline_sim::{Faults, Sim};
use coreline_topology::{CpuId, Shape, Topology};
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{Cell, JoinHandle, Native, Placement, Testbed, Threads, Time, World};

use crate::worlds::{self, Effort, FEW, PREEMPTED, TORN};

/// A domain with so many leases, in whose layout are the first two CPUs alone.
fn domain_of<W: Testbed>(leases: usize) -> Domain<Recent, W> {
    let shape = Shape { cores_per_cache: 2, ..Shape::default() };
    let layout = CidLayout::new(&Topology::uniform(shape).unwrap()).unwrap();
    let options = DomainsOptions::new().leases(leases);
    Domains::with_layout_in(layout, options).unwrap().domain(DomainOptions::new())
}

/// More threads than leases, each of which waits for one, works under it, and returns it. Every
/// third gives up at once where it would have to wait.
fn all_get_one<W: Testbed>(effort: Effort, leases: usize) {
    let domain = Arc::new(domain_of::<W>(leases));
    let uses = Arc::new(domain.local(|| Exclusive::new(Cell::<u64, W>::new_in(0))).unwrap());
    let threads = effort.crew::<W, _, _>(|number| {
        let (domain, uses) = (Arc::clone(&domain), Arc::clone(&uses));
        move || {
            let mut leased = 0;
            for round in 0..effort.rounds {
                let lease = match (number + round) % 3 {
                    2 if W::RUNS => domain.lease_by(W::now()),
                    _ => domain.lease_wait(),
                };
                let mut lease = match lease {
                    Err(LeaseError::Exhausted { most }) if W::RUNS => {
                        assert_eq!(most, leases);
                        continue;
                    }
                    lease => lease.unwrap(),
                };
                let value = lease.get_mut(&uses).unwrap();
                // SAFETY: a lease is exclusive: that is what is tested.
                value.with_mut(|uses| unsafe { *uses += 1 });
                leased += 1;
            }
            leased
        }
    });
    let leased: u64 = threads.into_iter().map(JoinHandle::join).sum();
    assert_eq!(domain.usage().leased, 0, "a lease was lost");
    let mut uses = Arc::into_inner(uses).expect("no other thread has it");
    // SAFETY: this thread alone has the local.
    let of = |value: &mut Exclusive<Cell<u64, W>>| value.get_mut().with(|uses| unsafe { *uses });
    assert_eq!(uses.iter_mut().map(of).sum::<u64>(), leased, "a lease had two holders");
}

#[test]
fn all_that_wait_get_a_lease_natively() {
    all_get_one::<Native>(Effort { threads: 4, rounds: 5_000, cpus: 2 }, 1);
    all_get_one::<Native>(Effort { threads: 16, rounds: 500, cpus: 2 }, 5);
}

#[test]
fn all_that_wait_get_a_lease_when_simulated() {
    let few = Effort { threads: 6, rounds: 20, ..FEW };
    for (name, faults) in [("torn", TORN), ("preempted", PREEMPTED), ("", Faults::default())] {
        let name = format!("lease_queue::few{name}");
        worlds::simulate(&name, "host-2c", faults, move || all_get_one::<Sim>(few, 2)).unwrap();
    }
    let many = Effort { threads: 96, rounds: 8, cpus: 96 };
    let law = move || all_get_one::<Sim>(many, 7);
    worlds::simulate_seeds("lease_queue", "epyc-9654-2s", Faults::default(), 3, law).unwrap();
}

type Waits<'a, W> = LeaseFuture<'a, Recent, W>;

fn poll<'a, W: World>(future: &mut Waits<'a, W>) -> Poll<<Waits<'a, W> as Future>::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Three wait; the second gives up, once before it has got a lease and once after that.
fn order_of_arrival<W: Testbed>() {
    for gives_up_late in [false, true] {
        let domain = domain_of::<W>(1);
        let first = domain.lease().unwrap();
        let mut waits = [(); 3].map(|()| domain.lease_async());
        for one in &mut waits {
            assert!(poll(one).is_pending());
            assert!(poll(one).is_pending(), "as long as there is none");
        }
        let [mut a, b, mut c] = waits;
        let exhausted = Err(LeaseError::Exhausted { most: 1 });
        assert_eq!(domain.lease_by(W::now()).map(drop), exhausted);
        // Else it drops here.
        let b = Some(b).filter(|_| gives_up_late);
        let cid = first.cid();
        drop(first);
        assert!(poll(&mut c).is_pending(), "came last");
        assert_eq!(domain.lease().map(drop), exhausted, "it is given already");
        let Poll::Ready(lease) = poll(&mut a) else { panic!("the first gets it") };
        let lease = lease.unwrap().into_owned();
        assert_eq!((lease.cid(), domain.usage().leased), (cid, 1));
        drop(lease);
        assert_eq!(poll(&mut c).is_pending(), gives_up_late, "the second has it");
        drop(b);
        if gives_up_late {
            let Poll::Ready(lease) = poll(&mut c) else { panic!("the second gave up") };
            drop(lease.unwrap());
        }
        drop((a, c));
        assert_eq!(domain.usage().leased, 0);
        drop(domain.lease().unwrap());
    }
}

#[test]
fn leases_come_in_order_of_arrival_in_every_world() {
    order_of_arrival::<Native>();
    worlds::simulate_seeds("lease_queue::order", "host-2c", Faults::default(), 1, || {
        order_of_arrival::<Sim>();
    })
    .unwrap();
}

/// A lease that no thread returns: the wait ends when it was said to, and leaves nothing behind.
fn a_wait_that_ends<W: Testbed>() {
    let domain = domain_of::<W>(1);
    let lease = domain.lease().unwrap();
    let start: Time = W::now();
    let deadline = start + Duration::from_millis(2);
    let exhausted = Err(LeaseError::Exhausted { most: 1 });
    assert_eq!(domain.lease_by(deadline).map(drop), exhausted);
    assert!(W::now() >= deadline, "it gave up early");
    drop(lease);
    drop(domain.lease_wait().unwrap());
    assert_eq!(domain.usage().leased, 0);
}

#[test]
fn a_wait_for_a_lease_ends_at_its_deadline() {
    a_wait_that_ends::<Native>();
    worlds::simulate_seeds("lease_queue::ends", "host-2c", Faults::default(), 1, || {
        a_wait_that_ends::<Sim>();
    })
    .unwrap();
}

/// Where all share one lease, and its holder is on another CPU, threads are woken.
#[test]
fn a_thread_that_sleeps_is_woken_when_simulated() {
    let law = || {
        let domain = Arc::new(domain_of::<Sim>(1));
        let lease = domain.lease().unwrap();
        let theirs = Arc::clone(&domain);
        let waits = Sim::spawn(Placement::On(CpuId::new(1)), move || {
            theirs.lease_wait().map(|lease| lease.cid()).unwrap()
        });
        Sim::sleep(Duration::from_millis(1));
        let cid = lease.cid();
        drop(lease);
        assert_eq!(waits.unwrap().join(), cid);
    };
    worlds::simulate_seeds("lease_queue::sleeps", "host-2c", Faults::default(), 3, law).unwrap();
}

/// The model, where a heavy fence is refused while another thread comes.
const REFUSING: Plant =
    Plant { refuses: || MEANWHILE.take().map(|happens| happens()).is_some(), ..Plant::EXCHANGES };

thread_local! {
    /// What happens meanwhile. Of the host's thread, on which an execution runs.
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Counts how often it was woken.
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // Relaxed: one thread wakes and looks.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Panics where it is woken.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker's wake");
    }
}

/// Two wait, of which the second comes during the fence of the first, and relies on it.
fn one_waits_behind_one_that_cannot() {
    let domain = Rc::new(domain_of::<Model>(1));
    let lease = domain.lease().unwrap();
    let woken = Arc::new(Woken(AtomicU32::new(0)));
    let times_woken = || woken.0.load(Ordering::Relaxed);
    let wait = |domain: Rc<Domain<_, _>>| async move { domain.lease_async().await.map(drop) };
    let second = Rc::new(RefCell::new(Box::pin(wait(Rc::clone(&domain)))));
    let poll_second = {
        let (second, waker) = (Rc::clone(&second), Waker::from(Arc::clone(&woken)));
        move || second.borrow_mut().as_mut().poll(&mut Context::from_waker(&waker))
    };
    let meanwhile = poll_second.clone();
    MEANWHILE.set(Some(Box::new(move || assert!(meanwhile().is_pending()))));
    let refused = poll(&mut domain.lease_async());
    assert!(matches!(refused, Poll::Ready(Err(LeaseError::Lacking(_)))), "{refused:?}");
    assert_eq!(times_woken(), 1, "it relies on a fence that there was not");
    assert!(poll_second().is_pending());
    drop(lease);
    assert_eq!(times_woken(), 2);
    assert_eq!(poll_second(), Poll::Ready(Ok(())));
}

#[test]
fn a_refused_fence_is_no_other_waiters_fence() {
    Checker::new().max_branches(20_000).plant(REFUSING).check(one_waits_behind_one_that_cannot);
}

/// Two more wait behind one whose fence is refused, and the waker of the first of these panics.
fn one_waits_behind_one_whose_waker_panics() {
    let domain = Rc::new(domain_of::<Model>(1));
    let lease = domain.lease().unwrap();
    let woken = Arc::new(Woken(AtomicU32::new(0)));
    let wakers = [Waker::from(Arc::new(Panics)), Waker::from(Arc::clone(&woken))];
    let wait = |domain: Rc<Domain<_, _>>| async move { domain.lease_async().await.map(drop) };
    let others = [(); 2].map(|()| Box::pin(wait(Rc::clone(&domain))));
    let others = Rc::new(RefCell::new(others));
    let theirs = Rc::clone(&others);
    MEANWHILE.set(Some(Box::new(move || {
        for (future, waker) in theirs.borrow_mut().iter_mut().zip(&wakers) {
            assert!(future.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        }
    })));
    let mut first = domain.lease_async();
    let polled = panic::catch_unwind(AssertUnwindSafe(|| poll(&mut first).is_ready()));
    assert!(polled.is_err(), "the waker panics");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1, "it is behind one that panicked");
    drop((first, lease));
    others.borrow_mut().iter_mut().for_each(|future| {
        let ready = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(ready, Poll::Ready(Ok(())));
    });
}

#[test]
fn a_waker_that_panics_keeps_no_other_waiting() {
    Checker::new()
        .max_branches(20_000)
        .plant(REFUSING)
        .check(one_waits_behind_one_whose_waker_panics);
}
