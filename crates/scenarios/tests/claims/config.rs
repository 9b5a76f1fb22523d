//! Which CPUs take part, by name.

use coreline_scenarios::config::Config;
use coreline_sim::Spec;
use coreline_topology::{CpuId, Topology};

#[test]
fn a_tree_that_was_made_up_says_nothing_of_caches() {
    let topology = Topology::flat(&"0-1".parse().unwrap()).unwrap();
    let cpus = || [0, 1].map(CpuId::new).to_vec();
    let known = Config::here(&topology, true, cpus());
    assert_eq!((known.name.as_str(), known.caches), ("2-core/1-L3", 1));
    let unknown = Config::here(&topology, false, cpus());
    assert_eq!((unknown.name.as_str(), unknown.caches), ("2-CPU", 0));
}

#[test]
fn the_published_configurations_are_those_of_the_machine() {
    let spec = Spec::preset("epyc-9654-2s").unwrap();
    let configs = Config::all(spec.topology());
    let names: Vec<_> = configs.iter().map(|config| config.name.as_str()).collect();
    assert_eq!(names, ["8-core/1-L3", "24-core/24-L3", "192-core/24-L3", "384-thread/24-L3"]);
    assert_eq!(configs[1].cpus[..3], [0, 8, 16].map(CpuId::new));
    assert_eq!(configs[2].cpus.last(), Some(&CpuId::new(191)));
    let caches: Vec<_> = configs.iter().map(|config| config.caches).collect();
    assert_eq!(caches, [1, 24, 24, 24]);
}

#[test]
fn a_machine_with_one_cache_is_run_whole_and_once() {
    let spec = Spec::preset("host-2c").unwrap();
    let configs = Config::all(spec.topology());
    assert_eq!(configs.len(), 1);
    assert_eq!(configs[0].name, "2-core/1-L3");
}
