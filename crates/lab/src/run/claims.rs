//! What `intermittent` claims at a delay of 10 ms on the machine of seed 000, over the whole band.
//!
//! | claim | configurations | scans made by |
//! |---|---|---|
//! | `recent` is within 10 % of `cpu-id` | all | switches |
//! | `owned` and `clustered` are, over the request shares alone | all | switches |
//! | `first-fit` takes three times as long as that at least | 192 cores, 384 threads | switches |
//! | `first-fit` is within 10 % of `cpu-id` | 8 cores | ticks |
//! | the same, in half of the band at least | 8 cores | switches |
//!
//! The last is weaker than one might want. A round of 8 threads takes 80 ms, less than a reference
//! lives, but its order is random: a thread may pause for up to 150 ms. If two of them lose their
//! references at once they may swap IDs. (Where ticks make the scans, few scans run at all; what is
//! claimed of 192 cores and 384 threads does not hold there: see `docs/intermittent.md`.)
//!
//! (`owned` and `clustered` move no area here, so no cost of a transfer can make a difference.)
//!
//! A band has three request shares with 16 seeds each, and each uncertain cost at 70 % and 130 %.
//! Less is run than for `coreline run --band`: one run of each point instead of five, with
//! [`SEQUENCES`] counted sequences instead of six.

use std::sync::LazyLock;

use coreline_sim::Spec;
use coreline_sim::claim::{Band, Broken, Figures};

use super::simulated;
use crate::kernel::Scan;
use crate::scenario::Variant;
use crate::scenario::intermittent::Program;

const MACHINE: &str = "epyc-9654-2s";
const DELAY_MS: u64 = 10;
const SEQUENCES: u32 = 2;

const CONFIGS: [&str; 4] = ["8-core/1-L3", "24-core/24-L3", "192-core/24-L3", "384-thread/24-L3"];

/// A variant's times over the whole band, by configuration.
fn figures(configs: &[&str], variant: Variant, scan: Scan) -> Vec<Figures> {
    figures_over(&Band::whole(&Spec::preset(MACHINE).unwrap(), 1), configs, variant, scan)
}

fn figures_over(band: &Band, configs: &[&str], variant: Variant, scan: Scan) -> Vec<Figures> {
    let program = |config: &&str| Program {
        config: (*config).to_owned(),
        delay_ms: DELAY_MS,
        variant,
        sequences: SEQUENCES,
    };
    let programs: Vec<_> = configs.iter().map(program).collect();
    simulated::run_all(band, &programs, scan, 1).unwrap_or_else(|error| panic!("{error}"))
}

/// `cpu-id`, which no scan changes, by configuration.
static CPU_ID: LazyLock<Vec<Figures>> =
    LazyLock::new(|| figures(&CONFIGS, Variant::CpuId, Scan::Switch));

/// Claims both ways that a time is within 10 % of another.
fn within_a_tenth(times: &Figures, of: &Figures) -> [Result<(), Box<Broken>>; 2] {
    [times.at_least(0.9, of), times.at_most(1.1, of)]
}

#[test]
fn recent_is_as_local_as_the_cpus_number() {
    for (recent, cpu_id) in figures(&CONFIGS, Variant::Recent, Scan::Switch).iter().zip(&*CPU_ID) {
        for claim in within_a_tenth(recent, cpu_id) {
            claim.unwrap();
        }
    }
}

#[test]
fn owned_and_clustered_are_as_local_as_the_cpus_number() {
    let band = Band::quick(&Spec::preset(MACHINE).unwrap(), 1);
    let of = |variant| figures_over(&band, &CONFIGS, variant, Scan::Switch);
    let cpu_id = of(Variant::CpuId);
    for variant in [Variant::Owned, Variant::Clustered] {
        for (times, cpu_id) in of(variant).iter().zip(&cpu_id) {
            for claim in within_a_tenth(times, cpu_id) {
                claim.unwrap();
            }
        }
    }
}

#[test]
fn first_fit_takes_three_times_as_long_once_a_round_outlasts_the_expiry() {
    let first_fit = figures(&CONFIGS[2..], Variant::FirstFit, Scan::Switch);
    for (first_fit, cpu_id) in first_fit.iter().zip(&CPU_ID[2..]) {
        first_fit.at_least(3.0, cpu_id).unwrap();
    }
}

#[test]
fn first_fit_keeps_its_areas_where_a_round_is_shorter_than_the_expiry() {
    for (scan, most) in [(Scan::Tick, 0.0), (Scan::Switch, 0.5)] {
        let first_fit = &figures(&CONFIGS[..1], Variant::FirstFit, scan)[0];
        let broken: Vec<_> =
            within_a_tenth(first_fit, &CPU_ID[0]).into_iter().filter_map(Result::err).collect();
        let bad: usize = broken.iter().map(|broken| broken.bad).sum();
        let share = bad as f64 / first_fit.values().count() as f64;
        assert!(share <= most, "scans by {scan}: {broken:#?}");
    }
}
