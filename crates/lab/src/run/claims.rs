//! What `intermittent` claims at a delay of 10 ms on the machine of seed 000, over the whole band.
//!
//! | claim | configurations | scans made by |
//! |---|---|---|
//! | `recent` is within 10 % of `cpu-id` | all | switches |
//! | `first-fit` takes three times as long as that at least | 192 cores, 384 threads | switches |
//! | `first-fit` is within 10 % of `cpu-id` | 8 cores | ticks |
//! | the same, in half of the band at least | 8 cores | switches |
//!
//! The last is weaker than one might want. A round of 8 threads takes 80 ms, less than a reference
//! lives, but its order is random: a thread may pause for up to 150 ms. If two of them lose their
//! references at once they may swap IDs. (Where ticks make the scans, few scans run at all; what is
//! claimed of 192 cores and 384 threads does not hold there: see `docs/intermittent.md`.)
//!
//! A band has three request shares with 16 seeds each, and each uncertain cost at 70 % and 130 %.
//! Less is run than for `coreline run --band`: one run of each point instead of five, with
//! [`SEQUENCES`] counted sequences instead of six.

use std::fmt::Write as _;
use std::sync::LazyLock;

use coreline_sim::{Replay, Spec};

use super::trial::Point;
use super::{Case, simulated};
use crate::kernel::Scan;
use crate::scenario::{Config, Variant};

const MACHINE: &str = "epyc-9654-2s";
const DELAY_MS: u64 = 10;
const SEQUENCES: u32 = 2;

const CONFIGS: [&str; 4] = ["8-core/1-L3", "24-core/24-L3", "192-core/24-L3", "384-thread/24-L3"];

/// A figure at each point of the band, with the line that gives it again.
struct Band(Vec<(f64, Replay)>);

impl Band {
    fn of(config: &str, variant: Variant, scan: Scan) -> Band {
        let spec = Spec::preset(MACHINE).unwrap();
        let mut configs = Config::all(spec.topology()).into_iter();
        let config = configs.find(|has| has.name == config).unwrap();
        let program = Case { config, delay_ms: DELAY_MS, variant }.program(SEQUENCES);
        let points = Point::band(&spec, 1, true);
        let lines: Vec<Replay> =
            points.iter().map(|point| point.replay(spec.name(), &program, scan, 0)).collect();
        let values = simulated::run_all(&spec, &lines).unwrap_or_else(|error| panic!("{error}"));
        Band(values.into_iter().zip(lines).collect())
    }

    /// The points at which the quotient with another band is not as it should be, in words, and
    /// their share.
    fn misses(&self, other: &Band, holds: impl Fn(f64) -> bool) -> (String, f64) {
        let mut told = String::new();
        let mut misses = 0;
        for ((value, line), (other, _)) in self.0.iter().zip(&other.0) {
            let ratio = value / other;
            if !holds(ratio) {
                misses += 1;
                writeln!(told, "{ratio:.3}: {value:.1} ns over {other:.1} ns; replay: {line}")
                    .unwrap();
            }
        }
        (told, f64::from(misses) / self.0.len() as f64)
    }
}

/// `cpu-id`, which no scan changes, by configuration.
static CPU_ID: LazyLock<Vec<Band>> = LazyLock::new(|| {
    CONFIGS.iter().map(|config| Band::of(config, Variant::CpuId, Scan::Switch)).collect()
});

/// The points at which a variant's time over that of `cpu-id` is not as it should be, and their
/// share.
fn misses(
    config: usize,
    variant: Variant,
    scan: Scan,
    holds: impl Fn(f64) -> bool,
) -> (String, f64) {
    let name = CONFIGS[config];
    let (told, share) = Band::of(name, variant, scan).misses(&CPU_ID[config], holds);
    (format!("{name}, {variant} over cpu-id, scans by {scan}:\n{told}"), share)
}

fn within_a_tenth(ratio: f64) -> bool {
    (0.9..=1.1).contains(&ratio)
}

#[test]
fn recent_is_as_local_as_the_cpus_number() {
    for config in 0..CONFIGS.len() {
        let (told, share) = misses(config, Variant::Recent, Scan::Switch, within_a_tenth);
        assert!(share == 0.0, "{told}");
    }
}

#[test]
fn first_fit_takes_three_times_as_long_once_a_round_outlasts_the_expiry() {
    for config in [2, 3] {
        let (told, share) = misses(config, Variant::FirstFit, Scan::Switch, |ratio| ratio >= 3.0);
        assert!(share == 0.0, "{told}");
    }
}

#[test]
fn first_fit_keeps_its_areas_where_a_round_is_shorter_than_the_expiry() {
    for (scan, most) in [(Scan::Tick, 0.0), (Scan::Switch, 0.5)] {
        let (told, share) = misses(0, Variant::FirstFit, scan, within_a_tenth);
        assert!(share <= most, "{told}");
    }
}
