//! The verb `doctor`: what this machine offers to the native world, and what would turn on what is
//! off.

use std::io::Write;

use coreline_topology::{CacheId, Topology};
use coreline_world::native::{self, NoSections, Probe};
use serde::Serialize;

use crate::error::Error;
use crate::tree;

/// What was found. The schema is `coreline.doctor/1`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema: &'static str,
    kernel: Kernel,
    topology: Tree,
    rseq: Rseq,
    membarrier: Membarrier,
    futex: Futex,
    fast_paths: Vec<FastPath>,
    #[serde(skip)]
    probe: Probe,
}

#[derive(Debug, Serialize)]
struct Kernel {
    release: String,
}

#[derive(Debug, Serialize)]
struct Tree {
    cpus: usize,
    /// A CPU list; `null` if not known.
    allowed: Option<String>,
    cores: usize,
    nodes: usize,
    sockets: usize,
    caches: Vec<Cache>,
    /// Why the tree is a made-up one.
    error: Option<String>,
}

/// A last-level cache.
#[derive(Debug, Serialize)]
struct Cache {
    id: u32,
    cpus: String,
}

#[derive(Debug, Serialize)]
struct Rseq {
    /// `libc`, or `null` if nobody registers this process's threads.
    registered_by: Option<&'static str>,
    /// Bytes, as the C library says.
    size: Option<u32>,
    /// Bytes that the kernel fills in.
    feature_size: u64,
    align: u64,
    /// Whether restartable operations run in rseq sections.
    usable: bool,
    /// `passed`, or why not or not run.
    self_test: String,
    /// The calling thread's concurrency ID.
    mm_cid: Option<u32>,
    /// `CORELINE_RSEQ` in the environment.
    coreline_rseq: Option<String>,
}

#[derive(Debug, Serialize)]
struct Membarrier {
    commands: Vec<&'static str>,
    asymmetric_fences: bool,
    restartable_fence: bool,
}

#[derive(Debug, Serialize)]
struct Futex {
    works: bool,
}

/// Something that coreline can do fast, and whether it does so here.
#[derive(Debug, Serialize)]
struct FastPath {
    name: &'static str,
    on: bool,
    /// Why it is off, and what runs instead.
    why: Option<String>,
    /// What would turn it on.
    remedy: Option<&'static str>,
}

impl FastPath {
    fn new(name: &'static str, off: Option<(String, &'static str)>) -> FastPath {
        let (why, remedy) = off.unzip();
        FastPath { name, on: why.is_none(), why, remedy }
    }
}

impl Report {
    /// Asks this machine.
    pub(crate) fn new() -> Report {
        Report::of(native::probe())
    }

    fn of(probe: Probe) -> Report {
        let registered = probe.registration.filter(|area| area.size > 0);
        Report {
            schema: "coreline.doctor/1",
            kernel: Kernel { release: probe.kernel.clone() },
            topology: Tree::of(&probe),
            rseq: Rseq {
                registered_by: registered.map(|_| "libc"),
                size: probe.registration.map(|area| area.size),
                feature_size: probe.feature_size,
                align: probe.area_align,
                usable: probe.sections.is_ok(),
                self_test: match &probe.sections {
                    Ok(()) => "passed".to_owned(),
                    Err(NoSections::SelfTest(error)) => error.to_string(),
                    Err(why) => format!("not run: {why}"),
                },
                mm_cid: probe.mm_cid.map(|cid| cid.get()),
                coreline_rseq: probe.switch.clone(),
            },
            membarrier: Membarrier {
                commands: probe.membarrier.clone(),
                asymmetric_fences: probe.asymmetric_fences,
                restartable_fence: probe.restartable_fence,
            },
            futex: Futex { works: probe.futex },
            fast_paths: fast_paths(&probe),
            probe,
        }
    }

    /// Writes all of it.
    pub(crate) fn show(&self, out: &mut dyn Write) -> Result<(), Error> {
        let Report { kernel, topology, rseq, membarrier, futex, probe, .. } = self;
        writeln!(out, "kernel {}", kernel.release)?;
        writeln!(out, "\nCPUs")?;
        tree::write(&probe.topology, out)?;
        match &probe.allowed {
            Ok(allowed) => writeln!(out, "  this process may use {allowed}")?,
            Err(why) => writeln!(out, "  which this process may use is not known: {why}")?,
        }
        if let Some(error) = &topology.error {
            writeln!(out, "  the tree is made up: {error}")?;
        }

        writeln!(out, "\nrseq")?;
        match (rseq.registered_by, rseq.size) {
            (Some(by), Some(size)) => writeln!(out, "  registered by {by}, {size} bytes in use")?,
            _ => writeln!(out, "  not registered")?,
        }
        writeln!(
            out,
            "  the kernel fills in {} bytes, aligned to {}",
            rseq.feature_size, rseq.align
        )?;
        writeln!(out, "  usable: {}; self-test: {}", yes(rseq.usable), rseq.self_test)?;
        match rseq.mm_cid {
            Some(cid) => writeln!(out, "  mm_cid: {cid} in this thread")?,
            None => writeln!(out, "  mm_cid: none")?,
        }
        let switch = rseq.coreline_rseq.as_deref().unwrap_or("not set");
        writeln!(out, "  CORELINE_RSEQ: {switch}")?;

        writeln!(out, "\nmembarrier: {}", list(&membarrier.commands))?;
        writeln!(out, "futex: {}", if futex.works { "works" } else { "does not compare" })?;

        writeln!(out, "\nFast paths")?;
        self.show_fast_paths(out)
    }

    /// Writes a few lines.
    pub(crate) fn show_summary(&self, out: &mut dyn Write) -> Result<(), Error> {
        writeln!(out, "this machine: kernel {}", self.kernel.release)?;
        writeln!(out, "  {}", tree::counts(&self.probe.topology))?;
        self.show_fast_paths(out)?;
        writeln!(out, "  more: coreline doctor")?;
        Ok(())
    }

    fn show_fast_paths(&self, out: &mut dyn Write) -> Result<(), Error> {
        for FastPath { name, on, why, remedy } in &self.fast_paths {
            writeln!(out, "  {} {name}", if *on { "on " } else { "off" })?;
            if let (Some(why), Some(remedy)) = (why, remedy) {
                writeln!(out, "      why: {why}\n      to turn it on: {remedy}")?;
            }
        }
        Ok(())
    }
}

impl Tree {
    fn of(probe: &Probe) -> Tree {
        let topology: &Topology = &probe.topology;
        let cache =
            |id: u32| Cache { id, cpus: topology.cpus_of_cache(CacheId::new(id)).to_string() };
        Tree {
            cpus: topology.cpu_count(),
            allowed: probe.allowed.as_ref().ok().map(ToString::to_string),
            cores: topology.core_count(),
            nodes: topology.node_count(),
            sockets: topology.socket_count(),
            caches: (0..topology.cache_count() as u32).map(cache).collect(),
            error: probe.topology_error.map(ToString::to_string),
        }
    }
}

fn fast_paths(probe: &Probe) -> Vec<FastPath> {
    let no_sections = probe
        .sections
        .as_ref()
        .err()
        .map(|why| (format!("{why}; such operations run on atomics"), sections_remedy(why)));
    let no_cid = probe.mm_cid.is_none().then(|| match &probe.registration {
        Some(area) if area.size > 0 && probe.switch.as_deref() != Some("off") => (
            format!("the kernel fills in {} bytes of 28 that hold the ID", probe.feature_size),
            "a kernel from 6.3 on, with CONFIG_SCHED_MM_CID, outside of a sandbox that hides it",
        ),
        _ => (
            "no rseq area of the C library may be used".to_owned(),
            "glibc from 2.35 on, with rseq switched on; see the line above",
        ),
    });
    let no_membarrier = (!probe.asymmetric_fences).then(|| {
        (
            "membarrier's private expedited command is refused; both fences are full".to_owned(),
            "a kernel from 4.14 on, and a system-call filter that lets membarrier through",
        )
    });
    let no_restart = (!probe.restartable_fence).then(|| {
        (
            "membarrier's rseq command is refused; running sections cannot be fenced".to_owned(),
            "a kernel from 5.10 on, and a system-call filter that lets membarrier through",
        )
    });
    vec![
        FastPath::new("restartable operations in rseq sections, without atomics", no_sections),
        FastPath::new("the kernel's concurrency IDs", no_cid),
        FastPath::new("light fences without an instruction, by membarrier", no_membarrier),
        FastPath::new("fences for restartable operations, by membarrier", no_restart),
    ]
}

fn sections_remedy(why: &NoSections) -> &'static str {
    match why {
        NoSections::SwitchedOff => "unset CORELINE_RSEQ",
        NoSections::Processor => "an x86-64 processor",
        NoSections::NoArea => "glibc from 2.35 on",
        NoSections::NotRegistered => {
            "a kernel and system-call filter that admit rseq, and no glibc.pthread.rseq=0"
        }
        NoSections::SelfTest(_) => {
            "a kernel that aborts preempted sections; or try again, if it was busy"
        }
        _ => "see the reason",
    }
}

fn yes(so: bool) -> &'static str {
    if so { "yes" } else { "no" }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(report: &Report) -> String {
        let mut text = Vec::new();
        report.show(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn what_is_off_is_explained() {
        let mut probe = native::probe();
        probe.sections = Err(NoSections::NoArea);
        probe.registration = None;
        probe.mm_cid = None;
        probe.asymmetric_fences = false;
        probe.restartable_fence = false;
        let report = Report::of(probe);
        assert!(report.fast_paths.iter().all(|path| !path.on && path.remedy.is_some()));
        let text = text(&report);
        assert_eq!(text.matches("to turn it on:").count(), 4, "{text}");
        assert!(text.contains("  not registered"), "{text}");
    }

    #[test]
    fn what_is_on_needs_no_explanation() {
        let mut probe = native::probe();
        probe.sections = Ok(());
        probe.mm_cid = Some(coreline_topology::Cid::new(1));
        probe.asymmetric_fences = true;
        probe.restartable_fence = true;
        let text = text(&Report::of(probe));
        assert!(!text.contains("to turn it on:") && text.contains("mm_cid: 1 in"), "{text}");
    }
}
