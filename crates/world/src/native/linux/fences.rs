//! Fences, and the asymmetric pair by `membarrier`.
//!
//! The rare side has the kernel run a full barrier on every CPU that runs a thread of this process.
//! So a barrier can be imagined wherever the rare side happens to meet the frequent one, which must
//! only keep its accesses on either side of a place: a compiler fence.
//!
//! # One choice for both sides
//!
//! A compiler fence against a full fence orders nothing, so both sides must follow the same choice.
//! It is one atomic byte, [`MEANS`], that goes from zero to its final value in one exchange. A
//! thread that finds zero asks the kernel, tries the exchange, and goes by what stands there
//! afterwards: no fence of either kind does anything before the byte is final. No lock is taken, so
//! the first fence may also be in a signal handler.
//!
//! # What the kernel says is tried
//!
//! A filter can answer in the kernel's place, even with success. So a command counts as there only
//! if it succeeds, and fails as the kernel fails it with a flag that does not exist.
//!
//! # Fork and exec
//!
//! The registration belongs to the address space. A forked child inherits both it and the byte, but
//! not at one moment: the kernel copies the registration when the fork begins and memory later. If
//! another thread fences for the first time in between, the child has the byte alone:
//!
//! ```text
//! Thread 1: forks: the kernel copies "not registered"
//! Thread 2: registers; MEANS = BARRIER
//! Thread 1: the kernel copies MEANS
//! the child: fence_all: EPERM
//! ```
//!
//! So a barrier that is refused with `EPERM` registers the process, and is tried once more. The
//! light fences of the child before that were compiler fences, and that was enough: a registration
//! returns after each CPU has passed a full barrier, and what a barrier does is the same after it,
//! whenever the process was registered.
//!
//! A child that shares its parent's memory (`vfork`) shares the registration. `exec` drops both.
//!
//! Source: `membarrier(2)`; `kernel/sched/membarrier.c` and `kernel/fork.c` of Linux.

use core::sync::atomic::{self, AtomicU8, Ordering};
use std::io;

use coreline_topology::CpuId;

use crate::arch;
use crate::native::Native;
use crate::native::host::keeping_errno;
use crate::native::linux::rseq;
use crate::{Fences, Lacking, Why, World};

/// How this process fences.
///
/// | bit | name | meaning when set |
/// |---|---|---|
/// | 0 | `SETTLED` | the other bits are final; zero means that no thread has asked yet |
/// | 1 | `BARRIER` | heavy is `membarrier`, light is a compiler fence; else both are full |
/// | 2 | `RSEQ` | `membarrier` can also abort restartable sections |
static MEANS: AtomicU8 = AtomicU8::new(0);

const SETTLED: u8 = 1;
const BARRIER: u8 = 1 << 1;
const RSEQ: u8 = 1 << 2;

impl Fences for Native {
    #[inline]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }

    /// Async-signal-safe. The first fence of a process makes up to eight system calls.
    #[inline]
    fn fence_light() {
        // Relaxed: as in `means`. One bit of one byte: a thread that finds it clear looks closer.
        if MEANS.load(Ordering::Relaxed) & BARRIER == 0 {
            fence_unless_barrier();
        }
        // Partner: the barrier that the kernel runs on this CPU for `fence_all`. Without this
        // the compiler may move accesses across the place where that barrier is imagined.
        atomic::compiler_fence(Ordering::SeqCst);
    }

    /// Async-signal-safe, like [`fence_light`](Fences::fence_light).
    fn light_is_free() -> bool {
        means() & BARRIER != 0
    }

    #[inline]
    fn fence_light_free() {
        // Partner: the barrier of `fence_all`, as in `fence_light`. Where there is none, the caller
        // knows from `light_is_free`, whose answer is final.
        atomic::compiler_fence(Ordering::SeqCst);
    }

    /// Async-signal-safe, also where it fails.
    ///
    /// # Errors
    ///
    /// If the kernel refuses a `membarrier` after it has agreed to it, as under a system-call
    /// filter that the process put up later. Light fences are compiler fences by then, so there is
    /// no other way.
    fn try_fence_all() -> Result<(), Lacking> {
        if means() & BARRIER == 0 {
            // Partner: the same fence in `fence_unless_barrier`.
            atomic::fence(Ordering::SeqCst);
            return Ok(());
        }
        let worked = Why::new("membarrier worked when this process first fenced and now fails");
        let refused = |error| Lacking {
            world: Native::NAME,
            capability: "heavy fence",
            why: worked.because(&error),
            remedy: "let the system-call filter pass membarrier",
        };
        ALL.run().map_err(refused)
    }

    /// Async-signal-safe, also where it fails.
    fn try_fence_seen() -> Result<(), Lacking> {
        if means() & BARRIER != 0 && !arch::IN_ORDER {
            return Self::try_fence_all();
        }
        // Partner: the light fence, which is a full one, or keeps the compiler from moving accesses
        // where the processor moves none: then the store that was read released.
        atomic::fence(Ordering::Acquire);
        Ok(())
    }

    /// Async-signal-safe once there is per-CPU memory, also where it fails.
    fn fence_restartable() -> Result<(), Lacking> {
        if rseq::sections().is_err() {
            return Self::try_fence_all();
        }
        let fenced = if means() & RSEQ == 0 {
            Err(Why::new("membarrier has no rseq command"))
        } else {
            SECTIONS.run().map_err(|error| Why::new("membarrier failed").because(&error))
        };
        fenced.map_err(|why| Lacking {
            world: Native::NAME,
            capability: "fence of restartable operations",
            why,
            remedy: "start the program with CORELINE_RSEQ=off, so that operations run on atomics",
        })
    }
}

/// The final value of [`MEANS`].
#[inline]
fn means() -> u8 {
    // Relaxed: there is only this byte to read, and it changes once. A thread that misses the
    // change asks again in `settle`, and finds it there.
    match MEANS.load(Ordering::Relaxed) {
        0 => settle(),
        means => means,
    }
}

/// Slow path: `membarrier` is not probed yet, or not usable.
#[cold]
#[inline(never)]
fn fence_unless_barrier() {
    if means() & BARRIER == 0 {
        // Partner: the same fence in `try_fence_all`. Without either, each side may miss the
        // other's earlier store.
        atomic::fence(Ordering::SeqCst);
    }
}

#[cold]
fn settle() -> u8 {
    let mut means = SETTLED;
    if ALL.works() {
        means |= BARRIER;
    }
    if SECTIONS.works() {
        means |= RSEQ;
    }
    // Relaxed, twice: as in `means`. The exchange alone makes one value final for all.
    MEANS
        .compare_exchange(0, means, Ordering::Relaxed, Ordering::Relaxed)
        .map_or_else(|settled| settled, |_| means)
}

/// A barrier for which a process registers: the two commands of `membarrier`.
struct Barrier {
    run: libc::c_int,
    register: libc::c_int,
}

/// The heavy fence.
const ALL: Barrier = Barrier {
    run: libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
    register: libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
};

/// The fence of restartable sections.
const SECTIONS: Barrier = Barrier {
    run: libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ,
    register: libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ,
};

/// From `linux/membarrier.h`: the call's last argument is a CPU.
const FLAG_CPU: libc::c_uint = 1;
/// A flag that no command of `membarrier` knows.
const NO_FLAG: libc::c_uint = 1 << 30;

impl Barrier {
    /// Runs the barrier. Registers the process first if it is not: see the module.
    fn run(&self) -> io::Result<()> {
        match membarrier(self.run, 0, 0) {
            // A filter that answers so does it again.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                membarrier(self.register, 0, 0)?;
                membarrier(self.run, 0, 0).map(drop)
            }
            result => result.map(drop),
        }
    }

    /// Whether the kernel has the barrier, and the answers come from the kernel.
    fn works(&self) -> bool {
        let is_refused = |error: io::Error| error.raw_os_error() == Some(libc::EINVAL);
        self.run().is_ok() && membarrier(self.run, NO_FLAG, 0).is_err_and(is_refused)
    }
}

/// Leaves `errno` alone: a fence may be in a signal handler.
fn membarrier(
    command: libc::c_int,
    flags: libc::c_uint,
    cpu: libc::c_int,
) -> io::Result<libc::c_long> {
    if cfg!(miri) {
        // A call that Miri does not know.
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: the call takes plain numbers, and changes nothing but the order of accesses, or this
    // process's registration.
    keeping_errno(|| match unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    })
}

/// The commands of `membarrier` that the kernel has, by the names of its manual page.
pub(crate) fn commands() -> Vec<&'static str> {
    let mask = membarrier(libc::MEMBARRIER_CMD_QUERY, 0, 0).unwrap_or(0);
    let has = |command: libc::c_int| mask & libc::c_long::from(command) != 0;
    COMMANDS.into_iter().filter(|&(command, _)| has(command)).map(|(_, name)| name).collect()
}

const COMMANDS: [(libc::c_int, &str); 9] = [
    (libc::MEMBARRIER_CMD_GLOBAL, "GLOBAL"),
    (libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED, "GLOBAL_EXPEDITED"),
    (libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, "REGISTER_GLOBAL_EXPEDITED"),
    (libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, "PRIVATE_EXPEDITED"),
    (libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, "REGISTER_PRIVATE_EXPEDITED"),
    (libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, "PRIVATE_EXPEDITED_SYNC_CORE"),
    (
        libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE,
        "REGISTER_PRIVATE_EXPEDITED_SYNC_CORE",
    ),
    (libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, "PRIVATE_EXPEDITED_RSEQ"),
    (libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, "REGISTER_PRIVATE_EXPEDITED_RSEQ"),
];

/// Whether the heavy fence is `membarrier`, and the light one a compiler fence.
pub(crate) fn by_membarrier() -> bool {
    means() & BARRIER != 0
}

/// Whether `membarrier` aborts restartable sections.
pub(crate) fn aborts_sections() -> bool {
    means() & RSEQ != 0
}

/// Has the kernel restart the section that this process is in on a CPU. Whether it did.
pub(super) fn restart_on(cpu: CpuId) -> bool {
    let cpu = libc::c_int::try_from(cpu.get());
    aborts_sections() && cpu.is_ok_and(|cpu| membarrier(SECTIONS.run, FLAG_CPU, cpu).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::linux::signals::tests::in_a_child;

    #[test]
    fn a_forked_child_is_registered_too() {
        Native::fence_all();
        if !by_membarrier() {
            return;
        }
        let fenced = in_a_child(|| membarrier(ALL.run, 0, 0).is_ok().into());
        assert_eq!(fenced, 1, "the child's fence failed");
    }

    /// The state of a child that was forked while another thread fenced for the first time: the
    /// kernel copies the registration first, and the byte later. In a process of its own, in which
    /// no other test has fenced.
    #[test]
    fn a_child_with_the_byte_and_no_registration_registers() {
        const NAME: &str = "a_child_with_the_byte_and_no_registration_registers";
        const CHILD: &str = "CORELINE_TEST_CHILD";
        if std::env::var_os(CHILD).is_none() {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &format!("native::linux::fences::tests::{NAME}")])
                .env(CHILD, "1")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&child.stdout);
            assert!(child.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let has = |command| commands().contains(&command);
        if !has("PRIVATE_EXPEDITED") {
            return;
        }
        let sections = rseq::sections().is_ok();
        let rseq = if has("PRIVATE_EXPEDITED_RSEQ") { RSEQ } else { 0 };
        MEANS.store(SETTLED | BARRIER | rseq, Ordering::Relaxed);
        assert_eq!(Native::try_fence_all(), Ok(()));
        if rseq != 0 || !sections {
            assert_eq!(Native::fence_restartable(), Ok(()));
        }
    }

    #[test]
    fn the_choice_is_final() {
        let first = means();
        assert_ne!(first & SETTLED, 0);
        assert_eq!((settle(), means()), (first, first));
    }
}
