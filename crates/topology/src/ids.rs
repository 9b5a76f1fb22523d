//! The numbers that name parts of a machine, each a type of its own.

use std::fmt;

/// The highest CPU number that a list, a sysfs tree, a [`Shape`](crate::Shape) or a limit may name,
/// plus 1. Linux itself builds for at most 8192. The bound prevents bad input from allocating
/// gigabytes.
pub const MAX_CPUS: u32 = 1 << 16;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $label:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// Creates the ID with this number.
            pub const fn new(number: u32) -> Self {
                Self(number)
            }

            /// Returns the number.
            pub const fn get(self) -> u32 {
                self.0
            }

            /// Returns the number as an array index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, " {}"), self.0)
            }
        }
    };
}

id! {
    /// A logical CPU (one hardware thread), by the number that the kernel gives it.
    ///
    /// Numbers may have gaps where CPUs are offline. Every number of a machine is below its
    /// [`Topology::cpu_limit`](crate::Topology::cpu_limit).
    ///
    /// ```
    /// use coreline_topology::CpuId;
    ///
    /// let cpu = CpuId::new(3);
    /// assert_eq!((cpu.index(), cpu.to_string()), (3, "cpu 3".to_owned()));
    /// ```
    CpuId, "cpu"
}

id! {
    /// A memory (NUMA) node, by the number that the kernel gives it. Numbers may have gaps.
    NodeId, "node"
}

id! {
    /// A last-level cache domain: the CPUs that share one such cache. Domains are numbered densely
    /// from 0, in the order of each domain's lowest CPU.
    CacheId, "cache"
}

id! {
    /// A concurrency ID: a small number that no two running threads of one ID space hold at the
    /// same time.
    ///
    /// It indexes per-CPU memory as a CPU number would. But if there are fewer threads than CPUs,
    /// it is usually below the number of threads.
    Cid, "cid"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_with_their_kind() {
        let printed = [
            CpuId::new(3).to_string(),
            NodeId::new(0).to_string(),
            CacheId::new(2).to_string(),
            Cid::new(5).to_string(),
        ];
        assert_eq!(printed, ["cpu 3", "node 0", "cache 2", "cid 5"]);
    }
}
