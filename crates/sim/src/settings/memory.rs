//! How a machine checks the program's use of memory.

use core::fmt;
use core::str::FromStr;

/// How a machine checks the simulated program's use of memory.
///
/// Three mistakes fail the run under every setting: a double free, a free of an address at which no
/// block begins, and an access to an address without memory. With `Off`, such a failure does not
/// say where the block was allocated and freed before.
///
/// The checks see each access to an atomic, to a cell and through a guard. They fill freed blocks
/// with the byte `0xf0`, so they notice other writes to these blocks later. Each block is followed
/// by 16 bytes that no access may touch. So addresses differ from those of a run without checks.
/// In three of four runs, by seed, a freed block is not given out again for some time. In the
/// others it is given out as soon as possible, which shows mistakes such as ABA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum MemoryChecks {
    /// No checks of accesses. This is the default of runs by time.
    #[default]
    Off,
    /// All checks. This is the default under a schedule that [searches](crate::Schedule).
    On,
    /// All checks. Failures also name the exact source locations of allocations and frees. Each
    /// allocation and each free then takes some microseconds of host time.
    Traced,
}

/// The settings by name.
const NAMES: [(MemoryChecks, &str); 3] =
    [(MemoryChecks::Off, "off"), (MemoryChecks::On, "on"), (MemoryChecks::Traced, "traced")];

impl fmt::Display for MemoryChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = NAMES[*self as usize];
        f.write_str(name)
    }
}

/// The error for memory checks that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a setting of memory checks; write off, on or traced")]
pub struct ParseMemoryChecksError(String);

impl FromStr for MemoryChecks {
    type Err = ParseMemoryChecksError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = NAMES.into_iter().find(|(_, name)| *name == text);
        found.map(|(checks, _)| checks).ok_or_else(|| ParseMemoryChecksError(text.to_owned()))
    }
}
