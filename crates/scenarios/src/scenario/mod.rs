//! [`Scenario`]: what a scenario varies, measures and shows, as data.

pub mod figure;
pub mod metric;
pub mod param;
pub mod point;

use coreline_sim::Report;
use coreline_world::SpawnError;

use figure::Figure;
use param::Param;
use point::{Point, Setup};

/// A function that runs a program, and returns its numbers in the order to which figures refer.
pub type Run = fn(&Setup) -> Result<Vec<f64>, RunError>;

/// A scenario.
pub struct Scenario {
    /// The name in results, on command lines and in replay lines.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// The parameters, in the order of replay lines.
    pub params: &'static [Param],
    /// The variants, in the order of rows.
    pub variants: &'static [Variant],
    /// The figures, in the order of rows.
    pub figures: &'static [Figure],
    /// Whether the published figure depends, for this metric at this point, on an effect that is
    /// not modelled. Then a run can confirm only the direction of the result.
    pub limited: fn(&str, &Point) -> bool,
    /// The reason why a run shows no difference if all CPUs share one cache.
    pub not_testable: &'static str,
    /// The text of the TOML file with published figures and notes, if any.
    pub published: Option<&'static str>,
    /// The function that runs the program on this machine.
    pub native: Run,
    /// The function that runs the program on the simulated machine in which the caller runs.
    pub simulated: Run,
    /// Whether simulated runs record full statistics.
    pub statistics: bool,
    /// A function that adds further numbers from the report of a simulated run.
    pub report: fn(&Report, &mut Vec<f64>),
    /// A function that describes a replayed run in words. If it is `None`, the description lists
    /// all numbers that are figures.
    pub told: Option<fn(&[f64]) -> String>,
    /// Whether all configurations run by default, rather than only the configuration with all CPUs.
    pub all_configs: bool,
    /// The number of simulated runs that are averaged. It is 1 if the band has enough seeds. The
    /// second value is for the quick form.
    pub runs: [u64; 2],
    /// The largest number of CPUs of a machine for which a simulated run fits into memory.
    pub most_cpus: usize,
}

impl Scenario {
    /// Creates a scenario from its two runs, native and simulated.
    pub const fn new(name: &'static str, about: &'static str, runs: [Run; 2]) -> Scenario {
        Scenario {
            name,
            about,
            params: &[],
            variants: &[],
            figures: &[],
            limited: |_, _| false,
            not_testable: "all CPUs share one L3 and are few: no evidence about more CPUs",
            published: None,
            native: runs[0],
            simulated: runs[1],
            statistics: false,
            report: |_, _| (),
            told: None,
            all_configs: false,
            runs: [1, 1],
            most_cpus: usize::MAX,
        }
    }

    /// Returns the parameters that the user can choose on the command line.
    pub fn options(&self) -> impl Iterator<Item = &'static Param> + use<> {
        self.params.iter().filter(|param| param.is_option())
    }

    /// Returns a parameter that the scenario declares.
    ///
    /// # Panics
    ///
    /// Panics if the scenario declares no parameter with this name.
    pub fn param(&self, name: &str) -> &'static Param {
        let param = self.params.iter().find(|param| param.name == name);
        param.unwrap_or_else(|| panic!("{} declares no {name}", self.name))
    }

    /// Returns the variant with this name, if the scenario has one.
    pub fn variant(&self, name: &str) -> Option<&'static Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// Returns the variants of a world.
    pub fn variants(&self, natively: bool) -> Vec<&'static str> {
        let other = if natively { Worlds::Simulated } else { Worlds::Native };
        let here = self.variants.iter().filter(|variant| variant.worlds != other);
        here.map(|variant| variant.name).collect()
    }

    /// Returns the result of a replayed run, in words.
    pub fn tell(&self, numbers: &[f64]) -> String {
        if let Some(told) = self.told {
            return told(numbers);
        }
        let told = self.figures.iter().filter_map(|figure| figure.tell(numbers));
        told.collect::<Vec<_>>().join(", ")
    }
}

/// The worlds that have a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worlds {
    /// Both worlds have the variant.
    Both,
    /// Only the native world has the variant.
    Native,
    /// Only simulated machines have the variant.
    Simulated,
}

/// An alternative that a scenario compares.
pub struct Variant {
    /// The name in results, on command lines and in replay lines.
    pub name: &'static str,
    /// The description in the help text.
    pub about: &'static str,
    /// The worlds that have the variant.
    pub worlds: Worlds,
    /// The policy of the simulated kernel's concurrency IDs, if the scenario installs one.
    pub policy: Option<&'static str>,
    /// A function that returns an error if this machine lacks a feature that the variant needs,
    /// although the native world has the feature.
    pub lacks: fn() -> Option<RunError>,
}

impl Variant {
    /// Creates a variant of both worlds.
    pub const fn new(name: &'static str, about: &'static str) -> Variant {
        Variant { name, about, worlds: Worlds::Both, policy: None, lacks: || None }
    }

    /// Creates a simulated variant, under a kernel with the policy of this name.
    pub const fn simulated(name: &'static str, about: &'static str) -> Variant {
        Variant { policy: Some(name), ..Variant::new(name, about).only(Worlds::Simulated) }
    }

    /// Limits the variant to one of the worlds.
    pub const fn only(self, worlds: Worlds) -> Variant {
        Variant { worlds, ..self }
    }
}

/// The reason why a run returned no numbers.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A thread could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The world lacks a feature or resource that the run needs.
    #[error("{0}")]
    Lack(String),
    /// The run's own check failed.
    #[error("{0}")]
    Check(String),
}
