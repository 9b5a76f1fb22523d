//! Mistakes with memory that a run made.

use core::fmt;

use coreline_topology::CpuId;

use crate::results::report::SourceSite;

/// A mistake that a simulated thread made with memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryMistake {
    /// The mistake.
    pub misuse: Misuse,
    /// The thread and the source location at which the mistake was noticed. `None` at the end of
    /// the run.
    pub by: Option<MemoryUse>,
    /// The block that was misused, if the machine knows it.
    pub block: Option<MemoryBlock>,
}

/// A kind of mistake with memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// A block was freed twice.
    DoubleFree,
    /// The freed address is not the beginning of a block.
    InvalidFree {
        /// Whether the address lies on the stack of a simulated thread.
        on_stack: bool,
    },
    /// A block was freed with a size other than that of its allocation.
    WrongSize {
        /// The size with which it was freed, in bytes.
        freed: usize,
    },
    /// A thread accessed a freed block.
    UseAfterFree {
        /// The offset of the access in the block, in bytes.
        offset: usize,
    },
    /// A thread accessed memory beyond the end of a block, or before all blocks.
    OutOfBounds {
        /// The offset of the access in the block, in bytes.
        offset: usize,
    },
    /// A thread wrote to a freed block by an access that the machine does not see, such as a write
    /// through a pointer. It was noticed later.
    WrittenAfterFree {
        /// The offset of the first byte that was written.
        offset: usize,
    },
    /// Blocks were not freed, and neither the value that the run returned nor a static leads to
    /// them. The failure names the first of them.
    Leak {
        /// The number of blocks.
        blocks: usize,
        /// The number of bytes in these blocks.
        bytes: usize,
    },
    /// A thread accessed an address at which there is no memory, by an access that the machine does
    /// not see.
    Fault {
        /// The address, or 0 if the processor does not report it.
        address: usize,
    },
}

/// A block of the simulated program's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryBlock {
    /// The block's offset in the machine's memory.
    pub offset: u64,
    /// The requested size, in bytes.
    pub size: usize,
    /// The allocation.
    pub allocated: MemoryUse,
    /// The free, if the block was freed.
    pub freed: Option<MemoryUse>,
}

/// An allocation, a free or another use of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUse {
    /// The thread's number.
    pub thread: usize,
    /// The CPU on which the thread ran.
    pub cpu: CpuId,
    /// The source location, if known.
    pub site: Option<SourceSite>,
    /// Whether `site` is the exact location. Otherwise it is the location of the thread's last
    /// charged access before the use: see [`MemoryChecks::Traced`](crate::MemoryChecks::Traced).
    pub is_exact: bool,
}

impl fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryUse { thread, cpu, site, is_exact } = self;
        write!(f, "thread {thread} on {cpu}")?;
        match site {
            Some(site) if *is_exact => write!(f, " at {site}"),
            Some(site) => write!(f, ", after its access at {site}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for MemoryBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryBlock { offset, size, allocated, freed } = self;
        write!(f, "\n  the block: {size} bytes at {offset:#x}")?;
        write!(f, "\n  allocated by {allocated}")?;
        freed.as_ref().map_or(Ok(()), |freed| write!(f, "\n  freed by {freed}"))
    }
}

impl fmt::Display for MemoryMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by: &dyn fmt::Display = match &self.by {
            Some(by) => by,
            None => &"the program",
        };
        match &self.misuse {
            Misuse::DoubleFree => write!(f, "double free by {by}")?,
            Misuse::InvalidFree { on_stack: true } => {
                write!(f, "free of memory on a stack, by {by}")?;
            }
            Misuse::InvalidFree { on_stack: false } => {
                write!(f, "free of an address at which no block begins, by {by}")?;
            }
            Misuse::WrongSize { freed } => {
                write!(f, "free of a block as one of {freed} bytes, by {by}")?;
            }
            Misuse::UseAfterFree { offset } => {
                write!(f, "use after free: {by} accessed byte {offset} of a freed block")?;
            }
            Misuse::OutOfBounds { offset } => match self.block {
                Some(_) => write!(f, "out of bounds: {by} accessed byte {offset} of a block")?,
                None => write!(f, "out of bounds: {by} accessed memory outside of all blocks")?,
            },
            Misuse::WrittenAfterFree { offset } => write!(
                f,
                "use after free: byte {offset} of a freed block was written, by an access that the \
                 machine does not see; {by} was the next to need the block"
            )?,
            Misuse::Leak { blocks, bytes } => write!(
                f,
                "leak: at the end, {blocks} blocks with {bytes} bytes are allocated and no \
                 pointer leads to them; the first of them:"
            )?,
            Misuse::Fault { address } => {
                write!(f, "{by} accessed ")?;
                match address {
                    0 => write!(
                        f,
                        "address 0, or one that no process has, such as a pointer that was read \
                         from freed memory"
                    )?,
                    address => write!(f, "address {address:#x}, at which there is no memory")?,
                }
            }
        }
        match &self.block {
            Some(block) => write!(f, "{block}"),
            None => Ok(()),
        }
    }
}
