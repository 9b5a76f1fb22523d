//! [`CidLayout`]: the IDs that a CPU can get, and the position of its row.

use core::marker::PhantomData;
use core::ops::Range;
use std::sync::Arc;

use coreline_topology::{Cid, CpuId, NodeId, Topology};

use super::places::{Group, MOST, Parts, clustered, flat};
use super::{CidError, Policy};

/// How many slots of 64 bytes, a line each, share a page of 4096 bytes.
const PAGE: u32 = 64;

/// The IDs that each CPU of a machine can get under a policy. Create one layout for a machine, and
/// share it between spaces.
///
/// Every CPU has a *position*, and belongs to a *group* of CPUs at consecutive positions. A CPU
/// gets IDs only from the range of its group's positions. Except under
/// [`Clustered`](super::Clustered), there is one group for all CPUs, and positions are the CPUs'
/// numbers. Under `Clustered` a group is the CPUs that share a last-level cache. A node's first
/// group begins at a multiple of 64, which is one page of slots of one cache line each.
/// [`with_slots_per_page`](Self::with_slots_per_page) sets another number.
///
/// ```
/// use coreline::cid::{CidLayout, Clustered};
/// use coreline::topology::{Cid, CpuId, NodeId, Shape, Topology};
///
/// let topology = Topology::uniform(Shape {
///     sockets: 2,
///     nodes_per_socket: 1,
///     caches_per_node: 3,
///     cores_per_cache: 8,
///     threads_per_core: 2,
/// })?;
/// let layout = CidLayout::<Clustered>::new(&topology)?;
/// // CPU 9 is a core of the second cache, and CPU 57 its other hardware thread.
/// assert_eq!(layout.range(CpuId::new(9))?, 16..32);
/// assert_eq!(layout.range(CpuId::new(57))?, 16..32);
/// // The second node has 48 CPUs, too, and begins at the next page.
/// assert_eq!(layout.range(CpuId::new(24))?, 64..80);
/// assert_eq!(layout.node_of(Cid::new(70)), Some(NodeId::new(1)));
/// assert_eq!(layout.width(), 112);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CidLayout<P: Policy> {
    parts: Arc<Parts>,
    _policy: PhantomData<fn() -> P>,
}

impl<P: Policy> CidLayout<P> {
    /// Creates the layout of a machine: every number below [`Topology::cpu_limit`] has a position.
    /// The layout is for slots of 64 bytes, one cache line each.
    ///
    /// # Errors
    ///
    /// [`CidError::TooWide`] if the machine needs more than 65,536 IDs.
    pub fn new(topology: &Topology) -> Result<Self, CidError> {
        Self::with_slots_per_page(topology, PAGE)
    }

    /// Creates the layout, like [`new`](Self::new), for pages of `slots` slots. A node's first
    /// group begins at a multiple of `slots`. Pass 1 if a slot is a page or more. A value of 0
    /// counts as 1.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new`](Self::new).
    pub fn with_slots_per_page(topology: &Topology, slots: u32) -> Result<Self, CidError> {
        // No page of more IDs than there can be has a second one behind it. So all IDs are numbers
        // of 32 bits, also those that are refused: there are `MOST` nodes at most.
        let slots = slots.clamp(1, MOST as u32);
        let (places, groups) =
            if P::CLUSTERED { clustered(topology, slots) } else { flat(topology) };
        let parts = Arc::new(Parts::new(places, groups)?);
        Ok(CidLayout { parts, _policy: PhantomData })
    }

    /// Returns the width of the layout, which is one more than the highest possible ID.
    pub fn width(&self) -> usize {
        self.parts.width()
    }

    /// Returns the range of IDs that a CPU can get.
    ///
    /// # Errors
    ///
    /// [`CidError::NoSuchCpu`] if the CPU has no position in the layout.
    pub fn range(&self, cpu: CpuId) -> Result<Range<u32>, CidError> {
        let place = self.parts.place(cpu)?;
        Ok(self.parts.groups()[usize::from(place.group)].range.clone())
    }

    /// Returns the only node whose CPUs can get an ID. The ID's memory should be placed on that
    /// node. Returns `None` if CPUs of several nodes can get the ID, or no CPU can.
    pub fn node_of(&self, cid: Cid) -> Option<NodeId> {
        let has = |group: &&Group| group.range.contains(&cid.get());
        self.parts.groups().iter().find(has)?.node
    }

    pub(crate) fn parts(&self) -> &Arc<Parts> {
        &self.parts
    }
}

impl<P: Policy> Clone for CidLayout<P> {
    fn clone(&self) -> Self {
        CidLayout { parts: Arc::clone(&self.parts), _policy: PhantomData }
    }
}

impl_debug!([P: Policy] CidLayout<P> as it (it.parts));
