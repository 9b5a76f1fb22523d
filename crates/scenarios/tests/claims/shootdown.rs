//! What is claimed, and what cannot be run.

use coreline_scenarios::point::Setup;
use coreline_scenarios::shootdown::SCENARIO;
use coreline_scenarios::{RunError, figures};

use crate::band::BOTH;

/// Claimed on `ivybridge-ex-4s` with 1 context of 120 present, over the whole band.
#[test]
fn a_lazy_update_takes_six_tenths_of_an_eager_ones_time_at_most() {
    let program = "shootdown config=120-thread/4-L3 present=1 variant={} updates=20";
    for band in BOTH {
        let [lazy, eager] = figures(band, "ivybridge-ex-4s", program, "", ["lazy", "eager"]);
        for (lazy, eager) in lazy.iter().zip(&eager) {
            lazy.at_most(0.6, eager).unwrap();
        }
    }
}

#[test]
fn more_than_there_are_cannot_be_present() {
    let setup = Setup::new("shootdown config=x present=3 variant=lazy updates=20", [0, 1]);
    assert!(matches!((SCENARIO.native)(&setup), Err(RunError::Lack(_))));
}
