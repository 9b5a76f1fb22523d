//! The laws of object caches: an object is in one hand at a time, stays what it was constructed as,
//! is constructed once and destroyed once; what fails leaks nothing and doubles nothing.

use std::array;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use coreline::IndexBy;
use coreline::cid::Recent;
use coreline::domain::{Domain, DomainLocal, DomainOptions, Domains, DomainsOptions, LocalError};
use coreline::object::{Budget, Builder, GetError, Object, ObjectCache, Pressure};
use coreline_sim::{Faults, Sim};
use coreline_world::{Cell, Integer, JoinHandle, Native, Ordering, Testbed, Word};

use crate::worlds::{self, Effort, FEW, NATIVE, Numbers, TORN};

/// What became of the objects and lives of one cache.
struct Tally<W: Testbed> {
    constructed: W::U32,
    destroyed: W::U32,
    begun: W::U32,
    ended: W::U32,
}

impl<W: Testbed> Tally<W> {
    fn new() -> Arc<Self> {
        let zero = || W::U32::new_in(0);
        Arc::new(Tally { constructed: zero(), destroyed: zero(), begun: zero(), ended: zero() })
    }
}

/// One more; says how many there were before.
fn count(word: &impl Integer<Value = u32>) -> u32 {
    // Relaxed: a count, read after the threads were joined.
    word.fetch_add(1, Ordering::Relaxed)
}

/// How many there are.
fn counted(word: &impl Word<Value = u32>) -> u32 {
    // Relaxed: a count, read after the threads were joined.
    word.load(Ordering::Relaxed)
}

/// What is constructed.
struct Item<W: Testbed> {
    /// The thread that has it, plus one.
    holder: W::U32,
    /// What its holders did to it, which only they touch.
    uses: Cell<u64, W>,
    tally: Arc<Tally<W>>,
}

impl<W: Testbed> Item<W> {
    fn new(tally: &Arc<Tally<W>>) -> Self {
        count(&tally.constructed);
        Item { holder: W::U32::new_in(0), uses: Cell::new_in(0), tally: Arc::clone(tally) }
    }

    /// A thread got it.
    fn begin(&self, thread: u32) {
        // Relaxed: the cache orders what two threads do with one object; that is what is tested.
        let before = self.holder.swap(thread + 1, Ordering::Relaxed);
        assert_eq!(before, 0, "an object in two hands");
        // SAFETY: the holder alone touches it.
        self.uses.with_mut(|uses| unsafe { *uses += 1 });
    }

    /// The thread is about to give it away.
    fn end(&self, thread: u32) {
        // Relaxed: as in `begin`.
        let before = self.holder.swap(0, Ordering::Relaxed);
        assert_eq!(before, thread + 1, "an object in two hands");
    }
}

impl<W: Testbed> Drop for Item<W> {
    fn drop(&mut self) {
        let free = counted(&self.holder) == 0 || std::thread::panicking();
        assert!(free, "destroyed in a thread's hand");
        count(&self.tally.destroyed);
    }
}

/// What each life has.
struct Life<W: Testbed>(Arc<Tally<W>>);

impl<W: Testbed> Life<W> {
    fn new(tally: &Arc<Tally<W>>) -> Self {
        count(&tally.begun);
        Life(Arc::clone(tally))
    }
}

impl<W: Testbed> Drop for Life<W> {
    fn drop(&mut self) {
        count(&self.0.ended);
    }
}

type Items<W> = ObjectCache<Item<W>, Life<W>, W>;

/// How a cache is made.
type Options<W> = fn(Builder<Item<W>, Life<W>, W>) -> Builder<Item<W>, Life<W>, W>;

/// Threads get objects, keep some, and give them back, here or by way of another thread.
fn objects_are_in_one_hand<W: Testbed>(effort: Effort, options: Options<W>) {
    let tally = Tally::<W>::new();
    let theirs = Arc::clone(&tally);
    let cache = options(ObjectCache::builder_in("items"));
    let cache = Arc::new(cache.build(move || Ok::<_, GetError>(Item::new(&theirs))).unwrap());
    let handed: Arc<[W::Ptr<Item<W>>; 4]> =
        Arc::new(array::from_fn(|_| W::Ptr::new_in(ptr::null_mut())));
    let threads = effort.crew::<W, _, _>(|thread| {
        let (cache, handed, tally) = (Arc::clone(&cache), Arc::clone(&handed), Arc::clone(&tally));
        move || {
            let mut numbers = Numbers(u64::from(thread));
            let mut held: Vec<Object<'_, _, _, W>> = Vec::new();
            for _ in 0..effort.rounds {
                match numbers.below(60) {
                    0 => _ = cache.shrink(),
                    1 => _ = cache.stats(),
                    _ => {}
                }
                match numbers.below(5) {
                    0 | 1 if held.len() < 12 => {
                        let object = cache.get_with(|| Life::new(&tally)).unwrap();
                        object.begin(thread);
                        held.push(object);
                    }
                    2 if !held.is_empty() => {
                        let object = held.swap_remove(numbers.below(held.len()));
                        object.end(thread);
                        exchange(&cache, &handed[numbers.below(4)], Some(object));
                    }
                    3 if !held.is_empty() => {
                        let object = held.swap_remove(numbers.below(held.len()));
                        object.end(thread);
                        object.discard();
                    }
                    _ if !held.is_empty() => {
                        let object = held.swap_remove(numbers.below(held.len()));
                        object.end(thread);
                    }
                    _ => {}
                }
            }
            held.iter().for_each(|object| object.end(thread));
        }
    });
    threads.into_iter().for_each(JoinHandle::join);
    handed.iter().for_each(|place| exchange(&cache, place, None));
    let stats = cache.stats();
    assert_eq!((stats.live, stats.quarantined), (0, 0), "{stats}");
    assert_eq!(stats.gets, u64::from(counted(&tally.begun)), "{stats}");
    assert_eq!(counted(&tally.begun), counted(&tally.ended));
    let constructed = counted(&tally.constructed);
    assert_eq!(stats.constructed, u64::from(constructed), "{stats}");
    assert_eq!(stats.idle as u32, constructed - counted(&tally.destroyed), "{stats}");
    assert!(stats.refills + stats.constructed <= stats.gets, "{stats}");
    cache.shrink();
    let cache = Arc::into_inner(cache).expect("the threads were joined");
    cache.close().expect("all were given back");
    assert_eq!(counted(&tally.destroyed), constructed, "each is destroyed once");
}

/// Puts an object, as a pointer, where another thread finds it, and gives back what was there.
fn exchange<W: Testbed>(
    cache: &Items<W>,
    place: &W::Ptr<Item<W>>,
    object: Option<Object<'_, Item<W>, Life<W>, W>>,
) {
    let new = object.map_or(ptr::null_mut(), |object| object.into_raw().as_ptr());
    // Acquire and release: a thread that finds the object has what was done with it before.
    if let Some(found) = ptr::NonNull::new(place.swap(new, Ordering::AcqRel)) {
        // SAFETY: from `into_raw`, and the exchange gives it to one thread.
        drop(unsafe { cache.from_raw(found) });
    }
}

/// Many shapes of caches.
fn each_shape<W: Testbed>() -> [Options<W>; 7] {
    [
        |builder| builder,
        |builder| builder.magazine(1).alignment(64),
        |builder| builder.magazine(2).idle_limit(9),
        |builder| builder.idle_limit(0),
        |builder| builder.idle_limit(3).placed(false),
        |builder| {
            // Not every machine has the kernel's.
            let kernel = W::section(IndexBy::KernelCid).is_ok();
            builder.index_by(if kernel { IndexBy::KernelCid } else { IndexBy::Cpu }).magazine(3)
        },
        |builder| {
            let budget = Budget::new_in("items", 1 << 20).unwrap();
            builder.budget(budget, 100).magazine(4)
        },
    ]
}

#[test]
fn objects_are_in_one_hand_natively() {
    for options in each_shape::<Native>() {
        objects_are_in_one_hand::<Native>(NATIVE, options);
    }
}

#[test]
fn objects_are_in_one_hand_when_simulated() {
    let law = || {
        for options in each_shape::<Sim>() {
            objects_are_in_one_hand::<Sim>(FEW, options);
        }
    };
    worlds::simulate("object::one_hand", "host-2c", TORN, law).unwrap();
    let preempted = Faults { preempt_access: 20, ..TORN };
    worlds::simulate("object::one_hand_preempted", "host-2c", preempted, law).unwrap();
}

#[test]
fn objects_go_home_when_simulated() {
    let law = || {
        let effort = Effort { threads: 96, rounds: 40, cpus: 96 };
        objects_are_in_one_hand::<Sim>(effort, |builder| builder.magazine(4));
        objects_are_in_one_hand::<Sim>(effort, |builder| builder.magazine(2).idle_limit(500));
    };
    worlds::simulate_seeds("object::home", "kunpeng920-96c-4n", Faults::NONE, 3, law).unwrap();
}

/// A pointer is taken back twice: the law sees it.
fn an_object_is_given_back_twice<W: Testbed>() {
    let tally = Tally::<W>::new();
    let builder = ObjectCache::<Item<W>, (), W>::builder_in("twice");
    let cache = builder.build(move || Ok::<_, GetError>(Item::new(&tally))).unwrap();
    // Neither is dropped, as the object would be destroyed twice.
    let cache: &ObjectCache<_, _, W> = Box::leak(Box::new(cache));
    let get = || ManuallyDrop::new(cache.get().unwrap());
    let object = ManuallyDrop::into_inner(get()).into_raw();
    // SAFETY: none: this is the mistake. Its life has nothing that could be dropped twice.
    unsafe { drop((cache.from_raw(object), cache.from_raw(object))) };
    get().begin(1);
    get().begin(2);
}

#[test]
fn an_object_in_two_hands_is_found() {
    let law = an_object_is_given_back_twice::<Sim>;
    let found = worlds::simulate("object::twice", "host-2c", Faults::NONE, law).unwrap_err();
    assert!(found.to_string().contains("in two hands"), "{found}");
}

/// Which step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fails {
    Constructor,
    ConstructorPanics,
    Life,
    Charge,
    Check,
    CheckPanics,
    LifeEnds,
}

const EACH: [Fails; 7] = [
    Fails::Constructor,
    Fails::ConstructorPanics,
    Fails::Life,
    Fails::Charge,
    Fails::Check,
    Fails::CheckPanics,
    Fails::LifeEnds,
];

/// Ends in a panic, if it is told to.
struct Ending(bool);

impl Drop for Ending {
    fn drop(&mut self) {
        assert!(!self.0, "a life ends in a panic");
    }
}

/// Every third time a step fails. What it had is given back, and the cache goes on.
fn what_fails_leaks_nothing(fails: Fails, quarantine: usize) {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, AtomicU32};

    let tally = Tally::<Native>::new();
    let turn = Arc::new(AtomicU32::new(0));
    let theirs = (Arc::clone(&tally), Arc::clone(&turn));
    let third = |turn: &AtomicU32| turn.fetch_add(1, Ordering::Relaxed) % 3 == 2;
    let bad = Arc::new(AtomicBool::new(false));
    let is_bad = Arc::clone(&bad);
    let budget = Budget::new("lives", 2).unwrap();
    let cache = ObjectCache::<Item<Native>, Ending>::builder("items")
        .magazine(1)
        .idle_limit(4)
        .budget(budget.clone(), 1)
        .quarantine(quarantine)
        .check(move |_| match is_bad.swap(false, Ordering::Relaxed) {
            false => Ok(()),
            true if fails == Fails::CheckPanics => panic!("a check panics"),
            true => Err("it is not clean".into()),
        })
        .build(move || match fails {
            Fails::Constructor if third(&theirs.1) => Err("no memory"),
            Fails::ConstructorPanics if third(&theirs.1) => panic!("a constructor panics"),
            _ => Ok(Item::new(&theirs.0)),
        })
        .unwrap();
    let (mut failed, mut aside) = (0, 0);
    for _ in 0..30 {
        let other =
            (fails == Fails::Charge).then(|| (cache.get_with(|| Ending(false)), third(&turn)));
        let _third = other.as_ref().filter(|(_, third)| *third).map(|_| budget.charge(1).unwrap());
        let got = catch_unwind(AssertUnwindSafe(|| {
            cache.get_with(|| {
                assert!(fails != Fails::Life || !third(&turn), "a life panics");
                Ending(fails == Fails::LifeEnds && third(&turn))
            })
        }));
        match got {
            Ok(Ok(object)) => {
                let ends = object.life().0;
                let check = matches!(fails, Fails::Check | Fails::CheckPanics) && third(&turn);
                bad.store(check, Ordering::Relaxed);
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(object)));
                assert_eq!(dropped.is_err(), ends || check && fails == Fails::CheckPanics);
                aside += u64::from(ends || check);
                failed += usize::from(ends || check);
            }
            Ok(Err(GetError::OverBudget(refused))) => {
                assert_eq!((refused.used, refused.limit), (2, 2), "{refused}");
                failed += 1;
            }
            Ok(Err(GetError::Constructor(why))) => {
                assert_eq!(why.to_string(), "no memory");
                failed += 1;
            }
            Ok(Err(other)) => panic!("{other}"),
            Err(_) => failed += 1,
        }
        if _third.is_some() {
            budget.uncharge(1);
        }
        drop(other);
        if matches!(fails, Fails::Constructor | Fails::ConstructorPanics) {
            cache.shrink();
        }
        let stats = cache.stats();
        assert_eq!((stats.live, budget.used()), (0, 0), "{fails:?}: {stats}");
        assert_eq!(stats.failed, aside, "{fails:?}: {stats}");
        let kept = (aside as usize).min(quarantine);
        assert_eq!(stats.quarantined, kept, "{fails:?}: {stats}");
        let destroyed = u64::from(counted(&tally.destroyed));
        assert_eq!(stats.destroyed, destroyed, "{fails:?}: {stats}");
    }
    assert_eq!(failed, 10, "{fails:?}");
    let found = cache.quarantined();
    assert_eq!(found.len(), (aside as usize).min(quarantine), "{fails:?}");
    assert!(found.iter().all(|found| found.to_string().contains("items")), "{fails:?}");
    drop(found);
    assert_eq!(cache.stats().quarantined, 0);
    cache.close().unwrap();
    assert_eq!(counted(&tally.constructed), counted(&tally.destroyed), "{fails:?}");
}

#[test]
fn what_fails_at_any_step_leaks_nothing_and_doubles_nothing() {
    for quarantine in [0, 3, 100] {
        EACH.into_iter().for_each(|fails| what_fails_leaks_nothing(fails, quarantine));
    }
}

/// Where a destructor or a pressure callback panics, all else is done first.
#[test]
fn panics_of_destructors_and_callbacks_leave_nothing_behind() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicU32;

    const MANY: u32 = 40;
    let destroyed = Arc::new(AtomicU32::new(0));
    for by_shrink in [true, false] {
        let theirs = Arc::clone(&destroyed);
        let cache = ObjectCache::<u32>::builder("destructors")
            .magazine(3)
            .destructor(move |_| {
                let number = theirs.fetch_add(1, Ordering::Relaxed);
                assert!(number % 3 != 1, "a destructor panics");
            })
            .build(|| Ok::<_, GetError>(0))
            .unwrap();
        let objects: Vec<_> = (0..MANY).map(|_| cache.get().unwrap()).collect();
        drop(objects);
        if by_shrink {
            catch_unwind(AssertUnwindSafe(|| cache.shrink())).unwrap_err();
            let stats = cache.stats();
            assert_eq!((stats.live, stats.idle), (0, 0), "{stats}");
        } else {
            drop(cache);
        }
        assert_eq!(destroyed.swap(0, Ordering::Relaxed), MANY);
    }
    let cache = ObjectCache::<u32>::builder("pressed")
        .idle_limit(0)
        .on_pressure(|_| panic!("a callback panics"))
        .build(|| Ok::<_, GetError>(0))
        .unwrap();
    let object = cache.get().unwrap();
    catch_unwind(AssertUnwindSafe(|| drop(object))).unwrap_err();
    let stats = cache.stats();
    assert_eq!((stats.live, stats.idle, stats.destroyed), (0, 0, 1), "{stats}");
    cache.close().unwrap();
}

/// A thread does what it likes; a model says what must come of it.
fn a_cache_does_what_its_model_does(seed: u64, magazine: usize, limit: usize) {
    struct Kept {
        number: usize,
        stamp: u64,
    }

    let mut next = 0;
    let numbers = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let theirs = Arc::clone(&numbers);
    let cache = ObjectCache::<Kept, u64>::builder("model")
        .magazine(magazine)
        .idle_limit(limit)
        .build(move || {
            let number = theirs.fetch_add(1, Ordering::Relaxed);
            Ok::<_, GetError>(Kept { number, stamp: 0 })
        })
        .unwrap();
    // By number: what its last holder left in it.
    let mut stamps: Vec<u64> = Vec::new();
    let mut held = Vec::new();
    let mut numbers = Numbers(seed);
    let mut lives = 0;
    for _ in 0..4000 {
        next += 1;
        match numbers.below(9) {
            0..4 => {
                let mut object = match held.last() {
                    Some(other) if numbers.below(3) == 0 => cache.get_copy_of(other).unwrap(),
                    _ => cache.get_with(|| next).unwrap(),
                };
                lives += 1;
                stamps.resize(stamps.len().max(object.number + 1), 0);
                assert_eq!(object.stamp, stamps[object.number], "it stays as it was");
                object.stamp = next;
                stamps[object.number] = next;
                held.push(object);
            }
            4..8 if !held.is_empty() => drop(held.swap_remove(numbers.below(held.len()))),
            8 if numbers.below(20) == 0 => {
                let idle = cache.stats().idle;
                assert_eq!(cache.shrink(), idle);
                assert_eq!(cache.stats().idle, 0);
            }
            _ => {}
        }
        let stats = cache.stats();
        assert_eq!((stats.live, stats.gets), (held.len(), lives), "{stats}");
        assert_eq!(
            stats.constructed - stats.destroyed,
            (stats.live + stats.idle) as u64,
            "{stats}"
        );
        assert!(stats.idle <= limit, "{stats}: more than {limit} are idle");
    }
}

#[test]
fn a_cache_does_what_its_model_does_natively() {
    for seed in 0..6 {
        for (magazine, limit) in [(1, 0), (1, 5), (3, 20), (8, 1000), (64, usize::MAX)] {
            a_cache_does_what_its_model_does(seed, magazine, limit);
        }
    }
}

/// A tenant: a domain with a local.
struct Tenant<W: Testbed> {
    domain: Domain<Recent, W>,
    requests: DomainLocal<W::U64, Recent, W>,
}

/// Domains that are constructed once serve one tenant after the other. One that a tenant left in
/// use serves no other.
fn domains_stay_constructed<W: Testbed>(effort: Effort) {
    let domains = Domains::<Recent, W>::new_in(DomainsOptions::new()).unwrap();
    let cache = ObjectCache::<Tenant<W>, (), W>::builder_in("tenants")
        .quarantine(1)
        .check(|tenant| {
            tenant.domain.check_unused()?;
            if tenant.requests.sum() == 0 { Ok(()) } else { Err("not zero".into()) }
        })
        .build(move || {
            let domain = domains.domain(DomainOptions::new());
            let requests = domain.local(|| W::U64::new_in(0))?;
            Ok::<_, LocalError>(Tenant { domain, requests })
        });
    let cache = Arc::new(cache.unwrap());
    let threads = effort.crew::<W, _, _>(|_| {
        let cache = Arc::clone(&cache);
        move || {
            for round in 0..effort.rounds {
                let tenant = cache.get().unwrap();
                let lease = tenant.domain.lease().unwrap();
                tenant.requests.field(|word| word).add(u64::from(round));
                assert_eq!(tenant.requests.sum(), u64::from(round), "another tenant's");
                tenant.requests.field(|word| word).add(u64::from(round).wrapping_neg());
                drop(lease);
            }
        }
    });
    threads.into_iter().for_each(JoinHandle::join);
    let stats = cache.stats();
    assert!(stats.constructed <= u64::from(effort.threads), "{stats}");
    assert_eq!((stats.live, stats.quarantined), (0, 0), "{stats}");
    let tenant = cache.get().unwrap();
    let member = tenant.domain.join();
    drop(tenant);
    let aside = cache.quarantined();
    assert_eq!(aside.len(), 1);
    assert!(aside[0].why().to_string().contains("1 members"), "{}", aside[0]);
    drop((member, aside));
}

#[test]
fn domains_stay_constructed_natively() {
    domains_stay_constructed::<Native>(Effort { rounds: 2000, ..NATIVE });
}

#[test]
fn domains_stay_constructed_when_simulated() {
    let law = || domains_stay_constructed::<Sim>(FEW);
    worlds::simulate("object::domains", "host-2c", TORN, law).unwrap();
}

#[test]
fn pressure_is_told_and_may_be_relieved() {
    let budget = Budget::new("one", 1).unwrap();
    let relieved = budget.clone();
    let told = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let tells = Arc::clone(&told);
    let cache = ObjectCache::<u32>::builder("pressed")
        .budget(budget.clone(), 1)
        .idle_limit(0)
        .on_pressure(move |pressure| {
            tells.fetch_add(1, Ordering::Relaxed);
            match pressure {
                Pressure::Budget => relieved.uncharge(1),
                Pressure::IdleLimit => {}
                other => panic!("{other:?}"),
            }
            true
        })
        .build(|| Ok::<_, GetError>(0))
        .unwrap();
    budget.charge(1).unwrap();
    let object = cache.get().unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 1, "the budget was full");
    drop(object);
    assert_eq!(told.load(Ordering::Relaxed), 2, "no object may be idle");
    assert_eq!(cache.stats().destroyed, 1);
}
