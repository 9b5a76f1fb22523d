//! Pools of per-CPU memory.

use core::mem::MaybeUninit;

use coreline::IndexBy;
use coreline::percpu::{PerCpuPool, PoolError, PoolOptions};

use crate::boundary::{Outcome, boundary};
use crate::code::coreline_code_t as Code;
use crate::handle::{self, create, opaque};
use crate::with::with;

/// A pool from which counters and per-CPU words get their memory.
pub struct coreline_pool_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_pool_t, PerCpuPool, b"percpool");

/// Indexed by the CPU number, on pages of the usual size, not checked.
pub const CORELINE_POOL_DEFAULT: u32 = 0;
/// The kernel's concurrency ID selects a thread's slot. Not every kernel has such IDs.
pub const CORELINE_POOL_BY_KERNEL_CID: u32 = 1;
/// Memory is on huge pages.
pub const CORELINE_POOL_HUGE_PAGES: u32 = 2;
/// The pool detects writes to memory of objects that were destroyed.
pub const CORELINE_POOL_CHECKED: u32 = 4;

const FLAGS: u32 = CORELINE_POOL_DEFAULT
    | CORELINE_POOL_BY_KERNEL_CID
    | CORELINE_POOL_HUGE_PAGES
    | CORELINE_POOL_CHECKED;

/// The pool of this handle, or the process's own if it is null.
///
/// # Safety
///
/// As [`handle::get`].
pub(crate) unsafe fn pool_or_global(pool: *const coreline_pool_t) -> Result<PerCpuPool, Code> {
    if pool.is_null() {
        return Ok(PerCpuPool::global(IndexBy::Cpu)?);
    }
    // SAFETY: the caller's promise.
    unsafe { handle::get(pool) }.cloned()
}

/// Creates a pool.
///
/// `flags` is `CORELINE_POOL_DEFAULT`, or the bitwise or of flags. `CORELINE_POOL_BY_KERNEL_CID`
/// selects slots by the kernel's concurrency ID, which is below the number of CPUs that the process
/// may use. `CORELINE_POOL_HUGE_PAGES` uses huge pages, if the machine has free ones.
/// `CORELINE_POOL_CHECKED` detects writes to memory of objects that were destroyed.
/// `coreline_pool_destroy` reports them. A checked pool is slower and uses more memory.
///
/// A program needs no pool of its own, because functions that take a pool accept null, which means
/// the pool of the process. If there is no memory for the pool's own structure, the process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (unknown flags, or `*out` is not
/// aligned), `CORELINE_ERROR_LACKING` (no concurrency IDs), `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_pool_create(flags: u32, out: *mut *mut coreline_pool_t) -> Code {
    with!([out out] {
        if flags & !FLAGS != 0 {
            return Err(Code::CORELINE_ERROR_ARGUMENT);
        }
        let by = match flags & CORELINE_POOL_BY_KERNEL_CID {
            0 => IndexBy::Cpu,
            _ => IndexBy::KernelCid,
        };
        let options = PoolOptions::new()
            .index_by(by)
            .huge_pages(flags & CORELINE_POOL_HUGE_PAGES != 0)
            .checked(flags & CORELINE_POOL_CHECKED != 0);
        create(PerCpuPool::new(options)?, out)
    })
}

/// Destroys a pool.
///
/// Objects of the pool keep their memory and continue to work. If the pool has objects left, the
/// call returns `CORELINE_ERROR_FAULTS`, but still destroys the handle. It returns the same code if
/// a checked pool found a write to memory of a destroyed object.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_FAULTS`.
///
/// Threads: no other thread may use the handle during the call or after it. Signals: no signal
/// handler may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_pool_destroy(pool: *mut coreline_pool_t) -> Code {
    boundary(|| {
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
        let pool = unsafe { handle::take(pool) }?;
        pool.close().map_err(|_| Code::CORELINE_ERROR_FAULTS)
    })
}

/// Reports the number of objects that have memory of a pool.
///
/// `pool` may be null, which means the pool of the process.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT`, `CORELINE_ERROR_HANDLE`,
/// `CORELINE_ERROR_LACKING`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_pool_live(pool: *const coreline_pool_t, out: *mut usize) -> Code {
    with!([out out] {
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
        out.write(unsafe { pool_or_global(pool) }?.live());
    })
}

/// Reports the number of bytes of address space that a pool has mapped.
///
/// `pool` may be null, which means the pool of the process. Only pages that were used take memory.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT`, `CORELINE_ERROR_HANDLE`,
/// `CORELINE_ERROR_LACKING`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_pool_mapped(
    pool: *const coreline_pool_t,
    out: *mut usize,
) -> Code {
    with!([out out] {
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
        out.write(unsafe { pool_or_global(pool) }?.mapped());
    })
}

/// Returns unused memory of a pool to the machine.
///
/// `pool` may be null, which means the pool of the process. The call writes the number of bytes of
/// address space that it unmapped to `out`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT`, `CORELINE_ERROR_HANDLE`,
/// `CORELINE_ERROR_LACKING`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_pool_trim(pool: *const coreline_pool_t, out: *mut usize) -> Code {
    with!([out out] {
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
        out.write(unsafe { pool_or_global(pool) }?.trim());
    })
}

/// Makes an object in a pool, for its handle.
pub(crate) fn create_in<H: handle::Opaque>(
    pool: *const coreline_pool_t,
    out: &mut MaybeUninit<*mut H>,
    make: impl FnOnce(&PerCpuPool) -> Result<H::Value, PoolError>,
) -> Outcome {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    let pool = unsafe { pool_or_global(pool) }?;
    create(make(&pool)?, out)
}
