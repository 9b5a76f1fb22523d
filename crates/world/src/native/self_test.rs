//! The start-up self-test: does this kernel abort a section whose thread was preempted?
//!
//! Everything rests on that, and there have been kernels that did not do it for a thread that was
//! preempted and came back on the same CPU. So it is seen once before the first section runs.
//!
//! # How
//!
//! Two threads of our own, kept on one CPU, with all signals blocked:
//!
//! * the *watcher* stands in a section and reads a word over and over;
//! * the *intruder* wakes up now and then and changes the word.
//!
//! The intruder can only run there by preempting the watcher, so:
//!
//! | the watcher's section | proves |
//! |---|---|
//! | reads a changed word | it was preempted and not aborted: sections are broken |
//! | is aborted, and the word has changed | preemption aborts sections: passed |
//! | is aborted, and the word has not changed | nothing yet: some other thread came by |
//!
//! Aborts for other reasons are kept out: the kernel also aborts for migration (the watcher may use
//! one CPU only), for signals (blocked), and for `membarrier`, which is why a changed word is asked
//! for. A test by `membarrier` or by a signal would be simpler, and would prove nothing about
//! preemption.
//!
//! It installs no signal handler, changes nothing of the calling thread, works on one CPU, and
//! takes a few milliseconds as a rule (the scheduler lets the watcher finish its time slice), and
//! some hundred where many threads share the CPU.
//!
//! The caller waits no longer than [`ANSWER`], whatever becomes of the test's threads. They may not
//! get to run while a realtime thread has the CPU, or while they wait for what the caller holds:
//! the dynamic linker's lock, if this is a constructor of a library that `dlopen` loads; the
//! allocator, if this is the first allocation of one that counts with coreline. What would be a
//! deadlock is a wait of seconds then, and operations run on atomics.

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicBool, AtomicU32};
use core::time::Duration;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::{io, thread};

use coreline_topology::CpuId;

use crate::arch::{self, Area, Watched};
use crate::native::{Native, affinity, place};
use crate::{Clock, Ordering, Time};

/// How long the watcher waits for a preemption. Hundreds of time slices, for a CPU that many others
/// use: to give up is to run on atomics for good.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the caller waits for what the watcher found. As long again as the watcher waits, for
/// both threads to get to run.
const ANSWER: Duration = PATIENCE.saturating_mul(2);
/// How long the intruder sleeps between changes: much shorter than a time slice.
const NAP: Duration = Duration::from_micros(50);
/// Pauses in one section: some hundred microseconds, then the watcher looks at the clock.
const SPINS: NonZeroU32 = NonZeroU32::new(5_000).unwrap();

/// Why the self-test did not prove that sections work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelfTestError {
    /// The kernel did not abort a section.
    #[error("a thread was preempted in a section and the kernel did not abort it")]
    NotAborted,
    /// The area's IDs are not those of the thread.
    #[error("a thread on {pinned} reads cpu_id_start {cpu_id_start} and cpu_id {cpu_id}")]
    WrongCpu {
        /// Where the thread ran.
        pinned: CpuId,
        /// What the area's first field said.
        cpu_id_start: u32,
        /// What the area's second field said.
        cpu_id: u32,
    },
    /// The thread was not preempted in time, so nothing is known.
    #[error("no thread was preempted in a section within {PATIENCE:?}")]
    NotPreempted,
    /// The test could not be run.
    #[error("it could not be run: {0}")]
    NotRun(String),
}

/// Runs the test, and blocks the caller meanwhile, for [`ANSWER`] at most.
pub(crate) fn run(area: Area) -> Result<(), SelfTestError> {
    // The caller is about to wait, so its CPU has room.
    let cpu = place::cpu();
    let (report, answer) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("coreline-rseq-test".to_owned())
        .spawn(move || {
            // An error means that the caller waits no more, and has said that nothing is known.
            let _ = report.send(watch_on(cpu, area));
        })
        .map_err(|error| not_run("a thread", &error))?;
    // Not by joining, which has no bound.
    answer.recv_timeout(ANSWER).unwrap_or_else(|error| {
        Err(SelfTestError::NotRun(match error {
            RecvTimeoutError::Timeout => format!("its thread had no answer within {ANSWER:?}"),
            RecvTimeoutError::Disconnected => "its thread panicked".to_owned(),
        }))
    })
}

fn not_run(lacking: &str, error: &io::Error) -> SelfTestError {
    SelfTestError::NotRun(format!("{lacking} could not be had: {error}"))
}

fn watch_on(cpu: CpuId, area: Area) -> Result<(), SelfTestError> {
    leave_signals();
    leave_realtime();
    affinity::pin(cpu).map_err(|error| not_run(&format!("a thread on {cpu}"), &error))?;
    let (cpu_id_start, cpu_id) = (area.cpu_id_start(), area.cpu_id());
    if (cpu_id_start, cpu_id) != (cpu.get(), cpu.get()) {
        return Err(SelfTestError::WrongCpu { pinned: cpu, cpu_id_start, cpu_id });
    }
    preempt(area)
}

/// Has the calling thread, which stays on one CPU, preempted in a section.
fn preempt(area: Area) -> Result<(), SelfTestError> {
    let (word, over) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        // Born on the watcher's CPU, with its signals blocked: a thread inherits both.
        thread::Builder::new()
            .name("coreline-rseq-test".to_owned())
            .spawn_scoped(scope, || intrude(&word, &over))
            .map_err(|error| not_run("a second thread", &error))?;
        let result = watch(area, &word, Native::now() + PATIENCE);
        // Relaxed: carries nothing but itself.
        over.store(true, Ordering::Relaxed);
        result
    })
}

fn watch(area: Area, word: &AtomicU32, deadline: Time) -> Result<(), SelfTestError> {
    while Native::now() < deadline {
        // Relaxed, here and below: the word carries nothing but its own value, and both threads are
        // on one CPU, which sees its own stores in order.
        let before = word.load(Ordering::Relaxed);
        match arch::watch(area, word, SPINS) {
            Watched::Changed => return Err(SelfTestError::NotAborted),
            Watched::Aborted if word.load(Ordering::Relaxed) != before => return Ok(()),
            Watched::Aborted | Watched::Expired => {}
        }
    }
    Err(SelfTestError::NotPreempted)
}

fn intrude(word: &AtomicU32, over: &AtomicBool) {
    // Relaxed: see `watch`.
    while !over.load(Ordering::Relaxed) {
        word.fetch_add(1, Ordering::Relaxed);
        thread::sleep(NAP);
    }
}

/// Makes the calling thread an ordinary one. The program's realtime threads start realtime threads,
/// and those do not preempt each other.
fn leave_realtime() {
    // SAFETY: zeros are a valid parameter, priority 0; it is live, and only read. Where this is
    // refused the thread stays what it is, and if it is not preempted for that, the test says so.
    unsafe {
        let ordinary: libc::sched_param = core::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary);
    }
}

/// Leaves the program's signals to the program's threads.
fn leave_signals() {
    // SAFETY: the set is filled before it is used, and lives through both calls. They cannot fail.
    unsafe {
        let mut all = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, core::ptr::null_mut());
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::native::rseq;

    /// Memory of the calling thread that looks like an rseq area. The kernel does not know of it.
    #[repr(C, align(32))]
    struct FakeArea {
        cpu_id_start: u32,
        cpu_id: u32,
        rseq_cs: u64,
        rest: [u32; 4],
    }

    /// Calls `f` on a thread of its own, with an area that only looks like one.
    fn with_fake_area<T: Send>(f: impl FnOnce(Area) -> T + Send) -> T {
        let run = || {
            let mut fake = FakeArea { cpu_id_start: 7, cpu_id: 8, rseq_cs: 0, rest: [0; 4] };
            let at = (&raw mut fake).addr();
            // SAFETY: asks for a number: the thread pointer, in every C library for this processor.
            let thread_pointer = unsafe { libc::pthread_self() } as usize;
            // SAFETY: only this thread uses the area, and not beyond this call.
            let area = unsafe { Area::at(at.wrapping_sub(thread_pointer).cast_signed()) };
            let result = f(area.unwrap());
            assert_ne!(fake.rseq_cs, 0, "no section was armed here");
            result
        };
        thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    #[test]
    fn sections_that_are_not_aborted_are_found_out() {
        let result = with_fake_area(|area| {
            affinity::pin(place::cpu()).unwrap();
            preempt(area)
        });
        assert_eq!(result, Err(SelfTestError::NotAborted));
    }

    #[test]
    fn wrong_ids_are_found_out() {
        let result = with_fake_area(|area| {
            let cpu = place::cpu();
            arch::watch(area, &AtomicU32::new(0), NonZeroU32::MIN);
            (cpu, watch_on(cpu, area))
        });
        let (pinned, error) = result;
        assert_eq!(error, Err(SelfTestError::WrongCpu { pinned, cpu_id_start: 7, cpu_id: 8 }));
    }

    #[test]
    fn a_realtime_caller_gets_an_answer() {
        let Ok(area) = rseq::area() else { return };
        let run = || {
            // SAFETY: the parameter is live, and only read. Refused without privilege.
            unsafe {
                let mut realtime: libc::sched_param = core::mem::zeroed();
                realtime.sched_priority = 1;
                libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const realtime);
            }
            run(area)
        };
        assert_eq!(thread::scope(|scope| scope.spawn(run).join().unwrap()), Ok(()));
    }

    #[test]
    fn no_preemption_is_no_proof() {
        let Ok(area) = rseq::area() else { return };
        let deadline = Native::now() + Duration::from_millis(20);
        assert_eq!(watch(area, &AtomicU32::new(0), deadline), Err(SelfTestError::NotPreempted));
        let placed = thread::scope(|scope| {
            scope.spawn(|| watch_on(CpuId::new(60_000), area)).join().unwrap()
        });
        assert!(matches!(placed, Err(SelfTestError::NotRun(_))), "{placed:?}");
    }
}
