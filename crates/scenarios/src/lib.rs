//! Programs that compare several ways to do one thing on a machine with many CPUs. Each of them is
//! a value of the type [`Scenario`], and a program that is generic over its world. So it runs
//! natively and on simulated machines.
//!
//! A scenario's parameters, variants and figures are data, next to the program that returns the
//! numbers. Notes are data next to the published figures. The command line, runs, replay lines,
//! rows and tables of the program `coreline` are derived from these data. [`CHANGES`] lists the
//! changes to Linux that scenarios show. The first page of `coreline` uses this list. [`simulate`]
//! runs a point of a scenario on a simulated machine. [`over_band`] and [`figures`] run points over
//! a band. A new scenario needs a module, a line in [`ALL`], and a document.
//!
//! | module | holds |
//! |---|---|
//! | [`param`], [`point`] | the parameters; a value for each of them, which defines a run |
//! | [`metric`], [`figure`] | what a figure measures; how it is computed |
//! | [`Source`] | the sources of published figures |
//! | [`Change`] | the five changes to Linux that the library brings to programs |
//! | [`config`] | the CPUs of a machine that take part |
//! | [`crew`] | the threads of a scenario, which wait for each other |
//! | [`kernel`] | the simulated kernel's work at a thread switch |
//! | [`idle`] | the idle loop of a kernel, for scenarios |
//! | each other module | one scenario: its exact program, and the parameters that we set |

mod change;
pub mod config;
pub mod crew;
pub mod execstorm;
pub mod filecopy;
pub mod idle;
pub mod intermittent;
pub mod ipistorm;
pub mod kernel;
pub mod kernlock;
pub mod lazymm;
pub mod lineops;
pub mod lockscale;
pub mod pingserve;
mod random;
pub mod readscale;
mod run;
pub mod rwsem;
mod scenario;
pub mod shootdown;
mod source;
pub mod switchstorm;
pub mod tenants;
pub mod threadstorm;

use coreline_topology::CpuId;

use crew::known;
use point::{Point, Setup};
use random::draw;

pub use change::{CHANGES, Change, Has, Natively, Shown};
pub use random::shuffle;
pub use run::{Done, Error, Simulated, default_line, explain, figures, lines, over_band, simulate};
pub use scenario::{Run, RunError, Scenario, Variant, Worlds, figure, metric, param, point};
pub use source::{SOURCES, Source};

/// All scenarios, in the order in which lists show them.
pub static ALL: [&Scenario; 15] = [
    &intermittent::SCENARIO,
    &switchstorm::SCENARIO,
    &shootdown::SCENARIO,
    &threadstorm::SCENARIO,
    &tenants::SCENARIO,
    &lockscale::SCENARIO,
    &readscale::SCENARIO,
    &filecopy::SCENARIO,
    &execstorm::SCENARIO,
    &ipistorm::SCENARIO,
    &pingserve::SCENARIO,
    &lazymm::SCENARIO,
    &kernlock::SCENARIO,
    &rwsem::SCENARIO,
    &lineops::SCENARIO,
];

// What asks the list of all: the types are below each scenario, and the list above.
impl Scenario {
    /// Returns the scenario with this name, if there is one.
    pub fn named(name: &str) -> Option<&'static Scenario> {
        ALL.into_iter().find(|scenario| scenario.name == name)
    }
}

impl Setup {
    /// Creates a run of a program on these CPUs, with seed 1.
    ///
    /// # Panics
    ///
    /// Panics if `program` is not a valid program of any scenario (see [`Point::parse`]).
    pub fn new(program: &str, cpus: impl IntoIterator<Item = u32>) -> Setup {
        let point = ALL.iter().find_map(|scenario| Point::parse(scenario, program));
        let point = point.unwrap_or_else(|| panic!("{program} is not a program"));
        Setup { point, cpus: cpus.into_iter().map(CpuId::new).collect(), seed: 1 }
    }
}

/// The example of README.md, unchanged.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
