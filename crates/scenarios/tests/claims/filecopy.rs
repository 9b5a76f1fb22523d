//! What is claimed.

use coreline_scenarios::figures;
use coreline_scenarios::lockscale::field::{NODE_SHARE, RATE};
use coreline_sim::Spec;
use coreline_sim::claim::{Band, Figures};

use crate::band::{BOTH, first_come};

/// For blocks of 256 bytes, on both machines of the published figures.
fn copied<const N: usize>(
    band: fn(&Spec, u64) -> Band,
    variants: [&str; N],
) -> [[Vec<Figures>; N]; 2] {
    let machines =
        [("kunpeng920-96c-4n", "96-core/4-L3", 96), ("x86-128c-8n", "128-core/16-L3", 128)];
    machines.map(|(machine, config, threads)| {
        let program = format!(
            "filecopy config={config} blocks=256x500 threads={threads} section=150 \
             outside=1500 variant={{}} window=2000"
        );
        figures(band, machine, &program, "", variants)
    })
}

/// In the order of arrival only: the published gains are 2.24 and 1.52. Where the nearest request
/// goes first, the order is the other one: on `kunpeng920-96c-4n`, this queue copies 0.79 to 0.87
/// times as much as one in order of arrival, and on `x86-128c-8n` its threads hardly get on.
#[test]
fn first_come_a_queue_for_each_node_copies_most_and_leaves_the_other_nodes_none() {
    for [fifo, split] in copied(first_come, ["fifo", "per-node"]) {
        split[RATE].at_least(1.5, &fifo[RATE]).unwrap();
        split[NODE_SHARE].within(0.0..=0.1).unwrap();
    }
}

#[test]
fn near_copies_more_and_leaves_each_node_its_share() {
    for band in BOTH {
        for [fifo, near] in copied(band, ["fifo", "near"]) {
            near[RATE].at_least(1.25, &fifo[RATE]).unwrap();
            near[NODE_SHARE].within(0.85..=1.0).unwrap();
        }
    }
}
