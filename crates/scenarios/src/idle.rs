//! The idle loop of a kernel, and its reaction to a message from another CPU. It models `do_idle`,
//! `call_function_single_prep_ipi` and `flush_smp_call_function_queue` of Linux 6.8, as far as
//! Nayak 2024 concerns them. A `Kernel` defines the messages and the tasks.
//!
//! One word holds the flags of the idle thread:
//!
//! | bit | means | set by | cleared by |
//! |---|---|---|---|
//! | `POLLING` | the CPU monitors this word | the idle CPU | the idle CPU |
//! | `RESCHED` | there is work | a message, as below | the CPU, in its scheduler |
//! | `NOTIFY` | there is a message | a sender under `kernel-notify` | the idle CPU |
//! | `END` | the run is over | the scenario | no CPU |
//!
//! If a sender finds that the CPU polls, it sets a bit and sends no interrupt. The bit is RESCHED
//! under `kernel-resched`, and NOTIFY under `kernel-notify`. If the CPU does not poll, the sender
//! sends an interrupt, which waits while the CPU's scheduler has masked interrupts. Under
//! `kernel-always-kick`, every message is an interrupt. Under each variant, a message that queues a
//! task on the CPU sets RESCHED there.
//!
//! The scheduler is modelled as a time (`masked`). If it finds no task, it also reads one cache
//! line for each CPU that it searches.

use core::time::Duration;
use std::sync::Arc;

use coreline_sim::{Sim, interrupts};
use coreline_topology::{CpuId, Distance, Topology};
use coreline_world::{Integer, Line, Ordering, Word, Words, Work};

use super::param::{Domain, Param};
use super::point::Setup;
use super::{RunError, Variant, Worlds};

type U32 = <Sim as Words>::U32;
type U64 = <Sim as Words>::U64;

const POLLING: u32 = 1;
const RESCHED: u32 = 2;
const NOTIFY: u32 = 4;
const END: u32 = 8;

/// Whose work is looked at.
pub(super) const SCAN: Param = Param::new(
    "scan",
    "The CPUs whose run queues an idle CPU searches for work",
    Domain::Names(SCANNED),
);

/// The time of a pass through the scheduler. No source states it for any kernel, so it is a guess,
/// to be varied.
pub(super) const MASKED: Param =
    Param::number("masked", "Nanoseconds of a scheduler pass without its scan", [0, 100_000])
        .unit("ns");

/// Each with what is in it, besides what those before it have.
const SCANNED: &[(&str, &str)] = &[
    ("none", "No queue, as if there were no other CPU"),
    ("cache", "The queues of the CPU's core, then those under its last-level cache"),
    ("socket", "As cache, then the queues of the CPU's socket"),
    ("all", "As socket, then the queues of all CPUs"),
];

/// The compared variants: policies of the library's workers, and of the idle loop.
pub(super) static VARIANTS: [Variant; 6] = [
    Variant::new("resched", "Workers: a call counts as work, so the worker searches for more"),
    Variant::new("always-kick", "Workers: each call is a wake-up with a system call"),
    Variant::new("notify", "Workers: a call does not count as work"),
    Variant::new("kernel-resched", "A kernel: a call sets the bit that says \"there is work\"")
        .only(Worlds::Simulated),
    Variant::new("kernel-always-kick", "A kernel: each call is an interrupt")
        .only(Worlds::Simulated),
    Variant::new("kernel-notify", "A kernel: a call sets a bit for calls only")
        .only(Worlds::Simulated),
];

/// Returns whether a variant is a kernel's idle loop.
pub fn is_kernel(variant: &str) -> bool {
    variant.starts_with("kernel-")
}

/// Returns the CPUs in whose queues an idle CPU searches for work, in the order of visits. They are
/// the CPUs of each part of the machine that contains the idle CPU, from the smallest part to
/// `scan`. Some CPUs occur more than once, because the kernel goes through its scheduling domains,
/// which overlap.
pub fn visited(topology: &Topology, setup: &Setup, own: CpuId) -> Vec<CpuId> {
    let parts: &[Distance] = match () {
        () if setup.is("scan", "none") => &[],
        () if setup.is("scan", "cache") => &[Distance::SameCore, Distance::SameCache],
        () if setup.is("scan", "socket") => {
            &[Distance::SameCore, Distance::SameCache, Distance::SameSocket]
        }
        () => {
            &[Distance::SameCore, Distance::SameCache, Distance::SameSocket, Distance::OtherSocket]
        }
    };
    let within = |part: &Distance| {
        let is_in = |cpu: &&CpuId| topology.distance(own, **cpu).is_some_and(|it| it <= *part);
        setup.cpus.iter().filter(is_in).copied().collect::<Vec<_>>()
    };
    let spans = parts.iter().map(within).filter(|span| span.len() > 1);
    spans.flatten().collect()
}

/// The messages that CPUs, which count from 0, send each other, and the tasks that they run.
pub(super) trait Kernel: Send + Sync + 'static {
    fn idle(&self, cpu: usize) -> &Idle;

    /// Does what was sent to this CPU, which calls it; whether that queued a task here.
    fn flush(&self, cpu: usize) -> bool;

    fn look(&self, cpu: usize);

    /// Takes the next task of this CPU, which calls it with interrupts masked.
    fn next(&self, _cpu: usize) -> Option<usize> {
        None
    }

    /// Runs a task on this CPU, which calls it, until it blocks.
    fn run(self: &Arc<Self>, _cpu: usize, _task: usize) {}
}

pub(super) struct Idle {
    cpu: CpuId,
    /// The bit that a message sets where it finds the CPU polling. `None`: it does not ask.
    bit: Option<u32>,
    masked: Duration,
    flags: Line<U32>,
    /// How often it looked for work.
    scans: Line<U64>,
    /// The numbers of the CPUs that it looks at.
    visits: Vec<usize>,
}

impl Idle {
    /// As the variant has it.
    pub(super) fn new(setup: &Setup, cpu: CpuId, visits: Vec<usize>) -> Idle {
        Idle {
            cpu,
            bit: match setup.variant {
                "kernel-resched" => Some(RESCHED),
                "kernel-notify" => Some(NOTIFY),
                _ => None,
            },
            masked: setup.duration("masked"),
            flags: Line(U32::new_in(0)),
            scans: Line(U64::new_in(0)),
            visits,
        }
    }

    /// How often the CPU has looked for work.
    pub(super) fn scans(&self) -> u64 {
        // Relaxed: read when all is over, or between messages.
        self.scans.load(Ordering::Relaxed)
    }

    /// Says that there is work, as `resched_curr` does.
    pub(super) fn set_resched(&self) {
        // Relaxed: a hint, and RESCHED is set by this CPU or after what it tells of.
        if self.flags.load(Ordering::Relaxed) & RESCHED == 0 {
            // AcqRel: as in `idle`.
            self.flags.fetch_or(RESCHED, Ordering::AcqRel);
        }
    }

    /// Ends the idle loop, when no message is under way.
    pub(super) fn end(&self) {
        // Release: pairs with the Acquire in `idle`.
        self.flags.fetch_or(END, Ordering::Release);
    }
}

/// Tells a CPU that something was sent to it; whether that took an interrupt.
pub(super) fn tell<K: Kernel>(kernel: &Arc<K>, cpu: usize) -> Result<bool, RunError> {
    let idle = kernel.idle(cpu);
    if let Some(bit) = idle.bit {
        // Relaxed: the exchange looks again.
        let mut flags = idle.flags.load(Ordering::Relaxed);
        while flags & POLLING != 0 {
            if flags & bit != 0 {
                return Ok(false);
            }
            // AcqRel: orders what was sent before the bit; Relaxed: looked at again.
            match idle.flags.compare_exchange(
                flags,
                flags | bit,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(false),
                Err(found) => flags = found,
            }
        }
    }
    let theirs = Arc::clone(kernel);
    let sent = interrupts::send(idle.cpu, move || _ = flush(&theirs, cpu));
    sent.map_err(|error| RunError::Lack(error.to_string()))?;
    Ok(true)
}

/// Does what was sent to this CPU; whether there is a task now.
fn flush<K: Kernel>(kernel: &Arc<K>, cpu: usize) -> bool {
    let queued = kernel.flush(cpu);
    if queued {
        kernel.idle(cpu).set_resched();
    }
    queued
}

pub(super) fn idle<K: Kernel>(kernel: &Arc<K>, cpu: usize) {
    let idle = kernel.idle(cpu);
    loop {
        // AcqRel, here and below: as the kernel's, which has barriers around each.
        idle.flags.fetch_or(POLLING, Ordering::AcqRel);
        loop {
            // Acquire: pairs with the exchange in `tell`.
            let flags = idle.flags.load(Ordering::Acquire);
            if flags & (RESCHED | NOTIFY | END) != 0 {
                break;
            }
            // What disturbs it (an interrupt that queues no task) leaves no bit: it goes on.
            interrupts::monitor_wait(&idle.flags.0, flags);
        }
        let flags = idle.flags.fetch_and(!(POLLING | NOTIFY), Ordering::AcqRel);
        let queued = idle.bit.is_some() && flush(kernel, cpu);
        if flags & END != 0 {
            return;
        }
        if queued || flags & RESCHED != 0 {
            while let Some(task) = schedule(kernel, cpu) {
                kernel.run(cpu, task);
            }
        }
    }
}

/// A way through the scheduler: the next task or, where it finds none, a look at others' work,
/// which finds none either.
fn schedule<K: Kernel>(kernel: &Arc<K>, cpu: usize) -> Option<usize> {
    let idle = kernel.idle(cpu);
    let _masked = interrupts::mask();
    Sim::work(idle.masked);
    let task = kernel.next(cpu);
    if task.is_none() {
        idle.visits.iter().for_each(|visit| kernel.look(*visit));
        // Relaxed, twice: read when all is over, or between messages.
        let scans = idle.scans.load(Ordering::Relaxed);
        idle.scans.store(scans + 1, Ordering::Relaxed);
    }
    // AcqRel: as in `idle`.
    idle.flags.fetch_and(!RESCHED, Ordering::AcqRel);
    // What came during the look: the bit that told of it is gone.
    task.or_else(|| kernel.next(cpu))
}
