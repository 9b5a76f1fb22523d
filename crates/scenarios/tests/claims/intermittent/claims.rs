//! What `intermittent` claims at a delay of 10 ms on `epyc-9654-2s`, over a band.
//!
//! | claim | configurations | turns and scans |
//! |---|---|---|
//! | `recent` is within 10 % of `cpu-id` | all | all three |
//! | `owned` and `clustered` are | all | [`PUBLISHED`] |
//! | `first-fit` takes at least twice as long | 24 cores | [`PUBLISHED`] |
//! | `first-fit` takes at least three times as long | 192 cores, 384 threads | all three |
//! | `first-fit` is within 10 % of `cpu-id` | 8 cores | [`PUBLISHED`] |
//!
//! Timed turns and ticks are the published benchmark and the kernel: there all claims hold at once.
//! Turns in an order that is drawn anew, and scans as often as can be, are the other end.
//!
//! [`PUBLISHED`] has the band of [`first_come`]: the whole one at night, and fewer seeds before a
//! change. Threads run in turn, so no two want a line at
//! the same time, and the other arbitration has nothing to choose. The other end has one seed for
//! each share. Each point is one run, of all five counted bursts of each thread where turns are
//! timed, and of two where they are called.

use std::borrow::Cow;
use std::sync::LazyLock;

use coreline_sim::claim::{Band, BrokenClaim, Figures};

use crate::band::first_come;

const CONFIGS: [&str; 4] = ["8-core/1-L3", "24-core/24-L3", "192-core/24-L3", "384-thread/24-L3"];

/// What makes threads run in turn, and what makes the kernel scan.
const PUBLISHED: (&str, &str) = ("timed", "tick");
const OFTEN: (&str, &str) = ("timed", "switch");
const CALLED: (&str, &str) = ("called", "switch");

/// A variant's times over a band, by configuration.
fn figures(configs: &[&str], variant: &str, (turns, scan): (&str, &str)) -> Vec<Figures> {
    let sequences = if turns == "called" { 2 } else { 5 };
    let band = if (turns, scan) == PUBLISHED { first_come } else { Band::quick };
    let of = |config: &&str| {
        let program = format!(
            "intermittent config={config} delay=10 turns={turns} variant={{}} sequences={sequences}"
        );
        let [mut numbers] =
            coreline_scenarios::figures(band, "epyc-9654-2s", &program, scan, [variant]);
        numbers.remove(0)
    };
    configs.iter().map(of).collect()
}

/// `cpu-id`, by configuration.
fn cpu_id(how: (&str, &str)) -> Cow<'static, [Figures]> {
    static WHOLE: LazyLock<Vec<Figures>> = LazyLock::new(|| figures(&CONFIGS, "cpu-id", PUBLISHED));
    if how == PUBLISHED {
        Cow::Borrowed(&WHOLE)
    } else {
        Cow::Owned(figures(&CONFIGS, "cpu-id", how))
    }
}

/// Claims both ways that a time is within 10 % of another.
fn within_a_tenth(times: &Figures, of: &Figures) -> [Result<(), Box<BrokenClaim>>; 2] {
    [times.at_least(0.9, of), times.at_most(1.1, of)]
}

fn is_as_local_as_the_cpus_number(variant: &str, how: (&str, &str)) {
    for (times, cpu_id) in figures(&CONFIGS, variant, how).iter().zip(&*cpu_id(how)) {
        for claim in within_a_tenth(times, cpu_id) {
            claim.unwrap();
        }
    }
}

#[test]
fn recent_is_as_local_as_the_cpus_number() {
    for how in [PUBLISHED, OFTEN, CALLED] {
        is_as_local_as_the_cpus_number("recent", how);
    }
}

#[test]
fn owned_is_as_local_as_the_cpus_number() {
    is_as_local_as_the_cpus_number("owned", PUBLISHED);
}

#[test]
fn clustered_is_as_local_as_the_cpus_number() {
    is_as_local_as_the_cpus_number("clustered", PUBLISHED);
}

#[test]
fn first_fit_takes_three_times_as_long_once_a_round_outlasts_the_expiry() {
    for how in [PUBLISHED, OFTEN, CALLED] {
        let first_fit = figures(&CONFIGS[2..], "first-fit", how);
        for (first_fit, cpu_id) in first_fit.iter().zip(&cpu_id(how)[2..]) {
            first_fit.at_least(3.0, cpu_id).unwrap();
        }
    }
}

#[test]
fn first_fit_takes_twice_as_long_where_a_round_is_twice_the_expiry() {
    let first_fit = figures(&CONFIGS[1..2], "first-fit", PUBLISHED);
    first_fit[0].at_least(2.0, &cpu_id(PUBLISHED)[1]).unwrap();
}

#[test]
fn first_fit_keeps_its_areas_where_a_round_is_shorter_than_the_expiry() {
    let first_fit = figures(&CONFIGS[..1], "first-fit", PUBLISHED);
    for claim in within_a_tenth(&first_fit[0], &cpu_id(PUBLISHED)[0]) {
        claim.unwrap();
    }
}
