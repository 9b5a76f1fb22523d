//! The plan of `shootdown`.

use coreline_sim::{Machine, Replay, Sim, Spec};
use coreline_world::Native;

use super::{About, Figure, Measured, Metric, Plan, Question, of};
use crate::error::Error;
use crate::run::Choice;
use crate::run::verdict::FigureKind;
use crate::scenario::shootdown::{ShootdownParams, ShootdownProgram, Shots, shootdown};
use crate::scenario::{Config, RunError, Scenario, Variant};
use crate::world::World;

/// How many contexts are present by default, where there are as many; and all.
const PRESENT: [u64; 3] = [1, 8, 64];

/// How often each update is made and counted in a run.
const UPDATES: u32 = 20;

/// The same for the quick form, and how many are present there.
const QUICK_UPDATES: u32 = 6;
const QUICK_PRESENT: [u64; 2] = [1, 64];

/// The numbers of a run, in this order.
const METRICS: [Metric; 2] = [
    Metric { name: "shootdown_ns", kind: FigureKind::Nanoseconds },
    Metric { name: "update_ns", kind: FigureKind::Nanoseconds },
];

/// The same, over those of `eager`.
const OVER_EAGER: [Metric; 2] = [
    Metric { name: "shootdown_over_eager", kind: FigureKind::Ratio },
    Metric { name: "update_over_eager", kind: FigureKind::Ratio },
];

pub(crate) struct Shootdown;

impl Plan for Shootdown {
    const SCENARIO: Scenario = Scenario::Shootdown;
    const QUESTION: Question = Question {
        machine: "epyc-9654-2s",
        config: None,
        param: Some(("present", "1")),
        about: "a call that all present contexts run",
        metric: METRICS[0].name,
        variants: &[Variant::Eager, Variant::Lazy],
        answer: (OVER_EAGER[0].name, Variant::Lazy),
        sentence: "lazy takes {} as long as eager",
    };
    const OPTIONS: &'static [&'static str] = &["--present"];
    type Program = ShootdownProgram;

    fn variants(_: &World) -> &'static [Variant] {
        &[Variant::Eager, Variant::Lazy]
    }

    fn usual(mut configs: Vec<Config>) -> Vec<Config> {
        configs.split_off(configs.len().saturating_sub(1))
    }

    fn programs(
        choice: &Choice,
        config: &Config,
        variants: &[Variant],
    ) -> Result<Vec<ShootdownProgram>, Error> {
        let all = config.cpus.len() as u64;
        let mut present = choice.present.clone();
        if let Some(&asked) = present.iter().find(|&&asked| asked > all) {
            return Err(Error::Present { asked, config: config.name.clone(), all });
        }
        if present.is_empty() {
            let usual = if choice.quick { &QUICK_PRESENT[..] } else { &PRESENT };
            present.extend(usual.iter().map(|&present| present.min(all)));
            if !choice.quick {
                present.push(all);
            }
        }
        present.sort_unstable();
        present.dedup();
        let updates = if choice.quick { QUICK_UPDATES } else { UPDATES };
        let of = |(present, variant)| {
            let config = config.name.clone();
            ShootdownProgram { config, present, variant, updates }
        };
        let all = present.iter().flat_map(|&present| variants.iter().map(move |&it| (present, it)));
        Ok(all.map(of).collect())
    }

    fn simulate(
        spec: &Spec,
        replay: &Replay,
        program: &ShootdownProgram,
    ) -> Result<Vec<f64>, Error> {
        let params = params(&super::config(spec, &program.config)?, program, replay.seed);
        let machine = Machine::new(spec.clone()).replaying(replay);
        let run = machine.run(move || shootdown::<Sim>(&params)).map_err(Error::Failed)?;
        run.value.map(numbers).map_err(|broken| Error::broken(replay, broken))
    }

    fn natively(
        config: &Config,
        program: &ShootdownProgram,
        seed: u64,
    ) -> Result<Vec<f64>, RunError> {
        shootdown::<Native>(&params(config, program, seed)).map(numbers)
    }

    fn told(numbers: &[f64]) -> String {
        format!("{:.2} ns per shootdown, {:.2} ns per update", numbers[0], numbers[1])
    }

    fn figures<'a>(
        about: &About<'_>,
        variants: &'a [Measured<ShootdownProgram>],
    ) -> Vec<Figure<'a, ShootdownProgram>> {
        let mut figures = Vec::new();
        for this in variants {
            for (metric, series) in METRICS.into_iter().zip(&this.numbers) {
                figures.push(Figure::new(about, this, metric, series.clone()));
            }
            let eager = of(variants, Variant::Eager);
            let Some(eager) = eager.filter(|_| this.program.variant == Variant::Lazy) else {
                continue;
            };
            for (index, metric) in OVER_EAGER.into_iter().enumerate() {
                let series = this.numbers[index].over(&eager.numbers[index]);
                figures.push(Figure::new(about, this, metric, series));
            }
        }
        figures
    }

    fn is_limited(_: &Figure<'_, ShootdownProgram>) -> bool {
        false
    }

    fn why_off(_: &About<'_>, _: &Figure<'_, ShootdownProgram>) -> &'static str {
        "nothing was published about this"
    }

    const NOT_TESTABLE: &'static str =
        "all CPUs share one L3 and are few: no evidence on what more, and farther, would cost";
}

fn params(config: &Config, program: &ShootdownProgram, seed: u64) -> ShootdownParams {
    ShootdownParams {
        cpus: config.cpus.clone(),
        present: program.present as usize,
        variant: program.variant,
        updates: program.updates,
        seed,
    }
}

fn numbers(shots: Shots) -> Vec<f64> {
    vec![shots.shootdown_ns, shots.update_ns]
}
