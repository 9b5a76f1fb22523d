//! Ping-pongs between all pairs of CPUs, and their map.

use std::fmt::Write as _;

use coreline_sim::Class;
use coreline_topology::{Cpu, CpuId, CpuSet, Distance, Topology};
use serde::Serialize;

use super::Figure;

/// CPUs beyond this are too many for a map, and for the time that pairs take.
const MOST: usize = 48;

/// Figures are written out for this many CPUs, and drawn as shades for more.
const MOST_WRITTEN: usize = 12;

/// The shades, from the least to the most.
const SHADES: [&str; 5] = ["·", "░", "▒", "▓", "█"];
const ASCII_SHADES: [&str; 5] = [".", ":", "+", "#", "@"];

/// The one-way latency of a ping-pong between two CPUs.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Pair {
    pub(super) cpus: [u32; 2],
    /// The class of the machine file's cost; `null` if the machine does not say how far they are.
    pub(super) class: Option<&'static str>,
    pub(super) ns: Figure,
}

/// The CPUs that play, of those that the process may use: all; or else one of each core, or this
/// many of each last-level cache that they are not too many.
pub(super) fn players(topology: &Topology, allowed: &CpuSet) -> Vec<CpuId> {
    let mut cpus: Vec<&Cpu> = allowed.iter().filter_map(|cpu| topology.cpu(cpu)).collect();
    cpus.sort_by_key(|cpu| (cpu.socket, cpu.node, cpu.cache, cpu.core, cpu.thread));
    if cpus.len() > MOST {
        cpus.dedup_by_key(|cpu| cpu.core);
    }
    let mut of_each = cpus.len();
    let thinned = |of_each: usize| {
        let parts = cpus.chunk_by(|a, b| a.cache == b.cache);
        parts.flat_map(|part| part.iter().take(of_each).map(|cpu| cpu.id)).collect::<Vec<_>>()
    };
    while of_each > 1 && thinned(of_each).len() > MOST {
        of_each -= 1;
    }
    let mut players = thinned(of_each);
    players.truncate(MOST);
    players
}

/// The class of two CPUs; `None` if they are one.
pub(crate) fn class(topology: &Topology, [a, b]: [CpuId; 2]) -> Option<Class> {
    Some(match topology.distance(a, b)? {
        Distance::SameCpu => return None,
        Distance::SameCore => Class::SameCore,
        Distance::SameL2 | Distance::SameCluster | Distance::SameCache => Class::SameCache,
        Distance::SameNode => Class::SameNode,
        Distance::SameSocket => Class::SameSocket,
        Distance::OtherSocket => Class::OtherSocket,
    })
}

/// The map of all pairs, in the order of `players`. A gap parts CPUs of different last-level
/// caches, as far as `topology` knows. `~` marks what is disturbed, where figures are written out.
pub(super) fn map(topology: &Topology, players: &[CpuId], pairs: &[Pair], unicode: bool) -> String {
    let ns = |a: CpuId, b: CpuId| {
        let of = |pair: &&Pair| pair.cpus == [a.get(), b.get()] || pair.cpus == [b.get(), a.get()];
        pairs.iter().find(of).map(|pair| pair.ns)
    };
    let figures = || pairs.iter().map(|pair| pair.ns.median);
    let (least, most) =
        figures().fold((f64::MAX, 0.0), |(least, most), ns| (ns.min(least), ns.max(most)));
    let cache = |cpu: CpuId| topology.cpu(cpu).map(|cpu| cpu.cache);
    let parted = |at: usize| at > 0 && cache(players[at - 1]) != cache(players[at]);
    let written = players.len() <= MOST_WRITTEN;
    let shades = if unicode { SHADES } else { ASCII_SHADES };
    let shade = |ns: f64| {
        // Equal steps in proportion: 30 ns and 60 are as far apart as 100 and 200.
        let share = (ns / least).ln() / (most / least).ln().max(f64::MIN_POSITIVE);
        shades[((share * 5.0) as usize).min(4)]
    };
    let mut text = String::new();
    if written {
        text += "     ";
        for (at, cpu) in players.iter().enumerate() {
            let _ = write!(text, "{}{:>5}", if parted(at) { " " } else { "" }, cpu.get());
        }
        text.push('\n');
    }
    for (row, &a) in players.iter().enumerate() {
        if parted(row) {
            text.push('\n');
        }
        let _ = write!(text, "{:>5}", a.get());
        text += if written { "" } else { " " };
        for (column, &b) in players.iter().enumerate() {
            text += if parted(column) { " " } else { "" };
            let cell = match (written, ns(a, b)) {
                (true, Some(Figure { median, disturbed: true, .. })) => {
                    format!("{:>5}", format!("~{median:.0}"))
                }
                (true, Some(ns)) => format!("{:>5.0}", ns.median),
                (true, None) => format!("{:>5}", "-"),
                (false, Some(ns)) => shade(ns.median).to_owned(),
                (false, None) => " ".to_owned(),
            };
            text += &cell;
        }
        text.push('\n');
    }
    if !written && most > 0.0 {
        let edge = |step: u32| least * (most / least).powf(f64::from(step) / 5.0);
        let steps =
            shades.iter().zip(0..).map(|(shade, step)| format!("{shade} {:.0}", edge(step)));
        let steps: Vec<_> = steps.collect();
        let _ = writeln!(text, "  each shade from, in ns: {}; highest {most:.0}", steps.join("  "));
    }
    text
}

#[cfg(test)]
mod tests {
    use coreline_sim::Spec;

    use super::*;

    fn pairs(players: &[CpuId], ns: impl Fn(CpuId, CpuId) -> f64) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for (at, &a) in players.iter().enumerate() {
            for &b in &players[..at] {
                let (median, low, high) = (ns(a, b), 0.0, 0.0);
                let disturbed = false;
                let ns = Figure { median, low, high, samples: 1, discarded: 0, disturbed };
                pairs.push(Pair { cpus: [b.get(), a.get()], class: None, ns });
            }
        }
        pairs
    }

    #[test]
    fn a_large_machine_is_thinned_to_cores_of_every_cache() {
        let epyc = Spec::preset("epyc-9654-2s").unwrap();
        let topology = epyc.topology();
        let players = players(topology, &topology.set());
        assert_eq!(players.len(), 48);
        assert_eq!(players[..4], [0, 1, 8, 9].map(CpuId::new));
        let some: CpuSet = "0-3,192".parse().unwrap();
        let of_some = super::players(topology, &some);
        assert_eq!(of_some, [0, 192, 1, 2, 3].map(CpuId::new), "threads of a core are neighbours");
    }

    #[test]
    fn classes_are_those_of_machine_files() {
        let epyc = Spec::preset("epyc-9654-2s").unwrap();
        let of = |b| class(epyc.topology(), [0, b].map(CpuId::new)).map(Class::name);
        assert_eq!(
            [0, 1, 8, 96, 192].map(of),
            [None, Some("same_cache"), Some("same_node"), Some("other_socket"), Some("same_core")]
        );
    }

    #[test]
    fn few_cpus_are_written_out() {
        let host = Spec::preset("host-2c").unwrap();
        let players = [0, 1].map(CpuId::new);
        let mut pairs = pairs(&players, |_, _| 27.4);
        let map = |pairs: &[Pair]| super::map(host.topology(), &players, pairs, true);
        assert_eq!(map(&pairs), "         0    1\n    0    -   27\n    1   27    -\n");
        pairs[0].ns.disturbed = true;
        assert_eq!(map(&pairs), "         0    1\n    0    -  ~27\n    1  ~27    -\n");
    }

    #[test]
    fn many_cpus_are_shades_with_a_gap_between_caches() {
        let epyc = Spec::preset("epyc-9654-2s").unwrap();
        let players: Vec<_> = (0..16).map(CpuId::new).collect();
        let same = |a: CpuId, b: CpuId| a.get() / 8 == b.get() / 8;
        let pairs = pairs(&players, |a, b| if same(a, b) { 20.0 } else { 160.0 });
        let map = map(epyc.topology(), &players, &pairs, false);
        let lines: Vec<_> = map.lines().collect();
        assert_eq!(lines[0], "    0  ....... @@@@@@@@");
        assert_eq!(lines[8], "", "the caches of one node are parted");
        assert_eq!(lines[9], "    8 @@@@@@@@  .......");
        assert_eq!(
            lines[17],
            "  each shade from, in ns: . 20  : 30  + 46  # 70  @ 106; highest 160"
        );
        assert!(lines.iter().all(|line| line.len() <= 80));
    }
}
