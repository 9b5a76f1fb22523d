//! CPU masks.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use coreline::mask::MaskError;
use coreline::{CpuId, CpuMask};

use crate::boundary::{self, Outcome, boundary};
use crate::code::coreline_code_t as Code;
use crate::handle::{self, create, destroy, opaque};
use crate::with::with;

/// A set of CPUs that all CPUs change. A change reads before it writes.
pub struct coreline_mask_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_mask_t, CpuMask, b"cpu-mask");

impl From<MaskError> for Code {
    fn from(_: MaskError) -> Self {
        Code::CORELINE_ERROR_ARGUMENT
    }
}

/// The result of a change of a bit.
fn changed(has_changed: bool) -> Outcome {
    has_changed.then_some(()).ok_or(Code::CORELINE_UNCHANGED)
}

/// Creates an empty mask, with a bit for each CPU of the machine.
///
/// The CPUs under one last-level cache share a cache line of the mask, which no other CPU writes.
/// If there is no memory for the mask, the process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned),
/// `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_mask_create(out: *mut *mut coreline_mask_t) -> Code {
    with!([out out] { create(CpuMask::new(), out) })
}

/// Destroys a mask.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: no other thread may use the mask during the call or after it. Signals: no signal
/// handler may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_mask_destroy(mask: *mut coreline_mask_t) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { destroy(mask) }
}

/// Sets the bit of a CPU.
///
/// The call returns `CORELINE_UNCHANGED`, and writes nothing, if the bit is set already. A thread
/// that finds the bit set sees everything that the thread that set it wrote before. A call that
/// changes nothing publishes nothing.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (the machine
/// has no such CPU).
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the mask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_mask_set(mask: *const coreline_mask_t, cpu: u32) -> Code {
    with!([handle mask] { changed(mask.set(CpuId::new(cpu))?) })
}

/// Clears the bit of a CPU.
///
/// The call returns `CORELINE_UNCHANGED`, and writes nothing, if the bit is clear already.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (the machine
/// has no such CPU).
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the mask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_mask_clear(mask: *const coreline_mask_t, cpu: u32) -> Code {
    with!([handle mask] { changed(mask.clear(CpuId::new(cpu))?) })
}

/// Reads the bit of a CPU.
///
/// The call writes 1 to `out` if the bit is set, and otherwise 0. A CPU that the machine does not
/// have is not in the mask.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (`out` is not
/// aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the mask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_mask_test(
    mask: *const coreline_mask_t,
    cpu: u32,
    out: *mut c_int,
) -> Code {
    with!([handle mask, out out] { out.write(c_int::from(mask.test(CpuId::new(cpu)))); })
}

/// Reports the number of CPUs in a mask.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (`out` is not
/// aligned).
///
/// Threads: any number of threads may call it at the same time. The result is not a snapshot.
/// Signals: async-signal-safe. Fork: the child has its own copy of the mask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_mask_weight(
    mask: *const coreline_mask_t,
    out: *mut usize,
) -> Code {
    with!([handle mask, out out] { out.write(mask.weight()); })
}

/// Lists the CPUs in a mask.
///
/// The call writes the numbers of the CPUs to the array `cpus`, which has `capacity` elements, in
/// ascending order. It writes the number of CPUs in the mask to `count`. If that is more than
/// `capacity`, the array has the lowest ones. If there is no memory for a copy of the mask, the
/// process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (an address is
/// not aligned).
///
/// Threads: any number of threads may call it at the same time. The list has each CPU whose bit was
/// set before the call and not cleared. It is not a snapshot. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_mask_list(
    mask: *const coreline_mask_t,
    cpus: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> Code {
    boundary(|| {
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation. The array has
        // `capacity` elements.
        unsafe {
            let mask = handle::get(mask)?;
            let count = boundary::out(count)?;
            boundary::out(cpus)?;
            let found = mask.snapshot();
            for (number, cpu) in found.iter().take(capacity).enumerate() {
                cpus.add(number).write(cpu.get());
            }
            count.write(found.len());
        }
        Ok(())
    })
}

/// Lets later reads of a whole mask skip cache lines without a set bit.
///
/// Use it for a mask whose bits are often set and cleared, but not after every
/// `coreline_mask_clear`, because it writes a line that every reader of the whole mask reads.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the mask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_mask_trim(mask: *const coreline_mask_t) -> Code {
    with!([handle mask] { mask.trim(); })
}
