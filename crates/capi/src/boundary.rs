//! The boundary between C and Rust: no panic crosses it, and no null pointer or stale handle.

use core::any::Any;
use core::mem::{self, MaybeUninit};
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::code::coreline_code_t as Code;

/// How the inside of a function ends.
pub(crate) type Outcome = Result<(), Code>;

/// What the inside of a function may return.
pub(crate) trait End {
    fn outcome(self) -> Outcome;
}

impl End for Outcome {
    #[inline(always)]
    fn outcome(self) -> Outcome {
        self
    }
}

impl End for () {
    #[inline(always)]
    fn outcome(self) -> Outcome {
        Ok(())
    }
}

/// Runs the inside of a function. A panic ends here.
///
/// Primitives keep their laws when they unwind, as for callers in Rust that catch a panic.
#[inline(always)]
pub(crate) fn boundary(inside: impl FnOnce() -> Outcome) -> Code {
    match catch_unwind(AssertUnwindSafe(inside)) {
        Ok(Ok(())) => Code::CORELINE_OK,
        Ok(Err(code)) => code,
        Err(payload) => caught(payload),
    }
}

#[cold]
#[inline(never)]
fn caught(payload: Box<dyn Any + Send>) -> Code {
    // To drop it could panic again. What that panic carries is left alone.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(second);
    }
    Code::CORELINE_ERROR_PANIC
}

/// Calls a function of the C program that must return. An exception that leaves the function ends
/// the process here, before it passes Rust frames, which may hold locks.
#[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
pub(crate) extern "C" fn returning<R>(function: impl FnOnce() -> R) -> R {
    function()
}

/// A lock in its user's memory: the C type has the size and alignment of `Raw`, and its zeros are
/// a free lock.
pub(crate) trait InPlace {
    type Raw;
}

/// An address that is neither null nor unaligned.
#[inline(always)]
pub(crate) fn place<T>(address: *const T) -> Result<NonNull<T>, Code> {
    let place = NonNull::new(address.cast_mut()).ok_or(Code::CORELINE_ERROR_NULL)?;
    if !place.is_aligned() {
        return Err(Code::CORELINE_ERROR_ARGUMENT);
    }
    Ok(place)
}

/// The lock at this address.
///
/// # Safety
///
/// The address is null, or not aligned, or that of a lock that stays for `'a` and was initialised.
#[inline(always)]
pub(crate) unsafe fn lock<'a, L: InPlace>(lock: *const L) -> Result<&'a L::Raw, Code> {
    const {
        assert!(size_of::<L>() == size_of::<L::Raw>());
        assert!(align_of::<L>() == align_of::<L::Raw>());
    }
    let raw = place(lock.cast::<L::Raw>())?;
    // SAFETY: as the caller promises; all values of a raw lock are words, of which any bits are
    // valid.
    Ok(unsafe { raw.as_ref() })
}

/// The place to which a function writes a result.
///
/// # Safety
///
/// The address is null, or not aligned, or that of memory that is the call's alone.
#[inline(always)]
pub(crate) unsafe fn out<'a, T>(out: *mut T) -> Result<&'a mut MaybeUninit<T>, Code> {
    // SAFETY: as the caller promises. What was there need not be a value.
    Ok(unsafe { place(out)?.cast().as_mut() })
}

/// The value that a function reads at this address.
///
/// # Safety
///
/// The address is null, or not aligned, or that of a value that does not change during the call.
#[inline(always)]
pub(crate) unsafe fn shared<'a, T>(value: *const T) -> Result<&'a T, Code> {
    // SAFETY: as the caller promises.
    Ok(unsafe { place(value)?.as_ref() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code() {
        assert_eq!(boundary(|| panic!("planted")), Code::CORELINE_ERROR_PANIC);
        /// Its drop panics, too.
        struct Twice;
        impl Drop for Twice {
            fn drop(&mut self) {
                panic!("planted in a drop");
            }
        }
        let twice = || std::panic::panic_any(Twice);
        assert_eq!(boundary(twice), Code::CORELINE_ERROR_PANIC);
        assert_eq!(boundary(|| Err(Code::CORELINE_BUSY)), Code::CORELINE_BUSY);
        assert_eq!(boundary(|| Ok(())), Code::CORELINE_OK);
    }
}
