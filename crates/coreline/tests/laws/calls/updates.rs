//! The law of updates: each is seen by every read after its return, and what it replaced is freed
//! in time, whether it makes a heavy fence or leaves that to another one.

use std::sync::Arc;
use std::time::Duration;

use coreline::RwLock;
use coreline::lock::{Near, SpinningReaders};
use coreline::mask::{PresenceOptions, Reader, Reading, Versioned};
use coreline_sim::{Faults, Machine, Sim};
use coreline_world::model::{Model, Plant};
use coreline_world::{
    Clock, Fences, JoinHandle, Native, Ordering, Placement, Testbed, Threads, Word, Work,
};

use crate::page::Page;
use crate::worlds::{self, Effort, FEW, NATIVE, PREEMPTED, RACE, is_caught};

const ALWAYS: Duration = Duration::ZERO;
const NEVER: Duration = Duration::from_secs(3600);

/// A value that counts its updates, and the number of an update that has returned.
struct Shared<W: Testbed> {
    count: Versioned<Page<W>, W>,
    returned: W::U32,
}

impl<W: Testbed> Shared<W> {
    fn new_in(options: PresenceOptions) -> Arc<Self> {
        let count = Versioned::new_in(Page::new_in(0), options);
        Arc::new(Shared { count, returned: W::U32::new_in(0) })
    }

    /// Updates once. Every reader finds that from here on.
    fn update(&self) -> u32 {
        let mut own = 0;
        self.count.rcu(|old| {
            own = old.look() + 1;
            Page::new_in(own)
        });
        // Release: pairs with the Acquire in `look`.
        self.returned.store(own, Ordering::Release);
        own
    }

    fn look(&self, reading: &mut Reading<'_, Page<W>, W>, own: u32) {
        // Acquire: pairs with the Release in `update`: the read comes after that update's return.
        let returned = self.returned.load(Ordering::Acquire);
        let found = reading.get().look();
        assert!(found >= own, "{found} is read after the update to {own} has returned");
        assert!(found >= returned, "{found} is read after another update to {returned}");
    }

    /// What a thread does, whose reader stays inside.
    fn work(&self, reader: &Reader<Page<W>, W>, rounds: u32) {
        let mut reading = reader.enter();
        for _ in 0..rounds {
            self.look(&mut reading, 0);
            let own = self.update();
            self.look(&mut reading, own);
        }
    }
}

fn options(fence_every: Duration) -> PresenceOptions {
    PresenceOptions::new().seats(1).fence_every(fence_every)
}

/// Threads update and read.
fn seen<W: Testbed>(effort: Effort, fence_every: Duration) {
    let shared = Shared::<W>::new_in(options(fence_every));
    let own = shared.count.reader();
    let threads = effort.crew::<W, _, _>(|_| {
        let (shared, reader) = (Arc::clone(&shared), shared.count.reader());
        move || shared.work(&reader, effort.rounds)
    });
    shared.work(&own, effort.rounds);
    threads.into_iter().for_each(JoinHandle::join);
    shared.count.synchronize();
    assert_eq!(shared.count.retired(), 0, "no thread reads any more");
    let updates = (effort.threads + 1) * effort.rounds;
    assert_eq!(own.enter().get().look(), updates, "an update is lost");
}

#[test]
fn an_update_is_seen_by_every_read_after_it_natively() {
    for fence_every in [ALWAYS, PresenceOptions::FENCE_EVERY, NEVER] {
        seen::<Native>(Effort { rounds: 2_000, ..NATIVE }, fence_every);
    }
}

#[test]
fn an_update_is_seen_by_every_read_after_it_in_simulation() {
    let many = Effort { threads: 24, rounds: 8, cpus: 24 };
    for faults in [Faults::NONE, PREEMPTED] {
        let law = move || {
            seen::<Sim>(many, ALWAYS);
            seen::<Sim>(many, NEVER);
        };
        worlds::simulate("updates::seen", "epyc-9654-2s", faults, law).unwrap();
    }
    let law = || seen::<Sim>(Effort { rounds: 20, ..FEW }, NEVER);
    worlds::search("updates::seen", "host-2c", worlds::schedules(40), law).unwrap();
}

/// Beside the first thread: two updates, at the lock of updates, which is a `Mutex`. So its laws in
/// the model have [`Plant::EXCHANGES`].
const ONE: Effort = Effort { threads: 1, rounds: 1, cpus: 2 };

#[test]
fn an_update_is_seen_by_every_read_after_it_in_every_interleaving() {
    for fence_every in [ALWAYS, NEVER] {
        worlds::few_planted(Plant::EXCHANGES, move || seen::<Model>(ONE, fence_every));
    }
}

/// A reader comes while the value is replaced twice: first it may have no bit, then one.
fn comes<W: Testbed>() {
    let shared = Shared::<W>::new_in(options(NEVER).trim_every(NEVER));
    let (theirs, reader) = (Arc::clone(&shared), shared.count.reader());
    let read = move || (0..2).for_each(|_| theirs.look(&mut reader.enter(), 0));
    let reader = W::spawn(Placement::Anywhere, read).unwrap();
    (0..2).for_each(|_| _ = shared.update());
    reader.join();
    shared.count.synchronize();
    assert_eq!(shared.count.retired(), 0, "no thread reads any more");
}

#[test]
fn a_reader_that_comes_finds_each_update_in_every_interleaving() {
    worlds::check(comes::<Model>);
}

#[test]
fn missing_orderings_of_updates_are_caught() {
    assert!(is_caught(Plant::NO_FENCES, comes::<Model>), "the fence of bits");
    assert!(is_caught(Plant::RELAXED_STORES, comes::<Model>), "what is wanted");
    let plant = Plant { rmw: Plant::RELAXED_RMWS.rmw, ..Plant::EXCHANGES };
    worlds::assert_caught(plant, RACE, || seen::<Model>(ONE, ALWAYS));
}

/// A reader has its bit, and values wait for a fence that only the wait at the end makes.
fn waits<W: Testbed>() {
    let shared = Shared::<W>::new_in(options(NEVER).trim_every(NEVER));
    let reader = shared.count.reader();
    drop(reader.enter());
    // It takes the fence that the options allow.
    shared.update();
    let theirs = Arc::clone(&shared);
    let read = move || (0..2).for_each(|_| theirs.look(&mut reader.enter(), 0));
    let reader = W::spawn(Placement::Anywhere, read).unwrap();
    shared.update();
    shared.count.synchronize();
    assert_eq!(shared.count.retired(), 0, "what was replaced before it is free");
    reader.join();
}

#[test]
fn a_value_that_waits_for_a_fence_is_not_freed_early_in_every_interleaving() {
    worlds::check(waits::<Model>);
}

#[test]
fn a_missing_fence_of_a_wait_is_caught() {
    for plant in [Plant::NO_LIGHT_FENCES, Plant::NO_HEAVY_FENCES] {
        assert!(is_caught(plant, waits::<Model>));
    }
}

/// The values that stay after each of some updates, beside a reader that has left.
fn stay(fence_every: Duration, pause: Duration) -> Vec<usize> {
    let law = move || {
        let value = Versioned::<u32, Sim>::new_in(0, options(fence_every));
        let reader = value.reader();
        let update = |number| {
            drop(reader.enter());
            value.update(number);
            Sim::work(pause);
            value.retired()
        };
        (0..40).map(update).collect()
    };
    Machine::preset("host-2c").unwrap().run(law).unwrap().value
}

#[test]
fn updates_leave_values_to_others_only_where_they_follow_quickly() {
    let every = PresenceOptions::FENCE_EVERY;
    assert!(stay(every, every).iter().all(|stay| *stay == 0), "now and then");
    assert!(stay(ALWAYS, ALWAYS).iter().all(|stay| *stay == 0), "as asked for");
    let quick = stay(every, ALWAYS);
    assert!(quick[..20].iter().all(|stay| *stay == 0), "the first: {quick:?}");
    assert!(quick[39] > 5, "{quick:?}");
}

/// Simulated updates in a millisecond beside readers, of a `Versioned` and of an `Arc` under a
/// lock; and the heavy fences that would fit.
fn updates(updaters: u32, readers: u32) -> [u64; 3] {
    const SPAN: Duration = Duration::from_millis(4);
    fn count(updaters: u32, readers: u32, update: Arc<dyn Fn() + Send + Sync>, read: Read) -> u64 {
        let over = Sim::now() + SPAN;
        let reads = (0..readers).map(|_| {
            let read = read();
            Sim::spawn(Placement::Anywhere, move || {
                while Sim::now() < over {
                    read();
                }
            })
        });
        let reads: Vec<_> = reads.collect();
        let updates = (0..updaters).map(|_| {
            let update = Arc::clone(&update);
            Sim::spawn(Placement::Anywhere, move || {
                let mut count = 0;
                while Sim::now() < over {
                    update();
                    count += 1;
                }
                count
            })
        });
        let updates: Vec<_> = updates.collect();
        reads.into_iter().for_each(|thread| thread.unwrap().join());
        updates.into_iter().map(|thread| thread.unwrap().join()).sum()
    }
    type Read = Box<dyn Fn() -> Box<dyn Fn() + Send>>;
    let law = move || {
        let value = Versioned::<u64, Sim>::new_in(0, PresenceOptions::new());
        let theirs = value.clone();
        let read: Read = Box::new(move || {
            let reader = theirs.reader();
            Box::new(move || _ = *reader.enter().get())
        });
        let ours = count(updaters, readers, Arc::new(move || value.update(1)), read);
        let lock = Arc::new(RwLock::<_, Near, SpinningReaders, Sim>::new_in(Arc::new(0)));
        let theirs = Arc::clone(&lock);
        let read: Read = Box::new(move || {
            let lock = Arc::clone(&theirs);
            Box::new(move || _ = **lock.read())
        });
        let locked = count(updaters, readers, Arc::new(move || *lock.write() = Arc::new(1)), read);
        let none: Read = Box::new(|| Box::new(|| ()));
        let fences = count(1, readers.min(1), Arc::new(Sim::fence_all), none);
        [ours, locked, fences]
    };
    let machine = Machine::preset("host-2c").unwrap().step_limit(40_000_000);
    machine.run(law).unwrap().value
}

/// With two fences for each update there were fewer updates than fences.
#[test]
fn updates_are_not_limited_by_heavy_fences() {
    for (updaters, readers) in [(1, 1), (16, 8)] {
        let [ours, locked, fences] = updates(updaters, readers);
        let all = format!("{updaters} and {readers}: {ours}, locked {locked}, fences {fences}");
        assert!(ours >= 2 * fences, "{all}");
        assert!(ours * 5 >= locked, "{all}");
    }
}
