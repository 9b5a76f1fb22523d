//! Place of the model: a thread has a CPU as a property.

use std::cell::Cell;
use std::sync::{Arc, OnceLock};

use coreline_topology::{Cid, CpuId, Shape, Topology};

use super::Model;
use crate::{IndexBy, Lacking, Place, Restartable};

loom::thread_local! {
    /// The CPU of the calling thread; CPU 0 for the first thread of the execution.
    static CPU: Cell<CpuId> = Cell::new(CpuId::new(0));
}

/// Makes the calling thread one of `cpu`, which the topology knows.
pub(super) fn set_cpu(cpu: CpuId) {
    CPU.with(|current| current.set(cpu));
}

/// Two cache domains of two CPUs each: the smallest machine on which CPUs can be the same, share a
/// cache or not.
///
/// Not a static of the model: it is a value, the same in every execution.
pub(super) fn topology() -> &'static Arc<Topology> {
    static TOPOLOGY: OnceLock<Arc<Topology>> = OnceLock::new();
    TOPOLOGY.get_or_init(|| {
        let shape = Shape { caches_per_node: 2, cores_per_cache: 2, ..Shape::default() };
        Arc::new(Topology::uniform(shape).expect("a shape of four CPUs is possible"))
    })
}

impl Model {
    /// Moves the calling thread to `cpu`. Only this call moves a thread of the model.
    ///
    /// # Panics
    ///
    /// Panics if the model's machine has no such CPU.
    pub fn migrate(cpu: CpuId) {
        let machine = topology();
        assert!(machine.cpu(cpu).is_some(), "no {cpu} in the model; choose of {}", machine.set());
        set_cpu(cpu);
    }
}

impl Place for Model {
    fn topology() -> Arc<Topology> {
        Arc::clone(topology())
    }

    fn cpu() -> CpuId {
        CPU.with(Cell::get)
    }

    fn kernel_cid() -> Option<Cid> {
        Some(Cid::new(Self::cpu().get()))
    }
}

/// The way in which the model runs restartable operations: without sections, on the slot of the
/// thread's CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelSection(IndexBy);

/// Concurrency IDs and CPU numbers are the same, so both ways to index are. There are no sections,
/// so what is checked is how operations run where there are none.
impl Restartable for Model {
    type Section = ModelSection;

    const STRIDE: usize = 4096;

    fn section(by: IndexBy) -> Result<(ModelSection, usize), Lacking> {
        Ok((ModelSection(by), topology().cpu_limit()))
    }

    fn index_by(section: &ModelSection) -> IndexBy {
        section.0
    }

    fn runs_sections(_: &ModelSection) -> bool {
        false
    }

    fn index(_: &ModelSection) -> usize {
        Self::cpu().index()
    }
}
