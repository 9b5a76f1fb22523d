//! The results of functions.

use core::ffi::{CStr, c_char, c_int};

use coreline::Lacking;
use coreline::percpu::PoolError;

/// The result of a function. Zero is success. A positive code is an expected outcome without
/// success. A negative code is a mistake of the caller, or a failure.
///
/// If a function returns a negative code, it has changed nothing, unless its documentation says
/// otherwise.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum coreline_code_t {
    /// The call did what it says.
    CORELINE_OK = 0,
    /// A `try` function found the lock held, all leases in use, too few permits, a mailbox
    /// occupied, or a reply not ready.
    CORELINE_BUSY = 1,
    /// The deadline passed before the call got the lock or the reply, or finished.
    CORELINE_TIMED_OUT = 2,
    /// The word does not have the expected value.
    CORELINE_UNEQUAL = 3,
    /// The bit already has that value, or the function to cancel has begun.
    CORELINE_UNCHANGED = 4,
    /// A pointer is null.
    CORELINE_ERROR_NULL = -1,
    /// An argument is out of range, or a pointer is not aligned.
    CORELINE_ERROR_ARGUMENT = -2,
    /// The pointer is not a live handle of this type.
    CORELINE_ERROR_HANDLE = -3,
    /// There is no memory.
    CORELINE_ERROR_NO_MEMORY = -4,
    /// The machine or its kernel lacks what the call needs.
    CORELINE_ERROR_LACKING = -5,
    /// No thread holds the lock to be unlocked, or the turn belongs to another lock.
    CORELINE_ERROR_NOT_HELD = -6,
    /// Another thread holds the lock to be unlocked, or uses the member or reader.
    CORELINE_ERROR_NOT_OWNER = -7,
    /// The call would wait for the calling thread itself.
    CORELINE_ERROR_DEADLOCK = -8,
    /// Objects of a pool were not destroyed, objects of a cache were not put back, a domain was
    /// destroyed while it was in use, or a checked pool detected misuse of its memory.
    CORELINE_ERROR_FAULTS = -9,
    /// The program was compiled with a header that does not match the library.
    CORELINE_ERROR_LAYOUT = -10,
    /// A check inside of the library failed. Its message is on standard error.
    CORELINE_ERROR_PANIC = -11,
    /// The function that constructs objects of a cache has failed.
    CORELINE_ERROR_CONSTRUCTOR = -12,
    /// The workers are closed to new calls and tasks.
    CORELINE_ERROR_CLOSED = -13,
    /// The CPU has no worker, or the calling thread is not a worker.
    CORELINE_ERROR_NO_WORKER = -14,
    /// The workers are threads of the parent of this process.
    CORELINE_ERROR_FORKED = -15,
    /// The member or the reader is inside.
    CORELINE_ERROR_INSIDE = -16,
    /// The member or the reader is not inside.
    CORELINE_ERROR_OUTSIDE = -17,
}

use coreline_code_t as Code;

impl From<Lacking> for Code {
    fn from(_: Lacking) -> Self {
        Code::CORELINE_ERROR_LACKING
    }
}

impl From<PoolError> for Code {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Lacking(_) => Code::CORELINE_ERROR_LACKING,
            PoolError::TooLarge { .. } => Code::CORELINE_ERROR_ARGUMENT,
            _ => Code::CORELINE_ERROR_NO_MEMORY,
        }
    }
}

/// The codes with their texts.
const TEXTS: [(Code, &CStr); 22] = [
    (Code::CORELINE_OK, c"success"),
    (
        Code::CORELINE_BUSY,
        c"the lock is held, a lease, mailbox or permit is not free, or the reply has not arrived",
    ),
    (Code::CORELINE_TIMED_OUT, c"the deadline passed first"),
    (Code::CORELINE_UNEQUAL, c"the word does not have the expected value"),
    (Code::CORELINE_UNCHANGED, c"the bit has that value already, or the function has begun"),
    (Code::CORELINE_ERROR_NULL, c"a pointer is null; pass the address of an object"),
    (Code::CORELINE_ERROR_ARGUMENT, c"an argument is out of range, or a pointer is not aligned"),
    (
        Code::CORELINE_ERROR_HANDLE,
        c"the pointer is not a live handle of this type; was the object destroyed before?",
    ),
    (Code::CORELINE_ERROR_NO_MEMORY, c"there is no memory; try again when some is free"),
    (Code::CORELINE_ERROR_LACKING, c"the machine or its kernel lacks what the call needs"),
    (
        Code::CORELINE_ERROR_NOT_HELD,
        c"no thread holds the lock, or the turn belongs to another lock; unlock exactly once for \
          each time you lock",
    ),
    (
        Code::CORELINE_ERROR_NOT_OWNER,
        c"another thread holds the lock or is inside; let that thread unlock or leave",
    ),
    (
        Code::CORELINE_ERROR_DEADLOCK,
        c"the call would wait for the calling thread, which holds the lock or is inside; unlock or \
          leave first",
    ),
    (
        Code::CORELINE_ERROR_FAULTS,
        c"a pool, cache or domain has objects that were not given back, or its memory was misused; \
          correct the program",
    ),
    (
        Code::CORELINE_ERROR_LAYOUT,
        c"the program's header does not match the library; compile the program with the library's \
          header and the same options",
    ),
    (
        Code::CORELINE_ERROR_PANIC,
        c"a check inside of coreline failed; its message is on standard error",
    ),
    (
        Code::CORELINE_ERROR_CONSTRUCTOR,
        c"the function that constructs objects of a cache failed; see what it returned",
    ),
    (Code::CORELINE_ERROR_CLOSED, c"the workers are closed; create new ones"),
    (
        Code::CORELINE_ERROR_NO_WORKER,
        c"the CPU has no worker, or the thread is not a worker; choose a CPU that has one",
    ),
    (
        Code::CORELINE_ERROR_FORKED,
        c"the workers are threads of the parent process; create new ones after a fork",
    ),
    (Code::CORELINE_ERROR_INSIDE, c"the member or the reader has entered; leave first"),
    (Code::CORELINE_ERROR_OUTSIDE, c"the member or the reader has not entered; enter first"),
];

/// Describes a code in English.
///
/// The text is static. It says what happened and, for an error, what to do. For a number that is
/// not a code, the text says so.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// safe in a forked child.
#[unsafe(no_mangle)]
pub extern "C" fn coreline_strerror(code: c_int) -> *const c_char {
    let known = TEXTS.iter().find(|(known, _)| *known as c_int == code);
    known.map_or(c"not a code of coreline", |(_, text)| text).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_one_text() {
        let mut codes = TEXTS.map(|(code, _)| code as c_int);
        codes.sort_unstable();
        assert!(codes.iter().copied().eq(-17..=4), "{codes:?}");
        let mut texts = TEXTS.map(|(_, text)| text);
        texts.sort_unstable();
        assert!(texts.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
