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
use coreline_sim::measure::{
    Faster, Parallel, Role, Scaling, Until, compare, parallel, roles, scaling,
};
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
        assert_eq!((done.threads(), done.runs().count()), (threads, threads));
        assert!(done.runs().all(|run| (run.rounds, run.operations) == (50, 50)), "{done:?}");
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
    assert_eq!((first.len(), first[0], first[4]), (13, 1.0, 1.0));
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

/// One thread takes 10 us a round; the others all add to one word.
fn one_is_slow(threads: usize, until: Until) -> Parallel {
    let (word, slow) = (Box::new(AtomicU64::new(0)), Box::new(Mutex::new(0)));
    parallel(threads, until, |thread| {
        if thread == 0 {
            *slow.lock().unwrap() += 1;
            work(Duration::from_micros(10));
        } else {
            word.fetch_add(1, Ordering::Relaxed);
        }
    })
}

#[test]
fn a_thread_that_does_something_else_does_not_make_the_others_scale() {
    let band = Band::quick(&Spec::preset("epyc-9654-2s").unwrap(), 1);
    let slow = |threads| one_is_slow(threads, Until::Rounds(50));
    let table = scaling(&band, "one is slow", &[1, 8, 24, 96], slow).unwrap();
    assert_eq!(table.scales_to(), 1, "{table}");
    let text = table.to_string();
    assert!(text.contains("the slowest of 8 threads takes "), "{text}");
    assert!(text.contains("measure them as roles"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

fn a_writer_and_readers(threads: usize) -> Parallel {
    let (word, table) = (Box::new(AtomicU64::new(0)), Box::new(Mutex::new(0)));
    let write = Role::new("writer", 1, |_| {
        *table.lock().unwrap() += 1;
        work(Duration::from_micros(10));
    });
    let add = Role::new("adders", threads - 1, |_| _ = word.fetch_add(1, Ordering::Relaxed));
    roles(Duration::from_micros(400), &[write, add])
}

#[test]
fn roles_are_judged_one_by_one() {
    let band = Band::quick(&Spec::preset("epyc-9654-2s").unwrap(), 1);
    let table = scaling(&band, "mix", &[1, 2, 9, 25], a_writer_and_readers).unwrap();
    let [writer, adders] = table.roles() else { panic!("{table:?}") };
    assert_eq!((writer.scales_to(), adders.scales_to(), table.scales_to()), (25, 2, 2), "{table}");
    assert_eq!((adders.threads(), writer.threads()), (&[2, 9, 25][..], &[1, 2, 9, 25][..]));
    let rate = writer.rate(25).unwrap().value();
    assert!((0.8e5..1.0e5).contains(&rate), "{rate}");
    assert!(table.is_steady(), "{table}");
    let text = table.to_string();
    assert!(text.starts_with("mix scales to 2 of 25 threads\n\nmix, writer scales "), "{text}");
    assert!(text.contains("    8/9  "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_role_is_judged_only_where_it_counts() {
    let band = Band::quick(&Spec::preset("epyc-9654-2s").unwrap(), 1);
    let program = |threads: usize| {
        let work = |_| work(Duration::from_nanos(500));
        let nothing = |thread| {
            work(thread);
            0
        };
        let few = usize::from(threads < 8);
        let of = [
            Role::new("rest", threads - 1 - few, work),
            Role::new("empty", 0, work),
            Role::counting("in vain", 1, nothing),
            Role::new("in the first rows", few, work),
        ];
        roles(Duration::from_micros(50), &of)
    };
    let table = scaling(&band, "mix", &[3, 4, 8, 16], program).unwrap();
    let to: Vec<_> = table.roles().iter().map(Scaling::scales_to).collect();
    assert_eq!((table.scales_to(), &to[..]), (16, &[16, 0, 0, 4][..]), "{table}");
    let text = table.to_string();
    assert!(text.contains("\nmix, empty: nothing was measured\n"), "{text}");
    assert!(text.contains("\nmix, in vain: no operation was counted\n"), "{text}");
    let vain = |threads| {
        let vain = |_| {
            work(Duration::from_nanos(500));
            0
        };
        roles(10, &[Role::counting("in vain", threads, vain), Role::new("empty", 0, |_| ())])
    };
    let table = scaling(&band, "all in vain", &[1, 2], vain).unwrap();
    assert_eq!(table.scales_to(), 0, "{table}");
}

#[test]
fn what_counts_is_what_the_operation_says() {
    let done = run("host-2c", || {
        let every_other = AtomicU64::new(0);
        let tries = Role::counting("tries", 1, |_| {
            work(Duration::from_nanos(500));
            every_other.fetch_add(1, Ordering::Relaxed) % 2
        });
        let beside = Role::counting("beside", 1, |_| {
            work(Duration::from_nanos(500));
            0
        });
        roles(Duration::from_micros(100), &[tries, beside])
    });
    let [tries, beside] = &done.roles[..] else { panic!("{done:?}") };
    assert!((180..=210).contains(&tries.threads[0].rounds), "{tries:?}");
    assert!((90..=105).contains(&tries.threads[0].operations), "{tries:?}");
    assert_eq!((beside.threads[0].operations, beside.per_second()), (0, 0.0));
    assert!((done.per_second() / 1e6 - 1.0).abs() < 0.1, "{}", done.per_second());
}

#[test]
fn a_window_ends_by_time_and_takes_time() {
    let done = run("epyc-9654-2s", || one_is_slow(8, Until::Window(Duration::from_micros(105))));
    let runs: Vec<_> = done.runs().collect();
    // The last round of the slow one has begun within the window, and counts with its time.
    assert_eq!((runs[0].rounds, runs[0].time_ns / 10_000), (11, 11), "{done:?}");
    assert!(runs[1..].iter().all(|run| (105_000..106_000).contains(&run.time_ns)), "{done:?}");
    let program = || parallel(1, Duration::from_micros(1), |_| ());
    let failure = machine("host-2c", 1).run(program).unwrap_err();
    assert!(failure.to_string().contains("took no simulated time"), "{failure}");
    assert!(failure.to_string().contains("hint::work"), "{failure}");
}

#[test]
fn threads_that_share_a_cpu_share_a_window() {
    let window = Duration::from_micros(100);
    let program = move |threads| parallel(threads, window, |_| work(Duration::from_micros(1)));
    let band = Band::quick(&Spec::preset("host-2c").unwrap(), 1);
    let table = scaling(&band, "work", &[1, 2, 4, 16], program).unwrap();
    for threads in [4, 16] {
        let (low, high) = table.rate(threads).unwrap().ratios(table.rate(2).unwrap());
        assert!(low > 0.8 && high < 1.2, "{threads} threads: {low} to {high}\n{table}");
    }
    assert_eq!(table.scales_to(), 2, "{table}");
    let steady = |row: usize| table.rows().nth(row).unwrap().drift.value <= 1.2;
    assert!(steady(1) && !steady(3), "of 16 threads, 14 begin after the window: {table:?}");
    // Of many slices, each thread gets its part.
    let long = run("host-2c", || {
        parallel(4, Duration::from_millis(40), |_| work(Duration::from_micros(20)))
    });
    assert!((1.8e9..2.1e9).contains(&(long.per_second() * 20_000.0)), "{long:?}");
    assert!(long.share() > 0.5 && long.drift() <= 1.2, "{long:?}");
}

/// Each hundredth round takes a hundred times as long: so few rounds show another rate.
fn with_a_rare_round(until: Until) -> Parallel {
    let rounds = [const { AtomicU64::new(0) }; 2];
    parallel(2, until, |thread| {
        let round = rounds[thread].fetch_add(1, Ordering::Relaxed);
        work(Duration::from_nanos(if round % 100 == 99 { 10_000 } else { 100 }));
    })
}

#[test]
fn threads_go_on_until_their_rate_is_steady() {
    let rate = |until| run("host-2c", move || with_a_rare_round(until));
    let (few, many) = (rate(Until::Rounds(60)), rate(Until::Rounds(20_000)));
    assert!(few.per_second() > 1.6 * many.per_second(), "{few:?}");
    let steady = rate(Until::Steady);
    assert!((0.85..1.15).contains(&(steady.per_second() / many.per_second())), "{steady:?}");
    assert!(steady.roles[0].is_steady() && steady.drift() <= 1.2, "{steady:?}");
    let again = rate(Until::Steady);
    assert_eq!((again.per_second(), again.drift()), (steady.per_second(), steady.drift()));
}

#[test]
fn a_role_without_rounds_and_a_thread_that_has_not_begun_are_not_steady() {
    let done = run("host-2c", || {
        let slow = Role::new("slow", 1, |_| work(Duration::from_millis(100)));
        roles(Until::Steady, &[Role::new("fast", 1, |_| work(Duration::from_nanos(100))), slow])
    });
    let [fast, slow] = &done.roles[..] else { panic!("{done:?}") };
    assert!(fast.is_steady() && !slow.is_steady() && slow.drift.is_nan(), "{done:?}");
    assert!(done.drift().is_nan(), "{done:?}");
    // Two on each CPU: at first, one of them keeps it for a slice.
    let done = run("host-2c", || parallel(4, Until::Steady, |_| work(Duration::from_nanos(500))));
    assert!(done.drift().is_nan() || done.runs().all(|run| run.rounds > 0), "{done:?}");
    assert!((1.6e9..2.4e9).contains(&(done.per_second() * 500.0)), "{done:?}");
}

#[test]
fn threads_that_begin_in_the_last_windows_share_their_cpu() {
    let done = run("host-2c", || parallel(64, Until::Steady, |_| work(Duration::from_nanos(10))));
    let busy = done.per_second() * 10.0 / 1e9;
    assert!(done.drift().is_nan() && busy < 2.1, "{busy} of 2 CPUs");
}

#[test]
fn a_rate_that_is_not_steady_is_said_to_be_so() {
    let slower = |until: Until| {
        move |threads| {
            let rounds: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
            parallel(threads, until, |thread| {
                let round = rounds[thread].fetch_add(1, Ordering::Relaxed);
                work(Duration::from_nanos(100 + 10 * round));
            })
        }
    };
    let band = Band::quick(&Spec::preset("host-2c").unwrap(), 1);
    for until in [Until::Rounds(100), Until::Window(Duration::from_micros(50)), Until::Steady] {
        let table = scaling(&band, "slower and slower", &[1, 2], slower(until)).unwrap();
        assert!(!table.is_steady(), "{table}");
        let text = table.to_string();
        assert!(text.contains("not steady in 2 of 2 rows: a rate changed up to "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
    let table = scaling(&band, "one round", &[1, 2], |threads| parallel(threads, 1, |_| ()));
    let text = table.unwrap().to_string();
    assert!(text.contains("not known to be steady in 2 of 2 rows: too few rounds"), "{text}");
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
    let line = line.replace("host-2c", "epyc-9654-2s");
    let said = one_curve_with(&[("CORELINE_REPLAY", &format!("{line} threads=2"))]);
    let reason = "CORELINE_REPLAY: not repeated on host-2c, because the line is of another machine";
    assert!(said.contains(reason) && !said.contains("hottest lines"), "{said}");
}
