//! The law of locks: at most one holder, whose writes the next holder sees.

use std::sync::Arc;

use coreline::TicketLock;
use coreline::lock::RawTicketLock;
use coreline_sim::{Faults, Sim};
use coreline_world::model::{Model, RelaxedLoads, RelaxedStores};
use coreline_world::{Cell, ConstWorld, JoinHandle, Line, Native, Testbed};

use crate::worlds::{self, Effort, FEW, MANY, MODEL, NATIVE, panic_of};

/// A lock, as the harness sees it. Every lock of the crate passes through here.
trait Lock: Send + Sync + 'static {
    fn new_in() -> Self;
    fn lock(&self);
    fn try_lock(&self) -> bool;
    /// # Safety
    ///
    /// The caller holds the lock.
    unsafe fn unlock(&self);
}

impl<W: Testbed> Lock for RawTicketLock<W> {
    fn new_in() -> Self {
        RawTicketLock::new_in()
    }

    fn lock(&self) {
        RawTicketLock::lock(self);
    }

    fn try_lock(&self) -> bool {
        RawTicketLock::try_lock(self)
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock, as it promises.
        unsafe { RawTicketLock::unlock(self) };
    }
}

/// What the lock guards: two counts. A holder reads the first, increments the second, and only then
/// writes the first, so that a second holder, or one that does not see the last one's writes, finds
/// them different. Each on a line of its own: the way from one to the other takes time, in which a
/// second holder can come.
struct Guarded<L, W: Testbed> {
    lock: L,
    first: Line<Cell<u64, W>>,
    second: Line<Cell<u64, W>>,
}

/// Threads take the lock and increment what it guards; each in turn by `lock` and by `try_lock`.
fn exclusion<W: Testbed, L: Lock>(effort: Effort) {
    let guarded = Arc::new(Guarded::<L, W> {
        lock: L::new_in(),
        first: Line(Cell::new_in(0)),
        second: Line(Cell::new_in(0)),
    });
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|number| {
            let guarded = Arc::clone(&guarded);
            W::spawn(place(number), move || {
                (0..effort.rounds).map(|_| guarded.visit(number)).sum::<u64>()
            })
            .unwrap()
        })
        .collect();
    let visits: u64 = threads.into_iter().map(JoinHandle::join).sum();
    guarded.lock.lock();
    // SAFETY: the lock is held.
    let (first, second) = unsafe { (guarded.first.with(|at| *at), guarded.second.with(|at| *at)) };
    assert_eq!((first, second), (visits, visits), "an increment under the lock was lost");
    assert!(visits >= u64::from(effort.threads * effort.rounds) / 2);
}

impl<L: Lock, W: Testbed> Guarded<L, W> {
    /// One critical section; returns how many increments it did.
    fn visit(&self, number: u32) -> u64 {
        if number.is_multiple_of(2) {
            self.lock.lock();
        } else if !self.lock.try_lock() {
            return 0;
        }
        // SAFETY: the lock is held, so no other thread touches the cells: that is what is tested.
        let same = unsafe {
            let before = self.first.with(|at| *at);
            let after = self.second.with_mut(|at| {
                *at += 1;
                *at
            });
            self.first.with_mut(|at| *at = before + 1);
            after == before + 1
        };
        // SAFETY: this thread took the lock, and has not freed it.
        unsafe { self.lock.unlock() };
        // Not before: natively the others would spin for ever on a lock that is never freed.
        assert!(same, "two holders at once, or a holder that does not see the last one's writes");
        1
    }
}

#[test]
fn ticket_excludes_natively() {
    // `lock` alone: a FIFO spinner behind a preempted one costs a time slice, and `try_lock` beside
    // it would seldom succeed.
    exclusion::<Native, RawTicketLock>(NATIVE);
}

#[test]
fn ticket_excludes_on_384_simulated_cpus() {
    let law = || exclusion::<Sim, RawTicketLock<Sim>>(MANY);
    worlds::simulate("lock::ticket", "epyc-9654-2s", Faults::default(), law).unwrap();
}

#[test]
fn ticket_excludes_with_two_simulated_threads_to_a_cpu() {
    let law = || exclusion::<Sim, RawTicketLock<Sim>>(FEW);
    worlds::simulate("lock::ticket", "host-2c", Faults::default(), law).unwrap();
}

#[test]
fn ticket_excludes_in_every_interleaving() {
    worlds::check(|| exclusion::<Model, RawTicketLock<Model>>(MODEL));
}

/// The same through guards: an access to the data lies between its guard's taking and freeing of
/// the lock.
fn exclusion_by_guards<W: Testbed>(effort: Effort) {
    let lock = Arc::new(TicketLock::<u64, W>::new_in(0));
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|number| {
            let lock = Arc::clone(&lock);
            let visit = move || {
                let guard =
                    if number.is_multiple_of(2) { Some(lock.lock()) } else { lock.try_lock() };
                guard.map_or(0, |mut visits| {
                    *visits += 1;
                    1
                })
            };
            W::spawn(place(number), move || (0..effort.rounds).map(|_| visit()).sum::<u64>())
                .unwrap()
        })
        .collect();
    let visits: u64 = threads.into_iter().map(JoinHandle::join).sum();
    assert_eq!(*lock.lock(), visits, "an increment under the lock was lost");
}

#[test]
fn guards_exclude_in_every_world() {
    exclusion_by_guards::<Native>(NATIVE);
    let law = || exclusion_by_guards::<Sim>(FEW);
    worlds::simulate("lock::guards_exclude", "host-2c", Faults::default(), law).unwrap();
    worlds::check(|| exclusion_by_guards::<Model>(MODEL));
}

#[test]
fn a_missing_release_is_caught() {
    let message = panic_of(|| {
        worlds::check(|| {
            exclusion::<Model<RelaxedStores>, RawTicketLock<Model<RelaxedStores>>>(MODEL);
        });
    });
    assert!(message.contains("Causality violation"), "{message}");
}

#[test]
fn a_missing_acquire_is_caught() {
    let message = panic_of(|| {
        worlds::check(|| {
            exclusion::<Model<RelaxedLoads>, RawTicketLock<Model<RelaxedLoads>>>(MODEL);
        });
    });
    assert!(message.contains("Causality violation"), "{message}");
}

/// A lock that any thread can take at any time.
struct Open;

impl Lock for Open {
    fn new_in() -> Self {
        Open
    }

    fn lock(&self) {}

    fn try_lock(&self) -> bool {
        true
    }

    unsafe fn unlock(&self) {}
}

#[test]
fn the_harness_finds_two_holders() {
    let law = || exclusion::<Sim, Open>(FEW);
    let failure = worlds::simulate("lock::open", "host-2c", Faults::default(), law).unwrap_err();
    assert!(failure.to_string().contains("two holders at once"), "{failure}");
    assert!(failure.to_string().contains("program=laws::lock::open"), "{failure}");
}

/// The guards, in the order of a program's life: taken, tried, dropped by a panic, and the data got
/// back.
fn guards<W: Testbed>(lock: TicketLock<Vec<u32>, W>) {
    lock.lock().push(1);
    {
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.is_locked());
        assert_eq!(format!("{lock:?}"), "TicketLock { data: <locked> }");
        assert_eq!(*held, [1]);
    }
    assert!(!lock.is_locked());
    lock.try_lock().unwrap().push(2);
    assert_eq!(format!("{lock:?}"), "TicketLock { data: [1, 2] }");
    assert_eq!(lock.into_inner(), [1, 2]);
}

fn guards_in_a_static<W: ConstWorld + Testbed>() {
    guards::<W>(const { TicketLock::new(Vec::new()) });
}

#[test]
fn guards_free_the_lock_in_every_world() {
    guards_in_a_static::<Native>();
    worlds::simulate("lock::guards", "host-2c", Faults::default(), guards_in_a_static::<Sim>)
        .unwrap();
    worlds::check(|| guards::<Model>(TicketLock::new_in(Vec::new())));
}

#[test]
fn a_panic_frees_the_lock() {
    static LOCK: TicketLock<u32> = TicketLock::new(5);
    let message = panic_of(|| {
        let _held = LOCK.lock();
        panic!("inside");
    });
    assert_eq!(message, "inside");
    assert_eq!(*LOCK.try_lock().unwrap(), 5);
}
