//! The start-up self-test: does this kernel abort a section whose thread was preempted?
//!
//! There have been kernels that did not, where the thread came back on the same CPU.
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
//! for. A test by `membarrier` or by a signal would prove nothing about preemption.
//!
//! It is run at most twice:
//!
//! | the watcher's policy | is preempted | answers |
//! |---|---|---|
//! | `SCHED_IDLE`, at first | when the intruder wakes up | in a millisecond on an idle CPU |
//! | the usual, after [`HASTE`] | at the end of its time slice | in 3 ms; in 100 on a busy CPU |
//!
//! The first may not get to run for a second on a CPU that others use.
//!
//! # Where it may be run
//!
//! Anywhere that `pthread_create` works: the threads are the C library's own, what they share is a
//! mapped page, and neither they nor the caller uses the allocator, a lock, or thread-local memory
//! of Rust. Still, the caller waits no longer than [`ANSWER`]. The threads may not run while a
//! realtime thread has the CPU. They may also wait in the C library for a lock that the caller
//! holds, such as that of a `malloc` that itself uses coreline.
//!
//! If coreline registers threads itself, the watcher does so at its start, and gives its
//! registration up at its end.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::num::NonZeroU32;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::{io, thread};

use coreline_topology::CpuId;

use super::errors::{ANSWER, NoSections, PATIENCE, SelfTestError};
use super::registration;
use crate::arch::{self, Area, Watched};
use crate::native::Native;
use crate::native::linux::affinity;
use crate::native::linux::getcpu::cpu_by_call;
use crate::{Clock, Parked, Signals, Sleep, Time};

/// How long the caller waits for a watcher that gives way to all other threads.
const HASTE: Duration = Duration::from_millis(2);
/// How long the intruder sleeps between changes: much shorter than a time slice.
const NAP: Duration = Duration::from_micros(50);
/// Pauses in one section: some hundred microseconds, then the watcher looks at the clock.
const SPINS: NonZeroU32 = NonZeroU32::new(5_000).unwrap();

/// The state that caller, watcher and intruder share: a page, unmapped by the last of them.
struct Shared {
    /// How many of the three are at it.
    users: AtomicU32,
    area: Area,
    cpu: CpuId,
    /// The watcher's scheduling policy.
    policy: c_int,
    /// The watcher watches it, the intruder changes it.
    word: AtomicU32,
    /// 1 when the watcher has what it watches for, or no thread waits for it: both must end.
    over: AtomicU32,
    /// 1 when `outcome` is there. The caller sleeps on it.
    answered: AtomicU32,
    /// Written by the watcher before `answered`.
    outcome: UnsafeCell<Result<(), NoSections>>,
}

/// One thread's share of the page.
struct Share(NonNull<Shared>);

impl Share {
    fn new(area: Area, cpu: CpuId, policy: c_int) -> Result<Share, SelfTestError> {
        // SAFETY: asks for new memory, where there is some.
        let page = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(ptr::null_mut(), size_of::<Shared>(), protection, kind, -1, 0)
        };
        if page == libc::MAP_FAILED {
            return Err(not_run("a page", io::Error::last_os_error()));
        }
        let shared = Shared {
            users: AtomicU32::new(1),
            area,
            cpu,
            policy,
            word: AtomicU32::new(0),
            over: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            outcome: UnsafeCell::new(Err(SelfTestError::NoAnswer.into())),
        };
        let at = NonNull::new(page.cast::<Shared>()).expect("a mapping is not at zero");
        // SAFETY: the page is new, aligned and large enough.
        unsafe { at.write(shared) };
        Ok(Share(at))
    }

    fn get(&self) -> &Shared {
        // SAFETY: mapped as long as there is a share.
        unsafe { self.0.as_ref() }
    }

    /// Starts a thread that runs `f` with a share of its own. No thread waits for its end.
    fn spawn(&self, f: extern "C" fn(*mut c_void) -> *mut c_void) -> io::Result<()> {
        // Relaxed: this share is there meanwhile, so no thread unmaps.
        self.get().users.fetch_add(1, Ordering::Relaxed);
        let mut thread = MaybeUninit::uninit();
        let at = self.0.as_ptr().cast();
        // SAFETY: `f` takes a share, which was just counted.
        let error = unsafe { libc::pthread_create(thread.as_mut_ptr(), ptr::null(), f, at) };
        if error != 0 {
            drop(Share(self.0));
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: a thread that can still be joined: it was neither joined nor detached.
        unsafe { libc::pthread_detach(thread.assume_init()) };
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Release: what this thread did to the page comes before it is unmapped. Acquire, for the
        // last one: so did what the others did.
        if self.get().users.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: mapped by `new`, and no share is left.
            unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Shared>()) };
        }
    }
}

/// Runs the test, and blocks the caller meanwhile, for [`ANSWER`] and [`HASTE`] at most.
pub(crate) fn run(area: Area) -> Result<(), NoSections> {
    match run_as(area, libc::SCHED_IDLE, HASTE) {
        Err(NoSections::SelfTest(SelfTestError::NoAnswer)) => {
            run_as(area, libc::SCHED_OTHER, ANSWER)
        }
        answer => answer,
    }
}

fn run_as(area: Area, policy: c_int, patience: Duration) -> Result<(), NoSections> {
    // The caller is about to wait, so its CPU has room.
    let share = Share::new(area, cpu_by_call(), policy)?;
    let deadline = Native::now() + patience;
    share.spawn(watcher).map_err(|error| not_run("a thread", error))?;
    let shared = share.get();
    // Acquire pairs with the release in `watcher`: the outcome is there.
    while shared.answered.load(Ordering::Acquire) == 0 {
        // Not by joining, which has no bound. The clock is asked, too: a filter can have the kernel
        // never wait.
        if Native::now() >= deadline
            || Native::park(&shared.answered, 0, Some(deadline)) == Parked::TimedOut
        {
            // Relaxed: carries nothing but itself.
            shared.over.store(1, Ordering::Relaxed);
            return Err(SelfTestError::NoAnswer.into());
        }
    }
    // SAFETY: written before `answered`, and never after.
    unsafe { *shared.outcome.get() }
}

fn not_run(lacking: &'static str, error: io::Error) -> SelfTestError {
    SelfTestError::NotRun { lacking, errno: error.raw_os_error().unwrap_or(0) }
}

extern "C" fn watcher(share: *mut c_void) -> *mut c_void {
    let share = Share(NonNull::new(share.cast()).expect("`spawn` gives its own share"));
    let shared = share.get();
    let outcome = watch_on(&share);
    // SAFETY: the caller looks only after `answered`.
    unsafe { *shared.outcome.get() = outcome };
    // Release pairs with the acquire in `run`. Without it the caller could miss the outcome.
    shared.answered.store(1, Ordering::Release);
    Native::wake(&raw const shared.answered, 1);
    ptr::null_mut()
}

/// The test, on the calling thread, which it changes.
fn watch_on(share: &Share) -> Result<(), NoSections> {
    // The program's signals are for the program's threads.
    let _held = Native::hold();
    // The program's realtime threads start realtime threads, and those do not preempt each other.
    schedule_by(libc::SCHED_OTHER);
    let &Shared { area, cpu, .. } = share.get();
    affinity::pin(cpu).map_err(|error| not_run("a thread that stays on its CPU", error))?;
    if area != Area::own() {
        return Ok(watch_area(share)?);
    }
    registration::register().map_err(NoSections::Refused)?;
    let outcome = watch_area(share);
    // An error would leave a registered thread to end, which does no harm until musl unmaps it.
    registration::unregister().map_err(NoSections::Refused)?;
    Ok(outcome?)
}

fn watch_area(share: &Share) -> Result<(), SelfTestError> {
    let &Shared { area, cpu, .. } = share.get();
    let (cpu_id_start, cpu_id) = (area.cpu_id_start(), area.cpu_id());
    if (cpu_id_start, cpu_id) != (cpu.get(), cpu.get()) {
        return Err(SelfTestError::WrongCpu { pinned: cpu, cpu_id_start, cpu_id });
    }
    preempt(share)
}

/// Has the calling thread, which stays on one CPU, preempted in a section.
fn preempt(share: &Share) -> Result<(), SelfTestError> {
    // Born on the watcher's CPU, with its signals held off: a thread inherits both.
    share.spawn(intruder).map_err(|error| not_run("a second thread", error))?;
    schedule_by(share.get().policy);
    let result = watch(share.get(), Native::now() + PATIENCE);
    // Relaxed: carries nothing but itself.
    share.get().over.store(1, Ordering::Relaxed);
    result
}

fn watch(shared: &Shared, deadline: Time) -> Result<(), SelfTestError> {
    let Shared { area, word, over, .. } = shared;
    // Relaxed: carries nothing but itself.
    while over.load(Ordering::Relaxed) == 0 && Native::now() < deadline {
        // Relaxed: the word carries nothing but its own value, and both threads are on one CPU,
        // which sees its own stores in order.
        let before = word.load(Ordering::Relaxed);
        match arch::watch(*area, word, SPINS) {
            Watched::Changed => return Err(SelfTestError::NotAborted),
            // Relaxed: as for the load before the watch.
            Watched::Aborted if word.load(Ordering::Relaxed) != before => return Ok(()),
            Watched::Aborted | Watched::Expired => {}
        }
    }
    Err(SelfTestError::NotPreempted)
}

extern "C" fn intruder(share: *mut c_void) -> *mut c_void {
    let share = Share(NonNull::new(share.cast()).expect("`spawn` gives its own share"));
    // Relaxed: see `watch`.
    while share.get().over.load(Ordering::Relaxed) == 0 {
        // Relaxed: the word carries nothing but its own value.
        share.get().word.fetch_add(1, Ordering::Relaxed);
        thread::sleep(NAP);
    }
    ptr::null_mut()
}

/// Gives the calling thread a policy without priorities.
fn schedule_by(policy: c_int) {
    // SAFETY: zeros are a valid parameter, priority 0; it is live, and only read. (musl has the
    // function of this name refuse.) Where the kernel refuses the thread stays what it is, and if
    // it is not preempted for that, the test says so.
    unsafe {
        let parameter: libc::sched_param = core::mem::zeroed();
        libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameter);
    }
}

#[cfg(all(test, not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::super::sections;
    use super::*;
    use crate::arch::injection::Pretence;

    /// Calls `f` on a thread of its own, with an area that only looks like one.
    fn with_fake_area<T: Send>(f: impl FnOnce(Area) -> T + Send) -> T {
        let run = || {
            let mut fake = Pretence::new(8, 0);
            let result = f(fake.area());
            assert!(fake.was_armed());
            result
        };
        on_a_thread(run)
    }

    fn on_a_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| scope.spawn(f).join().unwrap())
    }

    /// The area to test with, where the kernel lets us.
    fn area() -> Option<Area> {
        sections().ok()
    }

    #[test]
    fn sections_that_are_not_aborted_are_found_out() {
        let result = with_fake_area(|area| {
            let cpu = cpu_by_call();
            affinity::pin(cpu).unwrap();
            preempt(&Share::new(area, cpu, libc::SCHED_OTHER).unwrap())
        });
        assert_eq!(result, Err(SelfTestError::NotAborted));
    }

    #[test]
    fn wrong_ids_are_found_out() {
        let result = with_fake_area(|area| {
            let pinned = cpu_by_call();
            arch::watch(area, &AtomicU32::new(0), NonZeroU32::MIN);
            (pinned, watch_on(&Share::new(area, pinned, libc::SCHED_OTHER).unwrap()))
        });
        let (pinned, error) = result;
        let wrong = SelfTestError::WrongCpu { pinned, cpu_id_start: 0, cpu_id: 8 };
        assert_eq!(error, Err(NoSections::SelfTest(wrong)));
    }

    #[test]
    fn a_realtime_caller_gets_an_answer() {
        let Some(area) = area() else { return };
        let answer = on_a_thread(|| {
            // SAFETY: the parameter is live, and only read. Refused without privilege.
            unsafe {
                let mut realtime: libc::sched_param = core::mem::zeroed();
                realtime.sched_priority = 1;
                let policy = libc::SCHED_FIFO;
                libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const realtime);
            }
            run(area)
        });
        assert_eq!(answer, Ok(()));
    }

    #[test]
    fn an_area_of_our_own_passes_or_is_taken() {
        let answer = run(Area::own());
        let taken = registration::published().is_some_and(|published| published.size > 0);
        if taken {
            assert_eq!(answer, Err(NoSections::Refused(libc::EINVAL)));
        } else {
            assert_eq!(answer.is_ok(), area().is_some(), "{answer:?}");
        }
    }

    #[test]
    fn no_preemption_is_no_proof() {
        let Some(area) = area() else { return };
        let share = |cpu| Share::new(area, cpu, libc::SCHED_OTHER).unwrap();
        let deadline = Native::now() + Duration::from_millis(20);
        let watched = watch(share(cpu_by_call()).get(), deadline);
        assert_eq!(watched, Err(SelfTestError::NotPreempted));
        let placed = on_a_thread(|| watch_on(&share(CpuId::new(60_000))));
        let not_run = matches!(placed, Err(NoSections::SelfTest(SelfTestError::NotRun { .. })));
        assert!(not_run, "{placed:?}");
    }
}
