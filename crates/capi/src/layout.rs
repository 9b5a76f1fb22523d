//! Checks whether the header that a program was compiled with matches this library.

use core::ffi::c_int;
use core::mem::{self, align_of, offset_of, size_of};
use core::slice;
use std::io::{self, Write};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use coreline::lock::{RawMutex, RawTicketLock};
use coreline::world::restartable::{Gate, Limits};
use coreline::world::{Native, Restartable};

use crate::cache::coreline_cache_options_t;
use crate::code::coreline_code_t as Code;
use crate::counter::{self, coreline_reading_t};
use crate::domain::{coreline_lease_t, coreline_usage_t};
use crate::lock::{
    coreline_biased_rwlock_t, coreline_checked_mutex_t, coreline_mutex_t, coreline_osq_fifo_t,
    coreline_osq_near_t, coreline_rwlock_t, coreline_ticket_lock_t, coreline_turn_t,
};
use crate::percpu;
use crate::presence::coreline_shot_t;
use crate::with::with;
use crate::workers::{coreline_worker_stats_t, coreline_workers_options_t};

/// The major version of this header.
pub const CORELINE_VERSION_MAJOR: u32 = 0;
/// The minor version of this header. Before 1.0, a new minor version may break programs.
pub const CORELINE_VERSION_MINOR: u32 = 1;
/// The patch version of this header.
pub const CORELINE_VERSION_PATCH: u32 = 0;

/// The layout of the library, as the header assumes it. `coreline_check` fills it in.
///
/// The shape of a type is its size in bytes times 256, plus its alignment in bytes. Each member of
/// a structure then changes the shape, in the order of the header. The shape is multiplied by 31,
/// and the sum of the member's size and 256 times its offset is added. So members in another order
/// give another shape.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct coreline_layout_t {
    /// The size of this structure, in bytes.
    pub size: u32,
    /// The major version, times 10000, plus the minor version, times 100, plus the patch version.
    pub version: u32,
    /// The shape of `coreline_code_t`.
    pub code: u32,
    /// The shape of `coreline_reading_t`.
    pub reading: u32,
    /// The shape of `coreline_cache_options_t`.
    pub cache_options: u32,
    /// The shape of `coreline_workers_options_t`.
    pub workers_options: u32,
    /// The shape of `coreline_worker_stats_t`.
    pub worker_stats: u32,
    /// The shape of `coreline_mutex_t`.
    pub mutex: u32,
    /// The first word of a mutex that a thread holds and no thread waits for. Inline functions
    /// write it.
    pub mutex_held: u32,
    /// The shape of `coreline_checked_mutex_t`.
    pub checked_mutex: u32,
    /// The shape of `coreline_rwlock_t`.
    pub rwlock: u32,
    /// The shape of `coreline_ticket_lock_t`.
    pub ticket_lock: u32,
    /// The shape of `coreline_osq_near_t`.
    pub osq_near: u32,
    /// The shape of `coreline_osq_fifo_t`.
    pub osq_fifo: u32,
    /// The shape of `coreline_turn_t`.
    pub turn: u32,
    /// The number of the next ticket of a ticket lock that a thread locked first. Inline functions
    /// write it, as what follows.
    pub ticket_lock_next: u32,
    /// The distance between two slots, in bytes.
    pub stride: u32,
    /// The offset of the distance of the thread's rseq area, in handles.
    pub area: u32,
    /// The mark of handles of `coreline_counter_t`.
    pub counter_mark: u32,
    /// The offset of the gate in these handles.
    pub counter_gate: u32,
    /// The mark of handles of `coreline_counters_t`.
    pub counters_mark: u32,
    /// The offset of the number of counters in these handles.
    pub counters_length: u32,
    /// The offset of the address of the gates in these handles.
    pub counters_gates: u32,
    /// The distance between two gates in bytes times 256, plus the number of counters of a gate.
    pub counters_group: u32,
    /// The mark of handles of `coreline_percpu_t`.
    pub percpu_mark: u32,
    /// The offset of the number of words in these handles.
    pub percpu_words: u32,
    /// The offset of the address of the table of lines in these handles.
    pub percpu_lines: u32,
    /// The size of a line's entry in bytes times 256, plus the number of words of a line.
    pub percpu_line: u32,
    /// The shape of `coreline_biased_rwlock_t`.
    pub biased_rwlock: u32,
    /// The shape of `coreline_shot_t`.
    pub shot: u32,
    /// The shape of `coreline_usage_t`.
    pub usage: u32,
    /// The shape of `coreline_lease_t`.
    pub lease: u32,
    /// The offset of slot 0's address in a gate, times 256, plus the offset of the limit of
    /// concurrency IDs in limits. Inline functions read both.
    pub gate: u32,
}

/// The shape of a type without its members.
const fn shape<T>() -> u32 {
    (size_of::<T>() * 256 + align_of::<T>()) as u32
}

/// A shape, and one more member.
const fn and_member(shape: u32, offset: usize, size: usize) -> u32 {
    shape.wrapping_mul(31).wrapping_add((offset * 256 + size) as u32)
}

/// The size of what a function finds in a structure.
const fn size_of_member<S, M>(_: fn(&S) -> &M) -> usize {
    size_of::<M>()
}

/// The shape of a structure with these members, which are all that it has.
macro_rules! shape {
    ($type:ident { $($member:ident),* }) => {
        const {
            // A member that is missing in the list does not compile.
            let _ = |it: &$type| { let $type { $($member: _),* } = it; };
            let shape = shape::<$type>();
            $(let shape = and_member(
                shape,
                offset_of!($type, $member),
                size_of_member(|it: &$type| &it.$member),
            );)*
            shape
        }
    };
}

impl coreline_layout_t {
    /// The layout of this library.
    fn own() -> Self {
        let [
            area,
            counter_mark,
            counter_gate,
            counters_mark,
            counters_length,
            counters_gates,
            counters_group,
        ] = counter::layout();
        let [percpu_mark, percpu_words, percpu_lines, percpu_line] = percpu::layout();
        coreline_layout_t {
            size: size_of::<Self>() as u32,
            version: coreline_version(),
            code: shape::<c_int>(),
            reading: shape!(coreline_reading_t { value, error }),
            cache_options: shape!(coreline_cache_options_t {
                size,
                alignment,
                construct,
                destroy,
                context,
                idle_limit
            }),
            workers_options: shape!(coreline_workers_options_t { cpus, polling, name }),
            worker_stats: shape!(coreline_worker_stats_t {
                calls,
                queued,
                tasks,
                searches,
                steals,
                sleeps,
                spurious,
                spared
            }),
            mutex: shape!(coreline_mutex_t { state, queue }),
            mutex_held: mutex_held(),
            checked_mutex: shape!(coreline_checked_mutex_t { owner, state, queue }),
            rwlock: shape!(coreline_rwlock_t { state, queue }),
            ticket_lock: shape!(coreline_ticket_lock_t { next, serving }),
            osq_near: shape!(coreline_osq_near_t { tail }),
            osq_fifo: shape!(coreline_osq_fifo_t { tail }),
            turn: shape!(coreline_turn_t { lock, owner, place }),
            ticket_lock_next: ticket_lock_next(),
            stride: <Native as Restartable>::STRIDE as u32,
            area,
            counter_mark,
            counter_gate,
            counters_mark,
            counters_length,
            counters_gates,
            counters_group,
            percpu_mark,
            percpu_words,
            percpu_lines,
            percpu_line,
            biased_rwlock: shape!(coreline_biased_rwlock_t { words }),
            shot: shape!(coreline_shot_t { reached, away, late }),
            usage: shape!(coreline_usage_t { users, ids, leased, bytes }),
            lease: shape!(coreline_lease_t { domain, id, place }),
            gate: {
                let [_, cids] = Limits::<Native>::LAYOUT;
                // The header reads the number of CPUs where the limits begin.
                const { assert!(Limits::<Native>::LAYOUT[0] == 0) };
                (Gate::<Native>::LAYOUT * 256 + cids) as u32
            },
        }
    }

    /// The members, which are all words.
    fn words(self) -> [u32; WORDS] {
        // SAFETY: a structure in C's layout whose members are such words.
        unsafe { mem::transmute(self) }
    }
}

/// How many members the layout has.
const WORDS: usize = size_of::<coreline_layout_t>() / size_of::<u32>();

/// Whether a program whose header has these members can use this library. The library may be newer
/// by its patch version, and before 1.0 not by its minor version. A newer library may have members
/// that the header does not know.
fn fits(theirs: &[u32]) -> bool {
    let own = coreline_layout_t::own().words();
    let ([_, version, theirs @ ..], [_, own_version, own @ ..]) = (theirs, &own[..]) else {
        return false;
    };
    let series = |version: u32| match version / 10_000 {
        0 => version / 100,
        major => major * 100,
    };
    version <= own_version && series(*version) == series(*own_version) && own.starts_with(theirs)
}

/// The first word of a mutex that a thread holds. It is what the library does, and no constant.
fn mutex_held() -> u32 {
    let mutex = RawMutex::new();
    mutex.lock();
    // SAFETY: the first word of the lock, which is an atomic word of 32 bits.
    let word = unsafe { AtomicU32::from_ptr((&raw const mutex).cast::<u32>().cast_mut()) };
    // Relaxed: no other thread has the lock.
    word.load(Ordering::Relaxed)
}

/// The next ticket of a lock that a thread holds: as for `mutex_held`.
fn ticket_lock_next() -> u32 {
    let lock = RawTicketLock::new();
    lock.lock();
    // SAFETY: the first word of the lock, which is an atomic word of 32 bits.
    let word = unsafe { AtomicU32::from_ptr((&raw const lock).cast::<u32>().cast_mut()) };
    // Relaxed: no other thread has the lock.
    word.load(Ordering::Relaxed)
}

/// Returns the version of the library.
///
/// The result is the major version, times 10000, plus the minor version, times 100, plus the patch
/// version. `CORELINE_VERSION` is the same number for the header.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// safe in a forked child.
#[unsafe(no_mangle)]
pub extern "C" fn coreline_version() -> u32 {
    CORELINE_VERSION_MAJOR * 10_000 + CORELINE_VERSION_MINOR * 100 + CORELINE_VERSION_PATCH
}

/// Checks that a header matches the library.
///
/// Call `coreline_check` instead, which passes the layout of the header. The two differ if the
/// program was compiled with the header of another version, or with options that change the layout
/// of structures. The library may have a later patch version than the header. Before 1.0, both
/// must have the same minor version.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT`, `CORELINE_ERROR_LAYOUT`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_check_layout(theirs: *const coreline_layout_t) -> Code {
    let words = theirs.cast::<u32>();
    with!([shared words] {
        // The size comes first in all versions: another layout may be shorter.
        let (size, word) = (*words as usize, size_of::<u32>());
        let is_whole = size <= size_of::<coreline_layout_t>() && size.is_multiple_of(word);
        // SAFETY: the structure has this size, as the caller promises. Its members are words.
        let fits = is_whole && fits(unsafe { slice::from_raw_parts(words, size / word) });
        fits.then_some(()).ok_or(Code::CORELINE_ERROR_LAYOUT)
    })
}

/// Ends the process with a message if a header does not match the library.
///
/// `CORELINE_CHECK_AT_LOAD` calls it, with the layout of the header. The message is on standard
/// error, and the process ends by `abort`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_require_layout(theirs: *const coreline_layout_t) {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    if unsafe { coreline_check_layout(theirs) } != Code::CORELINE_OK {
        // A standard error that is closed must not panic.
        let _ = writeln!(
            io::stderr(),
            "coreline: the program's header does not match library version {}; compile the program \
             with the library's header and the same options",
            env!("CARGO_PKG_VERSION")
        );
        process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_packages() {
        let version = [CORELINE_VERSION_MAJOR, CORELINE_VERSION_MINOR, CORELINE_VERSION_PATCH];
        let version = version.map(|part| part.to_string()).join(".");
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn only_a_header_of_the_series_and_no_newer_one_fits() {
        let own = coreline_layout_t::own();
        let fit = |layout: coreline_layout_t| fits(&layout.words());
        assert!(fit(own));
        let of = |version| fit(coreline_layout_t { version, ..own });
        assert!(!of(own.version + 1), "newer than the library");
        assert!(!of(own.version + 100) && !of(own.version + 10_000));
        assert!(!of(0), "of another series");
        assert!(!fit(coreline_layout_t { mutex: own.mutex + 1, ..own }));
        assert!(!fit(coreline_layout_t { mutex_held: own.mutex_held + 1, ..own }));
    }
}
