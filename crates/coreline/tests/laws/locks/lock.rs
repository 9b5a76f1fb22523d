//! The laws of locks, over every lock in every world: at most one holder, whose writes the next one
//! sees; each thread that waits gets the lock, or gives up and breaks nothing.

use std::sync::Arc;
use std::time::Duration;

use coreline::lock::{Fifo, MutexGuard, Near, Order, Osq, Readers, RwLockWriteGuard};
use coreline::lock::{SpinningReaders, TicketGuard, Turn};
use coreline::{Mutex, RwLock, TicketLock};
use coreline_sim::{FailureKind, Faults, Replay, Sim};
use coreline_topology::CpuId;
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{Cell, ConstWorld, Integer, JoinHandle, Line, Native, Ordering};
use coreline_world::{Placement, Testbed, Time, Word};

use crate::worlds::{
    self, Effort, FEW, MANY, MODEL, NATIVE, RACE, assert_caught, panic_of, preemptions,
};

/// A lock, as the harness sees it. Every lock of the crate passes through here.
pub(crate) trait Lock: Send + Sync + 'static {
    /// Its holder's guard.
    type Held<'a>;

    fn new_in() -> Self;

    fn lock(&self) -> Self::Held<'_>;

    fn try_lock(&self) -> Option<Self::Held<'_>>;

    /// Of a lock whose waiters cannot give up: waits.
    fn lock_by(&self, _deadline: Time) -> Option<Self::Held<'_>> {
        Some(self.lock())
    }
}

impl<W: Testbed> Lock for TicketLock<(), W> {
    type Held<'a> = TicketGuard<'a, (), W>;

    fn new_in() -> Self {
        TicketLock::new_in(())
    }

    fn lock(&self) -> Self::Held<'_> {
        TicketLock::lock(self)
    }

    fn try_lock(&self) -> Option<Self::Held<'_>> {
        TicketLock::try_lock(self)
    }
}

impl<O: Order, W: Testbed> Lock for Osq<O, W> {
    type Held<'a> = Turn<'a, O, W>;

    fn new_in() -> Self {
        Osq::new_in()
    }

    fn lock(&self) -> Self::Held<'_> {
        Osq::lock(self)
    }

    fn try_lock(&self) -> Option<Self::Held<'_>> {
        Osq::try_lock(self)
    }

    fn lock_by(&self, deadline: Time) -> Option<Self::Held<'_>> {
        Osq::lock_by(self, deadline)
    }
}

impl<O: Order, W: Testbed> Lock for Mutex<(), O, W> {
    type Held<'a> = MutexGuard<'a, (), O, W>;

    fn new_in() -> Self {
        Mutex::new_in(())
    }

    fn lock(&self) -> Self::Held<'_> {
        Mutex::lock(self)
    }

    fn try_lock(&self) -> Option<Self::Held<'_>> {
        Mutex::try_lock(self)
    }

    fn lock_by(&self, deadline: Time) -> Option<Self::Held<'_>> {
        Mutex::lock_by(self, deadline)
    }
}

/// Its writers.
impl<O: Order, R: Readers, W: Testbed> Lock for RwLock<(), O, R, W> {
    type Held<'a> = RwLockWriteGuard<'a, (), O, R, W>;

    fn new_in() -> Self {
        RwLock::new_in(())
    }

    fn lock(&self) -> Self::Held<'_> {
        self.write()
    }

    fn try_lock(&self) -> Option<Self::Held<'_>> {
        self.try_write()
    }

    fn lock_by(&self, deadline: Time) -> Option<Self::Held<'_>> {
        self.write_by(deadline)
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
    /// How many sections there were.
    sections: Line<W::U32>,
}

impl<L: Lock, W: Testbed> Guarded<L, W> {
    fn new_in() -> Self {
        Guarded {
            lock: L::new_in(),
            first: Line(Cell::new_in(0)),
            second: Line(Cell::new_in(0)),
            sections: Line(W::U32::new_in(0)),
        }
    }

    /// One section, if the thread came to it; how many that is.
    fn visit(&self, held: Option<L::Held<'_>>) -> u32 {
        let Some(held) = held else { return 0 };
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
        // Relaxed: a count.
        self.sections.fetch_add(1, Ordering::Relaxed);
        drop(held);
        // Not before: natively the others would spin for ever on a lock that is never freed.
        assert!(same, "two holders at once, or a holder that does not see the last one's writes");
        1
    }

    /// How a thread comes to its sections, by its number.
    fn come(&self, manner: Manner, number: u32) -> Option<L::Held<'_>> {
        match (manner, number % 3) {
            (Manner::Waits, _) | (Manner::Mixed, 0) => Some(self.lock.lock()),
            (Manner::Mixed, 1) => self.lock.lock_by(W::now() + Duration::from_nanos(700)),
            (Manner::Mixed, _) => self.lock.try_lock(),
        }
    }

    /// All of so many sections were counted, and the lock is free.
    fn is_whole(&self, visits: u32) {
        // Relaxed: all threads have been joined.
        assert_eq!(self.sections.load(Ordering::Relaxed), visits);
        let held = self.lock.try_lock();
        assert!(held.is_some(), "a lock that no thread holds is free");
        // SAFETY: the lock is held.
        let counts = unsafe { (self.first.with(|at| *at), self.second.with(|at| *at)) };
        assert_eq!(counts, (visits.into(), visits.into()), "an increment under the lock was lost");
    }
}

/// What threads do: all wait, or some give up and some only try.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    Waits,
    Mixed,
}

/// Threads take the lock and increment what it guards, and none of it is lost.
pub(crate) fn exclusion<W: Testbed, L: Lock>(effort: Effort, manner: Manner) {
    exclusion_at::<W, L>(effort, manner, effort.places::<W>());
}

fn exclusion_at<W: Testbed, L: Lock>(
    effort: Effort,
    manner: Manner,
    place: impl Fn(u32) -> Placement,
) {
    let guarded = Arc::new(Guarded::<L, W>::new_in());
    let threads: Vec<_> = (0..effort.threads)
        .map(|number| {
            let guarded = Arc::clone(&guarded);
            let visit = move |round| guarded.visit(guarded.come(manner, number + round));
            W::spawn(place(number), move || (0..effort.rounds).map(&visit).sum::<u32>()).unwrap()
        })
        .collect();
    let visits: u32 = threads.into_iter().map(JoinHandle::join).sum();
    guarded.is_whole(visits);
    if matches!(manner, Manner::Waits) {
        assert_eq!(visits, effort.threads * effort.rounds);
    }
}

/// One thread waits and gives up while the holder frees the lock, and takes it again.
fn giving_up<W: Testbed, L: Lock>() {
    let guarded = Arc::new(Guarded::<L, W>::new_in());
    let theirs = Arc::clone(&guarded);
    let gives_up = move || theirs.visit(theirs.lock.lock_by(W::now()));
    let leaver = W::spawn(Placement::Anywhere, gives_up).unwrap();
    let visits = (0..2).map(|_| guarded.visit(Some(guarded.lock.lock()))).sum::<u32>();
    guarded.is_whole(visits + leaver.join());
}

/// As [`exclusion`], with simulated faults.
fn simulated<L: Lock>(name: &'static str, machine: &str, faults: Faults, effort: Effort) {
    for manner in [Manner::Waits, Manner::Mixed] {
        let law = move || exclusion::<Sim, L>(effort, manner);
        worlds::simulate(name, machine, faults, law).unwrap();
    }
}

/// As [`exclusion`], under schedules that look for mistakes: with two threads to a CPU, and with
/// two to a cache, so that an order by place has what to sort.
fn searched<L: Lock>(name: &'static str) {
    let schedules = worlds::schedules(60);
    for manner in [Manner::Waits, Manner::Mixed] {
        let crowded = move || exclusion::<Sim, L>(Effort { rounds: 4, ..FEW }, manner);
        worlds::search(name, "host-2c", schedules.div_ceil(4), crowded).unwrap();
        let effort = Effort { threads: 6, rounds: 4, cpus: 128 };
        let place = |number| Placement::On(CpuId::new(number % 3 * 8 + number / 3));
        let spread = move || exclusion_at::<Sim, L>(effort, manner, place);
        worlds::search(name, "x86-128c-8n", schedules.div_ceil(4), spread).unwrap();
    }
}

/// The laws of one lock, in the model of that name.
macro_rules! laws {
    ($($name:ident: $lock:ident<$($parameter:ty),*>, $plant:expr, natively $native:expr;)+) => {$(
        mod $name {
            use super::*;

            const NAME: &str = concat!("lock::", stringify!($name));

            #[test]
            fn excludes_natively() {
                for effort in $native {
                    exclusion::<Native, $lock<$($parameter,)* Native>>(effort, Manner::Waits);
                    exclusion::<Native, $lock<$($parameter,)* Native>>(effort, Manner::Mixed);
                }
            }

            #[test]
            fn excludes_on_many_simulated_cpus() {
                simulated::<$lock<$($parameter,)* Sim>>(NAME, "epyc-9654-2s", Faults::NONE, MANY);
                let all = Effort { threads: 128, rounds: 10, cpus: 128 };
                simulated::<$lock<$($parameter,)* Sim>>(NAME, "x86-128c-8n", Faults::NONE, all);
            }

            #[test]
            fn excludes_with_two_simulated_threads_to_a_cpu() {
                for faults in [Faults::NONE, worlds::TORN, worlds::PREEMPTED] {
                    simulated::<$lock<$($parameter,)* Sim>>(NAME, "host-2c", faults, FEW);
                }
            }

            #[test]
            fn excludes_under_schedules_that_look_for_mistakes() {
                let name = concat!("lock::searched_", stringify!($name));
                searched::<$lock<$($parameter,)* Sim>>(name);
            }

            #[test]
            fn excludes_in_every_interleaving() {
                let law = exclusion_of_two::<Model, $lock<$($parameter,)* Model>>;
                worlds::check_planted($plant, law);
            }

            #[test]
            fn a_waiter_that_gives_up_breaks_nothing_in_every_interleaving() {
                worlds::check_planted($plant, giving_up::<Model, $lock<$($parameter,)* Model>>);
            }
        }
    )+};
}

fn exclusion_of_two<W: Testbed, L: Lock>() {
    exclusion::<W, L>(MODEL, Manner::Waits);
}

/// Where a thread that is not running holds up all that wait behind it, for a time slice or more: a
/// thread for each CPU, or few rounds.
const IN_ORDER: [Effort; 2] =
    [Effort { threads: 2, rounds: 2000, ..NATIVE }, Effort { rounds: 60, ..NATIVE }];

/// Where waiters sleep: also many threads for each CPU.
const CROWDED: [Effort; 2] = [NATIVE, Effort { threads: 32, rounds: 5000, ..NATIVE }];

laws! {
    ticket: TicketLock<()>, Plant::NONE, natively IN_ORDER;
    fifo_queue: Osq<Fifo>, Plant::NONE, natively IN_ORDER;
    near_queue: Osq<Near>, Plant::NONE, natively IN_ORDER;
    fifo_mutex: Mutex<(), Fifo>, Plant::EXCHANGES, natively CROWDED;
    near_mutex: Mutex<(), Near>, Plant::EXCHANGES, natively CROWDED;
    rwlock: RwLock<(), Near, SpinningReaders>, Plant::NONE, natively CROWDED;
}

#[test]
fn a_missing_release_is_caught() {
    let plant = Plant::RELAXED_STORES;
    assert_caught(plant, RACE, exclusion_of_two::<Model, TicketLock<(), Model>>);
    assert_caught(plant, RACE, exclusion_of_two::<Model, Mutex<(), Fifo, Model>>);
}

#[test]
fn a_missing_acquire_is_caught() {
    let plant = Plant::RELAXED_LOADS;
    assert_caught(plant, RACE, exclusion_of_two::<Model, TicketLock<(), Model>>);
    assert_caught(plant, RACE, exclusion_of_two::<Model, Osq<Fifo, Model>>);
}

/// One thread takes the lock twice, and another once.
fn twice<W: Testbed, L: Lock>() {
    let guarded = Arc::new(Guarded::<L, W>::new_in());
    let theirs = Arc::clone(&guarded);
    let once = move || theirs.visit(Some(theirs.lock.lock()));
    let other = W::spawn(Placement::Anywhere, once).unwrap();
    let visits = (0..2).map(|_| guarded.visit(Some(guarded.lock.lock()))).sum::<u32>();
    guarded.is_whole(visits + other.join());
}

/// Each queue of a mutex has its own fence: one that counted for an earlier queue would be missed.
/// Only that needs so many preemptions.
#[test]
fn a_mutex_is_taken_twice_in_every_interleaving() {
    let law = twice::<Model, Mutex<(), Fifo, Model>>;
    Checker::new().preemption_bound(5).plant(Plant::EXCHANGES).check(law);
}

/// Three threads want the lock, of which one may give up.
fn three<W: Testbed, L: Lock>() {
    let guarded = Arc::new(Guarded::<L, W>::new_in());
    let start = |gives_up| {
        let theirs = Arc::clone(&guarded);
        let visit = move || match gives_up {
            true => theirs.visit(theirs.lock.lock_by(W::now())),
            false => theirs.visit(Some(theirs.lock.lock())),
        };
        W::spawn(Placement::Anywhere, visit).unwrap()
    };
    let others = [true, false].map(start);
    let visits = guarded.visit(Some(guarded.lock.lock()));
    guarded.is_whole(visits + others.into_iter().map(JoinHandle::join).sum::<u32>());
}

/// That there was a heavy fence goes along with the turn. It must not from a first waiter that gave
/// up without one: its holder may have found no waiter, and wipes the next one's wish to be woken.
/// With a waiter that does not give up none of this is seen: it has the lock before it passes on
/// its turn, and each later holder finds the next one.
#[test]
fn a_waiter_behind_one_that_gives_up_has_the_mutex_in_every_interleaving() {
    let checker = Checker::new().preemption_bound(preemptions() - 1).max_branches(20_000);
    let checker = checker.plant(Plant::EXCHANGES);
    checker.check(three::<Model, Mutex<(), Fifo, Model>>);
    checker.check(three::<Model, Mutex<(), Near, Model>>);
}

#[test]
fn a_missing_fence_of_a_mutex_is_caught() {
    for plant in [
        Plant { heavy_fences: false, ..Plant::EXCHANGES },
        Plant { light_fences: false, ..Plant::EXCHANGES },
    ] {
        assert_caught(plant, "deadlock", exclusion_of_two::<Model, Mutex<(), Fifo, Model>>);
    }
}

/// A lock that any thread can take at any time.
struct Open;

impl Lock for Open {
    type Held<'a> = ();

    fn new_in() -> Self {
        Open
    }

    fn lock(&self) {}

    fn try_lock(&self) -> Option<()> {
        Some(())
    }
}

#[test]
fn schedules_that_look_for_mistakes_find_two_holders() {
    let law = || exclusion::<Sim, Open>(Effort { rounds: 4, ..FEW }, Manner::Waits);
    let failure = worlds::search("lock::searched_open", "host-2c", 60, law).unwrap_err();
    assert!(matches!(failure.kind, FailureKind::DataRace { .. }), "{failure}");
    let found = |seed| {
        let line = Replay { races: false, seed, ..failure.replay.clone() };
        worlds::replay(&line).run(law).is_err_and(|it| it.to_string().contains("two holders"))
    };
    assert!((0..60).any(found), "no schedule lets two holders meet");
}

#[test]
fn the_harness_finds_two_holders() {
    let law = || exclusion::<Sim, Open>(FEW, Manner::Waits);
    let failure = worlds::simulate("lock::open", "host-2c", Faults::NONE, law).unwrap_err();
    // It is told before they are seen: nothing orders what two holders do.
    assert!(matches!(failure.kind, FailureKind::DataRace { .. }), "{failure}");
    let line = Replay { races: false, ..failure.replay };
    let seeds = (0..16).map(|seed| Replay { seed, ..line.clone() });
    let failure = seeds.filter_map(|line| worlds::replay(&line).run(law).err()).next().unwrap();
    assert!(failure.to_string().contains("two holders at once"), "{failure}");
    assert!(failure.to_string().contains("program=laws::lock::open"), "{failure}");
}

/// The laws of one lock's guards: an access to the data lies between the taking of the lock and its
/// end; and what guards do in the order of a program's life.
macro_rules! guards {
    ($($name:ident: $lock:ident<Data $(, $order:ty)?>, $plant:expr;)+) => {$(
        mod $name {
            use super::*;

            type Of<T, W> = $lock<T, $($order,)? W>;

            const NAME: &str = concat!("lock::", stringify!($name));

            fn exclude<W: Testbed>(effort: Effort) {
                let lock = Arc::new(Of::<u64, W>::new_in(0));
                let place = effort.places::<W>();
                let visits = |number: u32| {
                    let lock = Arc::clone(&lock);
                    let come = move || match number % 2 {
                        0 => Some(lock.lock()),
                        _ => lock.try_lock(),
                    }
                    .map_or(0, |mut visits| {
                        *visits += 1;
                        1
                    });
                    let all = move || (0..effort.rounds).map(|_| come()).sum::<u64>();
                    W::spawn(place(number), all).unwrap()
                };
                let threads: Vec<_> = (0..effort.threads).map(visits).collect();
                let visits: u64 = threads.into_iter().map(JoinHandle::join).sum();
                assert_eq!(*lock.lock(), visits, "an increment under the lock was lost");
            }

            #[test]
            fn exclude_in_every_world() {
                exclude::<Native>(NATIVE);
                let law = || exclude::<Sim>(FEW);
                worlds::simulate(NAME, "host-2c", Faults::NONE, law).unwrap();
                worlds::check_planted($plant, || exclude::<Model>(MODEL));
            }

            fn free<W: Testbed>(mut lock: Of<Vec<u32>, W>) {
                lock.lock().push(1);
                {
                    let held = lock.lock();
                    assert!(lock.try_lock().is_none());
                    assert!(lock.is_locked());
                    let locked = concat!(stringify!($lock), " { data: <locked> }");
                    assert_eq!(format!("{lock:?}"), locked);
                    assert_eq!((held.len(), format!("{held:?}")), (1, "[1]".to_owned()));
                }
                assert!(!lock.is_locked());
                lock.try_lock().unwrap().push(2);
                assert_eq!(format!("{lock:?}"), concat!(stringify!($lock), " { data: [1, 2] }"));
                lock.get_mut().push(3);
                assert_eq!(lock.into_inner(), [1, 2, 3]);
            }

            fn free_in_a_static<W: ConstWorld + Testbed>() {
                free::<W>(const { Of::const_new(Vec::new()) });
            }

            #[test]
            fn free_the_lock_in_every_world() {
                free_in_a_static::<Native>();
                let law = free_in_a_static::<Sim>;
                worlds::simulate(NAME, "host-2c", Faults::NONE, law).unwrap();
                worlds::check_planted($plant, || free::<Model>(Of::new_in(Vec::new())));
            }

            #[test]
            fn a_panic_frees_the_lock() {
                let lock = $lock::new(5);
                let message = panic_of(|| {
                    let _held = lock.lock();
                    panic!("inside");
                });
                assert_eq!(message, "inside");
                assert_eq!(*lock.try_lock().unwrap(), 5);
            }
        }
    )+};
}

guards! {
    ticket_guards: TicketLock<Data>, Plant::NONE;
    mutex_guards: Mutex<Data, Near>, Plant::EXCHANGES;
}
