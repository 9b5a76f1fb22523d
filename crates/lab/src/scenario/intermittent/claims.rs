//! What `intermittent` claims at a delay of 10 ms on the machine of seed 000, over the whole band.
//!
//! | claim | configurations | scans made by |
//! |---|---|---|
//! | `recent` is within 10 % of `cpu-id` | all | ticks; switches |
//! | `owned` and `clustered` are | all | ticks |
//! | `first-fit` takes at least three times as long | 192 cores, 384 threads | ticks; switches |
//! | `first-fit` is within 10 % of `cpu-id` | 8 cores | ticks |
//! | the same, in half of the band at least | 8 cores | switches |
//!
//! Ticks are what asks for a scan in the kernel; there all claims hold at once. Switches are the
//! other end, as many scans as can be, and there the last one is weaker: a round of 8 threads takes
//! 80 ms, less than a reference lives, but its order is random, so a thread may pause for up to
//! 150 ms, and if two of them lose their references at once they may swap IDs.
//!
//! A band has three request shares with 16 seeds each, and each uncertain cost at 70 % and 130 %.
//! Each point is one run, of as many counted sequences as its mean needs: see [`sequences`].

use std::sync::LazyLock;

use coreline_sim::claim::{Band, BrokenClaim, Figures};

use crate::run;

const CONFIGS: [&str; 4] = ["8-core/1-L3", "24-core/24-L3", "192-core/24-L3", "384-thread/24-L3"];

/// Counted sequences of a run. Scans by switches come several times in each. Scans by ticks come
/// every few seconds, so at 192 cores every third or fourth sequence: fewer sequences than these
/// would ask whether there was one, and not what they cost.
fn sequences(scan: &str) -> u32 {
    if scan == "switch" { 2 } else { 24 }
}

/// A variant's times over the whole band, by configuration.
fn figures(configs: &[&str], variant: &str, scan: &str) -> Vec<Figures> {
    let of = |config: &&str| {
        let sequences = sequences(scan);
        let program =
            format!("intermittent config={config} delay=10 variant={{}} sequences={sequences}");
        let [mut numbers] = run::figures(Band::whole, "epyc-9654-2s", &program, scan, [variant]);
        numbers.remove(0)
    };
    configs.iter().map(of).collect()
}

/// `cpu-id`, which no scan changes, by configuration.
static CPU_ID: LazyLock<Vec<Figures>> = LazyLock::new(|| figures(&CONFIGS, "cpu-id", "switch"));

/// Claims both ways that a time is within 10 % of another.
fn within_a_tenth(times: &Figures, of: &Figures) -> [Result<(), Box<BrokenClaim>>; 2] {
    [times.at_least(0.9, of), times.at_most(1.1, of)]
}

fn is_as_local_as_the_cpus_number(variant: &str, scan: &str) {
    for (times, cpu_id) in figures(&CONFIGS, variant, scan).iter().zip(&*CPU_ID) {
        for claim in within_a_tenth(times, cpu_id) {
            claim.unwrap();
        }
    }
}

#[test]
fn recent_is_as_local_as_the_cpus_number_with_scans_by_ticks() {
    is_as_local_as_the_cpus_number("recent", "tick");
}

#[test]
fn recent_is_as_local_as_the_cpus_number_with_scans_by_switches() {
    is_as_local_as_the_cpus_number("recent", "switch");
}

#[test]
fn owned_is_as_local_as_the_cpus_number() {
    is_as_local_as_the_cpus_number("owned", "tick");
}

#[test]
fn clustered_is_as_local_as_the_cpus_number() {
    is_as_local_as_the_cpus_number("clustered", "tick");
}

#[test]
fn first_fit_takes_three_times_as_long_once_a_round_outlasts_the_expiry() {
    for scan in ["tick", "switch"] {
        let first_fit = figures(&CONFIGS[2..], "first-fit", scan);
        for (first_fit, cpu_id) in first_fit.iter().zip(&CPU_ID[2..]) {
            first_fit.at_least(3.0, cpu_id).unwrap();
        }
    }
}

#[test]
fn first_fit_keeps_its_areas_where_a_round_is_shorter_than_the_expiry() {
    for (scan, most) in [("tick", 0.0), ("switch", 0.5)] {
        let first_fit = &figures(&CONFIGS[..1], "first-fit", scan)[0];
        let broken: Vec<_> =
            within_a_tenth(first_fit, &CPU_ID[0]).into_iter().filter_map(Result::err).collect();
        let bad: usize = broken.iter().map(|broken| broken.bad).sum();
        let share = bad as f64 / first_fit.values().count() as f64;
        assert!(share <= most, "scans by {scan}: {broken:#?}");
    }
}
