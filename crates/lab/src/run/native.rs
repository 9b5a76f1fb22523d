//! All runs of a scenario on this machine, one after the other.

use std::io::{self, Write};

use coreline_topology::{CpuId, Topology};
use coreline_world::native::probe;

use super::plan::{Measured, Plan, Series};
use super::{Choice, mean, progress};
use crate::error::Error;
use crate::scenario::{Config, Program};

/// What the quick form takes at most, so that it ends within seconds on any machine.
const QUICK_CPUS: usize = 32;

/// Runs all programs. Those of variants that this machine lacks are left out with a note, unless
/// nothing else was asked for.
pub(super) fn measure<P: Plan>(choice: &Choice) -> Result<Vec<Measured<P::Program>>, Error> {
    let machine = probe();
    let is_known = machine.topology_error.is_none();
    let allowed = machine.allowed.map_err(Error::NoCpus)?;
    let most = if choice.quick { QUICK_CPUS } else { usize::MAX };
    let cpus: Vec<CpuId> = allowed.iter().take(most).collect();
    let mut programs = choice.programs::<P>(vec![config(&machine.topology, is_known, cpus)])?;
    let lack = |(_, program): &(Config, P::Program)| P::lack(program.variant());
    if programs.iter().any(|program| lack(program).is_none())
        && let Some(lacks) = programs.iter().find_map(lack)
    {
        programs.retain(|program| lack(program).is_none());
        // A note: the result says by itself which rows it has.
        let _ = writeln!(io::stderr(), "coreline: left out: {lacks}");
    }
    let runs = P::runs(choice);
    let bar = progress("native", programs.len() * runs as usize);
    let mut measured = Vec::with_capacity(programs.len());
    for (config, program) in programs {
        let mut numbers = Vec::new();
        for run in 0..runs {
            let seed = choice.seed.wrapping_add(run);
            let natively = P::natively(&config, &program, seed);
            let broken = |broken| Error::BrokenNatively { scenario: P::SCENARIO, broken };
            numbers.push(natively.map_err(broken)?);
            bar.inc(1);
        }
        let caches = config.caches;
        measured.push(Measured { program, caches, numbers: series(&numbers) });
    }
    bar.finish_and_clear();
    Ok(measured)
}

/// A tree that was made up says nothing of caches.
fn config(topology: &Topology, is_known: bool, cpus: Vec<CpuId>) -> Config {
    if is_known { Config::of(topology, cpus) } else { Config::of_unknown(cpus) }
}

/// By number, over the runs.
fn series(runs: &[Vec<f64>]) -> Vec<Series> {
    let numbers = runs.first().map_or(0, Vec::len);
    let of = |number| {
        let points: Vec<f64> = runs.iter().map(|run: &Vec<f64>| run[number]).collect();
        Series { value: mean(&points), points }
    };
    (0..numbers).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_was_made_up_says_nothing_of_caches() {
        let topology = Topology::flat(&"0-1".parse().unwrap()).unwrap();
        let cpus = || [0, 1].map(CpuId::new).to_vec();
        let known = config(&topology, true, cpus());
        assert_eq!((known.name.as_str(), known.caches), ("2-core/1-L3", 1));
        let unknown = config(&topology, false, cpus());
        assert_eq!((unknown.name.as_str(), unknown.caches), ("2-CPU", 0));
    }
}
