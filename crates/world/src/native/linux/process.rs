//! Whether the threads of another process are registered for rseq.

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

/// A thread, and how many bytes of its memory are registered for rseq; `None` if none are.
#[derive(Debug)]
pub struct ThreadRegistration {
    /// The thread's number.
    pub thread: u32,
    /// The bytes; or why they are not known.
    pub bytes: io::Result<Option<u32>>,
}

/// Asks the kernel which threads of another process are registered for rseq.
///
/// It needs the right to trace the process. Each thread is stopped for a moment, one after the
/// other, and goes on as it was: signals that come meanwhile reach it, and one that is stopped
/// stays so. Where the caller ends half-way, the kernel lets the thread go on.
///
/// A thread that ends meanwhile is left out.
///
/// # Errors
///
/// If the process's threads cannot be listed. What went wrong with a thread stands beside it:
/// `EPERM`, if the caller may not trace it.
pub fn rseq_registrations(pid: u32) -> io::Result<Vec<ThreadRegistration>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = entry?.file_name();
        let Some(thread) = name.to_str().and_then(|it| it.parse().ok()) else { continue };
        let bytes = registration(thread);
        let is_gone = |error: &io::Error| error.raw_os_error() == Some(libc::ESRCH);
        if !bytes.as_ref().is_err_and(is_gone) {
            found.push(ThreadRegistration { thread: thread as u32, bytes });
        }
    }
    found.sort_by_key(|it| it.thread);
    Ok(found)
}

fn registration(thread: libc::pid_t) -> io::Result<Option<u32>> {
    // SAFETY: these two take no pointers. The thread runs on until it is interrupted.
    unsafe {
        checked(libc::ptrace(libc::PTRACE_SEIZE, thread, NOTHING, NOTHING))?;
        if let Err(error) = checked(libc::ptrace(libc::PTRACE_INTERRUPT, thread, NOTHING, NOTHING))
        {
            // It has ended: its tracer is told of it, and takes note.
            libc::waitpid(thread, ptr::null_mut(), libc::__WALL | libc::WNOHANG);
            return Err(error);
        }
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
fn stopped(thread: libc::pid_t) -> io::Result<c_int> {
    let since = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: the status is a live word.
        match unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG) } {
            -1 => return Err(io::Error::last_os_error()),
            // The kernel detaches from it when this process ends; nothing else can.
            0 if since.elapsed() > PATIENCE => return Err(io::ErrorKind::TimedOut.into()),
            0 => thread::sleep(Duration::from_millis(1)),
            _ if !libc::WIFSTOPPED(status) => {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            _ if status >> 16 == libc::PTRACE_EVENT_STOP => return Ok(0),
            _ => return Ok(libc::WSTOPSIG(status)),
        }
    }
}

fn configuration(thread: libc::pid_t) -> io::Result<Configuration> {
    let mut configuration = Configuration { area: 0, size: 0, signature: 0, flags: 0, pad: 0 };
    let size = mem::size_of::<Configuration>();
    // SAFETY: the kernel writes at most so many bytes to the value, which is live.
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

    #[test]
    fn the_own_process_cannot_be_asked() {
        for thread in rseq_registrations(std::process::id()).unwrap() {
            assert_eq!(thread.bytes.unwrap_err().raw_os_error(), Some(libc::EPERM));
        }
    }
}
