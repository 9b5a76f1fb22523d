//! A query for the rseq registrations of another process's threads.

use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// `PTRACE_GET_RSEQ_CONFIGURATION`, from Linux 5.13 on.
const GET_RSEQ_CONFIGURATION: u32 = 0x420f;

/// A thread that does not stop in this time sleeps in the kernel, where no signal reaches it.
const PATIENCE: Duration = Duration::from_secs(1);

/// `struct ptrace_rseq_configuration`.
#[repr(C)]
struct Configuration {
    area: u64,
    size: u32,
    signature: u32,
    flags: u32,
    pad: u32,
}

/// A thread, and the number of bytes of its memory that are registered for rseq.
#[derive(Debug)]
pub struct ThreadRegistration {
    /// The thread's number.
    pub thread: u32,
    /// The number of registered bytes, or the reason why it is unknown. `None` if no bytes are
    /// registered.
    pub bytes: io::Result<Option<u32>>,
}

/// Returns the rseq registrations of another process's threads, according to the kernel.
///
/// The caller needs the right to trace the process. Each thread is stopped for a moment, one after
/// the other. Signals during the stop reach the thread, and an already stopped thread stays
/// stopped. But a system call that a stop interrupts, such as `epoll_wait`, may return `EINTR`
/// (signal(7) lists these calls). If the caller dies half-way, the kernel lets the thread continue.
///
/// A thread that ends during the query is left out. Do not query a child of the caller for which
/// another thread waits, because that wait would report the stop.
///
/// # Errors
///
/// An error if the process's threads cannot be listed. The error for a single thread is in its
/// entry: `EPERM`, if the caller may not trace it.
pub fn rseq_registrations(pid: u32) -> io::Result<Vec<ThreadRegistration>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = entry?.file_name();
        let Some(thread) = name.to_str().and_then(|it| it.parse().ok()) else { continue };
        // By a thread that ends immediately: what it could not let go, the kernel lets go then.
        // Otherwise a thread that did not stop in time would stay this thread's:
        //
        //   It:     waits in the kernel, and is given up
        //   Target: another of its threads calls exec: it kills this one, and waits until its
        //           tracer has taken note
        //   This:   asks for the next thread: waits until the exec is over      <- for ever
        let bytes = thread::scope(|scope| {
            let asks = thread::Builder::new().spawn_scoped(scope, || registration(thread))?;
            asks.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        });
        if !bytes.as_ref().is_err_and(|error| may_have_ended(error) && has_ended(pid, thread)) {
            found.push(ThreadRegistration { thread: thread as u32, bytes });
        }
    }
    found.sort_by_key(|it| it.thread);
    Ok(found)
}

/// Whether this may be said of a thread that has ended: of one that its process has not taken note
/// of, the kernel says that it may not be traced.
fn may_have_ended(error: &io::Error) -> bool {
    let codes = [libc::ESRCH, libc::EPERM, libc::ECHILD];
    codes.map(Some).contains(&error.raw_os_error())
}

fn has_ended(pid: u32, thread: libc::pid_t) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")) else {
        return true;
    };
    // Behind the name, which may have anything in it.
    let state = stat.rsplit_once(") ").and_then(|(_, after)| after.chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// The calling thread ends soon: see above.
fn registration(thread: libc::pid_t) -> io::Result<Option<u32>> {
    // SAFETY: these two take no pointers. The thread runs on until it is interrupted.
    unsafe {
        checked(libc::ptrace(libc::PTRACE_SEIZE, thread, NOTHING, NOTHING))?;
        checked(libc::ptrace(libc::PTRACE_INTERRUPT, thread, NOTHING, NOTHING))?;
    }
    let signal = stopped(thread)?;
    let asked = configuration(thread);
    // SAFETY: the thread is stopped; it gets the signal that stopped it, if one did.
    unsafe {
        checked(libc::ptrace(
            libc::PTRACE_DETACH,
            thread,
            NOTHING,
            signal as usize as *mut c_void,
        ))?;
    }
    let configuration = asked?;
    Ok((configuration.area != 0).then_some(configuration.size))
}

const NOTHING: *mut c_void = ptr::null_mut();

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Waits until a thread that was interrupted has stopped, and gives the signal that it stopped
/// for; 0 if it was the interrupt, or a stop of the whole process.
///
/// It looks, and takes nothing: a caller that dies then loses no signal, and a child of the caller
/// that ends is still there for its own wait.
fn stopped(thread: libc::pid_t) -> io::Result<c_int> {
    const HOW: c_int =
        libc::WSTOPPED | libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let since = Instant::now();
    loop {
        // SAFETY: all of it may be zero, which says that nothing has happened.
        let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
        // SAFETY: the structure is live.
        let waited =
            unsafe { libc::waitid(libc::P_PID, thread.cast_unsigned(), &raw mut info, HOW) };
        if waited == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: zero, or what the kernel says of a child; as for the status.
        if unsafe { info.si_pid() } == 0 {
            if since.elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        if !matches!(info.si_code, libc::CLD_TRAPPED | libc::CLD_STOPPED) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // SAFETY: as before.
        let status = unsafe { info.si_status() };
        return Ok(if status >> 8 == libc::PTRACE_EVENT_STOP { 0 } else { status & 0x7f });
    }
}

fn configuration(thread: libc::pid_t) -> io::Result<Configuration> {
    let mut configuration = Configuration { area: 0, size: 0, signature: 0, flags: 0, pad: 0 };
    let size = mem::size_of::<Configuration>();
    // SAFETY: the kernel writes at most this many bytes to the value, which is live.
    let written = unsafe {
        libc::ptrace(
            GET_RSEQ_CONFIGURATION as _,
            thread,
            size as *mut c_void,
            (&raw mut configuration).cast::<c_void>(),
        )
    };
    checked(written).map(|_| configuration)
}

// Miri has no processes.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A child is asked twice, so it was let go the first time; then it ends as it would have.
    #[test]
    fn a_child_is_asked_and_goes_on() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        for _ in 0..2 {
            let threads = rseq_registrations(child.id()).unwrap();
            assert_eq!(threads.len(), 1);
            assert_eq!(threads[0].thread, child.id());
            match &threads[0].bytes {
                Ok(bytes) => assert!(bytes.is_none_or(|bytes| bytes >= 20), "{bytes:?}"),
                // A sandbox, or a kernel before 5.13.
                Err(error) => {
                    let known = [libc::EPERM, libc::EIO, libc::ENOSYS];
                    assert!(known.map(Some).contains(&error.raw_os_error()), "{error}");
                }
            }
        }
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert!(rseq_registrations(child.id()).is_err(), "it has gone");
    }

    /// Shares its parent's memory, as after vfork, and runs on a stack of its own.
    extern "C" fn sleeps(_: *mut c_void) -> c_int {
        let pause = libc::timespec { tv_sec: 1, tv_nsec: 500_000_000 };
        // SAFETY: reads a live structure.
        unsafe { libc::nanosleep(&raw const pause, ptr::null_mut()) }
    }

    /// A thread that waits for a child, as after vfork, stops only when the child has ended. So the
    /// caller gives up on such a thread.
    #[test]
    fn a_thread_that_does_not_stop_goes_on_and_is_left_to_its_own_waiter() {
        let mut stack = vec![0u128; 4096];
        let top = stack.as_mut_ptr_range().end.cast::<c_void>();
        let how = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: between fork and _exit the child makes two system calls, and the stack is its own
        // copy, which nothing else uses.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::clone(sleeps, top, how, ptr::null_mut());
                libc::_exit(7);
            }
            child
        };
        assert!(child > 0);
        let asked = rseq_registrations(child.cast_unsigned()).unwrap();
        assert!(asked.len() <= 1, "{asked:?}");
        let mut status = 0;
        // SAFETY: the status is a live word.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    }

    #[test]
    fn the_own_process_cannot_be_asked() {
        for thread in rseq_registrations(std::process::id()).unwrap() {
            assert_eq!(thread.bytes.unwrap_err().raw_os_error(), Some(libc::EPERM));
        }
    }
}
