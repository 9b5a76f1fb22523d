//! Places: the address ranges of machines, which are the same in every process.
//!
//! A program can observe addresses: it hashes them, compares them, stripes locks by them. So a
//! machine's memory and stacks lie in a *place*, a fixed range of the address space. There are many
//! places, because many machines may run at one time, each on a host thread of its own, and all
//! share one address space. A machine's *home* follows from the replay line without the schedule
//! and the step limit. So the same run has the same addresses in any process, at any time, whatever
//! other machines do:
//!
//! | its home | what a machine does |
//! |---|---|
//! | is free | takes it |
//! | has a machine that runs, on another host thread | waits until that has ended |
//! | keeps what an ended run left: a value, a failed run's threads | takes the next free place |
//! | is mapped by something else | takes the next free place |
//!
//! In the last two rows a program that depends on addresses may behave differently from a run in a
//! fresh process. This is unavoidable: the remaining objects are in use, and cannot be moved.

use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use coreline_world::MapError;
use coreline_world::native::fixed::FixedError;

/// Bytes of a place. Address space only: what is not used costs nothing.
pub(super) const PLACE: usize = 4 << 30;

/// The first place begins here. Linux puts programs, libraries, heaps and stacks of processes with
/// addresses of 47 bits or more elsewhere: below, or above the last place.
const FIRST: usize = 0x1000_0000_0000;

/// The maximum number of machines that run, or have left something, at one time.
const PLACES: usize = 1 << 14;

/// The states of a place.
///
/// | state | meaning | written by |
/// |---|---|---|
/// | `FREE` | no machine has it | the last to give up memory in it |
/// | `RUNS` | a machine has it | that machine's host thread, under the gate |
/// | `LEFT` | its machine has ended, and memory in it is in use | as `RUNS` |
static STATES: [AtomicU8; PLACES] = [const { AtomicU8::new(FREE) }; PLACES];

const FREE: u8 = 0;
const RUNS: u8 = 1;
const LEFT: u8 = 2;

/// Held by a machine that looks for a place, or ends.
static GATE: Mutex<()> = Mutex::new(());

/// Signalled when a machine ends.
static ENDED: Condvar = Condvar::new();

fn gate() -> MutexGuard<'static, ()> {
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why there is no place for a machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPlace {
    /// The host has no address space left, or no such addresses.
    #[error(
        "its memory takes {} MiB of address space at {at:#x}: {}; raise the limit (ulimit -v), or \
         run fewer failing machines, because these keep their memory; a host whose processes have \
         addresses of less than 47 bits cannot simulate", .map.layout.size() >> 20, .map.why
    )]
    Memory {
        /// Where.
        at: usize,
        /// The host's answer.
        map: MapError,
    },
    /// No place is free.
    #[error(
        "all {PLACES} address ranges for machines are in use; failed machines keep theirs, so run \
         such machines in several processes"
    )]
    None,
}

/// Finds a place, and calls `map` with its address to take it. `home` is the digest of the inputs
/// that determine the place. A machine without a digest, whose program looks at no address, takes
/// any free place.
pub(super) fn claim<T>(
    home: Option<u64>,
    mut map: impl FnMut(NonZeroUsize) -> Result<T, FixedError>,
) -> Result<T, NoPlace> {
    let first = home.map_or(0, |home| (home % PLACES as u64) as usize);
    let mut gate = gate();
    for step in 0..PLACES {
        let place = (first + step) % PLACES;
        // Acquire, partner: the release of `free`, after which nothing is mapped there.
        while STATES[place].load(Ordering::Acquire) == RUNS && step == 0 && home.is_some() {
            gate = ENDED.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        if STATES[place].load(Ordering::Acquire) != FREE {
            continue;
        }
        let at = NonZeroUsize::new(FIRST + place * PLACE).expect("no place is at address 0");
        match map(at) {
            Ok(mapped) => {
                // Relaxed: a thread that frees a block got its address from one that saw this.
                STATES[place].store(RUNS, Ordering::Relaxed);
                return Ok(mapped);
            }
            Err(FixedError::Map(map)) => return Err(NoPlace::Memory { at: at.get(), map }),
            Err(_) => {}
        }
    }
    Err(NoPlace::None)
}

/// The machine of the place at `start` has ended, and gives its memory up by `release`.
///
/// That under the gate, too: a machine that waits for this place, and looked between the two, would
/// find `LEFT` though nothing is left, and take another place.
pub(super) fn leave(start: usize, release: impl FnOnce()) {
    let _gate = gate();
    if let Some(place) = place_of(start) {
        // Relaxed: looked at under the gate.
        STATES[place].store(LEFT, Ordering::Relaxed);
    }
    release();
    ENDED.notify_all();
}

/// Nothing is mapped any more in the place at `start`, whose machine has ended.
pub(super) fn free(start: usize) {
    if let Some(place) = place_of(start) {
        // Release, partner: the acquire loads of `claim`.
        STATES[place].store(FREE, Ordering::Release);
    }
}

/// The beginning of the place of an address, if a machine has it or had it.
#[inline]
pub(super) fn start_of(address: usize) -> Option<usize> {
    let place = place_of(address)?;
    // Relaxed: who has an address of a block got it from the thread that allocated it, after the
    // place was taken; that hand-off orders the two.
    let taken = STATES[place].load(Ordering::Relaxed) != FREE;
    taken.then_some(FIRST + place * PLACE)
}

#[inline]
fn place_of(address: usize) -> Option<usize> {
    let place = address.wrapping_sub(FIRST) / PLACE;
    (place < PLACES).then_some(place)
}
