//! All runs of a scenario on this machine, in turns.
//!
//! A *round* runs each of the points that differ in their variant alone once, in a shuffled
//! order and with one seed. So a slow spell of the machine hits all of them, and the points of two
//! variants correspond. Before, between and after the runs of a round a thread looks at each CPU; a
//! round in which another program used one of them is discarded as a whole, counted and taken
//! again. A figure is the median over the rounds that are left. If these are too few, it is the
//! median over the least disturbed rounds, and is marked: see [`disturbance`].

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
use super::measured::{Measured, Rounds, Series};
use crate::disturbance::{self, Kept, Waits};
use crate::error::Error;

/// The maximum for the quick form, so that it ends within seconds on any machine.
const QUICK_CPUS: usize = 32;

/// How many rounds are kept.
const ROUNDS: usize = 15;
const QUICK_ROUNDS: usize = 7;

/// The maximum number of rounds that are tried for each round that is kept.
const TRIES: usize = 2;

/// The stream of the generator that draws the order of a round.
const ORDER: u128 = 0x0d0f;

/// Runs all points. Those of variants that this machine lacks are left out with a note, unless
/// nothing else was asked for. Also says how many there are: an interrupt leaves those that are
/// finished.
pub(super) fn measure(choice: &Choice) -> Result<(Vec<Measured>, usize), Error> {
    let machine = probe();
    let is_known = machine.topology_error.is_none() && machine.hidden.is_empty();
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
        let taken = take(wanted, |number, most| {
            let round = round(alike, seed, number, most)?;
            bar.inc(if round.waits.is_disturbed { 0 } else { alike.len() as u64 });
            Ok(round)
        })?;
        if was_interrupted() {
            break;
        }
        for (index, (config, point)) in alike.iter().enumerate() {
            let (point, caches) = (point.clone(), config.caches);
            let rounds = disturbance::is_known().then_some(taken.rounds);
            measured.push(Measured { point, caches, numbers: taken.series(index), rounds });
        }
    }
    bar.finish();
    Ok((measured, points.len()))
}

/// The numbers of each point.
struct Round {
    numbers: Vec<Vec<f64>>,
    waits: Waits,
    is_whole: bool,
}

/// Runs each point once. A disturbed round that has waited for as long as `most` cannot be kept, so
/// the run stops.
fn round(
    points: &[(Config, Point)],
    seed: u64,
    number: u64,
    most: Option<u64>,
) -> Result<Round, Error> {
    let broken = |broken| Error::BrokenNatively { scenario: points[0].1.scenario.name, broken };
    let seed = seed.wrapping_add(number);
    let mut order: Vec<usize> = (0..points.len()).collect();
    shuffle(&mut order, &mut Pcg64::new(u128::from(seed), ORDER));
    let cpus = points.first().map_or(&[][..], |(config, _)| &config.cpus);
    let look = || disturbance::look(cpus).map_err(|error| broken(RunError::Spawn(error)));
    let numbers = vec![Vec::new(); points.len()];
    let mut round = Round { numbers, waits: look()?, is_whole: true };
    for index in order {
        let waits = round.waits;
        if was_interrupted() || waits.is_disturbed && most.is_some_and(|most| waits.total >= most) {
            round.is_whole = false;
            break;
        }
        let (config, point) = &points[index];
        let setup = Setup { point: point.clone(), cpus: config.cpus.clone(), seed };
        round.numbers[index] = (point.scenario.native)(&setup).map_err(broken)?;
        round.waits = waits.and(look()?);
    }
    Ok(round)
}

/// Rounds that were kept, and how many were not.
struct Taken {
    /// The numbers of each point, for each round.
    kept: Vec<Vec<Vec<f64>>>,
    rounds: Rounds,
}

/// Takes rounds until this number of them are calm, or twice as many were tried. Each round gets
/// its number, and the time for which threads may wait if the round is kept. In the first rounds,
/// threads may wait for any time, so that every program has run, checked itself and produced
/// numbers.
fn take(
    wanted: usize,
    mut round: impl FnMut(u64, Option<u64>) -> Result<Round, Error>,
) -> Result<Taken, Error> {
    let (mut whole, mut calm) = (Vec::new(), 0);
    let mut rounds = Rounds::default();
    for number in 0..(TRIES * wanted) as u64 {
        let Round { numbers, waits, is_whole } = round(number, most(&whole, wanted))?;
        if waits.is_disturbed {
            // Most of what disturbs is over soon.
            thread::sleep(Duration::from_millis(1 << rounds.disturbed.min(6)));
            rounds.disturbed += 1;
        } else {
            calm += 1;
        }
        if is_whole {
            whole.push((waits, numbers));
        } else {
            rounds.discarded += 1;
        }
        // What is interrupted does not count.
        if calm == wanted || was_interrupted() {
            break;
        }
    }
    let Kept { samples, are_disturbed, discarded } = disturbance::keep(whole, wanted);
    rounds.discarded += discarded;
    Ok(Taken { kept: samples, rounds: Rounds { are_disturbed, ..rounds } })
}

/// The waits of the threads in the round that is probably the last one to be kept. It is a
/// disturbed one, since fewer than `wanted` are calm.
fn most<T>(whole: &[(Waits, T)], wanted: usize) -> Option<u64> {
    let mut order: Vec<_> =
        whole.iter().map(|(waits, _)| (waits.is_disturbed, waits.total)).collect();
    order.sort_unstable();
    order.get(wanted - 1).map(|(_, total)| *total)
}

impl Taken {
    /// A point's numbers, over the rounds.
    fn series(&self, point: usize) -> Vec<Series> {
        let numbers = self.kept.first().map_or(0, |round| round[point].len());
        let of = |number| {
            let points: Vec<f64> = self.kept.iter().map(|round| round[point][number]).collect();
            Series { value: median(&points), points }
        };
        (0..numbers).map(of).collect()
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

    /// Takes rounds of two programs of one number, the number of the round. How long a round waits
    /// is told; if that is more than 99, it is disturbed.
    fn taken(wanted: usize, waits: impl Fn(u64) -> u64) -> (Series, Rounds) {
        let round = |number, most: Option<u64>| {
            let total = waits(number);
            let waits = Waits { total, is_disturbed: total > 99 };
            let numbers = vec![vec![number as f64], vec![10.0 * number as f64]];
            let is_whole = !waits.is_disturbed || most.is_none_or(|most| total < most);
            Ok(Round { numbers, waits, is_whole })
        };
        let taken = take(wanted, round).unwrap();
        let [first, second] = [0, 1].map(|program| taken.series(program).remove(0));
        assert!(first.points.iter().zip(&second.points).all(|(one, ten)| 10.0 * one == *ten));
        (first, taken.rounds)
    }

    fn rounds(discarded: u32, disturbed: u32, are_disturbed: bool) -> Rounds {
        Rounds { discarded, disturbed, are_disturbed }
    }

    #[test]
    fn a_disturbed_round_is_discarded_counted_and_taken_again() {
        let (all, of) = taken(3, |_| 0);
        assert_eq!((all.points, all.value, of), (vec![0.0, 1.0, 2.0], 1.0, rounds(0, 0, false)));
        let (some, of) = taken(3, |number| if number % 2 == 1 { 0 } else { 100 });
        assert_eq!((some.points, some.value, of), (vec![1.0, 3.0, 5.0], 3.0, rounds(3, 3, false)));
        let (few, of) = taken(3, |number| if number == 5 { 0 } else { 100 });
        assert_eq!((few.points, few.value, of), (vec![5.0], 5.0, rounds(5, 5, false)));
    }

    #[test]
    fn if_all_rounds_are_disturbed_the_least_disturbed_are_kept_and_marked() {
        let (least, of) = taken(3, |number| 600 - 10 * number);
        assert_eq!((least.points, least.value, of), (vec![3.0, 4.0, 5.0], 4.0, rounds(3, 6, true)));
        // Rounds that wait for longer than three before them stop, and have no numbers.
        let (first, of) = taken(3, |number| 600 + 10 * number);
        assert_eq!((first.points, of), (vec![0.0, 1.0, 2.0], rounds(3, 6, true)));
        // One calm round is too few if four are wanted.
        let (mixed, of) = taken(4, |number| if number == 7 { 0 } else { 600 + number });
        assert_eq!((mixed.points, of), (vec![0.0, 1.0, 2.0, 7.0], rounds(4, 7, true)));
    }

    #[test]
    fn one_slow_round_does_not_move_the_median() {
        assert_eq!(median(&[3.0, 900.0, 1.0, 2.0, 4.0]), 3.0);
        assert_eq!(median(&[1.0, 4.0, 2.0, 900.0]), 3.0);
    }
}
