//! The concurrency IDs of a process, as Linux 6.3 to 6.18 keeps them.
//!
//! A CPU keeps a *reference* to the ID that a thread of the process last had there, and the next
//! thread of the process that gets the CPU has it again. No two CPUs refer to one ID, so no two
//! running threads have one. What ID a CPU gets that refers to none is the [`Policy`].
//!
//! | reference | meaning | becomes |
//! |---|---|---|
//! | `None` | the CPU refers to no ID | `Held` when a thread gets the CPU |
//! | `Kept` | nobody has the ID; the next thread here takes it | `Held` then; `None` by a scan |
//! | `Held` | the thread that has the CPU has it | `Kept` when that thread loses the CPU |
//! | `Held`, `put` | the same, but a scan wants the ID back | `None` when that thread loses it |
//!
//! # The scan
//!
//! Drops references that nobody has used for [`EXPIRY`]; then those to IDs that are not below the
//! number of references that are left, so that the process's IDs become compact again.
//!
//! When it runs decides much (see [`Scan`]). In the kernel a timer tick that hits a running thread
//! of the process asks for it, at most once in [`SCAN_DELAY`]; the thread does it at once, on its
//! way back to user mode.
//!
//! One thing of the kernel's is left out. It takes the age of a reference by the clock of the CPU's
//! run queue, which stands still while the CPU idles without a tick: there a reference expires only
//! once something else, of another process, has run on the CPU. What else runs on a machine, and
//! how often, no machine file knows.
//!
//! # Migration
//!
//! A thread that moves may take along the reference that it leaves behind, so that few threads that
//! roam over many CPUs need few IDs. Whether the destination *has one* is for the policy to say:
//!
//! | destination has one | users | then |
//! |---|---|---|
//! | yes | not fewer than allowed CPUs | nothing: the IDs may all be in use anyway |
//! | yes | fewer | the source's reference is dropped |
//! | no | any | the source's reference moves, and is the destination's recent one |
//!
//! The source's reference is left alone if it is not to the ID that the thread had, or if another
//! thread has it by now. If it is taken, the source forgets its recent ID, too.
//!
//! Sources: `kernel/sched/core.c` and `sched.h` of Linux 6.18, the last with this scheme; commit
//! 223baf9d17f2, which brought references; seed 000.

use core::marker::PhantomData;
use core::time::Duration;
use std::fmt;
use std::mem;

use clap::ValueEnum;
use coreline_sim::Kernel;
use coreline_topology::{Cid, CpuId, CpuSet};
use coreline_world::Time;

/// How long a reference lives unused: `SCHED_MM_CID_PERIOD_NS` in the kernel.
pub(crate) const EXPIRY: Duration = Duration::from_millis(100);

/// How much time lies between two scans at least: `MM_CID_SCAN_DELAY` in the kernel.
pub(crate) const SCAN_DELAY: Duration = Duration::from_millis(100);

/// What makes a scan run, once [`SCAN_DELAY`] has passed since the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Scan {
    /// A tick that hits a running thread, as in the kernel; rather too seldom, since the execution
    /// of code, the kernel's but for a switch included, takes no time here
    #[default]
    Tick,
    /// Any thread that gets a CPU: as often as the kernel's own limit allows
    Switch,
}

impl fmt::Display for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scan::Switch => "switch",
            Scan::Tick => "tick",
        })
    }
}

/// Which ID a CPU gets that refers to none.
pub(crate) trait Policy: fmt::Debug + 'static {
    /// What replay lines call it.
    const NAME: &str;

    /// Takes an ID that no CPU refers to. The CPU's recent one is given.
    fn take(ids: &mut Ids, recent: Option<Cid>) -> Cid;

    /// Whether a CPU *has one*, for a thread that moves there.
    fn has_one(reference: Reference, recent: Option<Cid>) -> bool;

    /// With how many allowed CPUs the number of users is compared when a thread moves: the
    /// process's and the thread's are given.
    fn allowed(process: usize, thread: usize) -> usize;
}

/// What a CPU refers to: see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference {
    None,
    Kept { cid: Cid, since: Time },
    Held { cid: Cid, put: bool },
}

/// What a process knows of a CPU.
#[derive(Debug, Clone, Copy)]
struct Record {
    reference: Reference,
    /// The last ID that it referred to.
    recent: Option<Cid>,
}

const NOTHING: Record = Record { reference: Reference::None, recent: None };

/// The IDs, and the numbers that bound them.
#[derive(Debug)]
pub(crate) struct Ids {
    /// By ID: whether a CPU refers to it.
    taken: Vec<bool>,
    /// How many are taken.
    weight: usize,
    /// One more than the highest ID handed out since the number of users was last below it.
    pub(super) highest: usize,
    /// Threads of the process.
    pub(super) users: usize,
    /// CPUs that any of its threads has been allowed on.
    pub(super) allowed: usize,
}

impl Ids {
    fn new(cpus: usize) -> Ids {
        Ids { taken: vec![false; cpus], weight: 0, highest: 0, users: 0, allowed: 0 }
    }

    /// Takes an ID, unless it is taken.
    pub(super) fn take(&mut self, cid: Cid) -> Option<Cid> {
        let free = !mem::replace(&mut self.taken[cid.index()], true);
        self.weight += usize::from(free);
        free.then_some(cid)
    }

    /// Takes the lowest ID that is free.
    ///
    /// There is one below the number of allowed CPUs: the caller's CPU is one of them and refers to
    /// none, and no CPU refers to two.
    pub(super) fn take_lowest(&mut self) -> Cid {
        let lowest = self.taken.iter().position(|taken| !taken);
        let lowest = lowest.expect("a CPU without a reference leaves an ID without one");
        self.weight += 1;
        self.taken[lowest] = true;
        Cid::new(lowest as u32)
    }

    fn free(&mut self, cid: Cid) {
        self.taken[cid.index()] = false;
        self.weight -= 1;
    }
}

/// What a process knows of one of its threads.
#[derive(Debug, Clone, Copy)]
struct Thread {
    /// Where it was last.
    cpu: CpuId,
    /// Whether that is the only CPU that it is allowed on.
    bound: bool,
    /// The ID that it last had.
    last: Option<Cid>,
}

/// The concurrency IDs of a process under a policy.
#[derive(Debug)]
pub(crate) struct Space<P> {
    ids: Ids,
    /// By CPU.
    records: Vec<Record>,
    /// By number, those that have ended included.
    threads: Vec<Thread>,
    /// The union of what its threads were allowed on; only grows.
    allowed: CpuSet,
    /// When the next scan may run.
    next_scan: Time,
    scan: Scan,
    name: String,
    policy: PhantomData<P>,
}

impl<P: Policy> Space<P> {
    /// The IDs of a process on a machine with this many CPUs.
    pub(crate) fn new(cpus: usize, scan: Scan) -> Space<P> {
        Space {
            ids: Ids::new(cpus),
            records: vec![NOTHING; cpus],
            threads: Vec::new(),
            allowed: CpuSet::new(),
            next_scan: Time::from_nanos(0) + SCAN_DELAY,
            scan,
            name: Self::name_with(scan),
            policy: PhantomData,
        }
    }

    /// What replay lines call the kernel whose scans this makes.
    pub(crate) fn name_with(scan: Scan) -> String {
        format!("{}:{scan}", P::NAME)
    }

    /// Threads of the process are allowed on these CPUs from now on.
    fn allow(&mut self, cpus: impl IntoIterator<Item = CpuId>) {
        let added = cpus.into_iter().filter(|&cpu| self.allowed.insert(cpu)).count();
        self.ids.allowed += added;
    }

    fn allow_thread(&mut self, cpu: CpuId, bound: bool) {
        if bound {
            self.allow([cpu]);
        } else {
            self.allow((0..self.records.len()).map(|cpu| CpuId::new(cpu as u32)));
        }
    }

    /// Takes the reference that a thread leaves behind, if it is to the ID that it had and nobody
    /// else has that by now.
    fn steal(&mut self, thread: usize, from: CpuId) -> Option<Cid> {
        let last = self.threads[thread].last?;
        match self.records[from.index()].reference {
            Reference::Kept { cid, .. } if cid == last => {
                self.records[from.index()] = NOTHING;
                Some(cid)
            }
            Reference::Held { .. } => {
                self.threads[thread].last = None;
                None
            }
            _ => None,
        }
    }

    /// See the module. A reference that is held is in use now, and goes later if it must.
    fn scan(&mut self, at: Time) {
        if at < self.next_scan {
            return;
        }
        self.next_scan = at + SCAN_DELAY;
        for Record { reference, .. } in &mut self.records {
            if let Reference::Kept { cid, since } = *reference
                && at - since >= EXPIRY
            {
                self.ids.free(cid);
                *reference = Reference::None;
            }
        }
        let weight = self.ids.weight;
        for Record { reference, .. } in &mut self.records {
            match reference {
                Reference::Kept { cid, .. } if cid.index() >= weight => {
                    self.ids.free(*cid);
                    *reference = Reference::None;
                }
                Reference::Held { cid, put } if cid.index() >= weight => *put = true,
                _ => {}
            }
        }
    }
}

impl<P: Policy> Kernel for Space<P> {
    fn name(&self) -> &str {
        &self.name
    }

    fn switch_in(&mut self, at: Time, cpu: CpuId, thread: usize) -> Cid {
        // The machine may have to put a thread where it was not allowed: then it is allowed there.
        self.allow([cpu]);
        let Record { reference, recent } = self.records[cpu.index()];
        let cid = match reference {
            Reference::Kept { cid, .. } | Reference::Held { cid, .. } => cid,
            Reference::None => P::take(&mut self.ids, recent),
        };
        let reference = Reference::Held { cid, put: false };
        self.records[cpu.index()] = Record { reference, recent: Some(cid) };
        self.threads[thread].cpu = cpu;
        self.threads[thread].last = Some(cid);
        if self.scan == Scan::Switch {
            // After the thread got its ID, so that it does not drop the reference that it takes.
            self.scan(at);
        }
        cid
    }

    fn switch_out(&mut self, at: Time, cpu: CpuId, _thread: usize) {
        let reference = &mut self.records[cpu.index()].reference;
        if let Reference::Held { cid, put } = *reference {
            *reference = if put { Reference::None } else { Reference::Kept { cid, since: at } };
            if put {
                self.ids.free(cid);
            }
        }
    }

    fn migrated(&mut self, at: Time, thread: usize, from: CpuId, to: CpuId) {
        self.allow([to]);
        let Record { reference, recent } = self.records[to.index()];
        let has_one = P::has_one(reference, recent);
        let of_thread = if self.threads[thread].bound { 1 } else { self.records.len() };
        if has_one && self.ids.users >= P::allowed(self.ids.allowed, of_thread) {
            return;
        }
        let Some(cid) = self.steal(thread, from) else { return };
        if has_one {
            self.ids.free(cid);
        } else {
            let reference = Reference::Kept { cid, since: at };
            self.records[to.index()] = Record { reference, recent: Some(cid) };
        }
    }

    fn tick(&mut self, at: Time, _cpu: CpuId, _thread: usize) {
        if self.scan == Scan::Tick {
            self.scan(at);
        }
    }

    /// Everything is as at first, and what the thread is allowed on is all that counts. Only those
    /// who run now keep what they have, until they lose their CPU: the machine asks for no other ID
    /// before. (Linux gives the thread another at once, and has ended all others.)
    fn exec(&mut self, at: Time, thread: usize) {
        for record in &mut self.records {
            match record.reference {
                Reference::Kept { cid, .. } => {
                    self.ids.free(cid);
                    *record = NOTHING;
                }
                Reference::Held { cid, .. } => {
                    let reference = Reference::Held { cid, put: true };
                    *record = Record { reference, recent: None };
                }
                Reference::None => record.recent = None,
            }
        }
        self.threads.iter_mut().for_each(|thread| thread.last = None);
        self.ids.highest = 0;
        self.ids.allowed = 0;
        self.allowed = CpuSet::new();
        let Thread { cpu, bound, .. } = self.threads[thread];
        self.allow_thread(cpu, bound);
        let running: Vec<CpuId> = (0..self.records.len())
            .filter(|&cpu| self.records[cpu].reference != Reference::None)
            .map(|cpu| CpuId::new(cpu as u32))
            .collect();
        self.allow(running);
        self.next_scan = at + SCAN_DELAY;
    }

    fn spawned(&mut self, thread: usize, cpu: CpuId, bound: bool) {
        debug_assert_eq!(thread, self.threads.len(), "threads are numbered in order");
        self.threads.push(Thread { cpu, bound, last: None });
        self.ids.users += 1;
        self.allow_thread(cpu, bound);
    }

    /// The thread's ID goes at once, if it was the last to have it.
    fn exited(&mut self, thread: usize) {
        self.ids.users -= 1;
        let Thread { cpu, last, .. } = self.threads[thread];
        let reference = &mut self.records[cpu.index()].reference;
        if let Reference::Kept { cid, .. } = *reference
            && last == Some(cid)
        {
            *reference = Reference::None;
            self.ids.free(cid);
        }
    }
}

#[cfg(test)]
mod tests;
