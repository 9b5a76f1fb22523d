//! The machine: its clock, and where a thread runs.

use coreline::world::{Clock, Native};

/// Returns the present time, in the unit of deadlines.
///
/// It is `CLOCK_MONOTONIC`, in nanoseconds. A deadline is such a time: `coreline_now() + 1000000`
/// is one millisecond from now. `coreline_from_timespec` converts a time of `clock_gettime`. Zero
/// is a deadline that has passed, and `UINT64_MAX` is one that does not come.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// safe in a forked child, whose clock is that of the parent.
#[unsafe(no_mangle)]
pub extern "C" fn coreline_now() -> u64 {
    Native::now().as_nanos()
}

/// Returns the number of the CPU that runs the calling thread.
///
/// The thread may run on another CPU when the call returns, unless it is pinned to one CPU.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe after
/// the first call in the process, which asks the dynamic loader. Fork: safe in a forked child after
/// such a call.
#[unsafe(no_mangle)]
pub extern "C" fn coreline_current_cpu() -> u32 {
    coreline::current_cpu().get()
}

/// Creates the tables that all locks share.
///
/// Without this call, the first thread that waits for a lock creates them, and allocates memory.
/// Call it once at the start of a program whose allocator locks, or whose signal handlers call
/// `coreline_mutex_lock_by`, `coreline_rwlock_read_by` or `coreline_rwlock_write_by`. Later calls
/// do nothing.
///
/// Errors: none, except `CORELINE_ERROR_PANIC`. If there is no memory, the process aborts.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has the tables of its parent.
#[unsafe(no_mangle)]
pub extern "C" fn coreline_prepare() -> crate::code::coreline_code_t {
    crate::boundary::boundary(|| {
        coreline::lock::prepare();
        Ok(())
    })
}
