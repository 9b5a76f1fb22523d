//! Threads that lock, work, unlock, work: the usual benchmark of a mutex.

use coreline_sim::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use coreline_sim::sync::{Arc, Mutex};
use coreline_sim::thread::{self, Builder};
use coreline_sim::time::Duration;
use coreline_sim::{Failure, Machine, hint};
use coreline_topology::CpuId;

use super::parking::{ParkingLock, Table};

/// Which lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MutexKind {
    /// [`ParkingLock`].
    Parking,
    /// The simulated std mutex.
    Std,
}

/// Turns of work while the lock is held, and between. A turn is a few operations on a number, see
/// [`TURN`]; those under the lock read and write a number beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) inside: u32,
    pub(crate) outside: u32,
}

impl Work {
    /// Back to back, 20 ns of work outside the lock, and 2 us of it.
    pub(crate) const ALL: [Work; 3] = [
        Work { inside: 1, outside: 0 },
        Work { inside: 10, outside: 10 },
        Work { inside: 10, outside: 1000 },
    ];

    /// The load of parking_lot #338.
    pub(crate) const REPORTED: Work = Work { inside: 5, outside: 5 };
}

/// A number under a lock, with room around it.
#[repr(align(256))]
struct Guarded {
    lock: Lock,
    number: AtomicU64,
}

enum Lock {
    Parking(ParkingLock),
    Std(Mutex<()>),
}

impl Guarded {
    fn new(kind: MutexKind, table: &Arc<Table>, number: usize) -> Guarded {
        let lock = match kind {
            MutexKind::Parking => Lock::Parking(ParkingLock::new(Arc::clone(table), number)),
            MutexKind::Std => Lock::Std(Mutex::new(())),
        };
        Guarded { lock, number: AtomicU64::new(0) }
    }

    fn add(&self, turns: u32) {
        let work = || {
            for _ in 0..turns {
                let number = self.number.load(Ordering::Relaxed);
                self.number.store(number + 1, Ordering::Relaxed);
            }
            hint::work(TURN * turns);
        };
        match &self.lock {
            Lock::Parking(lock) => {
                lock.lock();
                work();
                lock.unlock();
            }
            Lock::Std(lock) => {
                let held = lock.lock().unwrap();
                work();
                drop(held);
            }
        }
    }
}

/// A dependent addition and multiplication of a floating-point number: 7 to 8 cycles, from memory.
const TURN: Duration = Duration::from_nanos(2);

/// Simulated time that is measured: several of the milliseconds within which a parking lock is
/// handed over.
const WINDOW: Duration = Duration::from_millis(4);

/// How often a thread had the lock in a millisecond, on average.
pub(crate) fn rate(
    machine: Machine,
    kind: MutexKind,
    threads: u32,
    work: Work,
) -> Result<f64, Box<Failure>> {
    let run = machine.run(move || {
        let guarded = Guarded::new(kind, &Arc::new(Table::new(threads as usize)), 0);
        let (ready, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let turns: u64 = thread::scope(|scope| {
            let start = |cpu: u32| {
                let (guarded, ready, stop) = (&guarded, &ready, &stop);
                let body = move || {
                    ready.fetch_add(1, Ordering::Relaxed);
                    while ready.load(Ordering::Relaxed) <= threads as usize {
                        hint::spin_loop();
                    }
                    let mut turns = 0;
                    while !stop.load(Ordering::Relaxed) {
                        guarded.add(work.inside);
                        if work.outside > 0 {
                            hint::work(TURN * work.outside);
                        }
                        turns += 1;
                    }
                    turns
                };
                // CPU 0 belongs to the first thread, which says when it is over.
                Builder::new().on(CpuId::new(cpu + 1)).spawn_scoped(scope, body).unwrap()
            };
            let workers: Vec<_> = (0..threads).map(start).collect();
            while ready.load(Ordering::Relaxed) < threads as usize {
                thread::sleep(Duration::from_micros(50));
            }
            ready.fetch_add(1, Ordering::Relaxed);
            thread::sleep(WINDOW);
            stop.store(true, Ordering::Relaxed);
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        turns
    })?;
    Ok(run.value as f64 / f64::from(threads) / WINDOW.as_millis() as f64)
}

/// Threads, locks and turns of each thread of parking_lot #418; a tenth of its turns.
const BENCH: (u32, usize, u64) = (32, 2, 1000);

/// Milliseconds until all threads have added this often, each time under a lock drawn by chance;
/// for ten times as many turns.
pub(crate) fn bench(machine: Machine, kind: MutexKind) -> Result<f64, Box<Failure>> {
    let (threads, locks, turns) = BENCH;
    let run = machine.run(move || {
        let table = Arc::new(Table::new(threads as usize));
        let locks: Vec<_> = (0..locks).map(|number| Guarded::new(kind, &table, number)).collect();
        thread::scope(|scope| {
            for cpu in 1..=threads {
                let locks = &locks;
                let body = move || {
                    let mut dice = cpu.wrapping_mul(0x9e37_79b9);
                    for _ in 0..turns {
                        dice ^= dice << 13;
                        dice ^= dice >> 17;
                        dice ^= dice << 5;
                        locks[dice as usize % locks.len()].add(1);
                    }
                };
                Builder::new().on(CpuId::new(cpu)).spawn_scoped(scope, body).unwrap();
            }
        });
    })?;
    Ok(run.report.time_ns as f64 * 10.0 / 1e6)
}
