//! The plan of `switchstorm`.

use core::time::Duration;

use coreline_sim::{LineCost, Machine, Replay, Report, Sim, Spec, Statistics};
use coreline_world::Native;

use super::{About, Figure, Measured, Metric, Plan, Question, Series, of};
use crate::error::Error;
use crate::run::Choice;
use crate::run::verdict::FigureKind;
use crate::scenario::switchstorm::{
    Storms, SwitchstormParams, SwitchstormProgram, Wake, is_mask, is_references, switchstorm,
};
use crate::scenario::{Config, RunError, Scenario, Variant};
use crate::world::World;

/// Periods in microseconds if nothing is said. Those of `barrier` change nothing about its
/// operations, which meet whatever came before.
const BARRIER_PERIODS: [u64; 1] = [25];
const INDEPENDENT_PERIODS: [u64; 2] = [10, 25];

/// Microseconds between flushes if nothing is said: a thousand a second, declared.
const FLUSH_US: u64 = 1000;

const ROUNDS: u32 = 200;

/// The same for the quick form.
const QUICK_ROUNDS: u32 = 40;

/// The numbers of a run, in this order. Those of lines are had in the simulator alone.
const OP: usize = 0;
const PATH_SHARE: usize = 1;
const SPREAD: usize = 2;
const RATE: usize = 3;
const PEAK_RATE: usize = 4;
const LINE_RANK: usize = 5;
const LINE_SHARE: usize = 6;

const OP_NS: Metric = Metric { name: "op_ns", kind: FigureKind::Nanoseconds };
const OP_CYCLES: Metric = Metric { name: "op_cycles", kind: FigureKind::Cycles };
const OP_SPEEDUP: Metric = Metric { name: "op_speedup", kind: FigureKind::ContendedRatio };
const SWITCH_SHARE: Metric = Metric { name: "switch_share", kind: FigureKind::Percent };
const RANK: Metric = Metric { name: "line_rank", kind: FigureKind::Rank };
const MISS_SHARE: Metric = Metric { name: "line_miss_share", kind: FigureKind::Percent };
const THROUGHPUT: Metric = Metric { name: "throughput", kind: FigureKind::Gain };
const PEAK_THROUGHPUT: Metric = Metric { name: "peak_throughput", kind: FigureKind::Gain };
const WAKE_SPREAD: Metric = Metric { name: "wake_spread_ns", kind: FigureKind::Nanoseconds };

const VARIANTS: [Variant; 5] =
    [Variant::AlwaysSet, Variant::TestFirst, Variant::Lazy, Variant::Refcounted, Variant::TwoLevel];

pub(crate) struct Switchstorm;

impl Plan for Switchstorm {
    const SCENARIO: Scenario = Scenario::Switchstorm;
    const QUESTION: Question = Question {
        machine: "ivybridge-ex-4s",
        config: None,
        param: Some(("wake", "barrier")),
        about: "marking the CPU at a switch",
        metric: OP_NS.name,
        variants: &[Variant::AlwaysSet, Variant::TestFirst, Variant::TwoLevel],
        answer: (OP_SPEEDUP.name, Variant::TestFirst),
        sentence: "a test before it is {} as fast as a locked set",
    };
    const OPTIONS: &'static [&'static str] = &["--wake", "--period", "--path", "--flush"];
    type Program = SwitchstormProgram;

    fn variants(_: &World) -> &'static [Variant] {
        &VARIANTS
    }

    /// All hardware threads: a thread for each CPU.
    fn usual(mut configs: Vec<Config>) -> Vec<Config> {
        configs.split_off(configs.len().saturating_sub(1))
    }

    fn programs(
        choice: &Choice,
        config: &Config,
        variants: &[Variant],
    ) -> Result<Vec<SwitchstormProgram>, Error> {
        let mut wakes = match choice.wakes.as_slice() {
            [] if choice.quick => vec![Wake::Barrier],
            [] => vec![Wake::Barrier, Wake::Independent],
            chosen => chosen.to_vec(),
        };
        let mut flushes = match choice.flushes.as_slice() {
            [] => vec![FLUSH_US],
            chosen => chosen.to_vec(),
        };
        wakes.sort_unstable();
        wakes.dedup();
        flushes.sort_unstable();
        flushes.dedup();
        let mut programs = Vec::new();
        for wake in wakes {
            let mut periods = match (choice.periods.as_slice(), wake) {
                ([], Wake::Barrier) => BARRIER_PERIODS.to_vec(),
                ([], Wake::Independent) => INDEPENDENT_PERIODS.to_vec(),
                (chosen, _) => chosen.to_vec(),
            };
            periods.sort_unstable();
            periods.dedup();
            for period_us in periods {
                for &flush_us in &flushes {
                    programs.extend(variants.iter().map(|&variant| SwitchstormProgram {
                        config: config.name.clone(),
                        wake,
                        period_us,
                        path_ns: choice.path.unwrap_or(SwitchstormProgram::PATH_NS),
                        flush_us,
                        variant,
                        rounds: if choice.quick { QUICK_ROUNDS } else { ROUNDS },
                    }));
                }
            }
        }
        Ok(programs)
    }

    fn simulate(
        spec: &Spec,
        replay: &Replay,
        program: &SwitchstormProgram,
    ) -> Result<Vec<f64>, Error> {
        let params = params(&super::config(spec, &program.config)?, program, replay.seed);
        let machine = Machine::new(spec.clone()).replaying(replay).statistics(Statistics::Full);
        let run = machine.run(move || switchstorm::<Sim>(&params)).map_err(Error::Failed)?;
        let storms = run.value.map_err(|broken| Error::broken(replay, broken))?;
        let mut numbers = numbers(&storms);
        numbers.extend(hottest(&run.report));
        Ok(numbers)
    }

    fn natively(
        config: &Config,
        program: &SwitchstormProgram,
        seed: u64,
    ) -> Result<Vec<f64>, RunError> {
        let storms = switchstorm::<Native>(&params(config, program, seed))?;
        Ok(numbers(&storms))
    }

    fn told(numbers: &[f64]) -> String {
        let [op, share, rank] = [OP, PATH_SHARE, LINE_RANK].map(|number| numbers[number]);
        format!(
            "{op:.2} ns per operation, {share:.2} % in switches, its line the {rank:.0}. hottest"
        )
    }

    fn figures<'a>(
        about: &About<'_>,
        variants: &'a [Measured<SwitchstormProgram>],
    ) -> Vec<Figure<'a, SwitchstormProgram>> {
        let clock = match &about.choice.world {
            World::Native => None,
            World::Simulated { spec, .. } => clock_ghz(spec),
        };
        let always_set = of(variants, Variant::AlwaysSet);
        let mut figures = Vec::new();
        for this in variants {
            let number = |index: usize| this.numbers.get(index);
            let mut add = |metric, series: Option<Series>| {
                figures.extend(series.map(|series| Figure::new(about, this, metric, series)));
            };
            let op = &this.numbers[OP];
            add(OP_NS, Some(op.clone()));
            add(OP_CYCLES, clock.map(|ghz| op.times(ghz)));
            let before = always_set.filter(|it| it.program.variant != this.program.variant);
            add(OP_SPEEDUP, before.map(|before| before.numbers[OP].over(op)));
            add(SWITCH_SHARE, number(PATH_SHARE).cloned());
            if this.program.wake == Wake::Barrier {
                // Threads that never meet share nothing else that a line could be set beside.
                add(RANK, number(LINE_RANK).cloned());
                add(MISS_SHARE, number(LINE_SHARE).cloned());
                let over = |number: usize| {
                    before.map(|before| this.numbers[number].over(&before.numbers[number]))
                };
                add(THROUGHPUT, over(RATE));
                add(PEAK_THROUGHPUT, over(PEAK_RATE));
                add(WAKE_SPREAD, number(SPREAD).cloned());
            }
        }
        figures
    }

    /// What depends on the period and on the rest of the path, which are declared, or on what else
    /// the program shares, which is not linpack.
    fn is_limited(figure: &Figure<'_, SwitchstormProgram>) -> bool {
        let independent = figure.of.program.wake == Wake::Independent;
        independent || ![OP_NS, OP_CYCLES, OP_SPEEDUP].contains(&figure.metric)
    }

    fn why_off(_: &About<'_>, figure: &Figure<'_, SwitchstormProgram>) -> &'static str {
        let program = &figure.of.program;
        match figure.metric {
            OP_NS | OP_CYCLES | OP_SPEEDUP if program.wake == Wake::Independent => {
                "how many CPUs meet is set by the period, which is declared: what was measured is \
                 not known to wake up like this"
            }
            OP_SPEEDUP => "the quotient inherits what the time of test-first lacks",
            OP_NS | OP_CYCLES if program.variant == Variant::AlwaysSet => {
                "the operations queue for one line, half of the CPUs' transfers on average; the \
                 transfer's cost is another, newer machine's, and the interconnect of four sockets \
                 is not modelled"
            }
            OP_NS | OP_CYCLES => {
                "a test of a set bit is a cache hit here, and what remains is the rate of flushes, \
                 which is declared; the published figure is one of a sampling profiler that may \
                 not count loads that hit, and in the kernel CPUs leave the mask when they sleep \
                 deeply, too"
            }
            SWITCH_SHARE => {
                "the period and the rest of the path decide this, and are declared; no execution \
                 of code is modelled beyond that"
            }
            RANK => {
                "a real program has many more lines that are shared; here there are the barrier's \
                 and little else, so how far down the line goes is not to be had"
            }
            MISS_SHARE => {
                "the share is of what else is shared, which is the barrier's few lines here; the \
                 misses while all bits are set for the first time are in it"
            }
            _ => {
                "a step of linpack is another mixture: how long it computes between two barriers \
                 is declared, and not known; its own sharing of data is not modelled"
            }
        }
    }

    fn why_reached(figure: &Figure<'_, SwitchstormProgram>) -> Option<&'static str> {
        matches!(figure.metric, OP_NS | OP_CYCLES | OP_SPEEDUP)
            .then_some(figure.of.program.variant)
            .filter(|&variant| variant != Variant::AlwaysSet)
            .map(|_| {
                "consistent, and no prediction: the rate of flushes decides it, which is declared"
            })
    }

    const NOT_TESTABLE: &'static str =
        "all CPUs share one L3 and are few: no evidence on a line that many sockets want";
}

fn params(config: &Config, program: &SwitchstormProgram, seed: u64) -> SwitchstormParams {
    SwitchstormParams {
        cpus: config.cpus.clone(),
        variant: program.variant,
        wake: program.wake,
        period: Duration::from_micros(program.period_us),
        path: Duration::from_nanos(program.path_ns),
        flush: Duration::from_micros(program.flush_us),
        rounds: program.rounds,
        seed,
    }
}

fn numbers(storms: &Storms) -> Vec<f64> {
    let &Storms { op_ns, path_share, spread_ns, rate, peak_rate } = storms;
    vec![op_ns, path_share, spread_ns, rate, peak_rate]
}

/// Where the policy's hottest line stands among all lines by misses that other caches served, and
/// its share of all such misses in percent. That of the references, where there are any.
fn hottest(report: &Report) -> [f64; 2] {
    let lines = report.details.iter().flat_map(|details| &details.lines);
    let misses = |line: &LineCost| {
        let transfers = &line.cost.transfers;
        transfers.misses() - transfers.memory
    };
    let own = |line: &&LineCost| is_mask(line) || is_references(line);
    let hottest = lines.clone().filter(own).map(misses).max().unwrap_or(0);
    let hotter = lines.clone().filter(|line| misses(line) > hottest).count();
    let all: u64 = lines.map(misses).sum();
    [(hotter + 1) as f64, 100.0 * hottest as f64 / all.max(1) as f64]
}

/// The clock that a machine's file says with the source of its fastest cost, as `at 2.8 GHz`.
fn clock_ghz(spec: &Spec) -> Option<f64> {
    let (_, cost) = spec.sources().find(|(name, _)| *name == "private_hit")?;
    let (before, _) = cost.source.split_once(" GHz")?;
    before.rsplit(' ').next()?.parse().ok().filter(|&ghz: &f64| ghz > 0.0)
}

#[cfg(test)]
mod tests {
    use coreline_topology::CpuId;

    use super::*;

    #[test]
    fn the_clock_is_that_of_the_machine_file() {
        let ghz = |name| clock_ghz(&Spec::preset(name).unwrap());
        assert_eq!((ghz("ivybridge-ex-4s"), ghz("epyc-9654-2s")), (Some(2.8), Some(3.7)));
    }

    #[test]
    fn the_rank_is_among_all_lines_that_caches_gave_each_other() {
        let of = |variant| {
            let params = SwitchstormParams {
                cpus: (0..60).step_by(5).map(CpuId::new).collect(),
                variant,
                wake: Wake::Barrier,
                period: Duration::from_micros(5),
                path: Duration::from_nanos(100),
                flush: Duration::ZERO,
                rounds: 40,
                seed: 1,
            };
            let machine = Machine::preset("ivybridge-ex-4s").unwrap().statistics(Statistics::Full);
            hottest(&machine.run(move || switchstorm::<Sim>(&params).unwrap()).unwrap().report)
        };
        for variant in [Variant::AlwaysSet, Variant::Refcounted] {
            let [rank, share] = of(variant);
            assert!(rank <= 2.0 && share > 20.0, "{variant}: {rank} {share}");
        }
        for variant in [Variant::TestFirst, Variant::TwoLevel] {
            let [rank, share] = of(variant);
            assert!(rank > 2.0 && 0.0 < share && share < 5.0, "{variant}: {rank} {share}");
        }
    }
}
