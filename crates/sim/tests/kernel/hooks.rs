//! The kernel's hooks: when the machine calls them, and with what.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coreline_sim::interrupts::mask;
use coreline_sim::{FailureKind, Faults, Kernel, Machine, Sim, Spec, exec};
use coreline_topology::{Cid, CpuId};
use coreline_world::conformance::restartable::BareWords;
use coreline_world::{
    Clock, IndexBy, JoinHandle, Line, Ordering, Placement, Sleep, Threads, Time, Word, Words, Work,
};

use crate::common::{U32, machine, on};

/// What a kernel was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    In(Time, CpuId, usize),
    Out(Time, CpuId, usize),
    Migrated(Time, usize, CpuId, CpuId),
    Tick(Time, CpuId, usize),
    Exec(Time, usize),
}

impl Told {
    fn at(self) -> Time {
        match self {
            Told::In(at, ..)
            | Told::Out(at, ..)
            | Told::Migrated(at, ..)
            | Told::Tick(at, ..)
            | Told::Exec(at, _) => at,
        }
    }
}

/// Writes down what it is told.
#[derive(Default, Clone)]
struct Scribe(Rc<RefCell<Vec<Told>>>);

impl Kernel for Scribe {
    fn switch_in(&mut self, at: Time, cpu: CpuId, thread: usize) -> Cid {
        self.0.borrow_mut().push(Told::In(at, cpu, thread));
        Cid::new(cpu.get())
    }

    fn switch_out(&mut self, at: Time, cpu: CpuId, thread: usize) {
        self.0.borrow_mut().push(Told::Out(at, cpu, thread));
    }

    fn migrated(&mut self, at: Time, thread: usize, from: CpuId, to: CpuId) {
        self.0.borrow_mut().push(Told::Migrated(at, thread, from, to));
    }

    fn tick(&mut self, at: Time, cpu: CpuId, thread: usize) {
        self.0.borrow_mut().push(Told::Tick(at, cpu, thread));
    }

    fn exec(&mut self, at: Time, thread: usize) {
        self.0.borrow_mut().push(Told::Exec(at, thread));
    }

    fn spawned(&mut self, _thread: usize, _cpu: CpuId, _bound: bool) {}

    fn exited(&mut self, _thread: usize) {}
}

/// What the kernel of a machine is told while it runs a program.
fn told(machine: Machine, program: impl FnOnce() + 'static) -> Vec<Told> {
    let scribe = Scribe::default();
    let run = machine.kernel(Box::new(scribe.clone())).run(program);
    run.unwrap_or_else(|failure| panic!("{failure}"));
    scribe.0.take()
}

fn ticks(told: &[Told], of: u32) -> Vec<Time> {
    let tick = |told: &Told| match *told {
        Told::Tick(at, cpu, _) if cpu == CpuId::new(of) => Some(at),
        _ => None,
    };
    told.iter().filter_map(tick).collect()
}

/// Runs until `until` without a sleep.
fn keep_busy(until: Duration) {
    let start = Sim::now();
    while Sim::now() - start < until {
        Sim::relax();
    }
}

#[test]
fn a_busy_cpu_ticks_at_its_phase_and_an_idle_one_does_not() {
    const TICK: Duration = Duration::from_millis(4);
    let program = || {
        let busy = [1, 2].map(|cpu| on(cpu, || keep_busy(5 * TICK)));
        Sim::sleep(5 * TICK);
        busy.into_iter().for_each(JoinHandle::join);
    };
    let told = told(machine("epyc-9654-2s", 3), program);
    let [idle, one, two] = [0, 1, 2].map(|cpu| ticks(&told, cpu));
    // It runs for microseconds at a time.
    assert!(idle.len() <= 1, "{idle:?}");
    for ticks in [&one, &two] {
        assert_eq!(ticks.len(), 5);
        for pair in ticks.windows(2) {
            let apart = pair[1] - pair[0];
            assert!(apart.abs_diff(TICK) < Duration::from_micros(1), "{apart:?}");
        }
    }
    assert!((two[0] - one[0]).max(one[0] - two[0]) > Duration::from_micros(10), "in step");
}

/// A tick that is due in the middle of a switch, which has interrupts off, is taken when they are
/// on again: it hits the thread that was switched to.
#[test]
fn a_tick_that_is_due_while_the_kernel_switches_hits_the_next_thread() {
    const WAKES: usize = 5000;
    const TICK_NS: usize = 100_000;
    const SWITCH_NS: usize = 1500;
    let text = include_str!("../../machines/host-2c.toml");
    let (switch, tick) = ("[cost.switch]\nns = 1500.0", "[cost.tick]\nns = 4000000.0");
    assert!(text.contains(switch) && text.contains(tick), "the machine file changed");
    let text = text.replace(tick, &format!("[cost.tick]\nns = {TICK_NS}.0"));
    let text = text.replacen("name = \"host-2c\"", "name = \"fast-tick\"", 1);
    let machine = Machine::new(Spec::parse("fast-tick.toml", &text).unwrap()).seed(1);
    let program = || {
        // Sleeps in no proportion to a tick, and has the CPU for no time to speak of.
        for wake in 0..WAKES as u64 {
            Sim::sleep(Duration::from_nanos(70_000 + wake * 7919 % 60_000));
        }
    };
    let hits = ticks(&told(machine, program), 0).len();
    let expected = WAKES * SWITCH_NS / TICK_NS;
    assert!((expected * 7 / 10..expected * 13 / 10).contains(&hits), "{hits}, not {expected}");
}

/// A CPU whose thread yields, or is preempted, does not become idle, even if no other thread is
/// there yet: its timer ticks on.
#[test]
fn no_tick_is_lost_while_a_thread_yields_to_one_that_is_on_its_way() {
    const TICK: Duration = Duration::from_millis(4);
    let program = || {
        let yielder = on(1, || {
            let start = Sim::now();
            while Sim::now() - start < 10 * TICK {
                Sim::yield_now();
            }
        });
        for _ in 0..2000 {
            on(1, || ()).join();
        }
        yielder.join();
    };
    let found = ticks(&told(machine("host-2c", 1), program), 1);
    assert!((9..=11).contains(&found.len()), "{found:?}");
}

/// A machine whose timer ticks every 50 us, and whose wake-ups and system calls take this long.
fn fast_ticks(wake_ns: u64, syscall_ns: u64) -> Machine {
    let text = include_str!("../../machines/host-2c.toml");
    let costs = [
        ("[cost.tick]\nns = 4000000.0", 50_000),
        ("[cost.wake]\nns = 3000.0", wake_ns),
        ("[cost.syscall]\nns = 110.0", syscall_ns),
    ];
    let text = costs.iter().fold(text.to_owned(), |text, (cost, ns)| {
        assert!(text.contains(cost), "the machine file changed");
        let (name, _) = cost.split_once('=').unwrap();
        text.replace(cost, &format!("{name}= {ns}.0"))
    });
    let text = text.replacen("name = \"host-2c\"", "name = \"fast-ticks\"", 1);
    Machine::new(Spec::parse("fast-ticks.toml", &text).unwrap()).seed(1)
}

/// Asserts that ticks are a tick apart, but for the `late` that a switch holds one off.
fn assert_regular(ticks: &[Time], late: Duration) {
    assert!(ticks.len() > 10, "{ticks:?}");
    for pair in ticks.windows(2) {
        let apart = (pair[1] - pair[0]).as_nanos();
        assert!(apart.abs_diff(50_000) <= late.as_nanos(), "{apart} ns apart");
    }
}

#[test]
fn no_tick_is_lost_between_two_threads_that_block_in_turn() {
    let program = || {
        let turn = Arc::new(Line(U32::new_in(0)));
        let players = [0, 1].map(|own| {
            let turn = Arc::clone(&turn);
            on(1, move || {
                for _ in 0..1000 {
                    while turn.load(Ordering::Relaxed) != own {
                        Sim::park(&turn, 1 - own, None);
                    }
                    turn.store(1 - own, Ordering::Relaxed);
                    Sim::wake(&**turn, 1);
                }
            })
        });
        players.into_iter().for_each(JoinHandle::join);
    };
    assert_regular(&ticks(&told(fast_ticks(3000, 110), program), 1), Duration::from_micros(3));
}

#[test]
fn no_tick_hits_twice_where_a_cpu_is_idle_for_less_than_a_switch() {
    let program = || {
        for _ in 0..1000 {
            Sim::work(Duration::from_micros(2));
            Sim::sleep(Duration::from_nanos(20));
        }
    };
    let ticks = ticks(&told(fast_ticks(50, 110), program), 0);
    assert!(ticks.len() > 10, "{ticks:?}");
    assert!(ticks.windows(2).all(|pair| pair[1] - pair[0] > Duration::from_micros(45)));
}

#[test]
fn of_all_ticks_that_a_section_held_off_one_hits() {
    let program = || {
        for _ in 0..5 {
            let masked = mask();
            Sim::work(Duration::from_micros(420));
            drop(masked);
            Sim::work(Duration::from_micros(40));
        }
    };
    let hits = ticks(&told(fast_ticks(3000, 110), program), 0).len();
    assert!((5..=10).contains(&hits), "{hits} hits");
}

#[test]
fn a_tick_that_is_due_in_the_system_call_of_a_thread_that_blocks_hits_it() {
    const PARKS: u64 = 3000;
    let program = || {
        let word = Line(U32::new_in(0));
        for park in 0..PARKS {
            // In no proportion to a tick.
            let until = Sim::now() + Duration::from_nanos(20_000 + park * 7919 % 60_000);
            Sim::park(&word, 0, Some(until));
        }
    };
    // The thread has the CPU for the length of a system call, and a switch before that.
    let hits = ticks(&told(fast_ticks(3000, 6000), program), 0).len() as u64;
    let expected = PARKS * (6000 + 1500) / 50_000;
    assert!((expected * 8 / 10..expected * 12 / 10).contains(&hits), "{hits}, not {expected}");
}

/// A CPU without a thread is idle, also while one is on its way there.
#[test]
fn what_is_due_while_a_cpu_is_idle_hits_no_thread() {
    const THREADS: usize = 2000;
    let program = || {
        let spawned = (0..THREADS).map(|_| {
            Sim::work(Duration::from_micros(8));
            on(1, || ())
        });
        spawned.collect::<Vec<_>>().into_iter().for_each(JoinHandle::join);
    };
    let hits = ticks(&told(fast_ticks(3000, 110), program), 1).len();
    let expected = THREADS * 1500 / 50_000;
    assert!((expected * 7 / 10..expected * 13 / 10).contains(&hits), "{hits}, not {expected}");
}

#[test]
fn a_thread_that_spins_has_ticks() {
    let program = || {
        let word = Arc::new(Line(U32::new_in(0)));
        let theirs = Arc::clone(&word);
        let spinner = on(1, move || _ = theirs.wait_until(Ordering::Relaxed, |value| value == 1));
        Sim::sleep(Duration::from_millis(20));
        word.store(1, Ordering::Relaxed);
        spinner.join();
    };
    assert_eq!(ticks(&told(machine("host-2c", 1), program), 1).len(), 5);
}

#[test]
fn spinning_for_ever_is_a_deadlock_ticks_or_not() {
    let program = || {
        drop(on(1, || Line(U32::new_in(0)).wait_until(Ordering::Relaxed, |value| value == 1)));
        Line(U32::new_in(0)).wait_until(Ordering::Relaxed, |value| value == 1);
    };
    let failure = machine("host-2c", 1).run(program).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock, "{failure}");
}

#[test]
fn a_move_is_told_between_the_switches() {
    let program = || {
        let slots = BareWords::<Sim>::new_in(IndexBy::Cpu).unwrap();
        let mover = Sim::spawn(Placement::Anywhere, move || {
            for _ in 0..100 {
                slots.add(1).unwrap();
            }
        });
        mover.unwrap().join();
    };
    let faults = Faults { migrate: 10, ..Faults::default() };
    let told = told(machine("host-2c", 1).faults(faults), program);
    let mut moves = 0;
    for (index, this) in told.iter().enumerate() {
        let Told::Migrated(at, thread, from, to) = *this else { continue };
        moves += 1;
        assert_ne!(from, to);
        assert_eq!(told[index - 1], Told::Out(at, from, thread));
        let next = told[index..].iter().find_map(|told| match *told {
            Told::In(at, cpu, other) if other == thread => Some((at, cpu)),
            _ => None,
        });
        let (later, cpu) = next.expect("it runs again");
        assert_eq!(cpu, to);
        assert!(later > at);
    }
    assert!(moves > 5, "{moves}");
}

#[test]
fn the_calls_come_in_the_order_of_time_and_name_the_thread_that_runs() {
    let program = || {
        let threads = [0, 0, 1].map(|cpu| {
            on(cpu, || {
                exec();
                keep_busy(Duration::from_millis(9));
            })
        });
        threads.into_iter().for_each(JoinHandle::join);
    };
    let told = told(machine("host-2c", 2), program);
    let mut runs = [None; 2];
    let mut execs = 0;
    for this in &told {
        match *this {
            Told::In(_, cpu, thread) => {
                assert_eq!(runs[cpu.index()].replace(thread), None);
            }
            Told::Out(_, cpu, thread) => assert_eq!(runs[cpu.index()].take(), Some(thread)),
            Told::Tick(_, cpu, thread) => assert_eq!(runs[cpu.index()], Some(thread)),
            Told::Exec(_, thread) => {
                assert!(runs.contains(&Some(thread)));
                execs += 1;
            }
            // The first thread, which is not bound, goes to where there is room.
            Told::Migrated(_, thread, ..) => assert_eq!(thread, 0),
        }
    }
    assert_eq!(execs, 3);
    // Up to the length of what a thread does in one step.
    for pair in told.windows(2) {
        let back = pair[0].at() - pair[1].at();
        assert!(back < Duration::from_micros(3), "{pair:?}");
    }
}
