//! The laws of histograms: once no thread records any more, each bucket has what was recorded
//! there, and quantiles are as near as they say.

use std::sync::Arc;

use coreline::IndexBy;
use coreline::counter::{Buckets, BucketsError, DifferentBuckets, Histogram, HistogramSnapshot};
use coreline_sim::{Faults, Sim};
use coreline_world::model::Model;
use coreline_world::{JoinHandle, Native, Placement, Testbed};

use crate::worlds::{self, Effort, FEW, MANY, MODEL, NATIVE, Numbers, TORN};

/// Few buckets, of which the last is everything above.
fn few_buckets() -> Buckets {
    Buckets::bounds([1, 4, 5]).unwrap()
}

/// The value that a thread records in a round.
fn value(number: u32, round: u32) -> u64 {
    u64::from(number % 3 * 2 + round % 5)
}

/// What is counted one by one: as many as are in each bucket of a snapshot, and the sum.
fn counted(now: &HistogramSnapshot, values: &[u64]) -> (Vec<u64>, u64) {
    let mut above = None;
    let counts = now.buckets().map(|(high, _)| {
        let low = above.map_or(0, |above: u64| above + 1);
        above = Some(high);
        values.iter().filter(|value| (low..=high).contains(value)).count() as u64
    });
    (counts.collect(), values.iter().sum())
}

/// Threads record, and snapshots are taken meanwhile and at the end.
fn conservation<W: Testbed>(effort: Effort, by: IndexBy, buckets: Buckets) {
    let histogram = Arc::new(Histogram::<W>::new_in(by, buckets).unwrap());
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|number| {
            let histogram = Arc::clone(&histogram);
            let place = if number % 3 == 2 { Placement::Anywhere } else { place(number) };
            let record = move |round| histogram.record(value(number, round));
            W::spawn(place, move || (0..effort.rounds).for_each(record)).unwrap()
        })
        .collect();
    let meanwhile = histogram.snapshot().count();
    let most = u64::from(effort.threads) * u64::from(effort.rounds);
    assert!(meanwhile <= most, "{meanwhile} of {most} while recording");
    threads.into_iter().for_each(JoinHandle::join);
    let now = histogram.snapshot();
    assert_eq!(now.count(), most, "records were lost or doubled");
    let rounds = |number| (0..effort.rounds).map(move |round| value(number, round));
    let values: Vec<u64> = (0..effort.threads).flat_map(rounds).collect();
    let counts = now.buckets().map(|(_, count)| count).collect();
    assert_eq!((counts, now.sum()), counted(&now, &values), "records are in the wrong bucket");
}

#[test]
fn histograms_conserve_natively() {
    for by in [IndexBy::Cpu, IndexBy::KernelCid] {
        if Histogram::<Native>::new_in(by, few_buckets()).is_ok() {
            conservation::<Native>(NATIVE, by, few_buckets());
            conservation::<Native>(NATIVE, by, Buckets::log_linear(2).unwrap());
        }
    }
}

#[test]
fn histograms_conserve_when_simulated() {
    let law = || conservation::<Sim>(MANY, IndexBy::Cpu, few_buckets());
    worlds::simulate_seeds("histogram::many", "epyc-9654-2s", Faults::default(), 3, law).unwrap();
    let law = || conservation::<Sim>(FEW, IndexBy::KernelCid, Buckets::log_linear(1).unwrap());
    worlds::simulate("histogram::by_cid", "host-2c", TORN, law).unwrap();
}

#[test]
fn histograms_conserve_in_every_interleaving() {
    let one = Effort { threads: 1, ..MODEL };
    worlds::few(move || conservation::<Model>(one, IndexBy::Cpu, few_buckets()));
}

#[test]
fn a_record_without_the_abort_check_is_caught() {
    let law = || conservation::<Sim>(FEW, IndexBy::Cpu, few_buckets());
    worlds::simulate("histogram", "host-2c", TORN, law).unwrap();
    let faults = Faults { missed_aborts: true, ..TORN };
    let failure = worlds::simulate("histogram", "host-2c", faults, law).unwrap_err();
    assert!(failure.to_string().contains("records were lost"), "{failure}");
}

/// Values of every magnitude, and the values that are really at the quantiles.
fn quantiles_are_as_near_as_they_say<W: Testbed>(bits: u32) {
    let buckets = Buckets::log_linear(bits).unwrap();
    let histogram = Histogram::<W>::new_in(IndexBy::Cpu, buckets).unwrap();
    let mut numbers = Numbers(7);
    let mut random = || numbers.below(usize::MAX) as u64 >> numbers.below(64);
    let mut values: Vec<u64> = (0..500).map(|_| random()).collect();
    values.extend([0, u64::MAX]);
    values.iter().for_each(|value| histogram.record(*value));
    values.sort_unstable();
    let now = histogram.snapshot();
    assert_eq!(now.sum(), values.iter().copied().fold(0, u64::wrapping_add));
    for (rank, exact) in (1..).zip(&values) {
        // In the middle of a rank, so that no rounding leads to the next one.
        let quantile = (f64::from(rank) - 0.5) / values.len() as f64;
        let told = now.value_at_quantile(quantile).unwrap();
        let off = told.checked_sub(*exact).expect("never too low");
        assert!(off <= exact >> (bits - 1), "{told} for {exact} with {bits} bits");
    }
    assert_eq!((now.min(), now.max()), (Some(0), Some(u64::MAX)));
    for low in [-1.0, 0.0, f64::NAN] {
        assert_eq!(now.value_at_quantile(low), Some(0));
    }
    assert_eq!([1.0, 2.0].map(|high| now.value_at_quantile(high)), [Some(u64::MAX); 2]);
}

#[test]
fn quantiles_are_as_near_as_they_say_in_every_world() {
    for bits in [1, 2, 5, 8, 13] {
        quantiles_are_as_near_as_they_say::<Native>(bits);
    }
    let law = || quantiles_are_as_near_as_they_say::<Sim>(5);
    worlds::simulate("histogram::quantiles", "host-2c", Faults::default(), law).unwrap();
}

#[test]
fn a_histogram_without_values_has_no_quantile_natively() {
    for buckets in [few_buckets(), Buckets::log_linear(8).unwrap()] {
        let now = Histogram::new(buckets).unwrap().snapshot();
        assert_eq!((now.count(), now.sum(), now.value_at_quantile(0.5)), (0, 0, None));
        assert_eq!((now.min(), now.max()), (None, None));
    }
}

#[test]
fn quantiles_at_whole_ranks_are_those_values_natively() {
    for values in 1..=200_u32 {
        let exact = Histogram::new(Buckets::log_linear(8).unwrap()).unwrap();
        (1..=values).for_each(|value| exact.record(value.into()));
        let now = exact.snapshot();
        for rank in 1..=values {
            let at = f64::from(rank) / f64::from(values);
            assert_eq!(now.value_at_quantile(at), Some(rank.into()), "{rank} of {values}");
        }
    }
    let many = Histogram::new(Buckets::log_linear(8).unwrap()).unwrap();
    many.record_n(1, 1 << 53);
    many.record(200);
    assert_eq!(many.snapshot().value_at_quantile(1.0), Some(200));
}

#[test]
fn bounds_without_an_end_are_refused() {
    assert_eq!(Buckets::bounds(0..), Err(BucketsError::TooMany { most: 1 << 16 }));
}

/// Records beside drains: each value and its part of the sum is in one of them.
fn drains_keep_the_sum<W: Testbed>(effort: Effort) {
    let histogram = Arc::new(Histogram::<W>::new_in(IndexBy::Cpu, few_buckets()).unwrap());
    let threads = effort.crew::<W, _, _>(|_| {
        let histogram = Arc::clone(&histogram);
        let rounds = effort.rounds;
        move || (0..rounds).for_each(|_| histogram.record(5))
    });
    let drain = || {
        let drained = histogram.drain();
        (drained.count(), drained.sum())
    };
    let mut all: Vec<_> = (0..3).map(|_| drain()).collect();
    threads.into_iter().for_each(JoinHandle::join);
    all.push(drain());
    let [count, sum] =
        [0, 1].map(|at| all.iter().map(|it| [it.0, it.1][at]).fold(0, u64::wrapping_add));
    let records = u64::from(effort.threads * effort.rounds);
    assert_eq!((count, sum), (records, 5 * records));
}

#[test]
fn drains_keep_the_sum_in_two_worlds() {
    drains_keep_the_sum::<Native>(NATIVE);
    let law = || drains_keep_the_sum::<Sim>(FEW);
    worlds::simulate("histogram::drains", "host-2c", TORN, law).unwrap();
}

#[test]
fn snapshots_of_equal_buckets_merge_natively() {
    let [first, second] = [0, 1].map(|_| Histogram::new(few_buckets()).unwrap());
    first.record_n(4, 3);
    second.record_n(5, 2);
    second.record_n(100, 0);
    let (mut merged, other) = (first.snapshot(), second.snapshot());
    merged.merge(&other).unwrap();
    assert_eq!((merged.count(), merged.sum()), (5, 22));
    let counts: Vec<_> = merged.buckets().collect();
    assert_eq!(counts, [(1, 0), (4, 3), (5, 2), (u64::MAX, 0)]);
    assert_eq!((merged.min(), merged.max()), (Some(2), Some(5)));
    assert_eq!([0.6, 0.61].map(|at| merged.value_at_quantile(at)), [Some(4), Some(5)]);

    let before = merged.clone();
    let different = Histogram::new(Buckets::bounds([1, 4, 6]).unwrap()).unwrap();
    different.record(1);
    assert_eq!(merged.merge(&different.snapshot()), Err(DifferentBuckets));
    assert_eq!(merged, before, "a refused merge changes nothing");
}
