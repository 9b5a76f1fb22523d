//! [`CoreKind`], the sort of core that a CPU belongs to.

use std::cmp::Reverse;
use std::fmt;

/// The sort of core that a CPU belongs to, on machines that mix several.
///
/// Compares from the fastest down. The default, full capacity, is that of all CPUs of a machine
/// whose cores are alike or that does not tell them apart.
///
/// ```
/// use coreline_topology::CoreKind;
///
/// assert!(CoreKind::Performance < CoreKind::Efficient);
/// assert!(CoreKind::default() < CoreKind::capacity(530));
/// assert_eq!(CoreKind::capacity(530).to_string(), "capacity 530");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoreKind {
    /// What the kernel's performance counters of x86 call `cpu_core`.
    Performance,
    /// What they call `cpu_atom`.
    Efficient,
    /// What they call `cpu_lowpower`.
    LowPower,
    /// Speed, as the kernel's scheduler sees it: 1024 is the fastest core of the machine at its
    /// highest frequency.
    Capacity(Reverse<u32>),
}

impl CoreKind {
    /// The capacity of a machine's fastest cores.
    const FULL: u32 = 1024;

    /// The kind of cores of this capacity.
    pub const fn capacity(capacity: u32) -> Self {
        Self::Capacity(Reverse(capacity))
    }
}

impl Default for CoreKind {
    fn default() -> Self {
        Self::capacity(Self::FULL)
    }
}

impl fmt::Display for CoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Performance => f.write_str("performance"),
            Self::Efficient => f.write_str("efficient"),
            Self::LowPower => f.write_str("low-power"),
            Self::Capacity(Reverse(capacity)) => write!(f, "capacity {capacity}"),
        }
    }
}
