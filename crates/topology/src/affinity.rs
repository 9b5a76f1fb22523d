//! The CPUs on which the kernel lets a process run, from the text of its status file.

use std::path::Path;

use crate::cpuset::CpuSet;
use crate::files::{FileError, lossy_text, parse_list};

const LINE: &str = "Cpus_allowed_list:";

/// The CPUs on which the process's first thread may run: the line `Cpus_allowed_list` of
/// `proc/self/status` below `root` (`/` on a running Linux; `Documentation/filesystems/proc.rst`).
///
/// The kernel has cut the list down to the cpuset of the process's control group already; other
/// threads may have lists of their own. `None` where there is no such file or line.
///
/// # Errors
///
/// Where the file cannot be read, or its line is no CPU list; the error names the file.
pub fn allowed_cpus(root: &Path) -> Result<Option<CpuSet>, FileError> {
    let path = root.join("proc/self/status");
    let status = lossy_text(&path)?.unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix(LINE));
    list.map(|list| parse_list(&path, list)).transpose()
}
