//! The duties of calls beside taking the lock.
//!
//! | mode | what holds | next mode |
//! |---|---|---|
//! | `Few` | the program has created no thread | `Ready`, `Stats` |
//! | `Ready` | what all locks share exists | `Stats` |
//! | `Stats` | calls are counted, which begins when the library is loaded | none |
//!
//! The state that all locks share is made from the machine's tree, and from a test of the kernel's
//! restartable sequences. Both take milliseconds on large machines, which a process with one thread
//! need not pay. Both call the program's allocator, by `opendir` and by `pthread_create`. So no
//! lock call does this, because a lock call may be made in a signal handler, and under any lock of
//! the program. It is done when the program calls `pthread_create` for the first time: that
//! function allocates and maps memory itself. The caller may have little stack, so it is done on
//! another one. It is done by the caller, because another thread would wait for locks that the
//! caller holds, such as the dynamic linker's in a constructor. If memory is short, the next
//! `pthread_create` tries again.
//!
//! Until then, calls that find no free lock check it from time to time. These are calls in signal
//! handlers, and of threads that `pthread_create` has not made.

use core::alloc::Layout;
use core::arch::naked_asm;
use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use core::time::Duration;

use coreline::lock::RawBiasedRwLock;
use coreline_world::{Clock, IndexBy, Memory, Native, Restartable, Sleep, Threads};

use crate::{ALLOCATOR, uncancelled};

#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Few,
    Ready,
    Stats,
}

/// The options of a call that finds no free lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// Look at the lock from time to time.
    Looks,
    /// Wait.
    Waits,
}

pub(crate) static MODE: AtomicU8 = AtomicU8::new(Mode::Few as u8);

pub(crate) const READY: u8 = Mode::Ready as u8;

/// Whether what all locks share exists.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Whether a thread makes it, or has made it. That thread creates threads, which create threads.
static IS_BEGUN: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// Not zero while the process has one thread (glibc 2.32).
    safe static __libc_single_threaded: AtomicU8;
}

#[inline(always)]
pub(crate) fn now() -> Mode {
    const STATS: u8 = Mode::Stats as u8;
    match MODE.load(Ordering::Relaxed) {
        READY => Mode::Ready,
        STATS => Mode::Stats,
        _ => Mode::Few,
    }
}

#[inline(always)]
pub(crate) fn is_alone() -> bool {
    __libc_single_threaded.load(Ordering::Relaxed) != 0
}

/// The options of a call that finds no free lock.
#[cold]
pub(crate) fn means() -> Means {
    if IS_READY.load(Ordering::Relaxed) { Means::Waits } else { Means::Looks }
}

/// Waits a moment, without the state that all locks share.
pub(crate) fn pause() {
    const LOOK: Duration = Duration::from_micros(50);
    let word = AtomicU32::new(0);
    Native::park(&word, 0, Some(Native::now() + LOOK));
    Native::yield_now();
}

/// Makes what all locks share, unless a thread has begun to. Returns whether this call did so, and
/// thus has created threads, which may not be gone.
pub(crate) fn before_a_thread() -> bool {
    if IS_BEGUN.load(Ordering::Relaxed) || IS_BEGUN.swap(true, Ordering::Relaxed) {
        return false;
    }
    // SAFETY: the word is the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    uncancelled(|| {
        if !(has_memory(NEEDS) && on_another_stack(get_ready)) {
            IS_BEGUN.store(false, Ordering::Relaxed);
        }
    });
    // SAFETY: as before. Lock calls leave it alone.
    unsafe { *libc::__errno_location() = errno };
    IS_BEGUN.load(Ordering::Relaxed)
}

/// Sets a mode, unless another thread was faster and has set a later one.
pub(crate) fn set(mode: Mode) {
    MODE.fetch_max(mode as u8, Ordering::Relaxed);
}

/// Makes what all locks share.
extern "C" fn get_ready() {
    register();
    coreline::lock::prepare();
    // Makes the choice, which cannot fail for this index.
    let _ = Native::section(IndexBy::Cpu);
    get_pool();
    ALLOCATOR.begin_limit();
    IS_READY.store(true, Ordering::Relaxed);
    set(Mode::Ready);
}

/// Registers the process for the fences of per-CPU memory, unless the environment says something
/// about its sections. With one thread, this costs two system calls. Later, as [`get_pool`] would
/// do it, the kernel waits for some milliseconds.
fn register() {
    /// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`, and the same with `_RSEQ`.
    const COMMANDS: [c_int; 2] = [1 << 4, 1 << 8];
    // SAFETY: the name is a string. The calls have no conditions; what they refuse is found later.
    unsafe {
        if libc::getenv(c"CORELINE_RSEQ".as_ptr()).is_null() {
            for command in COMMANDS {
                libc::syscall(libc::SYS_membarrier, command, 0, 0);
            }
        }
    }
}

/// Makes the pool of per-CPU memory, without which the first lock that needs it ends the process if
/// there is no memory. So a lock of no use needs it now.
fn get_pool() {
    let lock = RawBiasedRwLock::new();
    let mut reads = 0;
    while reads < 1000 && !lock.is_biased() {
        lock.read();
        reads += 1;
    }
    for _ in 0..reads {
        // SAFETY: the lock was taken `reads` times.
        unsafe { lock.unlock_read() };
    }
}

/// More than [`get_ready`] allocates. Half a MiB was enough with 2 CPUs, and it grows with their
/// number.
const NEEDS: usize = 8 << 20;

/// Whether the process could map this many bytes just now. What then allocates ends the process if
/// there is no memory.
pub(crate) fn has_memory(bytes: usize) -> bool {
    let layout = Layout::from_size_align(bytes, PAGE).expect("a power of two");
    let mapped = Native::map(layout);
    // SAFETY: mapped just now.
    mapped.map(|mapped| unsafe { Native::unmap(mapped, layout) }).is_ok()
}

const PAGE: usize = 4096;

/// Far more than [`get_ready`] uses, for the program's allocator, and for handlers of signals.
const STACK: usize = 1 << 20;

/// Runs `f` on a stack of its own, if there is memory.
fn on_another_stack(f: extern "C" fn()) -> bool {
    let layout = const { Layout::from_size_align(STACK, PAGE) }.expect("a power of two");
    let Ok(stack) = Native::map(layout) else { return false };
    // SAFETY: the stack is the whole mapping, which ends at a multiple of 16, and is not used when
    // `f` has returned.
    unsafe {
        call_on(stack.add(STACK), f);
        Native::unmap(stack, layout);
    }
    true
}

/// # Safety
///
/// Below `top`, a multiple of 16, there is memory for the stack of `f`. `f` does not unwind.
#[unsafe(naked)]
unsafe extern "C" fn call_on(top: NonNull<u8>, f: extern "C" fn()) {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "mov sp, x0",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        "ret",
    );
}
