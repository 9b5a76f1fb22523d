//! What a failure says of panics that follow from each other, and of one that ends the process.

use std::panic::{catch_unwind, resume_unwind};
use std::process::Command;

use coreline_sim::sync::{Arc, Mutex};
use coreline_sim::{Failure, FailureKind, thread};

use crate::common::machine;

fn failure_of(program: impl FnOnce() + 'static) -> Box<Failure> {
    machine("host-2c", 1).run(program).unwrap_err()
}

/// The failure is about this panic of this thread, which has its place; then came another one.
fn is_about(failure: &Failure, expected: usize, text: &str, then: Option<(usize, &str)>) {
    let FailureKind::Panic { thread, message, location, .. } = &failure.kind else {
        panic!("{failure}")
    };
    assert!(*thread == expected && message.contains(text), "{failure}");
    assert!(location.as_ref().unwrap().contains("panics.rs"), "{failure}");
    let printed = failure.to_string();
    let line = printed.lines().find(|line| line.starts_with("  then"));
    match then {
        Some((thread, text)) => {
            let last = failure.panics.last().unwrap();
            assert!(last.thread == thread && last.message.contains(text), "{failure}");
            assert!(line.unwrap().contains(text), "{failure}");
        }
        None => assert_eq!(line, None),
    }
}

fn broken() {
    let (a, b) = (1, 2);
    assert_eq!(a, b, "the invariant that matters");
}

#[test]
fn the_first_panic_comes_through_joins() {
    let unwrapped = failure_of(|| thread::spawn(broken).join().unwrap());
    is_about(&unwrapped, 1, "the invariant that matters", Some((0, "Any { .. }")));
    let expected = failure_of(|| thread::spawn(broken).join().expect("a worker"));
    is_about(&expected, 1, "the invariant that matters", Some((0, "a worker")));
    // Over two threads.
    let nested = || thread::spawn(|| thread::spawn(broken).join().unwrap()).join().unwrap();
    let failure = failure_of(nested);
    is_about(&failure, 2, "the invariant that matters", Some((0, "Any { .. }")));
    assert_eq!(failure.panics.len(), 3, "{failure}");
    // Raised again, it is the same panic.
    let raised = failure_of(|| {
        thread::spawn(broken).join().unwrap_or_else(|panic| resume_unwind(panic));
    });
    is_about(&raised, 1, "the invariant that matters", None);
}

#[test]
fn the_first_panic_comes_through_a_scope() {
    let failure = failure_of(|| thread::scope(|scope| _ = scope.spawn(broken)));
    is_about(&failure, 1, "the invariant that matters", Some((0, "a scoped thread panicked")));
}

#[test]
fn the_first_panic_comes_through_a_poisoned_lock() {
    let failure = failure_of(|| {
        let lock = Arc::new(Mutex::new(0));
        let theirs = Arc::clone(&lock);
        let held = thread::spawn(move || {
            let _guard = theirs.lock().unwrap();
            broken();
        });
        assert!(held.join().is_err());
        *lock.lock().unwrap() += 1;
    });
    is_about(&failure, 1, "the invariant that matters", Some((0, "PoisonError")));
}

#[test]
fn a_panic_that_was_caught_is_no_cause_of_another() {
    let failure = failure_of(|| {
        assert!(thread::spawn(broken).join().is_err());
        catch_unwind(|| panic!("caught, too")).unwrap_err();
        assert!(thread::panicking(), "the one that counts");
    });
    is_about(&failure, 0, "the one that counts", None);
    let printed = failure.to_string();
    assert_eq!(printed.matches("before that").count(), 2, "{printed}");
    assert!(printed.contains("the invariant that matters"), "{printed}");
}

#[test]
fn a_deadlock_after_a_panic_names_the_panic() {
    let failure = failure_of(|| {
        let child = thread::spawn(broken);
        thread::park();
        drop(child);
    });
    assert_eq!(failure.kind, FailureKind::Deadlock);
    let printed = failure.to_string();
    assert!(printed.contains("before that, thread 1 panicked"), "{printed}");
}

#[test]
fn a_panic_while_unwinding_says_both_and_the_replay_line_before_the_process_ends() {
    struct Defect;

    impl Drop for Defect {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }

    const CHILD: &str = "CORELINE_TEST_PANICS_TWICE";
    if std::env::var_os(CHILD).is_some() {
        let _ = machine("host-2c", 77).program("two panics").run(|| {
            let twice = || {
                let _defect = Defect;
                panic!("the first");
            };
            assert!(thread::spawn(twice).join().is_err());
        });
        return;
    }
    let test =
        "panics::a_panic_while_unwinding_says_both_and_the_replay_line_before_the_process_ends";
    let child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8(child.stderr).unwrap();
    assert!(!child.status.success(), "{said}");
    let at = |text: &str| said.find(text).unwrap_or_else(|| panic!("no {text:?} in:\n{said}"));
    let places = [
        at("thread 1 panicked on cpu 1: the first (at "),
        at("then thread 1 panicked on cpu 1: in a destructor (at "),
        at("replay: coreline-sim/1 machine=host-2c seed=77 "),
    ];
    assert!(places.is_sorted(), "{said}");
}
