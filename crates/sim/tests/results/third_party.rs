//! What docs/third-party.md says in words, over the request shares.

#[path = "../../examples/third_party/metrics.rs"]
mod metrics;
#[allow(dead_code, reason = "the loads of the reports, which the program shows")]
#[path = "../../examples/third_party/mutexes.rs"]
mod mutexes;
#[path = "../../examples/third_party/parking.rs"]
mod parking;

use coreline_sim::Spec;
use coreline_sim::claim::{Band, Figures};
use mutexes::{MutexKind, Work};

fn band() -> Band {
    Band::quick(&Spec::preset("epyc-9654-2s").unwrap(), 1)
}

fn mutexes(kind: MutexKind, work: Work) -> Figures {
    let name = format!("mutex {kind:?} {work:?}");
    band().measure(&name, |machine| mutexes::rate(machine, kind, 36, work)).unwrap()
}

#[test]
fn the_parking_lock_is_far_behind_back_to_back_and_less_with_work_outside() {
    let [back_to_back, _, outside] = Work::ALL;
    let std = mutexes(MutexKind::Std, back_to_back);
    std.at_least(10.0, &mutexes(MutexKind::Parking, back_to_back)).unwrap();
    let (std, parking) = (mutexes(MutexKind::Std, outside), mutexes(MutexKind::Parking, outside));
    std.at_least(2.0, &parking).unwrap();
    std.at_most(8.0, &parking).unwrap();
}

#[test]
fn a_metric_of_one_shard_gets_slower_with_threads() {
    let measure = |threads: u32, shards| {
        let name = format!("metric {threads} {shards}");
        band().measure(&name, |machine| metrics::rate(machine, threads, shards)).unwrap()
    };
    let (alone, together) = (measure(1, 1), measure(16, 1));
    alone.at_least(3.0, &together).unwrap();
    measure(16, 16).at_least(10.0, &alone).unwrap();
}
