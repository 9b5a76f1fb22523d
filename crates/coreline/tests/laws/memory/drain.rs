//! The laws of what is read and begun anew: each addition, and each record, is in what one call
//! returns, or in what is read at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coreline::counter::{Buckets, CounterVec, Fold, Histogram, Max, Min, PerCpuFold, Sum, Total};
use coreline::{CounterSet, IndexBy, PerCpuCounter};
use coreline_sim::{Faults, Sim};
use coreline_world::model::{Model, Plant};
use coreline_world::{JoinHandle, Native, Testbed, World};

use crate::worlds::{self, Effort, FEW, MANY, MODEL, NATIVE, TORN};

/// Something that numbers are put in, and taken out of.
trait Drained<W: World>: Send + Sync + 'static {
    fn make(by: IndexBy) -> Self;
    fn put(&self, number: u32);
    /// Checks and returns what there is, as the sum of what was put.
    fn drain(&self) -> i64;
    fn read(&self) -> i64;
}

impl<W: World> Drained<W> for PerCpuCounter<W> {
    fn make(by: IndexBy) -> Self {
        PerCpuCounter::new_in(by).unwrap()
    }

    fn put(&self, number: u32) {
        self.add(number.into());
    }

    fn drain(&self) -> i64 {
        PerCpuCounter::drain(self)
    }

    fn read(&self) -> i64 {
        let (exact, reading) = (self.read_exact(), PerCpuCounter::read(self));
        assert!(exact.abs_diff(reading.value) <= reading.error, "{reading:?} of {exact}");
        exact
    }
}

/// A batched counter.
struct Batched<W: World>(PerCpuCounter<W>);

impl<W: World> Drained<W> for Batched<W> {
    fn make(by: IndexBy) -> Self {
        Batched(PerCpuCounter::new_in(by).unwrap().batched(4))
    }

    fn put(&self, number: u32) {
        self.0.put(number);
    }

    fn drain(&self) -> i64 {
        self.0.drain()
    }

    fn read(&self) -> i64 {
        Drained::read(&self.0)
    }
}

/// Two counters to which the same is added.
impl<W: World> Drained<W> for CounterSet<2, W> {
    fn make(by: IndexBy) -> Self {
        CounterSet::new_in(by).unwrap()
    }

    fn put(&self, number: u32) {
        self.add(0, number.into());
        self.add(1, 2 * i64::from(number));
    }

    fn drain(&self) -> i64 {
        let [once, twice] = CounterSet::drain(self);
        assert!(twice >= 0, "took {twice} out of a counter that only grows");
        once
    }

    fn read(&self) -> i64 {
        self.read_exact()[0]
    }
}

/// A gauge that is set to the same value each time.
struct Gauge<W: World>(PerCpuCounter<W>);

impl<W: World> Gauge<W> {
    const VALUE: i64 = -1000;
}

impl<W: World> Drained<W> for Gauge<W> {
    fn make(by: IndexBy) -> Self {
        let gauge = Gauge(PerCpuCounter::new_in(by).unwrap());
        assert_eq!(gauge.0.set(Self::VALUE), 0);
        gauge
    }

    fn put(&self, number: u32) {
        self.0.put(number);
    }

    fn drain(&self) -> i64 {
        self.0.set(Self::VALUE) - Self::VALUE
    }

    fn read(&self) -> i64 {
        Drained::read(&self.0) - Self::VALUE
    }
}

/// As many as lie in two parts, of which two are added to.
impl<W: World> Drained<W> for CounterVec<W> {
    fn make(by: IndexBy) -> Self {
        CounterVec::new_in(by, 40).unwrap()
    }

    fn put(&self, number: u32) {
        self.add(31, number.into());
        self.add(39, 2 * i64::from(number));
    }

    fn drain(&self) -> i64 {
        let all = CounterVec::drain(self);
        let others: i64 = all[..31].iter().chain(&all[32..39]).sum();
        assert!((all.len(), others) == (40, 0) && all[39] >= 0, "{all:?}");
        all[31]
    }

    fn read(&self) -> i64 {
        let all = self.read_exact();
        assert_eq!([all[31], all[39]], [31, 39].map(|index| self.read_one(index)));
        all[31]
    }
}

/// Two buckets, in one of which all numbers are.
impl<W: World> Drained<W> for Histogram<W> {
    fn make(by: IndexBy) -> Self {
        Histogram::new_in(by, Buckets::bounds([0]).unwrap()).unwrap()
    }

    fn put(&self, number: u32) {
        self.record_n(1, number.into());
    }

    fn drain(&self) -> i64 {
        let taken = Histogram::drain(self);
        let buckets: Vec<_> = taken.buckets().collect();
        assert_eq!(buckets, [(0, 0), (u64::MAX, taken.count())]);
        taken.count().cast_signed()
    }

    fn read(&self) -> i64 {
        // A drain may have divided a record: its count and its value are taken one by one.
        self.snapshot().count().cast_signed()
    }
}

/// Whole numbers, whose sum is exact.
impl<W: World> Drained<W> for PerCpuFold<Sum<f64>, W> {
    fn make(by: IndexBy) -> Self {
        PerCpuFold::new_in(by).unwrap()
    }

    fn put(&self, number: u32) {
        self.record(number.into());
    }

    fn drain(&self) -> i64 {
        PerCpuFold::drain(self).unwrap() as i64
    }

    fn read(&self) -> i64 {
        PerCpuFold::read(self) as i64
    }
}

/// All threads put numbers in, and take what there is out at times.
fn nothing_is_lost<W: Testbed, D: Drained<W>>(effort: Effort, by: IndexBy) {
    let numbers = Arc::new(D::make(by));
    let taken = Arc::new(AtomicU64::new(0));
    let drain = |numbers: &D, taken: &AtomicU64| {
        let sum = numbers.drain();
        let sum = u64::try_from(sum).expect("took less than nothing out of what only grows");
        taken.fetch_add(sum, Ordering::Relaxed);
    };
    let threads = effort.crew::<W, _, _>(|number| {
        let (numbers, taken) = (Arc::clone(&numbers), Arc::clone(&taken));
        move || {
            for round in 0..effort.rounds {
                numbers.put(1 + round % 5);
                if (number + round) % 8 == 0 {
                    drain(&numbers, &taken);
                }
            }
        }
    });
    drain(&numbers, &taken);
    threads.into_iter().for_each(JoinHandle::join);
    let put: u64 = (0..effort.rounds).map(|round| u64::from(1 + round % 5)).sum();
    let put = put * u64::from(effort.threads);
    let left = put - taken.load(Ordering::Relaxed);
    assert_eq!(numbers.read().cast_unsigned(), left, "something was lost or doubled");
    drain(&numbers, &taken);
    assert_eq!((taken.load(Ordering::Relaxed), numbers.read()), (put, 0), "in all");
}

#[test]
fn drains_lose_nothing_natively() {
    for by in [IndexBy::Cpu, IndexBy::KernelCid] {
        if by == IndexBy::KernelCid && PerCpuCounter::<Native>::new_in(by).is_err() {
            continue;
        }
        nothing_is_lost::<Native, PerCpuCounter>(NATIVE, by);
        nothing_is_lost::<Native, Batched<Native>>(NATIVE, by);
        nothing_is_lost::<Native, CounterSet<2>>(NATIVE, by);
        nothing_is_lost::<Native, CounterVec>(NATIVE, by);
        nothing_is_lost::<Native, Histogram>(NATIVE, by);
        nothing_is_lost::<Native, Gauge<Native>>(NATIVE, by);
        nothing_is_lost::<Native, PerCpuFold<Sum<f64>>>(Effort { rounds: 2_000, ..NATIVE }, by);
    }
}

#[test]
fn drains_lose_nothing_when_simulated() {
    let law = || {
        nothing_is_lost::<Sim, PerCpuCounter<Sim>>(MANY, IndexBy::Cpu);
        nothing_is_lost::<Sim, PerCpuFold<Sum<f64>, Sim>>(MANY, IndexBy::Cpu);
    };
    worlds::simulate_seeds("drain::many", "epyc-9654-2s", Faults::default(), 3, law).unwrap();
    let law = || {
        for by in [IndexBy::Cpu, IndexBy::KernelCid] {
            nothing_is_lost::<Sim, PerCpuCounter<Sim>>(FEW, by);
            nothing_is_lost::<Sim, Batched<Sim>>(FEW, by);
            nothing_is_lost::<Sim, CounterSet<2, Sim>>(FEW, by);
            nothing_is_lost::<Sim, CounterVec<Sim>>(FEW, by);
            nothing_is_lost::<Sim, Histogram<Sim>>(FEW, by);
            nothing_is_lost::<Sim, Gauge<Sim>>(FEW, by);
            nothing_is_lost::<Sim, PerCpuFold<Sum<f64>, Sim>>(FEW, by);
        }
    };
    worlds::simulate("drain", "host-2c", TORN, law).unwrap();
}

#[test]
fn drains_lose_nothing_in_every_interleaving() {
    worlds::few(|| nothing_is_lost::<Model, PerCpuCounter<Model>>(MODEL, IndexBy::Cpu));
    let one = Effort { threads: 1, ..MODEL };
    worlds::few(move || nothing_is_lost::<Model, Gauge<Model>>(one, IndexBy::Cpu));
    worlds::few(move || nothing_is_lost::<Model, Batched<Model>>(one, IndexBy::Cpu));
    worlds::few(move || nothing_is_lost::<Model, PerCpuFold<Sum<f64>, Model>>(one, IndexBy::Cpu));
}

/// A drain that does not see what the one before it saw returns less than nothing.
#[test]
fn a_drain_by_a_relaxed_exchange_is_caught() {
    let one = Effort { threads: 1, ..MODEL };
    let law = move || nothing_is_lost::<Model, PerCpuCounter<Model>>(one, IndexBy::Cpu);
    let message = worlds::panic_of(|| worlds::few_planted(Plant::RELAXED_RMWS, law));
    assert!(message.contains("less than nothing"), "{message}");
}

/// The highest and the lowest of what is recorded are in one of the drains, or at the end.
fn extremes_are_kept<W: Testbed>(effort: Effort) {
    type Extremes<W> = (PerCpuFold<Max<i64>, W>, PerCpuFold<Min<u64>, W>);
    let make = || (PerCpuFold::new_in(IndexBy::Cpu), PerCpuFold::new_in(IndexBy::Cpu));
    let (Ok(max), Ok(min)) = make() else { panic!("CPUs have numbers") };
    let extremes: Arc<Extremes<W>> = Arc::new((max, min));
    let threads = effort.crew::<W, _, _>(|number| {
        let extremes = Arc::clone(&extremes);
        move || {
            for round in 0..effort.rounds {
                let value = u64::from(effort.threads * round + number);
                extremes.0.record(-value.cast_signed());
                extremes.0.record(value.cast_signed());
                extremes.1.record(5 + value);
            }
        }
    });
    let drain = || (extremes.0.drain().unwrap(), extremes.1.drain().unwrap());
    let early = drain();
    let most = i64::from(effort.threads * effort.rounds) - 1;
    assert!(early.0 <= most && early.1 >= 5, "{early:?}");
    threads.into_iter().for_each(JoinHandle::join);
    let read = (extremes.0.read(), extremes.1.read());
    let late = drain();
    assert_eq!(read, late, "no thread records");
    assert_eq!((early.0.max(late.0), early.1.min(late.1)), (most, 5));
    assert_eq!(drain(), (i64::MIN, u64::MAX), "drained");
}

#[test]
fn extremes_are_kept_in_every_world() {
    extremes_are_kept::<Native>(NATIVE);
    let law = || extremes_are_kept::<Sim>(FEW);
    worlds::simulate("drain::extremes", "host-2c", TORN, law).unwrap();
    worlds::few(|| extremes_are_kept::<Model>(Effort { threads: 1, ..MODEL }));
}

static COUNTER: PerCpuCounter = PerCpuCounter::const_new();
static SET: CounterSet<512> = CounterSet::const_new();
static TOTAL: Total = Total::const_new();
static LOWEST: PerCpuFold<Min<f64>> = PerCpuFold::const_new();

/// Threads use statics that no thread has used, all at once.
#[test]
fn statics_are_ready_natively() {
    assert_eq!((COUNTER.read_exact(), COUNTER.drain(), COUNTER.is_spread()), (0, 0, false));
    assert_eq!((TOTAL.read_exact(), LOWEST.read()), (0, f64::INFINITY));
    assert_eq!(LOWEST.drain(), Ok(f64::INFINITY));
    assert_eq!(SET.check_zero(), Ok(()));
    std::thread::scope(|scope| {
        for number in 0..4_u32 {
            scope.spawn(move || {
                for round in 0..10_000 {
                    COUNTER.add(-1);
                    SET.add(511, 2);
                    SET.add(round % 512, 1);
                    TOTAL.add(3);
                    LOWEST.record(f64::from(number) - 0.5);
                    LOWEST.record(f64::NAN);
                }
            });
        }
    });
    assert_eq!((COUNTER.drain(), COUNTER.read_exact()), (-40_000, 0));
    assert_eq!((TOTAL.drain(), TOTAL.read_exact()), (120_000, 0));
    assert_eq!(LOWEST.drain(), Ok(-0.5));
    let sums = SET.drain();
    assert_eq!((sums[511], sums.iter().sum::<i64>()), (80_000 + 76, 120_000));
}

/// Many that are made in a constant, dropped at each stage of their lives, and batched.
#[test]
fn what_a_constant_made_is_dropped_natively() {
    for additions in [0, 1, 300] {
        let (counter, set) = (PerCpuCounter::default(), CounterSet::<3>::default());
        let batched = PerCpuCounter::const_new().batched(8);
        (0..additions).for_each(|_| {
            counter.add(1);
            set.add(2, 1);
            batched.add(1);
        });
        assert_eq!((counter.read_exact(), set.read_exact()), (additions, [0, 0, additions]));
        assert_eq!(batched.read_exact(), additions);
    }
    assert_eq!((<Max<u64>>::IDENTITY, <Sum<f64>>::IDENTITY), (0, 0.0));
}
