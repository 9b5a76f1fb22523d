//! Pages: what an access costs beside its line, where its core has no translation of the page, or
//! the page was never written.
//!
//! A core that idles for long loses the contents of its own caches and its translations, as if an
//! idle state turned them off. `idle_flush` of the machine file is the time after which this
//! happens. Its lines are then in the last-level cache ([`Directory::empty`]), and the first miss
//! in each page takes a `page_walk`. Until a core has been idle for this long, all its translations
//! count as present.
//!
//! The first write to a page of [`map_copy_on_write`](coreline_world::Memory::map_copy_on_write)
//! takes a fault, `first_write`. As on x86, the kernel then checks for each CPU that ran the
//! process whether its translations matter (`first_write_visit`). A CPU's answer moves to the core
//! that faults, and is expensive again once the CPU has switched. An interrupt of a CPU that runs
//! the process meanwhile is not charged.
//!
//! [`Directory::empty`]: crate::hardware::coherence::Directory::empty

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use coreline_topology::Topology;

use crate::engine::memory::{LINE, Request};
use crate::engine::{Engine, with};
use crate::hardware::coherence::LineHasher;

/// Lines of a page.
pub(in crate::engine) const LINES_PER_PAGE: u64 = 64;

/// Numbers of pages: those of their lines in the machine's memory, by the page.
type Numbers = HashSet<u64, BuildHasherDefault<LineHasher>>;

/// The state of pages.
pub(in crate::engine) struct Pages {
    /// Those whose first write is a fault.
    unwritten: Numbers,
    /// For each core: the pages whose translations it has, once it has lost all of them; before
    /// that `None`.
    translated: Vec<Option<Numbers>>,
    /// For each core: when it last looked at other CPUs.
    looked: Vec<u64>,
    /// By core, its CPUs.
    cpus: Vec<Vec<usize>>,
}

impl Pages {
    pub(in crate::engine) fn new(topology: &Topology) -> Pages {
        let cores = topology.core_count();
        let mut cpus = vec![Vec::new(); cores];
        for (number, cpu) in topology.cpus().enumerate() {
            cpus[cpu.core as usize].push(number);
        }
        Pages {
            cpus,
            unwritten: Numbers::default(),
            translated: vec![None; cores],
            looked: vec![0; cores],
        }
    }
}

/// Sets whether the first write to each page of the range is a fault from now on.
pub(crate) fn copy_on_write(address: usize, len: usize, on: bool) {
    with(|engine| {
        let Some(first) = engine.line_of(address) else { return };
        let end = first + len.div_ceil(LINE) as u64;
        engine.hits_differ |= on;
        for page in first / LINES_PER_PAGE..end.div_ceil(LINES_PER_PAGE) {
            match on {
                true => engine.pages.unwritten.insert(page),
                false => engine.pages.unwritten.remove(&page),
            };
        }
    });
}

impl Engine {
    /// Whether the line is in a page whose first write is a fault, also by a core that has the line
    /// for itself, as it has read it.
    pub(in crate::engine) fn is_unwritten(&self, line: usize) -> bool {
        let unwritten = &self.pages.unwritten;
        !unwritten.is_empty() && unwritten.contains(&(self.directory.name(line) / LINES_PER_PAGE))
    }

    /// The time until an access that does not hit may set out, in picoseconds. Each is told once.
    #[inline]
    pub(in crate::engine) fn reach_page(&mut self, cpu: usize, request: &Request) -> u64 {
        let core = self.cpus[cpu].core as usize;
        if self.pages.unwritten.is_empty() && self.pages.translated[core].is_none() {
            return 0;
        }
        self.reach_page_slowly(cpu, core, request)
    }

    #[cold]
    fn reach_page_slowly(&mut self, cpu: usize, core: usize, request: &Request) -> u64 {
        let page = self.directory.name(request.line) / LINES_PER_PAGE;
        let (mut time, costs) = (0, *self.spec.costs());
        if let Some(translated) = &mut self.pages.translated[core]
            && translated.insert(page)
        {
            time += costs.page_walk;
        }
        if request.access.writes() && self.pages.unwritten.remove(&page) {
            // A CPU's answer is dear if the CPU has switched threads since this core looked last.
            // The time of a CPU without a thread is that of its last switch. A CPU that runs one
            // may not have switched since: its visit is then charged without need.
            let looked = std::mem::replace(&mut self.pages.looked[core], self.cpus[cpu].now);
            let has_switched = |other: &&super::Cpu| {
                other.core as usize != core && other.now > looked && other.now > 0
            };
            let visits = self.cpus.iter().filter(has_switched).count() as u64;
            time += costs.first_write + visits * costs.first_write_visit;
        }
        time
    }

    /// A CPU gets a thread, or an interrupt, at `now`, and had nothing to do since `since`: its
    /// core may have lost what it held.
    pub(in crate::engine) fn flush_after_idleness(&mut self, cpu: usize, since: u64, now: u64) {
        let least = self.spec.costs().idle_flush;
        if now.saturating_sub(since) < least {
            return;
        }
        let core = self.cpus[cpu].core;
        let siblings = self.pages.cpus[core as usize].iter().filter(|&&number| number != cpu);
        let mut busy_until = since;
        for sibling in siblings.map(|&number| &self.cpus[number]) {
            if sibling.current.is_some() {
                return;
            }
            busy_until = busy_until.max(sibling.now);
        }
        // A core that never did anything has nothing to lose.
        if busy_until > 0 && now.saturating_sub(busy_until) >= least {
            self.directory.empty(core, now);
            self.pages.translated[core as usize] = Some(Numbers::default());
        }
    }
}
