//! That it runs as it says, and what is claimed.

mod areas;
mod claims;

use coreline_scenarios::RunError;
use coreline_scenarios::intermittent::{SCENARIO, bursts};
use coreline_scenarios::point::Setup;
use coreline_sim::{Machine, Sim};

fn setup(turns: &str, variant: &str, cpus: u32) -> Setup {
    let program = format!("intermittent config=x delay=1 turns={turns} variant={variant}");
    Setup::new(&program, 0..cpus)
}

fn simulated<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    Machine::preset("host-2c").unwrap().run(run).unwrap().value
}

#[test]
fn every_thread_bursts_once_in_each_counted_sequence() {
    for turns in ["timed", "called"] {
        let bursts = simulated(|| bursts::<Sim>(&setup(turns, "cpu-id", 2)).unwrap());
        assert_eq!(bursts.len(), 2 * 5);
        assert!(bursts.iter().all(|&ns| ns > 0), "{bursts:?}");
    }
}

#[test]
fn a_missing_index_is_a_lack_and_every_thread_ends() {
    // No kernel is installed, so there are no concurrency IDs.
    for turns in ["timed", "called"] {
        let lack = simulated(|| (SCENARIO.simulated)(&setup(turns, "kernel-cid", 1)).unwrap_err());
        assert!(matches!(&lack, RunError::Lack(what) if what.contains("kernel-cid")), "{lack}");
    }
}

#[test]
fn a_burst_after_a_long_sleep_is_cold_and_the_first_is_not() {
    let bursts = simulated(|| bursts::<Sim>(&setup("timed", "cpu-id", 1)).unwrap());
    let spec = coreline_sim::Spec::preset("host-2c").unwrap();
    let hot = 256 * spec.costs().private_hit / 1000;
    assert!(bursts[0] < 2 * hot, "{bursts:?}");
    // A sleep of 1 ms is longer than `idle_flush`.
    assert!(bursts[1..].iter().all(|&burst| burst > 2 * hot), "{bursts:?}");
}
