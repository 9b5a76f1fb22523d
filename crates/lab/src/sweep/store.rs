//! The store of a sweep's rows: a folder of Parquet files, one for each finished task.
//!
//! A file is written under another name beside, and renamed when all of it is on the disk. So a
//! file in the folder is whole, whenever the process or the machine stops. Names follow from the
//! keys, so two processes that write the same task write the same file.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use parquet::schema::types::Type;

use super::cell::{Row, TaskRows};
use super::{ENGINE, Plan, Sweep, SweepError};
use crate::export::parquet::file;

/// The facts that a file has, by name: the engine, the scenario, the CPU time of its rows.
const FACTS: [&str; 3] = ["coreline.engine", "coreline.scenario", "coreline.cpu_us"];

/// Files that are not finished begin with this. Readers of folders leave such files out.
const UNFINISHED: &str = ".unfinished-";

/// The store of a sweep, which this process alone writes to.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// The folder, locked.
    folder: File,
    /// Steps of finished keys; none of a failed one.
    finished: HashMap<String, Option<u64>>,
    /// Steps, and the CPU time that they took.
    took: (u64, Duration),
    errors: Vec<(String, String)>,
}

impl Store {
    /// Opens the store of a sweep, or creates it.
    ///
    /// # Errors
    ///
    /// [`SweepError::Io`], [`SweepError::InUse`], and what [`SweepError::Foreign`],
    /// [`SweepError::Engine`] and [`SweepError::Scenario`] say of files in the folder.
    pub fn open(dir: &Path, sweep: &Sweep) -> Result<Store, SweepError> {
        fs::create_dir_all(dir).map_err(SweepError::io("create the folder", dir))?;
        let folder = File::open(dir).map_err(SweepError::io("open the folder", dir))?;
        folder.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => SweepError::InUse(dir.to_owned()),
            TryLockError::Error(source) => SweepError::io("lock the folder", dir)(source),
        })?;
        let store = Store::of(dir, folder, sweep)?;
        for path in list(dir)? {
            if named(&path).starts_with(UNFINISHED) {
                // What a process left that was stopped. A worker of such a process that still runs
                // fails when it renames the file, and its cells run again.
                fs::remove_file(&path).map_err(SweepError::io("remove", &path))?;
            }
        }
        // Before the first cell runs, so that no minutes are lost.
        let probe = dir.join(format!("{UNFINISHED}{}", std::process::id()));
        let tried = File::create(&probe).and_then(|_| fs::remove_file(&probe));
        tried.map_err(SweepError::io("write to the folder", dir))?;
        Ok(store)
    }

    /// Reads the store of a sweep, and neither locks nor changes it.
    ///
    /// # Errors
    ///
    /// The same errors as for [`open`](Store::open), except [`SweepError::InUse`].
    pub(super) fn look(dir: &Path, sweep: &Sweep) -> Result<Store, SweepError> {
        let folder = File::open(dir).map_err(SweepError::io("open the folder", dir))?;
        Store::of(dir, folder, sweep)
    }

    fn of(dir: &Path, folder: File, sweep: &Sweep) -> Result<Store, SweepError> {
        let mut store = Store {
            dir: dir.to_owned(),
            folder,
            finished: HashMap::new(),
            took: (0, Duration::ZERO),
            errors: Vec::new(),
        };
        for path in list(dir)? {
            if named(&path).ends_with(".parquet") && !named(&path).starts_with('.') {
                store.read(&path, sweep)?;
            }
        }
        Ok(store)
    }

    /// Takes note of the rows of a file.
    fn read(&mut self, path: &Path, sweep: &Sweep) -> Result<(), SweepError> {
        let foreign = |why: String| SweepError::Foreign { path: path.to_owned(), why };
        let damaged = |error: parquet::errors::ParquetError| foreign(error.to_string());
        let opened = File::open(path).map_err(SweepError::io("read", path))?;
        let reader = SerializedFileReader::new(opened).map_err(damaged)?;
        let facts = reader.metadata().file_metadata().key_value_metadata();
        let fact = |name: &str| {
            let found = facts?.iter().find(|fact| fact.key == name);
            found?.value.clone()
        };
        let [engine, scenario, time] = FACTS.map(fact);
        let engine = engine.ok_or_else(|| foreign("it does not say its engine".to_owned()))?;
        if engine != ENGINE {
            let dir = self.dir.clone();
            return Err(SweepError::Engine { dir, found: engine, ours: ENGINE });
        }
        if let Some(found) = scenario.filter(|found| found != sweep.scenario.name) {
            let (dir, asked) = (self.dir.clone(), sweep.scenario.name);
            return Err(SweepError::Scenario { dir, found, asked });
        }
        let schema = reader.metadata().file_metadata().schema();
        let needed = schema
            .get_fields()
            .iter()
            .filter(|field| ["replay", "steps", "error"].contains(&field.name()));
        let needed = Type::group_type_builder("rows").with_fields(needed.cloned().collect());
        let needed = needed.build().map_err(damaged)?;
        let mut steps = 0;
        for row in reader.get_row_iter(Some(needed)).map_err(damaged)? {
            let row = row.map_err(damaged)?;
            let key = row.get_string(0).map_err(damaged)?.clone();
            // Null, and so no number, in the row of a failed cell.
            let of_row = row.get_ulong(1).ok();
            if let Ok(error) = row.get_string(2) {
                self.errors.push((key.clone(), error.clone()));
            }
            steps += of_row.unwrap_or_default();
            self.finished.insert(key, of_row);
        }
        let time = time.and_then(|time| time.parse().ok()).map(Duration::from_micros);
        self.took = (self.took.0 + steps, self.took.1 + time.unwrap_or_default());
        Ok(())
    }

    /// Returns whether the store has the row of a key.
    pub fn has(&self, key: &str) -> bool {
        self.finished.contains_key(key)
    }

    /// Returns the keys of failed cells, with their errors.
    pub fn errors(&self) -> &[(String, String)] {
        &self.errors
    }

    /// Returns the plan of the cells that the store does not have yet.
    ///
    /// # Errors
    ///
    /// [`SweepError::Key`].
    pub fn plan(&self, sweep: &Sweep) -> Result<Plan, SweepError> {
        let mut plan = Plan::new(sweep, |key| self.has(key))?;
        for (key, steps) in &self.finished {
            if let Some(steps) = steps {
                plan.learn_steps(key, *steps);
            }
        }
        plan.learn_time(self.took.0, self.took.1);
        Ok(plan)
    }

    /// Adds the rows of a task, except those that the store has already. When the call returns, the
    /// rows are on the disk.
    ///
    /// # Errors
    ///
    /// [`SweepError::Io`]. Then the store is as before.
    pub fn commit(&mut self, done: &TaskRows) -> Result<(), SweepError> {
        let is_new = |row: &&Row| row.key().is_some_and(|key| !self.has(key));
        let rows: Vec<Row> = done.rows.iter().filter(is_new).cloned().collect();
        let Some(first) = rows.first() else { return Ok(()) };
        let time = done.time.as_micros().to_string();
        let facts = [ENGINE.to_owned(), first.scenario.name.to_owned(), time];
        let facts: Vec<_> = FACTS.into_iter().zip(facts).collect();
        let name = format!("{:016x}", digest(rows.iter().filter_map(Row::key)));
        let failed = |source| SweepError::io("write to", &self.dir)(source);
        let bytes = file(&Row::columns(first.scenario, &rows), &facts)
            .map_err(|error| failed(io::Error::other(error)))?;
        self.put(&name, &bytes).map_err(failed)?;
        for row in rows {
            let Some(key) = row.key() else { continue };
            if let Some(error) = row.error() {
                self.errors.push((key.to_owned(), error.to_owned()));
            }
            self.finished.insert(key.to_owned(), row.steps());
        }
        Ok(())
    }

    /// Writes a whole file. The file is on the disk before its name, and the name before the call
    /// returns.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let beside = self.dir.join(format!("{UNFINISHED}{name}"));
        let write = || {
            let mut file = File::create(&beside)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&beside, self.dir.join(format!("{name}.parquet")))?;
            self.folder.sync_all()
        };
        write().inspect_err(|_| {
            // Best effort: the next sweep removes it, too.
            let _ = fs::remove_file(&beside);
        })
    }
}

/// The files of a folder.
fn list(dir: &Path) -> Result<Vec<PathBuf>, SweepError> {
    let listed = fs::read_dir(dir).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()
    });
    listed.map_err(SweepError::io("list the folder", dir))
}

/// The name of a file in the folder; empty if it is no text, as no name of ours is.
fn named(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// FNV-1a of all keys.
fn digest<'a>(keys: impl Iterator<Item = &'a str>) -> u64 {
    let bytes = keys.flat_map(|key| key.bytes().chain([b'\n']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
