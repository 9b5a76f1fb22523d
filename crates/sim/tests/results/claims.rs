//! Claims over bands: that they hold where they do, and say where they do not.

use std::sync::atomic::{AtomicUsize, Ordering};

use coreline_sim::claim::{Band, Figures};
use coreline_sim::{Arbitration, Failure, FailureKind, Machine, Overlap, Replay, Spec, thread};

fn spec() -> Spec {
    Spec::preset("epyc-9654-2s").unwrap()
}

/// Nanoseconds to fetch a line that CPU 0 wrote from another CPU.
fn fetch(machine: Machine, cpu: u32) -> Result<f64, Box<Failure>> {
    use coreline_sim::atomic::{AtomicU64, Ordering};
    let run = machine.run(move || {
        let word = AtomicU64::new(0);
        word.store(1, Ordering::Relaxed);
        thread::scope(|scope| {
            let timed = || {
                let start = coreline_sim::time::Instant::now();
                let fetched = word.load(Ordering::Relaxed);
                (fetched, start.elapsed().as_nanos() as f64)
            };
            let builder = thread::Builder::new().on(coreline_topology::CpuId::new(cpu));
            builder.spawn_scoped(scope, timed).unwrap().join().unwrap().1
        })
    })?;
    Ok(run.value)
}

#[test]
fn the_whole_band_has_every_share_seed_and_uncertain_cost_under_each_arbitration() {
    let (quick, whole) = (Band::quick(&spec(), 7), Band::whole(&spec(), 7));
    let shares: Vec<_> = quick.points().iter().map(|point| point.request_percent).collect();
    assert_eq!(shares, [30, 20, 50], "the default first");
    let uncertain = spec().sources().filter(|(_, cost)| cost.uncertain).count();
    assert_eq!(whole.points().len(), 2 * (3 * 16 + 2 * uncertain));
    assert_eq!(whole.points()[0], quick.points()[0]);
    assert!(quick.points().iter().all(|point| point.arbitration == Arbitration::Fifo));
    for arbitration in Arbitration::ALL {
        let (few, all) = (quick.clone().under(arbitration), whole.clone().under(arbitration));
        assert_eq!((few.points().len(), all.points().len()), (3, 3 * 16 + 2 * uncertain));
        let is_in = |point: &&coreline_sim::claim::Point| point.arbitration == arbitration;
        assert!(whole.points().iter().filter(is_in).eq(all.points()), "{arbitration}");
    }
    let overlapping = whole.clone().overlapping(Overlap::Independent);
    for (serial, point) in whole.points().iter().zip(overlapping.points()) {
        assert_eq!((serial.overlap, point.overlap), (Overlap::Serial, Overlap::Independent));
        let line = overlapping.machine(point, "program").replay_line();
        assert_eq!((line.overlap, line.seed), (Overlap::Independent, serial.seed));
    }
    for point in whole.points() {
        assert_eq!(whole.points().iter().filter(|other| *other == point).count(), 1, "{point:?}");
    }
}

#[test]
fn figures_are_in_the_order_of_the_points_and_the_same_again() {
    let band = Band::whole(&spec(), 3);
    let runs = AtomicUsize::new(0);
    let progress = || {
        runs.fetch_add(1, Ordering::Relaxed);
    };
    let run = |cpu: &u32, machine: Machine| {
        let replay = machine.replay_line();
        fetch(machine, *cpu).map(|ns| (ns, replay))
    };
    let both = band.measure_all(&[1, 96], run, progress).unwrap();
    assert_eq!(runs.into_inner(), 2 * band.points().len());
    let [near, far] = &both[..] else { panic!("two programs") };
    assert_eq!((near.name(), far.name()), ("1", "96"));
    let alone = band.measure("alone", |machine| fetch(machine, 96)).unwrap();
    assert!(far.values().eq(alone.values()) && far.at_least(1.1, near).is_ok());
    let moved = |percent| {
        let of = |point: &coreline_sim::claim::Point| {
            point.cost == Some(("other_socket".to_owned(), percent))
        };
        let index = band.points().iter().position(of).unwrap();
        far.values().nth(index).unwrap()
    };
    let (less, more) = (moved(70), moved(130));
    assert!((1.4..2.1).contains(&(more / less)), "moved by 30 % each way: {less} {more}");
    assert_eq!(far.value(), far.values().next().unwrap());
}

#[test]
fn of_several_failures_the_first_in_order_is_told_and_nothing_new_begins() {
    let band = Band::whole(&spec(), 1);
    let runs = AtomicUsize::new(0);
    let count = || _ = runs.fetch_add(1, Ordering::Relaxed);
    let run = |program: &&str, machine: Machine| match (*program, machine.replay_line()) {
        ("good", line) => Ok((1.0, line)),
        (_, line) => Err(Box::new(line)),
    };
    let first = band.measure_all(&["good", "bad", "worse"], run, count).unwrap_err();
    assert_eq!(*first, band.machine(&band.points()[0], "bad").replay_line());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let ran = runs.into_inner();
    assert!((1..=workers).contains(&(ran - band.points().len())), "{ran} runs");
}

#[test]
fn a_claim_that_holds_says_nothing_and_one_that_does_not_shows_the_worst_point() {
    let band = Band::whole(&spec(), 1);
    let near = band.measure("near", |machine| fetch(machine, 1)).unwrap();
    let far = band.measure("far", |machine| fetch(machine, 96)).unwrap();
    far.at_least(2.0, &near).unwrap();
    near.at_most(0.5, &far).unwrap();
    far.within(100.0..=600.0).unwrap();

    let broken = far.at_least(6.0, &near).unwrap_err();
    let (low, high) = far.ratios(&near);
    assert_eq!(broken.range, (low, high));
    assert!(low < 6.0 && broken.bad > 0 && broken.bad <= broken.points, "{broken}");
    // The worst point is where the far line got nearer, or the near one farther.
    let text = broken.to_string();
    assert!(text.contains("far is at least 6 times near"), "{text}");
    assert!(
        text.contains("scaled=other_socket:70") || text.contains("scaled=same_cache:130"),
        "{text}"
    );

    let replay = &broken.replays[0];
    let point =
        band.points().iter().find(|point| band.machine(point, "far").replay_line() == *replay);
    let again = fetch(band.machine(point.expect("a point of the band"), "far"), 96).unwrap();
    let worst = band.points().iter().position(|other| Some(other) == point).unwrap();
    assert_eq!(Some(again), far.values().nth(worst), "the line brings the number back");

    let broken = far.within(0.0..=1.0).unwrap_err();
    assert_eq!((broken.bad, broken.replays.len()), (broken.points, 1));
}

/// The additions of a CPU of the other socket, in percent of those of two neighbours, while all
/// three add to one word.
fn far_share(machine: Machine) -> Result<f64, Box<Failure>> {
    use coreline_sim::atomic::{AtomicU64, Ordering};
    let run = machine.run(|| {
        let [word, over] = [const { AtomicU64::new(0) }; 2];
        let add = || {
            over.fetch_add(1, Ordering::Relaxed);
            while over.load(Ordering::Relaxed) < 3 {
                thread::yield_now();
            }
            (0..).take_while(|_| word.fetch_add(1, Ordering::Relaxed) < 300).count() as f64
        };
        let counts = thread::scope(|scope| {
            let start = |cpu| {
                let builder = thread::Builder::new().on(coreline_topology::CpuId::new(cpu));
                builder.spawn_scoped(scope, add).unwrap()
            };
            [0, 1, 96].map(start).map(|thread| thread.join().unwrap())
        });
        200.0 * counts[2] / (counts[0] + counts[1])
    })?;
    Ok(run.value)
}

/// The arbitration decides this figure by factors: a band without it would claim too much.
#[test]
fn a_claim_that_holds_under_one_arbitration_only_has_to_say_so() {
    let whole = Band::whole(&spec(), 1);
    let first_come = whole.clone().under(Arbitration::Fifo).measure("far", far_share).unwrap();
    first_come.within(40.0..=300.0).unwrap();
    let broken = whole.measure("far", far_share).unwrap().within(40.0..=300.0).unwrap_err();
    assert!((broken.points / 3..=broken.points / 2).contains(&broken.bad), "{broken}");
    assert!(broken.replays[0].to_string().contains(" arbitration=nearest "), "{broken}");
}

#[test]
fn what_is_no_number_breaks_every_claim() {
    let band = Band::quick(&spec(), 1);
    let none = band.measure("none", |_| Ok(f64::NAN)).unwrap();
    let one = band.measure("one", |_| Ok(1.0)).unwrap();
    assert_eq!(none.at_least(1.0, &one).unwrap_err().bad, 3);
    assert_eq!(one.at_most(1.0, &none).unwrap_err().bad, 3);
    assert_eq!(none.within(0.0..=f64::INFINITY).unwrap_err().bad, 3);
}

#[test]
fn a_program_that_fails_is_the_first_points_failure() {
    let band = Band::quick(&spec(), 5);
    let failure = band
        .measure("stuck", |machine| {
            machine.run(thread::park)?;
            Ok(0.0)
        })
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock);
    let line = failure.replay.to_string();
    assert!(line.contains("request=30") && line.ends_with("program=stuck"), "{line}");
}

#[test]
fn one_point_without_a_number_leaves_the_range_without_one() {
    let line = Replay::new("host-2c", "p");
    let figures = |values: &[f64]| {
        let points = values.iter().map(|&value| (value, line.clone())).collect();
        Figures::new("p".to_owned(), points)
    };
    for values in [[f64::NAN, 1.0, 2.0], [1.0, f64::NAN, 2.0], [1.0, 2.0, f64::NAN]] {
        let (low, high) = figures(&values).range();
        assert!(low.is_nan() && high.is_nan(), "{values:?}: {low} to {high}");
        assert_eq!(figures(&values).within(0.0..=3.0).unwrap_err().bad, 1);
    }
    assert_eq!(figures(&[2.0, 1.0, 3.0]).range(), (1.0, 3.0));
}

#[test]
fn figures_of_two_bands_are_not_compared() {
    let (quick, whole) = (Band::quick(&spec(), 1), Band::whole(&spec(), 1));
    let [few, many] = [&quick, &whole].map(|band| band.measure("one", |_| Ok(1.0)).unwrap());
    for (own, other) in [(&few, &many), (&many, &few)] {
        let broken = own.at_least(0.5, other).unwrap_err().to_string();
        assert!(broken.contains("from different bands"), "{broken}");
        assert!(own.at_most(2.0, other).is_err() && own.ratios(other).0.is_nan());
    }
}
