//! Facts from the kernel's text files: the CPUs on which a process may run, its memory, its CPU
//! time, and the CPUs that the kernel can ever have.

use std::path::Path;
use std::time::Duration;

use crate::cpuset::CpuSet;
use crate::files::{FileError, lossy_text, parse_list};
use crate::ids::{CpuId, MAX_CPUS};

const LINE: &str = "Cpus_allowed_list:";
const RESIDENT: &str = "VmRSS:";

/// Returns the CPUs on which the process's first thread may run. These CPUs are in the line
/// `Cpus_allowed_list` of `proc/self/status` below `root` (`/` on a running Linux;
/// `Documentation/filesystems/proc.rst`).
///
/// The kernel has already restricted the list to the cpuset of the process's control group. Other
/// threads may have lists of their own. Returns `None` if there is no such file or line.
///
/// # Errors
///
/// An error that names the file, if it cannot be read or its line is not a CPU list.
pub fn allowed_cpus(root: &Path) -> Result<Option<CpuSet>, FileError> {
    let path = root.join("proc/self/status");
    let status = lossy_text(&path)?.unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix(LINE));
    list.map(|list| parse_list(&path, list)).transpose()
}

/// Returns the CPUs that this kernel can ever have. They are in the first line of `proc/softirqs`
/// below `root` (`/` on a running Linux). Some containers replace sysfs and other files of `/proc`
/// with their own files (lxcfs does), but keep this file. Returns `None` if there is no such file,
/// or if it names no CPU.
///
/// # Errors
///
/// An error that names the file, if it cannot be read or its first line is not a list of CPUs.
pub fn possible_cpus(root: &Path) -> Result<Option<CpuSet>, FileError> {
    let path = root.join("proc/softirqs");
    let text = lossy_text(&path)?.unwrap_or_default();
    let names = text.lines().next().unwrap_or_default().split_whitespace();
    let number = |name: &str| name.strip_prefix("CPU")?.parse().ok().filter(|cpu| *cpu < MAX_CPUS);
    let cpu = |name| {
        let expected = || format!("CPU and a number below {MAX_CPUS}");
        let found = number(name).ok_or_else(|| FileError::malformed(&path, name, expected()));
        found.map(CpuId::new)
    };
    let cpus = names.map(cpu).collect::<Result<CpuSet, _>>()?;
    Ok(Some(cpus).filter(|cpus| !cpus.is_empty()))
}

/// Returns the number of bytes of memory that the process uses at this moment. The number is in the
/// line `VmRSS` of `proc/self/status` below `root` (`/` on a running Linux;
/// `Documentation/filesystems/proc.rst`). The kernel counts in batches, so the number is accurate
/// to within a few hundred KiB. Returns `None` if there is no such file or line.
///
/// # Errors
///
/// An error that names the file, if it cannot be read or its line is not a number.
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

/// Returns the CPU time of the calling thread. The time is the first number of
/// `proc/thread-self/schedstat` below `root` (`/` on a running Linux;
/// `Documentation/scheduler/sched-stats.rst`). On a host with other work, the CPU time measures a
/// computation better than the wall clock does. The kernel updates the CPU time at every tick, so
/// it is accurate to within a few milliseconds. Returns `None` if there is no such file.
///
/// # Errors
///
/// An error that names the file, if it cannot be read or does not hold a number.
pub fn thread_time(root: &Path) -> Result<Option<Duration>, FileError> {
    let path = root.join("proc/thread-self/schedstat");
    let Some(text) = lossy_text(&path)? else {
        return Ok(None);
    };
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    let ns = ns.ok_or_else(|| FileError::malformed(&path, &text, "a number of nanoseconds"))?;
    Ok(Some(Duration::from_nanos(ns)))
}
