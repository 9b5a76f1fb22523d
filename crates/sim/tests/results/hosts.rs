//! What simulated threads share or wait for outside of the machine is said.

use std::cell::{Cell, RefCell};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::Duration;

use coreline_sim::atomic::{AtomicU64, Ordering};
use coreline_sim::{Failure, FailureKind, thread};

use crate::common::machine;

std::thread_local! {
    static DEPTH: RefCell<u32> = const { RefCell::new(0) };
    static ALONE: Cell<u32> = const { Cell::new(0) };
    static UNUSED: Cell<u32> = const { Cell::new(0) };
}

/// The environment variable that has a test share a thread-local.
const SHARES: &str = "CORELINE_TEST_SHARES";

/// Four threads count in a thread-local of the host; the first alone does in another.
#[test]
fn threads_share_a_local() {
    if std::env::var_os(SHARES).is_none() {
        return;
    }
    UNUSED.set(1);
    let count = || {
        DEPTH.with(|depth| *depth.borrow_mut() += 1);
        thread::sleep(Duration::from_micros(1));
        DEPTH.with(|depth| *depth.borrow())
    };
    let counts = machine("host-2c", 1).run(move || {
        let threads: Vec<_> = (0..4).map(|_| thread::spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(counts.unwrap().value.iter().any(|&count| count > 1), "they share it");
    machine("host-2c", 1).run(|| ALONE.set(1)).unwrap();
}

#[test]
fn a_local_of_the_host_that_threads_share_is_named() {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "--nocapture", "hosts::threads_share_a_local"]).env(SHARES, "");
    let Output { stdout, stderr, .. } = again.output().unwrap();
    let [said, out] = [stderr, stdout].map(|text| String::from_utf8(text).unwrap());
    assert!(out.contains("1 passed"), "{out}");
    let warning = "coreline-sim: all simulated threads share results::hosts::DEPTH, a \
                   `std::thread_local!` that one of them changed";
    assert_eq!(said.matches(warning).count(), 1, "{said}");
    assert!(!said.contains("ALONE") && !said.contains("UNUSED"), "{said}");
}

/// What a run with so little patience fails with.
fn stuck(program: fn()) -> (bool, Failure) {
    let patience = Duration::from_millis(300);
    let run = machine("host-2c", 1).patience(patience).run(move || {
        let thread = thread::spawn(program);
        coreline_sim::hint::work(Duration::from_micros(50));
        thread.join().unwrap();
    });
    let failure = *run.unwrap_err();
    let FailureKind::Stuck { thread: 1, waits, ref site, .. } = failure.kind else {
        panic!("{failure}")
    };
    let site = site.as_ref().expect("a test has debugging information");
    assert!(site.file.ends_with("tests/results/hosts.rs"), "{failure}");
    (waits, failure)
}

#[test]
fn a_thread_that_waits_for_stds_lock_or_channel_is_named() {
    static LOCK: Mutex<()> = Mutex::new(());
    for program in [
        || {
            let _first = LOCK.lock();
            drop(LOCK.lock());
        },
        || {
            let (_sender, receiver) = std::sync::mpsc::channel::<()>();
            _ = receiver.recv();
        },
    ] {
        let (waits, failure) = stuck(program);
        assert!(waits, "{failure}");
        let text = failure.to_string();
        assert!(
            text.starts_with("thread 1 on cpu 1 waits for something outside of the "),
            "{text}"
        );
        assert!(text.contains("use the locks, channels and threads of coreline_sim"), "{text}");
        assert!(text.contains("\n  replay: coreline-sim/1 machine=host-2c seed=1 "), "{text}");
    }
}

#[test]
fn an_endless_computation_is_named() {
    let (waits, failure) = stuck(|| {
        let mut sum = 0_u64;
        while std::hint::black_box(sum) < u64::MAX {
            sum = std::hint::black_box(sum | 1);
        }
    });
    let text = failure.to_string();
    assert!(!waits && text.starts_with("thread 1 on cpu 1 computes without an access "), "{text}");
    // The host thread goes on, and can be interrupted again.
    machine("host-2c", 1).run(|| ()).unwrap();
}

#[test]
fn a_thread_that_is_slow_is_not_stuck() {
    let patience = Duration::from_millis(300);
    let run = machine("host-2c", 1).patience(patience).run(|| {
        let words = [const { AtomicU64::new(0) }; 2];
        for round in 0..6 {
            // Nearly as long as it may be, and then an access.
            std::thread::sleep(Duration::from_millis(120));
            words[round % 2].fetch_add(1, Ordering::Relaxed);
        }
    });
    run.unwrap();
    // Longer, with no limit.
    let run = machine("host-2c", 1).patience(Duration::MAX).run(|| {
        std::thread::sleep(Duration::from_millis(400));
    });
    run.unwrap();
}
