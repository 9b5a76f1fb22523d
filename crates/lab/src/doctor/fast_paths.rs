//! The fast paths of coreline: whether each is on here, why not, and how to turn it on.

use std::io::{self, ErrorKind};

use coreline_world::native::{NoSections, Probe, Registrar, RseqAbi, SelfTestError};
use serde::Serialize;

/// The end of `mm_cid` in an rseq area, in bytes.
const MM_CID_END: u64 = 28;

#[derive(Debug, Serialize)]
pub(super) struct FastPath {
    pub(super) name: &'static str,
    pub(super) on: bool,
    /// Why it is off, and what runs instead.
    pub(super) why: Option<String>,
    /// The way to turn it on; `null` if that would gain nothing.
    pub(super) remedy: Option<String>,
}

/// Why something is off, and what would turn it on.
type Off = (String, String);

impl FastPath {
    fn new(name: &'static str, off: Option<Off>) -> FastPath {
        let (why, remedy) = off.unzip();
        FastPath { name, on: why.is_none(), why, remedy }
    }

    /// One that would gain nothing here.
    fn pointless(name: &'static str, why: String) -> FastPath {
        FastPath { name, on: false, why: Some(why), remedy: None }
    }
}

/// All of them, in an order and with names that never change.
pub(super) fn of(probe: &Probe) -> Vec<FastPath> {
    vec![
        FastPath::new(
            "restartable operations in rseq sections, without atomics",
            no_sections(probe)
                .map(|(why, remedy)| (format!("{why}; operations run on atomics"), remedy)),
        ),
        FastPath::new("the kernel's concurrency IDs", no_cid(probe)),
        FastPath::new("light fences without an instruction, by membarrier", no_membarrier(probe)),
        restartable_fence(probe),
        placement(probe),
        FastPath::new(
            "huge pages for per-CPU memory that asks for them",
            (probe.huge_pages.as_ref().err())
                .map(|lacking| (lacking.why.to_string(), lacking.remedy.to_owned())),
        ),
        waits(probe),
    ]
}

fn no_sections(probe: &Probe) -> Option<Off> {
    let why = probe.sections.as_ref().err()?;
    let remedy = match why {
        NoSections::SwitchedOff => "unset CORELINE_RSEQ",
        NoSections::Processor => "run the program on an x86-64 or aarch64 processor",
        NoSections::Refused(error) => match io::Error::from_raw_os_error(*error).kind() {
            ErrorKind::PermissionDenied => {
                "let the system call rseq through the filter of this sandbox or container"
            }
            ErrorKind::InvalidInput => {
                "keep the other library from registering threads; or use glibc 2.35 or later \
                 without glibc.pthread.rseq=0 in GLIBC_TUNABLES, and make the other library use \
                 the C library's area, as coreline does"
            }
            _ => {
                "use a kernel with CONFIG_RSEQ; in a sandbox or emulator, use one that has the \
                 system call rseq"
            }
        },
        NoSections::NoKey(_) => {
            "make the first per-CPU memory before other libraries take thread-specific keys"
        }
        NoSections::SelfTest(error) => return Some((why_no_sections(why), after(error))),
        _ => "use a kernel that allows rseq and implements it correctly",
    };
    Some((why_no_sections(why), remedy.to_owned()))
}

/// Without the remedy, which stands beside it here.
pub(super) fn why_no_sections(why: &NoSections) -> String {
    match why {
        NoSections::SwitchedOff => "CORELINE_RSEQ=off in the environment".to_owned(),
        why => why.to_string(),
    }
}

/// The advice after a self-test that did not pass.
fn after(error: &SelfTestError) -> String {
    match error {
        SelfTestError::NotAborted | SelfTestError::WrongCpu { .. } => {
            "use a real Linux kernel, and not one that an emulator or sandbox imitates: this one \
             has rseq but does not implement it correctly"
        }
        SelfTestError::NotPreempted => {
            "start the program again; the self-test needs one second of CPU time under ordinary \
             scheduling"
        }
        SelfTestError::NotRun { lacking, .. } => {
            return format!(
                "let the program have {lacking}: raise its limits (ulimit), or let mmap, clone and \
                 sched_setaffinity through its system-call filter"
            );
        }
        SelfTestError::NoAnswer => {
            "start the program again on a less busy machine, and make the first per-CPU memory \
             before any fork and outside of constructors of libraries"
        }
        _ => "make the first per-CPU memory at the start of the program",
    }
    .to_owned()
}

/// What would give this process the kernel's second rseq ABI, where the kernel has it and treats
/// the process by the first. It is no fast path of coreline: the kernel alone has less to do.
pub(super) fn to_v2(probe: &Probe) -> Option<&'static str> {
    let is_there = probe.feature_size > 32 && probe.rseq_abi == Some(RseqAbi::Legacy);
    match probe.registered_by.filter(|_| is_there)? {
        Registrar::Libc => Some("use glibc 2.41 or later: it registers more than 32 bytes"),
        Registrar::Coreline => Some(
            "use glibc 2.41 or later, without glibc.pthread.rseq=0 in GLIBC_TUNABLES: coreline \
             itself registers only 32 bytes",
        ),
    }
}

pub(super) fn no_cid(probe: &Probe) -> Option<Off> {
    if probe.mm_cid.is_some() {
        return None;
    }
    // The remedy for sections also gives an area to read the ID from.
    if let Some((why, remedy)) = no_sections(probe) {
        if matches!(probe.sections, Err(NoSections::SwitchedOff)) {
            return Some((why, remedy));
        }
        if probe.registered_by.is_none() {
            return Some(("nothing registers threads for rseq".to_owned(), remedy));
        }
    }
    let filled = match probe.feature_size {
        MM_CID_END.. => {
            return Some((
                "the calling thread is not registered for rseq".to_owned(),
                "start threads with the C library, and let no code unregister them".to_owned(),
            ));
        }
        0 => "the kernel does not say which fields it fills in (AT_RSEQ_FEATURE_SIZE)".to_owned(),
        bytes => format!("the kernel fills in {bytes} bytes of an rseq area"),
    };
    Some((
        format!("{filled}; the ID ends at byte {MM_CID_END}"),
        "use Linux 6.3 or later with CONFIG_SCHED_MM_CID, and no sandbox that hides the auxiliary \
         vector"
            .to_owned(),
    ))
}

fn no_membarrier(probe: &Probe) -> Option<Off> {
    if probe.asymmetric_fences {
        return None;
    }
    let why = if probe.membarrier.is_empty() {
        "the kernel has no membarrier, or a system-call filter refuses it"
    } else {
        "membarrier's private expedited command is refused"
    };
    Some((
        format!("{why}; both fences are full"),
        "use Linux 4.14 or later with CONFIG_MEMBARRIER, and let membarrier through the \
         system-call filter"
            .to_owned(),
    ))
}

fn restartable_fence(probe: &Probe) -> FastPath {
    let name = "stopping the slots of other CPUs, by membarrier's rseq command";
    match (&probe.sections, probe.restartable_fence) {
        (Err(_), _) => {
            let why = "operations run on atomics, and need no such command to stop slots";
            FastPath::pointless(name, why.to_owned())
        }
        (Ok(()), true) => FastPath::new(name, None),
        (Ok(()), false) => FastPath::new(
            name,
            Some((
                "the command is refused; slots of other CPUs cannot be changed (`with_stopped` \
                 fails)"
                    .to_owned(),
                "use Linux 5.10 or later, and let membarrier through the system-call filter; or \
                 set CORELINE_RSEQ=off, to use atomics"
                    .to_owned(),
            )),
        ),
    }
}

fn placement(probe: &Probe) -> FastPath {
    let name = "per-CPU memory on the node of its CPU";
    if let Some(error) = probe.topology_error {
        let remedy = "let the program read sysfs, at /sys".to_owned();
        return FastPath::new(name, Some((format!("the nodes are not known: {error}"), remedy)));
    }
    if probe.topology.node_count() < 2 {
        let why = "one memory node has all CPUs: there is nothing to place";
        return FastPath::pointless(name, why.to_owned());
    }
    let off = probe.placement.as_ref().err().map(|lacking| {
        let why =
            format!("{}; a page comes from the node of the CPU that first touches it", lacking.why);
        (why, lacking.remedy.to_owned())
    });
    FastPath::new(name, off)
}

/// Nothing in coreline uses them, so they are never on.
fn waits(probe: &Probe) -> FastPath {
    let why = match probe.wait_instructions.as_slice() {
        [] => "this processor offers no such instructions to user programs, or a hypervisor hides \
               them"
            .to_owned(),
        found => format!("this processor has {}, and coreline does not use it", found.join(", ")),
    };
    let name = "waiting for a store without spinning (WAITPKG, MONITORX, WFE)";
    FastPath::pointless(name, format!("{why}; waiters spin"))
}

#[cfg(test)]
mod tests {
    use coreline_topology::CpuId;

    use super::*;
    use crate::doctor::made_up;

    /// The reasons for the first two, sections and concurrency IDs.
    fn said(sections: NoSections) -> [String; 2] {
        let mut probe = made_up::all_off().probe;
        probe.sections = Err(sections);
        let [sections, cid, ..] = &of(&probe)[..] else { panic!("no fast paths") };
        [sections, cid].map(|path| {
            format!("{} -> {}", path.why.as_ref().unwrap(), path.remedy.as_ref().unwrap())
        })
    }

    #[test]
    fn each_reason_has_a_remedy_of_its_own() {
        for (why, remedy) in [
            (NoSections::SwitchedOff, "unset CORELINE_RSEQ"),
            (NoSections::Processor, "aarch64 processor"),
            (NoSections::Refused(1), "through the filter"),
            (NoSections::Refused(38), "CONFIG_RSEQ"),
            (NoSections::Refused(22), "glibc.pthread.rseq=0"),
            (NoSections::NoKey(11), "thread-specific keys"),
            (SelfTestError::NotAborted.into(), "real Linux kernel"),
            (
                SelfTestError::WrongCpu { pinned: CpuId::new(1), cpu_id_start: 0, cpu_id: 0 }
                    .into(),
                "real Linux kernel",
            ),
            (SelfTestError::NotPreempted.into(), "ordinary scheduling"),
            (SelfTestError::NotRun { lacking: "a page", errno: 12 }.into(), "have a page"),
            (SelfTestError::NoAnswer.into(), "before any fork"),
            (SelfTestError::Nested.into(), "at the start of the program"),
        ] {
            // Nothing registers here, so the remedy for sections gives the ID as well.
            let [sections, cid] = said(why);
            assert!(sections.starts_with(&why_no_sections(&why)), "{sections}");
            for said in [sections, cid] {
                assert!(said.split_once(" -> ").unwrap().1.contains(remedy), "{said}");
            }
        }
    }

    #[test]
    fn concurrency_ids_fail_by_themselves() {
        let mut probe = made_up::all_on().probe;
        for (filled, reason, remedy) in [
            (0, "does not say", "CONFIG_SCHED_MM_CID"),
            (20, "fills in 20 bytes", "Linux 6.3"),
            (28, "not registered", "C library"),
        ] {
            probe.mm_cid = None;
            probe.feature_size = filled;
            let (why, told) = no_cid(&probe).unwrap();
            assert!(why.contains(reason) && told.contains(remedy), "{why} -> {told}");
        }
        // IDs may be readable from the C library's area although sections fail.
        probe.sections = Err(SelfTestError::NotAborted.into());
        assert!(no_cid(&probe).unwrap().0.contains("not registered"));
        probe.sections = Err(NoSections::SwitchedOff);
        assert!(no_cid(&probe).unwrap().1.contains("unset"));
    }

    #[test]
    fn what_cannot_be_had_is_not_promised() {
        let mut probe = made_up::all_on().probe;
        assert_eq!(placement(&probe).remedy, None);
        assert!(placement(&probe).on);
        probe.placement = Err(made_up::lacking("mbind to node 1: refused", "let mbind through"));
        assert_eq!(placement(&probe).remedy.as_deref(), Some("let mbind through"));
        probe.topology = made_up::one_node();
        assert!(!placement(&probe).on && placement(&probe).remedy.is_none());

        probe.restartable_fence = false;
        assert!(restartable_fence(&probe).remedy.unwrap().contains("5.10"));
        probe.sections = Err(NoSections::SwitchedOff);
        assert_eq!(restartable_fence(&probe).remedy, None);

        assert!(waits(&probe).why.unwrap().contains("has WAITPKG"));
        probe.wait_instructions.clear();
        assert!(waits(&probe).why.unwrap().contains("offers no such"));
    }
}
