//! What a run cost.

/// How many accesses were served from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transfers {
    /// By the core's own cache.
    pub private: u64,
    /// By another core's cache, or the shared cache, under the same last-level cache.
    pub same_cache: u64,
    /// From under another last-level cache of the same node.
    pub same_node: u64,
    /// From another node of the same socket.
    pub same_socket: u64,
    /// From another socket.
    pub other_socket: u64,
    /// By memory.
    pub memory: u64,
}

impl Transfers {
    /// All accesses.
    pub fn total(&self) -> u64 {
        self.private
            + self.same_cache
            + self.same_node
            + self.same_socket
            + self.other_socket
            + self.memory
    }
}

/// What a run cost. The same for the same machine, seed and program, on any host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Simulated nanoseconds from the start until the last thread ended.
    pub time_ns: u64,
    /// Engine steps: what the limit counts.
    pub steps: u64,
    /// Line accesses by source.
    pub transfers: Transfers,
    /// How often a thread lost its CPU without asking for it.
    pub preemptions: u64,
    /// How often a thread moved to another CPU.
    pub migrations: u64,
    /// How often a restartable operation had to start over.
    pub restarts: u64,
}

/// What the simulated machine leaves out. Printed with every result.
pub const NOT_MODELLED: &[&str] = &[
    "weak memory order",
    "store buffer",
    "instruction fetch and execution time of plain code",
    "TLB and page walks",
    "cache capacity",
    "bandwidth",
    "SMT resource sharing",
    "sleep states and clock ramp",
    "interrupts of devices; what a tick costs beyond its entry and exit",
    "what a woken thread's choice of CPU costs: it goes back to where it was",
    "a pass over many lines as more than one event (request flights, accesses of others meanwhile)",
];
