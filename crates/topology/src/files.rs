//! Readers for the small text files in which a kernel describes itself. Sizes are bounded, and
//! errors name the file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::cpuset::{CpuListProblem, CpuSet, ParseCpuListError, number};
use crate::ids::MAX_CPUS;

/// Bytes that a file may have. The largest that is read, the list of mounts, has some hundred for
/// each mount; the bound keeps a wrong file from taking all memory.
const BYTES_MAX: u64 = 16 << 20;

/// The error for a file of the kernel, or a copy of one, with unexpected content.
#[derive(Debug, Error)]
pub enum FileError {
    /// A file or folder exists, but cannot be read as text.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file is longer than a file of the kernel may be.
    #[error(
        "{} has more than {BYTES_MAX} bytes; check that it is a file of the kernel",
        path.display()
    )]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A file that should hold a CPU list has other content.
    #[error("{} is not a CPU list: {source}", path.display())]
    CpuList {
        /// The file.
        path: PathBuf,
        /// The error in the list: the invalid part and the reason.
        source: ParseCpuListError,
    },
    /// A file, or the name of a folder, has unexpected content.
    #[error("{}: found {found:?}, expected {expected}", path.display())]
    Malformed {
        /// The file or folder.
        path: PathBuf,
        /// The content, or the start of it.
        found: String,
        /// The expected content.
        expected: String,
    },
}

impl FileError {
    pub(crate) fn malformed(path: &Path, found: &str, expected: impl Into<String>) -> Self {
        let found = found.chars().take(80).collect();
        Self::Malformed { path: path.to_owned(), found, expected: expected.into() }
    }

    pub(crate) fn missing(path: &Path) -> Self {
        Self::Read { path: path.to_owned(), source: io::ErrorKind::NotFound.into() }
    }
}

/// The bytes of a file; `None` where it is missing.
fn bytes(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let read = |file: File| {
        let mut bytes = Vec::new();
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    match present(File::open(path).and_then(read)) {
        Ok(Some(bytes)) if bytes.len() as u64 > BYTES_MAX => {
            Err(FileError::TooLong { path: path.to_owned() })
        }
        Ok(bytes) => Ok(bytes),
        Err(source) => Err(FileError::Read { path: path.to_owned(), source }),
    }
}

/// The text of a file without white space around it; `None` where the file is missing.
pub(crate) fn text(path: &Path) -> Result<Option<String>, FileError> {
    let Some(bytes) = bytes(path)? else {
        return Ok(None);
    };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) => {
            let source = io::Error::new(io::ErrorKind::InvalidData, error.utf8_error());
            Err(FileError::Read { path: path.to_owned(), source })
        }
    }
}

/// The text of a file that may contain names chosen by users, in any encoding. `None` if the file
/// is missing.
pub(crate) fn lossy_text(path: &Path) -> Result<Option<String>, FileError> {
    Ok(bytes(path)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// The CPU list in a file; `None` where the file is missing or the list is empty.
pub(crate) fn cpu_list(path: &Path) -> Result<Option<CpuSet>, FileError> {
    let list = text(path)?.map(|list| parse_list(path, &list)).transpose()?;
    Ok(list.filter(|list| !list.is_empty()))
}

/// The CPU list that stands in a file.
pub(crate) fn parse_list(path: &Path, list: &str) -> Result<CpuSet, FileError> {
    list.parse().map_err(|source| FileError::CpuList { path: path.to_owned(), source })
}

/// The number in a file; `None` where the file is missing or the number is negative.
pub(crate) fn known(path: &Path) -> Result<Option<u32>, FileError> {
    let Some(found) = text(path)? else {
        return Ok(None);
    };
    match found.parse::<i64>() {
        Ok(number) if number < 0 => Ok(None),
        Ok(number) if number <= i64::from(u32::MAX) => Ok(Some(number as u32)),
        _ => Err(FileError::malformed(path, &found, "a number of at most 32 bits")),
    }
}

/// The entries of a folder whose names are `prefix` and a number, by number. Returns none if the
/// folder does not exist.
pub(crate) fn numbered(dir: &Path, prefix: &str) -> Result<BTreeMap<u32, PathBuf>, FileError> {
    let failed = |source| FileError::Read { path: dir.to_owned(), source };
    let Some(entries) = present(fs::read_dir(dir)).map_err(failed)? else {
        return Ok(BTreeMap::new());
    };
    let mut found = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name.strip_prefix(prefix).map(number) {
            Some(Ok(number)) => {
                found.insert(number, path);
            }
            Some(Err(CpuListProblem::TooLarge)) => {
                let expected = format!("{prefix} and a number below {MAX_CPUS}");
                return Err(FileError::malformed(&path, name, expected));
            }
            // Other names start alike: `cpufreq` stands among the folders `cpuN`.
            _ => {}
        }
    }
    Ok(found)
}

/// `None` for what is not there, so that only what is there and unreadable is an error.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
