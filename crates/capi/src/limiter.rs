//! Limits on the rate of an event.

use core::mem::MaybeUninit;
use core::time::Duration;

use coreline::limit::{LimitError, RateLimiter, Refused};

use crate::boundary;
use crate::code::coreline_code_t as Code;
use crate::handle::{create, destroy, opaque};
use crate::with::with;

/// A limit on the rate of permits that all threads together take.
pub struct coreline_limiter_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_limiter_t, RateLimiter, b"-limiter");

impl From<LimitError> for Code {
    fn from(_: LimitError) -> Self {
        Code::CORELINE_ERROR_ARGUMENT
    }
}

/// Creates a limiter, which is full.
///
/// The limiter earns `permits` in each period of `per` nanoseconds, and holds at most `burst`. In
/// any interval, at most `burst` permits pass, plus those that are earned in the interval, for any
/// number of CPUs. The rate is rounded down, by at most 0.1 % up to 10^9 permits per second, and by
/// at most 1 % above that. If the rate is at least 100,000 per second and the burst large enough,
/// each CPU takes a batch of permits at a time. If there is no memory for the limiter, the process
/// aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned, a number is 0,
/// the rate is above 10^10 per second, or a permit or the burst takes more than 146 years to earn;
/// at rates above a million per second, the limit for the burst is shorter, but at least 52 days),
/// `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_limiter_create(
    permits: u64,
    per: u64,
    burst: u64,
    out: *mut *mut coreline_limiter_t,
) -> Code {
    with!([out out] { create(RateLimiter::new(permits, Duration::from_nanos(per), burst)?, out) })
}

/// Destroys a limiter.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: no other thread may use the limiter during the call or after it. Signals: no signal
/// handler may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_limiter_destroy(limiter: *mut coreline_limiter_t) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { destroy(limiter) }
}

/// Takes permits, if there are enough of them now.
///
/// If there are fewer than `permits` now, the call takes none and returns `CORELINE_BUSY`. Then it
/// writes to `after` the number of nanoseconds until there are enough, unless other threads take
/// them. Otherwise it does not change `after`. `after` may be null. No call waits. Wait as long as
/// `after` says before you ask again, because a call that finds too few permits uses a cache line
/// that all CPUs share. The limiter is not fair: threads that take single permits can starve a
/// thread that takes many. A permit orders no other memory accesses.
///
/// The clock is `CLOCK_MONOTONIC`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (`permits` is
/// above the number that `coreline_limiter_capacity` reports, or `after` is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the limiter, with the same permits, so the two together let twice
/// as many through. If another thread was in a call at the time of the fork, the child's threads
/// may have to take permits singly on the CPU of that thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_limiter_try_acquire(
    limiter: *const coreline_limiter_t,
    permits: u64,
    after: *mut u64,
) -> Code {
    with!([handle limiter] {
        let after = if after.is_null() {
            None
        } else {
            // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
            Some(unsafe { boundary::out(after) }?)
        };
        limiter.try_acquire_n(permits).map_err(|refused| match refused {
            Refused::NotYet(not_yet) => {
                let nanos = u64::try_from(not_yet.after.as_nanos()).unwrap_or(u64::MAX);
                after.map(|after| after.write(nanos));
                Code::CORELINE_BUSY
            }
            Refused::Never { .. } => Code::CORELINE_ERROR_ARGUMENT,
        })
    })
}

/// Reports the maximum number of permits that one call can take.
///
/// It is the burst, less the permits that CPUs may keep for themselves. It is at least fifteen
/// sixteenths of the burst.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned),
/// `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_limiter_capacity(
    limiter: *const coreline_limiter_t,
    out: *mut u64,
) -> Code {
    with!([handle limiter, out out] { out.write(limiter.capacity()); })
}
