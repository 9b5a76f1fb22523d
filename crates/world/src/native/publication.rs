//! Publications: files by which a process shows values to other processes of its user.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, process};

use super::found::Found;
use super::{Native, system};
use crate::{Lacking, Signals};

/// The generation of the memory that has a publication; 0: none. A forked child, whose generation
/// is another one, has none.
static HAS_ONE: AtomicU32 = AtomicU32::new(0);

/// The reason why a process cannot publish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublicationError {
    /// The process has a publication already.
    #[error("this process publishes already; keep that publication, or drop it first")]
    Exists,
    /// The folder cannot be created, or another user could change what is in it.
    #[error(
        "cannot publish in the folder {path:?}: {source}; make it a folder of this user's own with \
         the mode 0700, or name another one by CORELINE_STAT_DIR"
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file cannot be created or written.
    #[error(
        "cannot write {path:?}: {source}; free memory or space there, or raise the limit of files \
         (ulimit -f)"
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// This system has no publications.
    #[error(transparent)]
    Lacking(#[from] Lacking),
}

/// A file that other processes of the same user can read. Its name has the number of this process,
/// the time at which it started, and a number for its namespaces and the boot of the machine.
/// Dropping the value removes the file, unless that happens in a forked child.
///
/// If the environment has `CORELINE_STAT_DIR`, that is the folder. Otherwise the folder is
/// `coreline` in `XDG_RUNTIME_DIR`, if that is the user's, or else `/dev/shm/coreline-UID`. It must
/// belong to the user, and no other user may write to it. A program that runs with the rights of
/// another user ignores both variables. With `CORELINE_STAT_KEEP=1`, the file stays after the drop,
/// for the process that started this one. The next process that publishes removes it.
#[derive(Debug)]
pub struct Publication {
    file: File,
    path: PathBuf,
    generation: NonZeroU32,
    len: u64,
    stays: bool,
}

impl Publication {
    /// Creates the file of this process, and removes the files that ended processes left in its
    /// folder.
    ///
    /// # Errors
    ///
    /// [`PublicationError`], if this process has a publication, or the file cannot be created.
    pub fn new() -> Result<Publication, PublicationError> {
        let generation = Native::generation();
        let now = generation.get();
        // Relaxed: the value alone matters.
        let before = HAS_ONE.load(Ordering::Relaxed);
        // Relaxed: as for the load. The exchange decides between two threads.
        let relaxed = Ordering::Relaxed;
        if before == now || HAS_ONE.compare_exchange(before, now, relaxed, relaxed).is_err() {
            return Err(PublicationError::Exists);
        }
        Self::create(generation).inspect_err(|_| HAS_ONE.store(0, relaxed))
    }

    fn create(generation: NonZeroU32) -> Result<Publication, PublicationError> {
        let folder = system::publications::folder()?;
        let in_folder = |source| PublicationError::Folder { path: folder.clone(), source };
        system::publications::own(&folder).map_err(in_folder)?;
        for found in system::publications::in_folder(&folder).map_err(in_folder)? {
            // Also a file of this process that it left in an `exec`.
            if !found.is_alive || found.pid == process::id() {
                // Another process may have removed it.
                let _ = fs::remove_file(found.path);
            }
        }
        let name = system::publications::name();
        let path = folder.join(name.map_err(in_folder)?);
        let file = system::publications::create(&path);
        match file {
            Ok(file) => {
                let stays = env::var_os("CORELINE_STAT_KEEP").is_some_and(|value| value == "1");
                Ok(Publication { file, path, generation, len: 0, stays })
            }
            Err(source) => Err(PublicationError::File { path, source }),
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of the process.
    pub fn pid(&self) -> u32 {
        process::id()
    }

    /// Replaces the content of the file. A reader may see a part of the new content, so the content
    /// needs a checksum. If the file was removed, it is created again. In a forked child the call
    /// does nothing.
    ///
    /// # Errors
    ///
    /// [`PublicationError::File`] if there is no memory for the content, or the process may not
    /// write so large a file.
    pub fn write(&mut self, content: &[u8]) -> Result<(), PublicationError> {
        if Native::generation() != self.generation {
            return Ok(());
        }
        let written = self.replace(content);
        written.map_err(|source| PublicationError::File { path: self.path.clone(), source })
    }

    fn replace(&mut self, content: &[u8]) -> io::Result<()> {
        let len = content.len() as u64;
        // The signal for a file that is too large would end the process.
        system::publications::may_have(len)?;
        if system::publications::is_removed(&self.file)? {
            // The user did so, or another copy of this library in this process.
            self.path.parent().map_or(Ok(()), system::publications::own)?;
            match system::publications::create(&self.path) {
                Ok(file) => (self.file, self.len) = (file, 0),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        self.file.seek(SeekFrom::Start(0))?;
        // Before the write, which may fail half-way: the next one must cut what it leaves.
        self.len = self.len.max(len);
        self.file.write_all(content)?;
        if len < self.len {
            self.file.set_len(len)?;
        }
        self.len = len;
        Ok(())
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        if Native::generation() != self.generation {
            return;
        }
        if !self.stays {
            // A user may have removed it.
            let _ = fs::remove_file(&self.path);
        }
        // Relaxed: as in `new`.
        HAS_ONE.store(0, Ordering::Relaxed);
    }
}

impl Found {
    /// Opens the file. Its content may be anything.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened, is not a regular file, or is not the process's user's;
    /// [`io::ErrorKind::NotFound`] if the process has gone.
    pub fn open(&self) -> io::Result<File> {
        system::publications::open(&self.path, self.pid)
    }
}

/// The publications that were found, and the folders that were not searched.
#[derive(Debug, Default)]
pub struct FoundAll {
    /// The publications, in the order of their processes' numbers: at most one of each number.
    pub found: Vec<Found>,
    /// The folders that could not be read, with the reasons.
    pub unread: Vec<(PathBuf, io::Error)>,
}

/// Searches the publications of all processes in this process's PID namespace, where
/// [`Publication`] puts them. A file that does not belong to the user of its process is left out.
pub fn publications() -> FoundAll {
    let mut all = FoundAll::default();
    for folder in system::publications::folders() {
        match system::publications::in_folder(&folder) {
            Ok(found) => all.found.extend(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => all.unread.push((folder, error)),
        }
    }
    let key = |it: &Found| (it.pid, !it.is_alive, it.path.clone());
    all.found.sort_by_cached_key(key);
    all.found.dedup_by_key(|it| it.pid);
    all
}
