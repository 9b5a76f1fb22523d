//! Where publications are, and which processes still run.

use core::mem;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{env, process};

use super::auxv;
use crate::Lacking;
use crate::native::found::Found;

const VARIABLE: &str = "CORELINE_STAT_DIR";
const SHARED: &str = "/dev/shm";
const RUN: &str = "/run/user";
const OURS: &str = "coreline";

/// The folder of a variable. A relative path would be another folder for each process. A caller
/// with fewer rights than this program may not choose where it writes and removes files.
fn named(variable: &str) -> Option<PathBuf> {
    let value = if auxv::is_secure() { None } else { env::var_os(variable) };
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

fn user() -> u32 {
    // SAFETY: takes no pointer, and never fails.
    unsafe { libc::geteuid() }
}

/// The folder of this process's publication.
#[expect(clippy::unnecessary_wraps, reason = "the portable world has none")]
pub(crate) fn folder() -> Result<PathBuf, Lacking> {
    let own = || PathBuf::from(format!("{SHARED}/{OURS}-{}", user()));
    // `su` and `sudo` may leave the variable of another user.
    let is_own = |path: &PathBuf| is_of(&fs::metadata(path), user());
    let run = || named("XDG_RUNTIME_DIR").filter(is_own).map(|run| run.join(OURS));
    Ok(named(VARIABLE).or_else(run).unwrap_or_else(own))
}

/// Whether this is a folder of the user.
fn is_of(found: &io::Result<Metadata>, user: u32) -> bool {
    found.as_ref().is_ok_and(|found| found.is_dir() && found.uid() == user)
}

/// All folders that may have publications.
pub(crate) fn folders() -> Vec<PathBuf> {
    if let Some(named) = named(VARIABLE) {
        return vec![named];
    }
    let entries = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    let of_users = entries(RUN).map(|entry| entry.path().join(OURS));
    // Anyone may make a folder here, of any name.
    let shared = entries(SHARED).map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(OsStr::to_str);
        let user = name.and_then(|name| name.strip_prefix(OURS)?.strip_prefix('-'));
        user.and_then(|user| user.parse().ok().filter(|it: &u32| it.to_string() == user))
            .is_some_and(|user| is_of(&fs::symlink_metadata(path), user))
    });
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
    let (mut all, here) = (Vec::new(), here());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let parts: Vec<_> = name.split('-').map(str::parse::<u64>).collect();
        // In another namespace, the number is that of another process. `+7` and `07` are no names.
        if let [Ok(pid), Ok(start), Ok(of)] = parts[..]
            && of == here
            && name == format!("{pid}-{start}-{of}")
            && let Some(number) = i32::try_from(pid).ok().filter(|pid| *pid > 0)
        {
            let pid = number.cast_unsigned();
            let stat = stat(pid);
            // What cannot be read, for example without a free descriptor, says nothing.
            let is_other = stat.as_ref().is_ok_and(|it| it.start != start);
            let is_alive = may_exist(number) && !is_other;
            let runs = is_alive && stat.map_or(true, |it| it.runs);
            // Another user may have made a file for a process that is not theirs.
            let owner = entry.metadata().map(|found| found.uid());
            if !is_alive || owner.is_ok_and(|owner| user_of(pid) == Some(owner)) {
                all.push(Found { pid, path: entry.path(), is_alive, runs });
            }
        }
    }
    Ok(all)
}

/// The name of this process's file.
pub(crate) fn name() -> io::Result<String> {
    let pid = process::id();
    Ok(format!("{pid}-{}-{}", stat(pid)?.start, here()))
}

/// A number for where a process's number and start mean the same as here: the namespaces of numbers
/// and of times, and the boot, as machines may share a folder.
fn here() -> u64 {
    let of = |path: &str| fs::metadata(path).map_or(0, |found| found.ino());
    let spaces = ["/proc/self/ns/pid", "/proc/self/ns/time"].map(|path| of(path).to_le_bytes());
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // FNV-1a.
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    spaces.as_flattened().iter().chain(&boot).fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Whether there may be such a process: the kernel does not say that there is none.
fn may_exist(pid: libc::pid_t) -> bool {
    // SAFETY: takes no pointer. No signal has the number 0, so none is sent.
    let asked = unsafe { libc::kill(pid, 0) };
    asked == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// What `/proc` says of a process.
struct Stat {
    /// When it started, in clock ticks since the machine did. Another process that gets its number
    /// later has another time.
    start: u64,
    /// Whether one of its threads has not ended.
    runs: bool,
}

fn stat(pid: u32) -> io::Result<Stat> {
    /// The first field after the name is the third of all.
    const STATE: usize = 0;
    const THREADS: usize = 20 - 3;
    const START: usize = 22 - 3;
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    // A name may have blanks and brackets, and the kernel cuts it inside of a character.
    let end = stat.iter().rposition(|&byte| byte == b')').map_or(0, |at| at + 1);
    let rest = String::from_utf8_lossy(&stat[end..]);
    let fields: Vec<_> = rest.split_whitespace().collect();
    let start = fields.get(START).and_then(|it| it.parse().ok());
    let start =
        start.ok_or_else(|| io::Error::other("/proc has no time at which the process started"))?;
    // The first thread may end before the others.
    let runs = !matches!(fields[STATE], "Z" | "X") || !matches!(fields[THREADS], "0" | "1");
    Ok(Stat { start, runs })
}

/// The effective user of a process.
fn user_of(pid: u32) -> Option<u32> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    // The name in it may be cut inside of a character.
    let status = String::from_utf8_lossy(&status);
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

/// Returns whether a child of this process has ended; with `waits`, waits until it has. The child
/// keeps its number until the caller waits for it by other means.
///
/// # Errors
///
/// An error if the process has no such child.
pub fn has_ended(child: u32, waits: bool) -> io::Result<bool> {
    let how = libc::WEXITED | libc::WNOWAIT | if waits { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: zeros are a `siginfo_t`. The call writes to it at most, and it is live.
        let (asked, about) = unsafe {
            let mut about: libc::siginfo_t = mem::zeroed();
            (libc::waitid(libc::P_PID, child, &raw mut about, how), about)
        };
        if asked == 0 {
            // Zero, if the child runs.
            return Ok(about.si_signo == libc::SIGCHLD);
        }
        let error = io::Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Fails if this process may not write files of this size: the write would send it a signal, which
/// ends it.
pub(crate) fn may_have(len: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to a live structure.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    match asked == 0 && len > limit.rlim_cur {
        true => Err(io::Error::from_raw_os_error(libc::EFBIG)),
        false => Ok(()),
    }
}

/// Whether a file has no name any more.
pub(crate) fn is_removed(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.nlink() == 0)
}

/// Opens the publication of a process. Another user may have put a link or a pipe there, or another
/// file since it was found.
pub(crate) fn open(path: &Path, pid: u32) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let (found, user) = (file.metadata()?, user_of(pid));
    match () {
        () if !found.is_file() => Err(io::Error::other("it is no regular file")),
        () if user.is_none() => Err(ErrorKind::NotFound.into()),
        () if user != Some(found.uid()) => {
            Err(io::Error::other("it belongs to another user than the process"))
        }
        () => Ok(file),
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
