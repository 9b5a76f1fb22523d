//! Counters.

use core::mem::{MaybeUninit, offset_of};
use core::ops::Deref;

use coreline::counter::CounterVec;
use coreline::world::Native;
use coreline::world::native::area_of_sections;
use coreline::world::restartable::Gate;
use coreline::{CounterSet, PerCpuCounter};

use crate::boundary::boundary;
use crate::code::coreline_code_t as Code;
use crate::handle::{self, destroy, opaque};
use crate::percpu::coreline_percpu_t;
use crate::pool::{coreline_pool_t, create_in};
use crate::with::with;

/// A signed counter of 64 bits with a word for each CPU that adds to it.
pub struct coreline_counter_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_counter_t, Counter, b"counter.");

/// A counter, behind the area on which inline sections of the header run.
#[repr(C)]
pub(crate) struct Counter {
    area: isize,
    counter: PerCpuCounter,
}

impl Counter {
    fn new(counter: PerCpuCounter) -> Self {
        Counter { area: area_of_sections(), counter }
    }
}

impl Deref for Counter {
    type Target = PerCpuCounter;

    #[inline(always)]
    fn deref(&self) -> &PerCpuCounter {
        &self.counter
    }
}

/// A value that was read from a counter, with the largest possible error in either direction.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct coreline_reading_t {
    /// The value.
    pub value: i64,
    /// The largest possible difference from the true value. Zero means that the value is exact.
    pub error: u64,
}

/// Several counters that lie side by side in each CPU's memory.
pub struct coreline_counters_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_counters_t, Counters, b"counters");

/// A set of counters. The fields before `counters` are those that inline functions of the header
/// read.
#[repr(C)]
pub(crate) struct Counters {
    area: isize,
    /// The number of counters.
    len: usize,
    /// The gate of the first group. The others follow.
    gates: *const Gate<Native>,
    counters: CounterVec,
}

// SAFETY: the pointer is to what `counters` owns, and nothing is written through it here.
unsafe impl Send for Counters {}
// SAFETY: as for `Send`.
unsafe impl Sync for Counters {}

impl Counters {
    fn new(counters: CounterVec) -> Self {
        let (area, len, gates) = (area_of_sections(), counters.len(), counters.gates());
        Counters { area, len, gates, counters }
    }
}

impl Deref for Counters {
    type Target = CounterVec;

    #[inline(always)]
    fn deref(&self) -> &CounterVec {
        &self.counters
    }
}

/// The facts about counters that inline functions of the header use, in the order of
/// `coreline_layout_t`. It is what the library does, and no constant.
pub(crate) fn layout() -> [u32; 7] {
    const { assert!(offset_of!(Counter, area) == 0 && offset_of!(Counters, area) == 0) };
    let counter = Counter::new(PerCpuCounter::const_new());
    let gate = counter.gate().addr() - (&raw const counter).addr();
    let (one, set) =
        (handle::offset::<coreline_counter_t>(), handle::offset::<coreline_counters_t>());
    [
        one,
        handle::mark::<coreline_counter_t>() as usize,
        one + gate,
        handle::mark::<coreline_counters_t>() as usize,
        set + offset_of!(Counters, len),
        set + offset_of!(Counters, gates),
        size_of::<CounterSet<{ CounterVec::<Native>::GROUP }>>() * 256
            + CounterVec::<Native>::GROUP,
    ]
    .map(|number| number as u32)
}

// All inline functions read the area at one offset.
const _: () = {
    assert!(handle::offset::<coreline_counter_t>() == handle::offset::<coreline_counters_t>());
    assert!(handle::offset::<coreline_counter_t>() == handle::offset::<coreline_percpu_t>());
};

/// Creates a counter at zero.
///
/// `pool` may be null, which means the pool of the process. If `batch` is not zero,
/// `coreline_counter_read` reads one cache line instead of one for each CPU. The error of the
/// result is then up to half of `batch` for each CPU, where `batch` is rounded up to a power of
/// two. About once in `batch` counted units, an addition writes a line that all CPUs share.
///
/// The counter begins as one shared word. It takes memory for each CPU when a second CPU adds to
/// it, or when additions become frequent. If there is no memory for that, it stays one word and
/// continues to work. If there is no memory for the counter itself, the process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT`, `CORELINE_ERROR_HANDLE`,
/// `CORELINE_ERROR_LACKING`, `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_counter_create(
    pool: *const coreline_pool_t,
    batch: u32,
    out: *mut *mut coreline_counter_t,
) -> Code {
    with!([out out] {
        create_in(pool, out, |pool| {
            let counter = PerCpuCounter::from_pool(pool);
            Ok(Counter::new(if batch == 0 { counter } else { counter.batched(batch) }))
        })
    })
}

/// Destroys a counter.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: no other thread may use the counter during the call or after it. Signals: no signal
/// handler may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_counter_destroy(counter: *mut coreline_counter_t) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { destroy(counter) }
}

/// Adds to a counter.
///
/// The sum wraps. The addition is relaxed: it publishes no other writes of the thread. If the
/// machine has restartable sequences, it takes no atomic instruction.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. If a
/// handler adds while it interrupts an addition, both count. Fork: the child has its own copy of
/// the counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_counter_add(
    counter: *const coreline_counter_t,
    delta: i64,
) -> Code {
    with!([handle counter] { counter.add(delta); })
}

/// Reads a counter in the cheapest way.
///
/// If the counter was created with a batch, the value has an error, which the call reports.
/// Otherwise the value is exact, as from `coreline_counter_sum`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. The value includes all additions
/// that happened before the call, and may include concurrent ones. Signals: async-signal-safe.
/// Fork: the child has its own copy of the counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_counter_read(
    counter: *const coreline_counter_t,
    out: *mut coreline_reading_t,
) -> Code {
    with!([handle counter, out out] {
        let reading = counter.read();
        out.write(coreline_reading_t { value: reading.value, error: reading.error });
    })
}

/// Reads the exact sum of a counter.
///
/// The call reads one cache line for each CPU that has added.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. The sum includes all additions that
/// happened before the call, and may include concurrent ones. Signals: async-signal-safe. Fork: the
/// child has its own copy of the counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_counter_sum(
    counter: *const coreline_counter_t,
    out: *mut i64,
) -> Code {
    with!([handle counter, out out] { out.write(counter.read_exact()); })
}

/// Reads the sum of a counter, and subtracts it from the counter.
///
/// No addition is lost: each is in the result of one call, or still in the counter. Use it to
/// report the increase since the last report.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: the child has its own copy of the counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_counter_drain(
    counter: *const coreline_counter_t,
    out: *mut i64,
) -> Code {
    with!([handle counter, out out] { out.write(counter.drain()); })
}

/// Sets the value of a counter.
///
/// The call writes the old value to `old`, which may not be null. A concurrent addition is in the
/// old value, or is added to the new one.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: the child has its own copy of the counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_counter_set(
    counter: *const coreline_counter_t,
    value: i64,
    old: *mut i64,
) -> Code {
    with!([handle counter, out old] { old.write(counter.set(value)); })
}

/// Creates a set of counters at zero.
///
/// `pool` may be null, which means the pool of the process. The set has `count` counters, numbered
/// from 0. They use less memory than as many separate counters. Each group of 32 counters takes
/// memory for each CPU once two CPUs use the group. If there is no memory for the set itself, the
/// process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (2^32 counters or more),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_LACKING`, `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_counters_create(
    pool: *const coreline_pool_t,
    count: usize,
    out: *mut *mut coreline_counters_t,
) -> Code {
    with!([out out] {
        if u32::try_from(count).is_err() {
            return Err(Code::CORELINE_ERROR_ARGUMENT);
        }
        create_in(pool, out, |pool| Ok(Counters::new(CounterVec::from_pool(pool, count))))
    })
}

/// Destroys a set of counters.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: no other thread may use the set during the call or after it. Signals: no signal handler
/// may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_counters_destroy(counters: *mut coreline_counters_t) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { destroy(counters) }
}

/// Adds to one counter of a set.
///
/// The sum wraps. The addition is relaxed, like that of `coreline_counter_add`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such counter),
/// `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// the child has its own copy of the set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_counters_add(
    counters: *const coreline_counters_t,
    index: usize,
    delta: i64,
) -> Code {
    with!([handle counters] {
        if index >= counters.len() {
            return Err(Code::CORELINE_ERROR_ARGUMENT);
        }
        counters.add(index, delta);
    })
}

/// Reads the exact sum of one counter of a set.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such counter, or `out` is
/// not aligned), `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. The sum includes all additions that
/// happened before the call, and may include concurrent ones. Signals: async-signal-safe. Fork: the
/// child has its own copy of the set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_counters_sum(
    counters: *const coreline_counters_t,
    index: usize,
    out: *mut i64,
) -> Code {
    with!([handle counters, out out] {
        if index >= counters.len() {
            return Err(Code::CORELINE_ERROR_ARGUMENT);
        }
        out.write(counters.read_one(index));
    })
}

/// Reads the sums of all counters of a set, and subtracts them from the counters.
///
/// `out` is an array of `count` elements, and `count` is the number of counters in the set. Each
/// addition is in the result of one call, or still in its counter. The sums are read one after the
/// other.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`count` is not the number of counters
/// in the set), `CORELINE_ERROR_HANDLE`. If there is no memory for a copy of the sums, the process
/// aborts.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_counters_drain(
    counters: *const coreline_counters_t,
    out: *mut i64,
    count: usize,
) -> Code {
    boundary(|| {
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
        let counters = unsafe { crate::handle::get(counters) }?;
        // SAFETY: the same, for each of `count` elements.
        unsafe { crate::boundary::out(out) }?;
        if count != counters.len() {
            return Err(Code::CORELINE_ERROR_ARGUMENT);
        }
        for (index, sum) in counters.drain().into_iter().enumerate() {
            // SAFETY: `out` has `count` elements, as the caller promises.
            unsafe { out.add(index).write(sum) };
        }
        Ok(())
    })
}
