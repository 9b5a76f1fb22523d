//! [`Parts`]: which place each CPU of a machine has, and which IDs it can get there.

use core::ops::Range;

use coreline_topology::{Cpu, CpuId, CpuSet, MAX_CPUS, NodeId, Topology};

use super::CidError;

/// IDs and positions are numbers of 16 bits in a row.
pub(super) const MOST: usize = 1 << 16;

// So are numbers of CPUs.
const _: () = assert!(MAX_CPUS as usize <= MOST);

/// The part that is the same for all policies.
#[derive(Debug)]
pub struct Parts {
    /// By CPU.
    places: Box<[Place]>,
    /// By position: the CPU there, if there is one.
    cpus_at: Box<[Option<u16>]>,
    groups: Box<[Group]>,
}

/// The place of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub(super) position: u16,
    pub(crate) group: u16,
}

/// CPUs that share a range of IDs, which is the range of their positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) range: Range<u32>,
    pub(crate) node: Option<NodeId>,
}

impl Parts {
    /// Refuses more IDs than there can be, for which the places are wrong.
    pub(super) fn new(places: Vec<Place>, groups: Vec<Group>) -> Result<Self, CidError> {
        let width = groups.last().map_or(0, |group| group.range.end as usize);
        if width > MOST {
            return Err(CidError::TooWide { width, most: MOST });
        }
        let mut cpus_at = vec![None; width];
        for (cpu, place) in places.iter().enumerate() {
            cpus_at[usize::from(place.position)] = Some(cpu as u16);
        }
        Ok(Parts { places: places.into(), cpus_at: cpus_at.into(), groups: groups.into() })
    }

    /// The number of the CPU at a position.
    pub(super) fn cpu_at(&self, position: u16) -> Option<usize> {
        self.cpus_at.get(usize::from(position))?.map(usize::from)
    }

    pub(crate) fn place(&self, cpu: CpuId) -> Result<Place, CidError> {
        let limit = self.places.len();
        self.places.get(cpu.index()).copied().ok_or(CidError::NoSuchCpu { cpu, limit })
    }

    /// The places of CPUs, for those that have one.
    pub(super) fn places(&self, cpus: &CpuSet) -> impl Iterator<Item = Place> {
        cpus.iter().filter_map(|cpu| self.place(cpu).ok())
    }

    /// How many CPU numbers have a place.
    pub(super) fn cpus(&self) -> u32 {
        self.places.len() as u32
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub(super) fn width(&self) -> usize {
        self.cpus_at.len()
    }
}

/// One group, and positions that are CPU numbers.
pub(super) fn flat(topology: &Topology) -> (Vec<Place>, Vec<Group>) {
    let limit = topology.cpu_limit();
    let mut nodes = topology.nodes();
    let node = nodes.next().filter(|_| nodes.next().is_none());
    let group = Group { range: 0..limit as u32, node };
    let places = (0..limit).map(|cpu| Place { position: cpu as u16, group: 0 }).collect();
    (places, vec![group])
}

/// Node by node, cache by cache. CPUs that the tree does not know (because they are offline) come
/// last, on a page of no node.
pub(super) fn clustered(topology: &Topology, page: u32) -> (Vec<Place>, Vec<Group>) {
    let limit = topology.cpu_limit();
    let part = |cpu: &Cpu| (cpu.node, cpu.cache);
    let mut cpus: Vec<_> = (0..limit).map(|cpu| CpuId::new(cpu as u32)).collect();
    cpus.sort_by_key(|&cpu| {
        let known = topology.cpu(cpu).map(part);
        (known.is_none(), known, cpu)
    });
    let mut places = vec![Place { position: 0, group: 0 }; limit];
    let mut groups: Vec<Group> = Vec::new();
    for alike in cpus.chunk_by(|&a, &b| topology.cpu(a).map(part) == topology.cpu(b).map(part)) {
        let node = topology.cpu(alike[0]).map(|cpu| cpu.node);
        let first = match groups.last() {
            Some(last) if last.node == node => last.range.end,
            Some(last) => last.range.end.next_multiple_of(page),
            None => 0,
        };
        for (&cpu, position) in alike.iter().zip(first..) {
            places[cpu.index()] = Place { position: position as u16, group: groups.len() as u16 };
        }
        groups.push(Group { range: first..first + alike.len() as u32, node });
    }
    (places, groups)
}
