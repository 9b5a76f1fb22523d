//! What the machinery of `run` needs to know of a scenario.
//!
//! A scenario is a program that is generic over its world, in `scenario`; its plan says what is
//! varied, what is measured, which figures are shown, and why one is off a published one. The
//! machinery runs the programs of a plan and makes rows of their figures, and knows no scenario.

pub(crate) mod intermittent;
pub(crate) mod shootdown;
pub(crate) mod switchstorm;
pub(crate) mod tenants;
pub(crate) mod threadstorm;

use coreline_sim::{Replay, Spec, claim};

use super::Choice;
use super::metric::Metric;
use super::published::Published;
use crate::error::Error;
use crate::scenario::{Config, Params, Program, RunError, Scenario, Variant};
use crate::world::World;

pub(crate) use intermittent::Intermittent;
pub(crate) use shootdown::Shootdown;
pub(crate) use switchstorm::Switchstorm;
pub(crate) use tenants::Tenants;
pub(crate) use threadstorm::Threadstorm;

/// A scenario, as data and as the calls that run it.
pub(crate) trait Plan: 'static {
    const SCENARIO: Scenario;

    /// What the program says of the scenario if nothing was asked.
    const QUESTION: Question;

    /// The options of the command line that are about this scenario.
    const OPTIONS: &'static [&'static str];

    /// What a replay line calls one run.
    type Program: Program;

    /// The variants of a world, in the order of its rows.
    fn variants(world: &World) -> &'static [Variant];

    /// The configurations that run if none is chosen.
    fn usual(configs: Vec<Config>) -> Vec<Config>;

    /// All that runs of a configuration, in the order of rows. Variants of the same parameters
    /// follow each other.
    ///
    /// # Errors
    ///
    /// If a value that was chosen is not one of this configuration.
    fn programs(
        choice: &Choice,
        config: &Config,
        variants: &[Variant],
    ) -> Result<Vec<Self::Program>, Error>;

    /// How many simulated runs a number is the mean of; one where the band has seeds enough.
    fn runs(_choice: &Choice) -> u64 {
        1
    }

    /// The kernel that a program's simulated machine has, by name.
    fn kernel(_choice: &Choice, _program: &Self::Program) -> Option<String> {
        None
    }

    /// Runs a program as a replay line says on `spec`, which is the line's machine; gives the
    /// numbers that its figures are made of.
    ///
    /// # Errors
    ///
    /// If the machine has no such configuration, variant or kernel, or the program fails.
    fn simulate(spec: &Spec, replay: &Replay, program: &Self::Program) -> Result<Vec<f64>, Error>;

    /// Why this machine cannot run a variant, though the native world has it.
    fn lack(_variant: Variant) -> Option<RunError> {
        None
    }

    /// Runs a program on this machine; gives its numbers, fewer perhaps than simulated.
    fn natively(config: &Config, program: &Self::Program, seed: u64) -> Result<Vec<f64>, RunError>;

    /// The result of a replayed program, as text.
    fn told(numbers: &[f64]) -> String;

    /// The figures of programs that differ in their variant alone.
    fn figures<'a>(
        about: &About<'_>,
        variants: &'a [Measured<Self::Program>],
    ) -> Vec<Figure<'a, Self::Program>>;

    /// What the rows of a program say of its parameters.
    fn params(_about: &About<'_>, program: &Self::Program) -> Params {
        program.params()
    }

    /// Whether what was published contains something that decides it and is not modelled, so that
    /// no more than a direction can be confirmed.
    fn is_limited(figure: &Figure<'_, Self::Program>) -> bool;

    /// Why a figure is off the published one.
    fn why_off(about: &About<'_>, figure: &Figure<'_, Self::Program>) -> &'static str;

    /// What has to be known about a figure that is near.
    fn why_reached(_figure: &Figure<'_, Self::Program>) -> Option<&'static str> {
        None
    }

    /// Why nothing can be said where all CPUs share one cache.
    const NOT_TESTABLE: &'static str;
}

/// A scenario in a few lines: bars, and a sentence.
pub(crate) struct Question {
    /// The simulated machine: the one that was measured on, or a large one.
    pub(crate) machine: &'static str,
    /// Which figures are meant, where there are several.
    pub(crate) config: Option<&'static str>,
    pub(crate) param: Option<(&'static str, &'static str)>,
    /// What the bars are of, in words, and the metric.
    pub(crate) about: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) variants: &'static [Variant],
    /// The figure that answers; `{}` in the sentence is where it goes.
    pub(crate) answer: (&'static str, Variant),
    pub(crate) sentence: &'static str,
}

/// What all figures of a result are compared with.
pub(crate) struct About<'a> {
    pub(crate) choice: &'a Choice,
    /// What was published about the machine that this runs on.
    pub(crate) published: Option<&'a Published>,
}

impl About<'_> {
    pub(crate) fn simulated(&self) -> bool {
        matches!(self.choice.world, World::Simulated { .. })
    }

    /// What was published, and where.
    pub(crate) fn figure<P: Program>(&self, metric: Metric, program: &P) -> Option<(f64, String)> {
        let published = self.published?;
        let (config, params) = (program.config(), program.params());
        published.figure(metric, config, &params, program.variant())
    }
}

/// A number of a program: at the default point, and at all points of the band; natively the median,
/// and the number of each round that was kept. The points of two programs correspond.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) value: f64,
    pub(crate) points: Vec<f64>,
}

impl Series {
    /// One over another, and point by point.
    pub(crate) fn over(&self, that: &Series) -> Series {
        let points = self.points.iter().zip(&that.points).map(|(this, that)| this / that);
        Series { value: self.value / that.value, points: points.collect() }
    }

    pub(crate) fn times(&self, factor: f64) -> Series {
        let points = self.points.iter().map(|point| point * factor).collect();
        Series { value: self.value * factor, points }
    }

    /// The lowest and the highest; NaN if one of them is.
    pub(crate) fn range(&self) -> (f64, f64) {
        claim::range(self.points.iter().copied().chain([self.value]))
    }
}

/// The numbers of a program.
#[derive(Debug)]
pub(crate) struct Measured<P> {
    pub(crate) program: P,
    /// How many last-level caches its CPUs have; 0 where that is not known.
    pub(crate) caches: usize,
    pub(crate) numbers: Vec<Series>,
    /// Natively how many rounds other load disturbed, so that they do not count; none where that
    /// is not known.
    pub(crate) discarded: Option<u32>,
}

/// Whether two programs that follow each other differ in their variant alone.
pub(super) fn differ_in_variant<P: Program>(this: &P, next: &P) -> bool {
    this.config() == next.config() && this.params() == next.params()
}

/// The program of a variant among those that differ in it alone.
pub(crate) fn of<P: Program>(all: &[Measured<P>], variant: Variant) -> Option<&Measured<P>> {
    all.iter().find(|measured| measured.program.variant() == variant)
}

/// A figure of a program, and what was published of it.
#[derive(Debug)]
pub(crate) struct Figure<'a, P> {
    pub(crate) of: &'a Measured<P>,
    pub(crate) metric: Metric,
    pub(crate) series: Series,
    pub(crate) published: Option<(f64, String)>,
}

impl<'a, P: Program> Figure<'a, P> {
    /// A figure, beside what was published under its own name.
    pub(crate) fn new(
        about: &About<'_>,
        of: &'a Measured<P>,
        metric: Metric,
        series: Series,
    ) -> Self {
        let published = about.figure(metric, &of.program);
        Figure { of, metric, series, published }
    }

    /// Whether it is larger than the published one.
    pub(crate) fn is_above(&self) -> bool {
        self.published.as_ref().is_some_and(|published| self.series.value > published.0)
    }
}

/// The configuration of this name on a machine.
fn config(spec: &Spec, name: &str) -> Result<Config, Error> {
    let mut configs = Config::all(spec.topology());
    let found = configs.iter().position(|config| config.name == name);
    found.map(|index| configs.swap_remove(index)).ok_or_else(|| Error::Config {
        asked: name.to_owned(),
        has: Config::all(spec.topology()).into_iter().map(|config| config.name).collect(),
    })
}
