//! The series on real threads and on simulated machines.

use std::sync::Arc;

use coreline::CpuId;
use coreline::world::{Integer, JoinHandle, Native, Ordering, Placement, Testbed, Word, Words};
use coreline_sim::{Machine, Sim};

use super::{CounterSeries, GaugeSeries, HistogramSeries, add};

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

/// Where a thread runs, by its number.
type Places = fn(u32) -> Placement;

/// Runs `body` on so many threads, each on a CPU of its own if they are simulated.
fn on_all<W: Testbed, R: Send + 'static>(
    threads: u32,
    places: Places,
    body: impl Fn(u32) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let body = Arc::new(body);
    let spawn = |number| {
        let body = Arc::clone(&body);
        W::spawn(places(number), move || body(number)).expect("there is room for threads")
    };
    let threads: Vec<_> = (0..threads).map(spawn).collect();
    threads.into_iter().map(JoinHandle::join).collect()
}

fn on_its_cpu(number: u32) -> Placement {
    Placement::On(CpuId::new(number))
}

fn nothing_is_lost<W: Testbed>(places: Places) {
    let counter = Arc::new(CounterSeries::<W>::new());
    let gauge = Arc::new(GaugeSeries::<W>::new());
    let nans = Arc::new(<W as Words>::U64::new_in(0));
    let histogram = Arc::new(HistogramSeries::<W>::new(Arc::new([1.0, 2.0]), nans));
    let all = (Arc::clone(&counter), Arc::clone(&gauge), Arc::clone(&histogram));
    on_all::<W, _>(2, places, move |_| {
        for n in 0..3_000 {
            all.0.add(2);
            all.1.add(1.0);
            all.2.record(f64::from(n % 3 + 1), 1);
        }
    });
    assert!(counter.spread.get().is_some(), "it is hot");
    assert_eq!((counter.read(), gauge.read()), (12_000, 6_000.0));
    let counts = histogram.read();
    assert_eq!((counts.buckets, counts.sum), (vec![2_000; 3], 12_000.0));
}

#[test]
fn additions_are_all_there_in_two_worlds() {
    nothing_is_lost::<Native>(|_| Placement::Anywhere);
    let machine = Machine::preset("host-2c").unwrap();
    machine.run(|| nothing_is_lost::<Sim>(on_its_cpu)).unwrap();
}

/// One thread adds, one sets, and each value that is set is higher than all that was added: so no
/// reader sees a value fall.
fn a_rising_gauge_never_falls<W: Testbed>(places: Places) {
    const ADDITIONS: u32 = 500;
    let gauge = Arc::new(GaugeSeries::<W>::new());
    // Hot from the start.
    (0..5_000).for_each(|_| gauge.add(1.0));
    let shared = Arc::clone(&gauge);
    let body = move |number| match number {
        0 => (0..ADDITIONS).for_each(|_| shared.add(1.0)),
        1 => (1..20).for_each(|step| shared.set(10_000.0 * f64::from(step))),
        _ => {
            let mut before = 0.0;
            for _ in 0..100 {
                let now = shared.read();
                assert!(before <= now, "{before} to {now}");
                before = now;
            }
        }
    };
    on_all::<W, _>(3, places, body);
    let end = gauge.read();
    assert!((190_000.0..=190_000.0 + f64::from(ADDITIONS)).contains(&end), "{end}");
    gauge.set(7.0);
    gauge.add(1.0);
    assert_eq!(gauge.read(), 8.0);
}

#[test]
fn a_rising_gauge_never_falls_in_two_worlds() {
    a_rising_gauge_never_falls::<Native>(|_| Placement::Anywhere);
    let two: Places = |number| Placement::On(CpuId::new(number % 2));
    for seed in 0..4 {
        let machine = Machine::preset("host-2c").unwrap().seed(seed);
        machine.run(move || a_rising_gauge_never_falls::<Sim>(two)).unwrap();
    }
}

/// Nanoseconds that an addition takes on average while so many threads add.
fn ns<W: Testbed>(threads: u32, add: impl Fn() + Send + Sync + 'static) -> f64 {
    const EACH: u32 = 20;
    let ready = <W as Words>::U32::new_in(0);
    let body = move |_| {
        // So that each CPU has its slot before time is taken.
        (0..40).for_each(|_| add());
        // Relaxed: nothing is handed on.
        ready.fetch_add(1, Ordering::Relaxed);
        ready.wait_until(Ordering::Relaxed, |ready| ready == threads);
        let start = W::now();
        (0..EACH).for_each(|_| add());
        (W::now() - start).as_nanos() as f64 / f64::from(EACH)
    };
    on_all::<W, _>(threads, on_its_cpu, body).iter().sum::<f64>() / f64::from(threads)
}

#[test]
fn a_hot_counter_scales_to_384_cpus() {
    let run = |ours: bool| {
        let machine = Machine::preset("epyc-9654-2s").unwrap().seed(1);
        let run = machine.run(move || {
            if ours {
                let counter = CounterSeries::<Sim>::new();
                ns::<Sim>(384, move || counter.add(1))
            } else {
                let word = <Sim as Words>::U64::new_in(0);
                ns::<Sim>(384, move || add::<Sim>(&word, 1))
            }
        });
        run.unwrap().value
    };
    let (shared, ours) = (run(false), run(true));
    assert!(ours * 100.0 < shared, "{ours:.1} ns, and {shared:.1} ns on one word");
}
