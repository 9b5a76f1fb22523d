//! [`CgroupLimits`]: the CPUs and the processor time that control groups let a process use.
//!
//! The sources are the kernel's `Documentation/admin-guide/{cgroup-v1/cpusets,cgroup-v2}.rst`,
//! `Documentation/scheduler/sched-bwc.rst`, and the manual pages cgroups(7) and
//! cgroup_namespaces(7).

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cpuset::CpuSet;
use crate::files::{FileError, cpu_list, lossy_text, text};

/// The limits that the control groups of a process set.
///
/// ```no_run
/// use std::path::Path;
///
/// use coreline_topology::CgroupLimits;
///
/// let limits = CgroupLimits::read(Path::new("/"))?;
/// if let Some(quota) = limits.quota {
///     println!("at most {} CPUs' worth of time", quota.cpus());
/// }
/// # Ok::<(), coreline_topology::FileError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    /// The CPUs of the cpuset, which is never empty. `None` if no group of the process has a
    /// cpuset.
    pub cpus: Option<CpuSet>,
    /// The tightest quota among the process's group and all visible groups above it. `None` if no
    /// such group has a quota.
    pub quota: Option<Quota>,
}

/// A limit on processor time. All CPUs together may use at most `time` in every `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    /// The processor time in each period, which is never zero.
    pub time: Duration,
    /// The length of a period, which is never zero.
    pub period: Duration,
}

impl Quota {
    /// `None` where one of the two, in microseconds, is zero.
    fn new(time: u64, period: u64) -> Option<Self> {
        let [time, period] = [time, period].map(Duration::from_micros);
        (!time.is_zero() && !period.is_zero()).then_some(Self { time, period })
    }

    /// Returns the number of CPUs that may run all the time. The result can be a fraction, such as
    /// 0.5 for half a CPU.
    pub fn cpus(self) -> f64 {
        self.time.as_micros() as f64 / self.period.as_micros() as f64
    }

    /// Returns [`cpus`](Quota::cpus), rounded up. The result is at least 1. This many busy threads
    /// can use the whole quota.
    pub fn whole_cpus(self) -> u64 {
        u64::try_from(self.time.as_micros().div_ceil(self.period.as_micros())).unwrap_or(u64::MAX)
    }

    /// Whether this quota lets less run than the other one.
    fn is_tighter(self, than: Self) -> bool {
        self.time.as_micros() * than.period.as_micros()
            < than.time.as_micros() * self.period.as_micros()
    }
}

/// The interface of a hierarchy of control groups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A place where a hierarchy of control groups can be seen.
struct Mount {
    version: Version,
    /// The mount options; in version 1 the names of its controllers are among them.
    options: String,
    /// The group that the mount point shows, as the process's cgroup namespace names it.
    root: String,
    point: PathBuf,
}

impl CgroupLimits {
    /// Reads the limits of the process of `proc/self` below `root`. `root` is the folder that holds
    /// `proc` (`/` on a running Linux).
    ///
    /// The process's groups are in `proc/self/cgroup`, and the mount points of the hierarchies in
    /// `proc/self/mountinfo`. The mount points are taken to be below `root` as well. These files
    /// are read in the process's group and in each group above it, up to the mount point:
    ///
    /// | limit | version 2 | version 1 |
    /// |---|---|---|
    /// | CPUs | `cpuset.cpus.effective` | `cpuset.effective_cpus`, `cpuset.cpus` |
    /// | quota | `cpu.max` | `cpu.cfs_quota_us`, `cpu.cfs_period_us` |
    ///
    /// The tightest value of each limit applies. A missing file sets no limit, because its
    /// controller is off there. If a mount shows groups above the process's cgroup namespace, the
    /// names of the groups in between are unknown, and only the mount point itself counts. A mount
    /// that shows no group of the process is ignored.
    ///
    /// # Errors
    ///
    /// An error that names the file, if an existing file cannot be read or has unexpected content.
    pub fn read(root: &Path) -> Result<Self, FileError> {
        Self::of(root, "self")
    }

    /// Reads the limits of another process, like [`read`](Self::read). The groups of that process
    /// are in `proc/PID/cgroup`. The call uses the mount points of the calling process.
    ///
    /// # Errors
    ///
    /// The same errors as for [`read`](Self::read).
    pub fn of_process(root: &Path, pid: u32) -> Result<Self, FileError> {
        Self::of(root, &pid.to_string())
    }

    fn of(root: &Path, process: &str) -> Result<Self, FileError> {
        let mounts = mounts(root)?;
        let path = root.join("proc").join(process).join("cgroup");
        let mut limits = Self::default();
        for line in lossy_text(&path)?.unwrap_or_default().lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(hierarchy), Some(controllers), Some(group)) =
                (fields.next(), fields.next(), fields.next())
            else {
                let expected = "lines of hierarchy:controllers:path";
                return Err(FileError::malformed(&path, line, expected));
            };
            let unified = hierarchy == "0" && controllers.is_empty();
            for mount in &mounts {
                let shows = |&controller: &&str| listed(&mount.options, controller);
                let shown = match mount.version {
                    Version::V2 => unified,
                    Version::V1 => !unified && controllers.split(',').any(|name| shows(&name)),
                };
                for folder in folders(mount, group).into_iter().filter(|_| shown) {
                    limits.tighten(mount.version, &folder)?;
                }
            }
        }
        Ok(limits)
    }

    /// Takes in what the files in the folder of one group say.
    fn tighten(&mut self, version: Version, folder: &Path) -> Result<(), FileError> {
        let (lists, quota): (&[&str], _) = match version {
            Version::V1 => (&["cpuset.effective_cpus", "cpuset.cpus"], quota_v1(folder)?),
            Version::V2 => (&["cpuset.cpus.effective"], quota_v2(folder)?),
        };
        for list in lists {
            // A group's CPUs are among those of the group above it: fewer are tighter.
            if let Some(cpus) = cpu_list(&folder.join(list))?
                && self.cpus.as_ref().is_none_or(|known| cpus.len() < known.len())
            {
                self.cpus = Some(cpus);
            }
        }
        if let Some(quota) = quota
            && self.quota.is_none_or(|known| quota.is_tighter(known))
        {
            self.quota = Some(quota);
        }
        Ok(())
    }
}

/// The mounts of control groups, from the text described in proc_pid_mountinfo(5).
fn mounts(root: &Path) -> Result<Vec<Mount>, FileError> {
    let path = root.join("proc/self/mountinfo");
    let mut mounts = Vec::new();
    for line in lossy_text(&path)?.unwrap_or_default().lines() {
        // Optional fields stand before the separator, so that each side is counted by itself.
        let fields = line.split_once(" - ").and_then(|(place, what)| {
            let mut place = place.split(' ').skip(3);
            let mut what = what.split(' ');
            let kind = what.next()?;
            Some((place.next()?, place.next()?, kind, what.nth(1).unwrap_or_default()))
        });
        let Some((group, point, kind, options)) = fields else {
            return Err(FileError::malformed(&path, line, "the fields of a mount"));
        };
        let version = match kind {
            "cgroup" => Version::V1,
            "cgroup2" => Version::V2,
            _ => continue,
        };
        mounts.push(Mount {
            version,
            options: options.to_owned(),
            root: unescaped(group),
            point: root.join(unescaped(point).trim_start_matches('/')),
        });
    }
    Ok(mounts)
}

/// A field in which the kernel wrote white space and backslashes as octal numbers.
fn unescaped(field: &str) -> String {
    let field = field.replace(r"\040", " ").replace(r"\011", "\t").replace(r"\012", "\n");
    field.replace(r"\134", r"\")
}

/// Whether a name is in a list with commas.
fn listed(list: &str, name: &str) -> bool {
    list.split(',').any(|item| item == name)
}

/// The folders of a group and of the groups above it, as far as the mount shows them.
fn folders(mount: &Mount, group: &str) -> Vec<PathBuf> {
    let names = |path| str::split(path, '/').filter(|name| !name.is_empty()).collect::<Vec<_>>();
    let (root, group) = (names(&mount.root), names(group));
    let common = root.iter().zip(&group).take_while(|(a, b)| a == b).count();
    let (root, group) = (&root[common..], &group[common..]);
    if !root.is_empty() {
        // What is left leads up, out of the namespace, or to a group that is not the process's.
        let above = root.iter().all(|name| *name == "..");
        return if above { vec![mount.point.clone()] } else { vec![] };
    }
    if group.contains(&"..") {
        return vec![];
    }
    let folder = group.iter().fold(mount.point.clone(), |folder, name| folder.join(name));
    folder.ancestors().take(group.len() + 1).map(Path::to_owned).collect()
}

fn quota_v2(folder: &Path) -> Result<Option<Quota>, FileError> {
    let path = folder.join("cpu.max");
    let Some(found) = text(&path)? else {
        return Ok(None);
    };
    let quota = match found.split_once(' ') {
        Some(("max", period)) if period.parse::<u64>().is_ok() => return Ok(None),
        Some((time, period)) => time.parse().ok().zip(period.parse().ok()),
        None => None,
    };
    let expected = "\"max\" or a time, and a period, in microseconds above 0";
    let quota = quota.and_then(|(time, period)| Quota::new(time, period));
    quota.map(Some).ok_or_else(|| FileError::malformed(&path, &found, expected))
}

fn quota_v1(folder: &Path) -> Result<Option<Quota>, FileError> {
    let microseconds = |path: &Path, found: &str| match found.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(FileError::malformed(path, found, "a time in microseconds above 0")),
    };
    let path = folder.join("cpu.cfs_quota_us");
    let time = match text(&path)? {
        None => return Ok(None),
        Some(found) if found == "-1" => return Ok(None),
        Some(found) => microseconds(&path, &found)?,
    };
    let path = folder.join("cpu.cfs_period_us");
    let found = text(&path)?.ok_or_else(|| FileError::missing(&path))?;
    Ok(Quota::new(time, microseconds(&path, &found)?))
}
