//! What the variants do with the mask.

use coreline::CpuMask;
use coreline_sim::LineCost;
use coreline_topology::CpuId;
use coreline_world::{Integer, Line, Ordering, Place, Testbed, Word};

use crate::scenario::RunError;

/// On which CPUs a domain may be.
pub(super) trait Mask: Send + Sync + 'static {
    fn test(&self, cpu: CpuId) -> bool;

    fn set(&self, cpu: CpuId);

    fn clear(&self, cpu: CpuId);

    /// Names its lines, for the simulator's statistics.
    fn name(&self);
}

/// What a domain does with its mask.
pub(super) trait Policy<W: Testbed>: Sized + Send + Sync + 'static {
    type Mask: Mask;

    /// # Errors
    ///
    /// [`RunError::Lack`] if the mask has no bit for one of the CPUs.
    fn new(cpus: &[CpuId]) -> Result<Self, RunError>;

    fn mask(&self) -> &Self::Mask;

    /// Makes sure that the CPU's bit is set.
    fn switch_in(&self, cpu: CpuId);

    fn switch_out(&self) {}

    /// Names what is shared.
    fn name(&self) {
        self.mask().name();
    }
}

/// A bit for each CPU number, as the kernel's mask: 512 of them on a line, in words of 64.
pub(super) struct Dense<W: Testbed>(Box<[Line<[W::U64; 8]>]>);

const PER_LINE: usize = 512;

impl<W: Testbed> Dense<W> {
    fn new() -> Self {
        let line = || Line(core::array::from_fn(|_| W::U64::new_in(0)));
        let lines = <W as Place>::topology().cpu_limit().div_ceil(PER_LINE);
        Dense((0..lines).map(|_| line()).collect())
    }

    fn word(&self, cpu: CpuId) -> (&W::U64, u64) {
        let cpu = cpu.index();
        (&self.0[cpu / PER_LINE][cpu % PER_LINE / 64], 1 << (cpu % 64))
    }
}

impl<W: Testbed> Mask for Dense<W> {
    fn test(&self, cpu: CpuId) -> bool {
        let (word, bit) = self.word(cpu);
        // Relaxed: the fences of the switch and of the flush order it.
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn set(&self, cpu: CpuId) {
        let (word, bit) = self.word(cpu);
        // SeqCst, as the kernel's: a full barrier. The kernel uses its result: a CPU that finds the
        // bit clear must load the page tables anew.
        word.fetch_or(bit, Ordering::SeqCst);
    }

    fn clear(&self, cpu: CpuId) {
        let (word, bit) = self.word(cpu);
        // SeqCst: as in `set`.
        word.fetch_and(!bit, Ordering::SeqCst);
    }

    fn name(&self) {
        coreline_sim::name(&*self.0, MASK);
    }
}

/// The library's, which has a line for each last-level cache and tests before it sets. For CPUs
/// that [`TwoLevel::new`] found bits for.
impl<W: Testbed> Mask for CpuMask<W> {
    fn test(&self, cpu: CpuId) -> bool {
        CpuMask::test(self, cpu)
    }

    fn set(&self, cpu: CpuId) {
        let _ = CpuMask::set(self, cpu);
    }

    fn clear(&self, cpu: CpuId) {
        let _ = CpuMask::clear(self, cpu);
    }

    /// Known by the place of its accesses: see [`is_mask`].
    fn name(&self) {}
}

const MASK: &str = "mask";
const REFERENCES: &str = "references";

/// Whether a line is the mask's. The mask of two levels cannot be named from outside: it is known
/// by the place of its accesses.
pub(crate) fn is_mask(line: &LineCost) -> bool {
    let bits = |file: &str| file.ends_with("mask/bits.rs");
    line.names.iter().any(|name| name == MASK)
        || line.words.iter().any(|word| bits(&word.site.file))
}

/// Whether a line is that of the references.
pub(crate) fn is_references(line: &LineCost) -> bool {
    line.names.iter().any(|name| name == REFERENCES)
}

/// A locked instruction at each switch-in.
pub(super) struct AlwaysSet<W: Testbed>(Dense<W>);

impl<W: Testbed> Policy<W> for AlwaysSet<W> {
    type Mask = Dense<W>;

    fn new(_: &[CpuId]) -> Result<Self, RunError> {
        Ok(AlwaysSet(Dense::new()))
    }

    fn mask(&self) -> &Dense<W> {
        &self.0
    }

    fn switch_in(&self, cpu: CpuId) {
        self.0.set(cpu);
    }
}

/// A load, and the locked instruction only if the bit is clear.
pub(super) struct TestFirst<W: Testbed>(Dense<W>);

impl<W: Testbed> Policy<W> for TestFirst<W> {
    type Mask = Dense<W>;

    fn new(_: &[CpuId]) -> Result<Self, RunError> {
        Ok(TestFirst(Dense::new()))
    }

    fn mask(&self) -> &Dense<W> {
        &self.0
    }

    fn switch_in(&self, cpu: CpuId) {
        if !self.0.test(cpu) {
            self.0.set(cpu);
        }
    }
}

/// Like [`TestFirst`], and a reference for each CPU that idles, so that the domain outlives it.
pub(super) struct Refcounted<W: Testbed> {
    inner: TestFirst<W>,
    references: Box<Line<W::U64>>,
}

impl<W: Testbed> Policy<W> for Refcounted<W> {
    type Mask = Dense<W>;

    fn new(cpus: &[CpuId]) -> Result<Self, RunError> {
        // Every CPU idles at first.
        let references = Box::new(Line(W::U64::new_in(cpus.len() as u64)));
        Ok(Refcounted { inner: TestFirst::new(cpus)?, references })
    }

    fn mask(&self) -> &Dense<W> {
        self.inner.mask()
    }

    fn switch_in(&self, cpu: CpuId) {
        self.inner.switch_in(cpu);
        // AcqRel: the last drop frees the domain, and must see what others did.
        self.references.fetch_sub(1, Ordering::AcqRel);
    }

    fn switch_out(&self) {
        // Relaxed: the domain is alive, its thread ran until now.
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    fn name(&self) {
        self.inner.name();
        coreline_sim::name(&*self.references, REFERENCES);
    }
}

/// The library's mask.
pub(super) struct TwoLevel<W: Testbed>(CpuMask<W>);

impl<W: Testbed> Policy<W> for TwoLevel<W> {
    type Mask = CpuMask<W>;

    fn new(cpus: &[CpuId]) -> Result<Self, RunError> {
        let lack = |error: coreline::mask::MaskError| RunError::Lack(error.to_string());
        let mask = CpuMask::new_in();
        // Gives each CPU a bit, so that what follows cannot fail.
        cpus.iter().try_for_each(|&cpu| mask.clear(cpu).map(drop)).map_err(lack)?;
        Ok(TwoLevel(mask))
    }

    fn mask(&self) -> &CpuMask<W> {
        &self.0
    }

    fn switch_in(&self, cpu: CpuId) {
        Mask::set(&self.0, cpu);
    }
}
