//! [`scaling`]: measures a program with several numbers of threads.

use core::fmt;
use core::iter;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::course::STEADY;
use super::{Parallel, RoleRun, record};
use crate::experiments::claim::{Band, Figures};
use crate::experiments::testing;
use crate::results::failure::Failure;

/// Runs a program with each of these numbers of threads, at all points of a band, on as many host
/// threads as there are CPUs. `program` gets the number of threads. It usually returns the result
/// of [`parallel`](super::parallel) or [`roles`](super::roles()).
///
/// In replay lines the program is named `name threads=N`. If the environment variable
/// `CORELINE_REPLAY` has such a line, `scaling` first repeats this run. It prints the run's report,
/// with the hottest lines and source locations, on standard error.
///
/// The program `cargo coreline scale` compares the results with a baseline. The environment
/// variable `CORELINE_SCALE` names the folder of the results. Each name and machine must be unique
/// in a package.
///
/// # Errors
///
/// The [`Failure`] of the first run that fails.
///
/// # Panics
///
/// Panics if `CORELINE_REPLAY` is not a replay line, or if a result cannot be written to the folder
/// that `CORELINE_SCALE` names.
pub fn scaling(
    band: &Band,
    name: &str,
    threads: &[usize],
    program: impl Fn(usize) -> Parallel + Clone + Send + Sync + 'static,
) -> Result<Scaling, Box<Failure>> {
    let named: Vec<_> = threads.iter().map(|&threads| Program { name, threads }).collect();
    let run = |of: &Program<'_>, machine: crate::Machine| {
        let (replay, program, threads) = (machine.replay_line(), program.clone(), of.threads);
        machine.run(move || program(threads)).map(|run| (run.value, replay))
    };
    for &Program { threads, .. } in &named {
        let machine = band.machine(&band.points()[0], &Program { name, threads }.to_string());
        let program = program.clone();
        testing::replay_of(machine, move || program(threads))?;
    }
    let done = band.run_all(&named, run, || ())?;
    let part = |name: String, of: &Part<'_>, own: &dyn Fn(usize, &Parallel) -> usize| {
        let rows = (0..threads.len()).map(|row| (row, own(threads[row], &done[row][0].0)));
        let rows: Vec<_> = rows.filter(|&(_, own)| own > 0).collect();
        let figures = |of: &dyn Fn(&Parallel) -> f64| {
            let each = rows.iter().map(|&(row, _)| {
                let points = done[row].iter().map(|(value, replay)| (of(value), replay.clone()));
                let program = Program { name: &name, threads: threads[row] };
                Figures::new(program.to_string(), points.collect())
            });
            each.collect::<Vec<_>>()
        };
        Scaling {
            machine: band.machine_name().to_owned(),
            points: band.points().len(),
            threads: rows.iter().map(|&(row, _)| threads[row]).collect(),
            own: rows.iter().map(|&(_, own)| own).collect(),
            rates: figures(&|run| of(run, &Parallel::per_second, &RoleRun::per_second)),
            shares: figures(&|run| of(run, &Parallel::share, &RoleRun::share)),
            drifts: figures(&|run| of(run, &Parallel::drift, &|role| role.drift)),
            roles: Vec::new(),
            name: name.clone(),
        }
    };
    let whole = |run: &Parallel, whole: Whole<'_>, _: OfRole<'_>| whole(run);
    let mut all = part(name.to_owned(), &whole, &|threads, _| threads);
    let count = done.iter().flatten().map(|(run, _)| run.roles.len()).max().unwrap_or(0);
    if count > 1 {
        let role = |index: usize| {
            let called = done.iter().flatten().find_map(|(run, _)| run.roles.get(index));
            let called = called.map_or("", |role| &role.name);
            let of = |run: &Parallel, _: Whole<'_>, of: OfRole<'_>| {
                run.roles.get(index).map_or(f64::NAN, of)
            };
            let own = |_, run: &Parallel| run.roles.get(index).map_or(0, |it| it.threads.len());
            part(format!("{name}, {called}"), &of, &own)
        };
        all.roles = (0..count).map(role).collect();
    }
    if let Some(folder) = record::folder() {
        let curves: Vec<_> = iter::once(&all).chain(&all.roles).map(Scaling::curve).collect();
        record::write(&folder, band, &curves, &program)?;
    }
    Ok(all)
}

/// A number for all threads of a run together, and one for the threads of a role.
type Whole<'a> = &'a dyn Fn(&Parallel) -> f64;
type OfRole<'a> = &'a dyn Fn(&RoleRun) -> f64;

/// Chooses between the two.
type Part<'a> = dyn Fn(&Parallel, Whole<'_>, OfRole<'_>) -> f64 + 'a;

/// A program with a number of threads.
struct Program<'a> {
    name: &'a str,
    threads: usize,
}

impl fmt::Display for Program<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} threads={}", self.name, self.threads)
    }
}

/// The throughput of a program with several numbers of threads.
///
/// `Display` prints a conclusion, a table and bars, at most 80 columns wide. [`csv`](Scaling::csv)
/// and `Serialize` are for programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaling {
    name: String,
    machine: String,
    points: usize,
    threads: Vec<usize>,
    /// How many of these threads have the role, or all threads if the row is not about a role.
    own: Vec<usize>,
    /// For each number of threads: operations of all threads per simulated second.
    rates: Vec<Figures>,
    shares: Vec<Figures>,
    drifts: Vec<Figures>,
    /// The same by role, if there are several.
    roles: Vec<Scaling>,
}

/// A number at a band's default point, and its range over the band.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The number at the default point.
    pub value: f64,
    /// The lowest number over all points.
    pub low: f64,
    /// The highest number over all points.
    pub high: f64,
}

impl Spread {
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone) -> Spread {
        let (low, high) = crate::experiments::claim::range(values.clone());
        Spread { value: values.into_iter().next().unwrap_or(f64::NAN), low, high }
    }
}

/// The result with one number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Row {
    /// The number of threads.
    pub threads: usize,
    /// The throughput of all threads together, in operations per simulated second.
    pub per_second: Spread,
    /// The throughput of each thread, relative to the throughput of a thread in the first row.
    pub efficiency: Spread,
    /// The slowest thread's speed, divided by the fastest thread's speed. A value of 1 is fair.
    pub share: Spread,
    /// How far the rate changed within a run: see [`RoleRun::drift`].
    pub drift: Spread,
}

/// The lowest speed of a thread, relative to a thread of the first row, with which the program
/// scales. The slowest thread of a role must also have at least this speed relative to the fastest
/// one, because otherwise the slowest thread alone decides the rate.
const ENOUGH: f64 = 0.5;

impl Scaling {
    fn curve(&self) -> record::Curve<'_> {
        let rates = self.threads.iter().copied().zip(&self.rates).collect();
        record::Curve { name: &self.name, scales_to: self.scales_to(), rates }
    }

    /// The minimum efficiency of a row up to which a program [scales](Scaling::scales_to).
    pub const ENOUGH: f64 = 0.5;

    /// Returns the name of the measured program.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the numbers of threads, in the order of the request.
    pub fn threads(&self) -> &[usize] {
        &self.threads
    }

    /// Returns the operations per second with this number of threads, for claims. Returns `None` if
    /// no program ran with this number of threads.
    pub fn rate(&self, threads: usize) -> Option<&Figures> {
        let index = self.threads.iter().position(|&it| it == threads)?;
        self.rates.get(index)
    }

    /// Returns the results of each role, in their order, if the program has several roles. In a
    /// role's rows, `threads` is the number of all threads, and rows in which the role has none are
    /// left out. A printed row has both numbers, such as `7/8`.
    pub fn roles(&self) -> &[Scaling] {
        &self.roles
    }

    /// Returns all rows.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row> + '_ {
        (0..self.threads.len()).map(|row| Row {
            threads: self.threads[row],
            per_second: Spread::of(self.rates[row].values()),
            efficiency: Spread::of(self.efficiencies(row)),
            share: Spread::of(self.shares[row].values()),
            drift: Spread::of(self.drifts[row].values()),
        })
    }

    fn efficiencies(&self, row: usize) -> impl Iterator<Item = f64> + Clone + '_ {
        let more = self.own[row] as f64 / self.own[0] as f64;
        self.rates[row]
            .values()
            .zip(self.rates[0].values())
            .map(move |(this, first)| this / first / more)
    }

    /// Returns the highest number of threads to which the program scales. In the row of that number
    /// and all rows before it, each thread is at least half as fast as a thread of the first row,
    /// at every point. In rows after the first, the slowest thread is also at least half as fast as
    /// the fastest. With several roles, this holds for the rows of each role that counts
    /// operations. Returns 0 if there is no row, or if no operation was counted.
    pub fn scales_to(&self) -> usize {
        if !self.counts() {
            return 0;
        }
        let scales = |&row: &usize| match &self.roles[..] {
            [] => self.scales_in(row),
            // A role without threads in this row says nothing about it.
            roles => roles.iter().filter(|role| role.counts()).all(|role| {
                let own = role.threads.iter().position(|&it| it == self.threads[row]);
                own.is_none_or(|own| role.scales_in(own))
            }),
        };
        (0..self.threads.len()).take_while(scales).last().map_or(0, |row| self.threads[row])
    }

    /// Whether the threads of this row are fast enough, beside one of the first row and beside each
    /// other.
    fn scales_in(&self, row: usize) -> bool {
        self.efficiency(row) >= ENOUGH && (row == 0 || self.share(row) >= ENOUGH)
    }

    /// Whether an operation was counted in any run.
    fn counts(&self) -> bool {
        self.rates.iter().flat_map(Figures::values).any(|rate| rate > 0.0)
    }

    /// The lowest over the band.
    fn efficiency(&self, row: usize) -> f64 {
        Spread::of(self.efficiencies(row)).low
    }

    /// The lowest over the band.
    fn share(&self, row: usize) -> f64 {
        self.shares[row].range().0
    }

    /// Returns whether the rate was [steady](RoleRun::is_steady) in all runs.
    pub fn is_steady(&self) -> bool {
        self.drifts.iter().flat_map(Figures::values).all(|drift| drift <= STEADY)
    }

    /// Returns the first number of threads with a lower total throughput, at every point, than with
    /// fewer threads.
    pub fn declines_at(&self) -> Option<usize> {
        let slower = |row: usize| {
            (0..row).any(|less| {
                let ratios = self.rates[row].ratios(&self.rates[less]);
                self.own[row] > self.own[less] && ratios.1 < 1.0
            })
        };
        (0..self.threads.len()).find(|&row| slower(row)).map(|row| self.threads[row])
    }

    /// Returns the rows as comma-separated values, with a header.
    pub fn csv(&self) -> String {
        let header = ["per_second", "efficiency", "share", "drift"];
        let header = header.map(|it| format!("{it},{it}_low,{it}_high"));
        let mut text = format!("threads,{}\n", header.join(","));
        for Row { threads, per_second, efficiency, share, drift } in self.rows() {
            let spreads = [per_second, efficiency, share, drift];
            let spreads =
                spreads.map(|Spread { value, low, high }| format!("{value},{low},{high}"));
            text += &format!("{threads},{}\n", spreads.join(","));
        }
        text
    }

    fn conclusion(&self) -> String {
        let [scales_to, most] = [self.scales_to(), self.threads.iter().copied().max().unwrap_or(0)];
        let mut text = match scales_to {
            0 if most == 0 => return format!("{}: nothing was measured", self.name),
            0 if !self.counts() => return format!("{}: no operation was counted", self.name),
            all if all == most => format!("{} scales to all {most} threads", self.name),
            some => format!("{} scales to {some} of {most} threads", self.name),
        };
        if let Some(declines) = self.declines_at().filter(|_| self.roles.is_empty()) {
            text += &format!(", and is slower from {declines} on than with fewer");
        }
        text
    }

    /// The exceptions to the conclusion, one line for each.
    fn caveats(&self) -> String {
        let mut text = String::new();
        // A row that would scale, were not the others so much faster than the slowest.
        let differs = |row: &usize| self.efficiency(*row) >= ENOUGH && self.share(*row) < ENOUGH;
        if let Some(row) = (1..self.threads.len()).find(differs) {
            let (threads, times) = (self.own[row], 1.0 / self.share(row));
            text += &format!(
                "the slowest of {threads} threads takes {times:.0} times as long as the fastest;\n\
                 if they do different things, measure them as roles for a window of time\n"
            );
        }
        let drifts = || self.drifts.iter().map(|it| it.values().fold(1.0, worse));
        let unsteady = drifts().filter(|drift| drift.is_nan() || *drift > STEADY).count();
        if unsteady > 0 {
            let (rows, most) = (self.threads.len(), drifts().fold(1.0, worse));
            text += &match most {
                most if most.is_finite() => format!(
                    "not steady in {unsteady} of {rows} rows: a rate changed up to {most:.1} times \
                     within a run\n"
                ),
                _ => {
                    format!("not known to be steady in {unsteady} of {rows} rows: too few rounds\n")
                }
            };
        }
        text
    }
}

/// The higher value, or unknown if either value is unknown.
fn worse(one: f64, other: f64) -> f64 {
    if one.is_nan() || other.is_nan() { f64::NAN } else { one.max(other) }
}

impl Serialize for Scaling {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Scaling", 8)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("machine", &self.machine)?;
        fields.serialize_field("points", &self.points)?;
        fields.serialize_field("scales_to", &self.scales_to())?;
        fields.serialize_field("declines_at", &self.declines_at())?;
        fields.serialize_field("is_steady", &self.is_steady())?;
        fields.serialize_field("rows", &self.rows().collect::<Vec<_>>())?;
        fields.serialize_field("roles", &self.roles)?;
        fields.end()
    }
}

/// The length of the longest bar.
const BAR: f64 = 24.0;

impl fmt::Display for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scaling { machine, points, .. } = self;
        writeln!(f, "{}", self.conclusion())?;
        if !self.roles.is_empty() {
            return self.roles.iter().try_for_each(|role| write!(f, "\n{role}"));
        }
        write!(f, "{}", self.caveats())?;
        writeln!(
            f,
            "{machine}, {points} points; each: a thread's speed relative to the first row's;"
        )?;
        writeln!(f, "share: the slowest thread's speed divided by the fastest one's\n")?;
        let band = "lowest to highest";
        writeln!(f, "{:>7}  {:>8}  {band:>19}  {:>6}  {:>5}", "threads", "op/s", "each", "share")?;
        let most = self.rates.iter().map(Figures::value).fold(0.0, f64::max);
        for (row, own) in self.rows().zip(&self.own) {
            let Row { threads, per_second, efficiency, share, .. } = row;
            let Spread { value, low, high } = per_second;
            let bar = "#".repeat((BAR * value / most).round().clamp(1.0, BAR) as usize);
            let threads = match *own {
                own if own == threads => format!("{threads}"),
                own => format!("{own}/{threads}"),
            };
            writeln!(
                f,
                "{threads:>7}  {:>8}  {:>19}  {:>6.2}  {:>5.2}  {bar}",
                short(value),
                format!("{} to {}", short(low), short(high)),
                efficiency.value,
                share.value
            )?;
        }
        Ok(())
    }
}

/// Formats a rate as the tables do: with three digits, and a letter for thousands, millions or
/// billions. A rate below a thousand ends with two spaces instead.
///
/// ```
/// use coreline_sim::measure::short;
///
/// assert_eq!(short(24_590_000.0), "24.6 M");
/// assert_eq!(short(0.5).trim_end(), "0.50");
/// ```
pub fn short(value: f64) -> String {
    let (value, letter) = match value {
        _ if value >= 999.5e6 => (value / 1e9, " G"),
        _ if value >= 999.5e3 => (value / 1e6, " M"),
        _ if value >= 999.5 => (value / 1e3, " k"),
        _ => (value, "  "),
    };
    let digits = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$}{letter}")
}
