//! Plain constructors make native types: none of these lines says in which world, and all compile.

use coreline::cid::{CidLayout, CidSpace, Recent};
use coreline::counter::{Buckets, CounterVec, Histogram, Max, PerCpuFold, Total};
use coreline::domain::{Domain, DomainOptions, Domains, DomainsOptions};
use coreline::limit::RateLimiter;
use coreline::lock::{
    BiasedRwLock, Condvar, Mutex, Osq, RawBiasedRwLock, RawMutex, RawReadMostly, RawRwLock,
    RawTicketLock, ReadMostly, RwLock, TicketLock,
};
use coreline::mask::{CpuMask, MaskLayout, Presence, PresenceOptions, Versioned};
use coreline::object::{Budget, ObjectCache};
use coreline::percpu::{
    LossyBuffer, PerCpu, PerCpuBag, PerCpuPool, PoolOptions, ResizableStack, Word64,
};
use coreline::rcu::{Collector, CollectorOptions, Rcu};
use coreline::{CounterSet, IndexBy, Lacking, PerCpuCounter, Workers};
use coreline_world::{Native, Place};

#[test]
fn locks() {
    let ticket = TicketLock::new(1);
    let mutex = Mutex::new(2);
    let rwlock = RwLock::new(3);
    let read_mostly = ReadMostly::new(4).unwrap();
    assert_eq!(*ticket.lock() + *mutex.lock() + *rwlock.read() + *read_mostly.read(), 10);

    let biased = BiasedRwLock::new(5);
    assert_eq!((*biased.read(), BiasedRwLock::<u8>::default().into_inner()), (5, 0));

    let raw = (RawTicketLock::new(), RawMutex::new(), RawRwLock::new());
    assert!(raw.0.try_lock() && raw.1.try_lock() && raw.2.try_write());
    assert!(RawBiasedRwLock::new().try_write());
    assert!(RawReadMostly::new().unwrap().try_write());
    let osq = Osq::new();
    drop(osq.lock());
    let condvar = Condvar::new();
    condvar.notify_all();
}

#[test]
fn counters_and_per_cpu_memory() {
    let counter = PerCpuCounter::new().unwrap();
    counter.add(1);
    let set = CounterSet::<2>::new().unwrap();
    set.add(1, 1);
    assert_eq!((counter.read_exact(), set.read_exact()), (1, [0, 1]));
    let (total, longest) = (Total::new().unwrap(), PerCpuFold::<Max<u64>>::new().unwrap());
    total.add(2);
    longest.record(3);
    assert_eq!((total.read_exact(), longest.read()), (2, 3));
    let sizes = Histogram::new(Buckets::bounds([8]).unwrap()).unwrap();
    sizes.record(9);
    assert_eq!(sizes.snapshot().sum(), 9);

    let words = PerCpu::<Word64>::new(|| Word64::new(0)).unwrap();
    let sums = PerCpu::<Word64>::words(IndexBy::Cpu).unwrap();
    words.add(1);
    sums.add(1);
    assert_eq!((words.sum(), sums.sum()), (1, 1));
    let pool = PerCpuPool::new(PoolOptions::new()).unwrap();
    let global = PerCpuPool::global(IndexBy::Cpu).unwrap();
    let of_pool = PerCpuCounter::from_pool(&pool);
    assert_eq!((of_pool.read_exact(), pool.live()), (0, 0));
    assert!(global.mapped() > 0);

    let (bag, log) = (PerCpuBag::new(1).unwrap(), LossyBuffer::new(1).unwrap());
    assert_eq!((bag.push(1), bag.pop(), log.push(2)), (Ok(()), Some(1), Ok(())));

    let stacks = PerCpu::new(|| ResizableStack::<u64, 3>::with_capacity(3)).unwrap();
    assert!(stacks.field(|stack| stack).pop().is_none());
}

#[test]
fn an_index_can_be_asked_for() {
    for by in [IndexBy::Cpu, IndexBy::KernelCid] {
        if PerCpuPool::global(by).is_err() {
            let lacking = PerCpuCounter::indexed_by(by).unwrap_err();
            assert!(lacking.to_string().contains("concurrency ID"), "{lacking}");
            continue;
        }
        let counter = PerCpuCounter::indexed_by(by).unwrap();
        let total = Total::indexed_by(by).unwrap();
        let set = CounterSet::<1>::indexed_by(by).unwrap();
        let vec = CounterVec::indexed_by(by, 1).unwrap();
        let longest = PerCpuFold::<Max<u64>>::indexed_by(by).unwrap();
        let histogram = Histogram::indexed_by(by, Buckets::log_linear(1).unwrap()).unwrap();
        histogram.record(1);
        assert_eq!(histogram.snapshot().count(), 1);
        counter.add(1);
        total.add(1);
        set.add(0, 1);
        vec.add(0, 1);
        longest.record(1);
        assert_eq!((counter.read_exact(), total.read_exact(), longest.read()), (1, 1, 1));
        assert_eq!((set.read_one(0), vec.read_exact()), (1, vec![1]));
        let words = PerCpu::indexed_by(by, || Word64::new(0)).unwrap();
        words.add(1);
        let read_mostly = ReadMostly::indexed_by(by, 4).unwrap();
        assert!(RawReadMostly::indexed_by(by).unwrap().try_read());
        assert_eq!((words.sum(), *read_mostly.read()), (1, 4));
    }
}

#[test]
fn masks_domains_and_the_rest() {
    let topology = Native::topology();
    let mask = CpuMask::new();
    let of_layout = CpuMask::with_layout(&MaskLayout::new(&topology));
    assert_eq!((mask.iter().count(), of_layout.iter().count()), (0, 0));
    let presences = [Presence::new(), Presence::with_options(PresenceOptions::new())];
    presences.iter().for_each(|presence| drop(presence.register()));
    let versioned = Versioned::new(7);
    let reader = versioned.reader();
    assert_eq!(*reader.enter().get(), 7);

    let collectors = [Collector::new(), Collector::with_options(CollectorOptions::new())];
    collectors.into_iter().for_each(|collector| drop(collector.unwrap().enter()));
    assert_eq!(*Rcu::new(7).unwrap().read(), 7);

    let layout = CidLayout::<Recent>::new(&topology).unwrap();
    let space = CidSpace::new(&layout);
    drop(space);
    let domain = Domain::new().unwrap();
    let domains = Domains::new(DomainsOptions::new()).unwrap();
    let of_layout = Domains::with_layout(layout, DomainsOptions::new()).unwrap();
    for domain in
        [domain, domains.domain(DomainOptions::new()), of_layout.domain(DomainOptions::new())]
    {
        assert!(domain.lease().is_ok());
    }

    let limiter = RateLimiter::new(1, std::time::Duration::from_secs(1), 2).unwrap();
    assert!(limiter.try_acquire().is_ok() && limiter.try_acquire_n(3).is_err());
    let budget = Budget::new("bytes", 10).unwrap();
    assert!(budget.charge(11).is_err());
    let cache = ObjectCache::<u64>::builder("numbers").build(|| Ok::<_, Lacking>(5)).unwrap();
    assert_eq!(*cache.get().unwrap(), 5);
    let workers = Workers::new().unwrap();
    drop(workers);
}
