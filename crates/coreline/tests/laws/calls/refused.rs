//! The law of presence where the kernel refuses a heavy fence in the middle: the announcer panics,
//! and after that no context runs what it called for, or reads what it freed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use coreline::mask::{Entry, Presence, PresenceOptions, Versioned};
use coreline_world::model::Model;
use coreline_world::{
    Cell, Clock, JoinHandle, Line, Ordering, Place, Placement, Threads, Word, Words,
};

use crate::worlds::{self, BEFORE_REFUSED as BEFORE, ONE_REFUSED};

const ALWAYS: Duration = Duration::ZERO;
const NEVER: Duration = Duration::from_secs(3600);

const ALIVE: u64 = 7;
const DEAD: u64 = 0xdead;

/// What dies.
struct Page(Line<Cell<u64, Model>>);

impl Page {
    fn new_in() -> Self {
        Page(Line(Cell::new_in(ALIVE)))
    }

    fn look(&self) {
        // SAFETY: a page that is looked at is alive: that is what is tested.
        assert_eq!(self.0.with(|at| unsafe { at.read_volatile() }), ALIVE, "it is gone");
    }

    fn die(&self) {
        // SAFETY: no context looks any more: that is what is tested.
        self.0.with_mut(|at| unsafe { at.write_volatile(DEAD) });
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.die();
        }
    }
}

fn options(trim_every: Duration) -> PresenceOptions {
    PresenceOptions::new().seats(1).trim_every(trim_every)
}

/// A shootdown that fails at its `refused`th heavy fence, and one that does not.
fn no_call_outlives_its_announcer(refused: u32, trim_every: Duration) {
    BEFORE.set(None);
    let presence = Presence::<Model>::new_in(options(trim_every));
    let mut member = presence.register();
    // Its bit is set, so that an announcer looks at its seat in the very first execution: loom
    // forgets a load for a load and an exchange of another thread, and would look no further.
    drop(member.enter());
    let work = move || {
        let (mut inside, _) = member.enter();
        let _: Entry = inside.poll();
    };
    let context = Model::spawn(Placement::Anywhere, work).unwrap();
    // Not on the stack, so that a late call is a race and nothing worse.
    let called = Arc::new(Page::new_in());
    BEFORE.set(Some(refused - 1));
    let shot = catch_unwind(AssertUnwindSafe(|| presence.shootdown(|| called.look())));
    // Without a context there, there is no second fence.
    assert!(shot.is_err() || refused == 2 && BEFORE.take() == Some(0), "{shot:?}");
    called.die();
    presence.shootdown(|| ());
    context.join();
}

#[test]
fn no_call_runs_after_a_refused_fence() {
    for trim_every in [ALWAYS, NEVER] {
        worlds::check_planted(ONE_REFUSED, move || no_call_outlives_its_announcer(1, trim_every));
        worlds::check_planted(ONE_REFUSED, move || no_call_outlives_its_announcer(2, trim_every));
        worlds::check_planted(ONE_REFUSED, move || a_late_look_finds_no_call(trim_every));
    }
}

/// The same, when the context looks late.
fn a_late_look_finds_no_call(trim_every: Duration) {
    BEFORE.set(None);
    let presence = Presence::<Model>::new_in(options(trim_every));
    let words = || Arc::new([0, 0].map(<Model as Words>::U32::new_in));
    let (signs, called) = (words(), Arc::new(Page::new_in()));
    let (theirs, mut member) = (Arc::clone(&signs), presence.register());
    let work = move || {
        let (mut inside, _) = member.enter();
        // Release and Acquire, here and below: each side waits for what the other did.
        theirs[0].store(1, Ordering::Release);
        theirs[1].wait_until(Ordering::Acquire, |gone| gone == 1);
        assert_eq!(inside.poll(), Entry::MustRefresh);
    };
    let context = Model::spawn(Placement::Anywhere, work).unwrap();
    signs[0].wait_until(Ordering::Acquire, |entered| entered == 1);
    BEFORE.set(Some(1));
    let shot = catch_unwind(AssertUnwindSafe(|| presence.shootdown(|| called.look())));
    assert!(shot.is_err() && BEFORE.get().is_none());
    called.die();
    signs[1].store(1, Ordering::Release);
    context.join();
}

/// A change that was asked of no context is not hidden by the next call.
fn what_was_missed_is_refreshed(trim_every: Duration) {
    BEFORE.set(None);
    let presence = Presence::<Model>::new_in(options(trim_every));
    let signs = Arc::new([0, 0].map(<Model as Words>::U32::new_in));
    let (theirs, mut member) = (Arc::clone(&signs), presence.register());
    let work = move || {
        let (mut inside, _) = member.enter();
        // Release and Acquire, here and below: each side waits for what the other did.
        theirs[0].store(1, Ordering::Release);
        theirs[1].wait_until(Ordering::Acquire, |refused| refused == 1);
        while inside.poll() == Entry::Current {
            Model::relax();
        }
    };
    let context = Model::spawn(Placement::Anywhere, work).unwrap();
    signs[0].wait_until(Ordering::Acquire, |entered| entered == 1);
    BEFORE.set(Some(0));
    assert!(catch_unwind(AssertUnwindSafe(|| presence.shootdown(|| ()))).is_err());
    signs[1].store(1, Ordering::Release);
    presence.shootdown(|| panic!("the context has missed a change"));
    context.join();
}

#[test]
fn a_change_that_a_refused_fence_hid_is_told_with_the_next() {
    for trim_every in [ALWAYS, NEVER] {
        worlds::check_planted(ONE_REFUSED, move || what_was_missed_is_refreshed(trim_every));
    }
}

/// An update whose heavy fence is refused, and one whose is not.
fn nothing_is_freed_early(trim_every: Duration) {
    BEFORE.set(None);
    let value = Versioned::<Page, Model>::new_in(Page::new_in(), options(trim_every));
    let theirs = value.clone();
    let read = move || {
        let reader = theirs.reader();
        for _ in 0..2 {
            let mut reading = reader.enter();
            reading.get().look();
            reading.get().look();
        }
    };
    let reader = Model::spawn(Placement::Anywhere, read).unwrap();
    BEFORE.set(Some(0));
    value.update(Page::new_in());
    // Without a reader there, there is no fence.
    BEFORE.set(None);
    value.update(Page::new_in());
    reader.join();
    value.synchronize();
    assert_eq!(value.retired(), 0, "what the refused update replaced was freed by the next");
}

#[test]
fn no_value_is_freed_early_or_lost_after_a_refused_fence() {
    for trim_every in [ALWAYS, NEVER] {
        worlds::check_planted(ONE_REFUSED, move || nothing_is_freed_early(trim_every));
    }
}

#[test]
fn an_update_whose_fence_was_refused_is_seen_and_waited_for() {
    worlds::check_planted(ONE_REFUSED, || {
        BEFORE.set(None);
        let value = Versioned::<u32, Model>::new_in(0, options(NEVER));
        let reader = value.reader();
        let mut reading = reader.enter();
        BEFORE.set(Some(0));
        value.update(1);
        assert!(BEFORE.get().is_none(), "it made no fence");
        assert_eq!(value.retired(), 1, "the reader may hold it");
        BEFORE.set(Some(0));
        let wait = catch_unwind(AssertUnwindSafe(|| value.synchronize_by(Model::now())));
        assert!(wait.is_err(), "it makes the fence that was refused");
        assert!(!value.synchronize_by(Model::now()), "the reader holds what was replaced");
        assert_eq!(*reading.get(), 1);
        assert!(value.synchronize_by(Model::now()) && value.retired() == 0);
    });
}

#[test]
fn a_wait_whose_fence_was_refused_says_so() {
    worlds::check_planted(ONE_REFUSED, || {
        BEFORE.set(None);
        let value = Versioned::<u32, Model>::new_in(0, options(NEVER).fence_every(NEVER));
        let reader = value.reader();
        for number in 1..=2 {
            // Its bit is set, also behind the first update, which trims.
            drop(reader.enter());
            value.update(number);
        }
        assert_eq!(value.retired(), 1, "the second update makes no fence");
        BEFORE.set(Some(0));
        assert!(catch_unwind(AssertUnwindSafe(|| value.synchronize())).is_err());
        value.synchronize();
        assert_eq!(value.retired(), 0);
    });
}

/// The same where two rolls are told, with one fence altogether.
fn nothing_is_freed_early_of_two_rolls(trim_every: Duration) {
    BEFORE.set(None);
    let value = Versioned::<Page, Model>::new_in(Page::new_in(), options(trim_every));
    let seats = 2 * Model::topology().cpu_count();
    let mut readers: Vec<_> = (0..=seats).map(|_| value.reader()).collect();
    // One of each roll. Their bits are set, as that of the member above.
    let mut two = [readers.remove(0), readers.pop().unwrap()];
    two.iter_mut().for_each(|reader| drop(reader.enter()));
    let read = move || {
        for _ in 0..2 {
            let mut readings = two.each_mut().map(|reader| reader.enter());
            readings.iter_mut().for_each(|reading| reading.get().look());
        }
    };
    let reader = Model::spawn(Placement::Anywhere, read).unwrap();
    BEFORE.set(Some(0));
    value.update(Page::new_in());
    assert!(BEFORE.get().is_none(), "it made no fence");
    value.update(Page::new_in());
    reader.join();
    value.synchronize();
    assert_eq!(value.retired(), 0, "what the refused update replaced was freed by the next");
}

// Two tests, so that they run at the same time: each takes long.
#[test]
fn no_value_is_freed_early_or_lost_after_a_fence_is_refused_in_the_midst_of_rolls() {
    worlds::few_planted(ONE_REFUSED, || nothing_is_freed_early_of_two_rolls(NEVER));
}

#[test]
fn no_value_is_freed_early_where_updates_trim_and_a_fence_is_refused_among_rolls() {
    worlds::few_planted(ONE_REFUSED, || nothing_is_freed_early_of_two_rolls(ALWAYS));
}
