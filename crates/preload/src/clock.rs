//! Deadlines of the C library: a time of the real-time or of the monotonic clock.

use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use core::time::Duration;

use coreline_world::{Clock, Native, Time};
use libc::{clockid_t, timespec};

// The function by which this library reads clocks, hidden from others. A preloaded library such as
// libfaketime has this function, too, and its time may stand still. A reader then would never
// learn that it has waited long enough for a writer that waits.
hidden! { "clock_gettime" => get_time }

/// The function of this name in the C library, which calls no other library. Null until
/// [`find`], or if there is none.
static OF_LIBC: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Looks it up while the dynamic linker loads this library.
pub(crate) fn find() {
    // SAFETY: both names are strings. The library is there, so nothing is loaded.
    let found = unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if libc.is_null() {
            return;
        }
        libc::dlsym(libc, c"clock_gettime".as_ptr())
    };
    OF_LIBC.store(found, Ordering::Relaxed);
}

extern "C" fn get_time(clock: clockid_t, at: *mut timespec) -> c_int {
    let found = OF_LIBC.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: as the function of this name, whose callers promise what it asks for.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, at) as c_int };
    }
    // SAFETY: the C function of this name has this type; and as before.
    unsafe {
        let get: unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int = mem::transmute(found);
        get(clock, at)
    }
}

/// The real-time clock may be set during a wait. So a wait for a time of that clock reads the clock
/// again after this interval.
const LOOK: Duration = Duration::from_secs(1);

/// When a call gives up.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// It waits for as long as it takes.
    Never,
    /// A time of the monotonic clock, which is the lock's own.
    Monotonic(Time),
    /// A time of the real-time clock, in ns since 1970.
    RealTime(u64),
}

impl Until {
    /// # Errors
    ///
    /// `EINVAL` for another clock, and for a time that is none, as from glibc, which looks at both
    /// before it looks at the lock.
    ///
    /// # Safety
    ///
    /// `at` has a time, or is null if there is no limit.
    pub(crate) unsafe fn new(clock: clockid_t, at: *const timespec) -> Result<Self, c_int> {
        // SAFETY: the caller's promise.
        let Some(at) = (unsafe { at.as_ref() }) else {
            return Ok(Until::Never);
        };
        let nanos = u64::try_from(at.tv_nsec).ok().filter(|&nanos| nanos < 1_000_000_000);
        let nanos = nanos.ok_or(libc::EINVAL)?;
        // A time before the clock's beginning is over, and one beyond 64 bits of ns never comes.
        let seconds = u64::try_from(at.tv_sec).unwrap_or(0);
        let at = match at.tv_sec {
            ..0 => 0,
            _ => seconds.saturating_mul(1_000_000_000).saturating_add(nanos),
        };
        match clock {
            libc::CLOCK_MONOTONIC => Ok(Until::Monotonic(Time::from_nanos(at))),
            libc::CLOCK_REALTIME => Ok(Until::RealTime(at)),
            _ => Err(libc::EINVAL),
        }
    }

    /// Calls `take` with deadlines until it takes the lock or fails, or the time has come. Returns
    /// whether it took the lock. `take` must look at the lock even if its deadline is over.
    pub(crate) fn wait<E>(
        self,
        mut take: impl FnMut(Option<Time>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        match self {
            Until::Never => take(None),
            Until::Monotonic(at) => take(Some(at)),
            Until::RealTime(at) => loop {
                let left = Duration::from_nanos(at.saturating_sub(real_time()));
                if take(Some(Native::now() + left.min(LOOK)))? {
                    return Ok(true);
                }
                if real_time() >= at {
                    return Ok(false);
                }
            },
        }
    }
}

fn real_time() -> u64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a live value. The clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    let [seconds, nanos] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
