//! The pages of processes. Whatever a file holds, it is read as data that may be wrong.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use coreline::stat::page::{MOST_BYTES, Page, PageError};
use coreline_world::native::{Found, publications};

use crate::nearest::hint;
use crate::stat_error::StatError;

/// How often a page is read that seems damaged: the process may be writing it.
const TRIES: u32 = 20;

/// What a process had published at one time.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) page: Page,
    /// The time since the process wrote it.
    pub(super) age: Duration,
}

/// A process that publishes. Its file is open, and can be read after the process has removed it.
#[derive(Debug)]
pub(super) struct Process {
    found: Found,
    file: File,
}

impl Process {
    /// The process with this number, or with this name.
    pub(super) fn named(target: &str) -> Result<Process, StatError> {
        let all = publications();
        if let Ok(pid) = target.parse() {
            if let Some(found) = all.found.into_iter().find(|it| it.pid == pid && it.runs) {
                return Process::open(found);
            }
            if !Path::new(&format!("/proc/{pid}")).exists() {
                return Err(StatError::NoProcess { pid });
            }
            return Err(hidden(all.unread).unwrap_or(StatError::Silent { pid }));
        }
        let (mut ours, mut names, mut unread) = (Vec::new(), Vec::new(), all.unread);
        for found in all.found.into_iter().filter(|found| found.runs) {
            let path = found.path.clone();
            match Process::open(found).and_then(|mut it| Ok((it.look()?.page.name, it))) {
                Ok((name, process)) if name == target => ours.push(process),
                Ok((name, _)) => names.push(name),
                Err(StatError::Hidden { source, .. }) => unread.push((path, source)),
                // It has no name.
                Err(_) => {}
            }
        }
        match ours.len() {
            0 => {
                let hint = hint(target, names.iter().map(String::as_str));
                let none = StatError::NoName { asked: target.to_owned(), hint };
                Err(hidden(unread).unwrap_or(none))
            }
            1 => Ok(ours.remove(0)),
            _ => {
                let pids: Vec<_> = ours.iter().map(|it| it.pid().to_string()).collect();
                let (asked, count, pids) = (target.to_owned(), pids.len(), pids.join(", "));
                Err(StatError::Several { asked, count, pids })
            }
        }
    }

    /// The process with this number. It may have ended, if its parent has not waited for it.
    pub(super) fn of(pid: u32) -> Result<Process, StatError> {
        let is_it = |found: &Found| found.pid == pid && found.is_alive;
        let found = publications().found.into_iter().find(is_it);
        found.map_or(Err(StatError::Silent { pid }), Process::open)
    }

    fn open(found: Found) -> Result<Process, StatError> {
        match found.open() {
            Ok(file) => Ok(Process { found, file }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(StatError::Ended { pid: found.pid })
            }
            Err(source) => Err(StatError::Hidden { path: found.path, source }),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.found.pid
    }

    /// Whether the process runs and still publishes. If it has ended its publication and begun
    /// another one, that is in a new file of the same name, which is read from now on.
    pub(super) fn follow(&mut self) -> bool {
        let is_it = |it: &Found| it.path == self.found.path && it.runs;
        let runs = publications().found.iter().any(is_it);
        if runs && let Ok(file) = self.found.open() {
            self.file = file;
        }
        runs
    }

    /// Removes the file of a process that has ended.
    pub(super) fn remove(&self) {
        // The next process that publishes removes it otherwise.
        let _ = fs::remove_file(&self.found.path);
    }

    /// What the process has published.
    pub(super) fn look(&mut self) -> Result<Look, StatError> {
        let mut tries = 0;
        loop {
            let hidden = |source| StatError::Hidden { path: self.found.path.clone(), source };
            let bytes = bytes(&mut self.file).map_err(hidden)?;
            let changed = self.file.metadata().and_then(|it| it.modified()).map_err(hidden)?;
            match Page::from_bytes(&bytes) {
                Ok(page) if page.pid != self.found.pid => {
                    let source = PageError::Damaged("it is that of another process");
                    return Err(StatError::Page { pid: self.found.pid, source });
                }
                Ok(page) => {
                    // A clock that was set back makes no page younger than now.
                    let age = SystemTime::now().duration_since(changed).unwrap_or_default();
                    return Ok(Look { page, age });
                }
                Err(PageError::Damaged(_)) if tries < TRIES => {
                    tries += 1;
                    thread::sleep(Duration::from_millis(1));
                }
                Err(source) => return Err(StatError::Page { pid: self.found.pid, source }),
            }
        }
    }
}

fn hidden(unread: Vec<(PathBuf, io::Error)>) -> Option<StatError> {
    unread.into_iter().next().map(|(path, source)| StatError::Hidden { path, source })
}

/// The content, or one byte more than any page has.
fn bytes(file: &mut File) -> io::Result<Vec<u8>> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All processes that publish, and why others cannot be shown.
pub(super) fn all() -> (Vec<Look>, Vec<StatError>) {
    let found = publications();
    let hide = |(path, source)| StatError::Hidden { path, source };
    let mut failed: Vec<_> = found.unread.into_iter().map(hide).collect();
    let mut looks = Vec::new();
    for found in found.found.into_iter().filter(|found| found.runs) {
        match Process::open(found).and_then(|mut process| process.look()) {
            Ok(look) => looks.push(look),
            Err(StatError::Ended { .. }) => {}
            Err(error) => failed.push(error),
        }
    }
    (looks, failed)
}
