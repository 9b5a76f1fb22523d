//! Looks at threads of the program from outside: whether they sleep, and what they are doing.
//!
//! The simulator runs a program's code as coroutines. Code that waits for something outside of its
//! machine, or computes without end, never comes back to the simulator. So another thread
//! interrupts it by a signal from time to time. The handler runs on the interrupted thread and on
//! its stack, so it may leave the interrupted code for good, by a switch to another coroutine.
//!
//! The signal is `SIGURG`, which does nothing by default. The signals of this module carry a value
//! of their own. The calling program's own handler gets all other signals, including those that a
//! runtime in this process sends to its threads.

use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use core::time::Duration;
use std::fs;
use std::sync::Once;

/// Runs in a signal handler, on the thread that is looked at. It may be on any stack of the
/// program.
type Look = fn();

/// The function that looks, as a pointer; null before the first.
static LOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// The handler that was there before ours. Written once, before ours is installed.
static mut BEFORE: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

/// Installs the function that [`HostThread::look`] calls. A process has one, which is the first.
/// It must be async-signal-safe, except that it need not return.
///
/// Returns whether threads can be looked at. They cannot under Miri, or if the host refuses a
/// handler.
pub fn install(look: Look) -> bool {
    if cfg!(miri) {
        return false;
    }
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: zeros are a valid action; `BEFORE` is written before a signal can reach the
        // handler, which alone reads it.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            // The handler may not return: then the next signal must not wait for its end.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
            let before = (&raw mut BEFORE).cast::<libc::sigaction>();
            if libc::sigaction(libc::SIGURG, ptr::null(), before) == 0 {
                // Release, partner: the handler's acquire, which then reads `BEFORE`.
                LOOK.store(look as *mut (), Ordering::Release);
                libc::sigaction(libc::SIGURG, &raw const action, ptr::null_mut());
            }
        }
    });
    // Acquire, partner: the release above.
    !LOOK.load(Ordering::Acquire).is_null()
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler of this kind both. A queued signal has a value.
    let is_ours = unsafe {
        let is_queued = (*info).si_code == libc::SI_QUEUE && (*info).si_pid() == libc::getpid();
        is_queued && (*info).si_value().sival_ptr.cast_const() == ours()
    };
    // Acquire, partner: the release of `install`.
    let look = LOOK.load(Ordering::Acquire);
    if is_ours && !look.is_null() {
        // SAFETY: `install` stored a `Look`, which has the size of a pointer.
        let look = unsafe { mem::transmute::<*mut (), Look>(look) };
        // SAFETY: the address of this thread's `errno`, which the interrupted code may look at.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            look();
            *errno = before;
        }
        return;
    }
    // SAFETY: written before this handler was installed.
    let before = unsafe { &*(&raw const BEFORE).cast::<libc::sigaction>() };
    if ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
        // SAFETY: the arguments of a handler, and the action that was there before.
        unsafe { super::overflow::call(signal, info, context, before) };
    }
}

/// The value of our signals: an address that no other code of the process knows.
fn ours() -> *const libc::c_void {
    (&raw const LOOK).cast()
}

/// The head of what the kernel says of a queued signal: three numbers, and then these (the kernel's
/// `siginfo_t`, its part `_rt`). libc reads these by functions, and has none that write them.
#[repr(C)]
struct Queued {
    numbers: [libc::c_int; 3],
    of_sender: OfSender,
}

#[repr(C)]
struct OfSender {
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: *const libc::c_void,
}

const _: () = assert!(size_of::<Queued>() <= size_of::<libc::siginfo_t>());
const _: () = assert!(align_of::<Queued>() <= align_of::<libc::siginfo_t>());

/// A thread of this process, as the host knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostThread(libc::pid_t);

impl HostThread {
    /// Returns the calling thread.
    pub fn current() -> HostThread {
        // SAFETY: asks for a number.
        HostThread(unsafe { libc::gettid() })
    }

    /// Calls the [installed](install) function on the thread, soon. Does nothing if the thread has
    /// ended.
    pub fn look(self) {
        // SAFETY: zeros are valid for numbers and pointers, and the assertions above say that
        // `Queued` fits. Sends this process' thread a signal that does nothing without a handler.
        unsafe {
            let (pid, uid) = (libc::getpid(), libc::getuid());
            let mut info: libc::siginfo_t = mem::zeroed();
            (info.si_signo, info.si_code) = (libc::SIGURG, libc::SI_QUEUE);
            let of_sender = &raw mut (*(&raw mut info).cast::<Queued>()).of_sender;
            of_sender.write(OfSender { pid, uid, value: ours() });
            let info = &raw const info;
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, self.0, libc::SIGURG, info);
        }
    }

    /// Returns whether the thread waits in the kernel. A thread that waits for a CPU does not
    /// count. Nor does a thread that writes, because it may wait for a reader such as a paused
    /// pager.
    pub fn is_asleep(self) -> bool {
        self.waits() && !self.writes()
    }

    /// Whether it waits to write. Unknown, and so no, where the kernel does not show system calls.
    fn writes(self) -> bool {
        let line = fs::read_to_string(format!("/proc/self/task/{}/syscall", self.0));
        let call = line.ok().and_then(|line| line.split(' ').next()?.parse().ok());
        call.is_some_and(|call: libc::c_long| [libc::SYS_write, libc::SYS_writev].contains(&call))
    }

    fn waits(self) -> bool {
        // The state is behind the name, which stands in parentheses and may have any characters.
        let line = fs::read_to_string(format!("/proc/self/task/{}/stat", self.0));
        line.is_ok_and(|line| {
            line.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['S', 'D']))
        })
    }
}

/// Returns the CPU time of the calling thread so far. Async-signal-safe.
pub fn computed() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes what it is given.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if failed != 0 {
        return Duration::ZERO;
    }
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use std::io::{self, Write as _};
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    thread_local! {
        static LOOKED: Cell<u32> = const { Cell::new(0) };
    }

    thread_local! {
        static OTHERS: Cell<u32> = const { Cell::new(0) };
    }

    extern "C" fn others(_: libc::c_int) {
        OTHERS.set(OTHERS.get() + 1);
    }

    #[test]
    fn a_thread_is_looked_at_from_outside() {
        if cfg!(miri) {
            return;
        }
        // SAFETY: the handler only counts.
        unsafe { libc::signal(libc::SIGURG, others as *const () as usize) };
        if !install(|| LOOKED.set(LOOKED.get() + 1)) {
            return;
        }
        let ((sender, receiver), (told, tells)) = (channel(), channel());
        let (waiter, waits) = channel::<()>();
        let thread = thread::spawn(move || {
            sender.send(HostThread::current()).unwrap();
            _ = waits.recv();
            told.send(LOOKED.get()).unwrap();
        });
        let host = receiver.recv().unwrap();
        while !host.is_asleep() {
            thread::yield_now();
        }
        assert!(!HostThread::current().is_asleep());
        host.look();
        HostThread::current().look();
        drop(waiter);
        assert_eq!(tells.recv().unwrap(), 1);
        thread.join().unwrap();
        host.look();
        assert!(!host.is_asleep(), "it has ended");
        assert_eq!(LOOKED.get(), 1);
        let before = computed();
        while computed() == before {}
        assert_eq!(OTHERS.get(), 0);
        // SAFETY: there is a handler.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), libc::SIGURG) };
        assert_eq!((LOOKED.get(), OTHERS.get()), (1, 1), "a signal of the program's own");
    }

    #[test]
    fn a_thread_that_writes_is_not_asleep() {
        if cfg!(miri) || !Path::new("/proc/self/syscall").exists() {
            return;
        }
        let (mut reader, mut writer) = io::pipe().unwrap();
        let (sender, receiver) = channel();
        let thread = thread::spawn(move || {
            sender.send(HostThread::current()).unwrap();
            // More than a pipe holds.
            writer.write_all(&[0; 2 << 20])
        });
        let host = receiver.recv().unwrap();
        while !(host.waits() && host.writes()) {
            thread::yield_now();
        }
        assert!(!host.is_asleep());
        io::copy(&mut reader, &mut io::sink()).unwrap();
        thread.join().unwrap().unwrap();
    }
}
