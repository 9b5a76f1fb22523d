//! The CPUs that a thread may use.

use std::path::Path;
use std::{io, thread};

use coreline_topology::{CpuId, CpuSet, MAX_CPUS, allowed_cpus};

use crate::SpawnError;
use crate::native::host::keeping_errno;

const WORD_BITS: u32 = u64::BITS;

/// The kernel's set of CPUs, as wide as CPU numbers go. (`libc::cpu_set_t` ends at CPU 1023, and
/// the kernel refuses to answer into a set narrower than its own.)
struct Mask([u64; WORDS]);

const WORDS: usize = (MAX_CPUS / WORD_BITS) as usize;

impl Mask {
    fn of(cpu: CpuId) -> io::Result<Mask> {
        let mut mask = Mask([0; WORDS]);
        match mask.0.get_mut((cpu.get() / WORD_BITS) as usize) {
            Some(word) => *word = 1 << (cpu.get() % WORD_BITS),
            // What the kernel says of a number that is beyond its own, smaller bound.
            None => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
        Ok(mask)
    }

    /// A thread's set, in this many words; 0 is the caller.
    fn of_thread(thread: libc::pid_t, words: usize) -> io::Result<Mask> {
        let mut mask = Mask([0; WORDS]);
        let set = &mut mask.0[..words];
        // SAFETY: the slice is live, of the size given, and has no invalid contents.
        let result =
            unsafe { libc::sched_getaffinity(thread, size_of_val(set), set.as_mut_ptr().cast()) };
        if result == 0 { Ok(mask) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes this the calling thread's set.
    fn apply(&self) -> io::Result<()> {
        // SAFETY: the array is live and of the size given; the kernel only reads it.
        let result =
            unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), self.0.as_ptr().cast()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// One more than the highest number that this kernel can give to a CPU, rounded up to a whole word:
/// the kernel does not answer into a set that is narrower. `None` if the kernel never answers.
pub(crate) fn width() -> Option<u32> {
    // There is always a CPU, except to a filter that answers in the kernel's place.
    let answers = |words: &u32| {
        Mask::of_thread(0, *words as usize).is_ok_and(|mask| mask.0.iter().any(|&word| word != 0))
    };
    (1..=MAX_CPUS / WORD_BITS).find(answers).map(|words| words * WORD_BITS)
}

/// The CPUs that the calling thread may use. None of them is offline.
pub(crate) fn allowed() -> io::Result<CpuSet> {
    of_thread(0)
}

/// The CPUs that the process's first thread may use. None of them is offline, as some may be in
/// `/proc/self/status`.
pub(crate) fn of_first() -> io::Result<CpuSet> {
    // SAFETY: asks for a number.
    of_thread(unsafe { libc::getpid() })
}

fn of_thread(thread: libc::pid_t) -> io::Result<CpuSet> {
    let mask = Mask::of_thread(thread, (MAX_CPUS / WORD_BITS) as usize)?;
    let cpus = (0..MAX_CPUS)
        .filter(|cpu| mask.0[(cpu / WORD_BITS) as usize] & 1 << (cpu % WORD_BITS) != 0);
    Ok(cpus.map(CpuId::new).collect())
}

/// The same, or what a file says where a filter refuses the call or answers it with nothing; `None`
/// if nothing is known.
pub(in crate::native) fn allowed_here() -> Option<CpuSet> {
    let some = |cpus: &CpuSet| !cpus.is_empty();
    let file = || allowed_cpus(Path::new("/")).ok().flatten().filter(some);
    allowed().ok().filter(some).or_else(file)
}

/// Keeps the calling thread on one CPU.
///
/// Fails with `EINVAL` if the CPU does not exist, is offline, or is not in the process's cpuset.
pub(crate) fn pin(cpu: CpuId) -> io::Result<()> {
    Mask::of(cpu)?.apply()
}

/// The CPUs that the calling thread could be pinned to, found by asking for all: what is left is
/// what the machine and the cpuset admit. The thread may then run on all of them.
pub(crate) fn widen() -> io::Result<CpuSet> {
    Mask([u64::MAX; WORDS]).apply()?;
    allowed()
}

/// Keeps the calling thread on one CPU, or says why a thread cannot be there.
pub(in crate::native) fn settle(cpu: CpuId) -> Result<(), SpawnError> {
    pin(cpu).map_err(|error| misplaced(cpu, &error))
}

/// Why the calling thread, which is about to end, could not be pinned, and where it could have
/// been.
fn misplaced(cpu: CpuId, error: &io::Error) -> SpawnError {
    let why = if error.raw_os_error() == Some(libc::EINVAL) {
        "there is no such CPU online in this process's cpuset".to_owned()
    } else {
        error.to_string()
    };
    let allowed = match widen() {
        Ok(cpus) => format!("CPUs {cpus}"),
        Err(error) => format!("CPUs of this process (not known: {error})"),
    };
    SpawnError::Cpu { cpu, why, allowed }
}

/// Async-signal-safe, and leaves `errno` alone.
pub(in crate::native) fn yield_now() {
    keeping_errno(thread::yield_now);
}

/// Whether the kernel prefers the calling thread to all threads of ordinary scheduling, to which
/// yielding then gives nothing. False where a filter forbids to ask. Async-signal-safe, and leaves
/// `errno` alone.
pub(in crate::native) fn is_real_time() -> bool {
    // Not musl's function, which asks nothing and fails.
    // SAFETY: asks for a number. 0 is the calling thread.
    let policy = keeping_errno(|| unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) });
    let policy = i32::try_from(policy).unwrap_or(-1) & !libc::SCHED_RESET_ON_FORK;
    [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JoinHandle as _, Native, Place, Placement, Threads};

    #[test]
    fn a_thread_runs_on_its_cpu_from_the_start() {
        for cpu in allowed().unwrap().iter() {
            let thread = Native::spawn(Placement::On(cpu), || {
                (Native::cpu(), allowed().unwrap().to_string())
            });
            let (ran_on, allowed) = thread.unwrap().join();
            assert_eq!((ran_on, allowed), (cpu, cpu.get().to_string()));
        }
    }

    #[test]
    fn a_refusal_names_the_cpus_that_can_be_had() {
        let nowhere = Native::spawn(Placement::On(CpuId::new(60_000)), || ());
        let error = nowhere.map(|_| ()).unwrap_err();
        let SpawnError::Cpu { allowed: named, .. } = &error else { panic!("{error}") };
        assert!(named.contains(&allowed().unwrap().to_string()), "{error}");
    }
}
