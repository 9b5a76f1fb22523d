//! The idle loop of a kernel, and calls to its CPU: `do_idle` and `smp_call_function_single` of
//! Linux 6.8, as far as seed 001 is about them.
//!
//! The word of flags stands for those of the idle thread:
//!
//! | bit | means | set by | cleared by |
//! |---|---|---|---|
//! | [`POLLING`] | the CPU monitors this word | the idle CPU | the idle CPU |
//! | [`RESCHED`] | there is work | a caller under `resched` | the idle CPU, in its scheduler |
//! | [`NOTIFY`] | there is a call | a caller under `notify` | the idle CPU |
//! | [`END`] | the run is over | the caller | no CPU |
//!
//! A caller that finds a CPU which polls sets a bit, and no interrupt is sent; one that finds it
//! elsewhere sends an interrupt, which waits while the scheduler of that CPU has masked them. So
//! every second call under `resched` waits for a scheduler that looks for work which is not there.
//!
//! Of the scheduler there is a span of time (`masked`) and one line for each CPU that it looks at.
//! Nothing writes those lines, as the others are idle: after the first look they are at hand.

use core::time::Duration;
use std::sync::Arc;

use coreline_sim::{Sim, interrupts};
use coreline_topology::CpuId;
use coreline_world::{Clock, Integer, JoinHandle, Line, Ordering, Place, Placement, Threads, Word};
use coreline_world::{Words, Work};

use super::{CALL, KICKS, SCANS, visited};
use crate::crew::nanos;
use crate::scenario::RunError;
use crate::scenario::point::Setup;

type U32 = <Sim as Words>::U32;
type U64 = <Sim as Words>::U64;

const POLLING: u32 = 1;
const RESCHED: u32 = 2;
const NOTIFY: u32 = 4;
const END: u32 = 8;

/// Calls that are not counted: the first look for work brings the lines.
const WARM_UP: u64 = 50;

/// The CPU that is called.
struct Idle {
    cpu: CpuId,
    /// The bit that a call sets where it finds the CPU polling. `None`: it does not ask.
    bit: Option<u32>,
    masked: Duration,
    flags: Line<U32>,
    /// Not zero: a call is there.
    queue: Line<U32>,
    /// How many calls have run.
    ran: Line<U64>,
    /// How many are done, as their caller sees it.
    done: Line<U64>,
    /// How often it looked for work.
    scans: Line<U64>,
    /// A line for each CPU that is looked at, and in which order.
    queues: Vec<Line<U32>>,
    visits: Vec<usize>,
}

pub(super) fn storm(setup: &Setup, (from, to): (CpuId, CpuId)) -> Result<Vec<f64>, RunError> {
    let visits = visited(&Sim::topology(), setup, to);
    let place = |cpu: CpuId| setup.cpus.iter().position(|it| *it == cpu);
    let idle = Arc::new(Idle {
        cpu: to,
        bit: match setup.variant {
            "kernel-resched" => Some(RESCHED),
            "kernel-notify" => Some(NOTIFY),
            _ => None,
        },
        masked: setup.duration("masked"),
        flags: Line(U32::new_in(0)),
        queue: Line(U32::new_in(0)),
        ran: Line(U64::new_in(0)),
        done: Line(U64::new_in(0)),
        scans: Line(U64::new_in(0)),
        queues: setup.cpus.iter().map(|_| Line(U32::new_in(0))).collect(),
        visits: visits.into_iter().filter_map(place).collect(),
    });
    let calls = setup.number("calls");
    let theirs = Arc::clone(&idle);
    let called = Sim::spawn(Placement::On(to), move || theirs.idle())?;
    let theirs = Arc::clone(&idle);
    let caller = Sim::spawn(Placement::On(from), move || call_all(&theirs, calls));
    let tallied = caller.map(JoinHandle::join);
    // Release: pairs with the Acquire in `idle`.
    idle.flags.fetch_or(END, Ordering::Release);
    called.join();
    let [took, kicks, scans] = tallied??;
    let mut numbers = vec![0.0; 3];
    numbers[CALL] = took as f64 / calls as f64;
    numbers[KICKS] = 1000.0 * kicks as f64 / calls as f64;
    numbers[SCANS] = 1000.0 * scans as f64 / calls as f64;
    Ok(numbers)
}

/// The caller's part: nanoseconds, interrupts, and looks for work meanwhile.
fn call_all(idle: &Arc<Idle>, calls: u64) -> Result<[u64; 3], RunError> {
    let mut number = 0;
    let mut one = || {
        number += 1;
        let kicks = call(idle)?;
        // Acquire: pairs with the Release in `flush`.
        idle.done.wait_until(Ordering::Acquire, |done| done >= number);
        // Relaxed, here and below: ordered by the wait.
        let ran = idle.ran.load(Ordering::Relaxed);
        if ran == number {
            Ok(kicks)
        } else {
            Err(RunError::Check(format!("after call {number} {ran} have run")))
        }
    };
    for _ in 0..WARM_UP {
        one()?;
    }
    let before = idle.scans.load(Ordering::Relaxed);
    let begin = Sim::now();
    let mut kicks = 0;
    for _ in 0..calls {
        kicks += u64::from(one()?);
    }
    let took = nanos(begin, Sim::now());
    Ok([took, kicks, idle.scans.load(Ordering::Relaxed) - before])
}

/// Sends a call; whether that took an interrupt.
fn call(idle: &Arc<Idle>) -> Result<bool, RunError> {
    // AcqRel: pairs with the exchange in `flush`.
    if idle.queue.swap(1, Ordering::AcqRel) != 0 {
        // Another call's sender has told of it: there is none with one caller.
        return Ok(false);
    }
    if let Some(bit) = idle.bit {
        // Relaxed: the exchange looks again.
        let mut flags = idle.flags.load(Ordering::Relaxed);
        while flags & POLLING != 0 {
            if flags & bit != 0 {
                return Ok(false);
            }
            // AcqRel: orders the queue before the bit; Relaxed: looked at again.
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
    let theirs = Arc::clone(idle);
    let sent = interrupts::send(idle.cpu, move || theirs.flush());
    sent.map_err(|error| RunError::Lack(error.to_string()))?;
    Ok(true)
}

impl Idle {
    /// Runs the call that is there, if there is one.
    fn flush(&self) {
        // AcqRel: pairs with the exchange in `call`.
        if self.queue.swap(0, Ordering::AcqRel) == 0 {
            return;
        }
        // Relaxed: this CPU's own.
        let ran = self.ran.load(Ordering::Relaxed) + 1;
        self.ran.store(ran, Ordering::Relaxed);
        // Release: pairs with the Acquire of the caller's wait.
        self.done.store(ran, Ordering::Release);
    }

    /// The idle loop.
    fn idle(&self) {
        loop {
            // AcqRel, here and below: as the kernel's, which has barriers around each.
            self.flags.fetch_or(POLLING, Ordering::AcqRel);
            loop {
                // Acquire: pairs with the exchange in `call`.
                let flags = self.flags.load(Ordering::Acquire);
                if flags & (RESCHED | NOTIFY | END) != 0 {
                    break;
                }
                // What disturbs it (an interrupt) leaves no bit: it goes on.
                interrupts::monitor_wait(&self.flags.0, flags);
            }
            let flags = self.flags.fetch_and(!(POLLING | NOTIFY), Ordering::AcqRel);
            if self.bit.is_some() {
                self.flush();
            }
            if flags & END != 0 {
                return;
            }
            if flags & RESCHED != 0 {
                self.schedule();
            }
        }
    }

    /// The scheduler, which finds no work: neither here nor elsewhere.
    fn schedule(&self) {
        let _masked = interrupts::mask();
        Sim::work(self.masked);
        for queue in &self.visits {
            // Relaxed: a look.
            self.queues[*queue].load(Ordering::Relaxed);
        }
        // Relaxed, twice: read when all is over, or between calls.
        let scans = self.scans.load(Ordering::Relaxed);
        self.scans.store(scans + 1, Ordering::Relaxed);
        // AcqRel: as in `idle`.
        self.flags.fetch_and(!RESCHED, Ordering::AcqRel);
    }
}
