//! The laws of presence over many random schedules: contexts come, look and go for as long as
//! there are changes, and none waits for another except as the protocol does.
//!
//! What the model checker does not see, these do: loom forgets a load that is followed by an
//! exchange of the same word, and what takes more preemptions than its bound.

use std::cell::Cell as HostCell;
use std::sync::Arc;
use std::time::Duration;

use coreline::mask::{Entry, Presence, PresenceOptions, Versioned};
use coreline_sim::{Faults, Sim};
use coreline_world::{JoinHandle, Ordering, Testbed, Word, WorldLocal};

use crate::worlds::{self, crew};

const ALWAYS: Duration = Duration::ZERO;
const CHANGES: u64 = 40;
/// 40 in each of two tests, and more at night.
const SEEDS: u64 = 40;

/// Stores that are seen late.
const DELAYED: Faults = Faults { delay: 4, ..Faults::NONE };

/// Seldom enough that most of the run is not spinning.
const PREEMPTED: Faults = Faults { preempt_access: 100, ..Faults::NONE };

/// What a program and its contexts share: the current value, and the newest that is gone for good.
struct Shared<W: Testbed, P> {
    presence: P,
    current: W::U64,
    gone: W::U64,
}

impl<W: Testbed, P: Send + Sync + 'static> Shared<W, P> {
    fn new_in(presence: P) -> Arc<Self> {
        Arc::new(Shared { presence, current: W::U64::new_in(0), gone: W::U64::new_in(0) })
    }

    /// Whether there is more to come; Acquire, here and below: pairs with the Release in `change`.
    fn goes_on(&self) -> bool {
        self.current.load(Ordering::Acquire) < CHANGES
    }

    fn look(&self, cached: u64) {
        let gone = self.gone.load(Ordering::Acquire);
        assert!(cached >= gone, "{cached} is used after all were told of {gone}");
    }

    /// Replaces the value, again and again, while contexts do what they do.
    fn change(self: Arc<Self>, contexts: u32, context: fn(&Self), tell: impl Fn(&Self)) {
        let contexts = crew::<W, _, _>(contexts, |_| {
            let shared = Arc::clone(&self);
            move || context(&shared)
        });
        for number in 1..=CHANGES {
            self.current.store(number, Ordering::Release);
            tell(&self);
            self.gone.store(number, Ordering::Release);
        }
        contexts.into_iter().for_each(JoinHandle::join);
    }
}

fn options(contexts: u32) -> PresenceOptions {
    PresenceOptions::new().seats(contexts as usize).trim_every(ALWAYS)
}

/// Whether the shootdown's function ran in the calling context.
static FLUSHED: WorldLocal = WorldLocal::new("flushed");

fn flushed<W: Testbed>(set: bool) -> bool {
    FLUSHED.with::<W, HostCell<bool>, _>(|| HostCell::new(false), |flushed| flushed.replace(set))
}

fn calls<W: Testbed>(contexts: u32) {
    fn context<W: Testbed>(shared: &Shared<W, Presence<W>>) {
        let mut member = shared.presence.register();
        let mut cached = 0;
        while shared.goes_on() {
            let (mut inside, mut entry) = member.enter();
            for _ in 0..2 {
                if flushed::<W>(false) | (entry == Entry::MustRefresh) {
                    cached = shared.current.load(Ordering::Acquire);
                }
                shared.look(cached);
                entry = inside.poll();
            }
            if flushed::<W>(false) | (entry == Entry::MustRefresh) {
                cached = shared.current.load(Ordering::Acquire);
            }
        }
    }
    let shared = Shared::<W, _>::new_in(Presence::<W>::new_in(options(contexts)));
    shared.change(contexts, context::<W>, |shared| {
        shared.presence.shootdown(|| {
            flushed::<W>(true);
        });
    });
}

/// A value that is seen to be gone.
struct Page<W: Testbed>(W::U32);

impl<W: Testbed> Page<W> {
    fn new_in() -> Self {
        Page(W::U32::new_in(1))
    }

    /// Relaxed, here and below: that no drop comes before this is what is tested.
    fn look(&self) {
        assert_eq!(self.0.load(Ordering::Relaxed), 1, "a page is read after it was freed");
    }
}

impl<W: Testbed> Drop for Page<W> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

fn updates<W: Testbed>(contexts: u32) {
    fn context<W: Testbed>(shared: &Shared<W, Versioned<Page<W>, W>>) {
        let reader = shared.presence.reader();
        while shared.goes_on() {
            let mut reading = reader.enter();
            for _ in 0..2 {
                let page = reading.get();
                page.look();
                page.look();
            }
        }
    }
    let value = Versioned::<Page<W>, W>::new_in(Page::new_in(), options(contexts));
    let shared = Shared::<W, _>::new_in(value);
    shared.change(contexts, context::<W>, |shared| shared.presence.update(Page::new_in()));
}

#[test]
fn everybody_is_told_in_random_schedules() {
    for (faults, seeds) in [(DELAYED, worlds::schedules(SEEDS)), (PREEMPTED, 2)] {
        let law = || (1..3).for_each(calls::<Sim>);
        worlds::simulate_seeds("schedules::calls", "host-2c", faults, seeds, law).unwrap();
    }
}

#[test]
fn nothing_that_is_read_is_freed_in_random_schedules() {
    for (faults, seeds) in [(DELAYED, worlds::schedules(SEEDS)), (PREEMPTED, 8)] {
        let law = || (1..3).for_each(updates::<Sim>);
        worlds::simulate_seeds("schedules::updates", "host-2c", faults, seeds, law).unwrap();
    }
}
