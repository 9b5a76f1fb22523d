//! What simulated threads share or wait for outside of the machine is said.

use std::cell::{Cell, RefCell};
use std::process::{Command, Output};
use std::time::Duration;

use coreline_sim::thread;

use crate::common::machine;

std::thread_local! {
    static DEPTH: RefCell<u32> = const { RefCell::new(0) };
    static ALONE: Cell<u32> = const { Cell::new(0) };
    static UNUSED: Cell<u32> = const { Cell::new(0) };
}

/// Four threads count in a thread-local of the host; the first alone does in another.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn threads_share_a_local() {
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

/// Runs an ignored test of this file in another process: what it wrote to stderr and stdout.
fn output_of(test: &str) -> [String; 2] {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "--ignored", "--nocapture", &format!("hosts::{test}")]);
    let Output { stdout, stderr, .. } = again.output().unwrap();
    [stderr, stdout].map(|text| String::from_utf8(text).unwrap())
}

#[test]
fn a_local_of_the_host_that_threads_share_is_named() {
    let [said, out] = output_of("threads_share_a_local");
    assert!(out.contains("1 passed"), "{out}");
    let warning = "coreline-sim: all simulated threads share results::hosts::DEPTH, a \
                   `std::thread_local!` that one of them changed";
    assert_eq!(said.matches(warning).count(), 1, "{said}");
    assert!(!said.contains("ALONE") && !said.contains("UNUSED"), "{said}");
}

