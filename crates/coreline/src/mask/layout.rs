//! [`MaskLayout`]: where the bits of a machine's CPUs lie.

use std::sync::Arc;

use coreline_topology::{CpuId, Topology};

use super::bits::{self, PER_LEAF, Position};

/// The positions of the CPUs' bits in a [`CpuMask`](super::CpuMask). A machine needs one layout,
/// which its masks share.
///
/// The CPUs under one last-level cache share a *leaf*, a cache line of the mask. The CPUs of a
/// cache with more than 256 CPUs take several leaves. The layout uses 8 bytes per CPU number and
/// one byte per leaf.
///
/// ```
/// use coreline::CpuMask;
/// use coreline::mask::MaskLayout;
/// use coreline::topology::{CpuId, Shape, Topology};
///
/// let topology = Topology::uniform(Shape {
///     sockets: 2,
///     nodes_per_socket: 1,
///     caches_per_node: 12,
///     cores_per_cache: 8,
///     threads_per_core: 2,
/// })?;
/// let layout = MaskLayout::new(&topology);
/// let tenants = [(); 3].map(|()| CpuMask::with_layout(&layout));
/// assert!(tenants[1].set(CpuId::new(383))?);
/// assert!(!tenants[2].test(CpuId::new(383)));
/// assert_eq!(layout.cpus().count(), 384);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The type is a handle, and its clones are the same layout.
#[derive(Clone)]
pub struct MaskLayout {
    /// By CPU number. All positions lie in existing leaves, including those of CPUs without a bit.
    positions: Arc<[Position]>,
    /// For each leaf: how many of its words have bits. There is at least one leaf.
    used: Arc<[u8]>,
}

impl MaskLayout {
    /// Creates the layout of a machine. CPUs that are offline have no bit.
    pub fn new(topology: &Topology) -> Self {
        let mut positions = vec![Position::NONE; topology.cpu_limit()];
        // By leaf: how many bits it has. By cache: the leaf that is being filled; every leaf
        // that is opened gets a bit, so there are at most as many as CPUs.
        let mut sizes = Vec::new();
        let mut open = vec![None; topology.cache_count()];
        for cpu in topology.cpus() {
            let cache = cpu.cache.index();
            let leaf = match open[cache] {
                Some(leaf) if sizes[leaf] < PER_LEAF as usize => leaf,
                _ => {
                    sizes.push(0);
                    sizes.len() - 1
                }
            };
            open[cache] = Some(leaf);
            positions[cpu.id.index()] = Position::new(leaf, sizes[leaf]);
            sizes[leaf] += 1;
        }
        MaskLayout { positions: positions.into(), used: bits::used(&sizes) }
    }

    /// Returns the CPUs that have a bit, in ascending order.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.positions().map(|(cpu, _)| cpu)
    }

    pub(super) fn positions(&self) -> impl Iterator<Item = (CpuId, Position)> + '_ {
        let number = |(cpu, at): (usize, &Position)| (CpuId::new(cpu as u32), *at);
        self.positions.iter().enumerate().map(number).filter(|(_, at)| *at != Position::NONE)
    }

    /// The place of the CPU's bit; `None` if it has none.
    #[inline]
    pub(super) fn position(&self, cpu: CpuId) -> Option<Position> {
        self.entry(cpu).copied().filter(|at| *at != Position::NONE)
    }

    /// The same, or [`Position::NONE`] for some CPUs without a bit.
    #[inline]
    pub(super) fn entry(&self, cpu: CpuId) -> Option<&Position> {
        self.positions.get(cpu.index())
    }

    /// For each leaf: how many of its words have bits.
    pub(super) fn used(&self) -> &Arc<[u8]> {
        &self.used
    }
}

impl_debug!([] MaskLayout as it { cpus: it.cpus().count(), leaves: it.used.len() });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuMask;

    #[test]
    fn masks_of_a_machine_share_its_layout() {
        let masks = [(); 2].map(|()| CpuMask::new());
        let [one, other] = masks.each_ref().map(CpuMask::layout);
        assert!(Arc::ptr_eq(&one.positions, &other.positions));
    }
}
