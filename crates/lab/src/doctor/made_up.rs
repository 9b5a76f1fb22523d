//! Machines that tests describe.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use coreline_topology::{CgroupLimits, Cid, CpuSet, Quota, Shape, SysfsError, Topology};
use coreline_world::native::{HugePool, NoSections, Probe, Registrar, Registration, RseqAbi};
use coreline_world::{Lacking, Why};

use super::Found;
use crate::host::{Governor, Host, IdleState};

/// Two nodes, and everything that there can be.
pub(super) fn all_on() -> Found {
    let shape = Shape { sockets: 2, cores_per_cache: 4, threads_per_core: 2, ..Shape::default() };
    let topology = Topology::uniform(shape).unwrap();
    let cpus = topology.set();
    let probe = Probe {
        kernel: "7.1.0".to_owned(),
        registration: Some(Registration { offset: -64, size: 33 }),
        registered_by: Some(Registrar::Libc),
        rseq_abi: Some(RseqAbi::V2),
        registered_bytes: Some(33),
        feature_size: 33,
        area_align: 64,
        switch: None,
        sections: Ok(()),
        mm_cid: Some(Cid::new(3)),
        slice_extension: true,
        membarrier: vec!["GLOBAL", "PRIVATE_EXPEDITED", "PRIVATE_EXPEDITED_RSEQ"],
        asymmetric_fences: true,
        restartable_fence: true,
        futex: true,
        transparent_huge_pages: Some("madvise".to_owned()),
        huge_pools: vec![
            HugePool { page_kib: 2 << 10, pages: 8, free: 5 },
            HugePool { page_kib: 1 << 20, pages: 0, free: 0 },
        ],
        huge_pages: Ok(()),
        placement: Ok(()),
        wait_instructions: vec!["WAITPKG"],
        allowed: Ok(cpus.clone()),
        topology: Arc::new(topology),
        topology_error: None,
        hidden: CpuSet::default(),
    };
    let cgroup = Ok(CgroupLimits { cpus: Some(cpus.clone()), quota: None });
    let host = Host {
        processor: Some("Processor 9 (family 1, model 2, stepping 3)".to_owned()),
        hypervisor: None,
        hypervisor_known: true,
        smt: Some("on".to_owned()),
        governors: vec![Governor {
            name: "performance".to_owned(),
            driver: "acpi-cpufreq".to_owned(),
            cpus: cpus.to_string(),
        }],
        idle_states: vec![IdleState { name: "C1".to_owned(), exit_us: 1, disabled: false }],
        numa_balancing: Some(0),
        proc_error: None,
    };
    Found { probe, allowed: Ok(cpus), cgroup, host }
}

/// A sandbox that refuses or hides whatever can be.
pub(super) fn all_off() -> Found {
    let nowhere = Box::leak(Box::new(SysfsError::NoCpus { path: PathBuf::from("sys/cpu") }));
    let refused = || "Operation not permitted".to_owned();
    let probe = Probe {
        kernel: "6.1.0".to_owned(),
        registration: None,
        registered_by: None,
        rseq_abi: None,
        registered_bytes: None,
        feature_size: 0,
        area_align: 0,
        switch: None,
        sections: Err(NoSections::Refused(1)),
        mm_cid: None,
        slice_extension: false,
        membarrier: Vec::new(),
        asymmetric_fences: false,
        restartable_fence: false,
        futex: false,
        transparent_huge_pages: None,
        huge_pools: Vec::new(),
        huge_pages: Err(lacking("madvise: Invalid argument", "a kernel with huge pages")),
        placement: Ok(()),
        wait_instructions: Vec::new(),
        allowed: Err(refused()),
        topology: one_node(),
        topology_error: Some(nowhere),
        hidden: CpuSet::default(),
    };
    let host = Host { proc_error: Some(refused()), ..Host::default() };
    Found { probe, allowed: Err(refused()), cgroup: Err("cannot read proc".to_owned()), host }
}

/// The first of the two, with this quota in microseconds.
pub(super) fn quota(time: u64, period: u64) -> Found {
    let [time, period] = [time, period].map(Duration::from_micros);
    let cgroup = Ok(CgroupLimits { cpus: None, quota: Some(Quota { time, period }) });
    Found { cgroup, ..all_on() }
}

/// One with many parts, and names of hundreds of characters.
pub(super) fn long() -> Found {
    let Found { mut probe, mut host, .. } = all_off();
    let odd: Vec<String> = (0..4_000).step_by(3).map(|cpu| cpu.to_string()).collect();
    let cpus: CpuSet = odd.join(",").parse().unwrap();
    let long = || "n".repeat(200);
    let shape = Shape {
        sockets: 32,
        nodes_per_socket: 1,
        caches_per_node: 16,
        cores_per_cache: 4,
        threads_per_core: 2,
    };
    probe.topology = Arc::new(Topology::uniform(shape).unwrap());
    probe.kernel = long();
    probe.switch = Some(long());
    probe.membarrier = vec!["REGISTER_PRIVATE_EXPEDITED_SYNC_CORE"; 20];
    host.processor = Some(long());
    host.hypervisor = Some("words of a name ".repeat(20));
    host.governors = vec![Governor { name: long(), driver: long(), cpus: cpus.to_string() }];
    let state = IdleState { name: long(), exit_us: u64::MAX, disabled: false };
    host.idle_states = vec![state; 16];
    host.proc_error = Some(long());
    Found { probe, allowed: Ok(cpus), cgroup: Err(long()), host }
}

/// CPUs 0 and 1, and nothing else known.
pub(super) fn one_node() -> Arc<Topology> {
    Arc::new(Topology::flat(&"0-1".parse().unwrap()).unwrap())
}

pub(super) fn lacking(why: &'static str, remedy: &'static str) -> Lacking {
    Lacking { world: "native", capability: "something", why: Why::new(why), remedy }
}
