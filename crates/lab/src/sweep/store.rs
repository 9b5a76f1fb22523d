//! The store of a sweep's rows: a folder of Parquet files, one for each finished task.
//!
//! A file is written under another name beside, and renamed when all of it is on the disk. So a
//! file in the folder is whole, whenever the process or the machine stops.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{self, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use parquet::schema::types::Type;

use super::cell::{Row, TaskRows};
use super::shared::{self, LOCK, UNFINISHED, WorkerStore, Written};
use super::{ENGINE, Plan, Sweep, SweepError, file};

/// The store of a sweep, to which this process alone adds rows.
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
        let engine = engine.ok_or_else(|| foreign("it does not name its engine".to_owned()))?;
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
        let keys: Vec<String> = rows.iter().filter_map(Row::key).map(str::to_owned).collect();
        let new = TaskRows { rows, time: done.time };
        let bytes = new.to_parquet()?;
        let put = || {
            self.check()?;
            self.publish(&shared::write(&self.dir, &bytes)?, &keys)
        };
        put().map_err(SweepError::io("write to", &self.dir))?;
        let rows = new.rows.iter().map(|row| (row.steps(), row.error().map(str::to_owned)));
        self.note(keys, rows);
        Ok(())
    }

    /// Returns what workers need to write into this store, if they see its folder under the same
    /// name.
    ///
    /// # Errors
    ///
    /// [`SweepError::Io`] if the folder has no absolute name.
    pub fn for_workers(&self) -> Result<WorkerStore, SweepError> {
        let dir = path::absolute(&self.dir).map_err(SweepError::io("find", &self.dir))?;
        let lock = self.lock.as_ref().map(|(_, text)| text.clone()).unwrap_or_default();
        Ok(WorkerStore { dir, lock })
    }

    /// Adds the rows that a worker wrote for the first of these keys, which are those of its task.
    /// Rows that the store has already are left out, as when a task ran on two workers. When the
    /// call returns, the rows are finished on the disk.
    ///
    /// # Errors
    ///
    /// [`SweepError::Io`]. Then the store is as before.
    pub fn accept(&mut self, keys: &[String], written: &Written) -> Result<(), SweepError> {
        let keys: Vec<String> = keys.iter().take(written.rows.len()).cloned().collect();
        let path = self.dir.join(&written.file);
        if keys.is_empty() || keys.iter().any(|key| self.has(key)) {
            let bytes = fs::read(&path).map_err(SweepError::io("read", &path))?;
            self.commit(&TaskRows::from_parquet(&bytes)?)?;
            return fs::remove_file(&path).map_err(SweepError::io("remove", &path));
        }
        let published = self.check().and_then(|()| self.publish(&written.file, &keys));
        published.map_err(SweepError::io("write to", &self.dir))?;
        self.note(keys, written.rows.iter().cloned());
        Ok(())
    }

    /// Takes note of rows that are on the disk: of their steps and errors.
    fn note(
        &mut self,
        keys: Vec<String>,
        rows: impl Iterator<Item = (Option<u64>, Option<String>)>,
    ) {
        for (key, (steps, error)) in keys.into_iter().zip(rows) {
            self.errors.extend(error.map(|error| (key.clone(), error)));
            self.finished.insert(key, steps);
        }
    }

    /// Checks that the folder still has its name: another sweep may use what has the name now.
    fn check(&self) -> io::Result<()> {
        let ours = self.lock.as_ref().map(|(_, text)| text.as_bytes());
        match fs::read(self.dir.join(LOCK)).ok().as_deref() == ours {
            true => Ok(()),
            false => Err(io::Error::other("the folder was moved or replaced while the sweep ran")),
        }
    }

    /// Gives an unfinished file, which is on the disk, the name of its keys. When the call returns,
    /// the name is on the disk, too.
    fn publish(&self, unfinished: &str, keys: &[String]) -> io::Result<()> {
        let beside = self.dir.join(unfinished);
        let whole = self.dir.join(format!("{:016x}.parquet", digest(keys)));
        // Best effort: the next sweep removes it, too.
        fs::rename(&beside, &whole).inspect_err(|_| _ = fs::remove_file(&beside))?;
        // Without its name on the disk, the file must not be there: its cells run again.
        let synced = File::open(&self.dir).and_then(|folder| folder.sync_all());
        synced.inspect_err(|_| _ = fs::remove_file(&whole))
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

/// The name of a file in the folder; empty if the name is not valid UTF-8, which our names always
/// are.
fn named(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn is_finished(path: &Path) -> bool {
    named(path).ends_with(".parquet") && !named(path).starts_with('.')
}

/// A number for a list of keys, for the name of a file.
fn digest(keys: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    keys.iter().for_each(|key| key.hash(&mut hasher));
    hasher.finish()
}
