//! [`Found`]: a publication, as a search finds it.

use std::path::PathBuf;

/// A publication that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The number of the process.
    pub pid: u32,
    /// The file.
    pub path: PathBuf,
    /// Whether the process still has its number. If not, it ended without removing its file.
    pub is_alive: bool,
    /// Whether the process still runs. If it does not and is alive, its parent has not waited for
    /// it yet.
    pub runs: bool,
}
