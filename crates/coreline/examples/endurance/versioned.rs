//! Updates, edits and readers of one value, with reclaimers that come and go.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use coreline::mask::{PresenceOptions, Reader, Reading, Versioned};

use crate::{Hand, Settings, crew};

/// How many values there are.
static LIVE: AtomicI64 = AtomicI64::new(0);

/// The most that there were.
static MOST: AtomicI64 = AtomicI64::new(0);

const ALIVE: u64 = 0x6c69_7665_6c69_7665;

/// A value that shows whether it is whole and alive.
struct Value {
    number: u64,
    inverse: u64,
    state: AtomicU64,
    more: Box<[u64; 16]>,
}

impl Value {
    fn new(number: u64) -> Self {
        let live = LIVE.fetch_add(1, Ordering::Relaxed) + 1;
        MOST.fetch_max(live, Ordering::Relaxed);
        let more = Box::new([number; 16]);
        Value { number, inverse: !number, state: AtomicU64::new(ALIVE), more }
    }

    fn look(&self) -> u64 {
        assert_eq!(self.state.load(Ordering::Relaxed), ALIVE, "a value is read after its drop");
        assert_eq!(self.number, !self.inverse, "a torn value");
        assert!(self.more.iter().all(|number| *number == self.number), "a torn value");
        self.number
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        let before = self.state.swap(0xdead, Ordering::Relaxed);
        assert_eq!(before, ALIVE, "a value is dropped twice");
        self.more.fill(0xdead);
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the threads share.
struct Shared {
    value: Versioned<Value>,
    /// The number of an edit that has returned.
    returned: AtomicU64,
    edits: AtomicU64,
}

impl Shared {
    /// Reads, and checks that the value is not older than it may be.
    fn read(&self, reading: &mut Reading<'_, Value>, own: u64) -> u64 {
        // Acquire: pairs with the Release in `edit`.
        let least = self.returned.load(Ordering::Acquire).max(own);
        let found = reading.get().look();
        assert!(found >= least, "{found} is read after {least} was there");
        found
    }

    /// Counts one up. Returns the count.
    fn edit(&self, hand: &mut Hand) -> u64 {
        let mut own = 0;
        let works = hand.one_in(50);
        self.value.rcu(|old| {
            own = old.look() + 1;
            if works {
                hand.work();
            }
            Value::new(own)
        });
        self.edits.fetch_add(1, Ordering::Relaxed);
        // Release: pairs with the Acquire in `read`.
        self.returned.fetch_max(own, Ordering::Release);
        own
    }

    /// Reads with nested guards, which go in any order.
    fn nest(&self, reader: &Reader<Value>, hand: &mut Hand, own: u64) {
        let mut outer = reader.enter();
        self.read(&mut outer, own);
        let mut inner = reader.enter();
        let found = self.read(&mut inner, own);
        hand.work();
        if hand.one_in(2) {
            drop(outer);
            assert!(self.read(&mut inner, own) >= found);
        } else {
            drop(inner);
            assert!(self.read(&mut outer, own) >= found);
        }
    }

    fn stay(&self, reader: &Reader<Value>, hand: &mut Hand, own: u64) {
        let mut reading = reader.enter();
        for _ in 0..1 + hand.below(20) {
            self.read(&mut reading, own);
            let lent = reading.get();
            let number = lent.look();
            hand.work();
            assert_eq!(lent.look(), number, "a value changed while it was lent");
        }
    }
}

pub(crate) fn run(settings: &Settings) {
    let value = Versioned::new_in(Value::new(0), PresenceOptions::new());
    let shared = Shared { value, returned: AtomicU64::new(0), edits: AtomicU64::new(0) };
    let writers = settings.threads.div_ceil(4);
    crew(settings, |mut hand| {
        let mut reader = shared.value.reader();
        let mut own = 0;
        while hand.goes_on() {
            let writes = hand.number < writers;
            match hand.below(if writes { 100 } else { 70 }) {
                0..30 => hand.step("short read", |_| {
                    shared.read(&mut reader.enter(), own);
                }),
                30..50 => hand.step("long read", |hand| shared.stay(&reader, hand, own)),
                50..60 => hand.step("nested reads", |hand| shared.nest(&reader, hand, own)),
                60 => hand.step("new reader", |_| reader = shared.value.reader()),
                61 => hand.step("many readers", |hand| {
                    let all: Vec<_> = (0..hand.below(20)).map(|_| reader.clone()).collect();
                    all.iter().for_each(|one| {
                        shared.read(&mut one.enter(), own);
                    });
                }),
                62 => hand.step("synchronize by", |hand| {
                    let deadline = hand.deadline();
                    let _: bool = shared.value.synchronize_by(deadline);
                }),
                63 if hand.one_in(20) => {
                    hand.step("synchronize", |_| shared.value.synchronize());
                }
                64 if hand.one_in(100) => hand.step("reclaimer", |hand| {
                    let reclaimer = shared.value.reclaimer().expect("a thread");
                    (0..20).for_each(|_| hand.work());
                    drop(reclaimer);
                }),
                63 | 64 => {}
                65..70 => hand.step("work", Hand::work),
                _ => {
                    own = hand.step("edit", |hand| shared.edit(hand));
                    if hand.one_in(4) {
                        let mut reading = reader.enter();
                        shared.read(&mut reading, own);
                        own = hand.step("edit inside", |hand| shared.edit(hand));
                        shared.read(&mut reading, own);
                    }
                }
            }
        }
    });
    let Shared { value, edits, .. } = shared;
    value.synchronize();
    assert_eq!(value.retired(), 0, "values stay");
    let edits = edits.into_inner();
    assert_eq!(value.reader().enter().get().look(), edits, "an edit is lost");
    assert_eq!(LIVE.load(Ordering::Relaxed), 1, "values are not freed");
    drop(value);
    assert_eq!(LIVE.load(Ordering::Relaxed), 0, "the last value is not freed");
    println!(
        "versioned: {edits} edits, none lost, {} values at most",
        MOST.load(Ordering::Relaxed)
    );
}
