//! Laws of memory order, as litmus tests. Each says what a thread may conclude from a value that it
//! read.

use std::sync::Arc;

use super::waits::late;
use super::{race, rounds, spawn};
use crate::{Cell, Integer, JoinHandle, Line, Ordering, Testbed, Word};

/// Data in a cell, and a flag that says that it is there.
type Published<W> = (Cell<u64, W>, <W as crate::Words>::U32);

const DATA: u64 = 42;

fn unpublished<W: Testbed>() -> Published<W> {
    (Cell::new_in(0), W::U32::new_in(0))
}

fn write_data<W: Testbed>((data, _): &Published<W>) {
    // SAFETY: the one writer runs before the flag is set, and readers look only after they saw it
    // set; or the other way round.
    data.with_mut(|data| unsafe { data.write(DATA) });
}

fn read_data<W: Testbed>((data, _): &Published<W>) -> u64 {
    // SAFETY: the caller has seen the flag; the only write was before it.
    data.with(|data| unsafe { data.read() })
}

fn publish<W: Testbed>(state: &Published<W>) {
    write_data(state);
    // Release, partner: the reader's acquire of the flag. Without it the flag could be seen before
    // the data.
    state.1.store(1, Ordering::Release);
}

fn data_is_there<W: Testbed>(_: &Published<W>, (): (), data: u64) {
    assert_eq!(data, DATA, "the flag was seen before the data");
}

/// Message passing to a reader that waits for the flag in this way.
fn read_after<W: Testbed>(wait: fn(&W::U32)) {
    race::<W, _, _, _>(
        unpublished::<W>,
        publish::<W>,
        move |state| {
            wait(&state.1);
            read_data(state)
        },
        data_is_there::<W>,
    );
}

// In the next three laws Acquire is the partner of the release in `publish`. Without it the data
// could be read early.

/// Checks message passing. A thread that acquires a flag must see all writes before the flag's
/// release.
pub fn published_data_is_seen<W: Testbed>() {
    read_after::<W>(|flag| {
        while flag.load(Ordering::Acquire) == 0 {
            W::relax();
        }
    });
}

/// Checks message passing through `wait_until`, which loads with the given ordering and returns the
/// accepted value.
pub fn a_wait_sees_what_was_published<W: Testbed>() {
    read_after::<W>(|flag| assert_eq!(flag.wait_until(Ordering::Acquire, |flag| flag != 0), 1));
}

/// Checks message passing through `wait_until_by`, as through `wait_until`. A wait gives up early
/// only in the model.
pub fn a_bounded_wait_sees_what_was_published<W: Testbed>() {
    read_after::<W>(|flag| {
        let deadline = late::<W>();
        let wait = || flag.wait_until_by(Ordering::Acquire, deadline, |flag| flag != 0);
        let mut seen = wait();
        while seen.is_none() {
            assert!(!W::RUNS, "{deadline} has not come");
            seen = wait();
        }
        assert_eq!(seen, Some(1));
    });
}

/// Checks that a wait returns the accepted value, even if the word has changed since.
pub fn a_wait_returns_what_it_accepted<W: Testbed>() {
    race::<W, _, _, _>(
        || W::U32::new_in(0),
        |word| {
            word.store(1, Ordering::Relaxed);
            word.store(2, Ordering::Relaxed);
        },
        |word| {
            let mut accepted = 0;
            let returned = word.wait_until(Ordering::Relaxed, |value| {
                accepted = value;
                value != 0
            });
            (accepted, returned)
        },
        |_, (), (accepted, returned)| assert_eq!(accepted, returned),
    );
}

/// Message passing through a word that is 1 until `send` changes it, which `received` notices.
fn message<W: Testbed>(send: fn(&W::U32), received: fn(&W::U32) -> bool) {
    race::<W, Published<W>, _, _>(
        || (Cell::new_in(0), W::U32::new_in(1)),
        move |state| {
            write_data(state);
            send(&state.1);
        },
        move |state| {
            while !received(&state.1) {
                W::relax();
            }
            read_data(state)
        },
        data_is_there::<W>,
    );
}

/// Laws of message passing: by which operation the flag is sent, and by which it is received.
///
/// A Release on the left is the partner of the Acquire on the right. Without either the flag could
/// be seen before the data.
macro_rules! message_laws {
    ($($(#[$doc:meta])* $law:ident: |$flag:ident| $send:expr, $received:expr;)+) => {$(
        $(#[$doc])*
        pub fn $law<W: Testbed>() {
            message::<W>(|$flag| _ = $send, |$flag| $received);
        }
    )+};
}

message_laws! {
    /// Message passing through swaps.
    swaps_publish: |flag|
        flag.swap(2, Ordering::Release),
        flag.swap(1, Ordering::Acquire) == 2;
    /// Message passing through compare-exchanges that succeed.
    exchanges_publish: |flag|
        assert!(flag.compare_exchange(1, 2, Ordering::Release, Ordering::Relaxed).is_ok()),
        flag.compare_exchange(2, 2, Ordering::Acquire, Ordering::Relaxed).is_ok();
    /// A compare-exchange that fails is a load, of the ordering that it is given for that.
    a_failed_exchange_receives: |flag|
        flag.store(2, Ordering::Release),
        // The flag never holds 3.
        flag.compare_exchange(3, 3, Ordering::Relaxed, Ordering::Acquire) == Err(2);
    /// Message passing through additions.
    additions_publish: |flag|
        flag.fetch_add(1, Ordering::Release),
        flag.fetch_add(0, Ordering::Acquire) == 2;
    /// Message passing through subtractions.
    subtractions_publish: |flag|
        flag.fetch_sub(1, Ordering::Release),
        flag.fetch_sub(0, Ordering::Acquire) == 0;
    /// Message passing through bitwise ands.
    ands_publish: |flag|
        flag.fetch_and(0, Ordering::Release),
        flag.fetch_and(u32::MAX, Ordering::Acquire) == 0;
    /// Message passing through bitwise ors.
    ors_publish: |flag|
        flag.fetch_or(2, Ordering::Release),
        flag.fetch_or(0, Ordering::Acquire) == 3;
    /// Message passing through bitwise exclusive ors.
    xors_publish: |flag|
        flag.fetch_xor(2, Ordering::Release),
        flag.fetch_xor(0, Ordering::Acquire) == 3;
}

/// Checks message passing through a release fence before a relaxed store, and an acquire fence
/// after a relaxed load.
pub fn fences_publish<W: Testbed>() {
    race::<W, _, _, _>(
        unpublished::<W>,
        |state| {
            write_data(state);
            // Release, partner: the reader's acquire fence. Without it the flag could be seen
            // first.
            W::fence(Ordering::Release);
            state.1.store(1, Ordering::Relaxed);
        },
        |state| {
            state.1.wait_until(Ordering::Relaxed, |flag| flag != 0);
            // Acquire, partner: the writer's release fence. Without it the data could be read
            // early.
            W::fence(Ordering::Acquire);
            read_data(state)
        },
        data_is_there::<W>,
    );
}

/// Two words; each side sets its own, fences, and looks at the other's. Each word has a line of its
/// own: on one line a store and the load behind it would wait for the same transfer, and natively
/// the load would hardly ever pass.
fn store_buffering<W: Testbed>(left: fn(), right: fn()) {
    race::<W, (Line<W::U32>, Line<W::U32>), _, _>(
        || (Line(W::U32::new_in(0)), Line(W::U32::new_in(0))),
        move |(mine, theirs)| {
            mine.store(1, Ordering::Relaxed);
            left();
            theirs.load(Ordering::Relaxed)
        },
        move |(theirs, mine)| {
            mine.store(1, Ordering::Relaxed);
            right();
            theirs.load(Ordering::Relaxed)
        },
        |_, left, right| assert!(left + right > 0, "neither side saw the other's store"),
    );
}

/// Checks Dekker's pattern. With a full fence between store and load on both sides, at least one
/// side must see the other side's store.
pub fn full_fences_forbid_store_buffering<W: Testbed>() {
    // SeqCst, partner: the other side's. Without either both loads could pass the stores before
    // them.
    let full = || W::fence(Ordering::SeqCst);
    store_buffering::<W>(full, full);
}

/// Checks Dekker's pattern with a light fence on one side, and a heavy fence on the other.
pub fn a_light_and_a_heavy_fence_forbid_store_buffering<W: Testbed>() {
    store_buffering::<W>(W::fence_light, W::fence_all);
    if W::light_is_free() {
        store_buffering::<W>(W::fence_light_free, W::fence_all);
    }
}

/// Checks message passing through a light fence before a relaxed store, and
/// [`try_fence_seen`](crate::Fences::try_fence_seen) after a relaxed load.
pub fn a_light_fence_publishes_to_what_has_seen<W: Testbed>() {
    race::<W, _, _, _>(
        unpublished::<W>,
        |state| {
            write_data(state);
            // Partner: the reader's rare side. Without it the flag could be seen first.
            W::fence_light();
            state.1.store(1, Ordering::Relaxed);
        },
        |state| {
            state.1.wait_until(Ordering::Relaxed, |flag| flag != 0);
            // Partner: the writer's light fence. Without it the data could be read early.
            W::try_fence_seen().expect("fences work");
            read_data(state)
        },
        data_is_there::<W>,
    );
}

/// Checks the asymmetric pair for reads. A thread's read before its light fence must never return a
/// value that the other thread writes after its own fence.
pub fn a_light_fence_ends_reads_for_what_has_seen<W: Testbed>() {
    race::<W, _, _, _>(
        unpublished::<W>,
        |state| {
            let data = read_data(state);
            // Partner: the writer's rare side. Without it the flag could be seen before the read.
            W::fence_light();
            state.1.store(1, Ordering::Relaxed);
            data
        },
        |state| {
            state.1.wait_until(Ordering::Relaxed, |flag| flag != 0);
            // Partner: the reader's light fence. Without it the data could be written early.
            W::try_fence_seen().expect("fences work");
            write_data(state);
        },
        |_, data, ()| assert_eq!(data, 0, "the data was written before it was read"),
    );
}

/// Checks coherence. A thread's reads of one word must never go back in the order of the word's
/// writes, even with relaxed reads.
pub fn a_word_never_goes_back<W: Testbed>() {
    race::<W, _, _, _>(
        || W::U64::new_in(0),
        |word| {
            word.store(1, Ordering::Relaxed);
            word.store(2, Ordering::Relaxed);
        },
        |word| (word.load(Ordering::Relaxed), word.load(Ordering::Relaxed)),
        |_, (), (first, second)| assert!(first <= second, "read {first}, later {second}"),
    );
}

/// Checks conservation. Each of several concurrent additions must return a different value, and no
/// addition may be lost.
pub fn additions_are_never_lost<W: Testbed>() {
    const THREADS: u32 = 3;
    let word = Arc::new(W::U32::new_in(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let word = Arc::clone(&word);
            spawn::<W, _>(move || {
                let add = |_| word.fetch_add(1, Ordering::Relaxed);
                (0..rounds::<W>()).map(add).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut seen: Vec<u32> = threads.into_iter().flat_map(JoinHandle::join).collect();
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..THREADS * rounds::<W>()), "{seen:?}");
    assert_eq!(word.load(Ordering::Relaxed), THREADS * rounds::<W>());
}

/// Checks that exactly one of two compare-exchanges from the same value succeeds, and that the
/// other returns the value that the first wrote.
pub fn one_exchange_wins<W: Testbed>() {
    fn claim<W: Testbed>(word: &W::U32, id: u32) -> Result<u32, u32> {
        word.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed)
    }
    race::<W, _, _, _>(
        || W::U32::new_in(0),
        |word| claim::<W>(word, 1),
        |word| claim::<W>(word, 2),
        |_, left, right| {
            let outcomes = [(Ok(0), Err(1)), (Err(2), Ok(0))];
            assert!(outcomes.contains(&(left, right)), "left {left:?}, right {right:?}");
        },
    );
}
