//! Data races are found, in runs whose values do not show them; and none that is none.

use coreline_sim::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use coreline_sim::cell::UnsafeCell;
use coreline_sim::sync::{Arc, Barrier, Condvar, Mutex, Once, OnceLock, RwLock, Weak, mpsc};
use coreline_sim::{Failure, FailureKind, Faults, Machine, Schedule, Sim, interrupts, thread};
use coreline_topology::CpuId;
use coreline_world::{Fences, JoinHandle};

use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::common::{machine, on};
use crate::replays;

/// Plain data that two threads share.
struct Shared {
    data: UnsafeCell<usize>,
    flag: AtomicBool,
    count: AtomicUsize,
}

impl Default for Shared {
    fn default() -> Self {
        let (flag, count) = (AtomicBool::new(false), AtomicUsize::new(0));
        Shared { data: UnsafeCell::new(0), flag, count }
    }
}

impl Shared {
    #[track_caller]
    fn write(&self) {
        // SAFETY: a `usize` in a machine, whose threads take turns on one host thread.
        self.data.with_mut(|it| unsafe { *it += 1 });
    }

    #[track_caller]
    fn read(&self) -> usize {
        // SAFETY: as for `write`: simulated threads take turns.
        self.data.with(|it| unsafe { *it })
    }

    #[track_caller]
    fn await_flag(&self, order: Ordering) {
        while !self.flag.load(order) {
            thread::yield_now();
        }
    }

    /// Writes, and says so.
    #[track_caller]
    fn pass_on(&self, order: Ordering) {
        self.write();
        self.flag.store(true, order);
    }

    /// Waits until another thread says that it wrote, and uses what it wrote.
    #[track_caller]
    fn take(&self, order: Ordering) {
        self.await_flag(order);
        self.update();
    }

    /// Reads what another thread wrote, and writes.
    #[track_caller]
    fn update(&self) {
        assert_eq!(self.read(), 1);
        self.write();
    }

    /// Writes, and says so by the count.
    #[track_caller]
    fn count_on(&self, count: usize, order: Ordering) {
        self.write();
        self.count.store(count, order);
    }

    #[track_caller]
    fn await_count(&self, count: usize, order: Ordering) {
        while self.count.load(order) < count {
            thread::yield_now();
        }
    }

    /// Exchanges nothing until the count is 7.
    #[track_caller]
    fn exchange(&self, success: Ordering, failure: Ordering) {
        while self.count.compare_exchange(8, 9, success, failure) != Err(7) {
            thread::yield_now();
        }
    }
}

/// Machines with a few seeds and schedules.
fn machines() -> impl Iterator<Item = Machine> {
    let schedules = [Schedule::Time, Schedule::Random, Schedule::Pct { depth: 3, steps: 200 }];
    schedules.into_iter().flat_map(|schedule| {
        (0..4).map(move |seed| machine("desktop-12c", seed).schedule(schedule.clone()).find_races())
    })
}

/// Runs two parts of a program on shared data, the second one in a thread of its own.
fn run(machine: Machine, first: fn(&Shared), second: fn(&Shared)) -> Result<(), Box<Failure>> {
    let run = machine.run(move || {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let other = on(1, move || second(&theirs));
        first(&shared);
        other.join();
    });
    run.map(|_| ())
}

fn is_race(result: &Result<(), Box<Failure>>) -> bool {
    matches!(result, Err(failure) if matches!(failure.kind, FailureKind::DataRace { .. }))
}

fn fine(name: &str, first: fn(&Shared), second: fn(&Shared)) {
    for machine in machines() {
        let result = run(machine, first, second);
        assert!(result.is_ok(), "{name}: {}", result.unwrap_err());
    }
}

fn races(name: &str, first: fn(&Shared), second: fn(&Shared)) {
    for machine in machines() {
        let line = machine.replay_line();
        assert!(is_race(&run(machine, first, second)), "{name}: {line}");
    }
}

#[test]
fn what_orders_two_accesses_is_no_race() {
    fine("release and acquire", |it| it.pass_on(Release), |it| it.take(Acquire));
    fine(
        "fences",
        |it| {
            it.write();
            fence(Release);
            it.flag.store(true, Relaxed);
        },
        |it| {
            it.await_flag(Relaxed);
            fence(Acquire);
            it.update();
        },
    );
    fine(
        "a light fence and a heavy one",
        |it| {
            it.write();
            Sim::fence_light();
            it.flag.store(true, Relaxed);
        },
        |it| {
            it.await_flag(Relaxed);
            Sim::try_fence_all().unwrap();
            it.update();
        },
    );
    fine(
        "an update in the middle of a release sequence",
        |it| {
            it.count_on(1, Release);
            it.count.fetch_add(1, Relaxed);
        },
        |it| {
            it.await_count(2, Acquire);
            it.update();
        },
    );
    fine(
        "an exchange that fails acquires",
        |it| it.count_on(7, Release),
        |it| {
            it.exchange(Relaxed, Acquire);
            it.update();
        },
    );
    fine("reads", |it| assert_eq!(it.read(), 0), |it| assert_eq!(it.read(), 0));
}

#[test]
fn what_orders_nothing_is_found_though_all_values_are_right() {
    races("a relaxed store", |it| it.pass_on(Relaxed), |it| it.take(Acquire));
    races("a relaxed load", |it| it.pass_on(SeqCst), |it| it.take(Relaxed));
    races(
        "a release fence that comes too late",
        |it| {
            fence(Release);
            it.pass_on(Relaxed);
        },
        |it| it.take(Acquire),
    );
    races(
        "an acquire fence that comes too early",
        |it| it.pass_on(Release),
        |it| {
            fence(Acquire);
            it.take(Relaxed);
        },
    );
    races(
        "a relaxed store ends a release sequence",
        |it| {
            it.count_on(1, Release);
            it.count.store(2, Relaxed);
        },
        |it| {
            it.await_count(2, Relaxed);
            assert_eq!(it.count.load(Acquire), 2);
            it.update();
        },
    );
    races(
        "an exchange that fails relaxed",
        |it| it.count_on(7, Release),
        |it| {
            it.exchange(AcqRel, Relaxed);
            it.update();
        },
    );
    races("two writes", Shared::write, Shared::write);
    races("a read and a write", |it| assert!(it.read() < 2), Shared::write);
    races(
        "what is done after the release",
        |it| {
            it.flag.store(true, Release);
            it.write();
        },
        |it| {
            it.await_flag(Acquire);
            it.write();
        },
    );
}

/// A program with a cell, which each of these guards or passes on.
#[test]
fn what_std_has_orders() {
    let programs: [(&str, fn()); 13] = [
        ("threads", || {
            let shared = Arc::new(Shared::default());
            shared.write();
            let theirs = Arc::clone(&shared);
            thread::spawn(move || theirs.write()).join().unwrap();
            thread::scope(|scope| _ = scope.spawn(|| shared.write()));
            assert_eq!(shared.read(), 3);
        }),
        ("mutex", || {
            let shared = Mutex::new(Shared::default());
            in_four(|_| shared.lock().unwrap().write());
            assert_eq!(shared.into_inner().unwrap().read(), 4);
        }),
        ("readers and writers", || {
            let shared = RwLock::new(Shared::default());
            in_four(|number| match number % 2 {
                0 => shared.write().unwrap().write(),
                _ => assert!(shared.read().unwrap().read() < 3),
            });
        }),
        ("condition variable", || {
            let (shared, turn, came) = (Shared::default(), Mutex::new(0), Condvar::new());
            in_four(|number| {
                let _mine = came.wait_while(turn.lock().unwrap(), |turn| *turn != number).unwrap();
                shared.write();
                drop(_mine);
                *turn.lock().unwrap() += 1;
                came.notify_all();
            });
        }),
        ("barrier", || {
            let (shared, barrier) = (Shared::default(), Barrier::new(4));
            in_four(|number| {
                if number == 2 {
                    shared.write();
                }
                barrier.wait();
                assert_eq!(shared.read(), 1);
            });
        }),
        ("once", || {
            let (shared, once, lock) = (Shared::default(), Once::new(), OnceLock::new());
            in_four(|_| {
                once.call_once(|| shared.write());
                assert_eq!(shared.read(), 1);
                lock.get_or_init(Shared::default).read();
            });
        }),
        ("channel", || {
            let (sender, receiver) = mpsc::channel::<Box<Shared>>();
            let other = thread::spawn(move || receiver.iter().for_each(|shared| shared.write()));
            for _ in 0..3 {
                let shared = Box::<Shared>::default();
                shared.write();
                sender.send(shared).unwrap();
            }
            drop(sender);
            other.join().unwrap();
        }),
        ("park", || {
            let shared = Arc::new(Shared::default());
            let theirs = Arc::clone(&shared);
            let other = thread::spawn(move || {
                while !theirs.flag.load(Relaxed) {
                    thread::park();
                }
                thread::park();
                theirs.write();
            });
            shared.write();
            shared.flag.store(true, Relaxed);
            other.thread().unpark();
            thread::yield_now();
            other.thread().unpark();
            drop(other);
        }),
        ("the last reference", || {
            struct Reads(Shared);
            impl Drop for Reads {
                fn drop(&mut self) {
                    self.0.write();
                }
            }
            let shared = Arc::new(Reads(Shared::default()));
            let readers: Vec<_> = (0..4)
                .map(|_| {
                    let mine = Arc::clone(&shared);
                    thread::spawn(move || assert_eq!(mine.0.read(), 0))
                })
                .collect();
            drop(shared);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        }),
        ("a value that is withdrawn", || {
            // The load may find the first value while the store of the second is on its way.
            let shared = Arc::new(Shared::default());
            let theirs = Arc::clone(&shared);
            let other = on(2, move || {
                theirs.write();
                theirs.count.store(1, Release);
                theirs.count.store(2, Relaxed);
            });
            while shared.count.load(Relaxed) == 0 {}
            if shared.count.load(Acquire) == 1 {
                assert_eq!(shared.read(), 1);
            }
            other.join();
        }),
        ("a reference to itself", || {
            let (sender, receiver) = mpsc::channel::<Weak<Shared>>();
            let other = thread::spawn(move || {
                let weak = receiver.recv().unwrap();
                let shared = loop {
                    match weak.upgrade() {
                        Some(shared) => break shared,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(shared.read(), 1);
            });
            let shared = Arc::new_cyclic(|weak| {
                sender.send(weak.clone()).unwrap();
                thread::yield_now();
                let shared = Shared::default();
                shared.write();
                shared
            });
            other.join().unwrap();
            assert_eq!(shared.read(), 1);
        }),
        ("memory that is used again for other lengths", || {
            let cells = Box::new([const { AtomicUsize::new(0) }; 8]);
            // SAFETY: as long and as aligned as the words, which are not used meanwhile.
            let whole = unsafe { &*(&raw const *cells).cast::<UnsafeCell<[usize; 8]>>() };
            // SAFETY: the machine's threads take turns, here and below.
            whole.with_mut(|it| unsafe { *it = [1; 8] });
            // SAFETY: as for `whole`, each for its own word.
            let parts = unsafe { &*(&raw const *cells).cast::<[UnsafeCell<usize>; 8]>() };
            let parts: Vec<_> = parts.iter().map(Of).collect();
            thread::scope(|scope| {
                for part in &parts {
                    // SAFETY: the machine's threads take turns.
                    scope.spawn(move || part.0.with_mut(|it| unsafe { *it += 1 }));
                }
            });
        }),
        ("memory that is used again", || {
            in_four(|_| {
                for _ in 0..20 {
                    Box::<Shared>::default().write();
                }
            });
        }),
    ];
    for (name, program) in programs {
        for machine in machines() {
            let line = machine.replay_line();
            let run = machine.run(program);
            assert!(run.is_ok(), "{name}: {line}\n{}", run.unwrap_err());
        }
    }
}

/// A cell of several.
struct Of<'a>(&'a UnsafeCell<usize>);

fn in_four(part: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for number in 0..4 {
            let part = &part;
            scope.spawn(move || part(number));
        }
    });
}

#[test]
fn an_interrupt_passes_on_what_its_sender_knows() {
    for machine in machines() {
        let run = machine.run(|| {
            let shared = Arc::new(Shared::default());
            shared.write();
            let theirs = Arc::clone(&shared);
            interrupts::send(CpuId::new(3), move || {
                theirs.write();
                theirs.flag.store(true, Release);
            })
            .unwrap();
            shared.await_flag(Acquire);
            assert_eq!(shared.read(), 2);
        });
        assert!(run.is_ok(), "{}", run.unwrap_err());
    }
}

#[test]
fn a_race_names_both_accesses_and_is_replayed() {
    let program = || {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let other = thread::spawn(move || theirs.write());
        shared.write();
        other.join().unwrap();
    };
    let machine =
        machine("desktop-12c", 5).find_races().faults(Faults { preempt: 9, ..Faults::NONE });
    let failure = machine.program("two writes").run(program).unwrap_err();
    let FailureKind::DataRace { earlier, later, len } = &failure.kind else { panic!("{failure}") };
    assert_eq!((*len, earlier.writes, later.writes), (size_of::<usize>(), true, true));
    let mut threads = [earlier.thread, later.thread];
    threads.sort_unstable();
    assert_eq!(threads, [0, 1]);
    let text = failure.to_string();
    assert!(text.contains("data race on 8 bytes: nothing orders\n  the write by thread"), "{text}");
    assert!(text.matches("tests/programs/races.rs:").count() >= 2, "{text}");
    let line = failure.replay.to_string();
    assert!(line.contains(" races=found program=two writes"), "{line}");
    replays(&failure, program);
    // Without a look for races the run is the same, and ends well.
    let quiet = line.replace(" races=found", "").parse().unwrap();
    assert!(Machine::replay(&quiet).unwrap().run(program).is_ok());
}

#[test]
fn looking_for_races_takes_no_simulated_time() {
    let times = [false, true].map(|looks| {
        let machine = machine("epyc-9654-2s", 3);
        let machine = if looks { machine.find_races() } else { machine };
        let run = machine.run(|| {
            let shared = Mutex::new(Shared::default());
            thread::scope(|scope| {
                for _ in 0..48 {
                    scope.spawn(|| (0..5).for_each(|_| shared.lock().unwrap().write()));
                }
            });
        });
        run.unwrap().report.time_ns
    });
    assert_eq!(times[0], times[1]);
}
