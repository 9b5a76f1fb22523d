//! The verb `replay`.

use std::path::PathBuf;

use serde_json::Value;

use crate::scenario::{quick, rows, value};
use crate::{MACHINE, SIMULATED, file, json, output, refusal};

#[test]
fn a_replay_gives_the_figure_of_the_run_and_its_kernel() {
    let narrow = ["--config", "24-core/24-L3", "--seed", "7"];
    for scan in ["switch", "tick"] {
        let result = quick(&[&narrow[..], &["--scan", scan]].concat());
        for variant in SIMULATED {
            let expected = value(rows(&result, "ns_per_burst", variant)[0]);
            // Runs 0 and 1 of seed 7, which the quick form takes the mean of.
            let replayed = ["7000", "7001"].map(|seed| {
                let policy = if variant == "cpu-id" { "first-fit" } else { variant };
                replay(&format!(
                    "coreline-sim/1 machine={MACHINE} seed={seed} request=30 faults=none \
                     kernel={policy}:{scan} \
                     program=intermittent config=24-core/24-L3 delay=10 turns=timed \
                     variant={variant}"
                ))
            });
            let mean = replayed.iter().sum::<f64>() / 2.0;
            assert!((mean - expected).abs() < 0.1, "{variant}, {scan}: {replayed:?} {expected}");
        }
    }
}

/// Replays a line, with quotes and without; returns the figure that it gave.
fn replay(line: &str) -> f64 {
    let words: Vec<&str> = std::iter::once("replay").chain(line.split(' ')).collect();
    let told = String::from_utf8(output(&words).stdout).unwrap();
    assert_eq!(told.as_bytes(), output(&["replay", line]).stdout, "with and without quotes");
    let figure = told.lines().last().unwrap().strip_prefix("the run succeeded: ").unwrap();
    figure.strip_suffix(" ns per burst").unwrap().parse().unwrap()
}

#[test]
fn a_moved_cost_and_fewer_sequences_replay() {
    let line = |more: &str| {
        let head = format!("coreline-sim/1 machine={MACHINE} seed=7 request=30 faults=none");
        // Scans by switches, so that areas move in one sequence.
        let kernel = "kernel=first-fit:switch";
        let program =
            "program=intermittent config=24-core/24-L3 delay=10 turns=called variant=first-fit";
        replay(&format!("{head}{more} {kernel} {program} sequences=1"))
    };
    // Four ownership requests that overlap, or five.
    let [as_in_the_file, moved] = ["", " scaled=stream_stores:130"].map(line);
    assert!(moved < 0.9 * as_in_the_file, "{moved} {as_in_the_file}");
}

#[test]
fn a_line_that_cannot_be_replayed_here_says_what_to_do_with_it() {
    for (program, what) in [
        ("laws::counter", "CORELINE_REPLAY"),
        ("laws::counter", "--test 'laws-*' counter"),
        ("intermittent", "config=NAME"),
        ("switchstorm config=384-thread/24-L3", "wake=barrier|independent"),
        ("shootdown config=384-thread/24-L3", "present=N"),
        ("threadstorm config=384-thread/24-L3", "size=POOLSxTHREADS"),
        ("validate nothing", "fetch-add-2"),
        ("bench 1 CPU", "coreline bench sim"),
        ("calibration", "coreline machines epyc-9654-2s"),
        ("my program", "Machine::replay"),
    ] {
        let line = format!(
            "coreline-sim/1 machine={MACHINE} seed=1 request=0 faults=none program={program}"
        );
        let (code, told) = refusal(&["replay", &line]);
        assert_eq!(code, 2, "{told}");
        assert!(told.contains(what), "{told}");
    }
}

/// Of scenarios and of predictions: the limit on steps makes them fail.
#[test]
fn the_line_of_a_failure_brings_the_failure_back() {
    for (machine, program) in [
        (MACHINE, "intermittent config=8-core/1-L3 delay=10 turns=timed variant=recent"),
        ("host-2c", "validate fetch-add-2"),
    ] {
        let line = format!(
            "coreline-sim/1 machine={machine} seed=1 request=50 faults=none steps=100 \
             program={program}"
        );
        let (code, told) = refusal(&["replay", &line]);
        assert_eq!(code, 1, "{told}");
        let printed = told.lines().find_map(|it| it.trim().strip_prefix("replay: ")).unwrap();
        assert_eq!(refusal(&["replay", printed]), (1, told.clone()));
    }
}

#[test]
fn a_replay_says_what_happened_when() {
    let line = format!(
        "coreline-sim/1 machine={MACHINE} seed=7 request=30 faults=none \
         program=shootdown config=8-core/1-L3 present=8 variant=lazy updates=20"
    );
    let path = file("trace.json", "");
    let to = path.to_str().unwrap();
    let told = String::from_utf8(output(&["replay", "--trace", to, &line]).stdout).unwrap();
    let plain = String::from_utf8(output(&["replay", &line]).stdout).unwrap();
    let last = told.strip_prefix(&plain).expect("the same result").trim();
    let slices = last.split(' ').next().unwrap().parse::<usize>().unwrap();
    assert!(slices > 1000 && last.ends_with("which the viewer Perfetto opens"), "{last}");
    let trace: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(trace["otherData"]["machine"], MACHINE);
    assert!(trace["traceEvents"].as_array().unwrap().len() > slices);

    let (code, told) = refusal(&["replay", "--trace", "/proc/none/trace.json", &line]);
    assert!(code == 2 && told.contains("choose another file with --trace"), "{told}");
    let prediction = "coreline-sim/1 machine=host-2c seed=1 request=30 faults=none \
                      program=validate fetch-add-2";
    let (code, told) = refusal(&["replay", "--trace", to, prediction]);
    assert!(code == 2 && told.contains("has no trace"), "{told}");
}

#[test]
fn a_prediction_replays() {
    let only = ["validate", "--world", "host-2c", "--json", "--only", "test-and-set-2"];
    let row = &json(&only)["rows"][0]["predicted"];
    let mut times: Vec<f64> = Vec::new();
    for request in [20, 30, 50] {
        for seed in 0..4 {
            let line = format!(
                "coreline-sim/1 machine=host-2c seed={seed} request={request} faults=none \
                 steps=50000000 program=validate test-and-set-2"
            );
            let told = String::from_utf8(output(&["replay", &line]).stdout).unwrap();
            let figure = told.lines().last().unwrap().strip_prefix("the run succeeded: ").unwrap();
            times.push(figure.split(' ').next().unwrap().parse().unwrap());
        }
    }
    times.sort_by(f64::total_cmp);
    assert_eq!((row["low"].as_f64(), row["high"].as_f64()), (Some(times[0]), Some(times[11])));
}

#[test]
fn a_cost_that_the_machine_lacks_is_refused() {
    let line = "coreline-sim/1 machine=host-2c seed=1 request=0 faults=none scaled=luck:70 \
                program=validate fetch-add-1";
    let (code, told) = refusal(&["replay", line]);
    assert!(code == 2 && told.contains("luck"), "{told}");
}

#[test]
fn a_line_that_would_be_taken_otherwise_than_it_says_is_refused() {
    let line = |settings: &str| {
        format!("coreline-sim/1 machine=host-2c {settings} program=validate fetch-add-1")
    };
    let good = line("seed=1 request=0 faults=none");
    assert_eq!(refusal(&["replay", &good]).0, 0);
    for (line, what) in [
        (line("seed=1 seed=2 request=0 faults=none"), "seed=2"),
        (line("seed=1 request=200 faults=none"), "100 percent"),
        (line("seed=1 request=0 faults=preempt:8,preempt:9"), "twice"),
        (line("seed=1 request=0 faults=none scaled=ipi:70,ipi:130"), "twice"),
        (line("seed=1 request=0 faults=none scaled=ipi:0"), "1 percent"),
        (line("seed=1 request=0 faults=none scaled=ipi:1001"), "1000"),
        (line("seed=1 request=0 faults=none steps=0"), "steps=0"),
        (line("seed=-1 request=0 faults=none"), "seed=-1"),
        (good.replace("sim/1", "sim/2"), "simulates like coreline-sim/1"),
        (good.replace("host-2c", "host2c"), "did you mean host-2c?"),
    ] {
        let (code, told) = refusal(&["replay", &line]);
        assert!(code == 2 && told.contains(what), "{line}: {code} {told}");
    }
}

#[test]
fn an_unknown_name_in_a_line_is_answered_with_the_nearest() {
    for (kernel, config, variant, what) in [
        ("recent:tick", "2-core/1-L4", "recent", "did you mean 2-core/1-L3?"),
        ("recnt:tick", "2-core/1-L3", "recent", "did you mean recent:tick?"),
        ("recent:tick", "2-core/1-L3", "recnt", "did you mean recent?"),
    ] {
        let line = format!(
            "coreline-sim/1 machine=host-2c seed=1 request=0 faults=none kernel={kernel} \
             program=intermittent config={config} delay=10 turns=timed variant={variant}"
        );
        let (code, told) = refusal(&["replay", &line]);
        assert!(code == 2 && told.contains(what), "{line}: {code} {told}");
    }
}

/// A machine of one's own: the two-CPU preset under another name.
fn own_machine(name: &str) -> PathBuf {
    let text = include_str!("../../../sim/machines/host-2c.toml");
    file(&format!("{name}.toml"), &text.replace("\"host-2c\"", &format!("{name:?}")))
}

#[test]
fn a_machine_of_ones_own_runs_and_replays() {
    let path = own_machine("mine");
    let path = path.to_str().unwrap();
    let result = json(&["run", "intermittent", "--world", path, "--quick", "--json"]);
    assert_eq!(result["world"], "mine");
    let row = &result["rows"][0];
    assert_eq!((&row["published"], &row["verdict"]), (&Value::Null, &"none".into()));

    let line = "coreline-sim/1 machine=mine seed=1000 request=30 faults=none \
                program=intermittent config=2-core/1-L3 delay=10 turns=timed variant=cpu-id";
    assert_eq!(refusal(&["replay", "--world", path, line]).0, 0);
    let (code, told) = refusal(&["replay", line]);
    assert!(code == 2 && told.contains("--world"), "{told}");
    let (code, told) = refusal(&["replay", "--world", MACHINE, line]);
    assert!(code == 2 && told.contains(MACHINE), "{told}");

    // The simulator's own lines name the file's content, too: that file's line runs, another's not.
    let digest = coreline_sim::Spec::from_file(path.as_ref()).unwrap().digest().unwrap();
    let of = |digest: u64| line.replace("machine=mine", &format!("machine=mine@{digest:016x}"));
    assert_eq!(refusal(&["replay", "--world", path, &of(digest)]).0, 0);
    let (code, told) = refusal(&["replay", "--world", path, &of(digest ^ 1)]);
    assert!(code == 2 && told.contains("give the unchanged file"), "{told}");
    for digest in [digest, digest ^ 1] {
        assert!(told.contains(&format!("{digest:016x}")), "{told}");
    }
    let (code, told) = refusal(&["replay", &of(digest)]);
    assert!(code == 2 && told.contains("--world"), "{told}");
    let preset = of(digest).replace("machine=mine", "machine=host-2c");
    let (code, told) = refusal(&["replay", &preset]);
    assert!(code == 2 && told.contains("the preset has no digest"), "{told}");
}
