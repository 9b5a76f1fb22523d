//! [`CoreKind`], the kind of core that a CPU belongs to.

use std::cmp::Reverse;
use std::fmt;

/// The kind of core that a CPU belongs to, on machines that mix several kinds.
///
/// Kinds are ordered, the fastest first. The default is full capacity. All CPUs have this kind on a
/// machine whose cores are alike, or that does not distinguish its cores.
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
    /// The kind that the kernel's x86 performance counters call `cpu_core`.
    Performance,
    /// The kind that the kernel's x86 performance counters call `cpu_atom`.
    Efficient,
    /// The kind that the kernel's x86 performance counters call `cpu_lowpower`.
    LowPower,
    /// The speed according to the kernel's scheduler. A value of 1024 stands for the fastest core
    /// of the machine at its highest frequency.
    Capacity(Reverse<u32>),
}

impl CoreKind {
    /// The capacity of a machine's fastest cores.
    const FULL: u32 = 1024;

    /// Returns the kind of cores with this capacity.
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
