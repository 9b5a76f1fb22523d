//! All runs of a scenario on this machine, in turns.
//!
//! A *round* runs each of the points that differ in their variant alone once, in a shuffled
//! order and with one seed. So a slow spell of the machine hits all of them, and the points of two
//! variants correspond. Before, between and after the runs of a round a thread looks at each CPU; a
//! round in which one of them had other load is discarded as a whole, counted and taken again. A
//! figure is the median over the rounds that are left.

use core::time::Duration;
use std::io::{self, Write};
use std::thread;

use coreline_scenarios::config::Config;
use coreline_scenarios::point::{Point, Setup};
use coreline_scenarios::{RunError, shuffle};
use coreline_topology::CpuId;
use coreline_world::native::{probe, was_interrupted};
use rand_pcg::Pcg64;

use super::Choice;
use super::measured::{Measured, Series};
use crate::disturbance;
use crate::error::Error;

/// What the quick form takes at most, so that it ends within seconds on any machine.
const QUICK_CPUS: usize = 32;

/// How many rounds are kept.
const ROUNDS: usize = 15;
const QUICK_ROUNDS: usize = 7;

/// How many are tried at most, for each that is to be kept.
const TRIES: usize = 2;

/// The stream of the generator that draws the order of a round.
const ORDER: u128 = 0x0d0f;

/// Runs all points. Those of variants that this machine lacks are left out with a note, unless
/// nothing else was asked for. Also says how many there are: an interrupt leaves those that are
/// finished.
pub(super) fn measure(choice: &Choice) -> Result<(Vec<Measured>, usize), Error> {
    let machine = probe();
    let is_known = machine.topology_error.is_none();
    let allowed = machine.allowed.map_err(Error::NoCpus)?;
    let (quick, seed) = (choice.quick, choice.seed);
    let most = if quick { QUICK_CPUS } else { usize::MAX };
    let cpus: Vec<CpuId> = allowed.iter().take(most).collect();
    let mut points = choice.points(vec![Config::here(&machine.topology, is_known, cpus)])?;
    let lack = |(_, point): &(Config, Point)| {
        let variant = point.scenario.variant(point.variant)?;
        (variant.lacks)()
    };
    if points.iter().any(|point| lack(point).is_none())
        && let Some(lacks) = points.iter().find_map(lack)
    {
        points.retain(|point| lack(point).is_none());
        // A note: the result says by itself which rows it has.
        let _ = writeln!(io::stderr(), "coreline: left out: {lacks}");
    }
    let wanted = if quick { QUICK_ROUNDS } else { ROUNDS };
    let bar = choice.progress(points.len() * wanted);
    let mut measured = Vec::with_capacity(points.len());
    for alike in points.chunk_by(|(_, this), (_, next)| this.is_beside(next)) {
        let taken = take(wanted, |number| {
            let round = round(alike, seed, number)?;
            bar.inc(if round.is_calm { alike.len() as u64 } else { 0 });
            Ok(round)
        })?;
        if was_interrupted() {
            break;
        }
        for (index, (config, point)) in alike.iter().enumerate() {
            let (point, caches) = (point.clone(), config.caches);
            let discarded = disturbance::is_known().then_some(taken.discarded);
            measured.push(Measured { point, caches, numbers: taken.series(index), discarded });
        }
    }
    bar.finish_and_clear();
    Ok((measured, points.len()))
}

/// The numbers of each point. Of a round that was disturbed some may be missing.
struct Round {
    numbers: Vec<Vec<f64>>,
    is_calm: bool,
}

/// Runs each point once. The first round runs all of them even where other load has the CPUs, so
/// that every program has checked itself; later ones stop where they see that.
fn round(points: &[(Config, Point)], seed: u64, number: u64) -> Result<Round, Error> {
    let broken = |broken| Error::BrokenNatively { scenario: points[0].1.scenario.name, broken };
    let seed = seed.wrapping_add(number);
    let mut order: Vec<usize> = (0..points.len()).collect();
    shuffle(&mut order, &mut Pcg64::new(u128::from(seed), ORDER));
    let cpus = points.first().map_or(&[][..], |(config, _)| &config.cpus);
    let are_calm = || disturbance::are_calm(cpus).map_err(|error| broken(RunError::Spawn(error)));
    let mut round = Round { numbers: vec![Vec::new(); points.len()], is_calm: are_calm()? };
    for index in order {
        if was_interrupted() || !round.is_calm && number > 0 {
            break;
        }
        let (config, point) = &points[index];
        let setup = Setup { point: point.clone(), cpus: config.cpus.clone(), seed };
        round.numbers[index] = (point.scenario.native)(&setup).map_err(broken)?;
        round.is_calm &= are_calm()?;
    }
    Ok(round)
}

/// Rounds that were kept, and how many were not.
struct Taken {
    rounds: Vec<Vec<Vec<f64>>>,
    discarded: u32,
    /// How many numbers a point has.
    numbers: Vec<usize>,
}

/// Takes rounds until so many are kept, or twice as many were tried.
fn take(wanted: usize, mut round: impl FnMut(u64) -> Result<Round, Error>) -> Result<Taken, Error> {
    let mut taken = Taken { rounds: Vec::new(), discarded: 0, numbers: Vec::new() };
    for number in 0..(TRIES * wanted) as u64 {
        let Round { numbers, is_calm } = round(number)?;
        if number == 0 {
            taken.numbers = numbers.iter().map(Vec::len).collect();
        }
        if is_calm {
            taken.rounds.push(numbers);
        } else {
            // Most of what disturbs is over soon.
            thread::sleep(Duration::from_millis(1 << taken.discarded.min(6)));
            taken.discarded += 1;
        }
        // What is interrupted does not count.
        if taken.rounds.len() == wanted || was_interrupted() {
            break;
        }
    }
    Ok(taken)
}

impl Taken {
    /// A point's numbers, over the rounds.
    fn series(&self, point: usize) -> Vec<Series> {
        let of = |number| {
            let points: Vec<f64> = self.rounds.iter().map(|round| round[point][number]).collect();
            Series { value: median(&points), points }
        };
        (0..self.numbers[point]).map(of).collect()
    }
}

/// NaN of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_round_is_discarded_counted_and_taken_again() {
        // Two programs of one number, the number of the round.
        let take = |wanted, is_calm: fn(u64) -> bool| {
            let round = |number| {
                let numbers = vec![vec![number as f64], vec![10.0 * number as f64]];
                Ok(Round { numbers, is_calm: is_calm(number) })
            };
            let taken = take(wanted, round).unwrap();
            let [first, second] = [0, 1].map(|program| taken.series(program).remove(0));
            assert!(first.points.iter().zip(&second.points).all(|(one, ten)| 10.0 * one == *ten));
            (first, taken.discarded)
        };
        let (all, discarded) = take(3, |_| true);
        assert_eq!((all.points, all.value, discarded), (vec![0.0, 1.0, 2.0], 1.0, 0));
        let (some, discarded) = take(3, |number| number % 2 == 1);
        assert_eq!((some.points, some.value, discarded), (vec![1.0, 3.0, 5.0], 3.0, 3));
        let (few, discarded) = take(3, |number| number == 5);
        assert_eq!((few.points, few.value, discarded), (vec![5.0], 5.0, 5));
        let (none, discarded) = take(3, |_| false);
        assert!(none.points.is_empty() && none.value.is_nan());
        assert_eq!(discarded, 6, "given up");
    }

    #[test]
    fn one_slow_round_does_not_move_the_median() {
        assert_eq!(median(&[3.0, 900.0, 1.0, 2.0, 4.0]), 3.0);
        assert_eq!(median(&[1.0, 4.0, 2.0, 900.0]), 3.0);
    }
}
