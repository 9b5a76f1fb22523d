//! What is made, and what is done with it: by functions that allocate nothing of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coreline::counter::{Buckets, CounterVec, Histogram};
use coreline::domain::{Domain, DomainOptions, Domains, DomainsOptions};
use coreline::limit::RateLimiter;
use coreline::lock::BiasedRwLock;
use coreline::object::{Budget, GetError, Object, ObjectCache};
use coreline::percpu::{LossyBuffer, PerCpuBag, PerCpuPool, PoolOptions, Word64};
use coreline::{CounterSet, IndexBy, PerCpu, PerCpuCounter};

/// Where all memory comes from that is mapped, but for that of caches and budgets.
pub(crate) struct Sources {
    pool: PerCpuPool,
    domains: Domains,
    global: PerCpuPool,
    /// How many values the global pool had before.
    before: usize,
}

impl Sources {
    pub(crate) fn new() -> Self {
        let global = PerCpuPool::global(IndexBy::Cpu).unwrap();
        Sources {
            pool: PerCpuPool::new(PoolOptions::new()).unwrap(),
            domains: Domains::new(DomainsOptions::new()).unwrap(),
            before: global.live(),
            global,
        }
    }

    /// No pool has a value of what was made here and dropped.
    pub(crate) fn check(&self) {
        let live = [&self.pool, self.domains.pool(), &self.global].map(PerCpuPool::live);
        assert_eq!(live, [0, 0, self.before], "values that were not given back");
    }
}

/// A kind of object.
pub(crate) trait Kind: Made + Sized {
    const NAME: &'static str;

    /// Makes one, if there is memory.
    fn make(sources: &Sources) -> Option<Self>;
}

pub(crate) trait Made {
    /// Does all that there is to do, of which each part may be refused. Nothing is lost.
    fn work(&self);

    /// The same, and nothing is refused.
    fn works(&self) {
        self.work();
    }
}

/// Enough additions for slots, also after some tries without memory.
const ADDITIONS: u64 = 1 << 10;

pub(crate) struct Counter(PerCpuCounter);

impl Kind for Counter {
    const NAME: &'static str = "counter";

    fn make(sources: &Sources) -> Option<Self> {
        Some(Counter(PerCpuCounter::from_pool(&sources.pool)))
    }
}

impl Made for Counter {
    fn work(&self) {
        (0..ADDITIONS).for_each(|_| self.0.add(1));
        assert_eq!(self.0.drain(), ADDITIONS as i64);
    }

    fn works(&self) {
        self.work();
        assert!(self.0.is_spread());
    }
}

pub(crate) struct Set(CounterSet<5>);

impl Kind for Set {
    const NAME: &'static str = "set of counters";

    fn make(sources: &Sources) -> Option<Self> {
        Some(Set(CounterSet::from_pool(&sources.pool)))
    }
}

impl Made for Set {
    fn work(&self) {
        (0..ADDITIONS).for_each(|_| self.0.add(3, 1));
        assert_eq!(self.0.drain(), [0, 0, 0, ADDITIONS as i64, 0]);
    }

    fn works(&self) {
        self.work();
        assert!(self.0.is_spread());
    }
}

/// Two groups of counters.
pub(crate) struct Vector(CounterVec);

impl Kind for Vector {
    const NAME: &'static str = "vector of counters";

    fn make(sources: &Sources) -> Option<Self> {
        Some(Vector(CounterVec::from_pool(&sources.pool, 40)))
    }
}

impl Made for Vector {
    fn work(&self) {
        let before = [3, 39].map(|index| self.0.read_one(index));
        (0..ADDITIONS).for_each(|_| [3, 39].into_iter().for_each(|index| self.0.add(index, 1)));
        let after = [3, 39].map(|index| self.0.read_one(index));
        assert_eq!(after, before.map(|before| before + ADDITIONS as i64));
    }

    fn works(&self) {
        self.work();
        assert!(self.0.is_spread(3) && self.0.is_spread(39));
    }
}

/// A histogram, and how much was recorded.
pub(crate) struct Latencies(Histogram, AtomicU64);

impl Kind for Latencies {
    const NAME: &'static str = "histogram";

    fn make(sources: &Sources) -> Option<Self> {
        let histogram = Histogram::from_pool(&sources.pool, Buckets::log_linear(2).unwrap());
        Some(Latencies(histogram, AtomicU64::new(0)))
    }
}

impl Made for Latencies {
    fn work(&self) {
        (0..ADDITIONS).for_each(|_| self.0.record(7));
        // Relaxed: one thread.
        self.1.fetch_add(ADDITIONS, Ordering::Relaxed);
    }

    fn works(&self) {
        self.work();
        // Relaxed: one thread.
        assert_eq!(self.0.snapshot().count(), self.1.load(Ordering::Relaxed), "records were lost");
        assert!(self.0.is_spread(7));
    }
}

pub(crate) struct Words(PerCpu<Word64>);

impl Kind for Words {
    const NAME: &'static str = "words";

    fn make(sources: &Sources) -> Option<Self> {
        let first = std::hint::black_box(0);
        Some(Words(sources.pool.per_cpu(move || Word64::new(first)).ok()?))
    }
}

impl Made for Words {
    fn work(&self) {
        let before = self.0.sum();
        self.0.add(1);
        assert_eq!(self.0.sum(), before + 1);
    }
}

/// A domain, with locals and leases.
pub(crate) struct Tenant(Domain);

impl Kind for Tenant {
    const NAME: &'static str = "domain";

    fn make(sources: &Sources) -> Option<Self> {
        Some(Tenant(sources.domains.domain(DomainOptions::new())))
    }
}

impl Tenant {
    /// Returns whether it has got all that it asked for.
    fn serve(&self) -> bool {
        let first = std::hint::black_box(0);
        let Ok(mut local) = self.0.local(move || Word64::new(first)) else { return false };
        (0..3).for_each(|_| local.add(1));
        assert_eq!(local.sum(), 3);
        let leased = self.0.lease().is_ok_and(|lease| {
            lease.get(&local).unwrap().fetch_add(4, Ordering::Relaxed);
            true
        });
        let values = local.iter_mut().map(|word| *word.get_mut()).sum::<u64>();
        assert_eq!(values, if leased { 7 } else { 3 });
        leased
    }
}

impl Made for Tenant {
    fn work(&self) {
        self.serve();
        assert_eq!(self.0.usage().leased, 0);
    }

    fn works(&self) {
        assert!(self.serve() && self.0.check_unused().is_ok());
    }
}

/// Objects that count themselves would be the same as the cache's own numbers: it leaks none.
pub(crate) struct Cache(ObjectCache<[u64; 8]>);

/// More than the stack of a CPU holds.
const OBJECTS: usize = 200;

impl Kind for Cache {
    const NAME: &'static str = "cache";

    fn make(_: &Sources) -> Option<Self> {
        let builder = ObjectCache::builder("objects").budget(Budget::new("all", 1 << 20).ok()?, 1);
        Some(Cache(builder.build(|| Ok::<_, GetError>([7; 8])).ok()?))
    }
}

impl Cache {
    /// Returns how many it has got, before each comes to its end.
    fn cycle<'c>(&'c self, end: fn(Object<'c, [u64; 8]>)) -> usize {
        let objects: [_; OBJECTS] = std::array::from_fn(|_| self.0.get().ok());
        let got = objects.iter().flatten().count();
        assert!(objects.iter().flatten().all(|object| **object == [7; 8]));
        objects.into_iter().flatten().for_each(end);
        got
    }
}

impl Made for Cache {
    fn work(&self) {
        self.cycle(drop);
        self.0.shrink();
        self.cycle(Object::discard);
        self.cycle(drop);
        let stats = self.0.stats();
        assert_eq!(stats.live, 0);
        assert_eq!(stats.constructed - stats.destroyed, stats.idle as u64);
    }

    fn works(&self) {
        assert_eq!((self.cycle(Object::discard), self.cycle(drop)), (OBJECTS, OBJECTS));
        let idle = self.0.stats().idle;
        assert!(idle >= OBJECTS);
        assert_eq!((self.0.shrink(), self.0.stats().idle), (idle, 0));
        self.cycle(drop);
    }
}

/// A budget below another.
pub(crate) struct Account([Budget; 2]);

impl Kind for Account {
    const NAME: &'static str = "budget";

    fn make(_: &Sources) -> Option<Self> {
        let all = Budget::new("all", 10_000).ok()?;
        let own = all.child("own", 1_000).ok()?;
        Some(Account([all, own]))
    }
}

impl Made for Account {
    fn work(&self) {
        for amount in [1, 1_000] {
            assert!(self.0[1].charge(amount).is_ok());
            self.0[1].uncharge(amount);
        }
        assert_eq!(self.0[1].used(), 0);
    }

    fn works(&self) {
        self.work();
        assert!(self.0[1].charge(1_001).is_err());
    }
}

pub(crate) struct Limiter(RateLimiter);

impl Kind for Limiter {
    const NAME: &'static str = "rate limiter";

    fn make(_: &Sources) -> Option<Self> {
        RateLimiter::new(1_000_000_000, Duration::from_secs(1), 1 << 40).ok().map(Limiter)
    }
}

impl Made for Limiter {
    fn work(&self) {
        (0..ADDITIONS).for_each(|_| assert!(self.0.try_acquire().is_ok()));
    }
}

pub(crate) struct Bag(PerCpuBag<u64>);

impl Kind for Bag {
    const NAME: &'static str = "bag";

    fn make(_: &Sources) -> Option<Self> {
        PerCpuBag::new(1_000).ok().map(Bag)
    }
}

impl Made for Bag {
    fn work(&self) {
        let mut sum = 0;
        (0..100).for_each(|value| assert_eq!(self.0.push(value), Ok(())));
        assert_eq!(self.0.drain(|value| sum += value), 100);
        assert_eq!((sum, self.0.pop()), (99 * 50, None));
    }
}

pub(crate) struct Biased(BiasedRwLock<u64>);

impl Kind for Biased {
    const NAME: &'static str = "biased lock";

    fn make(_: &Sources) -> Option<Self> {
        Some(Biased(BiasedRwLock::new(0)))
    }
}

impl Made for Biased {
    /// Reads until slots pay, twice, and a write.
    fn work(&self) {
        let before = *self.0.read();
        let outer = self.0.read();
        (0..600).for_each(|_| assert_eq!(*self.0.read(), before));
        drop(outer);
        *self.0.write() += 1;
        assert_eq!(*self.0.read(), before + 1);
    }
}

pub(crate) struct Buffer(LossyBuffer<u64>);

impl Kind for Buffer {
    const NAME: &'static str = "lossy buffer";

    fn make(_: &Sources) -> Option<Self> {
        LossyBuffer::new(128).ok().map(Buffer)
    }
}

impl Made for Buffer {
    fn work(&self) {
        let mut sum = 0;
        (0..100).for_each(|value| assert_eq!(self.0.push(value), Ok(())));
        assert_eq!(self.0.drain(|value| sum += value), Ok(100));
        assert_eq!(sum, 99 * 50);
    }
}
