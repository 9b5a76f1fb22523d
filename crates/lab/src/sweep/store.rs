//! The store of a sweep's rows: a folder of Parquet files, one for each finished task.
//!
//! A file is written under another name beside, and renamed when all of it is on the disk. So a
//! file in the folder is whole, whenever the process or the machine stops.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use parquet::schema::types::Type;

use super::cell::{Row, TaskRows};
use super::{ENGINE, Plan, Sweep, SweepError, file};

/// Files that are not finished begin with this. `*.parquet` does not match them.
const UNFINISHED: &str = ".unfinished-";

/// The file that the writer of the store has locked. It holds a text that no other writer has, so
/// that a writer sees if its folder was moved away and another one has its name.
const LOCK: &str = ".lock";

/// The store of a sweep, which this process alone writes to.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// The locked file and its text. `None` if this process only reads.
    lock: Option<(File, String)>,
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
        create(dir).map_err(SweepError::io("create the folder", dir))?;
        let path = dir.join(LOCK);
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        // Before the first cell runs, so that no minutes are lost in a folder that is read-only.
        let mut lock = opened.map_err(SweepError::io("write to", &path))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => SweepError::InUse(dir.to_owned()),
            TryLockError::Error(source) => SweepError::io("lock", &path)(source),
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let text = format!("{} {now}\n", std::process::id());
        let written = lock.set_len(0).and_then(|()| lock.write_all(text.as_bytes()));
        written.map_err(SweepError::io("write to", &path))?;
        let store = Store::of(dir, Some((lock, text)), sweep)?;
        for path in list(dir)? {
            if named(&path).starts_with(UNFINISHED) {
                // A process left the file when it was stopped.
                fs::remove_file(&path).map_err(SweepError::io("remove", &path))?;
            }
        }
        Ok(store)
    }

    /// Reads the store of a sweep, and neither locks nor changes it.
    ///
    /// # Errors
    ///
    /// The same errors as for [`open`](Store::open), except [`SweepError::InUse`].
    pub fn look(dir: &Path, sweep: &Sweep) -> Result<Store, SweepError> {
        Store::of(dir, None, sweep)
    }

    fn of(dir: &Path, lock: Option<(File, String)>, sweep: &Sweep) -> Result<Store, SweepError> {
        let mut store = Store {
            dir: dir.to_owned(),
            lock,
            finished: HashMap::new(),
            took: (0, Duration::ZERO),
            errors: Vec::new(),
        };
        for path in list(dir)?.iter().filter(|path| is_finished(path)) {
            store.read(path, sweep)?;
        }
        Ok(store)
    }

    /// Takes note of the rows of a file.
    fn read(&mut self, path: &Path, sweep: &Sweep) -> Result<(), SweepError> {
        let foreign = |why: String| SweepError::Foreign { path: path.to_owned(), why };
        let damaged = |error: parquet::errors::ParquetError| foreign(error.to_string());
        let opened = File::open(path).map_err(SweepError::io("read", path))?;
        let reader = SerializedFileReader::new(opened).map_err(damaged)?;
        let [engine, scenario, time] = file::facts(&reader);
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
            if self.finished.insert(key.clone(), of_row).is_some() {
                return Err(foreign(format!("another file has a row of the same cell, {key}")));
            }
        }
        self.took = (self.took.0 + steps, self.took.1 + file::time(time));
        Ok(())
    }

    /// Reads the rows of a sweep that the store has, in the order of the sweep's keys.
    ///
    /// # Errors
    ///
    /// [`SweepError::Io`] and [`SweepError::Foreign`].
    pub fn rows(&self, sweep: &Sweep) -> Result<Vec<Row>, SweepError> {
        let places: HashMap<&str, usize> =
            sweep.keys.iter().enumerate().map(|(place, key)| (key.as_str(), place)).collect();
        let mut rows: Vec<Option<Row>> = vec![None; sweep.keys.len()];
        for path in list(&self.dir)?.iter().filter(|path| is_finished(path)) {
            let opened = File::open(path).map_err(SweepError::io("read", path))?;
            let read = file::rows(opened, sweep.scenario);
            for row in read.map_err(|why| SweepError::Foreign { path: path.clone(), why })? {
                if let Some(&place) = row.key().and_then(|key| places.get(key)) {
                    rows[place] = Some(row);
                }
            }
        }
        Ok(rows.into_iter().flatten().collect())
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
        let mut seen = HashSet::new();
        let is_new =
            |row: &&Row| row.key().is_some_and(|key| !self.has(key) && seen.insert(key.to_owned()));
        let rows: Vec<Row> = done.rows.iter().filter(is_new).cloned().collect();
        if rows.is_empty() {
            return Ok(());
        }
        let name = format!("{:016x}", digest(rows.iter().filter_map(Row::key)));
        let new = TaskRows { rows, time: done.time };
        let bytes = new.to_parquet()?;
        self.put(&name, &bytes).map_err(SweepError::io("write to", &self.dir))?;
        for row in new.rows {
            let Some(key) = row.key() else { continue };
            if let Some(error) = row.error() {
                self.errors.push((key.to_owned(), error.to_owned()));
            }
            self.finished.insert(key.to_owned(), row.steps());
        }
        Ok(())
    }

    /// Writes a whole file. The file is on the disk before its name, and the name before the call
    /// returns. The folder must still have its name: another sweep may use what has the name now.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let ours = self.lock.as_ref().map(|(_, text)| text.as_bytes());
        if fs::read(self.dir.join(LOCK)).ok().as_deref() != ours {
            return Err(io::Error::other("the folder was moved or replaced while the sweep ran"));
        }
        let beside = self.dir.join(format!("{UNFINISHED}{name}"));
        let whole = self.dir.join(format!("{name}.parquet"));
        let write = || {
            let mut file = File::create(&beside)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&beside, &whole)?;
            // Without its name on the disk, the file must not be there: its cells run again.
            let synced = File::open(&self.dir).and_then(|folder| folder.sync_all());
            synced.inspect_err(|_| _ = fs::remove_file(&whole))
        };
        write().inspect_err(|_| {
            // Best effort: the next sweep removes it, too.
            let _ = fs::remove_file(&beside);
        })
    }
}

/// Creates a folder and those above it, if they are missing, so that they outlast a power failure.
fn create(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = match dir.parent() {
        Some(above) if above != Path::new("") => above,
        _ => Path::new("."),
    };
    create(above)?;
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        made => made?,
    }
    File::open(above)?.sync_all()
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

fn is_finished(path: &Path) -> bool {
    named(path).ends_with(".parquet") && !named(path).starts_with('.')
}

/// A number for a list of keys, for the name of a file.
fn digest<'a>(keys: impl Iterator<Item = &'a str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    keys.for_each(|key| key.hash(&mut hasher));
    hasher.finish()
}
