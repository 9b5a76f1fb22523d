//! Machines as wide as CPU numbers go: 65,536 of them. What cannot be had there is refused, and
//! nothing panics.

use std::{env, fs, process};

use coreline::CpuMask;
use coreline::cid::{
    CidError, CidLayout, CidSpace, Clustered, FirstFit, Owned, Policy, Recent, References,
};
use coreline::domain::{DomainOptions, Domains, DomainsOptions, LocalError};
use coreline::mask::MaskLayout;
use coreline::percpu::{PoolError, Word64};
use coreline_topology::{CpuId, CpuSet, MAX_CPUS, Shape, Topology};
use coreline_world::Time;

const LAST: CpuId = CpuId::new(MAX_CPUS - 1);

/// The machine that a sysfs tree of one file describes.
fn from_sysfs(test: &str, online: &str) -> Topology {
    let root = env::temp_dir().join(format!("coreline-wide-{}-{test}", process::id()));
    let cpus = root.join("devices/system/cpu");
    fs::create_dir_all(&cpus).unwrap();
    fs::write(cpus.join("online"), online).unwrap();
    let topology = Topology::from_sysfs(&root);
    fs::remove_dir_all(&root).unwrap();
    topology.unwrap()
}

/// Two CPUs at both ends of the numbers; numbers that go as far as a caller can ask for; and as
/// many CPUs as there are numbers, each on a node of its own.
fn machines(test: &str) -> [Topology; 3] {
    let shape = Shape { sockets: MAX_CPUS, ..Shape::default() };
    let few = Topology::flat(&"0-1".parse().unwrap()).unwrap();
    [
        from_sysfs(test, "0,65535\n"),
        few.with_limit_at_least(usize::MAX),
        Topology::uniform(shape).unwrap(),
    ]
}

#[test]
fn the_widest_machines_have_masks() {
    for topology in machines("masks") {
        assert_eq!(topology.cpu_limit(), MAX_CPUS as usize);
        let mask = CpuMask::with_layout(&MaskLayout::new(&topology));
        let last = mask.cpus().last().unwrap();
        assert_eq!(mask.set(last), Ok(true));
        assert_eq!(mask.snapshot(), [last].into_iter().collect());
        assert_eq!(mask.set(LAST).is_ok(), last == LAST);
        assert!(mask.set(CpuId::new(MAX_CPUS)).is_err());
    }
}

/// A task that runs on the last CPU of the numbers.
fn space<P: Policy>(layout: &CidLayout<P>) {
    let space: CidSpace<P> = CidSpace::new(layout);
    let cpus: CpuSet = [LAST].into_iter().collect();
    let task = space.user_enter(&cpus).unwrap();
    let now = Time::from_nanos(0);
    let cid = space.switch_in(now, LAST, &task).unwrap();
    assert!(layout.range(LAST).unwrap().contains(&cid.get()), "{cid}");
    space.switch_out(now, LAST, &task);
    space.migrate(now, &task, LAST, CpuId::new(0)).unwrap();
    space.exec(now, &task, &cpus).unwrap();
    space.user_leave(task).unwrap();
    assert_eq!(space.users(), 0);
}

#[test]
fn the_widest_machines_have_concurrency_ids() {
    for topology in machines("ids") {
        space::<FirstFit>(&CidLayout::new(&topology).unwrap());
        space::<Recent>(&CidLayout::new(&topology).unwrap());
        space::<Owned>(&CidLayout::new(&topology).unwrap());
        // Numbers that begin at a page for each node may go further than there are.
        for slots in [1, 64, u32::MAX] {
            match CidLayout::<Clustered>::with_slots_per_page(&topology, slots) {
                Ok(layout) => space(&layout),
                Err(CidError::TooWide { width, most }) => assert!(slots > 1 && width > most),
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// A local of a domain that has an ID for each number, and as many leases.
fn domain<P: References>(topology: &Topology) {
    let layout = CidLayout::<P>::with_slots_per_page(topology, 1).unwrap();
    let options = DomainsOptions::new().leases(MAX_CPUS as usize);
    let domains = Domains::<P>::with_layout(layout, options).unwrap();
    let domain = domains.domain(DomainOptions::new());
    match domain.local(|| Word64::new(0)) {
        Ok(local) => {
            local.add(1);
            assert_eq!(local.sum(), 1);
            assert!(domain.lease().is_ok());
        }
        // Gigabytes of address space, which not every process may have.
        Err(error) => assert!(matches!(error, LocalError::Pool(PoolError::Map(_))), "{error}"),
    }
}

#[test]
fn the_widest_machines_have_domains() {
    for topology in machines("domains") {
        domain::<Recent>(&topology);
        domain::<Clustered>(&topology);
    }
}
