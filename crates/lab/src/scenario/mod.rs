//! Scenarios: each is one value, [`Scenario`], and a program that is generic over its world.
//!
//! A scenario's parameters, variants, figures and question are data, beside the program that gives
//! the numbers; notes are, beside what was published. The command line, what runs, replay lines,
//! rows, tables and the answer of the default run follow from them. A new scenario is a module, a
//! line of [`ALL`], and its document.
//!
//! | module | holds |
//! |---|---|
//! | [`param`], [`point`] | what can be varied; a value for each, which is a program |
//! | [`metric`], [`figure`] | what a figure is of; how it is made |
//! | [`idle`] | the idle loop of a kernel, for scenarios |
//! | the others | a scenario each |

mod execstorm;
pub(crate) mod figure;
mod filecopy;
mod idle;
mod intermittent;
mod ipistorm;
mod kernlock;
mod lazymm;
mod lockscale;
pub(crate) mod metric;
pub(crate) mod param;
mod pingserve;
pub(crate) mod point;
mod rwsem;
mod shootdown;
mod switchstorm;
mod tenants;
mod threadstorm;

use coreline_sim::Report;
use coreline_topology::CpuId;
use coreline_world::{Place, SpawnError, Testbed};
use rand_core::Rng;
use rand_pcg::Pcg64;

use figure::Figure;
use param::Param;
use point::{Point, Setup};

/// All scenarios, in the order of the default run.
pub(crate) static ALL: [&Scenario; 13] = [
    &intermittent::SCENARIO,
    &switchstorm::SCENARIO,
    &shootdown::SCENARIO,
    &threadstorm::SCENARIO,
    &tenants::SCENARIO,
    &lockscale::SCENARIO,
    &filecopy::SCENARIO,
    &execstorm::SCENARIO,
    &ipistorm::SCENARIO,
    &pingserve::SCENARIO,
    &lazymm::SCENARIO,
    &kernlock::SCENARIO,
    &rwsem::SCENARIO,
];

/// Gives the numbers of a run, in the order that figures count them by.
pub(crate) type Run = fn(&Setup) -> Result<Vec<f64>, RunError>;

/// A scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What it is, in a line.
    pub(crate) about: &'static str,
    /// In the order of programs.
    pub(crate) params: &'static [Param],
    /// In the order of rows.
    pub(crate) variants: &'static [Variant],
    pub(crate) figures: &'static [Figure],
    /// Whether what was published contains something that decides this metric at this point and is
    /// not modelled, so that no more than a direction can be confirmed.
    pub(crate) limited: fn(&str, &Point) -> bool,
    /// Why nothing can be said where all CPUs share one cache.
    pub(crate) not_testable: &'static str,
    pub(crate) question: Question,
    /// The file of what was published about it, if anything was, with notes on what is off.
    pub(crate) published: Option<&'static str>,
    pub(crate) native: Run,
    pub(crate) simulated: Run,
    /// Whether simulated runs take full statistics.
    pub(crate) statistics: bool,
    /// Further numbers, from the report of a simulated run.
    pub(crate) report: fn(&Report, &mut Vec<f64>),
    /// A replayed run in words; if not, all numbers that are figures.
    pub(crate) told: Option<fn(&[f64]) -> String>,
    /// Whether all configurations run if none is chosen, and not only that with all CPUs.
    pub(crate) all_configs: bool,
    /// How many simulated runs a number is the mean of; one where the band has seeds enough. The
    /// second for the quick form.
    pub(crate) runs: [u64; 2],
    /// The most CPUs of a machine whose memory a simulated run fits into.
    pub(crate) most_cpus: usize,
}

impl Scenario {
    /// With two runs of the program: native, and simulated.
    pub(crate) const fn new(name: &'static str, about: &'static str, runs: [Run; 2]) -> Scenario {
        Scenario {
            name,
            about,
            params: &[],
            variants: &[],
            figures: &[],
            limited: |_, _| false,
            not_testable: "all CPUs share one L3 and are few: no evidence on what more would cost",
            question: Question::NONE,
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

    pub(crate) fn named(name: &str) -> Option<&'static Scenario> {
        ALL.into_iter().find(|scenario| scenario.name == name)
    }

    /// The parameters that are chosen on the command line.
    pub(crate) fn options(&self) -> impl Iterator<Item = &'static Param> + use<> {
        self.params.iter().filter(|param| param.is_option())
    }

    /// A parameter that it declares.
    pub(crate) fn param(&self, name: &str) -> &'static Param {
        let param = self.params.iter().find(|param| param.name == name);
        param.unwrap_or_else(|| panic!("{} declares no {name}", self.name))
    }

    pub(crate) fn variant(&self, name: &str) -> Option<&'static Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// The variants of a world.
    pub(crate) fn variants(&self, natively: bool) -> Vec<&'static str> {
        let other = if natively { Only::Simulated } else { Only::Native };
        let here = self.variants.iter().filter(|variant| variant.only != other);
        here.map(|variant| variant.name).collect()
    }

    /// The result of a replayed run.
    pub(crate) fn tell(&self, numbers: &[f64]) -> String {
        if let Some(told) = self.told {
            return told(numbers);
        }
        let told = self.figures.iter().filter_map(|figure| figure.tell(numbers));
        told.collect::<Vec<_>>().join(", ")
    }
}

/// Which worlds have a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    Neither,
    Native,
    Simulated,
}

/// An alternative that a scenario compares.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    /// What it is, for the help.
    pub(crate) about: &'static str,
    pub(crate) only: Only,
    /// The policy of the simulated kernel's concurrency IDs, if the scenario installs one.
    pub(crate) policy: Option<&'static str>,
    /// What this machine lacks for it, though the native world has it.
    pub(crate) lacks: fn() -> Option<RunError>,
}

impl Variant {
    /// In both worlds.
    pub(crate) const fn new(name: &'static str, about: &'static str) -> Variant {
        Variant { name, about, only: Only::Neither, policy: None, lacks: || None }
    }

    /// Simulated, under a kernel with the policy of this name.
    pub(crate) const fn simulated(name: &'static str, about: &'static str) -> Variant {
        Variant { policy: Some(name), ..Variant::new(name, about).only(Only::Simulated) }
    }

    /// In one of them.
    pub(crate) const fn only(self, only: Only) -> Variant {
        Variant { only, ..self }
    }
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
    pub(crate) variants: &'static [&'static str],
    /// The metric and variant that answer; `{}` in the sentence is where the figure goes.
    pub(crate) answer: (&'static str, &'static str),
    pub(crate) sentence: &'static str,
}

impl Question {
    const NONE: Question = Question {
        machine: "epyc-9654-2s",
        config: None,
        param: None,
        about: "",
        metric: "",
        variants: &[],
        answer: ("", ""),
        sentence: "",
    };

    /// Whether the default run asks it. It has room for five.
    pub(crate) fn is_asked(&self) -> bool {
        !self.metric.is_empty()
    }
}

/// A number below `below`, all alike but for a bias of less than 2^-32.
fn draw(dice: &mut Pcg64, below: usize) -> usize {
    // The high half of a 64 x 64 bit product.
    ((u128::from(dice.next_u64()) * below as u128) >> 64) as usize
}

/// Puts items into a random order (Fisher and Yates).
pub(crate) fn shuffle<T>(items: &mut [T], dice: &mut Pcg64) {
    for last in (1..items.len()).rev() {
        items.swap(last, draw(dice, last + 1));
    }
}

/// Whether the machine says where all of these CPUs are.
///
/// # Errors
///
/// [`RunError::Lack`] if it does not.
fn known<W: Testbed>(cpus: &[CpuId]) -> Result<(), RunError> {
    let topology = <W as Place>::topology();
    match cpus.iter().find(|&&cpu| topology.cpu(cpu).is_none()) {
        Some(cpu) => {
            let lacks = format!("the machine has no {cpu}, or does not say where it is");
            Err(RunError::Lack(lacks))
        }
        None => Ok(()),
    }
}

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The world cannot do this.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The world cannot do this.
    #[error("{0}")]
    Lack(String),
    /// The run's own check failed.
    #[error("{0}")]
    Check(String),
}

#[cfg(test)]
mod tests {
    use coreline_sim::Machine;
    use coreline_world::{JoinHandle, Native, Placement, Threads};

    use super::figure::Made;
    use super::point::Chosen;
    use super::*;
    use crate::config::Config;

    /// Whatever a scenario's data name is there.
    #[test]
    fn what_data_name_is_declared() {
        for scenario in ALL {
            let Question { metric, variants, answer, param, .. } = &scenario.question;
            let metrics: Vec<_> = scenario.figures.iter().map(|it| it.metric.name).collect();
            if scenario.question.is_asked() {
                assert!(metrics.contains(metric) && metrics.contains(&answer.0), "{metrics:?}");
            }
            let beside = scenario.figures.iter().filter_map(|figure| match figure.made {
                Made::Over(_, variant) | Made::Under(_, variant) => Some(variant),
                _ => None,
            });
            let answered = scenario.question.is_asked().then_some(answer.1);
            for name in variants.iter().copied().chain(answered).chain(beside) {
                assert!(scenario.variant(name).is_some(), "{} has no {name}", scenario.name);
            }
            let config = Config::of_unknown(vec![CpuId::new(0)]);
            let points = scenario.points(&config, &["none"], &Chosen::new(), (true, false));
            let params = points.ok().unwrap()[0].params();
            for param in scenario.params {
                for text in param.usual.iter().chain(param.quick).filter(|text| **text != "all") {
                    assert!(param.parse(text).is_some(), "{}: {text}", param.name);
                }
            }
            assert!(param.is_none_or(|(name, _)| params.contains_key(name)), "{}", scenario.name);
        }
    }

    #[test]
    fn documents_say_how_many_scenarios_there_are_and_how_many_are_asked() {
        let words = "none one two three four five six seven eight nine ten eleven twelve thirteen \
                     fourteen fifteen sixteen seventeen eighteen nineteen twenty";
        let word = |count: usize| words.split(' ').nth(count).unwrap();
        let all = format!("{} scenarios", word(ALL.len()));
        let asked = ALL.iter().filter(|it| it.question.is_asked()).count();
        let asked = format!("an answer for each of {} scenarios", word(asked));
        for text in [
            include_str!("../../../../README.md"),
            include_str!("../../../../CHANGELOG.md"),
            include_str!("../../README.md"),
        ] {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(&all) && text.contains(&asked), "{all}, {asked}: {text}");
        }
        let help = include_str!("../cli/mod.rs").replace("\n///", "");
        assert!(help.contains(&asked), "{asked}: {help}");
    }

    /// The first quick point of each variant of a world.
    fn quick(natively: bool, cpus: &[CpuId]) -> Vec<Setup> {
        let config = Config::of_unknown(cpus.to_vec());
        let of = |scenario: &'static Scenario| {
            let variants = scenario.variants(natively);
            let points = scenario.points(&config, &variants, &Chosen::new(), (true, natively));
            points.ok().unwrap().into_iter().take(variants.len())
        };
        let setup = |point| Setup { point, cpus: cpus.to_vec(), seed: 1 };
        ALL.into_iter().flat_map(of).map(setup).collect()
    }

    const ROUNDS: usize = 20;

    #[test]
    fn every_variant_runs_natively_with_the_same_code() {
        // Two CPUs where this process may use two: some call from one to the other.
        let usable = |cpu: &CpuId| {
            let thread = Native::spawn(Placement::On(*cpu), || ());
            thread.map(JoinHandle::join).is_ok()
        };
        let topology = Native::topology();
        let cpus: Vec<_> = topology.cpus().map(|cpu| cpu.id).filter(usable).take(2).collect();
        for setup in quick(true, &cpus) {
            if (setup.scenario.variant(setup.variant).unwrap().lacks)().is_some() {
                continue;
            }
            // The kernel may take a CPU for longer than a window, in which nothing is counted then:
            // `run` discards such a round, or takes the median of it and others. A program that
            // counts nothing does so in every round.
            let counts_something = (0..ROUNDS).any(|_| {
                let numbers = match (setup.scenario.native)(&setup) {
                    Err(RunError::Lack(_)) if cpus.len() == 1 => return true,
                    came => came.unwrap(),
                };
                assert!(numbers.iter().all(|it| it.is_finite() && *it >= 0.0), "{}", setup.point);
                numbers.iter().any(|it| *it > 0.0)
            });
            assert!(counts_something, "{}: 0 in {ROUNDS} rounds", setup.point);
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_a_lack_and_every_thread_ends() {
        for setup in quick(false, &[0, 1, 120].map(CpuId::new)) {
            let (program, run) = (setup.point.to_string(), setup.scenario.simulated);
            let machine = Machine::preset("ivybridge-ex-4s").unwrap().step_limit(5_000_000);
            let value = machine.run(move || run(&setup)).unwrap().value;
            assert!(!matches!(value, Ok(_) | Err(RunError::Check(_))), "{program}: {value:?}");
        }
    }

    #[test]
    fn an_order_is_a_permutation_and_depends_on_the_seed() {
        let draw = |seed: u128| {
            let mut order: Vec<usize> = (0..384).collect();
            shuffle(&mut order, &mut Pcg64::new(seed, 0));
            order
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mut sorted = draw(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..384).collect::<Vec<_>>());
    }
}
