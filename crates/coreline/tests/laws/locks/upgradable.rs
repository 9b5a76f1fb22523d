//! The laws of upgradable and of recursive reads, and of fair unlocks: what an upgradable reader
//! has seen stays until it has written, a thread that reads may read again, and a waiter that
//! sleeps is next.

use std::sync::Arc;
use std::time::Duration;

use coreline::RwLock;
use coreline::lock::{Fifo, Near, Order, RawMutex, Readers, SleepingReaders, SpinningReaders};
use coreline::lock::{RwLockUpgradableGuard, RwLockWriteGuard};
use coreline_sim::{Faults, Sim};
use coreline_topology::CpuId;
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{
    Cell, Clock, Integer, JoinHandle, Native, Ordering, Placement, Testbed, Threads, Word, Words,
    Work,
};

use crate::pair::{Pair, share, soon};
use crate::worlds::{self, Effort, FEW, MANY, MODEL, NATIVE, RACE};

type Lock<O, R, W> = RwLock<Pair, O, R, W>;

fn add<O: Order, R: Readers, W: Testbed>(
    pair: &mut RwLockWriteGuard<'_, Pair, O, R, W>,
    seen: Option<u64>,
) -> u64 {
    assert!(seen.is_none_or(|seen| seen == pair.0.0), "a writer came before the upgrade");
    pair.add();
    1
}

/// Reads, upgrades in this manner, adds. Returns how often it has added.
fn read_and_add<O: Order, R: Readers, W: Testbed>(lock: &Lock<O, R, W>, manner: u32) -> u64 {
    let read = match manner {
        0 => Some(lock.read_upgradable()),
        1 => lock.read_upgradable_by(soon::<W>()),
        _ => lock.try_read_upgradable(),
    };
    let Some(read) = read else { return 0 };
    let seen = read.0.0;
    assert_eq!(seen, read.1.0, "a writer is there");
    let upgraded = match manner {
        0 => Ok(RwLockUpgradableGuard::upgrade(read)),
        1 => RwLockUpgradableGuard::upgrade_by(read, soon::<W>()),
        _ => RwLockUpgradableGuard::try_upgrade(read),
    };
    match upgraded {
        Ok(mut pair) => {
            add(&mut pair, Some(seen));
            let pair = RwLockWriteGuard::downgrade_to_upgradable(pair);
            pair.is(seen + 1, "a writer came in between");
            // The next time as from a first read.
            let mut pair = RwLockUpgradableGuard::upgrade(pair);
            1 + add(&mut pair, Some(seen + 1))
        }
        Err(read) => {
            read.is(seen, "a writer came in between");
            let read = RwLockUpgradableGuard::downgrade(read);
            read.is(seen, "a writer came in between");
            0
        }
    }
}

/// Threads write, read upgradably and upgrade, read, and read again; nothing is lost.
fn sharing<O: Order, R: Readers, W: Testbed>(effort: Effort) {
    let lock = Arc::new(Lock::<O, R, W>::new_in(Pair::new()));
    let look = |lock: &Lock<O, R, W>, manner| {
        let held = match manner {
            0 => Some(lock.read()),
            1 => lock.read_recursive_by(soon::<W>()),
            _ => lock.try_read_recursive(),
        };
        let Some(read) = held else { return Some(0) };
        let again = lock.read_recursive();
        read.seen().filter(|_| again.0.0 == read.0.0)
    };
    let written = share::<W, _>(effort, &lock, move |lock, number, round| {
        let manner = if W::RUNS { round / 3 % 3 } else { 0 };
        match (number + round) % 3 {
            0 => Some(read_and_add(lock, manner)),
            1 => look(lock, manner),
            _ => Some(add(&mut lock.write(), None)),
        }
    });
    lock.try_write().expect("no thread holds it").is(written, "a write was lost");
}

#[test]
fn what_an_upgradable_reader_sees_stays_until_it_writes_natively() {
    for effort in [NATIVE, Effort { threads: 32, rounds: 2000, ..NATIVE }] {
        sharing::<Near, SpinningReaders, Native>(effort);
        sharing::<Fifo, SleepingReaders, Native>(effort);
    }
}

#[test]
fn what_an_upgradable_reader_sees_stays_until_it_writes_in_simulation() {
    let many = Effort { rounds: 6, ..MANY };
    let law = move || sharing::<Near, SpinningReaders, Sim>(many);
    worlds::simulate_seeds("upgradable::near", "epyc-9654-2s", Faults::NONE, 2, law).unwrap();
    for faults in [Faults::NONE, worlds::TORN, worlds::PREEMPTED] {
        let law = move || sharing::<Near, SpinningReaders, Sim>(FEW);
        worlds::simulate("upgradable::near", "host-2c", faults, law).unwrap();
        let law = move || sharing::<Fifo, SleepingReaders, Sim>(FEW);
        worlds::simulate("upgradable::sleeping", "host-2c", faults, law).unwrap();
    }
}

#[test]
fn what_an_upgradable_reader_sees_stays_under_schedules_that_look_for_mistakes() {
    let schedules = worlds::schedules(60);
    let effort = Effort { rounds: 4, ..FEW };
    let law = move || sharing::<Near, SpinningReaders, Sim>(effort);
    worlds::search("upgradable::searched_near", "host-2c", schedules, law).unwrap();
    let law = move || sharing::<Fifo, SleepingReaders, Sim>(effort);
    worlds::search("upgradable::searched_sleeping", "host-2c", schedules, law).unwrap();
}

/// An upgradable reader that upgrades, and beside it a thread of each kind.
#[derive(Clone, Copy)]
enum Other {
    Upgrades,
    Writes,
    ReadsTwice,
}

/// Two threads that both may write: none comes between the look of the one and its write.
fn upgrade_beside<W: Testbed>(other: Other, gives_up: bool) {
    let lock = Arc::new(RwLock::<u64, Fifo, SleepingReaders, W>::new_in(0));
    let theirs = Arc::clone(&lock);
    let upgrade = |lock: &RwLock<u64, Fifo, SleepingReaders, W>, gives_up| {
        let read = lock.read_upgradable();
        let seen = *read;
        let upgraded = match gives_up {
            true => RwLockUpgradableGuard::upgrade_by(read, W::now()),
            false => Ok(RwLockUpgradableGuard::upgrade(read)),
        };
        match upgraded {
            Ok(mut data) => {
                assert_eq!(*data, seen, "a writer came in between");
                *data += 1;
                1
            }
            Err(read) => {
                assert_eq!(*read, seen, "a writer came in between");
                0
            }
        }
    };
    let beside = move || match other {
        Other::Upgrades => upgrade(&theirs, false),
        Other::Writes => {
            *theirs.write() += 1;
            1
        }
        Other::ReadsTwice => {
            let read = theirs.read();
            assert_eq!(*read, *theirs.read_recursive());
            0
        }
    };
    let thread = W::spawn(Placement::Anywhere, beside).expect("a thread");
    let written = upgrade(&lock, gives_up) + thread.join();
    assert_eq!(*lock.try_write().expect("no thread holds it"), written);
}

#[test]
fn no_writer_comes_before_an_upgrade_in_every_interleaving() {
    for other in [Other::Upgrades, Other::Writes, Other::ReadsTwice] {
        for gives_up in [false, true] {
            worlds::check(move || upgrade_beside::<Model>(other, gives_up));
        }
    }
}

#[test]
fn all_kinds_of_threads_share_in_every_interleaving() {
    worlds::few(|| sharing::<Fifo, SleepingReaders, Model>(MODEL));
}

#[test]
fn relaxed_exchanges_are_caught() {
    let law = || upgrade_beside::<Model>(Other::Writes, false);
    worlds::assert_caught(Plant::RELAXED_RMWS, RACE, law);
}

/// A writer comes while a thread reads, and waits until it has left. The thread then reads again,
/// in the manner of threads that read already, between any two steps of the writer.
fn a_reader_comes_while_a_writer_drains<W: Testbed>() {
    let lock = Arc::new(RwLock::<u64, Fifo, SleepingReaders, W>::new_in(0));
    let first = lock.read();
    let theirs = Arc::clone(&lock);
    let writer = W::spawn(Placement::Anywhere, move || *theirs.write() += 1).expect("a thread");
    drop(first);
    drop(lock.read_recursive());
    writer.join();
    assert_eq!(*lock.try_read().expect("no thread holds it"), 1);
}

/// The writer must learn by one exchange that no reader is there, and see the last one's reads.
#[test]
fn a_writer_waits_for_readers_that_come_while_it_drains_in_every_interleaving() {
    let checker = Checker::new().preemption_bound(3);
    checker.check(a_reader_comes_while_a_writer_drains::<Model>);
}

/// A thread reads, and reads again while a writer may wait.
fn a_thread_reads_again<W: Testbed>() {
    let lock = Arc::new(RwLock::<u64, Near, SpinningReaders, W>::new_in(0));
    let first = lock.read();
    let theirs = Arc::clone(&lock);
    let writer = W::spawn(Placement::Anywhere, move || *theirs.write() += 1).expect("a thread");
    W::work(Duration::from_micros(200));
    assert_eq!(*lock.read_recursive(), 0, "the writer waits for this reader");
    assert!(lock.try_read_recursive().is_some(), "a read that never waits");
    drop(first);
    writer.join();
    assert_eq!(*lock.try_read().expect("no thread holds it"), 1);
}

/// `biased.rs` shows that a plain read in its place waits for ever.
#[test]
fn a_thread_that_reads_may_read_again_in_every_world() {
    a_thread_reads_again::<Native>();
    let law = || a_thread_reads_again::<Sim>();
    worlds::simulate("upgradable::again", "host-2c", Faults::NONE, law).unwrap();
    worlds::check(a_thread_reads_again::<Model>);
}

type Plain = RwLock<u64, Near, SpinningReaders, Sim>;

/// While an upgradable reader is there and the next one waits, longer than it takes it to ask,
/// other threads read. When the first one leaves, the next one comes before a writer that waits.
#[test]
fn plain_readers_pass_an_upgradable_reader_that_waits_and_writers_do_not() {
    let law = || {
        let lock = Arc::new(Plain::new_in(0));
        let first = lock.read_upgradable();
        let [next, writes] = [Arc::clone(&lock), Arc::clone(&lock)];
        let next = move || assert_eq!(*next.read_upgradable(), 0, "a writer was first");
        let next = Sim::spawn(Placement::On(CpuId::new(1)), next).expect("a thread");
        Sim::work(Duration::from_micros(500));
        let writer = Sim::spawn(Placement::On(CpuId::new(2)), move || *writes.write() += 1);
        Sim::work(Duration::from_micros(15));
        assert!(lock.try_read().is_some() && *lock.read() == 0);
        assert!(lock.try_read_upgradable().is_none());
        drop(first);
        assert!(lock.try_read_upgradable().is_none(), "it passes the next upgradable reader");
        next.join();
        writer.expect("a thread").join();
        assert_eq!(*lock.try_write().expect("no request is left there"), 1);
    };
    worlds::simulate("upgradable::passed", "x86-128c-8n", Faults::NONE, law).unwrap();
}

/// A writer that waits for an upgradable reader comes before the next one.
#[test]
fn an_upgradable_reader_does_not_pass_a_writer_that_waits() {
    let law = || {
        let lock = Arc::new(Plain::new_in(0));
        let first = lock.read_upgradable();
        let theirs = Arc::clone(&lock);
        let writer = Sim::spawn(Placement::On(CpuId::new(1)), move || *theirs.write() += 1);
        Sim::work(Duration::from_micros(500));
        drop(first);
        assert!(lock.try_read_upgradable().is_none(), "it passes the writer");
        assert_eq!(*lock.read_upgradable(), 1);
        writer.expect("a thread").join();
    };
    worlds::simulate("upgradable::writer", "x86-128c-8n", Faults::NONE, law).unwrap();
}

/// An upgrade gives up while a reader stays, and threads of each kind sleep. All of them get the
/// lock when the two have left, and no request is left.
#[test]
fn an_upgrade_that_gives_up_wakes_all_that_wait() {
    let law = || {
        let lock = Arc::new(Plain::new_in(0));
        let (upgradable, reader) = (lock.read_upgradable(), lock.read());
        let threads: Vec<_> = (0..6)
            .map(|number| {
                let lock = Arc::clone(&lock);
                let take = move || match number % 3 {
                    0 => *lock.write() += 1,
                    1 => drop(lock.read()),
                    _ => drop(lock.read_upgradable()),
                };
                Sim::work(Duration::from_micros(50));
                Sim::spawn(Placement::On(CpuId::new(1 + number)), take).expect("a thread")
            })
            .collect();
        let late =
            RwLockUpgradableGuard::upgrade_by(upgradable, Sim::now() + Duration::from_millis(2));
        let upgradable = late.expect_err("a reader stays");
        Sim::work(Duration::from_millis(1));
        drop(reader);
        drop(upgradable);
        threads.into_iter().for_each(JoinHandle::join);
        assert_eq!(*lock.try_write().expect("no request is left there"), 2);
    };
    worlds::simulate("upgradable::late", "x86-128c-8n", Faults::NONE, law).unwrap();
}

type Mutex = RawMutex<Near, Sim>;

/// How often a waiter that sleeps has had the lock when the holder has freed it so, and has taken
/// it again.
fn turns_of_a_waiter(frees: fn(&Mutex)) -> u32 {
    let shared = Arc::new((Mutex::new_in(), <Sim as Words>::U32::new_in(0)));
    shared.0.lock();
    let theirs = Arc::clone(&shared);
    let wait = move || {
        theirs.0.lock();
        // Relaxed: written under the lock.
        theirs.1.fetch_add(1, Ordering::Relaxed);
        // SAFETY: this thread holds the lock.
        unsafe { theirs.0.unlock() };
    };
    let waiter = Sim::spawn(Placement::On(CpuId::new(1)), wait).expect("a thread");
    Sim::work(Duration::from_micros(500));
    frees(&shared.0);
    // Relaxed: read under the lock.
    let turns = shared.1.load(Ordering::Relaxed);
    // SAFETY: this thread holds the lock.
    unsafe { shared.0.unlock() };
    waiter.join();
    turns
}

#[test]
fn a_fair_unlock_and_a_bump_give_a_waiter_that_sleeps_its_turn_first() {
    let law = || {
        // SAFETY: this thread holds the lock, three times.
        let unlock = |lock: &Mutex| unsafe { (lock.unlock(), lock.lock()).1 };
        assert_eq!(turns_of_a_waiter(unlock), 0, "a running thread is faster");
        // SAFETY: as before.
        let fair = |lock: &Mutex| unsafe { (lock.unlock_fair(), lock.lock()).1 };
        assert_eq!(turns_of_a_waiter(fair), 1);
        // SAFETY: as before.
        let bump = |lock: &Mutex| unsafe { lock.bump() };
        assert_eq!(turns_of_a_waiter(bump), 1);
    };
    worlds::simulate("upgradable::fair", "host-2c", Faults::NONE, law).unwrap();
}

/// Threads free a lock fairly, bump it, and give up: it is lost to none of them.
fn fair_turns<W: Testbed>(effort: Effort) {
    let shared = Arc::new((RawMutex::<Fifo, W>::new_in(), Cell::<u64, W>::new_in(0)));
    let threads = effort.crew::<W, _, _>(|number| {
        let shared = Arc::clone(&shared);
        move || {
            let (lock, count) = &*shared;
            // SAFETY: called while this thread holds the lock.
            let add = || count.with_mut(|count| unsafe { *count += 1 });
            let once = |round: u32| {
                // In the model, the second thread gives up.
                let gives_up = (number + round) % 2 == 1;
                let soon = || W::now() + Duration::from_nanos(700);
                if gives_up && !lock.lock_by(soon()) {
                    return 0;
                } else if !gives_up {
                    lock.lock();
                }
                add();
                if round % 3 == 1 {
                    // SAFETY: this thread holds the lock.
                    unsafe { lock.bump() };
                    add();
                }
                // SAFETY: as before.
                unsafe { lock.unlock_fair() };
                1 + u64::from(round % 3 == 1)
            };
            (0..effort.rounds).map(once).sum::<u64>()
        }
    });
    let added: u64 = threads.into_iter().map(JoinHandle::join).sum();
    assert!(shared.0.try_lock(), "the lock is handed to no thread");
    // SAFETY: this thread holds the lock.
    assert_eq!(shared.1.with(|count| unsafe { *count }), added);
}

#[test]
fn a_lock_that_is_freed_fairly_is_lost_to_no_thread_in_every_world() {
    fair_turns::<Native>(NATIVE);
    fair_turns::<Native>(Effort { threads: 32, rounds: 500, ..NATIVE });
    for faults in [Faults::NONE, worlds::TORN, worlds::PREEMPTED] {
        worlds::simulate("upgradable::turns", "host-2c", faults, || fair_turns::<Sim>(FEW))
            .unwrap();
    }
    let law = || fair_turns::<Sim>(Effort { rounds: 4, ..FEW });
    worlds::search("upgradable::turns", "host-2c", worlds::schedules(60), law).unwrap();
    worlds::few_planted(Plant::EXCHANGES, || fair_turns::<Model>(MODEL));
}
