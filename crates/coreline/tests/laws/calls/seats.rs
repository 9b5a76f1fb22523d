//! The law of presence where it was once broken: contexts that come back often, seats that change
//! hands, two announcers, and one thing missed before another is asked for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use coreline::mask::{Entry, Late, Presence, PresenceOptions, Versioned};
use coreline_sim::{Faults, Sim};
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{
    Cell, Clock, Integer, JoinHandle, Line, Native, Ordering, Place, Placement, Testbed, Word,
    Words, implements,
};

use crate::worlds::{self, PREEMPTED, crew};

const ALWAYS: Duration = Duration::ZERO;
const NEVER: Duration = Duration::from_secs(3600);

const ALIVE: u64 = 7;
const DEAD: u64 = 0xdead;

/// A value that is written when it dies, so that a late read of it is noticed.
struct Page<W: Testbed>(Line<Cell<u64, W>>);

impl<W: Testbed> Page<W> {
    fn new_in() -> Self {
        Page(Line(Cell::new_in(ALIVE)))
    }

    fn look(&self) {
        // SAFETY: a page that is read is not freed: that is what is tested.
        assert_eq!(self.0.with(|at| unsafe { at.read_volatile() }), ALIVE, "it was freed");
    }
}

impl<W: Testbed> Drop for Page<W> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: no other thread has the page: that is what is tested.
            self.0.with_mut(|at| unsafe { at.write_volatile(DEAD) });
        }
    }
}

/// How many readers come, and how often.
#[derive(Clone, Copy)]
struct Readers {
    threads: u32,
    /// Readers that each thread registers, one after the other, so that seats change hands.
    lives: u32,
    /// How often each reader enters, and reads once.
    entries: u32,
    /// Updates of each of the updaters.
    updates: u32,
    /// The first thread, and so many beside it.
    more_updaters: u32,
}

/// Readers come and go while values are replaced.
fn come_back<W: Testbed>(readers: Readers, trim_every: Duration) {
    let options = PresenceOptions::new().seats(readers.threads as usize).trim_every(trim_every);
    let value = Versioned::<Page<W>, W>::new_in(Page::new_in(), options);
    let threads = crew::<W, _, _>(readers.threads, |_| {
        let value = value.clone();
        move || {
            for _ in 0..readers.lives {
                let reader = value.reader();
                for _ in 0..readers.entries {
                    reader.enter().get().look();
                }
            }
        }
    });
    let update = move |value: &Versioned<Page<W>, W>| {
        (0..readers.updates).for_each(|_| value.update(Page::new_in()));
    };
    let others = crew::<W, _, _>(readers.more_updaters, |_| {
        let value = value.clone();
        move || update(&value)
    });
    update(&value);
    threads.into_iter().chain(others).for_each(JoinHandle::join);
    value.synchronize();
    assert_eq!(value.retired(), 0, "no thread reads any more");
}

/// A reader thrice inside: away with its bit set, back while an announcer looks, and back again.
const THRICE: Readers = Readers { threads: 1, lives: 1, entries: 3, updates: 1, more_updaters: 0 };

/// With three preemptions, the free that this finds is out of reach.
fn check(law: impl Fn() + Send + Sync + 'static) {
    worlds::check_by(4, Plant::NONE, law);
}

#[test]
fn a_reader_that_comes_back_thrice_reads_nothing_freed() {
    check(|| come_back::<Model>(THRICE, ALWAYS));
    check(|| come_back::<Model>(THRICE, NEVER));
}

#[test]
fn a_seat_that_changes_hands_holds_nothing_freed() {
    let readers = Readers { lives: 2, entries: 1, ..THRICE };
    check(move || come_back::<Model>(readers, ALWAYS));
    check(move || come_back::<Model>(readers, NEVER));
}

#[test]
fn two_updaters_free_nothing_that_is_read_in_every_interleaving() {
    let readers = Readers { entries: 2, more_updaters: 1, ..THRICE };
    // `EXCHANGES`, here and below: two threads at the lock of updates, a `Mutex`.
    worlds::few_planted(Plant::EXCHANGES, move || come_back::<Model>(readers, ALWAYS));
    worlds::few_planted(Plant::EXCHANGES, move || come_back::<Model>(readers, NEVER));
}

/// A reader whose bit the first update clears comes twice, while the value is replaced twice.
fn comes_back_without_its_bit<W: Testbed>() {
    let options = PresenceOptions::new().seats(1).trim_every(ALWAYS);
    let value = Versioned::<Page<W>, W>::new_in(Page::new_in(), options);
    let reader = value.reader();
    drop(reader.enter());
    let read = move || (0..2).for_each(|_| reader.enter().get().look());
    let reader = W::spawn(Placement::Anywhere, read).unwrap();
    (0..2).for_each(|_| value.update(Page::new_in()));
    reader.join();
    value.synchronize();
    assert_eq!(value.retired(), 0, "no thread reads any more");
}

#[test]
fn a_reader_whose_bit_was_cleared_reads_nothing_freed() {
    worlds::check(comes_back_without_its_bit::<Model>);
}

#[test]
fn readers_that_come_and_go_read_nothing_freed_in_simulation() {
    let readers = Readers { threads: 4, lives: 5, entries: 6, updates: 20, more_updaters: 1 };
    let law = move || {
        come_back::<Sim>(readers, ALWAYS);
        come_back::<Sim>(readers, NEVER);
    };
    worlds::simulate("seats::come_back", "host-2c", PREEMPTED, law).unwrap();
}

#[test]
fn readers_that_come_and_go_read_nothing_freed_natively() {
    let readers = Readers { threads: 3, lives: 50, entries: 200, updates: 500, more_updaters: 1 };
    come_back::<Native>(readers, ALWAYS);
    come_back::<Native>(readers, NEVER);
}

/// One thing changes while the context is away, and then it is called for another: the call must
/// not stand in for what it missed before.
fn misses_nothing<W: Testbed>(first: Duration) {
    let presence = Presence::<W>::new_in(PresenceOptions::new().seats(1).trim_every(first));
    // The first announcement trims, whatever the options say.
    presence.shootdown(|| ());
    let word = || W::U32::new_in(0);
    let shared = Arc::new((presence, word(), word(), word()));
    let theirs = Arc::clone(&shared);
    let work = move || {
        let (presence, changed, flushed, ran) = &*theirs;
        let mut member = presence.register();
        let (mut cached, mut stale) = (0, false);
        for _ in 0..2 {
            let (mut inside, entry) = member.enter();
            stale |= entry == Entry::MustRefresh;
            for _ in 0..2 {
                // Relaxed, and below: only this thread can have run what sets it.
                if stale || flushed.load(Ordering::Relaxed) == 1 {
                    // Acquire: pairs with the Release below.
                    cached = changed.load(Ordering::Acquire);
                    stale = false;
                }
                let called = ran.load(Ordering::Relaxed) == 1;
                assert!(!called || cached == 1, "it was called and did not hear what came before");
                stale |= inside.poll() == Entry::MustRefresh;
            }
        }
    };
    let context = W::spawn(Placement::Anywhere, work).unwrap();
    let (presence, changed, flushed, ran) = &*shared;
    // Release: pairs with the Acquire above.
    changed.store(1, Ordering::Release);
    presence.shootdown(|| flushed.store(1, Ordering::Relaxed));
    presence.shootdown(|| ran.store(1, Ordering::Relaxed));
    context.join();
}

#[test]
fn a_call_does_not_hide_a_refresh() {
    worlds::check(|| misses_nothing::<Model>(NEVER));
    worlds::check(|| misses_nothing::<Model>(ALWAYS));
}

/// Contexts of their own and one that comes and goes: all of them are told by two announcers.
fn called_once<W: Testbed>(threads: u32, rounds: u32, calls: u32, trim_every: Duration) {
    let options = PresenceOptions::new().seats(threads as usize).trim_every(trim_every);
    let presence = Presence::<W>::new_in(options);
    let contexts = crew::<W, _, _>(threads, |_| {
        let presence = presence.clone();
        move || {
            for _ in 0..rounds {
                let mut member = presence.register();
                for _ in 0..2 {
                    let (mut inside, _) = member.enter();
                    let _ = inside.poll();
                }
            }
        }
    });
    let announce = move |presence: &Presence<W>| {
        for _ in 0..calls {
            let ran = Line(W::U32::new_in(0));
            let shot = presence.shootdown(|| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            let ran = ran.load(Ordering::Relaxed) as usize;
            assert!(ran <= shot.reached, "{ran} calls of {} contexts", shot.reached);
        }
    };
    let theirs = presence.clone();
    let other = W::spawn(Placement::Anywhere, move || announce(&theirs)).unwrap();
    announce(&presence);
    other.join();
    contexts.into_iter().for_each(JoinHandle::join);
}

#[test]
fn no_call_runs_twice_or_late() {
    for trim_every in [ALWAYS, NEVER] {
        worlds::few_planted(Plant::EXCHANGES, move || called_once::<Model>(1, 1, 1, trim_every));
        called_once::<Native>(3, 300, 300, trim_every);
    }
    let law = || {
        called_once::<Sim>(4, 10, 10, ALWAYS);
        called_once::<Sim>(4, 10, 10, NEVER);
    };
    worlds::simulate("seats::called_once", "host-2c", PREEMPTED, law).unwrap();
}

/// A context runs the call and is gone, and another takes its seat and gives it back unused.
fn unused<W: Testbed>() {
    let presence = Presence::<W>::new_in(PresenceOptions::new().seats(1).trim_every(NEVER));
    let mut member = presence.register();
    // As in `refused.rs`: its bit is set before the announcer looks.
    drop(member.enter());
    let theirs = presence.clone();
    let work = move || {
        let _: Entry = member.enter().0.poll();
        drop(member);
        drop(theirs.register());
    };
    let context = W::spawn(Placement::Anywhere, work).unwrap();
    presence.shootdown(|| ());
    context.join();
    let mut next = presence.register();
    assert_eq!(next.enter().1, Entry::MustRefresh, "it has nothing of those before it");
}

#[test]
fn an_announcer_does_not_wait_for_a_member_that_never_entered() {
    worlds::check(unused::<Model>);
}

/// A reader is inside while the value is replaced.
fn waits_for_a_reader<W: Testbed>() {
    let value = Versioned::<Page<W>, W>::new_in(Page::new_in(), PresenceOptions::new().seats(1));
    let word = || W::U32::new_in(0);
    let shared = Arc::new((value, word(), word()));
    let theirs = Arc::clone(&shared);
    let read = move || {
        let (value, entered, replaced) = &*theirs;
        let reader = value.reader();
        let mut reading = reader.enter();
        // Release, paired with the Acquire below: the update finds the reader inside.
        entered.store(1, Ordering::Release);
        // Relaxed, on both sides: it orders nothing, and has loom look behind the update.
        replaced.wait_until(Ordering::Relaxed, |replaced| replaced == 1);
        (0..2).for_each(|_| reading.get().look());
    };
    let reader = W::spawn(Placement::Anywhere, read).unwrap();
    let (value, entered, replaced) = &*shared;
    entered.wait_until(Ordering::Acquire, |entered| entered == 1);
    value.update(Page::new_in());
    replaced.store(1, Ordering::Relaxed);
    value.synchronize();
    assert_eq!(value.retired(), 0, "a reader may still read it");
    reader.join();
}

#[test]
fn what_was_replaced_is_freed_when_synchronize_returns() {
    worlds::check(waits_for_a_reader::<Model>);
}

/// A world promises that a heavy fence orders what comes before it towards the light fences of
/// others. A context that runs a call passes none on the way, so what is wanted of it has to bring
/// what was published.
#[test]
fn what_is_wanted_brings_what_was_published_without_heavy_fences() {
    worlds::check_planted(Plant::NO_HEAVY_FENCES, waits_for_a_reader::<Model>);
}

/// One thread waits until none reads, and the reader updates before it leaves.
fn updates_inside<W: Testbed>() {
    let options = PresenceOptions::new().seats(1);
    let value = Versioned::<Page<W>, W>::new_in(Page::new_in(), options);
    let reader = value.reader();
    let mut reading = reader.enter();
    reading.get().look();
    value.update(Page::new_in());
    let theirs = value.clone();
    let waiter = W::spawn(Placement::Anywhere, move || theirs.synchronize()).unwrap();
    value.update(Page::new_in());
    assert!(!format!("{value:?}").is_empty());
    drop(reading);
    waiter.join();
    value.synchronize();
    assert_eq!(value.retired(), 0);
}

#[test]
fn an_update_does_not_wait_for_a_thread_that_waits_for_readers() {
    worlds::check_planted(Plant::EXCHANGES, updates_inside::<Model>);
}

#[test]
fn a_member_that_is_dropped_has_left_though_its_guard_was_forgotten() {
    let value = Versioned::new(1);
    let reader = value.reader();
    core::mem::forget(reader.enter());
    drop(reader);
    value.update(2);
    assert_eq!(value.retired(), 0);
    Checker::new().check(|| {
        let presence = Presence::<Model>::new_in(PresenceOptions::new().seats(1));
        let mut member = presence.register();
        core::mem::forget(member.enter());
        drop(member);
        assert_eq!(presence.shootdown(|| ()).reached, 0);
    });
}

/// Counts drops, and panics in the one that is asked for.
struct Bomb(bool, Arc<<Native as Words>::U32>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        assert!(!self.0, "in a drop");
    }
}

#[test]
fn a_panic_in_a_drop_loses_no_other_value_natively() {
    let dropped = Arc::new(<Native as Words>::U32::new_in(0));
    let bomb = |explodes| Bomb(explodes, Arc::clone(&dropped));
    let value = Versioned::new(bomb(true));
    let reader = value.reader();
    let reading = reader.enter();
    value.update(bomb(false));
    value.update(bomb(false));
    drop(reading);
    let freed = catch_unwind(AssertUnwindSafe(|| value.synchronize()));
    assert!(freed.is_err(), "the panic is the caller's");
    assert_eq!(dropped.load(Ordering::Relaxed), 2, "and both old values are gone");
    assert_eq!(value.retired(), 0);
    value.update(bomb(false));
    drop((reader, value));
    assert_eq!(dropped.load(Ordering::Relaxed), 4);
}

/// 256 for each cache were all that there could be.
#[test]
fn no_context_is_refused_natively() {
    let most = 256 * Native::topology().cache_count();
    for seats in [0, 100, usize::MAX] {
        let presence = Presence::with_options(PresenceOptions::new().seats(seats));
        let mut members: Vec<_> = (0..=2 * most).map(|_| presence.register()).collect();
        let insides: Vec<_> = members.iter_mut().map(|member| member.enter().0).collect();
        let late = presence.shootdown_by(Native::now(), || ()).unwrap_err();
        assert!(matches!(late, Late::Missed { late, .. } if late == insides.len()), "{late}");
    }
}

#[test]
fn guards_stay_with_their_threads_and_all_else_moves() {
    use coreline::mask::{Inside, Member, Reader, Reading};
    assert!(implements!(Presence: Send) && implements!(Presence: Sync));
    assert!(implements!(Member: Send) && implements!(Member: Sync));
    assert!(!implements!(Inside<'_>: Send) && !implements!(Inside<'_>: Sync));
    assert!(implements!(Versioned<u32>: Send) && implements!(Versioned<u32>: Sync));
    assert!(implements!(Reader<u32>: Send) && !implements!(Reader<u32>: Sync));
    assert!(!implements!(Reading<'_, u32>: Send) && !implements!(Reading<'_, u32>: Sync));
}

/// Threads that add to the value, each to what it finds.
fn adds<W: Testbed>(threads: u32, each: u32) {
    let value = Versioned::<u32, W>::new_in(0, PresenceOptions::new().seats(1));
    let add = move |value: &Versioned<u32, W>| (0..each).for_each(|_| value.rcu(|old| old + 1));
    let others: Vec<_> = (1..threads)
        .map(|_| {
            let value = value.clone();
            W::spawn(Placement::Anywhere, move || add(&value)).unwrap()
        })
        .collect();
    add(&value);
    others.into_iter().for_each(JoinHandle::join);
    assert_eq!(*value.reader().enter().get(), threads * each);
}

#[test]
fn no_edit_is_lost() {
    worlds::check_planted(Plant::EXCHANGES, || adds::<Model>(2, 1));
    worlds::simulate("seats::adds", "host-2c", PREEMPTED, || adds::<Sim>(4, 10)).unwrap();
    adds::<Native>(4, 100);
}

#[test]
fn an_edit_that_panics_changes_nothing() {
    let value = Versioned::new(1);
    let edit = AssertUnwindSafe(|| value.rcu(|_| panic!("in an edit")));
    assert!(catch_unwind(edit).is_err());
    assert_eq!((*value.reader().enter().get(), value.retired()), (1, 0));
    value.rcu(|old| old + 1);
    assert_eq!(*value.reader().enter().get(), 2);
}

/// A reader that stays inside holds up the wait until its deadline, and not longer.
fn gives_up() {
    let value = Versioned::<u32, Sim>::new_in(0, PresenceOptions::new().seats(1));
    let reader = value.reader();
    let other = reader.clone();
    let reading = reader.enter();
    value.update(1);
    assert_eq!(*other.enter().get(), 1, "it has a seat of its own");
    let (begun, span) = (Sim::now(), Duration::from_micros(50));
    assert!(!value.synchronize_by(begun + span));
    let waited = Sim::now() - begun;
    assert!(waited >= span && waited < span * 2, "{waited:?}");
    assert_eq!(value.retired(), 1);
    drop(reading);
    assert!(value.synchronize_by(Sim::now()), "a deadline that has passed, and no reader");
    assert_eq!(value.retired(), 0);
}

#[test]
fn a_wait_for_readers_ends_at_its_deadline() {
    worlds::simulate("seats::gives_up", "host-2c", Faults::NONE, gives_up).unwrap();
}
