//! The remaining part of a sweep: how long it takes, and which cells run next.

use core::time::Duration;
use std::collections::{BTreeMap, HashMap, VecDeque};

use super::cell::task_time;
use super::{Cell, Row, Sweep, SweepError, TaskRows};

/// The estimates before any cell was run, from a processor of 2021: steps for each thread, and
/// nanoseconds for each step.
const ROUGH: (f64, f64) = (5_000.0, 100.0);

/// The memory of a process, and the additional memory for each thread of a cell: its stack, its
/// place in the machine and its data.
const MEMORY: (u64, u64) = (16 << 20, 64 << 10);

/// The estimate of a cell or of all cells that remain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The number of cells.
    pub cells: usize,
    /// The CPU time of all of them together.
    pub time: Duration,
    /// The memory of a process that runs the largest of them.
    pub memory: u64,
    /// Whether no cell of the scenario was run yet: the time may be wrong by a factor of 10.
    pub is_rough: bool,
}

/// Cells that differ only in their seed, costs or arbitration: they take about the same time.
struct Group {
    variant: &'static str,
    weight: u64,
    seen: Mean,
}

#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    fn get(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

/// The cells of a sweep that remain, longest first.
pub struct Plan {
    waiting: VecDeque<(usize, String)>,
    groups: Vec<Group>,
    by_name: HashMap<String, usize>,
    /// Steps by variant and weight, for groups without a finished cell.
    by_weight: BTreeMap<(&'static str, u64), Mean>,
    steps: f64,
    time: Duration,
}

impl Plan {
    /// Creates the plan of a sweep's cells, without those of the given finished keys.
    ///
    /// # Errors
    ///
    /// [`SweepError::Key`] if a key of the sweep names no cell.
    pub fn new(sweep: &Sweep, is_finished: impl Fn(&str) -> bool) -> Result<Plan, SweepError> {
        let mut plan = Plan {
            waiting: VecDeque::new(),
            groups: Vec::new(),
            by_name: HashMap::new(),
            by_weight: BTreeMap::new(),
            steps: 0.0,
            time: Duration::ZERO,
        };
        let mut waiting = Vec::new();
        for key in &sweep.keys {
            let group = plan.group(sweep, key)?;
            if !is_finished(key) {
                waiting.push((group, key.clone()));
            }
        }
        // Stable: cells of one weight keep the order of the specification.
        waiting.sort_by_key(|(group, _)| core::cmp::Reverse(plan.groups[*group].weight));
        plan.waiting = waiting.into();
        Ok(plan)
    }

    fn group(&mut self, sweep: &Sweep, key: &str) -> Result<usize, SweepError> {
        let name = name(key);
        if let Some(&group) = self.by_name.get(&name) {
            return Ok(group);
        }
        let cell = Cell::parse(key)?;
        let weight = cell.weight(sweep.cpus(&cell));
        let variant = cell.point.variant;
        self.groups.push(Group { variant, weight, seen: Mean::default() });
        self.by_name.insert(name, self.groups.len() - 1);
        Ok(self.groups.len() - 1)
    }

    /// Takes note of the steps of a finished cell.
    pub(super) fn learn_steps(&mut self, key: &str, steps: u64) {
        let Some(&group) = self.by_name.get(&name(key)) else { return };
        let group = &mut self.groups[group];
        group.seen.add(steps as f64);
        self.by_weight.entry((group.variant, group.weight)).or_default().add(steps as f64);
    }

    /// Takes note of the time that this many steps took.
    pub(super) fn learn_time(&mut self, steps: u64, time: Duration) {
        self.steps += steps as f64;
        self.time += time;
    }

    /// Takes note of the rows of a task that had these keys, for the estimates of other cells: of
    /// their steps, in the order of the keys, and of the CPU time of all. Keys without a row run
    /// later.
    pub fn learn(&mut self, keys: Vec<String>, steps: &[Option<u64>], time: Duration) {
        for (key, steps) in keys.iter().zip(steps) {
            if let Some(steps) = steps {
                self.learn_steps(key, *steps);
            }
        }
        self.learn_time(steps.iter().flatten().sum(), time);
        for key in keys.into_iter().skip(steps.len()).rev() {
            if let Some(&group) = self.by_name.get(&name(&key)) {
                self.waiting.push_front((group, key));
            }
        }
    }

    fn is_rough(&self) -> bool {
        self.steps == 0.0
    }

    /// The CPU time of a cell of a group.
    fn time(&self, group: &Group) -> Duration {
        let per_step =
            if self.is_rough() { ROUGH.1 } else { self.time.as_nanos() as f64 / self.steps };
        let near = || {
            let distance = |&(variant, weight): &(&str, u64)| {
                (variant != group.variant, weight.abs_diff(group.weight))
            };
            let nearest = self.by_weight.iter().min_by_key(|(key, _)| distance(key));
            nearest.and_then(|(_, mean)| mean.get())
        };
        let steps = group.seen.get().or_else(near).unwrap_or(ROUGH.0 * group.weight as f64);
        Duration::from_nanos((steps * per_step) as u64)
    }

    /// Returns the estimate of all cells that remain.
    pub fn estimate(&self) -> Estimate {
        let mut each: Vec<Option<Duration>> = vec![None; self.groups.len()];
        let mut time = Duration::ZERO;
        for &(group, _) in &self.waiting {
            time += *each[group].get_or_insert_with(|| self.time(&self.groups[group]));
        }
        let weights = self.waiting.iter().map(|&(group, _)| self.groups[group].weight);
        let memory = MEMORY.0 + MEMORY.1 * weights.max().unwrap_or(0);
        Estimate { cells: self.waiting.len(), time, memory, is_rough: self.is_rough() }
    }

    /// Returns each cell that remains, with its estimate, longest first.
    pub fn cells(&self) -> impl Iterator<Item = (&str, Estimate)> {
        self.waiting.iter().map(|(group, key)| {
            let group = &self.groups[*group];
            let (time, is_rough) = (self.time(group), self.is_rough());
            let memory = MEMORY.0 + MEMORY.1 * group.weight;
            (key.as_str(), Estimate { cells: 1, time, memory, is_rough })
        })
    }

    /// Takes the keys of the next task: as many as take half a second together, or longer for more
    /// than 20 workers. A task is one cell until the first one has run. Returns `None` if no cell
    /// remains.
    pub fn next_keys(&mut self, workers: usize) -> Option<Vec<String>> {
        let (mut keys, mut time, least) = (Vec::new(), Duration::ZERO, task_time(workers));
        while time < least {
            let Some((group, key)) = self.waiting.pop_front() else { break };
            time += if self.is_rough() { least } else { self.time(&self.groups[group]) };
            keys.push(key);
        }
        (!keys.is_empty()).then_some(keys)
    }
}

impl Row {
    /// Returns the key of the cell.
    pub fn key(&self) -> Option<&str> {
        self.value("replay").as_str()
    }

    /// Returns the number of steps of the run, or `None` if it failed.
    pub fn steps(&self) -> Option<u64> {
        self.value("steps").as_u64()
    }

    /// Returns why the run failed, if it did.
    pub fn error(&self) -> Option<&str> {
        self.value("error").as_str()
    }
}

impl TaskRows {
    /// Returns the steps of each row; none of one that failed.
    pub fn steps(&self) -> Vec<Option<u64>> {
        self.rows.iter().map(Row::steps).collect()
    }
}

/// The machine and the program of a key.
fn name(key: &str) -> String {
    let machine = key.split_whitespace().nth(1).unwrap_or_default();
    let program = key.split_once(" program=").map_or("", |(_, program)| program);
    format!("{machine} {program}")
}
