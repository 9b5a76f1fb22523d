//! Threads that begin together, and tables over numbers of threads.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use coreline_sim::atomic::{AtomicU64, Ordering};
use coreline_sim::claim::Band;
use coreline_sim::hint::work;
use coreline_sim::measure::{Faster, Parallel, Scaling, compare, parallel, scaling};
use coreline_sim::sync::{Barrier, Mutex};
use coreline_sim::{FailureKind, Machine, Spec};

use crate::common::machine;

fn run(name: &str, program: impl FnOnce() -> Parallel + 'static) -> Parallel {
    machine(name, 3).run(program).unwrap().value
}

#[test]
fn threads_begin_together_and_nothing_else_is_timed() {
    for threads in [1, 2, 192, 384] {
        let done =
            run("epyc-9654-2s", move || parallel(threads, 50, |_| work(Duration::from_nanos(100))));
        assert_eq!((done.threads(), done.rounds, done.each_ns.len()), (threads, 50, threads));
        assert!(done.apart_ns <= 60, "{threads} threads begin {} ns apart", done.apart_ns);
        // 5,000 ns, and how exact `work` is.
        assert!((4_500..6_000).contains(&done.span_ns), "{threads} threads: {} ns", done.span_ns);
        assert!(done.share() > 0.8, "{}", done.share());
        let ideal = threads as f64 / 100e-9;
        assert!((0.8..1.2).contains(&(done.per_second() / ideal)), "{}", done.per_second());
    }
}

#[test]
fn an_operation_runs_once_more_than_is_timed() {
    let run = machine("host-2c", 1).run(|| {
        let calls: Arc<[AtomicU64; 2]> = Arc::default();
        let theirs = Arc::clone(&calls);
        parallel(2, 7, move |n| _ = theirs[n].fetch_add(1, Ordering::Relaxed));
        [&calls[0], &calls[1]].map(|calls| calls.load(Ordering::Relaxed))
    });
    assert_eq!(run.unwrap().value, [8, 8]);
}

#[test]
fn the_accesses_are_those_of_the_span() {
    let run = machine("epyc-9654-2s", 1).run(|| {
        let before: Vec<AtomicU64> = (0..1000).map(AtomicU64::new).collect();
        let add = |word: &AtomicU64| _ = word.fetch_add(1, Ordering::Relaxed);
        before.iter().for_each(add);
        let done = parallel(8, 100, |n| add(&before[n / 4]));
        before.iter().for_each(add);
        done
    });
    let run = run.unwrap();
    let Parallel { transfers, .. } = run.value;
    // 800 additions, and what threads do as they end; none of the 2,000 before and after.
    assert!((800..1000).contains(&transfers.total()), "{transfers:?}");
    assert!(run.report.transfers.total() > transfers.total() + 2000);
    assert!(transfers.same_cache > 100 && transfers.other_socket == 0, "{transfers:?}");
}

#[test]
fn more_threads_than_cpus_may_wait_for_each_other() {
    let done = run("host-2c", || {
        let barrier = Barrier::new(16);
        parallel(16, 3, |_| _ = barrier.wait())
    });
    assert_eq!(done.threads(), 16);
    let done = run("host-2c", || parallel(16, 10, |_| work(Duration::from_micros(10))));
    // Eight threads on each CPU, one after the other.
    assert!((700_000..1_200_000).contains(&done.span_ns), "{}", done.span_ns);
}

#[test]
fn a_panic_of_an_operation_ends_the_run() {
    let failure =
        machine("host-2c", 1).run(|| parallel(2, 3, |n| assert_eq!(n, 0, "mine"))).unwrap_err();
    let FailureKind::Panic { message, .. } = &failure.kind else { panic!("{failure}") };
    assert!(message.contains("mine"), "{failure}");
    let failure = machine("host-2c", 1).run(|| parallel(0, 3, |_| ())).unwrap_err();
    assert!(failure.to_string().contains("nothing to measure"), "{failure}");
}

const THREADS: [usize; 4] = [1, 4, 16, 48];

fn measured(name: &'static str, program: fn(usize) -> Parallel) -> Scaling {
    let band = Band::quick(&Spec::preset("epyc-9654-2s").unwrap(), 1);
    scaling(&band, name, &THREADS, program).unwrap()
}

fn locked(threads: usize) -> Parallel {
    let count = Mutex::new(0);
    parallel(threads, 30, |_| *count.lock().unwrap() += 1)
}

fn apart(threads: usize) -> Parallel {
    parallel(threads, 30, |_| work(Duration::from_nanos(500)))
}

#[test]
fn what_scales_is_told_from_what_does_not() {
    let (locked, apart) = (measured("one lock", locked), measured("apart", apart));
    assert_eq!((apart.scales_to(), apart.declines_at()), (48, None), "{apart}");
    assert_eq!(locked.scales_to(), 1, "{locked}");
    assert_eq!(locked.declines_at(), Some(4), "{locked}");
    assert_eq!(locked.threads(), THREADS);
    let text = apart.to_string();
    assert!(text.starts_with("apart scales to all 48 threads\n"), "{text}");
    let text = locked.to_string();
    let conclusion =
        "one lock scales to 1 of 48 threads, and is slower from 4 on than with fewer\n";
    assert!(text.starts_with(conclusion), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(text.lines().filter(|line| line.ends_with('#')).count(), 4);

    let csv = locked.csv();
    assert!(
        csv.starts_with("threads,per_second,per_second_low,per_second_high,efficiency,"),
        "{csv}"
    );
    let first = csv.lines().nth(1).unwrap().split(',').map(|it| it.parse::<f64>().unwrap());
    let first: Vec<f64> = first.collect();
    assert_eq!((first.len(), first[0], first[4]), (10, 1.0, 1.0));
    assert_eq!(csv.lines().count(), 5);

    let compared = compare(&apart, &locked);
    let faster: Vec<_> = compared.sides().map(|side| (side.threads, side.faster)).collect();
    assert_eq!((faster[0], faster[3]), ((1, Faster::Second), (48, Faster::First)), "{compared}");
    let text = compared.to_string();
    assert!(text.starts_with("one lock is faster with 1"), "{text}");
    assert!(text.contains("apart is faster with "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let same = compare(&apart, &apart);
    assert!(same.sides().all(|side| side.faster == Faster::Undecided), "{same}");
    assert!(same.to_string().starts_with("undecided with 1 to 48 threads\n"), "{same}");
}

#[test]
fn a_rate_is_for_claims_and_its_replay_line_brings_it_back() {
    let locked = measured("one lock", locked);
    let (one, many) = (locked.rate(1).unwrap(), locked.rate(48).unwrap());
    one.at_least(1.1, many).unwrap();
    assert_eq!(locked.rate(2), None);
    let broken = many.at_least(2.0, one).unwrap_err();
    assert_eq!(broken.replays[0].program, "one lock threads=48");
    let again = Machine::replay(&broken.replays[0]).unwrap().run(|| self::locked(48)).unwrap();
    assert!(many.values().any(|rate| rate == again.value.per_second()));
}

#[test]
fn a_failing_program_names_its_run() {
    let band = Band::quick(&Spec::preset("host-2c").unwrap(), 1);
    let program = |threads| parallel(threads, 2, move |_| assert!(threads < 2, "too many"));
    let failure = scaling(&band, "fails", &[1, 2], program).unwrap_err();
    assert_eq!(failure.replay.program, "fails threads=2", "{failure}");
    assert!(failure.to_string().contains("too many"), "{failure}");
    let none = scaling(&band, "none", &[], program).unwrap();
    assert_eq!((none.scales_to(), none.rows().len()), (0, 0));
    assert!(none.to_string().starts_with("none: nothing was measured\n"), "{none}");
}

/// A curve, whose record the test below reads: it runs this one by its name.
#[test]
fn one_curve() {
    let band = Band::quick(&Spec::preset("host-2c").unwrap(), 1);
    let count = |threads| {
        let count = AtomicU64::new(0);
        parallel(threads, 5, |_| _ = count.fetch_add(1, Ordering::Relaxed))
    };
    scaling(&band, "one word", &[1, 2], count).unwrap();
}

/// What `one_curve` said on standard error, with these variables of the environment.
fn one_curve_with(variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "measure::one_curve", "--nocapture"]);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn a_curve_is_written_to_the_folder_that_a_program_names() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("curves");
    _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    one_curve_with(&[("CORELINE_SCALE", folder.to_str().unwrap())]);
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let text = fs::read_to_string(file).unwrap();
    for part in [
        "schema = \"scale-record/1\"",
        "name = \"one word\"",
        "machine = \"host-2c\"",
        "threads = 2",
        "program=one word threads=2",
        "file = \"crates/sim/tests/results/measure.rs\"",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn a_replay_line_of_a_curve_prints_the_report_of_the_run() {
    let line = "coreline-sim/1 machine=host-2c seed=1 request=30 faults=none program=one word";
    let said = one_curve_with(&[("CORELINE_REPLAY", &format!("{line} threads=2"))]);
    assert!(said.contains("hottest lines") && said.contains("results/measure.rs"), "{said}");
    let said = one_curve_with(&[("CORELINE_REPLAY", &format!("{line} threads=3"))]);
    assert!(!said.contains("hottest lines"), "{said}");
}
