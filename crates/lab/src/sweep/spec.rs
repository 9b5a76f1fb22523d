//! The specification of a sweep, and the cells that it names.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use coreline_scenarios::config::Config;
use coreline_scenarios::param::{Domain, Param, Value};
use coreline_scenarios::point::{Chosen, Point};
use coreline_scenarios::{ALL, Error as ScenarioError, Scenario, lines};
use coreline_sim::claim::Band;
use coreline_sim::{Arbitration, Machine, Replay, Spec, presets};
use serde::Deserialize;

use super::{Cell, SweepError, Task, cell::Machines};
use crate::error::Error;
use crate::run::Choice;
use crate::sweep_error::unknown;
use crate::world::World;

/// A value or a list of values.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a value or a list of values (whole numbers or text)")]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn list(self, name: &str) -> Result<Vec<T>, String> {
        match self {
            OneOrMany::One(one) => Ok(vec![one]),
            OneOrMany::Many(many) if many.is_empty() => {
                Err(format!("{name} is an empty list; leave it out, or give it a value"))
            }
            OneOrMany::Many(many) => Ok(many),
        }
    }
}

/// A value of a parameter, or a seed.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

impl Written {
    fn text(self) -> String {
        match self {
            Written::Number(number) => number.to_string(),
            Written::Text(text) => text,
        }
    }
}

/// The points of a machine's band that run for each seed.
#[derive(Deserialize, Clone, Copy, Default, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Cost {
    /// The default point alone.
    #[default]
    Point,
    /// Each request share.
    Shares,
    /// The whole band: each request share with 16 seeds, and each uncertain cost moved.
    Band,
}

/// A specification, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    scenario: String,
    machine: OneOrMany<String>,
    config: Option<OneOrMany<String>>,
    variant: Option<OneOrMany<String>>,
    seed: Option<OneOrMany<Written>>,
    #[serde(default)]
    cost: Cost,
    arbitration: Option<OneOrMany<String>>,
    #[serde(default)]
    quick: bool,
    #[serde(default)]
    params: BTreeMap<String, OneOrMany<Written>>,
}

/// A list of cells of one scenario, each once, in the order of the specification.
pub struct Sweep {
    pub(super) scenario: &'static Scenario,
    pub(super) machines: Machines,
    pub(super) files: Vec<String>,
    pub(super) keys: Vec<String>,
}

impl Sweep {
    /// Reads a specification from a TOML file. Paths of machine files in it are relative to its
    /// folder.
    ///
    /// # Errors
    ///
    /// [`SweepError::Spec`].
    pub fn from_file(path: &Path) -> Result<Sweep, SweepError> {
        let of = path.display().to_string();
        let wrong = |why: String| SweepError::Spec { of: of.clone(), why };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let raw: Raw = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let base = path.parent().unwrap_or_else(|| Path::new(""));
        Sweep::new(raw, base).map_err(wrong)
    }

    /// Reads a specification in the form of JSON, whose fields are those of the TOML file. Paths of
    /// machine files in it are relative to the process's folder.
    ///
    /// # Errors
    ///
    /// [`SweepError::Spec`].
    pub fn from_json(text: &str) -> Result<Sweep, SweepError> {
        let wrong = |why: String| SweepError::Spec { of: "the specification".to_owned(), why };
        let raw: Raw = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        Sweep::new(raw, Path::new("")).map_err(wrong)
    }

    /// Returns the keys of the cells.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Returns the name of the scenario.
    pub fn scenario(&self) -> &'static str {
        self.scenario.name
    }

    /// Returns the names of the columns of the rows, in order.
    pub fn columns(&self) -> Vec<String> {
        super::cell::columns(self.scenario).into_iter().map(|(name, _)| name).collect()
    }

    /// Returns the machines of the cells, for [`Row::failed`](super::Row::failed).
    pub fn machines(&self) -> &Machines {
        &self.machines
    }

    /// Creates the task that runs these cells of the sweep, for one of this many workers.
    pub fn task(&self, keys: Vec<String>, workers: usize) -> Task {
        Task::new(keys, self.files.clone(), workers)
    }

    fn new(raw: Raw, base: &Path) -> Result<Sweep, String> {
        let names = ALL.iter().map(|scenario| scenario.name);
        let scenario = Scenario::named(&raw.scenario)
            .ok_or_else(|| unknown("scenario", &raw.scenario, names))?;
        let grid = Grid {
            scenario,
            variants: list("variant", raw.variant)?,
            configs: list("config", raw.config)?,
            seeds: seeds(list("seed", raw.seed)?)?,
            cost: raw.cost,
            arbitrations: arbitrations(list("arbitration", raw.arbitration)?, raw.cost)?,
            quick: raw.quick,
            values: values(scenario, raw.params)?,
        };
        let mut sweep =
            Sweep { scenario, machines: Machines::default(), files: Vec::new(), keys: Vec::new() };
        let mut seen = BTreeSet::new();
        for asked in raw.machine.list("machine")? {
            let path = base.join(&asked);
            let spec = if presets().any(|preset| preset == asked) || !path.is_file() {
                Spec::preset(&asked).map_err(|error| Error::Machine(error).to_string())?
            } else {
                let text = std::fs::read_to_string(&path);
                let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
                let spec = Spec::parse(&path.display().to_string(), &text);
                sweep.files.push(text);
                spec.map_err(|error| error.to_string())?
            };
            for line in grid.lines(&spec)? {
                let key = line.to_string();
                if seen.insert(key.clone()) {
                    sweep.keys.push(key);
                }
            }
            sweep.machines.insert(spec);
        }
        if sweep.keys.is_empty() {
            let why = "it has no cells, because every number of threads exceeds the number of CPUs";
            return Err(why.to_owned());
        }
        Ok(sweep)
    }

    /// The number of CPUs that take part in a cell.
    pub(super) fn cpus(&self, cell: &Cell) -> usize {
        self.machines.cpus(cell)
    }
}

/// The values of a key; none if it was left out.
fn list<T>(name: &str, values: Option<OneOrMany<T>>) -> Result<Vec<T>, String> {
    values.map_or(Ok(Vec::new()), |values| values.list(name))
}

/// The parameters that are combined with each machine.
struct Grid {
    scenario: &'static Scenario,
    variants: Vec<String>,
    configs: Vec<String>,
    seeds: Vec<u64>,
    cost: Cost,
    arbitrations: Vec<Arbitration>,
    quick: bool,
    values: Chosen,
}

impl Grid {
    /// The replay lines on a machine, by seed and arbitration.
    fn lines(&self, spec: &Spec) -> Result<Vec<Replay>, String> {
        let points = self.points(spec)?;
        let runs = self.scenario.runs[usize::from(self.quick)];
        let mut all = Vec::new();
        for &seed in &self.seeds {
            let band = match self.cost {
                Cost::Band => Band::whole(spec, seed),
                Cost::Shares | Cost::Point => Band::quick(spec, seed),
            };
            let is_point = |line: &Replay| line.request_percent == Machine::REQUEST_PERCENT;
            for &arbitration in &self.arbitrations {
                let band = band.clone().under(arbitration);
                let lines = lines(&band, &points, runs);
                all.extend(lines.filter(|line| self.cost != Cost::Point || is_point(line)));
            }
        }
        Ok(all)
    }

    fn points(&self, spec: &Spec) -> Result<Vec<Point>, String> {
        let Grid { scenario, quick, .. } = *self;
        let asked = spec.name().to_owned();
        let mut choice = Choice {
            scenario,
            world: World::Simulated { spec: Box::new(spec.clone()), asked },
            seed: 1,
            band: false,
            arbitration: None,
            overlap: None,
            quick,
            configs: self.configs.iter().filter(|it| *it != "all").cloned().collect(),
            variants: self.variants.clone(),
            values: self.values.clone(),
            whole: None,
        };
        let (cpus, most) = (spec.topology().cpu_limit(), scenario.most_cpus);
        if cpus > most {
            let machine = spec.name().to_owned();
            let error = ScenarioError::TooManyCpus { machine, cpus, scenario: scenario.name, most };
            return Err(error.to_string());
        }
        let has = Config::all(spec.topology());
        if self.configs.iter().any(|config| config == "all") {
            choice.configs.extend(has.iter().map(|config| config.name.clone()));
        }
        let configs = choice.configs(has).map_err(|error| error.to_string())?;
        // One at a time, which is then the default.
        choice.configs.clear();
        let mut points = Vec::new();
        for config in configs {
            // A grid over several machines names more threads than the small ones have CPUs.
            let most = config.cpus.len() as u64;
            choice.values.clone_from(&self.values);
            for param in scenario.params.iter().filter(|it| matches!(it.domain, Domain::Cpus(_))) {
                if let Some(values) = choice.values.get_mut(param.name) {
                    values.retain(|value| !matches!(value, Value::Number(it) if *it > most));
                }
            }
            let all = choice.points(vec![config]).map_err(|error| error.to_string())?;
            points.extend(all.into_iter().map(|(_, point)| point));
        }
        Ok(points)
    }
}

/// The largest number of seeds of a range, and a bound of seeds: the last seed of a band times 1000
/// fits into a word.
const MOST_SEEDS: (u64, u64) = (1 << 20, u64::MAX / 1000 - Band::SEEDS);

/// Numbers, and ranges as in Rust: `3`, `"0..16"`. The default is seed 1.
fn seeds(written: Vec<Written>) -> Result<Vec<u64>, String> {
    let mut all = Vec::new();
    for seed in written {
        let text = seed.text();
        let range = range(&text).ok_or_else(|| {
            format!("the seed {text:?} is neither a number nor a range such as \"0..16\"")
        })?;
        if range.is_empty() {
            return Err(format!("the range of seeds {text:?} is empty"));
        }
        if range.end - range.start > MOST_SEEDS.0 || range.end > MOST_SEEDS.1 {
            let (most, largest) = (MOST_SEEDS.0, MOST_SEEDS.1 - 1);
            return Err(format!(
                "the seeds {text:?} are too many or too large: a range has at most {most} seeds, \
                 and a seed is at most {largest}"
            ));
        }
        all.extend(range);
    }
    if all.is_empty() {
        all.push(1);
    }
    Ok(all)
}

fn range(text: &str) -> Option<Range<u64>> {
    let (from, to) = match text.split_once("..") {
        None => (text, text),
        Some((from, to)) => (from, to.strip_prefix('=').unwrap_or(to)),
    };
    let is_open = text.contains("..") && !text.contains("..=");
    let (from, to) = (from.parse().ok()?, to.parse::<u64>().ok()?);
    Some(from..if is_open { to } else { to.checked_add(1)? })
}

/// A whole band has each by default, as that of `coreline run`.
fn arbitrations(names: Vec<String>, cost: Cost) -> Result<Vec<Arbitration>, String> {
    let parsed: Result<Vec<Arbitration>, _> = names.iter().map(|name| name.parse()).collect();
    let mut all = parsed.map_err(|error| error.to_string())?;
    match cost {
        _ if !all.is_empty() => (),
        Cost::Band => all.extend(Arbitration::ALL),
        Cost::Point | Cost::Shares => all.push(Arbitration::default()),
    }
    Ok(all)
}

fn values(
    scenario: &'static Scenario,
    written: BTreeMap<String, OneOrMany<Written>>,
) -> Result<Chosen, String> {
    let mut chosen = Chosen::new();
    for (name, values) in written {
        let options = || scenario.options().map(|param| param.name);
        let param: &Param = scenario
            .options()
            .find(|param| param.name == name)
            .ok_or_else(|| unknown(&format!("parameter of {}", scenario.name), &name, options()))?;
        let of = |text: String| {
            let form = param.form();
            param.parse(&text).ok_or_else(|| format!("{name} cannot be {text:?}; expected {form}"))
        };
        let values: Result<Vec<Value>, String> =
            values.list(&name)?.into_iter().map(|value| of(value.text())).collect();
        chosen.insert(param.name, values?);
    }
    Ok(chosen)
}
