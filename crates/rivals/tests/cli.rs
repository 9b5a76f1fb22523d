//! The program as its users see it: output, exit codes. Quick runs of every class.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::{Map, Value};

fn rivals(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coreline-rivals"));
    // The latter puts colours into pipes, too.
    command.args(arguments).env_remove("CORELINE_RSEQ").env_remove("CLICOLOR_FORCE");
    command
}

fn json(output: &Output) -> Value {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn rows(result: &Value) -> Vec<&Map<String, Value>> {
    result["rows"].as_array().unwrap().iter().map(|row| row.as_object().unwrap()).collect()
}

/// What the schema says of every row.
fn check_rows(result: &Value, class: &str) {
    assert_eq!(result["schema"], "coreline.rivals/1");
    assert_eq!(result.as_object().unwrap().len(), 2);
    for row in rows(result) {
        let keys: Vec<_> = row.keys().map(String::as_str).collect();
        let expected = [
            "class",
            "name",
            "ours",
            "role",
            "threads",
            "params",
            "ns_median",
            "ns_min",
            "samples",
            "discarded",
            "share_min_max",
            "lost",
            "beside",
            "cpu_ns_median",
        ];
        assert_eq!(keys, expected);
        assert_eq!(row["class"], class);
        assert_eq!(row["ours"], row["role"] == "ours");
        let samples = row["samples"].as_u64().unwrap();
        // On a busy machine every sample may have been disturbed.
        assert_eq!(row["ns_median"].is_null(), samples == 0, "{row:?}");
        if samples > 0 {
            let ns = |key: &str| row[key].as_f64().unwrap();
            assert!(0.0 < ns("ns_min") && ns("ns_min") <= ns("ns_median"), "{row:?}");
        }
        assert!(row["discarded"].is_u64());
    }
}

/// The thread counts that a candidate was measured with.
fn threads(result: &Value, name: &str) -> Vec<u64> {
    let rows = rows(result).into_iter().filter(|row| row["name"] == name);
    rows.map(|row| row["threads"].as_u64().unwrap()).collect()
}

#[test]
fn counters_have_both_forms_at_every_thread_count() {
    let output = rivals(&["counters", "--quick", "--json"]).output().unwrap();
    let result = json(&output);
    check_rows(&result, "counters");
    for candidate in [
        "coreline PerCpuCounter cpu-id",
        "shared AtomicU64 fetch_add",
        "crossbeam CachePadded shards fetch_add",
        "crossbeam CachePadded shards load+store",
        "thread_local! const Cell",
        "contatori Monotone",
        "plain add",
    ] {
        for form in ["hot", "8 in turn"] {
            assert_eq!(threads(&result, &format!("{candidate}, {form}")), [1, 2, 8]);
        }
    }
    assert!(String::from_utf8_lossy(&output.stderr).contains("quick: "));
}

/// The sections by hand count nothing where the C library registers no thread for rseq.
#[test]
fn counters_do_without_the_sections_by_hand_that_count_nothing() {
    let output = rivals(&["counters", "--quick", "--json", "--threads", "1"])
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        .output()
        .unwrap();
    let result = json(&output);
    assert_eq!(threads(&result, "plain add, hot"), [1]);
    assert!(threads(&result, "bare rseq section cpu-id, hot").is_empty());
}

#[test]
fn indexes_are_read_at_1_and_2_threads() {
    let result = json(&rivals(&["cid", "--quick", "--json"]).output().unwrap());
    check_rows(&result, "cid");
    for name in ["coreline Place::cpu", "sched_getcpu", "thread_local! const Cell", "empty loop"] {
        assert_eq!(threads(&result, name), [1, 2], "{name}");
    }
}

#[test]
fn masks_and_values_have_all_their_rivals() {
    for (class, names) in [
        ("masks", &["coreline CpuMask::set", "fetch_or", "load+test+fetch_or"][..]),
        (
            "collections",
            &[
                "coreline PerCpuBag, spares",
                "crossbeam ArrayQueue, spares",
                "std Mutex<Vec>, spares",
                "coreline LossyBuffer, read log",
                "crossbeam ArrayQueue force_push, read log",
            ],
        ),
        (
            "reclamation",
            &["coreline Rcu", "crossbeam-epoch", "seize", "haphazard", "seize, replace"],
        ),
        (
            "read-mostly",
            &[
                "coreline Versioned get",
                "coreline Versioned enter+get",
                "coreline Versioned, thread-local reader",
                "arc-swap load",
                "arc-swap Cache",
                "std RwLock<Arc<T>>",
                "parking_lot RwLock<Arc<T>>",
                "crossbeam ShardedLock<Arc<T>>",
                "thread-local version check",
            ],
        ),
    ] {
        let result = json(&rivals(&[class, "--quick", "--json"]).output().unwrap());
        check_rows(&result, class);
        for name in names {
            let most: &[u64] = if class == "read-mostly" { &[1, 2, 8] } else { &[1, 2] };
            assert_eq!(threads(&result, name), most, "{name}");
        }
    }
}

#[test]
fn locks_have_all_their_rivals_and_the_shares_of_their_threads() {
    let result = json(&rivals(&["locks", "--quick", "--json"]).output().unwrap());
    check_rows(&result, "locks");
    for name in [
        "coreline TicketLock",
        "std Mutex",
        "parking_lot Mutex",
        "usync Mutex",
        "spin Mutex",
        "mcslock raw spins",
        "mcslock raw yields",
        "pthread mutex",
        "pthread mutex adaptive",
    ] {
        let mut found = threads(&result, name);
        found.sort_unstable();
        assert_eq!(found, [1, 2, 2, 2, 2, 8, 8, 8, 8, 32, 32, 32, 32], "{name}");
    }
    for row in rows(&result) {
        let params = &row["params"];
        assert!(params["cs_ns"].is_u64() && params["out_ns"].is_u64(), "{params}");
        let share = row["share_min_max"].as_f64();
        let is_window = row["threads"] != 1 && row["samples"] != 0;
        assert_eq!(share.is_some(), is_window, "{row:?}");
        assert!(share.is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}

#[test]
fn read_write_locks_have_all_their_rivals() {
    let some = ["rwlocks", "--quick", "--json", "--form", "99.99 %", "--threads", "1,8"];
    let result = json(&rivals(&some).output().unwrap());
    check_rows(&result, "rwlocks");
    for name in ["std RwLock", "parking_lot RwLock", "crossbeam ShardedLock", "pthread rwlock"] {
        assert_eq!(threads(&result, name), [1, 1, 8, 8], "{name}");
    }
    assert!(rows(&result).iter().all(|row| row["params"]["read_pct"] == 99.99));
}

#[test]
fn calls_have_all_their_rivals_and_say_the_gap() {
    let output = rivals(&["calls", "--quick", "--json"]).output().unwrap();
    let result = json(&output);
    check_rows(&result, "calls");
    let notes = String::from_utf8_lossy(&output.stderr);
    let alone = notes.contains("may use one CPU alone");
    let gaps = |name: &str| {
        let rows = rows(&result).into_iter().filter(|row| row["name"] == name);
        // The form `callers` has no gap.
        rows.filter_map(|row| row["params"]["gap_us"].as_u64()).collect::<Vec<_>>()
    };
    let both = [
        "coreline Workers",
        "std mpsc",
        "crossbeam-channel",
        "flume",
        "kanal",
        "tokio mpsc+oneshot",
    ];
    for (names, expected) in [
        (&both[..], &[0, 60, 500][..]),
        (&["one-line ping-pong", "one-slot mailbox"], &[0]),
        (&["std park", "raw futex"], &[60, 500]),
    ] {
        for name in names {
            assert_eq!(gaps(name), if alone { &[] } else { expected }, "{name}: {notes}");
        }
    }
    for row in rows(&result) {
        assert!(row["threads"] == 2 || row["params"]["gap_us"].is_null(), "{row:?}");
    }
}

#[test]
fn object_pools_have_all_their_rivals() {
    let output = rivals(&["objects", "--quick", "--json"]).output().unwrap();
    let result = json(&output);
    check_rows(&result, "objects");
    let notes = String::from_utf8_lossy(&output.stderr);
    for (name, built) in [
        ("coreline ObjectCache", true),
        ("glibc malloc", true),
        ("jemalloc", cfg!(feature = "jemalloc")),
        ("mimalloc", true),
        ("snmalloc", cfg!(feature = "snmalloc")),
        ("crossbeam ArrayQueue<Box>", true),
        ("crossbeam SegQueue<Box>", true),
        ("object-pool", true),
        ("lockfree-object-pool", true),
        ("opool", true),
        ("sharded-slab", true),
    ] {
        let mut found = threads(&result, name);
        found.sort_unstable();
        assert_eq!(found, if built { &[1, 1, 2, 2][..] } else { &[] }, "{name}");
        assert_eq!(notes.contains(&format!("left out {name:?}")), !built, "{name}: {notes}");
        for other in ["freed elsewhere", "read and freed elsewhere"] {
            let expected = if built { &[2][..] } else { &[] };
            assert_eq!(threads(&result, &format!("{name}, {other}")), expected, "{name}");
        }
    }
    for name in [
        "coreline ObjectCache, 4 x 384",
        "glibc calloc under a mutex, a line a slot",
        "glibc malloc under a mutex, zeroed outside, a line a slot",
        "mimalloc zalloc under a mutex, a line a slot",
        "glibc calloc under a mutex, dense",
        "glibc malloc under a mutex, zeroed outside, dense",
        "mimalloc zalloc under a mutex, dense",
    ] {
        assert_eq!(threads(&result, name), [1, 2], "{name}");
    }
    assert_eq!(threads(&result, "hand-off alone"), [2]);
    for bytes in [24, 32, 36, 40, 64, 72, 128, 136] {
        for name in ["coreline ObjectCache", "coreline ObjectCache, discarded", "Box"] {
            assert_eq!(threads(&result, &format!("{name}, {bytes} bytes")), [1]);
        }
    }
    assert_eq!(threads(&result, "hand-off alone, read"), [2]);
    for row in rows(&result) {
        let named = row["name"].as_str().unwrap();
        match row["params"]["batch"].as_u64() {
            Some(batch) => assert!(batch == 1 || batch == 32, "{named}"),
            None => {
                let ours_or_floor =
                    ["coreline ObjectCache, 4 x 384", "thread-local list"].contains(&named);
                let is_by_size = named.ends_with(" bytes");
                assert!(named.contains("mutex") || is_by_size || ours_or_floor, "{named}");
            }
        }
    }
}

#[test]
fn without_rseq_the_same_is_measured_on_atomics() {
    let mut command = rivals(&["counters", "--quick", "--json"]);
    let output = command.env("CORELINE_RSEQ", "off").output().unwrap();
    let result = json(&output);
    check_rows(&result, "counters");
    assert_eq!(threads(&result, "coreline PerCpuCounter cpu-id, hot"), [1, 2, 8]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("run on atomics here: "));
}

#[test]
fn people_get_tables_with_bars_and_goals() {
    let output = rivals(&["cid", "--quick"]).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "note: quick: ",
        "\nindex, 1 thread;",
        "\nindex, 2 threads;",
        "ratio to sched_getcpu",
        "█",
        "reached: coreline Place::cpu: ",
        "at most 0.5",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(output.stderr.is_empty(), "it is over soon: nothing to announce");
}

#[test]
fn a_long_run_says_first_how_long_it_takes() {
    let mut command = rivals(&["locks", "--json"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let read = BufReader::new(child.stderr.take().unwrap()).read_line(&mut said);
    // What it says is all that is asked for: the run itself takes too long.
    child.kill().unwrap();
    child.wait().unwrap();
    read.unwrap();
    for part in ["minutes (an estimate)", " samples, ", " of them windows of 1.5s"] {
        assert!(said.contains(part), "no {part:?} in {said:?}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for (arguments, named) in [
        (&["wheels"][..], "counters"),
        (&[], "CLASS"),
        (&["cid", "--reps", "14"], "15"),
        (&["cid", "--reps", "21", "--quick"], "--quick"),
        (&["locks", "--minutes", "1"], "--form or --threads"),
        (&["locks", "--minutes", "0"], "--minutes"),
        (&["cid", "--minutes", "1", "--quick"], "--quick"),
        (&["cid", "--minutes", "1", "--reps", "21"], "--reps"),
        (&["locks", "--threads", "7"], "[2, 8, 32]"),
        (&["cid", "--form", "wheels"], "index"),
    ] {
        let output = rivals(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(named), "{said}");
    }
}

#[test]
fn beside_load_every_sample_counts_and_has_its_cpu_time() {
    let arguments = ["calls", "--form", "callers", "--quick", "--beside", "3", "--json"];
    let result = json(&rivals(&arguments).output().unwrap());
    check_rows(&result, "calls");
    for row in rows(&result) {
        assert_eq!((&row["beside"], &row["discarded"]), (&3.into(), &0.into()), "{row:?}");
        assert!(row["cpu_ns_median"].as_f64().unwrap() > 0.0, "{row:?}");
    }
    assert_eq!(threads(&result, "coreline Workers"), [1, 2, 16]);
    let output = rivals(&["cid", "--threads", "1", "--quick", "--beside", "1"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("beside 1 threads of another process"), "{text}");
    assert!(!text.contains("\ngoal "), "goals are for quiet machines: {text}");
}

/// It must not outlive a measurement that was killed.
#[test]
fn the_load_ends_with_its_input() {
    let mut load = rivals(&["compute-beside", "2"]);
    let mut load = load.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut begun = BufReader::new(load.stdout.take().unwrap());
    begun.read_line(&mut String::new()).unwrap();
    assert!(load.try_wait().unwrap().is_none(), "it computes");
    drop(load.stdin.take());
    assert!(load.wait().unwrap().success());
}
