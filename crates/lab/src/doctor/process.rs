//! `doctor --pid N`: which fast paths another process could use, as far as can be seen from
//! outside.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::{fs, process};

use coreline_topology::CgroupLimits;
use coreline_world::native::{self, Probe, ThreadRegistration};
use serde::Serialize;

use super::facts::Limits;
use crate::error::Error;
use crate::text::{Form, counted};

/// The end of `mm_cid` in an rseq area, in bytes.
const MM_CID_END: u64 = 28;

/// The kernel's numbers for the entries of an auxiliary vector.
const AT_RSEQ_FEATURE_SIZE: u64 = 27;
const AT_RSEQ_ALIGN: u64 = 28;

/// The visible facts about a process. The schema is `coreline.doctor.process/1`.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    schema: &'static str,
    pid: u32,
    /// As the kernel shortens it.
    name: String,
    kernel: String,
    threads: Option<u64>,
    /// The CPUs that its first thread may use, as a list.
    allowed: Option<String>,
    limits: Limits,
    /// `off`, `strict` or `filter`.
    seccomp: Option<&'static str>,
    no_new_privs: Option<bool>,
    /// `glibc` or `musl`; `null` where neither is mapped, as in static programs.
    c_library: Option<&'static str>,
    c_library_error: Option<String>,
    /// The bytes that the kernel fills in, and their alignment, from the auxiliary vector.
    feature_size: Option<u64>,
    align: Option<u64>,
    auxv_error: Option<String>,
    /// In the environment that it was started with.
    coreline_rseq: Option<String>,
    glibc_tunables: Option<String>,
    environment_error: Option<String>,
    rseq: Registrations,
    fast_paths: Vec<Possible>,
}

/// The kernel's statements about its threads.
#[derive(Debug, Serialize)]
struct Registrations {
    registered: usize,
    unregistered: usize,
    unknown: usize,
    /// Bytes of the registered areas; the most of any thread.
    bytes: Option<u32>,
    /// Why it is not known of a thread, and what to do.
    error: Option<String>,
}

/// Whether the process could use a fast path.
#[derive(Debug, Serialize)]
struct Possible {
    name: &'static str,
    /// `null` if that cannot be seen from outside.
    possible: Option<bool>,
    why: String,
}

impl Process {
    pub(crate) fn new(pid: u32) -> Result<Process, Error> {
        let file = |name: &str| fs::read(format!("/proc/{pid}/{name}"));
        let status = file("status").map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::NoProcess { pid },
            _ => Error::HiddenProcess { pid, why: error.to_string() },
        })?;
        let status = String::from_utf8_lossy(&status).into_owned();
        let status: BTreeMap<&str, &str> =
            status.lines().filter_map(|it| it.split_once(':')).collect();
        let field = |name: &str| status.get(name).map(|it| it.trim());
        // Others may go on when the first thread has ended.
        let is_alone = field("Threads").is_none_or(|it| matches!(it, "0" | "1"));
        let has_ended = field("State").is_some_and(|it| it.starts_with(['Z', 'X']));
        if is_alone && has_ended {
            return Err(Error::NoProcess { pid });
        }
        // A kernel thread has no memory of its own.
        if !has_ended && field("VmSize").is_none() {
            return Err(Error::KernelThread { pid });
        }
        let limits = CgroupLimits::of_process(Path::new("/"), pid).map_err(|it| it.to_string());
        let said = |error: io::Error| error.to_string();
        let (auxv, auxv_error) = or_error(file("auxv").map(|it| auxv(&it)).map_err(said));
        let (environment, environment_error) = or_error(file("environ").map_err(said));
        let variable = |name| environment.as_deref().and_then(|it| variable(it, name));
        let (maps, c_library_error) = or_error(file("maps").map_err(said));
        let mut found = Process {
            schema: "coreline.doctor.process/1",
            pid,
            name: field("Name").unwrap_or_default().to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            threads: field("Threads").and_then(|it| it.parse().ok()),
            allowed: field("Cpus_allowed_list").map(str::to_owned),
            limits: Limits::of(&limits),
            seccomp: field("Seccomp").and_then(|mode| match mode {
                "0" => Some("off"),
                "1" => Some("strict"),
                "2" => Some("filter"),
                _ => None,
            }),
            no_new_privs: field("NoNewPrivs").map(|it| it != "0"),
            c_library: maps.as_deref().and_then(|it| c_library(&String::from_utf8_lossy(it))),
            c_library_error,
            feature_size: auxv
                .as_ref()
                .map(|it| it.get(&AT_RSEQ_FEATURE_SIZE).copied().unwrap_or(0)),
            align: auxv.as_ref().map(|it| it.get(&AT_RSEQ_ALIGN).copied().unwrap_or(0)),
            auxv_error,
            coreline_rseq: variable("CORELINE_RSEQ"),
            glibc_tunables: variable("GLIBC_TUNABLES"),
            environment_error,
            rseq: Registrations::of(pid, native::rseq_registrations(pid)),
            fast_paths: Vec::new(),
        };
        found.fast_paths = found.paths(&native::probe());
        Ok(found)
    }

    /// By what is known of the process; `here` is what this process found of the kernel.
    fn paths(&self, here: &Probe) -> Vec<Possible> {
        let is_off = self.coreline_rseq.as_deref() == Some("off");
        let is_filtered = matches!(self.seccomp, Some("filter" | "strict"));
        let filtered = "this depends on a system-call filter, whose rules cannot be seen";
        let (possible, why) = match (self.rseq.registered, is_off) {
            (_, true) => (Some(false), "CORELINE_RSEQ=off in its environment".to_owned()),
            (1.., _) => (Some(true), "its threads are registered for rseq".to_owned()),
            _ if is_filtered => (None, filtered.to_owned()),
            _ if here.sections.is_err() => {
                let why = "this kernel or sandbox does not let `coreline doctor` use rseq, either";
                (None, why.to_owned())
            }
            _ if self.rseq.unregistered > 0 => {
                let why = "no thread is registered; coreline itself registers the threads that \
                           need it";
                (Some(true), why.to_owned())
            }
            _ => (None, "whether its threads are registered is not known".to_owned()),
        };
        let sections = Possible { name: "restartable operations in rseq sections", possible, why };
        let (possible, why) = match self.feature_size {
            Some(MM_CID_END..) => (sections.possible, sections.why.clone()),
            Some(bytes) => {
                let why = format!(
                    "the kernel fills in {bytes} bytes of its areas; the ID ends at byte 28"
                );
                (Some(false), why)
            }
            None => (None, "its auxiliary vector cannot be read".to_owned()),
        };
        let cid = Possible { name: "the kernel's concurrency IDs", possible, why };
        let (possible, why) = match (here.asymmetric_fences, is_filtered) {
            (_, true) => (None, filtered),
            (true, false) => {
                (Some(true), "the kernel has membarrier, and no system-call filter blocks it")
            }
            (false, false) => {
                (None, "this kernel or sandbox refuses membarrier to `coreline doctor`")
            }
        };
        let why = why.to_owned();
        vec![sections, cid, Possible { name: "light fences by membarrier", possible, why }]
    }

    pub(crate) fn show(&self, form: Form, out: &mut dyn Write) -> Result<(), Error> {
        let known = |it: Option<&str>, error: &Option<String>, none: &str| match (it, error) {
            (Some(it), _) => it.to_owned(),
            (None, Some(why)) => format!("not known: {why}"),
            (None, None) => none.to_owned(),
        };
        let Process { pid, name, kernel, rseq, .. } = self;
        let unknown = "not known";
        let mut text = format!("process {pid}, {name}; kernel {kernel}\n");
        let threads = self.threads.map(|it| it.to_string());
        let limits = &self.limits;
        let privileges = self.no_new_privs.map(|it| if it { "yes" } else { "no" });
        let number = |it: Option<u64>| it.map(|it| it.to_string());
        for (what, said) in [
            ("threads", known(threads.as_deref(), &None, unknown)),
            ("may use CPUs", known(self.allowed.as_deref(), &None, unknown)),
            ("cgroup quota", limits.quota_said()),
            ("seccomp", known(self.seccomp, &None, unknown)),
            ("no new privileges", known(privileges, &None, unknown)),
            (
                "C library",
                known(self.c_library, &self.c_library_error, "unknown, or linked statically"),
            ),
            (
                "AT_RSEQ_FEATURE_SIZE",
                known(number(self.feature_size).as_deref(), &self.auxv_error, unknown),
            ),
            ("AT_RSEQ_ALIGN", known(number(self.align).as_deref(), &self.auxv_error, unknown)),
            (
                "CORELINE_RSEQ",
                known(self.coreline_rseq.as_deref(), &self.environment_error, "not set"),
            ),
            (
                "GLIBC_TUNABLES",
                known(self.glibc_tunables.as_deref(), &self.environment_error, "not set"),
            ),
        ] {
            text += &format!("  {what}: {said}\n");
        }
        let Registrations { registered, unregistered, unknown, bytes, error } = rseq;
        text += "\nrseq (asking stops each thread for a moment; a system call may return EINTR)\n";
        let of = bytes.map(|it| format!(", with at most {it} bytes")).unwrap_or_default();
        text += &format!("  registered: {}{of}\n", counted(*registered, "thread"));
        text += &format!("  not registered: {}\n", counted(*unregistered, "thread"));
        if let Some(why) = error {
            text += &format!("  not known: {}: {why}\n", counted(*unknown, "thread"));
        }
        text += "\nFast paths that it could use\n";
        for Possible { name, possible, why } in &self.fast_paths {
            let mark = possible.map_or("?  ", |it| if it { "yes" } else { "no " });
            text += &format!("  {mark} {name}\n      why: {why}\n");
        }
        Ok(write!(out, "{}", form.fitted(&text))?)
    }
}

impl Registrations {
    fn of(pid: u32, asked: io::Result<Vec<ThreadRegistration>>) -> Registrations {
        let mut found =
            Registrations { registered: 0, unregistered: 0, unknown: 0, bytes: None, error: None };
        let threads = match asked {
            Ok(threads) => threads,
            Err(error) => {
                found.error = Some(error.to_string());
                return found;
            }
        };
        for thread in threads {
            match thread.bytes {
                Ok(Some(bytes)) => {
                    found.registered += 1;
                    found.bytes = found.bytes.max(Some(bytes));
                }
                Ok(None) => found.unregistered += 1,
                Err(error) => {
                    found.unknown += 1;
                    found.error.get_or_insert_with(|| why(pid, &error));
                }
            }
        }
        found
    }
}

/// Why a thread could not be asked, and what to do.
fn why(pid: u32, error: &io::Error) -> String {
    let remedy = match error.kind() {
        _ if pid == process::id() => "a process cannot trace itself; leave out --pid",
        ErrorKind::PermissionDenied => {
            "run this as root, or as the process's user with kernel.yama.ptrace_scope=0; end any \
             debugger that traces the process"
        }
        ErrorKind::TimedOut => {
            "the thread sleeps in the kernel and did not stop within a second; try again"
        }
        _ => "use Linux 5.13 or later, with CONFIG_RSEQ",
    };
    format!("{error}; {remedy}")
}

fn or_error<T>(result: Result<T, String>) -> (Option<T>, Option<String>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error)),
    }
}

/// The entries of an auxiliary vector of a process with words like ours.
fn auxv(bytes: &[u8]) -> BTreeMap<u64, u64> {
    let word = |it: &[u8]| it.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
    let half = size_of::<usize>();
    bytes.chunks_exact(2 * half).map(|pair| (word(&pair[..half]), word(&pair[half..]))).collect()
}

/// The value of a variable in an environment as the kernel keeps it.
fn variable(environment: &[u8], name: &str) -> Option<String> {
    let entries = environment.split(|&byte| byte == 0);
    let value = |entry: &[u8]| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    entries.filter_map(value).next()
}

fn c_library(maps: &str) -> Option<&'static str> {
    let files = || maps.lines().filter_map(|line| Some(line.rsplit_once('/')?.1));
    if files().any(|it| it.starts_with("ld-musl-") || it.starts_with("libc.musl-")) {
        return Some("musl");
    }
    files().any(|it| it == "libc.so.6" || it.starts_with("libc-2.")).then_some("glibc")
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::*;

    fn process() -> Process {
        let none = || Ok(CgroupLimits { cpus: None, quota: None });
        Process {
            schema: "coreline.doctor.process/1",
            pid: 7,
            name: "n".repeat(200),
            kernel: "k".repeat(200),
            threads: Some(2),
            allowed: Some(
                (0..900).step_by(2).map(|it| it.to_string()).collect::<Vec<_>>().join(","),
            ),
            limits: Limits::of(&none()),
            seccomp: Some("off"),
            no_new_privs: Some(false),
            c_library: Some("glibc"),
            c_library_error: None,
            feature_size: Some(28),
            align: Some(32),
            auxv_error: None,
            coreline_rseq: None,
            glibc_tunables: Some("glibc.pthread.rseq=0".to_owned()),
            environment_error: None,
            rseq: Registrations {
                registered: 0,
                unregistered: 2,
                unknown: 0,
                bytes: None,
                error: None,
            },
            fast_paths: Vec::new(),
        }
    }

    fn possible(process: &Process) -> [Option<bool>; 3] {
        let paths = process.paths(&made_up::all_on().probe);
        [0, 1, 2].map(|it| paths[it].possible)
    }

    #[test]
    fn what_is_known_decides_on_each_path() {
        let mut it = process();
        assert_eq!(possible(&it), [Some(true); 3]);
        it.coreline_rseq = Some("off".to_owned());
        assert_eq!(possible(&it), [Some(false), Some(false), Some(true)]);
        it.coreline_rseq = None;
        it.seccomp = Some("filter");
        assert_eq!(possible(&it), [None; 3], "what a filter lets through is not seen");
        it.rseq.registered = 2;
        it.feature_size = Some(20);
        assert_eq!(possible(&it), [Some(true), Some(false), None]);
        it.feature_size = None;
        assert_eq!(possible(&it), [Some(true), None, None]);
    }

    #[test]
    fn any_process_fits() {
        let mut it = process();
        it.fast_paths = it.paths(&made_up::all_on().probe);
        it.rseq.error = Some(why(7, &ErrorKind::PermissionDenied.into()));
        for width in [40, 80] {
            let mut text = Vec::new();
            it.show(Form { width, colour: false, unicode: false }, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert!(text.lines().all(|line| line.len() <= width), "{text}");
            assert!(text.contains("ptrace_scope=0"), "{text}");
        }
    }

    #[test]
    fn files_of_the_kernel_are_read() {
        let environment = b"A=1\0CORELINE_RSEQ=off\0GLIBC_TUNABLES=\0";
        assert_eq!(variable(environment, "CORELINE_RSEQ").as_deref(), Some("off"));
        assert_eq!(variable(environment, "CORELINE"), None);
        let words = [27usize, 28, 28, 32].map(usize::to_le_bytes).concat();
        assert_eq!(auxv(&words), BTreeMap::from([(27, 28), (28, 32)]));
        for (maps, known) in [
            ("7f0 r-xp 0 0 1 /usr/lib/x86_64-linux-gnu/libc.so.6\n", Some("glibc")),
            ("7f0 r-xp 0 0 1 /lib/ld-musl-x86_64.so.1\n", Some("musl")),
            ("7f0 r-xp 0 0 1 /usr/bin/cat\n7f1 rw-p 0 0 0 [heap]\n", None),
        ] {
            assert_eq!(c_library(maps), known);
        }
    }
}
