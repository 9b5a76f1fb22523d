//! What the kernel says about a process in the text of its status file: the CPUs on which it may
//! run, and the memory that it has.

use std::path::Path;

use crate::cpuset::CpuSet;
use crate::files::{FileError, lossy_text, parse_list};

const LINE: &str = "Cpus_allowed_list:";
const RESIDENT: &str = "VmRSS:";

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

/// The bytes of memory that the process has in use at this moment: the line `VmRSS` of
/// `proc/self/status` below `root` (`/` on a running Linux; `Documentation/filesystems/proc.rst`).
/// The kernel counts in batches, so it is exact to some hundred KiB. `None` where there is no such
/// file or line.
///
/// # Errors
///
/// Where the file cannot be read, or its line is no number; the error names the file.
pub fn resident_memory(root: &Path) -> Result<Option<u64>, FileError> {
    let path = root.join("proc/self/status");
    let status = lossy_text(&path)?.unwrap_or_default();
    let Some(line) = status.lines().find_map(|line| line.strip_prefix(RESIDENT)) else {
        return Ok(None);
    };
    let kib = line.trim().strip_suffix("kB").and_then(|kib| kib.trim().parse::<u64>().ok());
    let kib = kib.ok_or_else(|| FileError::malformed(&path, line, "a number of kB"))?;
    Ok(Some(kib * 1024))
}
