//! Known machines, read from the files that their kernels show.

mod common;

use std::sync::{Mutex, PoisonError};

use common::fixture::fixture;
use common::{Files, Root};
use coreline_topology::Distance::{
    OtherSocket, SameCache, SameCluster, SameCore, SameL2, SameNode, SameSocket,
};
use coreline_topology::{
    CacheId, CgroupLimits, CoreKind, CpuId, Distance, NodeId, Shape, Topology, allowed_cpus,
};

/// Reads one machine at a time: each takes tens of megabytes of a file system in memory.
fn read(name: &str, files: &Files) -> Topology {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let root = Root::new(name, "", files);
    Topology::from_sysfs(&root.path().join("sys")).unwrap()
}

fn machine(name: &str) -> Topology {
    read(name, &fixture(name))
}

/// CPUs, cores, second-level caches, clusters, last-level caches, nodes and sockets.
fn counts(machine: &Topology) -> [usize; 7] {
    [
        machine.cpu_count(),
        machine.core_count(),
        machine.l2_count(),
        machine.cluster_count(),
        machine.cache_count(),
        machine.node_count(),
        machine.socket_count(),
    ]
}

/// The distances of CPU 0 to some others.
fn assert_distances(machine: &Topology, others: &[(u32, Distance)]) {
    for &(other, distance) in others {
        let found = machine.distance(CpuId::new(0), CpuId::new(other));
        assert_eq!(found, Some(distance), "of CPU {other}");
    }
}

/// The distances of a node to all nodes with CPUs.
fn row(machine: &Topology, from: u32) -> Vec<u32> {
    let distance = |to| machine.node_distance(NodeId::new(from), to).unwrap();
    machine.nodes().map(distance).collect()
}

#[test]
fn two_epyc_9654() {
    let machine = machine("epyc-9654-2s");
    assert_eq!(counts(&machine), [384, 192, 192, 192, 24, 2, 2]);
    assert_eq!(machine.cpus_of_cache(CacheId::new(12)).to_string(), "96-103,288-295");
    assert_eq!(machine.cpus_of_node(NodeId::new(1)).to_string(), "96-191,288-383");
    assert_distances(
        &machine,
        &[(192, SameCore), (1, SameCache), (199, SameCache), (8, SameNode), (96, OtherSocket)],
    );
    assert_eq!([row(&machine, 0), row(&machine, 1)], [[10, 32], [32, 10]]);

    // But for distances, it is a regular machine.
    let mut files = fixture("epyc-9654-2s");
    files.retain(|path, _| !path.ends_with("/distance"));
    let regular = Topology::uniform(Shape {
        sockets: 2,
        nodes_per_socket: 1,
        caches_per_node: 12,
        cores_per_cache: 8,
        threads_per_core: 2,
    });
    assert_eq!(read("regular", &files), regular.unwrap());
}

#[test]
fn two_epyc_9654_of_four_nodes_each() {
    let machine = machine("epyc-9654-2s-nps4");
    assert_eq!(counts(&machine), [384, 192, 192, 192, 24, 8, 2]);
    assert_distances(&machine, &[(16, SameNode), (24, SameSocket), (96, OtherSocket)]);
    assert_eq!(row(&machine, 5), [32, 32, 32, 32, 12, 10, 12, 12]);
}

#[test]
fn two_epyc_7003() {
    let machine = machine("epyc-7003-2s");
    assert_eq!(counts(&machine), [256, 128, 128, 128, 16, 2, 2]);
    assert_distances(&machine, &[(128, SameCore), (135, SameCache), (64, OtherSocket)]);
}

#[test]
fn arm64_of_96_cores_and_four_nodes() {
    let machine = machine("kunpeng920-96c-4n");
    assert_eq!(counts(&machine), [96, 96, 96, 24, 4, 4, 2]);
    assert_distances(
        &machine,
        &[(3, SameCluster), (4, SameCache), (24, SameSocket), (48, OtherSocket)],
    );
    assert_eq!(row(&machine, 1), [12, 10, 22, 24]);
    assert!(machine.cpus().all(|cpu| cpu.thread == 0));
}

#[test]
fn x86_of_128_cores_and_eight_nodes() {
    let machine = machine("x86-128c-8n");
    assert_eq!(counts(&machine), [128, 128, 128, 128, 16, 8, 2]);
    assert_distances(&machine, &[(7, SameCache), (8, SameNode), (16, SameSocket)]);
}

#[test]
fn four_sockets_as_old_kernels_show_them() {
    let machine = machine("ivybridge-ex-4s");
    assert_eq!(counts(&machine), [120, 60, 60, 60, 4, 4, 4]);
    assert_distances(&machine, &[(60, SameCore), (14, SameCache), (15, OtherSocket)]);
    assert!(machine.memory_nodes().eq((0..4).map(NodeId::new)));
}

#[test]
fn clusters_stand_for_a_last_level_that_is_not_shown() {
    let machine = machine("arm64-2x64c");
    assert_eq!(counts(&machine), [128, 128, 128, 64, 64, 2, 2]);
    assert_distances(&machine, &[(1, SameCluster), (2, SameNode), (64, OtherSocket)]);
    assert_eq!(machine.cpus_of_cache(CacheId::new(1)).to_string(), "2-3");
}

#[test]
fn a_container_of_one_cpu() {
    let files = fixture("container-1cpu");
    let root = Root::new("container", "", &files);
    let machine = Topology::from_sysfs(&root.path().join("sys")).unwrap();
    assert_eq!(counts(&machine), [8, 8, 8, 8, 1, 1, 1]);
    assert_eq!(machine.cpu_limit(), 8);

    let five = "5".parse().unwrap();
    assert_eq!(allowed_cpus(root.path()).unwrap(), Some(five));
    let limits = CgroupLimits::read(root.path()).unwrap();
    assert_eq!(limits.cpus.unwrap().to_string(), "5");
    let quota = limits.quota.unwrap();
    assert_eq!((quota.cpus(), quota.whole_cpus()), (0.5, 1));
}

#[test]
fn hybrid_x86() {
    let machine = machine("hybrid-x86");
    assert_eq!(counts(&machine), [24, 16, 10, 10, 1, 1, 1]);
    let kinds: Vec<_> = machine.kinds().into_iter().collect();
    assert_eq!(kinds, [CoreKind::Performance, CoreKind::Efficient]);
    assert_eq!(machine.cpus_of_kind(CoreKind::Efficient).to_string(), "16-23");
    assert_distances(&machine, &[(1, SameCore), (2, SameCache), (16, SameCache)]);
    let [first, second] = [16, 19].map(CpuId::new);
    assert_eq!(machine.distance(first, second), Some(SameL2));
}

#[test]
fn big_little_arm64() {
    let machine = machine("big-little-arm64");
    assert_eq!(counts(&machine), [8, 8, 8, 3, 1, 1, 1]);
    let kinds: Vec<_> = machine.kinds().into_iter().collect();
    assert_eq!(kinds, [CoreKind::capacity(1024), CoreKind::capacity(530)]);
    assert_eq!(machine.cpus_of_kind(CoreKind::capacity(530)).to_string(), "0-3");
    assert_distances(&machine, &[(3, SameCluster), (4, SameCache)]);
    assert!(machine.memory_nodes().eq([NodeId::new(0)]));
}

#[test]
fn nodes_without_memory_and_nodes_without_cpus() {
    let machine = machine("odd-nodes");
    assert_eq!(counts(&machine), [6, 4, 4, 4, 2, 2, 2]);
    assert_eq!(machine.cpu_limit(), 16);
    let [zero, one, two, four, nine] = [0, 1, 2, 4, 9].map(NodeId::new);
    assert!(machine.nodes().eq([zero, one]));
    assert!(machine.memory_nodes().eq([zero, four, nine]));
    assert_eq!(machine.nearest_memory(zero), Some(zero));
    assert_eq!(machine.nearest_memory(one), Some(nine));
    assert_eq!(machine.node_distance(one, four), Some(24));
    assert_eq!(machine.node_distance(nine, one), Some(18));
    assert_eq!(machine.node_distance(one, two), None);
    let [three, seven] = [3, 7].map(|cpu| machine.cpu(CpuId::new(cpu)).unwrap());
    assert_eq!((three.thread, seven.thread, seven.node), (1, 0, one));
}
