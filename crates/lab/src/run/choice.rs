//! The part of a scenario that runs, where it runs, and how thoroughly.

use coreline_scenarios::config::Config;
use coreline_scenarios::param::Role;
use coreline_scenarios::point::{Chosen, Point};
use coreline_scenarios::{Error as ScenarioError, Scenario};
use coreline_sim::claim::Band;
use coreline_sim::{Arbitration, Overlap, Spec};

use crate::error::Error;
use crate::progress::{Progress, Whole, progress};
use crate::world::World;

#[derive(Clone)]
pub(crate) struct Choice {
    pub(crate) scenario: &'static Scenario,
    pub(crate) world: World,
    pub(crate) seed: u64,
    /// The whole band, instead of the request shares alone.
    pub(crate) band: bool,
    /// Alone. None: the default one or, in a whole band, each.
    pub(crate) arbitration: Option<Arbitration>,
    /// None: the default.
    pub(crate) overlap: Option<Overlap>,
    pub(crate) quick: bool,
    /// None: the usual ones. So of the next.
    pub(crate) configs: Vec<String>,
    pub(crate) variants: Vec<String>,
    pub(crate) values: Chosen,
    /// The group of runs to which this run belongs.
    pub(crate) whole: Option<Whole>,
}

impl Choice {
    /// Chooses the quick form of a scenario in a world, as the next run of `whole`.
    pub(crate) fn quick(scenario: &'static Scenario, world: World, whole: &mut Whole) -> Choice {
        let (configs, variants, values) = (Vec::new(), Vec::new(), Chosen::new());
        let (seed, band, quick, whole) = (1, false, true, Some(whole.next()));
        let (arbitration, overlap) = (None, None);
        Choice {
            scenario,
            world,
            seed,
            band,
            arbitration,
            overlap,
            quick,
            configs,
            variants,
            values,
            whole,
        }
    }

    pub(super) fn natively(&self) -> bool {
        matches!(self.world, World::Native)
    }

    /// The points of a machine at which it runs.
    pub(super) fn band_of(&self, spec: &Spec) -> Band {
        let band = if self.band { Band::whole } else { Band::quick }(spec, self.seed);
        let band = band.overlapping(self.overlap.unwrap_or_default());
        match self.arbitration {
            Some(arbitration) => band.under(arbitration),
            None => band,
        }
    }

    /// The arbitrations of these points, by name.
    pub(super) fn arbitrations(&self, spec: &Spec) -> Vec<String> {
        let band = self.band_of(spec);
        let is_there = |it: &Arbitration| band.points().iter().any(|at| at.arbitration == *it);
        Arbitration::ALL.into_iter().filter(is_there).map(|it| it.to_string()).collect()
    }

    pub(super) fn progress(&self, runs: usize) -> Progress {
        let what = format!("{} on {}", self.scenario.name, self.world.name());
        match &self.whole {
            Some(whole) => whole.progress(&what, runs),
            None => progress(&what, runs),
        }
    }

    /// The world's variants that were chosen, in the order of rows.
    fn variants(&self) -> Result<Vec<&'static str>, Error> {
        let mut has = self.scenario.variants(self.natively());
        if let Some(asked) = self.variants.iter().find(|asked| !has.contains(&&***asked)) {
            let world = self.world.name().to_owned();
            let (asked, scenario) = (asked.clone(), self.scenario.name);
            return Err(ScenarioError::Variant { asked, scenario, world, has }.into());
        }
        has.retain(|has| self.variants.is_empty() || self.variants.iter().any(|it| it == has));
        Ok(has)
    }

    /// The world's configurations that were chosen, in the world's order.
    pub(crate) fn configs(&self, mut has: Vec<Config>) -> Result<Vec<Config>, Error> {
        let (configs, names) = (&self.configs, has.iter().map(|config| config.name.clone()));
        let names: Vec<_> = names.collect();
        if let Some(unknown) = configs.iter().find(|name| !names.contains(name)) {
            return Err(ScenarioError::Config { asked: unknown.clone(), has: names }.into());
        }
        if configs.is_empty() && !self.scenario.all_configs {
            return Ok(has.split_off(has.len().saturating_sub(1)));
        }
        has.retain(|config| configs.is_empty() || configs.contains(&config.name));
        Ok(has)
    }

    /// All that runs, with its configuration: a configuration's values, their variants.
    pub(crate) fn points(&self, has: Vec<Config>) -> Result<Vec<(Config, Point)>, Error> {
        let natively = self.natively();
        let mut chosen = self.scenario.options().filter(|it| self.values.contains_key(it.name));
        if let Some(param) = chosen.find(|it| natively && it.role == Role::Kernel) {
            return Err(Error::KernelNatively { option: param.name });
        }
        if natively && self.arbitration.is_some() {
            let about = "how a simulated machine serves a contended line";
            return Err(Error::MachineNatively { option: "arbitration", about });
        }
        if natively && self.overlap.is_some() {
            let about = "whether accesses overlap on a simulated machine";
            return Err(Error::MachineNatively { option: "overlap", about });
        }
        let (variants, form) = (self.variants()?, (self.quick, natively));
        let mut all = Vec::new();
        for config in self.configs(has)? {
            let points = self.scenario.points(&config, &variants, &self.values, form);
            let (name, cpus) = (config.name.clone(), config.cpus.len());
            let points = points.map_err(|(param, asked)| Error::TooMany {
                asked,
                param,
                config: name,
                cpus,
            })?;
            all.extend(points.into_iter().map(|point| (config.clone(), point)));
        }
        Ok(all)
    }

    pub(super) fn command(&self) -> String {
        let Choice { world, seed, band, arbitration, overlap, quick, configs, .. } = self;
        let name = self.scenario.name;
        let mut command = format!("coreline run {name} --world {} --seed {seed}", world.asked());
        command += if *band { " --band" } else { "" };
        arbitration.iter().for_each(|name| command += &format!(" --arbitration {name}"));
        overlap.iter().for_each(|name| command += &format!(" --overlap {name}"));
        command += if *quick { " --quick" } else { "" };
        self.variants.iter().for_each(|variant| command += &format!(" --variant {variant}"));
        for param in self.scenario.options() {
            let values = self.values.get(param.name).into_iter().flatten();
            values.for_each(|value| command += &format!(" --{} {value}", param.name));
        }
        configs.iter().for_each(|config| command += &format!(" --config {config}"));
        command
    }
}
