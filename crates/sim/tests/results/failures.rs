//! What a program or a kernel that fails says and leaves behind; destructors that use the machine.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coreline_sim::atomic::AtomicU64;
use coreline_sim::sync::{self, Mutex};
use coreline_sim::{FailureKind, Foreign, Kernel, Machine, Sim, Spec, SpecError, name, thread};
use coreline_topology::{Cid, CpuId};
use coreline_world::{
    Clock, Integer, JoinHandle, Line, Ordering, Sleep, Threads, Time, Word, WorldStatic,
};

use crate::common::{U32, machine, on};

/// The message and the place of the panic that ends a program.
fn panic_of(program: impl FnOnce() + 'static) -> (String, Option<String>) {
    match machine("host-2c", 1).run(program).unwrap_err().kind {
        FailureKind::Panic { message, location, .. } => (message, location),
        kind => panic!("{kind}"),
    }
}

#[test]
fn unwrap_says_what_a_reader_understands() {
    let failure = machine("host-2c", 1).run(|| panic!("broken")).unwrap_err();
    assert_eq!(format!("{failure:?}"), failure.to_string());
}

/// A kernel that calls `hook` at each switch, in and out.
struct Hooked<F: FnMut(bool)>(F);

impl<F: FnMut(bool)> Kernel for Hooked<F> {
    fn switch_in(&mut self, _at: Time, cpu: CpuId, _thread: usize) -> Cid {
        (self.0)(true);
        Cid::new(cpu.get())
    }

    fn switch_out(&mut self, _at: Time, _cpu: CpuId, _thread: usize) {
        (self.0)(false);
    }

    fn spawned(&mut self, _thread: usize, _cpu: CpuId, _bound: bool) {}

    fn exited(&mut self, _thread: usize) {}
}

#[test]
fn a_panic_of_the_kernel_is_the_hosts_and_the_next_machine_runs() {
    let kernel = Hooked(|_| panic!("a defect of the kernel"));
    let run = || machine("host-2c", 1).kernel(Box::new(kernel)).run(|| ());
    let raised = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    assert_eq!(raised.downcast_ref(), Some(&"a defect of the kernel"));
    assert_eq!(machine("host-2c", 1).run(|| 7).unwrap().value, 7);
}

#[test]
fn a_panic_of_the_kernel_as_a_thread_blocks_is_that_threads() {
    let kernel = Hooked(|switched_in| assert!(switched_in, "a defect of the kernel"));
    let program = || Sim::sleep(Duration::from_nanos(1));
    let failure = machine("host-2c", 1).kernel(Box::new(kernel)).run(program).unwrap_err();
    assert!(failure.to_string().contains("a defect of the kernel"), "{failure}");
}

#[test]
fn a_kernel_cannot_use_the_machine_that_it_is_part_of() {
    let kernel = Hooked(|_| _ = Sim::now());
    let run = || machine("host-2c", 1).kernel(Box::new(kernel)).run(|| ());
    let raised = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let message = raised.downcast_ref::<String>().map(String::as_str);
    let message = message.or(raised.downcast_ref::<&str>().copied());
    assert!(message.is_some_and(|message| message.contains("only inside")), "{message:?}");
}

#[test]
fn a_panic_is_reported_with_its_own_message() {
    let (message, location) = panic_of(|| {
        catch_unwind(|| panic!("an old panic")).unwrap_err();
        resume_unwind(Box::new("a new one"));
    });
    assert_eq!((message.as_str(), location), ("a new one", None));

    let (message, location) = panic_of(|| {
        let raised = catch_unwind(|| panic!("caught and raised again")).unwrap_err();
        resume_unwind(raised);
    });
    assert_eq!(message, "caught and raised again");
    assert!(location.unwrap().contains("failures.rs"));
}

#[test]
fn a_panic_of_which_no_thread_learns_ends_the_run() {
    let left = |message: &'static str, wait: bool| {
        move || {
            let thread = thread::spawn(move || assert!(message.is_empty(), "{message}"));
            if wait {
                // The thread has ended when its handle goes.
                thread::sleep(Duration::from_millis(1));
            }
            drop(thread);
            thread::sleep(Duration::from_millis(1));
        }
    };
    for wait in [false, true] {
        let (message, location) = panic_of(left("a detached thread's", wait));
        assert_eq!(message, "a detached thread's");
        assert!(location.unwrap().contains("failures.rs"));
    }
    machine("host-2c", 1).run(left("", false)).unwrap();
    // One that is joined is its joiner's.
    let joined = || thread::spawn(|| panic!("of a joined one")).join().is_err();
    assert!(machine("host-2c", 1).run(joined).unwrap().value);
}

#[test]
fn a_panic_of_which_no_thread_learns_fails_the_run_though_its_handle_is_kept() {
    let panics = || thread::spawn(|| panic!("of a returned handle"));
    let returned = machine("host-2c", 1).run(panics).map(|run| drop(run.value)).unwrap_err();
    let FailureKind::Panic { thread, message, location, .. } = &returned.kind else {
        panic!("{returned}")
    };
    assert_eq!((*thread, message.as_str()), (1, "of a returned handle"));
    assert!(location.as_ref().unwrap().contains("failures.rs"), "{returned}");
    let (message, _) = panic_of(move || std::mem::forget(panics()));
    assert_eq!(message, "of a returned handle");
    // A scope's owner learns of it, and may live with it.
    let caught = || {
        let panics = || thread::scope(|scope| _ = scope.spawn(|| panic!("of a scope")));
        catch_unwind(panics).is_err()
    };
    assert!(machine("host-2c", 1).run(caught).unwrap().value);
    // The handle of a thread that ends well may leave the machine.
    drop(machine("host-2c", 1).run(|| thread::spawn(|| ())).unwrap().value);
}

#[test]
fn a_payload_that_uses_the_machine_does_not_outlive_it() {
    struct Payload(Arc<Line<U32>>);

    impl Drop for Payload {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            Sim::sleep(Duration::from_nanos(1));
        }
    }

    let (message, _) = panic_of(|| {
        let word = Arc::new(Line(U32::new_in(0)));
        on(1, move || panic_any(Payload(word))).join();
    });
    assert_eq!(message, "(not a string)");
}

#[test]
fn a_panic_whose_unwinding_gets_stuck_is_the_failure() {
    struct Guard(Line<U32>);

    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.wait_until(Ordering::Relaxed, |value| value == 1);
        }
    }

    // On a thread of its own, which counts as panicking from then on.
    let host = std::thread::spawn(|| {
        panic_of(|| {
            let _guard = Guard(Line(U32::new_in(0)));
            panic!("the cause of the deadlock");
        })
    });
    let (message, location) = host.join().unwrap();
    assert_eq!(message, "the cause of the deadlock");
    assert!(location.is_some());
}

#[test]
fn a_thousand_failures_leave_room_for_the_next() {
    let program = || {
        // A block that leaks: it keeps the machine's memory.
        let word = Box::new(U32::new_in(0));
        Sim::park(&word, 0, None);
    };
    for _ in 0..1100 {
        assert_eq!(machine("host-2c", 1).run(program).unwrap_err().kind, FailureKind::Deadlock);
    }
    assert_eq!(machine("host-2c", 1).run(|| 7).unwrap().value, 7);
}

#[test]
fn a_failed_run_does_not_drop_what_its_first_thread_returned() {
    struct Returned(Rc<Cell<bool>>);

    impl Drop for Returned {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }

    let dropped = Rc::new(Cell::new(false));
    let returned = Rc::clone(&dropped);
    let run = machine("host-2c", 1).run(move || {
        drop(on(1, || panic!("after the first thread's end")));
        Returned(returned)
    });
    assert!(run.is_err() && !dropped.get());
}

#[test]
fn the_slower_of_two_makers_of_a_static_drops_its_own() {
    static OBJECT: WorldStatic = WorldStatic::new("made by two");

    /// Uses the machine and its memory when it drops.
    struct Object(Arc<Line<U32>>);

    impl Drop for Object {
        fn drop(&mut self) {
            let one = Box::new(U32::new_in(1));
            self.0.fetch_add(one.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    let drops = machine("host-2c", 1).run(|| {
        let drops = Arc::new(Line(U32::new_in(0)));
        let makers = [0, 1].map(|cpu| {
            let drops = Arc::clone(&drops);
            on(cpu, move || {
                let make = || {
                    Sim::sleep(Duration::from_micros(100));
                    Object(drops)
                };
                OBJECT.with::<Sim, Object, _>(make, |_| ());
            })
        });
        makers.into_iter().for_each(JoinHandle::join);
        drops.load(Ordering::Relaxed)
    });
    assert_eq!(drops.unwrap().value, 1);
}

#[test]
fn a_static_made_by_anothers_destructor_is_dropped_in_the_machine() {
    static FIRST: WorldStatic = WorldStatic::new("first");
    static SECOND: WorldStatic = WorldStatic::new("second");

    struct Second(Arc<std::sync::atomic::AtomicBool>);

    impl Drop for Second {
        fn drop(&mut self) {
            Sim::sleep(Duration::from_nanos(1));
            self.0.store(true, Ordering::Relaxed);
        }
    }

    struct First(Arc<std::sync::atomic::AtomicBool>);

    impl Drop for First {
        fn drop(&mut self) {
            SECOND.with::<Sim, Second, _>(|| Second(Arc::clone(&self.0)), |_| ());
        }
    }

    let dropped = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let theirs = Arc::clone(&dropped);
    machine("host-2c", 1).run(|| FIRST.with::<Sim, First, _>(|| First(theirs), |_| ())).unwrap();
    assert!(dropped.load(Ordering::Relaxed));
}

#[test]
fn a_handle_carried_to_another_machine_does_not_break_it() {
    let handle = machine("host-2c", 1)
        .run(|| {
            let handle = on(1, || 7);
            Sim::sleep(Duration::from_micros(100));
            handle
        })
        .unwrap()
        .value;
    assert_eq!(machine("host-2c", 1).run(|| handle.join()).unwrap().value, 7);
}

/// Recurses `depth` times, at each depth with `each`.
fn recurse(depth: u64, each: fn(u64) -> u64) -> u64 {
    let block = std::hint::black_box([each(depth); 64]);
    if depth == 0 { block[0] } else { recurse(depth - 1, each) + std::hint::black_box(block)[63] }
}

#[test]
fn a_stack_overflow_is_a_failure_and_the_host_goes_on() {
    let with_accesses = |depth| {
        let word = Line(U32::new_in(1));
        u64::from(word.fetch_add(1, Ordering::Relaxed)) + depth
    };
    let without: fn(u64) -> u64 = |depth| depth;
    for each in [with_accesses, without] {
        // Twice: nothing is used up.
        for _ in 0..2 {
            let failure = machine("host-2c", 1)
                .run(move || {
                    drop(on(1, || Sim::sleep(Duration::from_secs(1))));
                    recurse(1 << 20, each)
                })
                .unwrap_err();
            let cpu = CpuId::new(0);
            assert_eq!(failure.kind, FailureKind::StackOverflow { thread: 0, cpu }, "{failure}");
            assert_eq!(failure.threads.len(), 2);
        }
        // Deep, and not too deep.
        assert!(machine("host-2c", 1).run(move || recurse(100, each)).unwrap().value > 0);
    }
    // On a host thread that is not the first, too.
    let host = std::thread::spawn(move || {
        machine("host-2c", 1).run(move || recurse(1 << 20, without)).unwrap_err().kind
    });
    assert!(matches!(host.join().unwrap(), FailureKind::StackOverflow { .. }));
}

#[test]
fn a_failure_says_what_every_cpu_was_doing() {
    let run = machine("host-2c", 1).run(|| {
        drop(on(1, || Line(U32::new_in(0)).wait_until(Ordering::Relaxed, |value| value == 1)));
        Sim::park(&U32::new_in(0), 0, None);
    });
    let failure = run.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock);
    let threads: Vec<_> = failure.cpus.iter().map(|cpu| cpu.thread).collect();
    assert_eq!(threads, [None, Some(1)]);
    let text = failure.to_string();
    assert!(text.contains("cpu 1 at ") && text.contains("thread 1, 0 queued"), "{text}");
    assert!(text.contains("1 CPUs idle"), "{text}");
}

#[test]
fn a_deadlock_names_places_locks_and_holders() {
    let failure = machine("host-2c", 1).run(|| {
        let locks = [Mutex::new(1), Mutex::new(2)].map(sync::Arc::new);
        name(&*locks[0], "accounts");
        name(&*locks[1], "journal");
        let both = |first: usize| {
            let locks = locks.clone();
            move || {
                let _first = locks[first].lock().unwrap();
                thread::sleep(Duration::from_millis(1));
                drop(locks[1 - first].lock().unwrap());
            }
        };
        let threads = [0, 1].map(|first| thread::spawn(both(first)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let failure = failure.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock);
    let text = failure.to_string();
    for (thread, lock, holder) in [(1, "journal", 2), (2, "accounts", 1)] {
        let state = failure.threads.iter().find(|state| state.thread == thread).unwrap();
        assert!(state.site.as_ref().unwrap().file.ends_with("failures.rs"), "{text}");
        let lock = failure.locks.iter().find(|report| report.names == [lock]).unwrap();
        assert_eq!((state.waits_for, &lock.holders[..]), (Some(lock.lock), &[holder][..]));
        let line = text.lines().find(|line| line.contains(&format!("thread {thread} on")));
        assert!(line.unwrap().contains(&lock.names[0]), "{text}");
        assert!(line.unwrap().ends_with(&format!("held by thread {holder}")), "{text}");
    }
    let joining = failure.threads.iter().find(|state| state.thread == 0).unwrap();
    assert!(joining.site.as_ref().unwrap().file.ends_with("failures.rs"), "{text}");
}

#[test]
fn a_livelock_is_told_from_slow_progress() {
    let given_up = |program: fn(&AtomicU64)| {
        let run = machine("host-2c", 1).step_limit(100_000).run(move || {
            let word = sync::Arc::new(AtomicU64::new(0));
            let theirs = sync::Arc::clone(&word);
            thread::spawn(move || program(&theirs));
            program(&word);
        });
        let failure = run.unwrap_err();
        let FailureKind::Livelock { steps: 100_000, lately } = failure.kind else {
            panic!("{failure}")
        };
        assert!(lately.steps == 50_000 && lately.accesses > 1_000, "{failure}");
        // Each thread that runs has a place.
        assert!(failure.threads.iter().all(|state| state.site.is_some()), "{failure}");
        assert!(failure.to_string().contains("failures.rs"), "{failure}");
        (lately, failure.to_string())
    };
    // A word that never becomes 1, and an exchange that never succeeds.
    let (stuck, text) = given_up(|word| {
        while word.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            word.store(0, Ordering::Release);
        }
    });
    assert!(!stuck.is_progress() && stuck.changes == 0 && text.contains("a livelock"), "{text}");
    let (slow, text) = given_up(|word| {
        loop {
            word.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(slow.is_progress() && slow.changes > 1_000 && text.contains("slow progress"), "{text}");
    let (locking, _) = given_up(|_| {
        let lock = Mutex::new(());
        loop {
            drop(lock.lock());
        }
    });
    assert!(locking.acquisitions > 100);
}

#[test]
fn memory_that_is_not_the_machines_is_told_by_place_and_kind() {
    static COUNT: AtomicU64 = AtomicU64::new(0);

    let told = |program: fn(&AtomicU64), word: &'static AtomicU64| {
        let failure = machine("host-2c", 1).run(move || program(word)).unwrap_err();
        let text = failure.to_string();
        let FailureKind::Unregistered { site, memory, .. } = failure.kind else { panic!("{text}") };
        assert!(site.file.ends_with("failures.rs") && text.contains(&site.to_string()), "{text}");
        (memory, text)
    };
    let add = |word: &AtomicU64| _ = word.fetch_add(1, Ordering::Relaxed);
    let (memory, text) = told(add, &COUNT);
    let Foreign::Static { image, .. } = memory else { panic!("{text}") };
    assert!(image.starts_with("results-"), "{text}");
    for remedy in ["coreline_sim::Static", "WorldStatic", "`coreline port`"] {
        assert!(text.contains(remedy), "{text}");
    }
    let (memory, _) = told(add, Box::leak(Box::default()));
    assert_eq!(memory, Foreign::Host);
    let fill = |word: &AtomicU64| {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(1 << 30)));
        word.fetch_add(1, Ordering::Relaxed);
    };
    let (memory, _) = told(fill, Box::leak(Box::default()));
    assert_eq!(memory, Foreign::Exhausted);
}

#[test]
fn a_line_of_ones_own_machine_is_replayed_on_that_file_alone() {
    let text = include_str!("../../machines/host-2c.toml").replacen("\"host-2c\"", "\"mine\"", 1);
    let spec = |text: &str| Spec::parse("mine.toml", text).unwrap();
    let line = Machine::new(spec(&text)).seed(7).replay_line().to_string();
    assert!(line.starts_with("coreline-sim/1 machine=mine@"), "{line}");
    let replay = line.parse().unwrap();
    let error = Machine::replay(&replay).err().unwrap();
    assert!(matches!(&error, SpecError::OwnFile { name, .. } if name == "mine"), "{error}");
    assert_eq!(Machine::new(spec(&text)).replaying(&replay).run(|| 7).unwrap().value, 7);
    let other = spec(&text.replacen("ns = 24.6", "ns = 25.0", 1));
    let refused = Machine::new(other).replaying(&replay).run(|| 7).unwrap_err();
    let FailureKind::Refused { why } = &refused.kind else { panic!("{refused}") };
    assert!(why.contains("mine@") && why.contains("give the unchanged file"), "{why}");
    // Lines without a digest, of presets and of before, are as they were.
    let preset = machine("host-2c", 7).replay_line();
    assert!(!preset.to_string().contains('@'));
    Machine::replay(&preset).unwrap().run(|| ()).unwrap();
}
