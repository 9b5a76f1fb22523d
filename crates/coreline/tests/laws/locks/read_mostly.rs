//! The laws of the lock whose readers write to lines of their own: a writer is alone, and readers
//! see what it wrote.

use std::sync::Arc;
use std::time::Duration;

use coreline::lock::{RawReadMostly, ReadMostly};
use coreline_sim::{Faults, Sim};
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{
    IndexBy, JoinHandle, Line, Native, Ordering, Placement, Testbed, Threads, Word,
};

use crate::pair::{Pair, share, soon};
use crate::worlds::{self, BEFORE_REFUSED, Effort, FEW, MODEL, NATIVE, ONE_REFUSED, RACE};

/// Threads read, try to, and write once in `one_in` times; nothing is lost, and no reader meets a
/// writer.
fn sharing<W: Testbed>(effort: Effort, one_in: u32) {
    let lock = Arc::new(ReadMostly::<_, W>::new_in(IndexBy::Cpu, Pair::new()).unwrap());
    let written = share::<W, _>(effort, &lock, move |lock, number, round| {
        let manner = if W::RUNS { round % 3 } else { 0 };
        if !(number + round).is_multiple_of(one_in) {
            let held = match manner {
                0 => Some(lock.read()),
                1 => lock.try_read(),
                _ => lock.read_by(soon::<W>()),
            };
            return held.map_or(Some(0), |pair| pair.seen());
        }
        let held = match manner {
            0 => Some(lock.write().expect("heavy fences")),
            1 => lock.try_write(),
            _ => lock.write_by(soon::<W>()).expect("heavy fences"),
        };
        Some(held.map_or(0, |mut pair| {
            pair.add();
            1
        }))
    });
    lock.try_read().expect("no thread writes").is(written, "a write was lost");
}

/// A thread reads, or writes if `writes`. Beside it, others try in vain, and give up. Then the lock
/// is free, and no thread has kept it closed.
fn all_others_give_up<W: Testbed>(writes: bool) {
    let lock = Arc::new(ReadMostly::<u64, W>::new_in(IndexBy::Cpu, 0).unwrap());
    let soon = || W::now() + Duration::from_micros(300);
    let theirs = Arc::clone(&lock);
    let try_all = move || {
        assert!(theirs.try_write().is_none());
        assert!(theirs.write_by(soon()).expect("heavy fences").is_none());
        assert_eq!(theirs.try_read().is_none(), writes, "a trial left the lock closed");
        assert_eq!(theirs.read_by(soon()).is_none(), writes, "a trial left the lock closed");
    };
    let (read, written) = if writes {
        (None, Some(lock.write().expect("heavy fences")))
    } else {
        (Some(lock.read()), None)
    };
    W::spawn(Placement::Anywhere, try_all).expect("a thread").join();
    drop((read, written));
    *lock.try_write().expect("it is free") += 1;
    *lock.write_by(soon()).expect("heavy fences").expect("it is free") += 1;
    assert_eq!(lock.read_by(soon()).map(|data| *data), Some(2));
}

#[test]
fn threads_give_up_in_every_world() {
    for writes in [false, true] {
        all_others_give_up::<Native>(writes);
        let law = move || all_others_give_up::<Sim>(writes);
        worlds::simulate("read_mostly::gives_up", "host-2c", Faults::NONE, law).unwrap();
        worlds::check_planted(Plant::EXCHANGES, move || all_others_give_up::<Model>(writes));
    }
}

/// A reader, and a writer that gives up if the reader is there.
fn a_trial_to_write<W: Testbed>(times: bool) {
    let lock = Arc::new(ReadMostly::<u64, W>::new_in(IndexBy::Cpu, 0).unwrap());
    let theirs = Arc::clone(&lock);
    let write = move || {
        let held = if times {
            theirs.write_by(W::now()).expect("heavy fences")
        } else {
            theirs.try_write()
        };
        held.map_or(0, |mut data| {
            *data += 1;
            1
        })
    };
    let writer = W::spawn(Placement::Anywhere, write).expect("a thread");
    assert!(*lock.read() <= 1);
    let written = writer.join();
    assert_eq!(*lock.try_write().expect("it is free"), written);
}

#[test]
fn trials_share_in_every_interleaving() {
    for times in [false, true] {
        worlds::check_planted(Plant::EXCHANGES, move || a_trial_to_write::<Model>(times));
    }
}

#[test]
fn a_trial_without_a_fence_is_caught() {
    let plant = Plant { heavy_fences: false, ..Plant::EXCHANGES };
    worlds::assert_caught(plant, RACE, || a_trial_to_write::<Model>(false));
}

#[test]
fn readers_and_writers_share_natively() {
    for (effort, one_in) in [
        (Effort { rounds: 2000, ..NATIVE }, 2),
        (NATIVE, 500),
        (Effort { threads: 32, rounds: 2000, ..NATIVE }, 50),
    ] {
        sharing::<Native>(effort, one_in);
    }
}

#[test]
fn readers_and_writers_share_in_simulation() {
    let many = Effort { threads: 384, rounds: 6, cpus: 384 };
    let law = move || sharing::<Sim>(many, 50);
    worlds::simulate_seeds("read_mostly", "epyc-9654-2s", Faults::NONE, 3, law).unwrap();
    for faults in [Faults::NONE, worlds::TORN, worlds::PREEMPTED] {
        for one_in in [2, 10] {
            let law = move || sharing::<Sim>(FEW, one_in);
            worlds::simulate("read_mostly", "host-2c", faults, law).unwrap();
        }
    }
}

#[test]
fn readers_and_writers_share_in_every_interleaving() {
    // One reads and one writes; then both write.
    worlds::check_planted(Plant::EXCHANGES, || sharing::<Model>(MODEL, 2));
    worlds::check_planted(Plant::EXCHANGES, || sharing::<Model>(MODEL, 1));
}

/// A reader that comes in vain while a writer adds up: seen to have gone, and not to have come, it
/// would make up for a reader that is inside.
fn a_vain_reader_counts_twice<W: Testbed>() {
    let lock = Arc::new(ReadMostly::<u64, W>::new_in(IndexBy::Cpu, 0).unwrap());
    let held = lock.read();
    let theirs = Arc::clone(&lock);
    let write = move || *theirs.write().expect("heavy fences") += 1;
    let writer = W::spawn(Placement::Anywhere, write).expect("a thread");
    let theirs = Arc::clone(&lock);
    let come = move || drop(theirs.try_read());
    W::spawn(Placement::Anywhere, come).expect("a thread").join();
    assert_eq!(*held, 0, "the writer waits for this reader");
    drop(held);
    writer.join();
}

#[test]
fn a_vain_reader_makes_up_for_no_other_in_every_interleaving() {
    let checker = Checker::new().preemption_bound(2).max_branches(20_000);
    checker.check(a_vain_reader_counts_twice::<Model>);
}

/// A read that begins in one thread ends in another. The writer, which may come before, between or
/// after, waits for it and for no longer.
fn another_thread_ends_a_read<W: Testbed>() {
    let lock = Arc::new(RawReadMostly::<W>::new_in(IndexBy::Cpu).unwrap());
    let inside = Arc::new(Line(W::U32::new_in(1)));
    lock.read();
    let (theirs, seen) = (Arc::clone(&lock), Arc::clone(&inside));
    let write = move || {
        theirs.write().expect("heavy fences");
        // Relaxed: the lock orders it.
        let met = seen.0.load(Ordering::Relaxed);
        // SAFETY: written just now.
        unsafe { theirs.unlock_write() };
        met
    };
    let writer = W::spawn(Placement::Anywhere, write).expect("a thread");
    let theirs = Arc::clone(&lock);
    let end = move || {
        // Relaxed: the end of the read orders it.
        inside.0.store(0, Ordering::Relaxed);
        // SAFETY: the read of the thread that made this one, which ends no other.
        unsafe { theirs.unlock_read() };
    };
    W::spawn(Placement::Anywhere, end).expect("a thread").join();
    assert_eq!(writer.join(), 0, "the writer met the reader");
    assert!(lock.try_write(), "it is free");
    // SAFETY: written just now.
    unsafe { lock.unlock_write() };
}

#[test]
fn another_thread_may_end_a_read_in_every_world() {
    for _ in 0..200 {
        another_thread_ends_a_read::<Native>();
    }
    for faults in [Faults::NONE, worlds::TORN, worlds::PREEMPTED] {
        let law = another_thread_ends_a_read::<Sim>;
        worlds::simulate("read_mostly::other", "host-2c", faults, law).unwrap();
    }
    Checker::new().preemption_bound(2).check(another_thread_ends_a_read::<Model>);
}

/// A write of which so many fences are allowed, beside a reader.
fn a_write_is_refused(allowed: u32) {
    BEFORE_REFUSED.set(None);
    let lock = Arc::new(ReadMostly::<u64, Model>::new_in(IndexBy::Cpu, 0).unwrap());
    let theirs = Arc::clone(&lock);
    let reader = Model::spawn(Placement::Anywhere, move || *theirs.read()).expect("a thread");
    BEFORE_REFUSED.set(Some(allowed));
    let refused = lock.write().is_err();
    // A third one is needed only where the reader was inside.
    assert!(refused || allowed == 2, "it was not told");
    assert_eq!(reader.join(), 0);
    BEFORE_REFUSED.set(None);
    assert_eq!(*lock.try_read().expect("it is open"), 0);
    *lock.write().expect("it is free") = 1;
    assert_eq!(*lock.read(), 1);
}

#[test]
fn a_refused_write_leaves_the_lock_open_in_every_interleaving() {
    for allowed in 0..3 {
        worlds::check_planted(ONE_REFUSED, move || a_write_is_refused(allowed));
    }
}

#[test]
fn a_missing_fence_is_caught() {
    for plant in [
        Plant { heavy_fences: false, ..Plant::EXCHANGES },
        Plant { light_fences: false, ..Plant::EXCHANGES },
    ] {
        worlds::assert_caught(plant, RACE, || sharing::<Model>(MODEL, 2));
    }
}
