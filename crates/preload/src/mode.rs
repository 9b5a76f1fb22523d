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
//! `pthread_create` tries again, and so does that of a child that another thread forks meanwhile.
//!
//! Until then, calls that find no free lock check it from time to time. These are calls in signal
//! handlers, and of threads that `pthread_create` has not made.

use core::alloc::Layout;
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr::{self, NonNull};
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering,
};
use core::time::Duration;

use coreline::lock::RawBiasedRwLock;
use coreline_world::{Clock, IndexBy, Memory, Native, Restartable, Signals, Sleep, Threads, Time};

use crate::next::Start;
use crate::{ALLOCATOR, keeping_errno, uncancelled};

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

/// The generation of the memory in which a thread makes it, or has made it; 0: none has begun. That
/// thread creates threads, which create threads. A child that is forked meanwhile, by another
/// thread, has the word of its parent, and begins again.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// The thread that makes it, by its own number; 0 before and after.
static MAKER: AtomicU32 = AtomicU32::new(0);

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

/// The time from one look at a lock to the next.
pub(crate) const LOOK: Duration = Duration::from_micros(50);

/// Long enough for a thread of the lowest priority to end.
pub(crate) const END: Duration = Duration::from_millis(2);

/// Waits for this long, without the state that all locks share.
pub(crate) fn pause(time: Duration) {
    let word = AtomicU32::new(0);
    Native::park(&word, 0, Some(Native::now() + time));
    Native::yield_now();
}

/// A thread that this library creates: the test of restartable sequences needs two, at most twice.
/// It counts for limits of threads until the kernel has removed it, which may be after its last
/// instruction. It runs at the lowest priority, so busy CPUs may delay it for long.
struct Own {
    /// The kernel's number of the thread; [`NONE`]; or [`NEW`] until the thread runs.
    id: AtomicI32,
    /// The thread's own number, which no other thread ever has.
    number: AtomicU32,
    start: AtomicPtr<c_void>,
    argument: AtomicPtr<c_void>,
}

const NONE: libc::pid_t = 0;
const NEW: libc::pid_t = -1;

static OWN: [Own; 4] = [const {
    let [start, argument] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];
    Own { id: AtomicI32::new(NONE), number: AtomicU32::new(0), start, argument }
}; 4];

/// Creates a thread of this library by `create`, and notes which one it is.
pub(crate) fn create_own(
    start: Start,
    argument: *mut c_void,
    create: impl FnOnce(Start, *mut c_void) -> c_int,
) -> c_int {
    // Relaxed, here and below: `create` orders the words before the thread.
    let relaxed = Ordering::Relaxed;
    let is_free = |own: &&Own| own.id.compare_exchange(NONE, NEW, relaxed, relaxed).is_ok();
    let Some(own) = OWN.iter().find(is_free) else { return create(start, argument) };
    own.start.store(start as *mut c_void, relaxed);
    own.argument.store(argument, relaxed);
    let result = create(run_own, ptr::from_ref(own).cast_mut().cast());
    if result != 0 {
        own.id.store(NONE, relaxed);
    }
    result
}

extern "C" fn run_own(own: *mut c_void) -> *mut c_void {
    // SAFETY: `create_own` gives one of these.
    let own = unsafe { &*own.cast::<Own>() };
    let relaxed = Ordering::Relaxed;
    // SAFETY: `create_own` has stored such a function. The call has no conditions.
    let (start, id) =
        unsafe { (mem::transmute::<*mut c_void, Start>(own.start.load(relaxed)), libc::gettid()) };
    let argument = own.argument.load(relaxed);
    own.number.store(Native::thread_id().get(), relaxed);
    own.id.store(id, relaxed);
    start(argument)
}

impl Own {
    /// Whether it may still count for limits of threads.
    fn is_there(&self) -> bool {
        let relaxed = Ordering::Relaxed;
        let id = self.id.load(relaxed);
        // The kernel sends nothing, and finds the thread for as long as the thread counts.
        // SAFETY: the calls have no conditions.
        let is_gone = || unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, 0) } != 0;
        if id > 0 && is_gone() {
            let _ = self.id.compare_exchange(id, NONE, relaxed, relaxed);
            return false;
        }
        id != NONE
    }
}

/// How long after the first `pthread_create` another one may wait for such a thread.
const PATIENCE: Duration = Duration::from_secs(10);

/// The end of this time, in ns of the monotonic clock.
static GONE_AT: AtomicU64 = AtomicU64::new(0);

/// Whether a thread that this library has created may still count for limits of threads.
pub(crate) fn may_linger() -> bool {
    // A child of a fork does not have its parent's threads, even those that had not run yet.
    let is_there = || {
        BEGUN.load(Ordering::Relaxed) == Native::generation().get() && OWN.iter().any(Own::is_there)
    };
    keeping_errno(is_there) && Native::now() < Time::from_nanos(GONE_AT.load(Ordering::Relaxed))
}

/// Whether the thread that the caller creates is one of this library. Another library may call
/// `pthread_create` for this one, with a function of its own. So the caller says it, and not what
/// the new thread runs.
pub(crate) fn creates_own() -> bool {
    let me = Native::thread_id().get();
    // Relaxed: a thread sees what it has written itself.
    let is_me = |number: &AtomicU32| number.load(Ordering::Relaxed) == me;
    is_me(&MAKER) || OWN.iter().any(|own| is_me(&own.number))
}

/// Makes what all locks share, unless a thread has begun to.
pub(crate) fn before_a_thread() {
    // Relaxed, here and below: the words order nothing; what is shared has orders of its own. But
    // the next thread that begins, if memory is short, writes `MAKER` after this one (Acquire and
    // Release).
    let relaxed = Ordering::Relaxed;
    let (me, seen) = (Native::generation().get(), BEGUN.load(relaxed));
    if IS_READY.load(relaxed) || seen == me {
        return;
    }
    if BEGUN.compare_exchange(seen, me, Ordering::Acquire, relaxed).is_err() {
        return;
    }
    let make = || {
        // Of the parent, which does not exist here.
        OWN.iter().for_each(|own| own.id.store(NONE, relaxed));
        MAKER.store(Native::thread_id().get(), relaxed);
        let is_made = has_memory(needs()) && on_another_stack(get_ready).is_some();
        MAKER.store(0, relaxed);
        match is_made {
            true => GONE_AT.store((Native::now() + PATIENCE).as_nanos(), relaxed),
            false => BEGUN.store(0, Ordering::Release),
        }
    };
    keeping_errno(|| uncancelled(make));
}

/// Sets a mode, unless another thread was faster and has set a later one.
pub(crate) fn set(mode: Mode) {
    MODE.fetch_max(mode as u8, Ordering::Relaxed);
}

/// Makes what all locks share.
fn get_ready() {
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

/// More bytes than [`get_ready`] allocates: with 2 CPUs a fifth of a MiB, with 384 one MiB. What it
/// only maps, it can do without: the memory of all CPUs, and the stacks of its threads.
fn needs() -> usize {
    const LEAST: usize = 8 << 20;
    const OF_A_CPU: usize = 2 << 10;
    // SAFETY: the call has no conditions.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(cpus).map_or(LEAST, |cpus| LEAST + cpus * OF_A_CPU)
}

/// Whether the process could map this many bytes just now. What then allocates ends the process if
/// there is no memory.
pub(crate) fn has_memory(bytes: usize) -> bool {
    let layout = Layout::from_size_align(bytes, PAGE).expect("a power of two");
    let mapped = Native::map(layout);
    // SAFETY: mapped just now.
    mapped.map(|mapped| unsafe { Native::unmap(mapped, layout) }).is_ok()
}

const PAGE: usize = 4096;

/// Far more than [`get_ready`] uses, for the program's allocator.
const STACK: usize = 1 << 20;

/// Runs `f` on a stack of its own, if there is memory. Signals are blocked meanwhile: a handler may
/// read the stack up to the end of the thread's own one, as those of garbage collectors do that
/// stop threads. So `f` must not wait for long.
pub(crate) fn on_another_stack<T>(f: fn() -> T) -> Option<T> {
    extern "C" fn run<T>(call: *mut c_void) {
        // SAFETY: the value of `on_another_stack`, which does not use it meanwhile.
        let (f, result) = unsafe { &mut *call.cast::<(fn() -> T, Option<T>)>() };
        *result = Some(f());
    }
    let layout = const { Layout::from_size_align(STACK, PAGE) }.expect("a power of two");
    let stack = Native::map(layout).ok()?;
    let mut call = (f, None);
    let held = Native::hold();
    // SAFETY: the stack is the whole mapping, which ends at a multiple of 16, and is not used when
    // `run` has returned.
    unsafe {
        call_on(stack.add(STACK), run::<T>, (&raw mut call).cast());
        drop(held);
        Native::unmap(stack, layout);
    }
    call.1
}

/// # Safety
///
/// Below `top`, a multiple of 16, there is memory for the stack of `f`, which may be called with
/// `argument`. `f` does not unwind.
#[unsafe(naked)]
unsafe extern "C" fn call_on(
    top: NonNull<u8>,
    f: extern "C" fn(*mut c_void),
    argument: *mut c_void,
) {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rdx",
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
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        "ret",
    );
}
