//! Domains while threads are moved by force, end inside of something, and fork.

use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::Duration;
use std::{iter, mem, ptr};

use coreline::domain::{Domain, DomainOptions, Domains, DomainsOptions, Exclusive, LeaseError};
use coreline::percpu::Word64;
use coreline_world::{Clock, Native, Time};

use crate::fork::{in_child, in_children};
use crate::os;

const THREADS: usize = 32;
/// A move of every thread each millisecond.
const MOVES: usize = 400;

/// The CPUs that this process may use.
fn allowed() -> Vec<usize> {
    // SAFETY: the set is as large as it says; zeros are one.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
        let cpus = 0..libc::CPU_SETSIZE as usize;
        cpus.filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Runs `live` in many threads until each was moved many times. The first of them is told its
/// number.
pub(crate) fn storm(live: impl Fn(usize) + Sync) {
    let cpus = allowed();
    let (over, threads) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (over, threads, live) = (&over, &threads, &live);
            scope.spawn(move || {
                // SAFETY: asks for a number.
                threads.lock().unwrap().push(unsafe { libc::gettid() });
                // Relaxed: carries nothing but itself.
                while !over.load(Ordering::Relaxed) {
                    live(number);
                }
            });
        }
        for turn in 0..MOVES {
            let threads = threads.lock().unwrap();
            for (number, thread) in threads.iter().enumerate() {
                // A thread that ended meanwhile is not moved.
                os::pin(*thread, cpus[(turn + number) % cpus.len()]);
            }
            drop(threads);
            thread::sleep(Duration::from_millis(1));
        }
        // Relaxed: carries nothing but itself.
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn nothing_is_lost_while_threads_are_moved_a_thousand_times_a_second() {
    let domain = Domain::new().unwrap();
    let word = domain.local(|| Word64::new(0)).unwrap();
    let mut held = domain.local(|| Exclusive::new([0_u64; 2])).unwrap();
    let (added, leased) = (AtomicU64::new(0), AtomicU64::new(0));
    let begin = Native::now();
    let scans = AtomicU64::new(1);
    storm(|number| {
        let mut member = domain.join();
        let (_inside, _) = member.enter();
        (0..100).for_each(|_| word.add(1));
        // Relaxed, here and below: counts, and a time.
        added.fetch_add(100, Ordering::Relaxed);
        if number == 0 {
            // Sooner than it is due, so that IDs move.
            let scan = scans.fetch_add(1, Ordering::Relaxed);
            domain.expire(begin + Duration::from_millis(200 * scan)).unwrap();
        }
        let mut lease = domain.lease().unwrap();
        let values = lease.get_mut(&held).unwrap();
        for _ in 0..20 {
            assert_eq!(values[0], values[1], "a lease has two holders");
            values[0] += 1;
            word.add(1);
            values[1] += 1;
        }
        leased.fetch_add(20, Ordering::Relaxed);
    });
    let (added, leased) = (added.into_inner(), leased.into_inner());
    assert_eq!(word.sum(), added + leased, "two sections lost a count");
    let total: u64 = held.iter_mut().map(|values| values.get_mut()[1]).sum();
    assert_eq!(total, leased, "what was done under a lease is lost");
    let usage = domain.usage();
    assert_eq!((usage.users, usage.leased), (0, 0));
    let scan = |number: u64| domain.expire(Time::from_nanos(u64::MAX / 2 + number * 200_000_000));
    (0..2).for_each(|number| scan(number).unwrap());
    assert_eq!(domain.usage().ids, 0, "IDs came back");
}

#[test]
fn threads_that_end_inside_take_along_what_they_hold_and_nothing_else() {
    let domain = Domain::new().unwrap();
    let word = domain.local(|| Word64::new(0)).unwrap();
    let most = match (0..).map(|_| domain.lease().map(mem::forget)).find_map(Result::err) {
        Some(LeaseError::Exhausted { most }) => most,
        other => panic!("{other:?}"),
    };
    assert_eq!(domain.usage().leased, most);
    let domain = Domain::new().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut member = domain.join();
            mem::forget(member.enter());
            mem::forget(domain.lease().unwrap());
            mem::forget(member);
            word.add(1);
        });
    });
    let usage = domain.usage();
    assert_eq!((usage.users, usage.leased), (1, 1));
    let leases: Vec<_> = (1..most).map(|_| domain.lease().unwrap()).collect();
    assert!(matches!(domain.lease(), Err(LeaseError::Exhausted { .. })));
    drop(leases);
    assert!(domain.lease().is_ok());
    assert_eq!(word.sum(), 1);
}

#[test]
fn a_child_goes_on_in_a_domain_where_other_threads_stood() {
    let domain = Domain::new().unwrap();
    let word = domain.local(|| Word64::new(7)).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..2 {
            let (domain, word, over) = (&domain, &word, &over);
            let begin = Native::now();
            scope.spawn(move || {
                let mut scan = 1;
                // Relaxed: carries nothing but itself.
                while !over.load(Ordering::Relaxed) {
                    word.add(1);
                    drop(domain.lease().unwrap());
                    match number {
                        0 => domain.expire(begin + Duration::from_millis(200 * scan)).unwrap(),
                        _ => domain.local(|| Word64::new(7)).unwrap().add(1),
                    }
                    scan += 1;
                }
            });
        }
        in_children(&over, || {
            let before = word.sum();
            (0..10).for_each(|_| word.add(5));
            // A slot may have been made for this CPU, beginning with 7.
            let made = word.sum() - before - 50;
            assert!(made.is_multiple_of(7) && made <= 7 * 2 * THREADS as u64, "{made}");
            word.with_all_stopped(|slots| slots.for_each(drop)).unwrap();
            let fresh = domain.local(|| Word64::new(7)).unwrap();
            fresh.add(1);
            assert_eq!(fresh.sum(), 7 * fresh.iter().count() as u64 + 1);
            // Each of the other threads may have held one.
            let leases: Vec<_> = (0..60).map(|_| domain.lease().unwrap()).collect();
            drop(leases);
            drop(domain.join());
            for number in 0..2 {
                domain.expire(Time::from_nanos(u64::MAX / 2 + number * 200_000_000)).unwrap();
            }
            // What a thread was about to give or take is gone for good, and nothing else.
            assert!(domain.usage().ids <= 2, "{:?}", domain.usage());
            word.add(1);
        });
    });
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// In a forked child no thread of the parent's gets a lease, or keeps the child's from one.
#[test]
fn a_child_leases_though_threads_of_its_parent_wait() {
    let domains = Domains::new(DomainsOptions::new().leases(1)).unwrap();
    let domain = domains.domain(DomainOptions::new());
    let out: Vec<_> = iter::from_fn(|| domain.lease().ok()).collect();
    let mut waits = pin!(domain.lease_async());
    assert!(poll(waits.as_mut()).is_pending());
    thread::scope(|scope| {
        let other = scope.spawn(|| domain.lease_wait().map(drop));
        let (mut out, mut first) = (Some(out), None);
        in_child(|| {
            assert!(poll(waits.as_mut()).is_pending(), "all are out in the child, too");
            out.take();
            assert!(poll(waits.as_mut()).is_ready(), "it came first in the child");
            let _lease = domain.lease_wait().unwrap();
            assert_eq!(domain.usage().leased, 1);
        });
        // In the parent nothing has changed.
        drop(out);
        while first.is_none() {
            first = match poll(waits.as_mut()) {
                Poll::Ready(lease) => Some(lease.unwrap()),
                Poll::Pending => None,
            };
        }
        drop(first);
        other.join().unwrap().unwrap();
    });
    assert_eq!(domain.usage().leased, 0);
}

/// A lease that a future had got before the fork, and has not looked for yet, is the child's, too.
#[test]
fn a_child_has_the_leases_that_its_futures_had_got() {
    let domains = Domains::new(DomainsOptions::new().leases(1)).unwrap();
    let domain = domains.domain(DomainOptions::new());
    let lease = domain.lease().unwrap();
    let mut waits = Some(Box::pin(domain.lease_async()));
    assert!(poll(waits.as_mut().unwrap().as_mut()).is_pending());
    drop(lease);
    in_child(|| {
        let lease = poll(waits.as_mut().unwrap().as_mut());
        assert!(lease.is_ready(), "the lease is lost in the child");
        drop(lease);
        assert_eq!(domain.usage().leased, 0);
    });
    in_child(|| {
        waits = None;
        assert_eq!(domain.usage().leased, 0, "the lease is lost in the child");
    });
    assert!(poll(waits.unwrap().as_mut()).is_ready());
}

/// A thread in an `init` holds the lock under which others look for its lease.
#[test]
fn no_thread_waits_for_a_lease_in_an_init_of_its_domain() {
    let domains = Domains::new(DomainsOptions::new().leases(1)).unwrap();
    let domain = domains.domain(DomainOptions::new());
    let lease = domain.lease().unwrap();
    let mut first = pin!(domain.lease_async());
    assert!(poll(first.as_mut()).is_pending());
    let (theirs, seen) = (domain.clone(), Arc::new(Mutex::new(None)));
    let sees = Arc::clone(&seen);
    let init = move || {
        let deadline = Native::now() + Duration::from_millis(10);
        *sees.lock().unwrap() = Some(theirs.lease_by(deadline).map(drop));
        Word64::new(0)
    };
    drop(domain.local(init).unwrap());
    assert_eq!(*seen.lock().unwrap(), Some(Err(LeaseError::Nested)));
    drop(lease);
    assert!(poll(first.as_mut()).is_ready(), "a lease went to one that waits no longer");
}

/// Whether the next waker that drops is to panic.
static ARMED: AtomicBool = AtomicBool::new(false);

const PANICKING: RawWakerVTable = RawWakerVTable::new(
    |data| RawWaker::new(data, &PANICKING),
    |_| {},
    |_| {},
    // Relaxed: one thread arms and drops.
    |_| assert!(!ARMED.swap(false, Ordering::Relaxed), "a waker's drop"),
);

/// What drops in the poll that finds the lease may panic: the lease goes back.
#[test]
fn a_waker_that_panics_takes_no_lease_along() {
    // SAFETY: no function of the table touches the data.
    let waker = unsafe { Waker::new(ptr::null(), &PANICKING) };
    let domains = Domains::new(DomainsOptions::new().leases(1)).unwrap();
    let domain = domains.domain(DomainOptions::new());
    let mut waits = pin!(domain.lease_async());
    let mut context = Context::from_waker(&waker);
    let lease = domain.lease().unwrap();
    assert!(waits.as_mut().poll(&mut context).is_pending());
    drop(lease);
    ARMED.store(true, Ordering::Relaxed);
    let poll = || waits.as_mut().poll(&mut context).map(drop);
    assert!(panic::catch_unwind(AssertUnwindSafe(poll)).is_err());
    assert_eq!(domain.usage().leased, 0, "the lease is lost");
}

/// Two threads of a child drop futures of its parent's, each of which has got a lease.
#[test]
fn threads_of_a_child_do_not_keep_each_other_from_their_futures_leases() {
    const LEASES: usize = 2_000;
    for _ in 0..5 {
        let domains = Domains::new(DomainsOptions::new().leases(LEASES)).unwrap();
        let domain = domains.domain(DomainOptions::new());
        let leases: Vec<_> = iter::from_fn(|| domain.lease().ok()).collect();
        let waits = leases.iter().map(|_| Box::pin(domain.lease_async()));
        let mut waits: Vec<_> = waits.collect();
        assert!(waits.iter_mut().all(|it| poll(it.as_mut()).is_pending()));
        drop(leases);
        in_child(|| {
            let half = waits.split_off(waits.len() / 2);
            let together = Barrier::new(2);
            thread::scope(|scope| {
                for waits in [half, waits] {
                    let together = &together;
                    scope.spawn(move || {
                        together.wait();
                        drop(waits);
                    });
                }
            });
            assert_eq!(domain.usage().leased, 0, "a lease is lost in the child");
        });
    }
}
