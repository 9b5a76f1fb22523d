//! The class `collections`: bounded collections that all threads put values in and take values out
//! of.
//!
//! | form | one operation |
//! |---|---|
//! | spares | take a spare box, or make one; write a word of it; put it back |
//! | read log | put a record in, which may be lost; after 64 of them, try to take all out |
//!
//! The rivals share one queue or vector among the threads; ours has a part for each CPU. All logs
//! have room for as many records. A table is followed by what each lost, and the goal is relative
//! to the best log that loses no more than ours does: a log that throws records away is fast.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use coreline::Lacking;
use coreline::percpu::{LossyBuffer, PerCpuBag};
use coreline_world::{Native, Place};
use crossbeam_queue::{ArrayQueue, SegQueue};
use object_pool::Pool;

use super::{
    Bench, Candidate, Form, Goal, Lost, Most, Params, ROUND, Role, Subject, candidate, rounds,
};

const BAG: &str = "coreline PerCpuBag, spares";
const BUFFER: &str = "coreline LossyBuffer, read log";
const SPARE_RIVALS: [&str; 4] = [
    "crossbeam ArrayQueue, spares",
    "crossbeam SegQueue, spares",
    "std Mutex<Vec>, spares",
    "object-pool, spares",
];
const LOG_RIVALS: [&str; 3] = [
    "crossbeam ArrayQueue force_push, read log",
    "crossbeam ArrayQueue push, read log",
    "std Mutex<Vec> try_lock, read log",
];

/// The goal, set in advance: times the best rival, with two threads.
const MOST: f64 = 0.5;

/// How many spares there are at first, and how many are kept.
const STOCK: usize = 64;
const ROOM: usize = 512;
/// How many records a log has room for, or a little less or more: see [`Room`].
const RECORDS: usize = 256;
/// A thread tries to take the records out after this many of its own.
const EVERY: u64 = 64;

const _: () = assert!(EVERY.is_multiple_of(ROUND));

/// The type of a spare value.
type Spare = Box<[u64; 8]>;

pub(super) fn bench() -> Bench {
    let spares = vec![
        candidate(BAG, Role::Ours, || {
            let bag = PerCpuBag::new(ROOM).map_err(no_memory)?;
            stock(|spare| _ = bag.push(spare));
            Ok(Arc::new(Spares(bag)))
        }),
        candidate(SPARE_RIVALS[0], Role::Rival, || {
            let queue = ArrayQueue::new(ROOM);
            stock(|spare| _ = queue.push(spare));
            Ok(Arc::new(Spares(queue)))
        }),
        candidate(SPARE_RIVALS[1], Role::Rival, || {
            let queue = SegQueue::new();
            stock(|spare| queue.push(spare));
            Ok(Arc::new(Spares(queue)))
        }),
        candidate(SPARE_RIVALS[2], Role::Rival, || {
            let mut spares = Vec::with_capacity(ROOM);
            stock(|spare| spares.push(spare));
            Ok(Arc::new(Spares(Mutex::new(spares))))
        }),
        candidate(SPARE_RIVALS[3], Role::Rival, || {
            Ok(Arc::new(Spares(Pool::new(STOCK, Spare::default))))
        }),
    ];
    let logs = vec![
        candidate(BUFFER, Role::Ours, || {
            let buffer = LossyBuffer::new(Room::of_machine().each);
            Ok(Arc::new(Logs::of(buffer.map_err(no_memory)?)))
        }),
        candidate(LOG_RIVALS[0], Role::Rival, || {
            Ok(Arc::new(Logs::of(Forced(ArrayQueue::new(Room::of_machine().all)))))
        }),
        candidate(LOG_RIVALS[1], Role::Rival, || {
            Ok(Arc::new(Logs::of(ArrayQueue::new(Room::of_machine().all))))
        }),
        candidate(LOG_RIVALS[2], Role::Rival, || {
            Ok(Arc::new(Logs::of(Mutex::new(Vec::with_capacity(Room::of_machine().all)))))
        }),
    ];
    let spares = form("spares", spares, BAG, &SPARE_RIVALS);
    let logs = form("read log", logs, BUFFER, &LOG_RIVALS);
    Bench { operation: "a value", forms: vec![spares, logs] }
}

fn form(
    title: &'static str,
    candidates: Vec<Candidate>,
    ours: &str,
    rivals: &'static [&'static str],
) -> Form {
    let most = Most::Best(MOST, rivals);
    Form {
        title,
        threads: vec![1, 2],
        window: None,
        params: Params::default(),
        candidates,
        reference: rivals[0].to_owned(),
        goals: vec![Goal { threads: Some(2), ..Goal::everywhere(ours, most) }],
    }
}

fn no_memory(error: coreline_world::MapError) -> Lacking {
    Lacking { world: "native", capability: "memory", why: error.why, remedy: error.remedy }
}

fn stock(keep: impl FnMut(Spare)) {
    (0..STOCK).map(|_| Spare::default()).for_each(keep);
}

/// Where spares are kept.
trait Keeps: Send + Sync + 'static {
    /// Takes a spare, calls `with` with it, and puts it back.
    fn use_one(&self, with: impl FnOnce(&mut Spare));
}

macro_rules! keeps {
    ($($kept:ty: $pop:expr, $push:expr;)*) => {$(
        impl Keeps for $kept {
            #[inline(always)]
            fn use_one(&self, with: impl FnOnce(&mut Spare)) {
                let mut spare = $pop(self).unwrap_or_default();
                with(&mut spare);
                $push(self, spare);
            }
        }
    )*};
}

keeps! {
    PerCpuBag<Spare>: Self::pop, |bag: &Self, spare| _ = bag.push(spare);
    ArrayQueue<Spare>: Self::pop, |queue: &Self, spare| _ = queue.push(spare);
    SegQueue<Spare>: Self::pop, Self::push;
    Mutex<Vec<Spare>>:
        |spares: &Self| spares.lock().unwrap().pop(),
        |spares: &Self, spare| spares.lock().unwrap().push(spare);
}

impl Keeps for Pool<Spare> {
    #[inline(always)]
    fn use_one(&self, with: impl FnOnce(&mut Spare)) {
        with(&mut self.pull(Spare::default));
    }
}

struct Spares<K>(K);

impl<K: Keeps> Subject for Spares<K> {
    fn run(&self, _: usize, ops: u64) {
        rounds(ops, |number| {
            self.0.use_one(|spare| spare[0] = black_box(number as u64));
        });
    }
}

/// How many records each log has room for: ours in a power of two for each CPU, the others in one
/// place.
struct Room {
    each: usize,
    all: usize,
}

impl Room {
    fn of_machine() -> Room {
        Room::of(Native::topology().cpu_limit())
    }

    /// Ours is at most [`RECORDS`], or one for each CPU.
    fn of(cpus: usize) -> Room {
        let cpus = cpus.max(1);
        let each = 1 << (RECORDS / cpus).max(1).ilog2();
        Room { each, all: each * cpus }
    }
}

/// A log that may lose records.
trait Log: Send + Sync + 'static {
    /// Puts a record in. Returns whether all earlier records are still there.
    fn record(&self, record: u64) -> bool;

    /// Takes out all values, unless another thread takes them.
    fn drain(&self, f: impl FnMut(u64));
}

impl Log for LossyBuffer<u64> {
    #[inline(always)]
    fn record(&self, record: u64) -> bool {
        self.push(record).is_ok()
    }

    fn drain(&self, f: impl FnMut(u64)) {
        _ = LossyBuffer::drain(self, f);
    }
}

impl Log for ArrayQueue<u64> {
    #[inline(always)]
    fn record(&self, record: u64) -> bool {
        self.push(record).is_ok()
    }

    fn drain(&self, f: impl FnMut(u64)) {
        std::iter::from_fn(|| self.pop()).take(self.capacity()).for_each(f);
    }
}

/// A full queue loses its oldest record.
struct Forced(ArrayQueue<u64>);

impl Log for Forced {
    #[inline(always)]
    fn record(&self, record: u64) -> bool {
        self.0.force_push(record).is_none()
    }

    fn drain(&self, f: impl FnMut(u64)) {
        Log::drain(&self.0, f);
    }
}

impl Log for Mutex<Vec<u64>> {
    #[inline(always)]
    fn record(&self, record: u64) -> bool {
        if let Ok(mut records) = self.try_lock()
            && records.len() < records.capacity()
        {
            records.push(record);
            return true;
        }
        false
    }

    fn drain(&self, f: impl FnMut(u64)) {
        if let Ok(mut records) = self.try_lock() {
            records.drain(..).for_each(f);
        }
    }
}

struct Logs<L> {
    log: L,
    lost: AtomicU64,
    of: AtomicU64,
}

impl<L> Logs<L> {
    fn of(log: L) -> Self {
        Logs { log, lost: AtomicU64::new(0), of: AtomicU64::new(0) }
    }
}

impl<L: Log> Subject for Logs<L> {
    fn run(&self, _: usize, ops: u64) {
        let (mut left, mut lost) = (ops, 0);
        while left > 0 {
            let part = left.min(EVERY);
            rounds(part, |number| lost += u64::from(!self.log.record(black_box(number as u64))));
            self.log.drain(|record| _ = black_box(record));
            left -= part;
        }
        // Relaxed, twice: read when the threads have reported through a channel.
        self.lost.fetch_add(lost, Ordering::Relaxed);
        self.of.fetch_add(ops, Ordering::Relaxed);
    }

    fn lost(&self) -> Option<Lost> {
        // Relaxed, twice: as in `run`.
        let records = self.lost.load(Ordering::Relaxed);
        Some(Lost { records, of: self.of.load(Ordering::Relaxed) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_logs_have_the_same_room() {
        for (cpus, each, all) in [(0, 256, 256), (2, 128, 256), (6, 32, 192), (384, 1, 384)] {
            let room = Room::of(cpus);
            assert_eq!((room.each, room.all), (each, all), "{cpus} CPUs");
        }
        let room = Room::of_machine();
        let cpus = Native::topology().cpu_limit();
        let buffer = LossyBuffer::<u64>::new(room.each).unwrap();
        assert_eq!(buffer.capacity_of_cpu() * cpus, room.all);
    }

    #[test]
    fn a_log_counts_what_it_loses() {
        let queue = Logs::of(ArrayQueue::new(2));
        let forced = Logs::of(Forced(ArrayQueue::new(2)));
        let logs: [&dyn Subject; 2] = [&queue, &forced];
        for log in logs {
            log.run(0, ROUND);
            let Lost { records, of } = log.lost().unwrap();
            assert_eq!((records, of), (ROUND - 2, ROUND));
        }
    }
}
