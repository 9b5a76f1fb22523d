//! Regular machines: numbering, distances, and the shapes that are refused.

use coreline_topology::{
    CacheId, CoreKind, CpuId, CpuSet, Distance, MAX_CPUS, NodeId, Shape, ShapeError, Topology,
};

#[test]
fn two_sockets_of_96_cores_are_numbered_as_on_x86() {
    let shape = Shape {
        sockets: 2,
        nodes_per_socket: 1,
        caches_per_node: 12,
        cores_per_cache: 8,
        threads_per_core: 2,
    };
    let machine = Topology::uniform(shape).unwrap();
    assert_eq!(machine.cpu_count(), 384);
    assert_eq!(machine.cpu_limit(), 384);
    assert_eq!(machine.core_count(), 192);
    assert_eq!(machine.cache_count(), 24);
    assert_eq!(machine.node_count(), 2);
    assert_eq!(machine.socket_count(), 2);
    assert_eq!(machine.cpus_of_cache(CacheId::new(1)).to_string(), "8-15,200-207");
    assert_eq!(machine.cpus_of_node(NodeId::new(1)).to_string(), "96-191,288-383");
    assert_eq!(machine.set().to_string(), "0-383");

    let last = machine.cpu(CpuId::new(383)).unwrap();
    assert_eq!((last.core, last.thread, last.socket), (191, 1, 1));
    assert_eq!((last.cache, last.node), (CacheId::new(23), NodeId::new(1)));
    assert!(machine.cpu(CpuId::new(384)).is_none());
}

#[test]
fn distance_is_the_smallest_part_that_holds_both() {
    let shape = Shape {
        sockets: 2,
        nodes_per_socket: 2,
        caches_per_node: 2,
        cores_per_cache: 2,
        threads_per_core: 2,
    };
    let machine = Topology::uniform(shape).unwrap();
    for (other, distance) in [
        (0, Distance::SameCpu),
        (16, Distance::SameCore),
        (1, Distance::SameCache),
        (2, Distance::SameNode),
        (4, Distance::SameSocket),
        (8, Distance::OtherSocket),
    ] {
        let (zero, other) = (CpuId::new(0), CpuId::new(other));
        assert_eq!(machine.distance(zero, other), Some(distance));
        assert_eq!(machine.distance(other, zero), Some(distance));
    }
    assert_eq!(machine.distance(CpuId::new(0), CpuId::new(32)), None);
    assert!(Distance::SameCpu < Distance::SameCore);
    assert!(Distance::SameSocket < Distance::OtherSocket);
}

#[test]
fn a_zero_count_is_named() {
    let error = Topology::uniform(Shape { cores_per_cache: 0, ..Shape::default() }).unwrap_err();
    assert_eq!(error, ShapeError::Zero { field: "cores_per_cache" });
    assert_eq!(
        error.to_string(),
        "the shape has cores_per_cache = 0; every count must be at least 1"
    );
}

#[test]
fn at_most_65536_cpus() {
    let largest = Shape { sockets: 256, cores_per_cache: 256, ..Shape::default() };
    assert_eq!(Topology::uniform(largest).unwrap().cpu_count(), 65536);
    for shape in [
        Shape { sockets: 65537, ..Shape::default() },
        // The product wraps to zero in 32 bits.
        Shape { sockets: 65536, cores_per_cache: 65536, ..Shape::default() },
        Shape { sockets: u32::MAX, nodes_per_socket: u32::MAX, ..Shape::default() },
    ] {
        assert_eq!(Topology::uniform(shape), Err(ShapeError::TooManyCpus { shape }));
    }
}

#[test]
fn regular_machines_have_private_second_level_caches_and_default_distances() {
    let shape = Shape { sockets: 2, cores_per_cache: 4, threads_per_core: 2, ..Shape::default() };
    let machine = Topology::uniform(shape).unwrap();
    assert_eq!((machine.l2_count(), machine.cluster_count()), (8, 8));
    assert_eq!(machine.kinds(), [CoreKind::default()].into());
    assert_eq!(machine.cpus_of_kind(CoreKind::default()), machine.set());
    assert!(machine.memory_nodes().eq(machine.nodes()));
    let [zero, one, two] = [0, 1, 2].map(NodeId::new);
    assert_eq!(machine.node_distance(zero, zero), Some(10));
    assert_eq!(machine.node_distance(zero, one), Some(20));
    assert_eq!(machine.node_distance(zero, two), None);
    assert_eq!(machine.nearest_memory(one), Some(one));
    assert_eq!(machine.nearest_memory(two), None);
}

#[test]
fn a_flat_machine_has_the_cpus_given_and_a_limit_of_its_own() {
    let flat = Topology::flat(&"2,5-6".parse().unwrap()).unwrap();
    assert_eq!((flat.cpu_count(), flat.core_count(), flat.l2_count()), (3, 3, 3));
    assert_eq!((flat.cache_count(), flat.node_count(), flat.socket_count()), (1, 1, 1));
    assert_eq!(flat.set().to_string(), "2,5-6");
    assert_eq!((flat.cpu_limit(), flat.cpu_limit_is_stated()), (7, false));
    let distance = flat.distance(CpuId::new(2), CpuId::new(6));
    assert_eq!(distance, Some(Distance::SameCache));

    let wider = flat.with_limit_at_least(64);
    assert_eq!((wider.cpu_limit(), wider.cpu_limit_is_stated()), (64, true));
    assert!(wider.cpu(CpuId::new(63)).is_none());
    assert_eq!(wider.cpus().count(), 3);

    assert_eq!(Topology::flat(&CpuSet::new()), Err(ShapeError::NoCpus));
}

#[test]
fn no_cpu_and_no_limit_is_beyond_the_numbers() {
    let beyond = CpuId::new(MAX_CPUS);
    let set: CpuSet = [CpuId::new(0), beyond].into_iter().collect();
    assert_eq!(Topology::flat(&set), Err(ShapeError::NoSuchCpu { cpu: beyond }));
    let flat = Topology::flat(&"0,65535".parse().unwrap()).unwrap();
    assert_eq!((flat.cpu_count(), flat.cpu_limit()), (2, MAX_CPUS as usize));
    let more = flat.clone().with_cpus(&[CpuId::new(MAX_CPUS - 2), beyond].into_iter().collect());
    assert_eq!(more.set().to_string(), "0,65534-65535");
    assert_eq!(flat.with_limit_at_least(usize::MAX).cpu_limit(), MAX_CPUS as usize);
}
