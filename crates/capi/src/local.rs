//! Words of a domain, with a copy for each concurrency ID.

use core::mem::MaybeUninit;
use core::ptr;

use coreline::domain::{DomainLocal, LocalError};
use coreline::percpu::Word64;
use coreline::world::Ordering;

use crate::code::coreline_code_t as Code;
use crate::domain::{coreline_domain_t, coreline_lease_t, leased_id};
use crate::handle::{create, destroy, opaque};
use crate::with::with;

/// Words of 64 bits in a domain, with a copy for each concurrency ID.
pub struct coreline_local_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_local_t, Local, b"-words--");

/// The words of one cache line.
const WORDS: usize = 8;

/// Whole cache lines of words, and the number of their domain.
pub(crate) struct Local {
    lines: Vec<DomainLocal<[Word64; WORDS]>>,
    words: usize,
    domain: u64,
}

impl Local {
    /// The line of a word, and the word's number there.
    #[inline(always)]
    fn at(&self, word: usize) -> Result<(&DomainLocal<[Word64; WORDS]>, usize), Code> {
        match self.lines.get(word / WORDS) {
            Some(line) if word < self.words => Ok((line, word % WORDS)),
            _ => Err(Code::CORELINE_ERROR_ARGUMENT),
        }
    }
}

impl From<LocalError> for Code {
    fn from(error: LocalError) -> Self {
        match error {
            LocalError::Pool(error) => error.into(),
            // No function of C makes slots, so no thread is making one.
            _ => Code::CORELINE_ERROR_NO_MEMORY,
        }
    }
}

/// Creates words in a domain.
///
/// Each concurrency ID of the domain has `words` words of 64 bits, which are numbered from 0 and
/// initially 0. They take whole cache lines of 64 bytes, for each ID that a CPU or a lease ever had
/// and for one more.
///
/// A word may hold a number, or the address of an object. Functions that change a word change the
/// copy of the ID that the calling thread's CPU has in the domain. They give the CPU an ID at its
/// first use. If the machine has restartable sequences, they take no atomic instruction. Use
/// `coreline_local_leased` for the words of a lease.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (no words, or `out` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_local_create(
    domain: *const coreline_domain_t,
    words: usize,
    out: *mut *mut coreline_local_t,
) -> Code {
    with!([handle domain, out out] {
        if words == 0 {
            return Err(Code::CORELINE_ERROR_ARGUMENT);
        }
        let mut lines = Vec::new();
        let count = words.div_ceil(WORDS);
        lines.try_reserve_exact(count).map_err(|_| Code::CORELINE_ERROR_NO_MEMORY)?;
        for _ in 0..count {
            lines.push(domain.domain.local(|| [const { Word64::new(0) }; WORDS])?);
        }
        create(Local { lines, words, domain: domain.number }, out)
    })
}

/// Destroys words of a domain.
///
/// The domain may have been destroyed before.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: no other thread may use the words during the call or after it, not even through a
/// lease. Signals: no signal handler may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_local_destroy(local: *mut coreline_local_t) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { destroy(local) }
}

/// Adds to a word of the calling thread's CPU in a domain.
///
/// The sum wraps. The addition is relaxed: it publishes no other writes of the thread.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word),
/// `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_local_add(
    local: *const coreline_local_t,
    word: usize,
    delta: u64,
) -> Code {
    with!([handle local] {
        let (line, word) = local.at(word)?;
        line.field(|words| &words[word]).add(delta);
    })
}

/// Reads a word of the calling thread's CPU in a domain.
///
/// The read is relaxed.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word, or `out` is not
/// aligned), `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_local_load(
    local: *const coreline_local_t,
    word: usize,
    out: *mut u64,
) -> Code {
    with!([handle local, out out] {
        let (line, word) = local.at(word)?;
        out.write(line.field(|words| &words[word]).load());
    })
}

/// Exchanges a word of the calling thread's CPU in a domain.
///
/// The call writes the old value of the word to `old`. The exchange is relaxed, like that of
/// `coreline_percpu_exchange`, whose page shows the fences for words that hold addresses.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word, or `old` is not
/// aligned), `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_local_exchange(
    local: *const coreline_local_t,
    word: usize,
    value: u64,
    old: *mut u64,
) -> Code {
    with!([handle local, out old] {
        let (line, word) = local.at(word)?;
        old.write(line.field(|words| &words[word]).exchange(value));
    })
}

/// Writes a word of the calling thread's CPU in a domain if the word has the expected value.
///
/// If the word has another value, the call returns `CORELINE_UNEQUAL` and writes that value to
/// `expected`. Use it in a loop, like `coreline_percpu_store_if_equal`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word, or `expected`
/// is not aligned), `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_local_store_if_equal(
    local: *const coreline_local_t,
    word: usize,
    expected: *mut u64,
    value: u64,
) -> Code {
    with!([handle local, out expected] {
        let (line, word) = local.at(word)?;
        // SAFETY: the caller has initialised it.
        let asked = unsafe { expected.assume_init() };
        line.field(|words| &words[word]).store_if_equal(asked, value).map_err(|found| {
            expected.write(found);
            Code::CORELINE_UNEQUAL
        })
    })
}

/// Sums a word over all IDs of a domain.
///
/// The words of leases count, too.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word, or `out` is not
/// aligned), `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. The sum includes all additions that
/// happened before the call, and may include concurrent ones. Signals: async-signal-safe. Fork: the
/// child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_local_sum(
    local: *const coreline_local_t,
    word: usize,
    out: *mut u64,
) -> Code {
    with!([handle local, out out] {
        let (line, word) = local.at(word)?;
        out.write(line.field(|words| &words[word]).sum());
    })
}

/// Reads a word of any ID in a domain.
///
/// `id` is the ID of a CPU or of a lease. A word that no thread has used is 0. The ID after the
/// last one is that of the words that threads without an ID share. A loop over all IDs ends at the
/// first one for which the call returns `CORELINE_ERROR_ARGUMENT`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word or ID, or `out`
/// is not aligned), `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. The read is relaxed. Signals:
/// async-signal-safe. Fork: the child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_local_peek(
    local: *const coreline_local_t,
    word: usize,
    id: usize,
    out: *mut u64,
) -> Code {
    with!([handle local, out out] {
        let (line, word) = local.at(word)?;
        // Relaxed: the caller orders its reads.
        let value = |words: &[Word64; WORDS]| words[word].load(Ordering::Relaxed);
        out.write(match id {
            _ if id <= line.indexes() => line.get(id).map_or(0, value),
            _ => return Err(Code::CORELINE_ERROR_ARGUMENT),
        });
    })
}

/// Finds a word of a leased ID.
///
/// The call writes the address of the word to `out`. Until the lease is returned, only its holder
/// writes the word, and needs no atomic instruction for that. Words whose numbers have the same
/// quotient by 8 are adjacent. So with 8 words or fewer, the address of word 0 is that of an array.
/// While other threads call `coreline_local_sum` or `coreline_local_peek`, write with relaxed
/// atomic stores, such as `__atomic_store_n`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word, or an address
/// is not aligned), `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NOT_HELD` (`lease` is empty, or
/// belongs to another domain).
///
/// Threads: the holder of the lease calls it. Signals: async-signal-safe, for a lease that the
/// interrupted thread does not return at that time. Fork: a child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_local_leased(
    local: *const coreline_local_t,
    lease: *mut coreline_lease_t,
    word: usize,
    out: *mut *mut u64,
) -> Code {
    with!([handle local, place lease, out out] {
        let (line, word) = local.at(word)?;
        let words = line.get(leased_id(local.domain, lease)?);
        let words = words.ok_or(Code::CORELINE_ERROR_NOT_HELD)?;
        out.write(ptr::from_ref(&words[word]).cast_mut().cast());
    })
}
