//! Futures in domains and on workers, beside tokio's multi-thread runtime.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use coreline::Workers;
use coreline::domain::{
    Domain, DomainLocal, DomainOptions, Domains, DomainsOptions, Exclusive, InDomain,
};
use coreline::mask::PresenceOptions;
use coreline::object::{Budget, GetError, ObjectCache};
use coreline::percpu::Word64;
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).build().unwrap()
}

fn with_presence() -> Domain {
    let options = DomainOptions::new().presence(PresenceOptions::new());
    Domains::new(DomainsOptions::new()).unwrap().domain(options)
}

/// Adds, and lets others run, so often.
async fn work(local: Arc<DomainLocal<Word64>>, rounds: usize) {
    for _ in 0..rounds {
        local.add(1);
        tokio::task::yield_now().await;
        local.add(1);
    }
}

#[test]
fn tasks_of_many_domains_lose_nothing_wherever_they_are_polled() {
    const DOMAINS: usize = 20;
    const TASKS: usize = 10;
    const ROUNDS: usize = 50;
    let domains: Vec<Domain> = (0..DOMAINS).map(|_| Domain::new().unwrap()).collect();
    let local = |domain: &Domain| Arc::new(domain.local(|| Word64::new(0)).unwrap());
    let locals: Vec<_> = domains.iter().map(local).collect();
    runtime().block_on(async {
        let start = |number: usize| {
            let (domain, local) = (&domains[number % DOMAINS], &locals[number % DOMAINS]);
            tokio::spawn(work(Arc::clone(local), ROUNDS).in_domain(domain))
        };
        let tasks: Vec<_> = (0..DOMAINS * TASKS).map(start).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    for (domain, local) in domains.iter().zip(&locals) {
        assert_eq!(local.sum(), 2 * (TASKS * ROUNDS) as u64);
        assert_eq!(domain.usage().users, 0, "a future that is ready is no user");
    }
}

#[test]
fn a_shootdown_reaches_tasks_when_they_are_polled_next() {
    let domain = with_presence();
    let (told, refreshed) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&refreshed);
    let refresh = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let mut future = pin!(tokio::task::yield_now().in_domain(&domain).on_refresh(refresh));
    let mut context = Context::from_waker(Waker::noop());
    let runtime = runtime();
    let _inside_tokio = runtime.enter();
    // `yield_now` is pending once. Nothing is cached before the first poll.
    assert_eq!(future.as_mut().poll(&mut context), Poll::Pending);
    assert_eq!(refreshed.load(Ordering::Relaxed), 1);
    let shot = domain.shootdown(|| {
        told.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(shot.unwrap().reached, 0, "between polls it is not inside");
    assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(()));
    assert_eq!((told.load(Ordering::Relaxed), refreshed.load(Ordering::Relaxed)), (0, 2));
    assert_eq!(domain.usage().users, 0);
}

#[test]
fn a_task_is_no_user_when_it_is_dropped_or_panics() {
    let domain = with_presence();
    let runtime = runtime();
    drop(work(Arc::new(domain.local(|| Word64::new(0)).unwrap()), 1).in_domain(&domain));
    assert_eq!(domain.usage().users, 0);
    let panics = async { panic!("as it should") }.in_domain(&domain);
    let ended: Result<(), _> = runtime.block_on(runtime.spawn(panics));
    assert!(ended.unwrap_err().is_panic());
    // It has left, so the shootdown waits for no member.
    assert_eq!(domain.shootdown(|| ()).unwrap().reached, 0);
    assert_eq!(domain.usage().users, 0);
}

#[test]
fn a_domain_whose_seats_are_taken_gets_more() {
    let options = DomainOptions::new().presence(PresenceOptions::new().seats(1));
    let domain = Domains::new(DomainsOptions::new()).unwrap().domain(options);
    let most = 256 * <coreline_world::Native as coreline_world::Place>::topology().cache_count();
    let mut members: Vec<_> =
        (0..=most).map(|_| std::future::ready(()).in_domain(&domain)).collect();
    assert_eq!(domain.usage().users, members.len());
    let future: Pin<&mut _> = pin!(members.pop().unwrap());
    runtime().block_on(future);
    assert_eq!(domain.usage().users, most);
}

/// More tasks than leases, on a few threads: each gets one, some give up while they wait, and none
/// is lost.
#[test]
fn tasks_wait_for_leases_and_lose_none() {
    const TASKS: u64 = 200;
    const ROUNDS: u64 = 50;
    let domains = Domains::new(DomainsOptions::new().leases(4)).unwrap();
    let domain = domains.domain(DomainOptions::new());
    let uses = Arc::new(domain.local(|| Exclusive::new(0_u64)).unwrap());
    runtime().block_on(async {
        let serve = |number: u64| {
            let (domain, uses) = (domain.clone(), Arc::clone(&uses));
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    if (number + round).is_multiple_of(7) {
                        let mut gives_up = domain.lease_async();
                        let poll = |cx: &mut Context<'_>| {
                            let _pending = Pin::new(&mut gives_up).poll(cx);
                            Poll::Ready(())
                        };
                        std::future::poll_fn(poll).await;
                        tokio::task::yield_now().await;
                    }
                    let mut lease = domain.lease_async().await.unwrap().into_owned();
                    tokio::task::yield_now().await;
                    *lease.get_mut(&uses).unwrap() += 1;
                }
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(serve).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(domain.usage().leased, 0);
    let mut uses = Arc::into_inner(uses).unwrap();
    let all: u64 = uses.iter_mut().map(|uses| *uses.get_mut()).sum();
    assert_eq!(all, TASKS * ROUNDS);
}

/// More tasks than objects, each of which holds its object across an await.
#[test]
fn tasks_wait_for_an_object_while_the_budget_is_full() {
    let budget = Budget::new("objects", 3).unwrap();
    let cache = ObjectCache::<u32>::builder("objects").budget(budget.clone(), 1);
    let cache = Arc::new(cache.build(|| Ok::<_, GetError>(7)).unwrap());
    let live = Arc::new(AtomicU32::new(0));
    runtime().block_on(async {
        let task = |number: u32| {
            let (cache, live) = (Arc::clone(&cache), Arc::clone(&live));
            async move {
                // Some change their minds when they wait, or have got one.
                if number.is_multiple_of(5) {
                    let waits = pin!(cache.get_async());
                    _ = waits.poll(&mut Context::from_waker(Waker::noop()));
                }
                let object = cache.get_owned_async().await.unwrap();
                // Relaxed, both: one word, while the object is held.
                assert!(live.fetch_add(1, Ordering::Relaxed) < 3, "a fourth object is out");
                tokio::task::yield_now().await;
                live.fetch_sub(1, Ordering::Relaxed);
                *object
            }
        };
        let tasks: Vec<_> = (0..200).map(|number| tokio::spawn(task(number))).collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), 7);
        }
    });
    assert_eq!(budget.used(), 0);
    assert!((200..=240).contains(&cache.stats().gets), "{:?}", cache.stats());
}

/// Futures of workers await tasks of tokio, which await futures of workers, in chains. Each comes
/// to its end, and none leaves its threads.
#[test]
fn futures_of_workers_and_of_tokio_await_each_other() {
    const CHAINS: u32 = 100;
    let runtime = runtime();
    let workers = Arc::new(Workers::new().unwrap());
    let cpus: Vec<_> = workers.cpus().collect();
    let chain = |number: u32| {
        let (workers, handle) = (Arc::clone(&workers), runtime.handle().clone());
        let cpu = cpus[number as usize % cpus.len()];
        let outer = Arc::clone(&workers);
        let make = move || async move {
            let inner = Arc::clone(&workers);
            let task = handle.spawn(async move {
                assert_eq!(inner.current(), None);
                tokio::task::yield_now().await;
                let there = inner.spawn_local_on(cpu, move || async move { number + 1 });
                let called = inner.call_async(cpu, || 1).unwrap().await;
                there.unwrap().await.unwrap() + called
            });
            let value = task.await.unwrap();
            assert_eq!(workers.current(), Some(cpu));
            value
        };
        outer.spawn_local_on(cpu, make).unwrap()
    };
    let chains: Vec<_> = (0..CHAINS).map(chain).collect();
    runtime.block_on(async {
        for (number, chain) in (0..CHAINS).zip(chains) {
            assert_eq!(chain.await, Ok(number + 2));
        }
    });
}
