//! Where publications are, and which processes still run.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{env, process};

use crate::Lacking;
use crate::native::found::Found;

const VARIABLE: &str = "CORELINE_STAT_DIR";
const SHARED: &str = "/dev/shm";
const RUN: &str = "/run/user";
const OURS: &str = "coreline";

/// The folder of a variable. A relative path would be another folder for each process.
fn named(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn user() -> u32 {
    // SAFETY: takes no pointer, and never fails.
    unsafe { libc::geteuid() }
}

/// The folder of this process's publication.
#[expect(clippy::unnecessary_wraps, reason = "the portable world has none")]
pub(crate) fn folder() -> Result<PathBuf, Lacking> {
    let own = || PathBuf::from(format!("{SHARED}/{OURS}-{}", user()));
    let run = || named("XDG_RUNTIME_DIR").filter(|path| path.is_dir()).map(|run| run.join(OURS));
    Ok(named(VARIABLE).or_else(run).unwrap_or_else(own))
}

/// All folders that may have publications.
pub(crate) fn folders() -> Vec<PathBuf> {
    if let Some(named) = named(VARIABLE) {
        return vec![named];
    }
    let entries = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    let of_users = entries(RUN).map(|entry| entry.path().join(OURS));
    let is_ours = |name: &str| name.strip_prefix(OURS).is_some_and(|rest| rest.starts_with('-'));
    let shared = entries(SHARED)
        .filter(|entry| entry.file_name().to_str().is_some_and(is_ours))
        .map(|entry| entry.path());
    let mut all: Vec<_> = folder().into_iter().chain(of_users).chain(shared).collect();
    all.sort();
    all.dedup();
    all
}

/// Makes the folder, if it is missing. Fails if another user could change what is in it.
pub(crate) fn own(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // A link of another user could lead to any folder.
    let found = fs::symlink_metadata(folder)?;
    match () {
        () if !found.is_dir() => Err(io::Error::other("it is no folder")),
        () if found.uid() != user() => Err(io::Error::other("it belongs to another user")),
        () if found.mode() & 0o022 != 0 => Err(io::Error::other("other users may write to it")),
        () => Ok(()),
    }
}

/// The publications in a folder.
pub(crate) fn in_folder(folder: &Path) -> io::Result<Vec<Found>> {
    let (mut all, namespace) = (Vec::new(), namespace());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let parts: Vec<_> = name.split('-').map(str::parse::<u64>).collect();
        // In another namespace, the number is that of another process.
        if let [Ok(pid), Ok(start), Ok(of)] = parts[..]
            && of == namespace
            && let Ok(pid) = u32::try_from(pid)
        {
            let is_alive = started(pid).is_ok_and(|it| it == start);
            // Another user may have made a file for a process that is not theirs.
            let owner = entry.metadata().map(|found| found.uid());
            if !is_alive || owner.is_ok_and(|owner| user_of(pid) == Some(owner)) {
                all.push(Found { pid, path: entry.path(), is_alive });
            }
        }
    }
    Ok(all)
}

/// The name of this process's file.
pub(crate) fn name() -> io::Result<String> {
    let pid = process::id();
    Ok(format!("{pid}-{}-{}", started(pid)?, namespace()))
}

/// The number of the namespace in which this process has its number; 0 if the kernel does not say.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// When a process started, in clock ticks since the machine did. Another process that gets its
/// number later has another time.
fn started(pid: u32) -> io::Result<u64> {
    /// The first field after the name is the third of all.
    const FIELD: usize = 22 - 3;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // A name may have blanks and brackets.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
    let start = fields.and_then(|mut fields| fields.nth(FIELD)).and_then(|it| it.parse().ok());
    start.ok_or_else(|| io::Error::other("/proc has no time at which the process started"))
}

/// The effective user of a process.
fn user_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

/// Opens a publication. Another user may have put a link or a pipe there.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Creates a file that only this user may read. Fails if there is one.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}
