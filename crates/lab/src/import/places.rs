//! The place of each CPU of a matrix: which levels are hardware threads, caches, nodes and sockets.
//!
//! Latencies show groups, and not what these are. Groups of 2, 4 or 8 CPUs within [`MOST_SIBLINGS`]
//! ns are the threads of a core. The largest groups are sockets if there are few of them and they
//! have more cores than a small cache, or smaller groups within. A level between these is a cache
//! or, above a cache, a node. `--sockets` says it where this is wrong.

use std::collections::BTreeMap;

use coreline_sim::Class;
use coreline_topology::Shape;

use super::levels::Level;
use super::matrix::Matrix;
use crate::import_error::ImportError;
use crate::measure::Figure;

/// Two threads of one core are nearer than this, in nanoseconds.
const MOST_SIBLINGS: f64 = 15.0;

/// Two groups of this many cores or fewer are taken for two caches of a socket.
const SMALL_CACHE: usize = 8;

/// The machine that a matrix shows.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) shape: Shape,
    /// The CPU of the matrix for each CPU of a machine file's machine, whose numbers are given.
    pub(super) cpus: Vec<usize>,
    /// The latencies of each class.
    pub(super) transfers: Vec<(Class, Figure)>,
    /// How many pairs are left out: of groups that the latencies do not show.
    pub(super) left_out: usize,
}

/// A place of each CPU: core, cache, node and socket.
type Labels = Vec<[usize; 4]>;

fn groups(levels: &[Level]) -> String {
    match levels {
        [] => "none".to_owned(),
        levels => {
            let of = |it: &Level| format!("{} of {} CPUs", it.groups(), it.size);
            levels.iter().map(of).collect::<Vec<_>>().join(", ")
        }
    }
}

impl Places {
    pub(super) fn of(
        matrix: &Matrix,
        levels: &[Level],
        sockets: Option<usize>,
    ) -> Result<Places, ImportError> {
        let cpus = matrix.cpus();
        let is_core = |level: &&Level| {
            [2, 4, 8].contains(&level.size) && middle(matrix, level) < MOST_SIBLINGS
        };
        let core = levels.first().filter(is_core);
        let inner = &levels[usize::from(core.is_some())..];
        let threads = core.map_or(1, |level| level.size);
        let socket = match sockets {
            None => inner.last().filter(|it| {
                [2, 4, 8, 16].contains(&it.groups())
                    && (inner.len() > 1 || it.size / threads > SMALL_CACHE)
            }),
            Some(1) => None,
            Some(asked) => {
                let found = inner.iter().find(|it| it.groups() == asked);
                let groups = || groups(inner);
                Some(found.ok_or_else(|| ImportError::Sockets { asked, groups: groups() })?)
            }
        };
        // What is larger than a socket is left to the sockets' own distance.
        let within = inner.iter().filter(|it| socket.is_none_or(|socket| it.size < socket.size));
        let (cache, node) = match within.collect::<Vec<_>>()[..] {
            [] => (socket, socket),
            [cache] => (Some(cache), socket),
            [cache, node] => (Some(cache), Some(node)),
            [..] => {
                let (levels, groups) = (levels.len(), groups(levels));
                return Err(ImportError::TooDeep { levels, groups });
            }
        };
        let label = |level: Option<&Level>, cpu: usize| level.map_or(0, |it| it.group[cpu]);
        let own = |cpu| core.map_or(cpu, |it| it.group[cpu]);
        let place = |cpu| [own(cpu), label(cache, cpu), label(node, cpu), label(socket, cpu)];
        let labels: Labels = (0..cpus).map(place).collect();
        let count = |level: Option<&Level>| level.map_or(1, Level::groups);
        let [sockets, nodes, caches] = [socket, node, cache].map(count);
        let part = |parts: usize, wholes: usize| u32::try_from(parts / wholes).unwrap_or(1);
        let shape = Shape {
            sockets: part(sockets, 1),
            nodes_per_socket: part(nodes, sockets),
            caches_per_node: part(caches, nodes),
            cores_per_cache: part(cpus / threads, caches),
            threads_per_core: part(threads, 1),
        };
        let (transfers, left_out) = transfers(matrix, levels, &labels)?;
        Ok(Places { shape, cpus: numbers(&labels, threads), transfers, left_out })
    }
}

/// The middle latency within the groups of a level.
fn middle(matrix: &Matrix, level: &Level) -> f64 {
    let pairs = (0..matrix.cpus()).flat_map(|a| (0..a).map(move |b| (a, b)));
    let within = pairs.filter(|&(a, b)| level.group[a] == level.group[b]);
    let mut ns: Vec<f64> = within.map(|(a, b)| matrix.at(a, b)).collect();
    ns.sort_unstable_by(f64::total_cmp);
    ns.get(ns.len() / 2).copied().unwrap_or(f64::NAN)
}

/// In the order of a machine file: first threads of all cores first, socket by socket.
fn numbers(labels: &Labels, threads: usize) -> Vec<usize> {
    let mut cpus: Vec<usize> = (0..labels.len()).collect();
    cpus.sort_by_key(|&cpu| {
        let [core, cache, node, socket] = labels[cpu];
        (socket, node, cache, core, cpu)
    });
    (0..threads).flat_map(|thread| cpus.iter().skip(thread).step_by(threads).copied()).collect()
}

fn class(a: &[usize; 4], b: &[usize; 4]) -> Class {
    let [core, cache, node, socket] = [0, 1, 2, 3].map(|part| a[part] == b[part]);
    match () {
        () if core => Class::SameCore,
        () if cache => Class::SameCache,
        () if node => Class::SameNode,
        () if socket => Class::SameSocket,
        () => Class::OtherSocket,
    }
}

/// Whether latencies show where two CPUs are: a level that is known in part says nothing of two
/// that are both in its other groups, unless a smaller level has them together.
fn is_known(levels: &[Level], a: usize, b: usize) -> bool {
    for level in levels {
        if level.group[a] == level.group[b] {
            return level.known[level.group[a]];
        }
        if !level.known[level.group[a]] && !level.known[level.group[b]] {
            return false;
        }
    }
    true
}

/// The latencies of each class, and how many pairs are left out.
fn transfers(
    matrix: &Matrix,
    levels: &[Level],
    labels: &Labels,
) -> Result<(Vec<(Class, Figure)>, usize), ImportError> {
    let mut of_class = BTreeMap::<Class, Vec<f64>>::new();
    let mut left_out = 0;
    for (a, b) in (0..matrix.cpus()).flat_map(|a| (0..a).map(move |b| (a, b))) {
        if is_known(levels, a, b) {
            of_class.entry(class(&labels[a], &labels[b])).or_default().push(matrix.at(a, b));
        } else {
            left_out += 1;
        }
    }
    let mut transfers = Vec::new();
    let mut nearer: Option<(&'static str, [f64; 2])> = None;
    for (class, mut ns) in of_class {
        ns.sort_unstable_by(f64::total_cmp);
        let at = |twentieth: usize| super::round(ns[(ns.len() - 1) * twentieth / 20]);
        let [near_low, near_high, far_low, far_high] = match nearer {
            Some((_, [low, high])) => [low, high, at(2), at(18)],
            None => [0.0, 0.0, at(2), at(18)],
        };
        if let Some((near, _)) = nearer.filter(|_| near_high >= far_low) {
            let far = class.name();
            return Err(ImportError::Overlap { near, near_low, near_high, far, far_low, far_high });
        }
        nearer = Some((class.name(), [far_low, far_high]));
        let (samples, discarded, disturbed) = (ns.len(), 0, false);
        let [low, median, high] = [5, 10, 15].map(at);
        transfers.push((class, Figure { median, low, high, samples, discarded, disturbed }));
    }
    Ok((transfers, left_out))
}
