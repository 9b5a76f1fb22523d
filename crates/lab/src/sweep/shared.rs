//! A store as its workers see it: each writes the rows of a task into a file of the folder, and
//! the process that has locked the store gives the file its name.
//!
//! Only that process decides which rows are finished. So a file has no effect if its worker was
//! killed, if the same task ran on another worker, too, or if the sweep of the task has ended.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{Row, SweepError, TaskRows};

/// Files that are not finished begin with this. `*.parquet` does not match them.
pub(super) const UNFINISHED: &str = ".unfinished-";

/// The file that the writer of the store has locked. It holds a text that no other writer has, so
/// that a process sees if the folder was moved away and another one has its name.
pub(super) const LOCK: &str = ".lock";

/// The data that a worker needs to write into a store. It is plain data, and can be sent as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerStore {
    pub(super) dir: PathBuf,
    /// The text of the lock's file.
    pub(super) lock: String,
}

/// The output of a worker: an unfinished file with the rows of the first keys of its task. It is
/// plain data, and can be sent as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Written {
    pub(super) file: String,
    /// The steps of each row, or its error.
    pub(super) rows: Vec<(Option<u64>, Option<String>)>,
    /// The CPU time of the rows.
    pub time: Duration,
}

impl WorkerStore {
    /// Checks that this process sees the store's folder, and that the sweep still uses it.
    ///
    /// # Errors
    ///
    /// [`SweepError::NotShared`].
    pub fn check(&self) -> Result<(), SweepError> {
        let why = match fs::read(self.dir.join(LOCK)) {
            Ok(text) if text == self.lock.as_bytes() => return Ok(()),
            Ok(_) => "the folder of this name belongs to another sweep".to_owned(),
            Err(error) => error.to_string(),
        };
        let host = fs::read_to_string("/proc/sys/kernel/hostname");
        let host = host.map_or_else(|_| "a host".to_owned(), |host| host.trim().to_owned());
        Err(SweepError::NotShared { dir: self.dir.clone(), host, why })
    }

    /// Writes the rows of a task. When the call returns, they are on the disk, but they are not
    /// part of the store until [`Store::accept`](super::Store::accept).
    ///
    /// # Errors
    ///
    /// [`SweepError::NotShared`] and [`SweepError::Io`].
    pub fn write(&self, done: &TaskRows) -> Result<Written, SweepError> {
        self.check()?;
        let file = write(&self.dir, &done.to_parquet()?);
        let file = file.map_err(SweepError::io("write to", &self.dir))?;
        let row = |row: &Row| (row.steps(), row.error().map(str::to_owned));
        Ok(Written { file, rows: done.rows.iter().map(row).collect(), time: done.time })
    }
}

impl Written {
    /// Returns the steps of each row, as [`TaskRows::steps`] does.
    pub fn steps(&self) -> Vec<Option<u64>> {
        self.rows.iter().map(|(steps, _)| *steps).collect()
    }
}

/// Writes an unfinished file, and returns its name. When the call returns, the file is on the disk.
pub(super) fn write(dir: &Path, bytes: &[u8]) -> io::Result<String> {
    // Random, as workers of several hosts write at once. The process and the time are there for
    // forked children, which have the random numbers of their parent.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = RandomState::new().hash_one((std::process::id(), now));
    let name = format!("{UNFINISHED}{name:016x}");
    let path = dir.join(&name);
    let mut file = File::create_new(&path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    // Best effort: the next sweep removes it, too.
    written.inspect_err(|_| _ = fs::remove_file(&path))?;
    Ok(name)
}
