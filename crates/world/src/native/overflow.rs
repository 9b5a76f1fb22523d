//! A hook with which a program survives a stack overflow on a stack that the program manages
//! itself.
//!
//! The simulator runs each simulated thread as a coroutine. A coroutine that overflows its stack
//! touches the guard page below, and the kernel sends `SIGSEGV`. The handler in this module runs on
//! the thread's alternate stack. It asks a function of the program whether the program knows that
//! page. If so, the thread continues in another function, on another stack, and never returns to
//! the interrupted code. All other faults are passed to the previous handler.
//!
//! The interrupted work of the overflowed code stays half-done, locks that it held stay locked, and
//! its destructors never run.

use core::cell::Cell;
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Once;

/// The code and stack with which a thread continues after a stack overflow.
#[derive(Debug, Clone, Copy)]
pub struct Rescue {
    /// The top of the new stack. It is a multiple of 64, with enough room below for `go_on`.
    pub stack: usize,
    /// The function with which the thread continues. It must not return, and nothing may unwind out
    /// of it.
    pub go_on: extern "C" fn() -> !,
}

/// Knows the guard pages: gets the address that was touched. Runs in a signal handler, on the
/// thread that faulted.
type Rescuer = fn(address: usize) -> Option<Rescue>;

/// The rescuer, as a pointer, or null if none was set.
static RESCUER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// The previous handler. Written once, before our handler is installed.
static mut BEFORE: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

/// Bytes of an alternate stack, for a thread that has none.
const ALTERNATE: usize = 64 << 10;

/// Installs `rescuer` for faults of the calling thread, and of all other threads that have an
/// alternate signal stack. Threads of the standard library have such a stack.
///
/// A process has one rescuer, which is the first rescuer that was installed. It must be
/// async-signal-safe. It must return `Some` only for a fault of the calling thread on a stack that
/// may be abandoned.
///
/// Returns whether overflows will be caught. Overflows are not caught under Miri, which has no
/// signals, nor if the host refuses a handler or an alternate stack.
pub fn catch(rescuer: Rescuer) -> bool {
    if cfg!(miri) || !has_alternate_stack() {
        return false;
    }
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: zeros are a valid action; `BEFORE` is written before any thread can fault into
        // the handler, which alone reads it.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let before = (&raw mut BEFORE).cast::<libc::sigaction>();
            if libc::sigaction(libc::SIGSEGV, ptr::null(), before) == 0 {
                // Release, partner: the handler's acquire, which then reads `BEFORE`.
                RESCUER.store(rescuer as *mut (), Ordering::Release);
                libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut());
            }
        }
    });
    // Acquire, partner: the release above.
    !RESCUER.load(Ordering::Acquire).is_null()
}

/// Gives the calling thread an alternate signal stack, if it has none.
fn has_alternate_stack() -> bool {
    thread_local! {
        static HAS: Cell<bool> = const { Cell::new(false) };
    }
    if HAS.get() {
        return true;
    }
    // SAFETY: zeros are a valid description; a fresh one is of memory that is never freed.
    let has = unsafe {
        let mut now: libc::stack_t = mem::zeroed();
        libc::sigaltstack(ptr::null(), &raw mut now) == 0
            && (now.ss_flags & libc::SS_DISABLE == 0 || {
                let memory = Box::leak(vec![0_u8; ALTERNATE].into_boxed_slice());
                now.ss_sp = memory.as_mut_ptr().cast();
                now.ss_size = ALTERNATE;
                now.ss_flags = 0;
                libc::sigaltstack(&raw const now, ptr::null_mut()) == 0
            })
    };
    HAS.set(has);
    has
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // Acquire, partner: the release of `catch`.
    let rescuer = RESCUER.load(Ordering::Acquire);
    // SAFETY: the kernel gives a handler of this kind both; a fault has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    if !rescuer.is_null() {
        // SAFETY: `catch` stored a `Rescuer`, which has the size of a pointer.
        let rescuer = unsafe { mem::transmute::<*mut (), Rescuer>(rescuer) };
        if let Some(rescue) = rescuer(address) {
            // SAFETY: this is the context of the code that faulted, to which we return.
            unsafe { go_on(context.cast(), rescue) };
            return;
        }
    }
    // SAFETY: written before this handler was installed.
    unsafe { pass_on(signal, info, context, &*(&raw const BEFORE).cast::<libc::sigaction>()) };
}

/// Has the interrupted code go on as `rescue` says, as if it had called the function there. On
/// processors other than these the fault comes again, without this handler.
///
/// # Safety
///
/// `context` is that of a signal handler that returns next.
unsafe fn go_on(context: *mut libc::ucontext_t, rescue: Rescue) {
    // SAFETY: the caller promises a handler's context, which is live until the handler returns.
    #[allow(unused, reason = "other processors")]
    let registers = unsafe { &mut (*context).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    {
        let registers = &mut registers.gregs;
        registers[libc::REG_RIP as usize] = rescue.go_on as usize as i64;
        // A function is entered with its return address on the stack.
        let top = rescue.stack - size_of::<usize>();
        registers[libc::REG_RSP as usize] = top.cast_signed() as i64;
        registers[libc::REG_RBP as usize] = 0;
        // The direction flag is clear at a function's entry.
        registers[libc::REG_EFL as usize] &= !(1 << 10);
    }
    #[cfg(target_arch = "aarch64")]
    {
        registers.pc = rescue.go_on as usize as u64;
        registers.sp = rescue.stack as u64;
        (registers.regs[29], registers.regs[30]) = (0, 0);
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    // SAFETY: sets a signal's action to its default.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL)
    };
}

/// Does what would have been done without us.
///
/// # Safety
///
/// The arguments of a signal handler, and the action that was there before.
unsafe fn pass_on(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    before: &libc::sigaction,
) {
    match before.sa_sigaction {
        // The fault comes again when this returns, and then ends the process.
        // SAFETY: sets a signal's action to what it was.
        libc::SIG_DFL | libc::SIG_IGN => unsafe {
            libc::sigaction(signal, before, ptr::null_mut());
        },
        // SAFETY: the caller's promises; the action has a handler.
        _ => unsafe { call(signal, info, context, before) },
    }
}

/// Calls the handler that an action has.
///
/// # Safety
///
/// The arguments of a signal handler, and an action that is neither the default nor to ignore.
pub(super) unsafe fn call(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    action: &libc::sigaction,
) {
    let handler = action.sa_sigaction;
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        type Full = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: an action with this flag has a handler of this type.
        let handler = unsafe { mem::transmute::<usize, Full>(handler) };
        handler(signal, info, context);
    } else {
        type Short = extern "C" fn(libc::c_int);
        // SAFETY: an action without the flag has a handler of this type.
        let handler = unsafe { mem::transmute::<usize, Short>(handler) };
        handler(signal);
    }
}
