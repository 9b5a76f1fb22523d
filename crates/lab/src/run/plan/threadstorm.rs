//! The plan of `threadstorm`.

use core::time::Duration;

use coreline_sim::{LineCost, Machine, Replay, Report, Sim, Spec, Statistics};
use coreline_world::Native;

use super::{About, Figure, Measured, Metric, Plan, Question, of};
use crate::error::Error;
use crate::run::Choice;
use crate::run::verdict::FigureKind;
use crate::scenario::threadstorm::{
    Placing, Size, Storms, ThreadstormParams, ThreadstormProgram, is_of_ids, threadstorm,
};
use crate::scenario::{Config, RunError, Scenario, Variant};
use crate::world::World;

/// What runs if nothing is said: the sizes that were published.
const SIZES: [Size; 2] = [Size { pools: 8, threads: 8 }, Size { pools: 32, threads: 32 }];

/// A pool counts this many threads, and at least this many rounds.
const THREADS: u32 = 320;
const ROUNDS: u32 = 10;

/// The same for the quick form.
const QUICK_THREADS: u32 = 64;
const QUICK_ROUNDS: u32 = 2;

/// The numbers of a run, in this order; those after the first only where IDs are ours, those of
/// lines in the simulator alone.
const METRICS: [Metric; 8] = [
    Metric { name: "creations", kind: FigureKind::Rate },
    Metric { name: "ids_per_thread_ns", kind: FigureKind::Nanoseconds },
    Metric { name: "ids_per_switch_ns", kind: FigureKind::Nanoseconds },
    Metric { name: "ids_per_life_ns", kind: FigureKind::Nanoseconds },
    Metric { name: "ids_migrate_ns", kind: FigureKind::Nanoseconds },
    Metric { name: "ids_share", kind: FigureKind::Percent },
    Metric { name: "transfers_per_switch", kind: FigureKind::Transfers },
    Metric { name: "hottest_line_share", kind: FigureKind::Percent },
];
pub(crate) const CREATIONS: usize = 0;
pub(crate) const MIGRATE: usize = 4;

/// The one figure that says something of `none`.
const OVER_RECENT: Metric = Metric { name: "creations_over_recent", kind: FigureKind::Gain };

const SIMULATED: [Variant; 5] =
    [Variant::NoIds, Variant::FirstFit, Variant::Recent, Variant::Owned, Variant::Clustered];

const NATIVE: [Variant; 6] = [
    Variant::NoIds,
    Variant::FirstFit,
    Variant::Recent,
    Variant::Owned,
    Variant::Clustered,
    Variant::KernelCid,
];

pub(crate) struct Threadstorm;

impl Plan for Threadstorm {
    const SCENARIO: Scenario = Scenario::Threadstorm;
    const QUESTION: Question = Question {
        machine: "epyc-9654-2s",
        config: None,
        param: Some(("place", "roaming")),
        about: "threads created in a second",
        metric: METRICS[0].name,
        variants: &[Variant::NoIds, Variant::Recent, Variant::Owned],
        answer: (OVER_RECENT.name, Variant::Owned),
        sentence: "owned IDs allow {} as many as recent ones",
    };
    const OPTIONS: &'static [&'static str] = &["--size", "--place", "--rest", "--path"];
    type Program = ThreadstormProgram;

    fn variants(world: &World) -> &'static [Variant] {
        match world {
            World::Native => &NATIVE,
            World::Simulated { .. } => &SIMULATED,
        }
    }

    /// All hardware threads.
    fn usual(mut configs: Vec<Config>) -> Vec<Config> {
        configs.split_off(configs.len().saturating_sub(1))
    }

    fn programs(
        choice: &Choice,
        config: &Config,
        variants: &[Variant],
    ) -> Result<Vec<ThreadstormProgram>, Error> {
        let mut sizes = match choice.sizes.as_slice() {
            [] if choice.quick => vec![SIZES[0]],
            [] => SIZES.to_vec(),
            chosen => chosen.to_vec(),
        };
        let mut places = match choice.places.as_slice() {
            [] => vec![Placing::Roaming, Placing::Pinned],
            chosen => chosen.to_vec(),
        };
        sizes.sort_unstable();
        sizes.dedup();
        places.sort_unstable();
        places.dedup();
        let (threads, least) =
            if choice.quick { (QUICK_THREADS, QUICK_ROUNDS) } else { (THREADS, ROUNDS) };
        let mut programs = Vec::new();
        for &size in &sizes {
            for &place in &places {
                programs.extend(variants.iter().map(|&variant| ThreadstormProgram {
                    config: config.name.clone(),
                    size,
                    place,
                    rest_us: choice.rest.unwrap_or(ThreadstormProgram::REST_US),
                    path_ns: choice.path.unwrap_or(ThreadstormProgram::PATH_NS),
                    variant,
                    rounds: (threads / size.threads).max(least),
                }));
            }
        }
        Ok(programs)
    }

    fn simulate(
        spec: &Spec,
        replay: &Replay,
        program: &ThreadstormProgram,
    ) -> Result<Vec<f64>, Error> {
        let params = params(&super::config(spec, &program.config)?, program, replay.seed);
        let machine = Machine::new(spec.clone()).replaying(replay).statistics(Statistics::Full);
        let run = machine.run(move || threadstorm::<Sim>(&params)).map_err(Error::Failed)?;
        let storms = run.value.map_err(|broken| Error::broken(replay, broken))?;
        let mut numbers = numbers(&storms);
        let switches = storms.costs.map_or(0, |costs| costs.switches);
        numbers.extend(lines(&run.report, switches));
        Ok(numbers)
    }

    fn natively(
        config: &Config,
        program: &ThreadstormProgram,
        seed: u64,
    ) -> Result<Vec<f64>, RunError> {
        threadstorm::<Native>(&params(config, program, seed)).map(|storms| numbers(&storms))
    }

    fn told(numbers: &[f64]) -> String {
        let named = METRICS.iter().zip(numbers);
        let told =
            named.map(|(metric, value)| format!("{metric} {value:.2} {}", metric.kind.unit()));
        told.collect::<Vec<_>>().join(", ")
    }

    fn figures<'a>(
        about: &About<'_>,
        variants: &'a [Measured<ThreadstormProgram>],
    ) -> Vec<Figure<'a, ThreadstormProgram>> {
        let recent = of(variants, Variant::Recent);
        let mut figures = Vec::new();
        for this in variants {
            let variant = this.program.variant;
            for (metric, series) in METRICS.into_iter().zip(&this.numbers) {
                let of_moves = metric == METRICS[MIGRATE];
                let of_ids = metric != METRICS[CREATIONS];
                if of_moves && this.program.place == Placing::Pinned
                    || of_ids && variant == Variant::NoIds
                {
                    continue;
                }
                figures.push(Figure::new(about, this, metric, series.clone()));
            }
            let others = recent.filter(|it| it.program.variant != variant);
            if let Some(recent) = others.filter(|_| variant != Variant::KernelCid) {
                let over = this.numbers[CREATIONS].over(&recent.numbers[CREATIONS]);
                figures.push(Figure::new(about, this, OVER_RECENT, over));
            }
        }
        // The published figures are of a whole machine.
        if let World::Simulated { spec, .. } = &about.choice.world {
            let whole = Config::all(spec.topology()).pop().map(|config| config.name);
            let parts =
                figures.iter_mut().filter(|it| Some(&it.of.program.config) != whole.as_ref());
            parts.for_each(|figure| figure.published = None);
        }
        figures
    }

    /// The cost of creating a thread without its IDs decides all that was published, and is
    /// declared; the machine is not known.
    fn is_limited(_: &Figure<'_, ThreadstormProgram>) -> bool {
        true
    }

    fn why_off(_: &About<'_>, figure: &Figure<'_, ThreadstormProgram>) -> &'static str {
        match figure.metric {
            OVER_RECENT => {
                "what the published difference is made of, its author does not know: his profiles \
                 show load balancing, which is not modelled, and spin locks. Here `owned` pays for \
                 the space's lock, which each thread takes when it enters, first runs and leaves"
            }
            _ => {
                "what creating and ending a thread takes is declared, and no locks of the process \
                 (its memory map, its list of threads) hold creators up here; the machine is not \
                 known"
            }
        }
    }

    const NOT_TESTABLE: &'static str =
        "all CPUs share one L3 and are few: no evidence on lines that many sockets want";
}

fn params(config: &Config, program: &ThreadstormProgram, seed: u64) -> ThreadstormParams {
    ThreadstormParams {
        cpus: config.cpus.clone(),
        variant: program.variant,
        size: program.size,
        place: program.place,
        rest: Duration::from_micros(program.rest_us),
        path: Duration::from_nanos(program.path_ns),
        rounds: program.rounds,
        seed,
    }
}

fn numbers(storms: &Storms) -> Vec<f64> {
    let costs = storms.costs.iter().flat_map(|costs| {
        [costs.thread_ns, costs.switch_ns, costs.life_ns, costs.migrate_ns, costs.share]
    });
    std::iter::once(storms.rate).chain(costs).collect()
}

/// How often a switch-in brought a line of what hands out IDs from another cache, and the share of
/// the line of which that is most, in percent.
fn lines(report: &Report, switches: u64) -> [f64; 2] {
    let misses = |line: &LineCost| {
        let words = line.words.iter().filter(|word| is_of_ids(word));
        words.map(|word| word.cost.transfers.misses() - word.cost.transfers.memory).sum::<u64>()
    };
    let lines = report.details.iter().flat_map(|details| &details.lines).map(misses);
    let (all, hottest) = lines.fold((0, 0), |(all, most), line| (all + line, line.max(most)));
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    [share(all, switches), 100.0 * share(hottest, all)]
}
