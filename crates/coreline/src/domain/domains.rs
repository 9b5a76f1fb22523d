//! [`Domains`]: the state that all domains of a machine share.

use core::ops::Range;
use core::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use coreline_topology::NodeId;
use coreline_world::{Lacking, Native, World, WorldStatic};

use super::{Domain, DomainOptions};
use crate::cid::{CidError, CidLayout, Place, Recent, References};
use crate::percpu::PerCpuPool;

/// How many leases each of a machine's domains can have at most: as many as there can be IDs.
const MOST_LEASES: usize = 1 << 16;

/// The reason why the machine cannot have domains. Nothing was allocated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DomainsError {
    /// The machine has more CPUs than there can be IDs.
    #[error(transparent)]
    Cid(#[from] CidError),
    /// The machine has no CPU numbers to index by.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// The caller asked for too many leases.
    #[error("{asked} leases for each domain are too many; ask for at most {most}")]
    TooManyLeases {
        /// The requested number of leases.
        asked: usize,
        /// The largest possible number of leases.
        most: usize,
    },
}

/// The options that the domains of a machine have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct DomainsOptions {
    leases: usize,
}

impl DomainsOptions {
    /// Creates the default options: 64 leases for each domain.
    pub const fn new() -> Self {
        DomainsOptions { leases: 64 }
    }

    /// Sets the minimum number of leases of each domain. Each lease costs address space for one
    /// slot in every chunk of memory. It uses memory only after its first use.
    pub const fn leases(mut self, leases: usize) -> Self {
        self.leases = leases;
        self
    }
}

impl_default!([] DomainsOptions, new);

/// The state that all domains of a machine share: the IDs that CPUs can get, and the memory that is
/// indexed by ID. The type is a handle, and its clones share one state. The state lives as long as
/// one of its handles or domains.
///
/// Most programs never create this state, because [`Domain::new`] uses the
/// [`global`](Domains::global) state of the process.
///
/// ```
/// use coreline::cid::Clustered;
/// use coreline::domain::{DomainOptions, Domains, DomainsOptions};
/// use coreline::percpu::Word64;
///
/// // Slots on the node of the CPUs that use them; a thousand leases for each domain.
/// let domains = Domains::<Clustered>::new_in(DomainsOptions::new().leases(1000))?;
/// let tenant = domains.domain(DomainOptions::new());
/// let requests = tenant.local(|| Word64::new(0))?;
/// requests.add(1);
/// assert_eq!(requests.sum(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Domains<P: References = Recent, W: World = Native> {
    common: Arc<Common<P, W>>,
}

// The layout never changes, and pools are unwind-safe.
impl<P: References, W: World> UnwindSafe for Domains<P, W> {}
impl<P: References, W: World> RefUnwindSafe for Domains<P, W> {}

/// See [`Domains`].
///
/// ```text
/// indexes   0..width, in groups as the layout has them | leases, a part for each node | shared
///           rows show these                            | no row ever shows these      |
/// ```
pub(super) struct Common<P: References, W: World> {
    pub(super) layout: CidLayout<P>,
    pub(super) pool: PerCpuPool<W>,
    /// The groups of the layout, followed by the parts of the leases. In ascending order.
    pub(super) extents: Box<[Extent]>,
}

/// Indexes, lowest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) range: Range<u32>,
    /// The node where their memory should lie.
    node: Option<NodeId>,
}

impl Domains {
    /// Creates the shared state for domains of this process, under the policy [`Recent`].
    ///
    /// # Errors
    ///
    /// The same errors as for [`new_in`](Domains::new_in).
    pub fn new(options: DomainsOptions) -> Result<Self, DomainsError> {
        Domains::new_in(options)
    }

    /// Returns the global shared state of the process, with the default options.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new_in`](Domains::new_in).
    pub fn global() -> Result<Self, DomainsError> {
        Domains::global_in()
    }
}

impl<P: References> Domains<P> {
    /// Creates the shared state for domains whose CPUs get the IDs of this layout. Operations on
    /// CPUs without a position in the layout use the shared slot.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new_in`](Domains::new_in).
    pub fn with_layout(
        layout: CidLayout<P>,
        options: DomainsOptions,
    ) -> Result<Self, DomainsError> {
        Self::with_layout_in(layout, options)
    }
}

impl<P: References, W: World> Domains<P, W> {
    /// Creates the shared state for domains on the machine of world `W`.
    ///
    /// # Errors
    ///
    /// [`DomainsError`] if the machine has too many CPUs, or has no CPU numbers to index by.
    pub fn new_in(options: DomainsOptions) -> Result<Self, DomainsError> {
        // Each slot has pages of its own, so IDs of two nodes share none wherever they begin.
        let layout = CidLayout::with_slots_per_page(&W::topology(), 1)?;
        Self::with_layout_in(layout, options)
    }

    /// Creates the shared state for a layout, like [`with_layout`](Domains::with_layout), in world
    /// `W`.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new_in`](Domains::new_in).
    pub fn with_layout_in(
        layout: CidLayout<P>,
        options: DomainsOptions,
    ) -> Result<Self, DomainsError> {
        if options.leases > MOST_LEASES {
            let (asked, most) = (options.leases, MOST_LEASES);
            return Err(DomainsError::TooManyLeases { asked, most });
        }
        let extents = extents::<P>(&layout, options.leases as u32);
        let indexes = extents.last().map_or(0, |last| last.range.end);
        let nodes = extents.clone();
        let node_of = move |index| nodes[extent_of(&nodes, index)?].node;
        let pool = PerCpuPool::by_rows(indexes as usize, node_of)?;
        Ok(Domains { common: Arc::new(Common { layout, pool, extents }) })
    }

    /// Returns the global shared state of the world, with the default options.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new_in`](Domains::new_in).
    pub fn global_in() -> Result<Self, DomainsError> {
        static GLOBAL: WorldStatic = WorldStatic::new("domains");
        W::with_static(&GLOBAL, || Self::new_in(DomainsOptions::new()), Clone::clone)
    }

    /// Creates a domain without users.
    pub fn domain(&self, options: DomainOptions) -> Domain<P, W> {
        Domain::of(&self.common, options)
    }

    /// Returns the layout, which determines the IDs that CPUs can get.
    pub fn layout(&self) -> &CidLayout<P> {
        &self.common.layout
    }

    /// Returns the pool of the memory that is indexed by ID. After many domains were dropped,
    /// [`trim`](PerCpuPool::trim) returns the memory of their locals and leases to the machine.
    pub fn pool(&self) -> &PerCpuPool<W> {
        &self.common.pool
    }
}

impl<P: References, W: World> Clone for Domains<P, W> {
    fn clone(&self) -> Self {
        Domains { common: Arc::clone(&self.common) }
    }
}

impl_debug!([P: References, W: World] Domains<P, W> as it {
    policy: P::NAME, width: it.common.layout.width(), leases: it.common.leases(), ..
});

impl<P: References, W: World> Common<P, W> {
    /// All indexes that a section may use are below it.
    pub(super) fn width(&self) -> u32 {
        self.layout.width() as u32
    }

    /// All indexes are below it.
    pub(super) fn indexes(&self) -> u32 {
        self.extents.last().map_or(0, |last| last.range.end)
    }

    /// How many leases a domain can have.
    pub(super) fn leases(&self) -> usize {
        self.parts().map(|(_, part)| part.range.len()).sum()
    }

    /// The parts of the leases, with their numbers among all extents.
    pub(super) fn parts(&self) -> impl Iterator<Item = (usize, &Extent)> {
        self.extents.iter().enumerate().skip(self.layout.parts().groups().len())
    }

    /// The parts of the leases, those of a CPU's node first.
    pub(super) fn parts_from(
        &self,
        place: Option<Place>,
    ) -> impl Iterator<Item = (usize, &Extent)> {
        let node = place.and_then(|place| self.extents[usize::from(place.group)].node);
        let near = move |(_, part): &(usize, &Extent)| part.node == node;
        self.parts().filter(near).chain(self.parts().filter(move |part| !near(part)))
    }

    /// Whether the memory of a part belongs to a CPU's node, or both belong to no node.
    pub(super) fn is_near(&self, place: Place, part: Option<&Extent>) -> bool {
        part.is_some_and(|part| self.extents[usize::from(place.group)].node == part.node)
    }

    /// The part that a lease's number is in.
    pub(super) fn extent_of_lease(&self, number: u32) -> Option<&Extent> {
        self.extents.get(self.extent_of((self.width() + number) as usize)?)
    }

    /// The extent that an index is in.
    pub(super) fn extent_of(&self, index: usize) -> Option<usize> {
        extent_of(&self.extents, index)
    }
}

fn extent_of(extents: &[Extent], index: usize) -> Option<usize> {
    let index = u32::try_from(index).ok()?;
    let above = extents.partition_point(|extent| extent.range.start <= index);
    let extent = above.checked_sub(1)?;
    extents[extent].range.contains(&index).then_some(extent)
}

/// The groups of a layout, and a share of the leases for each node that has groups of its own.
fn extents<P: References>(layout: &CidLayout<P>, leases: u32) -> Box<[Extent]> {
    let groups = layout.parts().groups().iter();
    let mut extents: Vec<_> =
        groups.map(|group| Extent { range: group.range.clone(), node: group.node }).collect();
    let mut nodes: Vec<_> = extents.iter().map(|extent| extent.node).collect();
    nodes.dedup();
    nodes.retain(|node| node.is_some() || !P::CLUSTERED);
    if leases == 0 {
        nodes.clear();
    }
    let share = leases.div_ceil(nodes.len().max(1) as u32);
    for (first, node) in (layout.width() as u32..).step_by(share.max(1) as usize).zip(nodes) {
        extents.push(Extent { range: first..first + share, node });
    }
    extents.into()
}

#[cfg(test)]
mod tests {
    use coreline_topology::{Shape, Topology};

    use super::*;
    use crate::cid::Clustered;

    #[test]
    fn indexes_are_the_ids_and_then_the_leases_by_node() {
        let shape =
            Shape { sockets: 2, caches_per_node: 2, cores_per_cache: 4, ..Shape::default() };
        let topology = Topology::uniform(shape).unwrap();
        let all = |extents: &[Extent]| -> Vec<_> {
            let all = extents.iter().map(|extent| (extent.range.clone(), extent.node));
            all.collect()
        };
        let flat = extents(&CidLayout::<Recent>::new(&topology).unwrap(), 5);
        assert_eq!(all(&flat), [(0..16, None), (16..21, None)]);
        let clustered = extents(&CidLayout::<Clustered>::new(&topology).unwrap(), 5);
        let [zero, one] = [0, 1].map(|node| Some(NodeId::new(node)));
        let groups = [(0..4, zero), (4..8, zero), (64..68, one), (68..72, one)];
        let parts = [(72..75, zero), (75..78, one)];
        assert_eq!(all(&clustered), [&groups[..], &parts[..]].concat());
        let found = [0, 7, 8, 63, 64, 72, 77, 78].map(|index| extent_of(&clustered, index));
        let expected = [Some(0), Some(1), None, None, Some(2), Some(4), Some(5), None];
        assert_eq!(found, expected);
    }
}
