//! What is claimed.

use coreline_scenarios::figures;
use coreline_scenarios::lockscale::field::{NODE_SHARE, RATE};
use coreline_sim::claim::Band;

/// Over the whole band, for blocks of 256 bytes: the published gains are 2.24 and 1.52.
#[test]
fn a_queue_for_each_node_copies_most_and_leaves_the_other_nodes_none() {
    for (machine, config, threads) in
        [("kunpeng920-96c-4n", "96-core/4-L3", 96), ("x86-128c-8n", "128-core/16-L3", 128)]
    {
        let program = format!(
            "filecopy config={config} blocks=256x500 threads={threads} section=150 \
             outside=1500 variant={{}} window=2000"
        );
        let variants = ["fifo", "per-node", "near"];
        let [fifo, split, near] = figures(Band::whole, machine, &program, "", variants);
        split[RATE].at_least(1.5, &fifo[RATE]).unwrap();
        split[NODE_SHARE].within(0.0..=0.1).unwrap();
        near[RATE].at_least(1.25, &fifo[RATE]).unwrap();
        near[NODE_SHARE].within(0.85..=1.0).unwrap();
    }
}
