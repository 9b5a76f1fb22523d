//! The plan of `tenants`.

use coreline_sim::{Machine, Replay, Sim, Spec, Statistics};
use coreline_world::Native;

use super::{About, Figure, Measured, Metric, Plan, Question, Series, of};
use crate::error::Error;
use crate::run::Choice;
use crate::run::verdict::FigureKind;
use crate::scenario::tenants::{Costs, TenantsParams, TenantsProgram, plain_bytes, tenants};
use crate::scenario::{Config, RunError, Scenario, Variant};
use crate::world::World;

/// What runs if nothing is said, and in the quick form.
const TENANTS: u64 = 10_000;
const QUICK_TENANTS: u64 = 1000;
const TASKS: [u64; 2] = [2, 4];
const QUICK_TASKS: [u64; 1] = [2];

/// The numbers of a run, in this order; the last two simulated only.
const METRICS: [Metric; 7] = [
    Metric { name: "bytes_per_tenant", kind: FigureKind::Bytes },
    Metric { name: "plain_array_bytes", kind: FigureKind::Bytes },
    Metric { name: "slots_per_tenant", kind: FigureKind::Slots },
    Metric { name: "op_ns", kind: FigureKind::Nanoseconds },
    Metric { name: "id_changes", kind: FigureKind::PerThousand },
    Metric { name: "remote_transfers", kind: FigureKind::PerThousand },
    Metric { name: "remote_slot_transfers", kind: FigureKind::PerThousand },
];
pub(crate) const BYTES: usize = 0;
pub(crate) const PLAIN_ARRAY: usize = 1;
pub(crate) const OPERATION: usize = 3;
pub(crate) const ID_CHANGES: usize = 4;
#[cfg(test)]
pub(crate) const REMOTE_SLOTS: usize = 6;

/// What `domain` and `domain-clustered` are compared with.
const OVER: [(Variant, Metric); 3] = [
    (Variant::CpuId, Metric { name: "op_over_cpu_id", kind: FigureKind::Ratio }),
    (Variant::Sharded, Metric { name: "op_over_sharded", kind: FigureKind::Ratio }),
    (Variant::Atomic, Metric { name: "op_over_atomic", kind: FigureKind::Ratio }),
];
const PLAIN_ARRAY_OVER: Metric = Metric { name: "plain_array_over_bytes", kind: FigureKind::Gain };

pub(crate) struct Tenants;

impl Plan for Tenants {
    const SCENARIO: Scenario = Scenario::Tenants;
    const QUESTION: Question = Question {
        machine: "epyc-9654-2s",
        config: None,
        param: Some(("tasks", "2")),
        about: "an addition to one of 1000 counters",
        metric: METRICS[OPERATION].name,
        variants: &[Variant::Domain, Variant::CpuId, Variant::Sharded, Variant::Atomic],
        answer: (OVER[2].1.name, Variant::Domain),
        sentence: "a domain takes {} as long as an atomic",
    };
    const OPTIONS: &'static [&'static str] = &["--tenants", "--tasks"];
    type Program = TenantsProgram;

    fn variants(_: &World) -> &'static [Variant] {
        &[
            Variant::Domain,
            Variant::DomainClustered,
            Variant::CpuId,
            Variant::Sharded,
            Variant::Atomic,
        ]
    }

    /// All hardware threads.
    fn usual(mut configs: Vec<Config>) -> Vec<Config> {
        configs.split_off(configs.len().saturating_sub(1))
    }

    fn programs(
        choice: &Choice,
        config: &Config,
        variants: &[Variant],
    ) -> Result<Vec<TenantsProgram>, Error> {
        let usual = if choice.quick { &QUICK_TASKS[..] } else { &TASKS };
        let mut all = if choice.tasks.is_empty() { usual } else { &choice.tasks }.to_vec();
        all.sort_unstable();
        all.dedup();
        let tenants = choice.tenants.unwrap_or(if choice.quick { QUICK_TENANTS } else { TENANTS });
        let of = |(tasks, variant)| {
            let config = config.name.clone();
            TenantsProgram { config, tenants, tasks, variant }
        };
        let all = all.iter().flat_map(|&tasks| variants.iter().map(move |&it| (tasks, it)));
        Ok(all.map(of).collect())
    }

    fn simulate(spec: &Spec, replay: &Replay, program: &TenantsProgram) -> Result<Vec<f64>, Error> {
        let params = params(&super::config(spec, &program.config)?, program, replay.seed);
        let cpus = params.cpus.len();
        let machine = Machine::new(spec.clone()).replaying(replay).statistics(Statistics::Full);
        let run = machine.run(move || tenants::<Sim>(&params)).map_err(Error::Failed)?;
        let costs = run.value.map_err(|broken| Error::broken(replay, broken))?;
        Ok(numbers(&costs, cpus))
    }

    fn natively(
        config: &Config,
        program: &TenantsProgram,
        seed: u64,
    ) -> Result<Vec<f64>, RunError> {
        let params = params(config, program, seed);
        tenants::<Native>(&params).map(|costs| numbers(&costs, params.cpus.len()))
    }

    fn told(numbers: &[f64]) -> String {
        let named = METRICS.iter().zip(numbers);
        let told =
            named.map(|(metric, value)| format!("{metric} {value:.2} {}", metric.kind.unit()));
        told.collect::<Vec<_>>().join(", ")
    }

    fn figures<'a>(
        about: &About<'_>,
        variants: &'a [Measured<TenantsProgram>],
    ) -> Vec<Figure<'a, TenantsProgram>> {
        let mut figures = Vec::new();
        for this in variants {
            let variant = this.program.variant;
            let is_domain = [Variant::Domain, Variant::DomainClustered].contains(&variant);
            for (index, series) in this.numbers.iter().enumerate() {
                let says_something = match index {
                    PLAIN_ARRAY => variant == Variant::CpuId,
                    ID_CHANGES => is_domain,
                    _ => true,
                };
                if says_something {
                    figures.push(Figure::new(about, this, METRICS[index], series.clone()));
                }
            }
            if !is_domain {
                continue;
            }
            let plain = this.numbers[PLAIN_ARRAY].over(&this.numbers[BYTES]);
            figures.push(Figure::new(about, this, PLAIN_ARRAY_OVER, plain));
            let times =
                |this: &Measured<TenantsProgram>| -> Series { this.numbers[OPERATION].clone() };
            for (other, metric) in OVER {
                if let Some(other) = of(variants, other) {
                    figures.push(Figure::new(about, this, metric, times(this).over(&times(other))));
                }
            }
        }
        figures
    }

    fn is_limited(_: &Figure<'_, TenantsProgram>) -> bool {
        false
    }

    fn why_off(_: &About<'_>, _: &Figure<'_, TenantsProgram>) -> &'static str {
        "nothing was published about this"
    }

    const NOT_TESTABLE: &'static str = "all CPUs share one L3 and are few: no evidence on what a \
                                        tenant takes on many, nor on lines that come from afar";
}

fn params(config: &Config, program: &TenantsProgram, seed: u64) -> TenantsParams {
    TenantsParams {
        cpus: config.cpus.clone(),
        variant: program.variant,
        tenants: program.tenants as usize,
        tasks: program.tasks as usize,
        seed,
    }
}

fn numbers(costs: &Costs, cpus: usize) -> Vec<f64> {
    let Costs { footprint, op_ns, id_changes, remote } = costs;
    let mut numbers =
        vec![footprint.bytes, plain_bytes(cpus), footprint.slots, *op_ns, *id_changes];
    numbers.extend(remote.iter().flat_map(|remote| [remote.all, remote.slots]));
    numbers
}
