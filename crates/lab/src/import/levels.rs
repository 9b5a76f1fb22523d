//! Groups of CPUs that are near each other, level by level.
//!
//! CPUs are joined one by one, the nearest first, by the mean latency between the groups that they
//! have become. If the next mean is a good deal larger than all before it, the groups so far are a
//! level. Means are taken because single pairs of a measurement are off.
//!
//! Groups of a level are alike, with one exception. A line that two cores of one socket exchange
//! may pass through the socket whose memory it is in. Then only that socket's groups look nearer to
//! each other than to those of other sockets, and the level is known in part.

use super::matrix::Matrix;
use crate::import_error::ImportError;
use crate::text::counted;

/// The next group is farther by this factor, or more.
const GAP: f64 = 1.2;

/// One level only: eight of ten latencies lie within this factor.
const WIDEST: f64 = 1.5;

/// CPUs parted into groups of one size.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Level {
    /// How many CPUs a group has.
    pub(super) size: usize,
    /// The group of each CPU, counted by their lowest CPUs.
    pub(super) group: Vec<usize>,
    /// The groups that the latencies show. The other groups were formed from the groups below, in
    /// order.
    pub(super) known: Vec<bool>,
}

impl Level {
    pub(super) fn groups(&self) -> usize {
        self.known.len()
    }
}

/// Two groups become one.
struct Join {
    /// Their mean latency.
    ns: f64,
    into: usize,
    from: usize,
}

/// Joins all CPUs, the nearest groups first. Time grows with the square of the CPUs for most
/// matrices.
fn joins(matrix: &Matrix) -> Vec<Join> {
    let cpus = matrix.cpus();
    let mut mean: Vec<Vec<f64>> =
        (0..cpus).map(|a| (0..cpus).map(|b| matrix.at(a, b)).collect()).collect();
    let mut size = vec![1.0; cpus];
    let mut left: Vec<usize> = (0..cpus).collect();
    let nearest = |mean: &[Vec<f64>], left: &[usize], a: usize| {
        let others = left.iter().copied().filter(|&b| b != a);
        others.min_by(|&b, &c| mean[a][b].total_cmp(&mean[a][c])).unwrap_or(a)
    };
    let mut near: Vec<usize> = (0..cpus).map(|a| nearest(&mean, &left, a)).collect();
    let mut joins = Vec::with_capacity(cpus);
    while left.len() > 1 {
        let next =
            left.iter().copied().min_by(|&a, &b| mean[a][near[a]].total_cmp(&mean[b][near[b]]));
        let Some(one) = next else { break };
        let (into, from) = (one.min(near[one]), one.max(near[one]));
        joins.push(Join { ns: mean[into][from], into, from });
        left.retain(|&it| it != from);
        for &other in left.iter().filter(|&&other| other != into) {
            let sum = size[into] * mean[into][other] + size[from] * mean[from][other];
            let ns = sum / (size[into] + size[from]);
            (mean[into][other], mean[other][into]) = (ns, ns);
        }
        size[into] += size[from];
        for &other in &left {
            if other == into || near[other] == into || near[other] == from {
                near[other] = nearest(&mean, &left, other);
            }
        }
    }
    joins
}

/// Numbers groups by their lowest CPUs.
fn numbered(labels: &[usize]) -> Vec<usize> {
    let mut known: Vec<usize> = Vec::new();
    let number = |label: &usize| {
        known.iter().position(|it| it == label).unwrap_or_else(|| {
            known.push(*label);
            known.len() - 1
        })
    };
    labels.iter().map(number).collect()
}

/// How many CPUs each group has.
fn sizes(group: &[usize]) -> Vec<usize> {
    let mut sizes = vec![0; group.iter().max().map_or(0, |last| last + 1)];
    group.iter().for_each(|&it| sizes[it] += 1);
    sizes
}

/// A threshold that parts CPUs into groups.
struct Cut {
    below: f64,
    above: f64,
    group: Vec<usize>,
    sizes: Vec<usize>,
}

impl Cut {
    fn largest(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// The level that it is, on top of the one below.
    fn level(&self, below: Option<&Level>) -> Option<Level> {
        let (size, cpus) = (self.largest(), self.group.len());
        if self.sizes.iter().all(|it| *it == size) {
            let known = vec![true; self.sizes.len()];
            return Some(Level { size, group: self.group.clone(), known });
        }
        // Some groups of this size, and the rest as it was below.
        let below = below.filter(|below| below.size > 1 && 2 * size <= cpus)?;
        let alike = self.sizes.iter().all(|it| *it == size || *it == below.size);
        if !alike || !cpus.is_multiple_of(size) || !size.is_multiple_of(below.size) {
            return None;
        }
        let each = size / below.size;
        // Those that are left are put together by their numbers.
        let mut labels: Vec<Option<usize>> = vec![None; below.groups()];
        let mut left = 0;
        for (cpu, &group) in self.group.iter().enumerate() {
            let label = &mut labels[below.group[cpu]];
            if label.is_none() && self.sizes[group] == size {
                *label = Some(group);
            } else if label.is_none() {
                *label = Some(self.sizes.len() + left / each);
                left += 1;
            }
        }
        let label = |&group: &usize| labels[group].unwrap_or(0);
        let labels: Vec<usize> = below.group.iter().map(label).collect();
        let group = numbered(&labels);
        let mut known = vec![false; cpus / size];
        group.iter().zip(&labels).for_each(|(&it, &label)| known[it] = label < self.sizes.len());
        Some(Level { size, group, known })
    }

    /// `8 groups of 2 CPUs and 8 of 1`.
    fn parts(&self) -> String {
        let mut of: Vec<usize> = self.sizes.clone();
        of.sort_unstable_by(|a, b| b.cmp(a));
        let counts = of.chunk_by(|a, b| a == b).map(|alike| (alike.len(), alike[0]));
        let parts = counts.enumerate().map(|(at, (count, size))| match at {
            0 => format!("{} of {}", counted(count, "group"), counted(size, "CPU")),
            _ => format!("{count} of {size}"),
        });
        parts.collect::<Vec<_>>().join(" and ")
    }
}

/// All thresholds, from the lowest.
fn cuts(matrix: &Matrix) -> Vec<Cut> {
    let joins = joins(matrix);
    let mut labels: Vec<usize> = (0..matrix.cpus()).collect();
    let (mut below, mut cuts) = (0.0f64, Vec::new());
    for (at, join) in joins.iter().enumerate() {
        if at > 0 && join.ns >= below * GAP {
            let group = numbered(&labels);
            cuts.push(Cut { below, above: join.ns, sizes: sizes(&group), group });
        }
        below = below.max(join.ns);
        labels.iter_mut().filter(|it| **it == join.from).for_each(|it| *it = join.into);
    }
    cuts
}

/// The levels of a matrix, the smallest groups first; none if all CPUs are equally far.
pub(super) fn levels(matrix: &Matrix) -> Result<Vec<Level>, ImportError> {
    let (mut levels, mut uneven) = (Vec::<Level>::new(), Vec::<Cut>::new());
    for cut in cuts(matrix) {
        let Some(level) = cut.level(levels.last()) else {
            uneven.push(cut);
            continue;
        };
        // Some groups of a level come before the others, where single pairs are off.
        uneven.retain(|it| it.largest() != level.size);
        levels.retain(|it| it.size != level.size);
        levels.push(level);
    }
    if let Some(cut) = uneven.first() {
        let [below, above] = [cut.below, cut.above].map(super::round);
        return Err(ImportError::Uneven { parts: cut.parts(), below, above });
    }
    if levels.is_empty() {
        let pairs = (0..matrix.cpus()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let mut ns: Vec<f64> = pairs.map(|(a, b)| matrix.at(a, b)).collect();
        ns.sort_unstable_by(f64::total_cmp);
        let [low, high] = [1, 9].map(|tenth| ns[(ns.len() - 1) * tenth / 10]);
        if high > low * WIDEST {
            let [low, high] = [low, high].map(super::round);
            return Err(ImportError::NoClasses { low, high });
        }
    }
    Ok(levels)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A latency that is off by a tenth at most, differently for each pair.
    fn about(ns: f64, a: usize, b: usize) -> f64 {
        ns * (0.92 + 0.16 * ((a * 7919 + b * 104_729) % 101) as f64 / 100.0)
    }

    /// Of two sockets of two caches of four cores of two threads, the second threads last.
    fn two_sockets(a: usize, b: usize) -> f64 {
        let (core, other) = (a % 16, b % 16);
        let ns = match () {
            () if core == other => 10.0,
            () if core / 4 == other / 4 => 25.0,
            () if core / 8 == other / 8 => 105.0,
            () => 195.0,
        };
        about(ns, a, b)
    }

    fn found(cpus: usize, ns: impl Fn(usize, usize) -> f64) -> Vec<(usize, usize)> {
        let levels = levels(&Matrix::of(cpus, ns)).unwrap();
        levels.iter().map(|it| (it.groups(), it.size)).collect()
    }

    #[test]
    fn groups_are_found_whatever_their_numbers_are() {
        assert_eq!(found(32, two_sockets), [(16, 2), (4, 8), (2, 16)]);
        let shuffled = |cpu: usize| (cpu * 13 + 5) % 32;
        let elsewhere = |a, b| two_sockets(shuffled(a), shuffled(b));
        assert_eq!(found(32, elsewhere), [(16, 2), (4, 8), (2, 16)]);
        assert_eq!(found(8, |a, b| about(50.0, a, b)), [], "one class");
        assert_eq!(found(2, |_, _| 30.0), []);
    }

    #[test]
    fn single_pairs_that_are_off_change_nothing() {
        let ns = |a, b| if (a, b) == (16, 0) { 15.0 } else { two_sockets(a, b) };
        assert_eq!(found(32, ns), [(16, 2), (4, 8), (2, 16)]);
        let ns = |a, b| if (a, b) == (9, 1) { 30.0 } else { two_sockets(a, b) };
        assert_eq!(found(32, ns), [(16, 2), (4, 8), (2, 16)]);
    }

    #[test]
    fn a_level_that_one_socket_shows_is_known_in_part() {
        // What the second socket's caches exchange passes through the first one's memory.
        let ns = |a: usize, b: usize| match two_sockets(a, b) {
            far if far > 60.0 && (a % 16 >= 8 || b % 16 >= 8) => about(195.0, a, b),
            near => near,
        };
        let levels = levels(&Matrix::of(32, ns)).unwrap();
        let last = levels.last().unwrap();
        assert_eq!((levels.len(), last.size, &last.known[..]), (3, 16, &[true, false][..]));
        let socket = |cpu: usize| cpu % 16 / 8;
        assert!((0..32).all(|cpu| last.group[cpu] == socket(cpu)), "{:?}", last.group);
    }

    #[test]
    fn what_forms_no_classes_says_what_was_found() {
        let error = |cpus, ns: &dyn Fn(usize, usize) -> f64| {
            levels(&Matrix::of(cpus, ns)).unwrap_err().to_string()
        };
        // Cores with two threads, and cores with one.
        let hybrid =
            |a: usize, b: usize| if a < 8 && a / 2 == b / 2 { 5.0 } else { about(40.0, a, b) };
        let told = error(12, &hybrid);
        assert!(told.contains("4 groups of 2 CPUs and 4 of 1"), "{told}");
        // Distances that only grow.
        let told = error(24, &|a, b| 30.0 + 10.0 * ((a - b) as f64).sqrt());
        assert!(told.contains("no classes") && told.contains("ns"), "{told}");
    }
}
