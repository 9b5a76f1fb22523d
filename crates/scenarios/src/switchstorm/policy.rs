//! The operations of the variants on the mask.

use coreline::CpuMask;
use coreline_sim::LineCost;
use coreline_topology::CpuId;
use coreline_world::{Integer, Line, Ordering, Place, Testbed, Word};

use crate::RunError;

/// The set of CPUs on which a thread of the process may run.
pub trait Mask: Sized + Send + Sync + 'static {
    /// Creates a mask for these CPUs, in which no bit is set.
    ///
    /// # Errors
    ///
    /// [`RunError::Lack`] if the mask has no bit for one of the CPUs.
    fn new(cpus: &[CpuId]) -> Result<Self, RunError>;

    /// Returns whether a CPU's bit is set.
    fn test(&self, cpu: CpuId) -> bool;

    /// Sets a CPU's bit.
    fn set(&self, cpu: CpuId);

    /// Clears a CPU's bit.
    fn clear(&self, cpu: CpuId);

    /// Names the mask's lines for the simulator's statistics, if the statistics cannot recognise
    /// them by the source locations of their accesses: see `is_mask`.
    fn name(&self) {}
}

/// A mask with one bit for each CPU number, like the kernel's mask. A line has 512 bits, in words
/// of 64 bits.
pub struct Dense<W: Testbed>(Box<[Line<[W::U64; 8]>]>);

const PER_LINE: usize = 512;

impl<W: Testbed> Dense<W> {
    fn word(&self, cpu: CpuId) -> (&W::U64, u64) {
        let cpu = cpu.index();
        (&self.0[cpu / PER_LINE][cpu % PER_LINE / 64], 1 << (cpu % 64))
    }
}

impl<W: Testbed> Mask for Dense<W> {
    fn new(_: &[CpuId]) -> Result<Self, RunError> {
        let line = || Line(core::array::from_fn(|_| W::U64::new_in(0)));
        let lines = <W as Place>::topology().cpu_limit().div_ceil(PER_LINE);
        Ok(Dense((0..lines).map(|_| line()).collect()))
    }

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

/// The library's, which has a line for each last-level cache and tests before it sets.
impl<W: Testbed> Mask for CpuMask<W> {
    fn new(cpus: &[CpuId]) -> Result<Self, RunError> {
        let lack = |error: coreline::mask::MaskError| RunError::Lack(error.to_string());
        let mask = CpuMask::new_in();
        // Gives each CPU a bit, so that what follows cannot fail.
        cpus.iter().try_for_each(|&cpu| mask.clear(cpu).map(drop)).map_err(lack)?;
        Ok(mask)
    }

    fn test(&self, cpu: CpuId) -> bool {
        CpuMask::test(self, cpu)
    }

    fn set(&self, cpu: CpuId) {
        let _ = CpuMask::set(self, cpu);
    }

    fn clear(&self, cpu: CpuId) {
        let _ = CpuMask::clear(self, cpu);
    }
}

const MASK: &str = "mask";
const REFERENCES: &str = "references";

/// Whether a line is the mask's. The mask of two levels cannot be named from outside: the source
/// location of its accesses identifies it.
pub(super) fn is_mask(line: &LineCost) -> bool {
    let bits = |file: &str| file.ends_with("mask/bits.rs");
    line.names.iter().any(|name| name == MASK)
        || line.words.iter().any(|word| bits(&word.site.file))
}

/// Whether a line is that of the references.
pub(super) fn is_references(line: &LineCost) -> bool {
    line.names.iter().any(|name| name == REFERENCES)
}

/// A domain's use of its mask: whether a bit is tested before it is set, and whether each CPU that
/// idles has a reference, so that the domain outlives it.
pub(super) struct Policy<W: Testbed, M, const TESTS: bool, const COUNTS: bool> {
    references: Option<Box<Line<W::U64>>>,
    pub(super) mask: M,
}

impl<W: Testbed, M: Mask, const TESTS: bool, const COUNTS: bool> Policy<W, M, TESTS, COUNTS> {
    pub(super) fn new(cpus: &[CpuId]) -> Result<Self, RunError> {
        // Every CPU idles at first.
        let references = || Box::new(Line(W::U64::new_in(cpus.len() as u64)));
        Ok(Policy { references: COUNTS.then(references), mask: M::new(cpus)? })
    }

    /// Makes sure that the CPU's bit is set.
    pub(super) fn switch_in(&self, cpu: CpuId) {
        if !TESTS || !self.mask.test(cpu) {
            self.mask.set(cpu);
        }
        if let Some(references) = self.references.as_ref().filter(|_| COUNTS) {
            // AcqRel: the last drop frees the domain, and must see what others did.
            references.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(super) fn switch_out(&self) {
        if let Some(references) = self.references.as_ref().filter(|_| COUNTS) {
            // Relaxed: the domain is alive, its thread ran until now.
            references.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn name(&self) {
        self.mask.name();
        if let Some(references) = &self.references {
            coreline_sim::name(&**references, REFERENCES);
        }
    }
}
