//! `#[coreline_sim::test]`: what it runs, and what it says of a failure.

use std::panic;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64 as HostU64, Ordering};

use coreline_sim::cell::UnsafeCell;
use coreline_sim::testing::{self, Test};
use coreline_sim::{sync, thread};
use coreline_world::{JoinHandle, Word};

use crate::common::{U32, on};

#[coreline_sim::test(machine = "epyc-9654-2s", seeds = 2)]
fn a_test_runs_on_its_machine() {
    assert_eq!(thread::available_parallelism().unwrap().get(), 384);
}

#[coreline_sim::test(
    machine = "../sim/machines/host-2c.toml",
    band = "quick",
    faults = "preempt:16"
)]
fn a_test_may_return_a_result() -> Result<(), std::io::Error> {
    thread::Builder::new().spawn(|| ())?.join().unwrap();
    Ok(())
}

#[coreline_sim::test(machine = "host-2c")]
#[should_panic(expected = "the test returned an error: ParseIntError")]
fn an_error_fails_a_test() -> Result<(), std::num::ParseIntError> {
    "seven".parse::<u8>().map(drop)
}

/// How often a program ran with these settings.
fn runs(test: Test) -> u64 {
    static RUNS: HostU64 = HostU64::new(0);
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock();
    RUNS.store(0, Ordering::Relaxed);
    testing::run(&test, || _ = RUNS.fetch_add(1, Ordering::Relaxed));
    RUNS.load(Ordering::Relaxed)
}

fn settings() -> Test {
    Test { machine: "host-2c", ..Test::new("package", ".", "crate::some::test") }
}

#[test]
fn each_seed_and_each_point_of_its_band_is_a_run() {
    assert_eq!(runs(Test { determinism: false, ..settings() }), 1);
    assert_eq!(runs(settings()), 2, "the first is repeated");
    assert_eq!(runs(Test { seeds: 5, seed: u64::MAX - 9, ..settings() }), 6);
    assert_eq!(runs(Test { seeds: 5, band: "quick", ..settings() }), 16);
    assert!(runs(Test { band: "whole", ..settings() }) > 48);
}

fn complaint(test: Test) -> String {
    let panic = panic::catch_unwind(|| testing::run(&test, || ())).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn a_setting_that_means_nothing_is_said() {
    let said = complaint(Test { machine: "hots-2c", ..settings() });
    assert!(said.starts_with("some::test: ") && said.contains("hots-2c"), "{said}");
    let said = complaint(Test { machine: "not/there.toml", ..settings() });
    assert!(said.contains("not/there.toml"), "{said}");
    let said = complaint(Test { schedule: "pct", ..settings() });
    assert!(said.contains("schedule: ") && said.contains("pct"), "{said}");
    let said = complaint(Test { faults: "preempt:often", ..settings() });
    assert!(said.contains("faults: ") && said.contains("preempt:often"), "{said}");
}

/// The environment variable that has a test fail.
const LOSES: &str = "CORELINE_TEST_LOSES";

/// Two threads add without an atomic addition, and at times one of them loses.
#[coreline_sim::test(machine = "host-2c", seeds = 100, schedule = "random")]
fn loses_an_addition() {
    if std::env::var_os(LOSES).is_none() {
        return;
    }
    let sum = sync::Arc::new(U32::new_in(0));
    let threads = [0, 1].map(|cpu| {
        let sum = sync::Arc::clone(&sum);
        let add = move || sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        on(cpu, add)
    });
    threads.into_iter().for_each(JoinHandle::join);
    assert_eq!(sum.load(Ordering::Relaxed), 2);
}

/// Runs that test in another process; what it printed.
fn lost(replay: Option<&str>) -> String {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again
        .args(["--exact", "attribute::loses_an_addition"])
        .env(LOSES, "")
        .env_remove("CORELINE_REPLAY");
    again.envs(replay.map(|line| ("CORELINE_REPLAY", line)));
    let Output { status, stdout, .. } = again.output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    assert!(!status.success() && text.contains("0 passed; 1 failed"), "{text}");
    text
}

#[test]
fn a_failure_says_how_to_have_it_again() {
    let text = lost(None);
    let command = text.lines().map(str::trim).find(|line| line.starts_with("CORELINE_REPLAY='"));
    let command = command.unwrap_or_else(|| panic!("no command in\n{text}"));
    let (line, rest) = command["CORELINE_REPLAY='".len()..].split_once('\'').unwrap();
    assert_eq!(rest, " cargo test -p coreline-sim attribute::loses_an_addition -- --exact");
    let end = " faults=search schedule=random memory=on program=attribute::loses_an_addition";
    assert!(line.ends_with(end), "{line}");
    assert!(lost(Some(line)).contains(line), "the same run fails again");
    let other = line.replace("machine=host-2c", "machine=epyc-9654-2s");
    assert!(
        lost(Some(&other))
            .contains("is for the machine epyc-9654-2s, but the test's machine is host-2c")
    );
    let broken = lost(Some("coreline-sim/1 machine"));
    assert!(broken.contains("attribute::loses_an_addition: CORELINE_REPLAY: "), "{broken}");
}

#[test]
fn a_line_of_another_test_changes_nothing() {
    let line = "coreline-sim/1 machine=host-2c seed=7 request=30 faults=none program=other";
    assert!(lost(Some(line)).contains("program=attribute::loses_an_addition"));
}

#[coreline_sim::test(machine = "host-2c", races = true)]
#[should_panic(expected = "data race on 8 bytes")]
fn a_race_fails_a_test_that_looks_for_races() {
    let cell = sync::Arc::new(UnsafeCell::new(0_u64));
    let theirs = sync::Arc::clone(&cell);
    // SAFETY: a machine's threads take turns; that nothing orders these is what is tested.
    let other = thread::spawn(move || theirs.with_mut(|at| unsafe { *at += 1 }));
    // SAFETY: as in the other thread: they take turns.
    cell.with_mut(|at| unsafe { *at += 1 });
    other.join().unwrap();
}

/// The order of the map's keys decides which word is written. std chooses the order at random for
/// each map.
fn walks_a_map_with_entropy() {
    let map: std::collections::HashMap<usize, ()> = (0..64).map(|key| (key, ())).collect();
    let words: Vec<U32> = (0..64).map(|_| U32::new_in(0)).collect();
    map.keys().for_each(|&key| words[key].store(1, Ordering::Relaxed));
}

#[test]
fn a_test_that_differs_from_run_to_run_fails_and_says_where() {
    let run =
        |test: Test| panic::catch_unwind(move || testing::run(&test, walks_a_map_with_entropy));
    let panic = run(settings()).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    for part in [
        "some::test: the test is not deterministic, so no replay line repeats a run of it",
        "two runs of one program differ after ",
        "  the first: thread 0 on cpu 0 at ",
        "crates/sim/tests/results/attribute.rs:",
        "- a static that the first run initialised or changed, such as a `LazyLock`",
        "- files, ports,",
        "`determinism = false` in the attribute",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    run(Test { determinism: false, ..settings() }).unwrap();
}

#[test]
fn a_static_that_the_first_run_changed_is_told() {
    static FIRST: HostU64 = HostU64::new(1);
    let program = || {
        let word = U32::new_in(0);
        (0..FIRST.swap(0, Ordering::Relaxed)).for_each(|_| word.store(1, Ordering::Relaxed));
    };
    let panic = panic::catch_unwind(move || testing::run(&settings(), program)).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("a static that an earlier run changed"), "{text}");
    assert!(text.contains("  the second: no access is known"), "{text}");
}
