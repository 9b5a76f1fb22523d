//! The plan of `intermittent`.

use core::time::Duration;

use clap::ValueEnum;
use coreline_sim::{Kernel, Machine, Replay, Sim, Spec};
use coreline_world::{Native, Place};

use super::{About, Figure, Measured, Metric, Plan, Question, of};
use crate::error::Error;
use crate::kernel::Scan;
use crate::run::Choice;
use crate::run::verdict::{self, FigureKind};
use crate::scenario::intermittent::{
    self, ASLEEP_MS, IntermittentParams, IntermittentProgram, Quantity, SEQUENCES, intermittent,
    why_off, why_reached,
};
use crate::scenario::{self, Config, Param, Params, Program as _, RunError, Scenario, Variant};
use crate::world::World;

/// The most CPUs whose areas fit into a simulated machine's memory, with room for all else.
const MOST_CPUS: usize = 3000;

/// The delays of seed 000, in milliseconds.
const DELAYS: [u64; 2] = [10, 200];

/// The number of runs that the seed's figures, and ours, are the mean of.
const RUNS: u64 = 5;

/// The same for the quick form.
const QUICK_RUNS: u64 = 2;

const TIME: Metric = Metric { name: "ns_per_burst", kind: FigureKind::Nanoseconds };
const OVER_CPU_ID: Metric = Metric { name: "over_cpu_id", kind: FigureKind::Ratio };
const SPEEDUP: Metric = Metric { name: "speedup", kind: FigureKind::Gain };

pub(crate) struct Intermittent;

impl Plan for Intermittent {
    const SCENARIO: Scenario = Scenario::Intermittent;
    const QUESTION: Question = Question {
        machine: "epyc-9654-2s",
        config: Some("192-core/24-L3"),
        param: Some(("delay_ms", "10")),
        about: "a burst on per-CPU memory",
        metric: TIME.name,
        variants: &[Variant::CpuId, Variant::FirstFit, Variant::Recent],
        answer: (SPEEDUP.name, Variant::Recent),
        sentence: "recent IDs are {} as fast as first-fit",
    };
    const OPTIONS: &'static [&'static str] = &["--delay", "--scan"];
    type Program = IntermittentProgram;

    fn variants(world: &World) -> &'static [Variant] {
        match world {
            World::Native => &[Variant::CpuId, Variant::KernelCid],
            // The kernel's policy is ours.
            World::Simulated { .. } => &SIMULATED,
        }
    }

    fn usual(configs: Vec<Config>) -> Vec<Config> {
        configs
    }

    fn programs(
        choice: &Choice,
        config: &Config,
        variants: &[Variant],
    ) -> Result<Vec<IntermittentProgram>, Error> {
        if choice.scan.is_some() && matches!(choice.world, World::Native) {
            return Err(Error::ScanNatively);
        }
        let mut delays = match (choice.delays.as_slice(), &choice.world) {
            ([], World::Native) if choice.quick => DELAYS[..1].to_vec(),
            ([], _) => DELAYS.to_vec(),
            (chosen, _) => chosen.to_vec(),
        };
        delays.sort_unstable();
        delays.dedup();
        let of = |(delay_ms, variant)| IntermittentProgram {
            config: config.name.clone(),
            delay_ms,
            variant,
            sequences: SEQUENCES,
        };
        let all = delays.iter().flat_map(|&delay| variants.iter().map(move |&it| (delay, it)));
        Ok(all.map(of).collect())
    }

    fn runs(choice: &Choice) -> u64 {
        if choice.quick { QUICK_RUNS } else { RUNS }
    }

    fn kernel(choice: &Choice, program: &IntermittentProgram) -> Option<String> {
        program.variant.kernel_name(scan(choice))
    }

    fn simulate(
        spec: &Spec,
        replay: &Replay,
        program: &IntermittentProgram,
    ) -> Result<Vec<f64>, Error> {
        let cpus = spec.topology().cpu_limit();
        if cpus > MOST_CPUS {
            let machine = spec.name().to_owned();
            return Err(Error::TooManyCpus { machine, cpus, most: MOST_CPUS });
        }
        let params = params(&super::config(spec, &program.config)?, program, replay.seed);
        let kernel = kernel(spec, program.variant, replay.kernel.as_deref())?;
        let machine = Machine::new(spec.clone()).replaying(replay).kernel(kernel);
        let run = machine.run(move || intermittent::<Sim>(&params)).map_err(Error::Failed)?;
        run.value.map(|bursts| vec![mean(&bursts)]).map_err(|broken| Error::broken(replay, broken))
    }

    /// Where the machine has no concurrency IDs.
    fn lack(variant: Variant) -> Option<RunError> {
        let lacks = variant == Variant::KernelCid && Native::kernel_cid().is_none();
        lacks.then(|| intermittent::IntermittentError::NoIndex { variant }.into())
    }

    fn natively(
        config: &Config,
        program: &IntermittentProgram,
        seed: u64,
    ) -> Result<Vec<f64>, RunError> {
        let bursts = intermittent::<Native>(&params(config, program, seed))?;
        Ok(vec![mean(&bursts)])
    }

    fn told(numbers: &[f64]) -> String {
        format!("{:.2} ns per burst", numbers[0])
    }

    fn figures<'a>(
        about: &About<'_>,
        variants: &'a [Measured<IntermittentProgram>],
    ) -> Vec<Figure<'a, IntermittentProgram>> {
        let mut figures = Vec::new();
        for this in variants {
            let time = &this.numbers[0];
            figures.push(Figure::new(about, this, TIME, time.clone()));
            if this.program.variant == Variant::CpuId {
                continue;
            }
            if let Some(cpu_id) = of(variants, Variant::CpuId) {
                let series = time.over(&cpu_id.numbers[0]);
                let published = published_over(about, &this.program);
                figures.push(Figure { of: this, metric: OVER_CPU_ID, series, published });
            }
            if this.program.variant == Variant::Recent
                && let Some(first_fit) = of(variants, Variant::FirstFit)
            {
                figures.push(Figure::new(about, this, SPEEDUP, first_fit.numbers[0].over(time)));
            }
        }
        figures
    }

    fn params(about: &About<'_>, program: &IntermittentProgram) -> Params {
        let mut params = program.params();
        if about.simulated() {
            params.insert("scan", Param::Name(scan(about.choice).to_string()));
        }
        params
    }

    fn is_limited(figure: &Figure<'_, IntermittentProgram>) -> bool {
        figure.of.program.delay_ms >= ASLEEP_MS
    }

    fn why_off(about: &About<'_>, figure: &Figure<'_, IntermittentProgram>) -> &'static str {
        let IntermittentProgram { variant, delay_ms, .. } = figure.of.program;
        let scan = scan(about.choice);
        why_off(quantity(figure.metric), variant, delay_ms, scan, figure.is_above())
    }

    fn why_reached(figure: &Figure<'_, IntermittentProgram>) -> Option<&'static str> {
        why_reached(quantity(figure.metric), figure.of.program.variant)
    }

    const NOT_TESTABLE: &'static str =
        "all CPUs share one L3, so no area is farther than another: no evidence on locality";
}

/// The variants of a simulated world.
const SIMULATED: [Variant; 5] =
    [Variant::CpuId, Variant::FirstFit, Variant::Recent, Variant::Owned, Variant::Clustered];

fn scan(choice: &Choice) -> Scan {
    choice.scan.unwrap_or_default()
}

fn quantity(metric: Metric) -> Quantity {
    match metric {
        OVER_CPU_ID => Quantity::OverCpuId,
        SPEEDUP => Quantity::Speedup,
        _ => Quantity::Time,
    }
}

/// The published time over that of `cpu-id`, which follows from two others.
fn published_over(about: &About<'_>, program: &IntermittentProgram) -> Option<(f64, String)> {
    let cpu_id = IntermittentProgram { variant: Variant::CpuId, ..program.clone() };
    let (time, source) = about.figure(TIME, program)?;
    let ratio = time / about.figure(TIME, &cpu_id)?.0;
    let source = format!("computed from the times of {source}");
    Some((verdict::round(ratio, OVER_CPU_ID.kind), source))
}

fn params(config: &Config, program: &IntermittentProgram, seed: u64) -> IntermittentParams {
    IntermittentParams {
        cpus: config.cpus.clone(),
        delay: Duration::from_millis(program.delay_ms),
        variant: program.variant,
        sequences: program.sequences,
        seed,
    }
}

fn mean(bursts: &[u64]) -> f64 {
    bursts.iter().sum::<u64>() as f64 / bursts.len() as f64
}

/// The kernel of a variant, by its name; without a name the usual one.
fn kernel(spec: &Spec, variant: Variant, name: Option<&str>) -> Result<Box<dyn Kernel>, Error> {
    let kernel = |scan| variant.kernel(spec.topology(), scan);
    let usual = kernel(Scan::default()).ok_or_else(|| Error::Variant {
        asked: variant,
        scenario: scenario::Scenario::Intermittent,
        world: spec.name().to_owned(),
        has: SIMULATED.to_vec(),
    })?;
    let Some(asked) = name else { return Ok(usual) };
    let all = || Scan::value_variants().iter().filter_map(|&scan| kernel(scan));
    all().find(|kernel| kernel.name() == asked).ok_or_else(|| Error::Kernel {
        asked: asked.to_owned(),
        variant,
        has: all().map(|kernel| kernel.name().to_owned()).collect(),
    })
}
