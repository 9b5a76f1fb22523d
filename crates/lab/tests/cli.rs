//! The program as its users see it: output, exit codes, replay.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const MACHINE: &str = "epyc-9654-2s";

/// The variants of a simulated world.
const SIMULATED: [&str; 3] = ["cpu-id", "first-fit", "recent"];

fn coreline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coreline"));
    command.args(arguments).env_remove("CORELINE_RSEQ");
    command
}

fn output(arguments: &[&str]) -> Output {
    coreline(arguments).output().unwrap()
}

/// The exit code and what was said on standard error.
fn refusal(arguments: &[&str]) -> (i32, String) {
    let output = output(arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn json(arguments: &[&str]) -> Value {
    let output = output(arguments);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A file of this test run's own, under the target directory.
fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// The quick form with one delay: what most tests look at.
fn quick(more: &[&str]) -> Value {
    let arguments =
        ["run", "intermittent", "--world", MACHINE, "--quick", "--json", "--delay", "10"];
    json(&[&arguments, more].concat())
}

/// The rows of one metric and variant: configuration and figures.
fn rows<'a>(result: &'a Value, metric: &str, variant: &str) -> Vec<&'a Value> {
    let is_it = |row: &&Value| row["metric"] == metric && row["variant"] == variant;
    result["rows"].as_array().unwrap().iter().filter(is_it).collect()
}

fn value(row: &Value) -> f64 {
    row["value"].as_f64().unwrap()
}

/// Of all variants: they run if none is chosen.
#[test]
fn one_seed_gives_the_same_bytes_in_any_process() {
    for scenario in ["intermittent"] {
        let run = |seed, more: &[&str]| {
            let arguments =
                ["run", scenario, "--world", MACHINE, "--json", "--quick", "--seed", seed];
            let output = output(&[&arguments[..], more].concat());
            assert!(output.status.success());
            String::from_utf8(output.stdout).unwrap()
        };
        let small = ["--config", "8-core/1-L3", "--config", "24-core/24-L3"];
        let first = run("7", &small);
        assert_eq!(first, run("7", &small));
        for variant in SIMULATED {
            assert!(first.contains(&format!("\"variant\": \"{variant}\"")), "{variant}");
        }
        let narrow = ["--config", "192-core/24-L3", "--delay", "10", "--scan"];
        let [switch, tick] = ["switch", "tick"].map(|scan| [&narrow[..], &[scan]].concat());
        assert_eq!(run("7", &tick), run("7", &tick));
        assert_ne!(run("7", &switch), run("8", &switch));
    }
}

#[test]
fn the_result_keeps_its_schema() {
    let result = quick(&["--seed", "7"]);
    assert_eq!(keys(&result), ["schema", "scenario", "world", "seed", "not_modelled", "rows"]);
    assert_eq!(result["schema"], "coreline.run/1");
    assert_eq!(
        (&result["scenario"], &result["world"], &result["seed"]),
        (&"intermittent".into(), &MACHINE.into(), &7.into())
    );
    assert!(!result["not_modelled"].as_array().unwrap().is_empty());
    let rows = result["rows"].as_array().unwrap();
    // Three times, two of them also over that of cpu-id, and the speedup.
    assert_eq!(rows.len(), 4 * (3 + 2 + 1), "of four configurations");
    for row in rows {
        assert_eq!(
            keys(row),
            [
                "config",
                "params",
                "variant",
                "metric",
                "value",
                "low",
                "high",
                "unit",
                "published",
                "source",
                "verdict",
                "why"
            ]
        );
        assert_eq!(row["params"], serde_json::json!({"delay_ms": 10, "scan": "switch"}));
        let [low, value, high] = ["low", "value", "high"].map(|key| row[key].as_f64().unwrap());
        assert!(0.0 < low && low <= value && value <= high, "{row}");
        assert!(row["published"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["source"].as_str().unwrap().contains("seed 000"), "{row}");
        let verdict = row["verdict"].as_str().unwrap();
        assert!(["reached", "direction-only", "not-reached"].contains(&verdict), "{row}");
        // A time that is near is explained as well where an assumption makes it so.
        let assumed = row["metric"] == "ns_per_burst" && row["variant"] == "first-fit";
        assert_eq!(row["why"].is_string(), verdict != "reached" || assumed, "{row}");
    }
}

#[test]
fn an_area_that_stays_with_its_cpu_costs_the_same_everywhere() {
    let result = quick(&["--variant", "cpu-id"]);
    let times: Vec<f64> =
        rows(&result, "ns_per_burst", "cpu-id").iter().map(|row| value(row)).collect();
    assert_eq!(times.len(), 4);
    for time in &times {
        assert!((time / times[0] - 1.0).abs() < 0.1, "{times:?}");
    }
}

#[test]
fn first_fit_loses_its_areas_once_a_round_outlasts_the_expiry() {
    let result = quick(&[]);
    let ratio = |config| {
        let rows = rows(&result, "over_cpu_id", "first-fit");
        let row = *rows.iter().find(|row| row["config"] == config).unwrap();
        ["low", "high"].map(|key| row[key].as_f64().unwrap())
    };
    // A round of 8 threads takes 80 ms. Its order is random, so a thread may pause up to 150 ms and
    // lose its reference; mostly it finds its own ID again, the only one that is free. Two such
    // threads may swap, within one L3.
    let [low, high] = ratio("8-core/1-L3");
    assert!(0.99 <= low && high <= 1.5, "{low} .. {high}");
    // A round of 192 takes 1.9 s: every reference expires, and every area comes from another CPU.
    for config in ["192-core/24-L3", "384-thread/24-L3"] {
        let [low, _] = ratio(config);
        assert!(low >= 3.0, "{config}: {low}");
    }
}

#[test]
fn a_speedup_is_first_fits_time_over_that_of_recent() {
    let result =
        quick(&["--config", "192-core/24-L3", "--variant", "first-fit", "--variant", "recent"]);
    let all = result["rows"].as_array().unwrap();
    assert_eq!(all.len(), 3, "nothing over cpu-id without cpu-id");
    let time = |variant| value(rows(&result, "ns_per_burst", variant)[0]);
    let speedup = rows(&result, "speedup", "recent")[0];
    let computed = time("first-fit") / time("recent");
    assert!((value(speedup) / computed - 1.0).abs() < 0.01, "{speedup} {computed}");
    assert_eq!((&speedup["published"], &speedup["source"]), (&7.3.into(), &"seed 000".into()));
}

#[test]
fn every_published_figure_that_is_not_reached_says_why() {
    let small = ["--config", "8-core/1-L3", "--config", "24-core/24-L3", "--scan", "tick"];
    for (more, configs) in [(&[][..], 4), (&small, 2)] {
        let arguments = ["run", "intermittent", "--world", MACHINE, "--quick", "--json"];
        let result = json(&[&arguments[..], more].concat());
        let rows = result["rows"].as_array().unwrap();
        assert_eq!(rows.len(), configs * 2 * 6, "both delays");
        for row in rows {
            assert!(row["published"].is_number(), "{row}");
            assert!(row["verdict"] == "reached" || row["why"].is_string(), "{row}");
            // Sleep states are in the longer delay's figures, and not in the model.
            assert!(row["params"]["delay_ms"] == 10 || row["verdict"] != "reached", "{row}");
        }
    }
}

#[test]
fn a_choice_narrows_what_runs() {
    let result = quick(&["--config", "8-core/1-L3", "--variant", "recent"]);
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "no ratio without another variant");
    assert_eq!(
        (&rows[0]["config"], &rows[0]["variant"]),
        (&"8-core/1-L3".into(), &"recent".into())
    );
}

#[test]
fn the_whole_band_holds_the_quick_one() {
    let narrow = ["--config", "8-core/1-L3", "--variant", "first-fit"];
    let quick_row = quick(&narrow)["rows"][0].clone();
    let whole_row = quick(&[&narrow[..], &["--band"]].concat())["rows"][0].clone();
    assert_eq!(quick_row["value"], whole_row["value"]);
    let end = |row: &Value, key: &str| row[key].as_f64().unwrap();
    assert!(end(&whole_row, "low") < end(&quick_row, "low"));
    assert!(end(&whole_row, "high") > end(&quick_row, "high"));
}

#[test]
fn a_replay_gives_the_figure_of_the_run_and_its_kernel() {
    let narrow = ["--config", "24-core/24-L3", "--seed", "7"];
    for scan in ["switch", "tick"] {
        let result = quick(&[&narrow[..], &["--scan", scan]].concat());
        for variant in SIMULATED {
            let expected = value(rows(&result, "ns_per_burst", variant)[0]);
            // Runs 0 and 1 of seed 7, which the quick form takes the mean of.
            let replayed = ["7000", "7001"].map(|seed| {
                let policy = if variant == "recent" { "recent" } else { "first-fit" };
                replay(&format!(
                    "coreline-sim/1 machine={MACHINE} seed={seed} request=30 faults=none \
                     kernel={policy}:{scan} \
                     program=intermittent config=24-core/24-L3 delay=10 variant={variant}"
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
    let figure = told.lines().last().unwrap().strip_prefix("it ended well: ").unwrap();
    figure.strip_suffix(" ns per burst").unwrap().parse().unwrap()
}

#[test]
fn a_moved_cost_and_fewer_sequences_replay() {
    let line = |more: &str| {
        let head = format!("coreline-sim/1 machine={MACHINE} seed=7 request=30 faults=none");
        let program = "program=intermittent config=24-core/24-L3 delay=10 variant=first-fit";
        replay(&format!("{head}{more} {program} sequences=1"))
    };
    // Four ownership requests that overlap, or five.
    let [as_in_the_file, moved] = ["", " scaled=stream_stores:130"].map(line);
    assert!(moved < 0.9 * as_in_the_file, "{moved} {as_in_the_file}");
}

#[test]
fn a_variant_of_the_other_world_is_refused_with_those_of_this() {
    let line = format!(
        "coreline-sim/1 machine={MACHINE} seed=1 request=0 faults=none program=intermittent \
         config=8-core/1-L3 delay=10 variant=kernel-cid"
    );
    let other =
        line.replace("program", "kernel=recent:tick program").replace("kernel-cid", "first-fit");
    for (arguments, what) in [
        (vec!["replay", &other], "first-fit:switch, first-fit:tick"),
        (vec!["run", "intermittent", "--world", MACHINE, "--variant", "kernel-cid"], "first-fit"),
        (vec!["replay", &line], "recent"),
        (vec!["run", "intermittent", "--variant", "first-fit"], "kernel-cid"),
        (vec!["run", "intermittent", "--variant", "recent"], "world native"),
        (vec!["run", "intermittent", "--scan", "tick"], "--world"),
    ] {
        let (code, told) = refusal(&arguments);
        assert_eq!(code, 2, "{arguments:?}: {told}");
        assert!(told.contains(what), "{arguments:?}: {told}");
    }
}

#[test]
fn a_program_of_somebody_else_is_refused_with_what_to_do() {
    for (program, what) in [("laws::counter", "CORELINE_REPLAY"), ("intermittent", "config=NAME")] {
        let line = format!(
            "coreline-sim/1 machine={MACHINE} seed=1 request=0 faults=none program={program}"
        );
        let (code, told) = refusal(&["replay", &line]);
        assert_eq!(code, 2, "{told}");
        assert!(told.contains(what), "{told}");
    }
}

#[test]
fn what_cannot_be_run_is_a_usage_error_that_says_what_can() {
    let broken = file("broken.toml", "name = \"mine\"\nspeed = 9\n");
    let broken = broken.to_str().unwrap();
    let intermittent = ["run", "intermittent"];
    let with = |more: &[&'static str]| [&intermittent, more].concat();
    for (arguments, what) in [
        (vec!["run", "sing"], vec!["sing", "intermittent"]),
        (with(&["--world", "pdp-11"]), vec!["pdp-11", MACHINE, "machine file"]),
        (with(&["--world", "no/such.toml"]), vec!["no/such.toml"]),
        (vec!["run", "intermittent", "--world", broken], vec!["broken.toml", "speed"]),
        (with(&["--seed", "x"]), vec!["--seed"]),
        (with(&["--delay", "99999"]), vec!["--delay"]),
        (with(&["--variant", "none"]), vec!["cpu-id", "kernel-cid", "first-fit", "recent"]),
        (with(&["--scan", "never"]), vec!["switch", "tick"]),
        (with(&["--world", MACHINE, "--config", "9-core"]), vec!["9-core", "8-core/1-L3"]),
        (with(&["--out", "no/such/folder/file"]), vec!["no/such/folder/file"]),
        (vec!["machines", "pdp-11"], vec!["pdp-11", MACHINE]),
        (vec!["machines", broken], vec!["broken.toml", "speed"]),
        (vec!["validate", "--only", "sing"], vec!["sing", "ping-pong-cas"]),
        (vec!["validate", "--predict", "abcdef0", "--quick"], vec!["--predict", "--quick"]),
        (vec!["validate", "--world", "pdp-11"], vec!["pdp-11", MACHINE]),
        (vec!["replay", "hello"], vec!["replay line"]),
        (vec!["sing"], vec!["sing", "Usage"]),
    ] {
        let (code, told) = refusal(&arguments);
        assert_eq!(code, 2, "{arguments:?}: {told}");
        assert!(what.iter().all(|word| told.contains(word)), "{arguments:?}: {told}");
    }
}

/// A machine of one's own: the two-CPU preset under another name.
fn own_machine(name: &str) -> PathBuf {
    let text = include_str!("../../sim/machines/host-2c.toml");
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
                program=intermittent config=2-core/1-L3 delay=10 variant=cpu-id";
    assert_eq!(refusal(&["replay", "--world", path, line]).0, 0);
    let (code, told) = refusal(&["replay", line]);
    assert!(code == 2 && told.contains("--world"), "{told}");
    let (code, told) = refusal(&["replay", "--world", MACHINE, line]);
    assert!(code == 2 && told.contains(MACHINE), "{told}");
}

#[test]
fn out_writes_the_result_to_a_file() {
    let path = file("result.json", &"an earlier and longer result ".repeat(10_000));
    let told = output(&["machines", "--json", "--out", path.to_str().unwrap()]);
    assert!(told.status.success() && told.stdout.is_empty());
    let written: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(written["schema"], "coreline.machines/1");
}

#[test]
fn machines_shows_every_cost_with_its_source() {
    let detail = json(&["machines", MACHINE, "--json"]);
    assert_eq!((&detail["cpus"], &detail["caches"]), (&384.into(), &24.into()));
    let costs = detail["costs"].as_array().unwrap();
    assert!(costs.iter().all(|cost| !cost["source"].as_str().unwrap().is_empty()));
    let text = String::from_utf8(output(&["machines", MACHINE]).stdout).unwrap();
    for cost in costs {
        assert!(text.contains(cost["source"].as_str().unwrap()), "{cost} is not in {text}");
    }
    assert!(text.contains("caches 1-11 alike, up to CPUs 88-95,280-287"), "{text}");
    // Three classes of distance, each at three request shares.
    let transfers = detail["core_to_core"].as_array().unwrap();
    assert_eq!(transfers.len(), 9);
    transfers.iter().for_each(assert_comes_back);
    assert!(text.contains("published beside simulated"), "{text}");
}

/// A published core-to-core latency is what a simulated ping-pong comes to.
fn assert_comes_back(transfer: &Value) {
    let [published, simulated, cost] =
        ["published_ns", "simulated_ns", "transfer_ns"].map(|key| transfer[key].as_f64().unwrap());
    assert_eq!(transfer["reached"], true, "{transfer}");
    assert!((simulated / published - 1.0).abs() < 0.03 && cost > 0.0, "{transfer}");
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn validate_measures_beside_what_was_predicted() {
    // Nothing but the game that machine files are calibrated by: the time of everything else is to
    // be seen after its prediction only.
    let result = json(&["validate", "--quick", "--json", "--only", "ping-pong-cas"]);
    assert_eq!(
        keys(&result),
        ["schema", "world", "machine", "engine", "quick", "not_modelled", "rows", "core_to_core"]
    );
    assert_eq!(
        (&result["schema"], &result["world"], &result["machine"]),
        (&"coreline.validate/1".into(), &"native".into(), &"host-2c".into())
    );
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(
        keys(row),
        [
            "name",
            "what",
            "threads",
            "unit",
            "predicted",
            "tolerance",
            "measured",
            "ratio",
            "in_band",
            "verdict",
            "why"
        ]
    );
    assert_eq!(keys(&row["predicted"]), ["value", "low", "high"]);
    match row["verdict"].as_str().unwrap() {
        "calibration" => {
            assert_eq!(
                keys(&row["measured"]),
                ["median", "low", "high", "samples", "discarded", "elsewhere"]
            );
            let [low, median, high] =
                ["low", "median", "high"].map(|key| row["measured"][key].as_f64().unwrap());
            assert!(0.0 < low && low <= median && median <= high, "{row}");
            assert!(row["ratio"].as_f64().unwrap() > 0.0, "{row}");
        }
        // All samples were disturbed.
        "none" => assert_eq!(row["measured"], Value::Null),
        other => {
            assert_eq!(other, "not-testable");
            assert!(row["why"].as_str().unwrap().starts_with("not testable here"), "{row}");
        }
    }
    let transfers = result["core_to_core"].as_array().unwrap();
    let machines: std::collections::BTreeSet<_> =
        transfers.iter().map(|transfer| transfer["machine"].as_str().unwrap()).collect();
    assert_eq!(machines.len(), 9, "all presets: {machines:?}");
    transfers.iter().for_each(assert_comes_back);
}

#[test]
fn validate_predicts_for_a_simulated_machine_and_measures_nothing() {
    let arguments = ["validate", "--world", "desktop-12c", "--json", "--only", "fetch-add-2"];
    let first = output(&arguments);
    assert!(first.status.success() && first.stderr.is_empty());
    assert_eq!(first.stdout, output(&arguments).stdout, "the same bytes in any process");
    let result: Value = serde_json::from_slice(&first.stdout).unwrap();
    let row = &result["rows"][0];
    assert_eq!((&row["measured"], &row["verdict"]), (&Value::Null, &"none".into()));
    let [low, value, high] =
        ["low", "value", "high"].map(|key| row["predicted"][key].as_f64().unwrap());
    assert!(0.0 < low && low <= value && value <= high, "{row}");
    assert_eq!((&result["machine"], &result["engine"]), (&"desktop-12c".into(), &Value::Null));
    assert_eq!(result["core_to_core"].as_array().unwrap().len(), 2 * 3);
}

#[test]
fn what_takes_two_cores_is_not_testable_on_one() {
    let text = include_str!("../../sim/machines/host-2c.toml");
    let path = file("one-core.toml", &text.replace("cores_per_cache = 2", "cores_per_cache = 1"));
    let arguments = ["validate", "--world", path.to_str().unwrap(), "--json"];
    let only = ["--only", "ticket-1", "--only", "ticket-2"];
    let result = json(&[&arguments[..], &only].concat());
    let rows = result["rows"].as_array().unwrap();
    assert!(rows[0]["predicted"].is_object() && rows[0]["verdict"] == "none", "{}", rows[0]);
    assert_eq!(
        (&rows[1]["predicted"], &rows[1]["verdict"]),
        (&Value::Null, &"not-testable".into())
    );
    assert!(rows[1]["why"].as_str().unwrap().contains("two cores"), "{}", rows[1]);
    assert_eq!(result["core_to_core"], Value::Array(Vec::new()));
}

#[test]
fn predict_writes_the_file_of_predictions() {
    let committed = include_str!("../../../docs/validate/host-2c.predictions.toml");
    let engine = committed.lines().find(|line| line.starts_with("engine = ")).unwrap();
    let told = output(&["validate", "--predict", "abcdef0"]);
    assert!(told.status.success());
    let told = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.replace("engine = \"abcdef0\"", engine), committed);
}

/// What `doctor` says in an environment, as JSON and as text.
fn doctor(environment: &[(&str, &str)]) -> (Value, String) {
    let [json, text] = [&["doctor", "--json"][..], &["doctor"]].map(|arguments| {
        let output = coreline(arguments)
            .env_remove("GLIBC_TUNABLES")
            .envs(environment.iter().copied())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty());
        output.stdout
    });
    (serde_json::from_slice(&json).unwrap(), String::from_utf8(text).unwrap())
}

#[test]
fn doctor_says_what_there_is() {
    let (report, text) = doctor(&[]);
    assert_eq!(report["schema"], "coreline.doctor/1");
    let cpus = report["topology"]["cpus"].as_u64().unwrap();
    assert!(cpus >= 1 && text.contains(&format!("  {cpus} CPUs, ")), "{text}");
    let by = report["rseq"]["registered_by"].as_str().unwrap();
    assert!(["libc", "coreline", "nobody"].contains(&by), "{by}");
    assert!(text.contains(&format!("  registered by: {by}")), "{text}");
    match report["rseq"]["mm_cid"].as_u64() {
        Some(_) => assert!(text.contains("  mm_cid: ") && !text.contains("mm_cid: none")),
        None => {
            let why = report["rseq"]["mm_cid_error"].as_str().unwrap();
            assert!(text.contains(&format!("  mm_cid: none: {why}")), "{text}");
        }
    }
    assert_eq!(report["futex"]["works"], true);
    for path in report["fast_paths"].as_array().unwrap() {
        let name = path["name"].as_str().unwrap();
        assert!(text.contains(name), "{name} is not in {text}");
        for key in ["why", "remedy"] {
            assert!(path[key].as_str().is_none_or(|said| text.contains(said)), "{path}");
        }
    }
}

#[test]
fn doctor_says_what_is_switched_off() {
    let (report, text) = doctor(&[("CORELINE_RSEQ", "off")]);
    let rseq = &report["rseq"];
    assert_eq!((&rseq["usable"], &rseq["mm_cid"]), (&false.into(), &Value::Null));
    assert_eq!(rseq["coreline_rseq"], "off");
    let processor = "an x86-64 or aarch64 processor";
    for path in &report["fast_paths"].as_array().unwrap()[..2] {
        let remedy = path["remedy"].as_str().unwrap();
        assert!(["unset CORELINE_RSEQ", processor].contains(&remedy), "{path}");
    }
    assert!(text.contains("  restartable operations run on atomics"), "{text}");
    assert!(text.contains("  CORELINE_RSEQ: off\n"), "{text}");

    let (report, text) = doctor(&[("CORELINE_RSEQ", "no")]);
    assert_eq!(report["rseq"]["coreline_rseq"], "no");
    let warning = "CORELINE_RSEQ=\"no\" does nothing: its only value is off";
    assert!(text.contains(&format!("  warning: {warning}\n")), "{text}");
    assert!(report["warnings"].as_array().unwrap().contains(&warning.into()));
}

/// coreline registers by itself what the C library was told not to, unless it may not.
#[test]
fn doctor_says_who_registers() {
    let (report, text) = doctor(&[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")]);
    let rseq = &report["rseq"];
    // Null where the C library knows no rseq.
    assert!(rseq["size"].is_null() || rseq["size"] == 0, "{rseq}");
    if rseq["usable"] == true {
        assert_eq!((&rseq["registered_by"], &rseq["abi"]), (&"coreline".into(), &"legacy".into()));
        assert!(text.contains("  registered by: coreline, legacy ABI\n"), "{text}");
        assert_eq!(rseq["mm_cid"].is_u64(), rseq["feature_size"].as_u64() >= Some(28));
    } else {
        assert_eq!((&rseq["registered_by"], &rseq["abi"]), (&"nobody".into(), &Value::Null));
        assert!(report["fast_paths"][0]["remedy"].is_string());
    }
}

#[test]
fn what_this_machine_lacks_is_exit_code_3() {
    let off =
        |arguments: &[&str]| coreline(arguments).env("CORELINE_RSEQ", "off").output().unwrap();
    let quick = ["run", "intermittent", "--quick", "--json", "--delay", "1"];
    let output = off(&[&quick[..], &["--variant", "kernel-cid"]].concat());
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stderr).unwrap().contains("kernel-cid"));

    // Beside something that there is, it is left out with a note.
    let output = off(&quick);
    assert!(output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("left out"));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["rows"].as_array().unwrap().len(), 1);
    assert_eq!(result["rows"][0]["published"], Value::Null, "another machine was measured");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut child =
        coreline(&["run", "intermittent", "--world", MACHINE, "--quick", "--delay", "10"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((status.code(), told.as_str()), (Some(0), ""));
}

#[test]
fn bench_says_how_fast_the_simulator_is() {
    let result = json(&["bench", "sim", "--quick", "--json"]);
    assert_eq!(result["schema"], "coreline.bench.sim/1");
    let rows = result["rows"].as_array().unwrap();
    let cpus: Vec<_> = rows.iter().map(|row| row["coroutines"].as_u64().unwrap()).collect();
    assert_eq!(cpus, [1, 2, 192, 384, 384, 4096]);
    for row in rows {
        for figure in ["accesses", "accesses_full", "switches"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}
