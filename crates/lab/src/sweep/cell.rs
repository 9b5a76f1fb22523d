//! A cell: one simulated run, and its row.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use coreline_scenarios::param::{Domain, Param, Role, Value as ParamValue};
use coreline_scenarios::point::Point;
use coreline_scenarios::{ALL, Error, Scenario, Simulated, config::Config, simulate};
use coreline_sim::{FailureKind, Replay, Spec};
use coreline_topology::thread_time;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::SweepError;
use crate::export::parquet::ColumnKind::{self, Number, Text, Whole};
use crate::export::{Column, Columns};
use crate::run::own_figures;

/// The code that computes a row: the version of the packages, and in a checkout a digest of the
/// sources of the simulator, the primitives and the scenarios. Rows of two engines may differ.
pub const ENGINE: &str = env!("CORELINE_ENGINE");

/// A cell, with what its key says.
#[derive(Clone)]
pub(super) struct Cell {
    pub(super) replay: Replay,
    pub(super) point: Point,
}

impl Cell {
    /// Parses a key, which is the replay line of a scenario's run, exactly as it is printed.
    ///
    /// # Errors
    ///
    /// [`SweepError::Key`].
    pub(super) fn parse(key: &str) -> Result<Cell, SweepError> {
        let wrong = |why: String| SweepError::Key { key: key.to_owned(), why };
        let replay: Replay = key.parse().map_err(|error| wrong(format!("{error}")))?;
        let point = ALL.iter().find_map(|scenario| Point::parse(scenario, &replay.program));
        let point = point.ok_or_else(|| {
            wrong("its program is not a run of a scenario; `coreline cells` prints keys".to_owned())
        })?;
        // A store finds a row by the text of its key.
        if replay.to_string() != key {
            return Err(wrong(format!("write it as {replay}")));
        }
        Ok(Cell { replay, point })
    }

    /// The number of threads or, if the scenario has no such parameter, of CPUs. Cells of similar
    /// weight take a similar time.
    pub(super) fn weight(&self, cpus: usize) -> u64 {
        let is_cpus = |param: &&Param| matches!(param.domain, Domain::Cpus(_));
        let param = self.point.scenario.params.iter().find(is_cpus);
        param.map_or(cpus as u64, |param| self.point.number(param.name))
    }
}

/// The row of a cell: a value for each column of its scenario. A row of a failed cell has an
/// `error`, and no figures.
#[derive(Clone)]
pub struct Row {
    pub(super) scenario: &'static Scenario,
    values: Vec<Value>,
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.json()).finish()
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        self.scenario.name == other.scenario.name && self.values == other.values
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.replay, f)
    }
}

/// The kind of the values of a column. Each may also be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number, as a `u64`.
    Whole,
    /// A number, as an `f64`.
    Number,
    /// Text.
    Text,
}

/// The columns of a scenario's rows before the parameters and after them.
const BEFORE: [(&str, ColumnKind); 6] = [
    ("replay", Text),
    ("scenario", Text),
    ("machine", Text),
    ("digest", Text),
    ("config", Text),
    ("cpus", Whole),
];
const AFTER: [(&str, ColumnKind); 7] = [
    ("variant", Text),
    ("seed", Whole),
    ("request_percent", Whole),
    ("arbitration", Text),
    ("cost", Text),
    ("cost_percent", Whole),
    ("kernel", Text),
];
const LAST: [(&str, ColumnKind); 2] = [("steps", Whole), ("error", Text)];

/// The parameters of the program, which include its efforts, by their names in rows.
fn params(scenario: &'static Scenario) -> Vec<(String, ColumnKind)> {
    let shown = scenario.params.iter().filter(|param| param.role != Role::Kernel);
    let names = |param: &Param| {
        let kind =
            if let Domain::Names(_) | Domain::Words(_) = param.domain { Text } else { Whole };
        param.row_names().into_iter().map(move |name| (name, kind))
    };
    shown.flat_map(names).collect()
}

/// The columns of the rows of a scenario, in order. All rows of a scenario have the same.
pub(super) fn columns(scenario: &'static Scenario) -> Vec<(String, ColumnKind)> {
    let owned = |&(name, kind): &(&str, ColumnKind)| (name.to_owned(), kind);
    let mut all: Vec<_> = BEFORE.iter().map(owned).collect();
    all.extend(params(scenario));
    all.extend(AFTER.iter().map(owned));
    for figure in scenario.figures.iter().filter(|figure| figure.is_own()) {
        let column = (figure.metric.name.to_owned(), Number);
        if !all.contains(&column) {
            all.push(column);
        }
    }
    all.extend(LAST.iter().map(owned));
    all
}

impl Row {
    /// Returns the row as a JSON object: a field for each column.
    pub fn json(&self) -> Map<String, Value> {
        let names = columns(self.scenario).into_iter().map(|(name, _)| name);
        names.zip(self.values.iter().cloned()).collect()
    }

    /// Returns the value of a column, or null if the scenario has no such column.
    pub fn value(&self, column: &str) -> &Value {
        let index = columns(self.scenario).iter().position(|(name, _)| name == column);
        index.map_or(&Value::Null, |index| &self.values[index])
    }

    /// Returns the columns of a scenario's rows, in order, or `None` if there is no such scenario.
    pub fn columns(scenario: &str) -> Option<Vec<(String, Kind)>> {
        let kind = |kind| match kind {
            Whole => Kind::Whole,
            Number => Kind::Number,
            ColumnKind::Flag | Text => Kind::Text,
        };
        let columns = columns(Scenario::named(scenario)?).into_iter();
        Some(columns.map(|(name, of)| (name, kind(of))).collect())
    }

    /// Creates the row of a cell that could not be run at all, because the process that ran it
    /// ended several times.
    ///
    /// # Errors
    ///
    /// [`SweepError::Key`].
    pub fn failed(key: &str, error: &str, machines: &Machines) -> Result<Row, SweepError> {
        let cell = Cell::parse(key)?;
        let spec = machines.get(&cell)?;
        Ok(Row::of(&cell.replay, &cell.point, &spec, Err(error.to_owned())))
    }

    /// Returns the name of the scenario.
    pub fn scenario(&self) -> &'static str {
        self.scenario.name
    }

    /// A row of the values of all columns.
    pub(super) fn of_values(scenario: &'static Scenario, values: Vec<Value>) -> Row {
        Row { scenario, values }
    }

    pub(super) fn table(scenario: &'static Scenario, rows: &[Row]) -> Columns {
        let column = |(index, (name, kind)): (usize, (String, ColumnKind))| {
            let cells = rows.iter().map(|row| row.values[index].clone()).collect();
            Column { name, kind: Some(kind), cells }
        };
        Columns(columns(scenario).into_iter().enumerate().map(column).collect())
    }
}

impl Row {
    /// The row of a line's run on the line's machine, or of the reason why there are no numbers.
    pub(crate) fn of(
        replay: &Replay,
        point: &Point,
        spec: &Spec,
        run: Result<Simulated, String>,
    ) -> Row {
        let whole = |number: u64| Value::from(number);
        let text = |text: &str| Value::from(text);
        let cpus = Config::all(spec.topology()).into_iter().find(|it| it.name == point.config);
        let shown = point.params();
        let param = |(name, _): (String, ColumnKind)| match shown.get(&name) {
            Some(ParamValue::Number(number)) => whole(*number),
            Some(ParamValue::Name(name)) => text(name),
            // Efforts, which `run` does not show.
            _ => whole(point.number(&name)),
        };
        let mut values = vec![
            text(&replay.to_string()),
            text(point.scenario.name),
            text(&replay.machine),
            replay.digest.map_or(Value::Null, |digest| format!("{digest:016x}").into()),
            text(&point.config),
            cpus.map_or(Value::Null, |config| config.cpus.len().into()),
        ];
        values.extend(params(point.scenario).into_iter().map(param));
        let cost = replay.scaled.first();
        values.extend([
            text(point.variant),
            whole(replay.seed),
            whole(replay.request_percent.into()),
            text(&replay.arbitration.to_string()),
            cost.map_or(Value::Null, |(cost, _)| text(cost)),
            cost.map_or(Value::Null, |(_, percent)| whole(*percent)),
            replay.kernel.as_deref().map_or(Value::Null, text),
        ]);
        let run = run.map(|run| (own_figures(spec, point, &run.numbers), run.steps));
        let figures = columns(point.scenario).into_iter().skip(values.len());
        let figures: Vec<Value> = figures
            .take_while(|(_, kind)| *kind == Number)
            .map(|(name, _)| {
                let found = run.as_ref().ok().and_then(|(figures, _)| {
                    figures.iter().find(|(metric, _)| *metric == name).map(|(_, value)| *value)
                });
                found.map_or(Value::Null, Value::from)
            })
            .collect();
        values.extend(figures);
        values.extend(match run {
            Ok((_, steps)) => [whole(steps), Value::Null],
            Err(error) => [Value::Null, text(&error)],
        });
        Row { scenario: point.scenario, values }
    }
}

/// The machines that cells name: presets, and machines of files, by the names that replay lines
/// have for them.
#[derive(Debug, Default, Clone)]
pub struct Machines(HashMap<String, Spec>);

impl Machines {
    /// Creates the machines of these texts of machine files, beside the presets.
    ///
    /// # Errors
    ///
    /// [`SweepError::Spec`] if a text is not a machine file.
    pub fn new(files: &[String]) -> Result<Machines, SweepError> {
        let mut machines = Machines::default();
        for text in files {
            let wrong = |why: String| SweepError::Spec { of: "a machine file".to_owned(), why };
            let spec =
                Spec::parse("a machine file", text).map_err(|error| wrong(error.to_string()))?;
            machines.0.insert(name(spec.name(), spec.digest()), spec);
        }
        Ok(machines)
    }

    pub(super) fn insert(&mut self, spec: Spec) {
        self.0.insert(name(spec.name(), spec.digest()), spec);
    }

    /// The machine of a cell, with the costs that the line moves.
    fn get(&self, cell: &Cell) -> Result<Spec, SweepError> {
        let replay = &cell.replay;
        let wrong = |why: String| SweepError::Key { key: replay.to_string(), why };
        let mut spec = match self.0.get(&name(&replay.machine, replay.digest)) {
            Some(spec) => spec.clone(),
            None if replay.digest.is_none() => {
                Spec::preset(&replay.machine).map_err(|error| wrong(error.to_string()))?
            }
            None => {
                return Err(wrong(
                    "pass the machine file that the line was printed with".to_owned(),
                ));
            }
        };
        for (cost, percent) in &replay.scaled {
            spec.scale(cost, *percent).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(spec)
    }

    /// The number of CPUs that take part in a cell; 0 where its key names none.
    pub(super) fn cpus(&self, cell: &Cell) -> usize {
        let Ok(spec) = self.get(cell) else { return 0 };
        let mut configs = Config::all(spec.topology()).into_iter();
        configs.find(|it| it.name == cell.point.config).map_or(0, |config| config.cpus.len())
    }

    /// Runs a cell. If the program fails, the row has an error.
    ///
    /// # Errors
    ///
    /// [`SweepError::Key`] if this is not the key of a cell. [`SweepError::Host`] if the machine
    /// could not start, as this host has too little memory: another host could run the cell.
    pub fn run(&self, key: &str) -> Result<Row, SweepError> {
        let cell = Cell::parse(key)?;
        let spec = self.get(&cell)?;
        let run = simulate(&spec, &cell.replay, &cell.point, None);
        let run = match run {
            Ok(run) => Ok(run),
            Err(Error::Failed(failure)) => match failure.kind {
                FailureKind::Refused { why } => {
                    return Err(SweepError::Host { key: key.to_owned(), why });
                }
                _ => Err(Error::Failed(failure).to_string()),
            },
            Err(error @ Error::Broken { .. }) => Err(error.to_string()),
            Err(error) => {
                return Err(SweepError::Key { key: key.to_owned(), why: error.to_string() });
            }
        };
        Ok(Row::of(&cell.replay, &cell.point, &spec, run))
    }
}

/// The machine's name as in a replay line.
fn name(machine: &str, digest: Option<u64>) -> String {
    let replay = Replay { digest, ..Replay::new(machine, "") };
    let line = replay.to_string();
    line.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

/// The least time of a task, if enough cells remain. Engines take from 1 to 10 ms for a task.
const TASK: Duration = Duration::from_millis(500);

/// As much for each worker, because one thread stores the rows of all tasks. It took 12 to 23 ms
/// for a task on ext4, most of it in `fsync`.
const FOR_EACH_WORKER: Duration = Duration::from_millis(25);

/// Returns the least time of a task, if enough cells remain, for a number of workers.
pub(super) fn task_time(workers: usize) -> Duration {
    TASK.max(FOR_EACH_WORKER * u32::try_from(workers).unwrap_or(u32::MAX))
}

/// Cells that one worker runs, one after the other. It is plain data, and can be sent to a process
/// on another host as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The engine that the rows must come from: see [`ENGINE`].
    pub engine: String,
    /// The texts of the machine files that keys name.
    pub machines: Vec<String>,
    /// The keys, all of one scenario.
    pub keys: Vec<String>,
    /// How long they should take, so that the worker ends a task that takes far longer.
    pub(super) time: Duration,
}

/// The rows of a task, and the CPU time that they took.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRows {
    /// The rows, in the order of the keys.
    pub rows: Vec<Row>,
    /// The CPU time. If the kernel does not tell it, this is the elapsed time.
    pub time: Duration,
}

impl Task {
    /// Creates the task of these keys, for one of this many workers. `machines` has the texts of
    /// the machine files that the keys name.
    pub fn new(keys: Vec<String>, machines: Vec<String>, workers: usize) -> Task {
        Task { engine: ENGINE.to_owned(), machines, keys, time: task_time(workers) }
    }

    /// Runs the cells. Ends early, with the rows of the finished cells, if `stop` returns true
    /// before a cell, or if the cells take twice the time of the task: the estimate was
    /// wrong, and others can run the rest. [`Plan::learn`](super::Plan::learn) takes note.
    ///
    /// # Errors
    ///
    /// [`SweepError::Key`] and [`SweepError::Host`], as for [`Machines::run`]. [`SweepError::Spec`]
    /// if a machine file is not valid. [`SweepError::Worker`] if the task is for another engine.
    pub fn run(&self, stop: impl Fn() -> bool) -> Result<TaskRows, SweepError> {
        if self.engine != ENGINE {
            return Err(SweepError::Worker { asked: self.engine.clone(), ours: ENGINE.to_owned() });
        }
        let machines = Machines::new(&self.machines)?;
        let (since, before) = (Instant::now(), cpu_time());
        let mut rows = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let is_late = !rows.is_empty() && since.elapsed() >= 2 * self.time;
            if stop() || is_late {
                break;
            }
            rows.push(machines.run(key)?);
        }
        let cpu = cpu_time().zip(before).map(|(now, before)| now.saturating_sub(before));
        // The kernel counts at its ticks, so a short task may seem to take no time.
        let time = cpu.filter(|time| !time.is_zero()).unwrap_or_else(|| since.elapsed());
        Ok(TaskRows { rows, time })
    }
}

fn cpu_time() -> Option<Duration> {
    thread_time(Path::new("/")).ok().flatten()
}
