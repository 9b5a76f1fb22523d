//! The law of updates: each is seen by every read after its return, and what it replaced is freed
//! in time, whether it makes a heavy fence or leaves that to another one.

use std::sync::Arc;
use std::time::Duration;

use coreline::mask::{PresenceOptions, Reader, Reading, Versioned};
use coreline_sim::{Faults, Machine, Sim};
use coreline_world::model::{Model, Plant};
use coreline_world::{
    Clock, Fences, JoinHandle, Native, Ordering, Place, Placement, Testbed, Threads, Word,
    Words as _, Work as _,
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

/// A reader comes while the value is replaced, and stays. Even if the update goes by the reader, it
/// does not seem to hold the old value for longer than until it looks again.
fn comes_and_stays<W: Testbed>(beside_another: bool) {
    let shared = Shared::<W>::new_in(options(NEVER).trim_every(NEVER));
    let another = shared.count.reader();
    if beside_another {
        drop(another.enter());
    }
    let (theirs, reader) = (Arc::clone(&shared), shared.count.reader());
    let update = W::spawn(Placement::Anywhere, move || _ = theirs.update()).unwrap();
    let mut reading = reader.enter();
    shared.look(&mut reading, 0);
    update.join();
    // It finds the reader, and need not find that the old value is free.
    _ = shared.count.synchronize_by(W::now());
    shared.look(&mut reading, 1);
    assert!(shared.count.synchronize_by(W::now()), "no reader holds the old value");
    assert_eq!(shared.count.retired(), 0);
}

#[test]
fn a_reader_that_comes_holds_no_value_that_it_never_found_in_every_interleaving() {
    for beside_another in [false, true] {
        worlds::check(move || comes_and_stays::<Model>(beside_another));
    }
}

/// A reader comes while the value is replaced, and another one holds all values, so that only what
/// is seen counts, and not what is freed.
fn comes_beside_a_holder<W: Testbed>() {
    let shared = Shared::<W>::new_in(options(NEVER).trim_every(NEVER));
    let holder = shared.count.reader();
    let holding = holder.enter();
    // It trims, which needs a heavy fence where there is a reader that is away.
    shared.update();
    let (theirs, reader) = (Arc::clone(&shared), shared.count.reader());
    let read = move || (0..2).for_each(|_| theirs.look(&mut reader.enter(), 0));
    let reader = W::spawn(Placement::Anywhere, read).unwrap();
    (0..2).for_each(|_| _ = shared.update());
    reader.join();
    assert_eq!(shared.count.retired(), 3);
    drop(holding);
}

#[test]
fn an_update_is_seen_without_light_and_heavy_fences_in_every_interleaving() {
    let plant = Plant { heavy_fences: false, ..Plant::NO_LIGHT_FENCES };
    worlds::check_planted(plant, comes_beside_a_holder::<Model>);
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

/// In the model, the lock of updates has a fence that is as good as the heavy one. So `refused.rs`
/// shows that the wait makes a heavy fence.
#[test]
fn a_missing_fence_of_a_wait_is_caught() {
    assert!(is_caught(Plant::NO_LIGHT_FENCES, waits::<Model>));
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

/// What ends the stay of the values that the last updates of a quick run replaced.
#[derive(Debug, Clone, Copy)]
enum End {
    None,
    Update,
    Wait,
    Reclaimer,
}

/// The values that stay a second after a quick run of updates.
fn stay_after(end: End) -> usize {
    let law = move || {
        let value = Versioned::<u32, Sim>::new_in(0, PresenceOptions::new());
        let reader = value.reader();
        (1..=100).for_each(|number| {
            drop(reader.enter());
            value.update(number);
        });
        Sim::sleep(Duration::from_secs(1));
        match end {
            End::None => (),
            End::Update => value.update(0),
            End::Wait => value.synchronize(),
            End::Reclaimer => drop(value.reclaimer().unwrap()),
        }
        value.retired()
    };
    Machine::preset("host-2c").unwrap().run(law).unwrap().value
}

#[test]
fn the_last_values_of_a_quick_run_stay_until_an_update_a_wait_or_a_reclaimer() {
    assert!(stay_after(End::None) > 5, "otherwise the others show nothing");
    for end in [End::Update, End::Wait, End::Reclaimer] {
        assert_eq!(stay_after(end), 0, "{end:?}");
    }
}

type Work = Box<dyn FnMut() + Send>;

/// How often these updaters update in simulated 500 us, beside these readers. Each has a CPU of its
/// own.
fn count(updaters: Vec<Work>, readers: Vec<Work>) -> u64 {
    let over = Sim::now() + Duration::from_micros(500);
    let topology = Sim::topology();
    let mut cpus = topology.cpus().map(|cpu| Placement::On(cpu.id));
    let mut start = |mut work: Work| {
        let repeat = move || {
            let mut count = 0;
            while Sim::now() < over {
                work();
                count += 1;
            }
            count
        };
        Sim::spawn(cpus.next().unwrap(), repeat).unwrap()
    };
    let updaters: Vec<_> = updaters.into_iter().map(&mut start).collect();
    let readers: Vec<_> = readers.into_iter().map(&mut start).collect();
    let updates = updaters.into_iter().map(JoinHandle::join).sum();
    readers.into_iter().for_each(|reader| _ = reader.join());
    updates
}

/// The same work, so many times.
fn crew(size: u32, work: impl Fn() -> Work) -> Vec<Work> {
    (0..size).map(|_| work()).collect()
}

/// Updates of a `Versioned`, and the heavy fences of one thread.
fn updates(updaters: u32, readers: u32) -> [u64; 2] {
    let law = move || {
        let value = Versioned::<u64, Sim>::new_in(0, PresenceOptions::new());
        let update = || {
            let value = value.clone();
            Box::new(move || value.update(1)) as Work
        };
        let read = || {
            let reader = value.reader();
            Box::new(move || assert!(*reader.enter().get() < 2)) as Work
        };
        let updates = count(crew(updaters, update), crew(readers, read));
        let fences = count(vec![Box::new(Sim::fence_all)], crew(readers, || Box::new(Sim::relax)));
        [updates, fences]
    };
    Machine::preset("epyc-9654-2s").unwrap().step_limit(20_000_000).run(law).unwrap().value
}

/// With two fences for each update there were fewer updates than fences.
#[test]
fn updates_are_not_limited_by_heavy_fences() {
    for (updaters, readers) in [(1, 1), (16, 8)] {
        let [updates, fences] = updates(updaters, readers);
        assert!(updates >= 2 * fences, "{updaters} and {readers}: {updates}, {fences} fences");
    }
}
