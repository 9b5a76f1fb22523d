//! A machine's tree as indented text.

use std::collections::BTreeSet;
use std::io::{self, Write};

use coreline_topology::{CpuSet, Topology};

/// Writes one line for each socket, node and last-level cache, with the CPUs in it.
pub(crate) fn write(topology: &Topology, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  {}", counts(topology))?;
    let sockets: BTreeSet<u32> = topology.cpus().map(|cpu| cpu.socket).collect();
    for socket in sockets {
        let of_socket = || topology.cpus().filter(move |cpu| cpu.socket == socket);
        writeln!(
            out,
            "  socket {socket}: CPUs {}",
            of_socket().map(|cpu| cpu.id).collect::<CpuSet>()
        )?;
        let nodes: BTreeSet<_> = of_socket().map(|cpu| cpu.node).collect();
        for node in nodes {
            let of_node = || of_socket().filter(move |cpu| cpu.node == node);
            let cpus: CpuSet = of_node().map(|cpu| cpu.id).collect();
            writeln!(out, "    {node}: CPUs {cpus}")?;
            let caches: BTreeSet<_> = of_node().map(|cpu| cpu.cache).collect();
            for cache in caches {
                let of_cache = || of_node().filter(move |cpu| cpu.cache == cache);
                let cpus: CpuSet = of_cache().map(|cpu| cpu.id).collect();
                let cores: BTreeSet<_> = of_cache().map(|cpu| cpu.core).collect();
                writeln!(out, "      {cache}: CPUs {cpus}; {} cores", cores.len())?;
            }
        }
    }
    Ok(())
}

/// The numbers of a machine's parts.
pub(crate) fn counts(topology: &Topology) -> String {
    format!(
        "{} CPUs, {} cores, {} L3, {} nodes, {} sockets",
        topology.cpu_count(),
        topology.core_count(),
        topology.cache_count(),
        topology.node_count(),
        topology.socket_count()
    )
}
