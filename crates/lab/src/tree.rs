//! A machine's tree as indented text, short enough to read for hundreds of CPUs.
//!
//! Each line is a part of the machine: a socket, node, last-level cache, cluster or second-level
//! cache. A part that has the same CPUs as the one above it shares its line. Among neighbours that
//! are built alike, the first is drawn and the others are one line; cores are counted.

use std::io::{self, Write};

use coreline_topology::{Cpu, CpuSet, NodeId, Topology};

use crate::text::{self, counted};

/// Writes the counts of all parts, the tree, and the memory nodes.
pub(crate) fn write(topology: &Topology, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  {}", counts(topology))?;
    let kinds = topology.kinds();
    if kinds.len() > 1 {
        for kind in kinds {
            writeln!(out, "  {kind}: {}", text::cpus(topology.cpus_of_kind(kind)))?;
        }
    }
    let limit = topology.cpu_limit();
    if limit > topology.cpu_count() {
        writeln!(
            out,
            "  CPU numbers go up to {}; those not shown are offline or unknown",
            limit - 1
        )?;
    }
    let cpus: Vec<Cpu> = topology.cpus().copied().collect();
    draw(&parts(topology, &cpus, LEVELS), 1, out)?;
    nodes(topology, out)
}

pub(crate) fn counts(topology: &Topology) -> String {
    let (cpus, cores) = (topology.cpu_count(), topology.core_count());
    let mut counts = vec![counted(cpus, "CPU"), counted(cores, "core")];
    // Most machines have one second-level cache for each core, and no clusters.
    if topology.l2_count() < topology.core_count() {
        counts.push(format!("{} L2", topology.l2_count()));
    }
    if topology.cluster_count() < topology.l2_count() {
        counts.push(counted(topology.cluster_count(), "cluster"));
    }
    counts.push(format!("{} L3", topology.cache_count()));
    let (nodes, sockets) = (topology.node_count(), topology.socket_count());
    counts.extend([counted(nodes, "node"), counted(sockets, "socket")]);
    counts.join(", ")
}

/// The name of a level in the singular, and how a CPU's part of that level is numbered.
type Level = (&'static str, fn(&Cpu) -> u32);

/// The parts, from the largest to the smallest.
const LEVELS: &[Level] = &[
    ("socket", |cpu| cpu.socket),
    ("node", |cpu| cpu.node.get()),
    ("cache", |cpu| cpu.cache.get()),
    ("cluster", |cpu| cpu.cluster),
    ("L2", |cpu| cpu.l2),
    ("core", |cpu| cpu.core),
];

struct Part {
    level: &'static str,
    number: u32,
    cpus: CpuSet,
    /// The part that is missing in it, to follow its name.
    lacks: &'static str,
    /// The differences of its build from another's: the levels below, and for a core its threads
    /// and kind.
    build: String,
    /// Empty for a core.
    parts: Vec<Part>,
}

/// The parts of the first of these levels among some CPUs, in the order of their numbers.
fn parts(topology: &Topology, cpus: &[Cpu], levels: &[Level]) -> Vec<Part> {
    let Some((&(level, number), below)) = levels.split_first() else {
        return Vec::new();
    };
    let mut sorted = cpus.to_vec();
    sorted.sort_by_key(number);
    let same = |a: &Cpu, b: &Cpu| number(a) == number(b);
    sorted.chunk_by(same).map(|cpus| part(topology, level, number(&cpus[0]), cpus, below)).collect()
}

fn part(
    topology: &Topology,
    level: &'static str,
    number: u32,
    cpus: &[Cpu],
    below: &[Level],
) -> Part {
    let parts = parts(topology, cpus, below);
    let memory = || topology.memory_nodes().any(|node| node.get() == number);
    let lacks = if level == "node" && !memory() { " without memory" } else { "" };
    let mut build = if level == "core" { core(topology, cpus) } else { lacks.to_owned() };
    for run in parts.chunk_by(|a, b| a.build == b.build) {
        build += &format!("{} {}({})", run.len(), run[0].level, run[0].build);
    }
    Part { level, number, cpus: cpus.iter().map(|cpu| cpu.id).collect(), lacks, build, parts }
}

/// A core in words: its threads, and its kind where the machine has several.
fn core(topology: &Topology, threads: &[Cpu]) -> String {
    let kind = threads.first().filter(|_| topology.kinds().len() > 1).map(|cpu| cpu.kind);
    let kind = kind.map(|kind| format!(", {kind}")).unwrap_or_default();
    format!("{}{kind}", counted(threads.len(), "thread"))
}

impl Part {
    /// The part that a line names: a cluster that has one second-level cache is that cache.
    fn shown(&self) -> &Part {
        match self.parts.as_slice() {
            [l2] if self.level == "cluster" => l2,
            _ => self,
        }
    }

    /// The only core in this part, if there is no other, and no part of several cores between.
    fn only_core(&self) -> Option<&Part> {
        match self.parts.as_slice() {
            [] => Some(self),
            [only] => only.only_core(),
            _ => None,
        }
    }
}

/// Draws neighbours, and below each neighbour its parts.
fn draw(parts: &[Part], depth: usize, out: &mut dyn Write) -> io::Result<()> {
    let indent = "  ".repeat(depth);
    for alike in parts.chunk_by(|a, b| a.build == b.build) {
        let first = alike[0].shown();
        // Below sockets and nodes, what holds one core is no more than that core.
        if !matches!(first.level, "socket" | "node" | "cache")
            && let Some(core) = first.only_core()
        {
            writeln!(out, "{indent}{} of {}", counted(alike.len(), "core"), core.build)?;
            continue;
        }
        let mut names = vec![name(first)];
        let mut inner = first;
        while let [only] = inner.parts.as_slice()
            && only.level != "core"
        {
            inner = only;
            if matches!(inner.level, "node" | "cache") {
                names.push(name(inner));
            }
        }
        writeln!(out, "{indent}{}: {}", names.join(", "), text::cpus(&first.cpus))?;
        draw(&inner.parts, depth + 1, out)?;
        match alike {
            [] | [_] => {}
            [_, last] => {
                writeln!(out, "{indent}{} alike: {}", name(last.shown()), text::cpus(&last.cpus))?;
            }
            [_, second, .., last] => writeln!(
                out,
                "{indent}{}s {}-{} alike, up to {}",
                second.shown().level,
                second.shown().number,
                last.shown().number,
                text::cpus(&last.cpus)
            )?,
        }
    }
    Ok(())
}

fn name(part: &Part) -> String {
    format!("{} {}{}", part.level, part.number, part.lacks)
}

/// Writes nodes that no CPU is on, and the distances between nodes.
fn nodes(topology: &Topology, out: &mut dyn Write) -> io::Result<()> {
    let mut all: Vec<NodeId> = topology.nodes().chain(topology.memory_nodes()).collect();
    all.sort_unstable();
    all.dedup();
    for node in topology.memory_nodes().filter(|node| !topology.nodes().any(|it| it == *node)) {
        writeln!(out, "  {node}: memory without CPUs")?;
    }
    if all.len() < 2 {
        return Ok(());
    }
    let far = |from, to| topology.node_distance(from, to).unwrap_or_default();
    let (local, remote) = (far(all[0], all[0]), far(all[0], all[1]));
    let regular = |&from: &NodeId| {
        all.iter().all(|&to| far(from, to) == if from == to { local } else { remote })
    };
    if all.iter().all(regular) {
        return writeln!(out, "  node distances: {local} to itself, {remote} to any other");
    }
    writeln!(out, "  node distances")?;
    let head: String = all.iter().map(|to| format!("{:>4}", to.get())).collect();
    writeln!(out, "        {head}")?;
    for &from in &all {
        let row: String = all.iter().map(|&to| format!("{:>4}", far(from, to))).collect();
        writeln!(out, "    {:>4}{row}", from.get())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use coreline_topology::Shape;

    use super::*;

    fn drawn(topology: &Topology) -> String {
        let mut text = Vec::new();
        write(topology, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn hundreds_of_cpus_are_a_few_lines() {
        let machine = Topology::uniform(Shape {
            sockets: 2,
            nodes_per_socket: 1,
            caches_per_node: 12,
            cores_per_cache: 8,
            threads_per_core: 2,
        });
        let expected = "  384 CPUs, 192 cores, 24 L3, 2 nodes, 2 sockets
  socket 0, node 0: CPUs 0-95,192-287
    cache 0: CPUs 0-7,192-199
      8 cores of 2 threads
    caches 1-11 alike, up to CPUs 88-95,280-287
  socket 1 alike: CPUs 96-191,288-383
  node distances: 10 to itself, 20 to any other
";
        assert_eq!(drawn(&machine.unwrap()), expected);
    }

    #[test]
    fn one_of_each_has_no_plural() {
        let machine = Topology::flat(&"0".parse().unwrap()).unwrap();
        let expected = "  1 CPU, 1 core, 1 L3, 1 node, 1 socket
  socket 0, node 0, cache 0: CPU 0
    1 core of 1 thread
";
        assert_eq!(drawn(&machine), expected);
    }

    /// Two performance cores of two threads and four efficient ones with a common second-level
    /// cache on node 0; two clusters of two cores on node 1, which has no memory; node 2 has
    /// nothing else. CPU 12 is offline.
    #[test]
    fn odd_parts_are_shown() {
        let root = std::env::temp_dir().join(format!("coreline-tree-{}", std::process::id()));
        let write = |path: &str, content: &str| {
            let path = root.join("devices").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("system/cpu/possible", "0-12");
        write("cpu_core/cpus", "0-3");
        write("cpu_atom/cpus", "4-11");
        for (node, list) in ["0-7", "8-11", ""].into_iter().enumerate() {
            write(&format!("system/node/node{node}/cpulist"), list);
            write(
                &format!("system/node/node{node}/distance"),
                ["10 20 14", "20 10 24", "14 24 10"][node],
            );
        }
        write("system/node/has_memory", "0,2");
        for (core, cluster, cpus) in [
            ("0-1", "", 0..2),
            ("2-3", "", 2..4),
            ("", "4-7", 4..8),
            ("", "8-9", 8..10),
            ("", "10-11", 10..12),
        ] {
            for cpu in cpus {
                let dir = format!("system/cpu/cpu{cpu}");
                write(
                    &format!("{dir}/topology/physical_package_id"),
                    if cpu < 8 { "0" } else { "1" },
                );
                write(&format!("{dir}/topology/core_cpus_list"), core);
                write(&format!("{dir}/topology/cluster_cpus_list"), cluster);
                if (4..8).contains(&cpu) {
                    write(&format!("{dir}/cache/index2/level"), "2");
                    write(&format!("{dir}/cache/index2/type"), "Unified");
                    write(&format!("{dir}/cache/index2/shared_cpu_list"), cluster);
                }
                write(&format!("{dir}/cache/index3/level"), "3");
                write(&format!("{dir}/cache/index3/type"), "Unified");
                write(
                    &format!("{dir}/cache/index3/shared_cpu_list"),
                    if cpu < 8 { "0-7" } else { "8-11" },
                );
            }
        }
        let machine = Topology::from_sysfs(&root);
        fs::remove_dir_all(&root).unwrap();
        let expected = "  12 CPUs, 10 cores, 7 L2, 5 clusters, 2 L3, 2 nodes, 2 sockets
  performance: CPUs 0-3
  efficient: CPUs 4-11
  CPU numbers go up to 12; those not shown are offline or unknown
  socket 0, node 0, cache 0: CPUs 0-7
    2 cores of 2 threads, performance
    L2 2: CPUs 4-7
      4 cores of 1 thread, efficient
  socket 1, node 1 without memory, cache 1: CPUs 8-11
    cluster 3: CPUs 8-9
      2 cores of 1 thread, efficient
    cluster 4 alike: CPUs 10-11
  node 2: memory without CPUs
  node distances
           0   1   2
       0  10  20  14
       1  20  10  24
       2  14  24  10
";
        assert_eq!(drawn(&machine.unwrap()), expected);
    }
}
