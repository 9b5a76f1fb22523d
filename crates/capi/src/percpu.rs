//! Words in per-CPU memory.

use core::mem::{MaybeUninit, offset_of};

use coreline::percpu::{PerCpu, Word64};
use coreline::world::native::area_of_sections;
use coreline::world::restartable::Limits;
use coreline::world::{Native, Ordering};

use crate::code::coreline_code_t as Code;
use crate::handle::{self, destroy, opaque};
use crate::pool::{coreline_pool_t, create_in};
use crate::with::with;

/// Words of 64 bits, with a copy for each CPU.
pub struct coreline_percpu_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_percpu_t, Lines, b"percpu64");

/// The words of one cache line.
const WORDS: usize = 8;

/// Whole cache lines of words, behind what inline functions of the header read.
#[repr(C)]
pub(crate) struct Lines {
    area: isize,
    words: usize,
    /// The beginning of `_owned`.
    addresses: *const Addresses,
    /// One for each of `lines`.
    _owned: Box<[Addresses]>,
    lines: Vec<PerCpu<[Word64; WORDS]>>,
}

// SAFETY: the pointer is to what `_owned` owns, and nothing is written through it here.
unsafe impl Send for Lines {}
// SAFETY: as for `Send`.
unsafe impl Sync for Lines {}

/// The limits of a line's slots, and slot 0.
#[repr(C)]
struct Addresses {
    limits: *const Limits<Native>,
    first: *mut Word64,
}

// SAFETY: addresses of what a line owns, and nothing is written through them here.
unsafe impl Send for Addresses {}
// SAFETY: as for `Send`.
unsafe impl Sync for Addresses {}

/// The facts about words that inline functions of the header use, in the order of
/// `coreline_layout_t`.
pub(crate) fn layout() -> [u32; 4] {
    const {
        assert!(offset_of!(Lines, area) == 0);
        assert!(offset_of!(Addresses, limits) == 0 && offset_of!(Addresses, first) == 8);
    };
    let begin = handle::offset::<coreline_percpu_t>();
    [
        handle::mark::<coreline_percpu_t>() as usize,
        begin + offset_of!(Lines, words),
        begin + offset_of!(Lines, addresses),
        size_of::<Addresses>() * 256 + WORDS,
    ]
    .map(|number| number as u32)
}

impl Lines {
    fn new(lines: Vec<PerCpu<[Word64; WORDS]>>, words: usize) -> Self {
        let of_line = |line: &PerCpu<[Word64; WORDS]>| {
            let (limits, first) = line.field(|words| &words[0]).addresses();
            Addresses { limits, first }
        };
        let owned: Box<[_]> = lines.iter().map(of_line).collect();
        Lines { area: area_of_sections(), words, addresses: owned.as_ptr(), _owned: owned, lines }
    }

    /// The line of a word, and the word's number there.
    #[inline(always)]
    fn at(&self, word: usize) -> Result<(&PerCpu<[Word64; WORDS]>, usize), Code> {
        match self.lines.get(word / WORDS) {
            Some(line) if word < self.words => Ok((line, word % WORDS)),
            _ => Err(Code::CORELINE_ERROR_ARGUMENT),
        }
    }
}

/// Creates words in per-CPU memory.
///
/// Each CPU has `words` words of 64 bits, which are numbered from 0 and initially 0. The call takes
/// whole cache lines of 64 bytes for each CPU. `pool` may be null, which means the pool of the
/// process.
///
/// A word may hold a number, or the address of an object. Functions that change a word change the
/// copy of the CPU on which the calling thread runs. If the machine has restartable sequences, they
/// take no atomic instruction.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (no words, or `out` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_LACKING`, `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_percpu_create(
    pool: *const coreline_pool_t,
    words: usize,
    out: *mut *mut coreline_percpu_t,
) -> Code {
    with!([out out] {
        if words == 0 {
            return Err(Code::CORELINE_ERROR_ARGUMENT);
        }
        let mut lines = Vec::new();
        let count = words.div_ceil(WORDS);
        lines.try_reserve_exact(count).map_err(|_| Code::CORELINE_ERROR_NO_MEMORY)?;
        create_in(pool, out, |pool| {
            for _ in 0..count {
                lines.push(pool.per_cpu(|| [const { Word64::new(0) }; WORDS])?);
            }
            Ok(Lines::new(lines, words))
        })
    })
}

/// Destroys words in per-CPU memory.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: no other thread may use the words during the call or after it. Signals: no signal
/// handler may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_percpu_destroy(percpu: *mut coreline_percpu_t) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { destroy(percpu) }
}

/// Adds to a word of the calling thread's CPU.
///
/// The sum wraps. The addition is relaxed: it publishes no other writes of the thread.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word),
/// `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_percpu_add(
    percpu: *const coreline_percpu_t,
    word: usize,
    delta: u64,
) -> Code {
    with!([handle percpu] {
        let (line, word) = percpu.at(word)?;
        line.field(|words| &words[word]).add(delta);
    })
}

/// Reads a word of the calling thread's CPU.
///
/// The read is relaxed.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word, or `out` is not
/// aligned), `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_percpu_load(
    percpu: *const coreline_percpu_t,
    word: usize,
    out: *mut u64,
) -> Code {
    with!([handle percpu, out out] {
        let (line, word) = percpu.at(word)?;
        out.write(line.field(|words| &words[word]).load());
    })
}

/// Exchanges a word of the calling thread's CPU.
///
/// The call writes the old value of the word to `old`. If two threads exchange a word of one CPU,
/// the second gets the value of the first. The exchange is relaxed. A program that keeps addresses
/// of objects in words needs two fences. `atomic_thread_fence(memory_order_release)` before the
/// call publishes its writes to the new object. `atomic_thread_fence(memory_order_acquire)` after
/// the call makes the writes to the old object visible.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word, or `old` is not
/// aligned), `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_percpu_exchange(
    percpu: *const coreline_percpu_t,
    word: usize,
    value: u64,
    old: *mut u64,
) -> Code {
    with!([handle percpu, out old] {
        let (line, word) = percpu.at(word)?;
        old.write(line.field(|words| &words[word]).exchange(value));
    })
}

/// Writes a word of the calling thread's CPU if the word has the expected value.
///
/// If the word has another value, the call returns `CORELINE_UNEQUAL` and writes that value to
/// `expected`. The CPU may differ from that of an earlier load, so use the call in a loop. The call
/// compares only values: an address that was removed and put back compares equal.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word, or `expected`
/// is not aligned), `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_percpu_store_if_equal(
    percpu: *const coreline_percpu_t,
    word: usize,
    expected: *mut u64,
    value: u64,
) -> Code {
    with!([handle percpu, out expected] {
        let (line, word) = percpu.at(word)?;
        // SAFETY: the caller has initialised it.
        let asked = unsafe { expected.assume_init() };
        line.field(|words| &words[word]).store_if_equal(asked, value).map_err(|found| {
            expected.write(found);
            Code::CORELINE_UNEQUAL
        })
    })
}

/// Sums a word over all CPUs.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word, or `out` is not
/// aligned), `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. The sum includes all additions that
/// happened before the call, and may include concurrent ones. Signals: async-signal-safe. Fork: the
/// child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_percpu_sum(
    percpu: *const coreline_percpu_t,
    word: usize,
    out: *mut u64,
) -> Code {
    with!([handle percpu, out out] {
        let (line, word) = percpu.at(word)?;
        out.write(line.field(|words| &words[word]).sum());
    })
}

/// Reads a word of any index.
///
/// Indexes are CPU numbers, unless the pool is indexed by concurrency IDs. A word that no thread
/// has used is 0. The index after the last one is that of the words that threads without a slot
/// share. A loop over all indexes ends at the first index for which the call returns
/// `CORELINE_ERROR_ARGUMENT`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word or index, or
/// `out` is not aligned), `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. The read is relaxed. Signals:
/// async-signal-safe. Fork: the child has its own copy of the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_percpu_peek(
    percpu: *const coreline_percpu_t,
    word: usize,
    index: usize,
    out: *mut u64,
) -> Code {
    with!([handle percpu, out out] {
        let (line, word) = percpu.at(word)?;
        let indexes = line.indexes();
        // Relaxed: the caller orders its reads.
        let value = |words: &[Word64; WORDS]| words[word].load(Ordering::Relaxed);
        out.write(match index {
            _ if index <= indexes => line.get(index).map_or(0, value),
            _ => return Err(Code::CORELINE_ERROR_ARGUMENT),
        });
    })
}
