//! Claims over bands: statements that must hold for all values of the machine's unknowns.
//!
//! A single run shows one seed, one guess of how a miss divides into request and response, one
//! guess of which request a contended line serves next, and one value of each uncertain cost. A
//! claim that you quote must not depend on these values. A [`Band`] is the set of points at which a
//! claim must hold. [`Band::measure`] runs a program at each point,
//! in parallel on the host's CPUs. [`Figures`] hold the results and check claims.
//!
//! ```
//! # #[global_allocator]
//! # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
//! use coreline_sim::atomic::{AtomicU64, Ordering};
//! use coreline_sim::claim::Band;
//! use coreline_sim::{Machine, Spec, thread};
//!
//! #[derive(Default)]
//! #[repr(align(64))]
//! struct Line(AtomicU64);
//!
//! /// Nanoseconds until each of 16 threads has added 200 times.
//! fn count(machine: Machine, lines: usize) -> Result<f64, Box<coreline_sim::Failure>> {
//!     let run = machine.run(move || {
//!         let counts: Vec<Line> = (0..lines).map(|_| Line::default()).collect();
//!         thread::scope(|scope| {
//!             for n in 0..16 {
//!                 let count = &counts[n % lines].0;
//!                 let add = |_| _ = count.fetch_add(1, Ordering::Relaxed);
//!                 scope.spawn(move || (0..200).for_each(add));
//!             }
//!         });
//!     })?;
//!     Ok(run.report.time_ns as f64)
//! }
//!
//! let band = Band::quick(&Spec::preset("epyc-9654-2s")?, 1);
//! let one = band.measure("one word", |machine| count(machine, 1))?;
//! let each = band.measure("a word each", |machine| count(machine, 16))?;
//! one.at_least(1.02, &each)?;
//! one.within(1.0..=1e6)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::hardware::contention::Arbitration;
use crate::hardware::overlap::Overlap;
use crate::hardware::spec::Spec;
use crate::machine::Machine;
use crate::results::failure::Failure;
use crate::results::replay::Replay;

/// One combination of the values on which a claim must not depend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// The share of a miss that is request flight, in percent.
    pub request_percent: u32,
    /// The random seed.
    pub seed: u64,
    /// The scaled uncertain cost and its percentage, if any.
    pub cost: Option<(String, u64)>,
    /// The arbitration between the requests for a contended line.
    pub arbitration: Arbitration,
    /// Whether independent accesses of one thread overlap.
    pub overlap: Overlap,
}

/// The points of a machine at which a claim must hold. The default point is the first.
#[derive(Debug, Clone)]
pub struct Band {
    spec: Spec,
    points: Vec<Point>,
}

/// To how many percent an uncertain cost is moved.
const MOVES: [u64; 2] = [70, 130];

impl Band {
    /// The number of seeds for each request share and arbitration in a whole band.
    pub const SEEDS: u64 = 16;

    /// Creates the whole band. Under each [`Arbitration`], it has each share of
    /// [`Machine::REQUEST_BAND`] with 16 seeds from `seed` on, and each uncertain cost at 70 % and
    /// at 130 %, one at a time.
    ///
    /// A claim that holds under one arbitration only says so with [`under`](Band::under). Accesses
    /// of one thread do not overlap. To claim a result for overlapping accesses, too, also test it
    /// over [`overlapping`](Band::overlapping).
    pub fn whole(spec: &Spec, seed: u64) -> Band {
        let mut band = Band::shares(spec, seed, Band::SEEDS);
        let uncertain = spec.sources().filter(|(_, cost)| cost.uncertain);
        let moved = uncertain.flat_map(|(name, _)| MOVES.map(|percent| (name.to_owned(), percent)));
        let default = band.points[0].clone();
        band.points.extend(moved.map(|cost| Point { cost: Some(cost), ..default.clone() }));
        let under = |arbitration| band.clone().under(arbitration).points;
        let points = Arbitration::ALL.into_iter().flat_map(under).collect();
        Band { points, ..band }
    }

    /// Creates a small band with one seed for each share and the default arbitration, for a first
    /// look and for tests that run often.
    pub fn quick(spec: &Spec, seed: u64) -> Band {
        Band::shares(spec, seed, 1)
    }

    /// Reduces the band to one arbitration, for a claim that holds under this arbitration only, or
    /// for a machine whose arbitration is known.
    #[must_use]
    pub fn under(mut self, arbitration: Arbitration) -> Band {
        let mut points: Vec<Point> = Vec::new();
        for point in self.points {
            let point = Point { arbitration, ..point };
            if !points.contains(&point) {
                points.push(point);
            }
        }
        self.points = points;
        self
    }

    /// Reduces the band to the first `seeds` seeds of each share and arbitration, for tests that
    /// run often. The points that move a cost stay. Zero counts as one.
    ///
    /// ```
    /// use coreline_sim::Spec;
    /// use coreline_sim::claim::Band;
    ///
    /// let spec = Spec::preset("epyc-9654-2s")?;
    /// let whole = Band::whole(&spec, 1);
    /// let often = whole.clone().seeds(4);
    /// // Under each of two arbitrations, three shares have 12 seeds less.
    /// assert_eq!(often.points().len(), whole.points().len() - 2 * 3 * 12);
    /// assert!(often.points().iter().all(|point| (1..5).contains(&point.seed)));
    /// let moved = |band: &Band| band.points().iter().filter(|point| point.cost.is_some()).count();
    /// assert_eq!(moved(&often), moved(&whole));
    /// # Ok::<(), coreline_sim::SpecError>(())
    /// ```
    #[must_use]
    pub fn seeds(mut self, seeds: u64) -> Band {
        let first = self.points[0].seed;
        self.points.retain(|point| point.seed.wrapping_sub(first) < seeds.max(1));
        self
    }

    /// Sets whether independent accesses of one thread overlap, at all points.
    #[must_use]
    pub fn overlapping(mut self, overlap: Overlap) -> Band {
        self.points.iter_mut().for_each(|point| point.overlap = overlap);
        self
    }

    fn shares(spec: &Spec, seed: u64, seeds: u64) -> Band {
        let default = Machine::REQUEST_PERCENT;
        let others = Machine::REQUEST_BAND.into_iter().filter(|&share| share != default);
        let of_share = |request_percent| {
            (0..seeds).map(move |offset| Point {
                request_percent,
                seed: seed.wrapping_add(offset),
                cost: None,
                arbitration: Arbitration::default(),
                overlap: Overlap::default(),
            })
        };
        let points = std::iter::once(default).chain(others).flat_map(of_share).collect();
        Band { spec: spec.clone(), points }
    }

    /// Returns the points, the default first.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the name of the band's machine.
    pub fn machine_name(&self) -> &str {
        self.spec.name()
    }

    /// Creates the machine of a point, ready to run the program named `program`.
    ///
    /// # Panics
    ///
    /// Panics if the point belongs to another machine's band, and scales a cost that this machine
    /// does not have.
    pub fn machine(&self, point: &Point, program: &str) -> Machine {
        let mut spec = self.spec.clone();
        if let Some((cost, percent)) = &point.cost {
            spec.scale(cost, *percent).expect("the point is of this machine");
        }
        let machine = Machine::new(spec).seed(point.seed).request_percent(point.request_percent);
        machine.arbitration(point.arbitration).overlap(point.overlap).program(program)
    }

    /// Runs a program at all points, on as many host threads as there are CPUs. Returns the
    /// program's number at each point.
    ///
    /// A program that needs further settings of the machine (faults, a kernel) uses
    /// [`measure_all`](Band::measure_all). Then the replay lines of a broken claim contain these
    /// settings, too.
    ///
    /// # Errors
    ///
    /// The [`Failure`] of the first point at which the program fails.
    pub fn measure(
        &self,
        name: &str,
        program: impl Fn(Machine) -> Result<f64, Box<Failure>> + Sync,
    ) -> Result<Figures, Box<Failure>> {
        let run = |_: &&str, machine: Machine| {
            let replay = machine.replay_line();
            program(machine).map(|value| (value, replay))
        };
        let mut figures = self.measure_all(&[name], run, || ())?;
        Ok(figures.remove(0))
    }

    /// Runs several programs at all points, on as many host threads as there are CPUs. `run`
    /// returns a program's number on a machine, and the run's replay line. `progress` is called
    /// after each run, on the thread that ran it.
    ///
    /// # Errors
    ///
    /// The error of the first failing point of the first failing program. No run begins after that
    /// error.
    pub fn measure_all<P: fmt::Display + Sync, E: Send>(
        &self,
        programs: &[P],
        run: impl Fn(&P, Machine) -> Result<(f64, Replay), E> + Sync,
        progress: impl Fn() + Sync,
    ) -> Result<Vec<Figures>, E> {
        let done = self.run_all(programs, run, progress)?;
        let figures = |(program, points): (&P, _)| Figures::new(program.to_string(), points);
        Ok(programs.iter().zip(done).map(figures).collect())
    }

    /// Runs several programs at all points, like [`measure_all`](Band::measure_all), but `run` may
    /// return any type. Returns each program's results, in the order of the [points](Band::points).
    ///
    /// # Errors
    ///
    /// The same errors as for [`measure_all`](Band::measure_all).
    pub fn run_all<P: fmt::Display + Sync, T: Send, E: Send>(
        &self,
        programs: &[P],
        run: impl Fn(&P, Machine) -> Result<T, E> + Sync,
        progress: impl Fn() + Sync,
    ) -> Result<Vec<Vec<T>>, E> {
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let points = self.points.len();
        let work = || {
            let mut done = Vec::new();
            // Relaxed, all three: each on its own. Runs begin in their order, so those before the
            // first that fails have begun.
            while !failed.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(program) = programs.get(index / points) else { break };
                let point = &self.points[index % points];
                let result = run(program, self.machine(point, &program.to_string()));
                if result.is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
                done.push((index, result));
                progress();
            }
            done
        };
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let mut done: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let join = |worker: thread::ScopedJoinHandle<'_, _>| match worker.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            workers.into_iter().flat_map(join).collect::<Vec<_>>()
        });
        done.sort_by_key(|&(index, _)| index);
        let mut done = done.into_iter().map(|(_, result)| result);
        programs.iter().map(|_| done.by_ref().take(points).collect()).collect()
    }
}

/// The numbers of a program over a band.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    name: String,
    /// The number of each point, the default first, and how to run it again.
    points: Vec<(f64, Replay)>,
}

impl Figures {
    /// Creates the figures from the number and the replay line at each point of a band, the default
    /// first.
    pub fn new(name: String, points: Vec<(f64, Replay)>) -> Figures {
        Figures { name, points }
    }

    /// Returns the name of the measured quantity.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number at the default point.
    pub fn value(&self) -> f64 {
        self.points.first().map_or(f64::NAN, |point| point.0)
    }

    /// Returns the numbers, in the order of the band's points.
    pub fn values(&self) -> impl Iterator<Item = f64> + Clone + '_ {
        self.points.iter().map(|point| point.0)
    }

    /// Returns the lowest and the highest number.
    pub fn range(&self) -> (f64, f64) {
        range(self.values())
    }

    /// Returns the lowest and the highest ratio to another program's numbers, compared point by
    /// point. Both are NaN if the numbers of points differ, because then the bands differ.
    pub fn ratios(&self, to: &Figures) -> (f64, f64) {
        if self.points.len() != to.points.len() {
            return (f64::NAN, f64::NAN);
        }
        range(self.values().zip(to.values()).map(|(own, other)| own / other))
    }

    /// Claims that each number is at least `factor` times the number of `other` at the same point.
    ///
    /// # Errors
    ///
    /// [`BrokenClaim`], with the point that violates the claim by the most.
    pub fn at_least(&self, factor: f64, other: &Figures) -> Result<(), Box<BrokenClaim>> {
        self.claim_ratio("at least", factor, other, |ratio| ratio / factor)
    }

    /// Claims that each number is at most `factor` times the number of `other` at the same point.
    ///
    /// # Errors
    ///
    /// [`BrokenClaim`], with the point that violates the claim by the most.
    pub fn at_most(&self, factor: f64, other: &Figures) -> Result<(), Box<BrokenClaim>> {
        self.claim_ratio("at most", factor, other, |ratio| factor / ratio)
    }

    /// Claims that each number lies in a range.
    ///
    /// # Errors
    ///
    /// [`BrokenClaim`], with the point whose number is farthest outside the range.
    pub fn within(&self, range: RangeInclusive<f64>) -> Result<(), Box<BrokenClaim>> {
        let (low, high) = (*range.start(), *range.end());
        let claim = format!("{} is within {low} to {high}", self.name);
        let outside = |value: f64| (value - high).max(low - value);
        let margins = self.points.iter().map(|(value, replay)| {
            (-outside(*value), format!("{} {}", self.name, shown(*value)), vec![replay.clone()])
        });
        broken(claim, self.range(), margins, 0.0)
    }

    /// `margin` of a ratio is below 1 if it breaks the claim, the lower the farther.
    fn claim_ratio(
        &self,
        relation: &str,
        factor: f64,
        other: &Figures,
        margin: impl Fn(f64) -> f64,
    ) -> Result<(), Box<BrokenClaim>> {
        let claim = format!("{} is {relation} {factor} times {}", self.name, other.name);
        let (points, others) = (self.points.len(), other.points.len());
        if points != others {
            let found =
                format!("{points} points and {others}: the figures come from different bands");
            let (range, replays) = (self.ratios(other), Vec::new());
            return Err(Box::new(BrokenClaim {
                claim,
                points,
                bad: points,
                range,
                found,
                replays,
            }));
        }
        let both = self.points.iter().zip(&other.points);
        let margins = both.map(|((own, replay), (others, its_replay))| {
            let found = format!(
                "{} {}, {} {}, ratio {}",
                self.name,
                shown(*own),
                other.name,
                shown(*others),
                shown(own / others)
            );
            (margin(own / others), found, vec![replay.clone(), its_replay.clone()])
        });
        broken(claim, self.ratios(other), margins, 1.0)
    }
}

/// Returns the lowest and the highest of some numbers. Both are NaN if one of the numbers is NaN.
/// Without numbers, the result is infinity and minus infinity.
pub fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        // `min` and `max` would drop a NaN.
        let none = low.is_nan() || value.is_nan();
        if none { (f64::NAN, f64::NAN) } else { (low.min(value), high.max(value)) }
    })
}

/// Looks for points whose margin is below `enough`, or NaN, and keeps the worst.
fn broken(
    claim: String,
    range: (f64, f64),
    margins: impl Iterator<Item = (f64, String, Vec<Replay>)>,
    enough: f64,
) -> Result<(), Box<BrokenClaim>> {
    let (mut points, mut bad) = (0, 0);
    let mut worst: Option<(f64, String, Vec<Replay>)> = None;
    for point in margins {
        points += 1;
        if point.0 >= enough {
            continue;
        }
        bad += 1;
        let worse = |seen: &(f64, String, Vec<Replay>)| point.0.is_nan() || point.0 < seen.0;
        if worst.as_ref().is_none_or(worse) {
            worst = Some(point);
        }
    }
    match worst {
        None => Ok(()),
        Some((_, found, replays)) => {
            Err(Box::new(BrokenClaim { claim, points, bad, range, found, replays }))
        }
    }
}

/// Four significant digits.
fn shown(value: f64) -> String {
    let digits = 3 - (value.abs().max(1e-9).log10().floor() as i32).clamp(-6, 3);
    format!("{value:.0$}", digits.max(0) as usize)
}

/// A claim that does not hold over its band.
///
/// The `Debug` form equals the `Display` form, so that `unwrap` in a test prints the text.
#[derive(Clone, PartialEq, thiserror::Error)]
pub struct BrokenClaim {
    /// The text of the claim.
    pub claim: String,
    /// The number of points in the band.
    pub points: usize,
    /// The number of points at which the claim does not hold.
    pub bad: usize,
    /// The lowest and the highest value of the number, or of the ratio, over the whole band.
    pub range: (f64, f64),
    /// The value at the worst point.
    pub found: String,
    /// The replay lines of the worst point.
    pub replays: Vec<Replay>,
}

impl fmt::Debug for BrokenClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for BrokenClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BrokenClaim { claim, points, bad, range: (low, high), found, replays } = self;
        writeln!(f, "the claim that {claim} does not hold at {bad} of {points} points")?;
        writeln!(f, "  band: {} to {}", shown(*low), shown(*high))?;
        write!(f, "  at the worst point: {found}")?;
        replays.iter().try_for_each(|replay| write!(f, "\n  replay: {replay}"))
    }
}
