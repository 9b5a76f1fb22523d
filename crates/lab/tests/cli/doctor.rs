//! The verb `doctor`.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{coreline, fields, json, refusal};

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
    assert!(["libc", "coreline", "none"].contains(&by), "{by}");
    assert!(text.contains(&format!("  registered by: {by}")), "{text}");
    match report["rseq"]["mm_cid"].as_u64() {
        Some(_) => assert!(text.contains("  mm_cid: ") && !text.contains("mm_cid: none")),
        None => {
            let why = report["rseq"]["mm_cid_error"].as_str().unwrap();
            assert!(text.contains(&format!("  mm_cid: none: {why}")), "{text}");
        }
    }
    assert_eq!(report["futex"]["works"], true);
    // Lines are broken to fit.
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
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
    let processor = "run the program on an x86-64 or aarch64 processor";
    for path in &report["fast_paths"].as_array().unwrap()[..2] {
        let remedy = path["remedy"].as_str().unwrap();
        assert!(["unset CORELINE_RSEQ", processor].contains(&remedy), "{path}");
    }
    assert!(text.contains("  restartable operations run on atomics"), "{text}");
    assert!(text.contains("  CORELINE_RSEQ: off\n"), "{text}");

    let (report, text) = doctor(&[("CORELINE_RSEQ", "no")]);
    assert_eq!(report["rseq"]["coreline_rseq"], "no");
    let warning = "CORELINE_RSEQ=\"no\" does nothing; set it to off, or unset it";
    assert!(text.contains(&format!("  warning: {warning}\n")), "{text}");
    assert!(report["warnings"].as_array().unwrap().contains(&warning.into()));
}

/// coreline registers threads that the C library was told not to register, unless it may not.
#[test]
fn doctor_names_the_registrar() {
    let (report, text) = doctor(&[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")]);
    let rseq = &report["rseq"];
    // Null where the C library knows no rseq.
    assert!(rseq["size"].is_null() || rseq["size"] == 0, "{rseq}");
    if rseq["usable"] == true {
        assert_eq!((&rseq["registered_by"], &rseq["abi"]), (&"coreline".into(), &"legacy".into()));
        assert!(text.contains("  registered by: coreline, 32 bytes, legacy ABI\n"), "{text}");
        assert_eq!(rseq["mm_cid"].is_u64(), rseq["feature_size"].as_u64() >= Some(28));
    } else {
        assert_eq!((&rseq["registered_by"], &rseq["abi"]), (&"none".into(), &Value::Null));
        assert!(report["fast_paths"][0]["remedy"].is_string());
    }
}

#[test]
fn doctor_looks_at_another_process_and_lets_it_go_on() {
    let mut child =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    let report = json(&["doctor", "--pid", &pid, "--json"]);
    assert_eq!(report["pid"], child.id());
    let listed = fields::listed("coreline.doctor.process/1");
    let unknown: Vec<_> = fields::of(&report, &listed).difference(&listed).cloned().collect();
    assert!(unknown.is_empty(), "not on the page: {unknown:?}");
    let rseq = &report["rseq"];
    let threads = ["registered", "unregistered", "unknown"].map(|it| rseq[it].as_u64().unwrap());
    assert_eq!(threads.iter().sum::<u64>(), 1, "{rseq}");
    assert_eq!(threads[2] > 0, rseq["error"].is_string(), "{rseq}");
    let text = coreline(&["doctor", "--pid", &pid]).output().unwrap();
    assert!(text.status.success());
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("stops each thread for a moment"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success(), "it goes on");
    let (code, told) = refusal(&["doctor", "--pid", &pid]);
    assert!(code == 3 && told.contains("there is no process"), "{code}: {told}");
}

#[test]
fn a_number_that_is_no_programs_is_refused() {
    assert_eq!(refusal(&["doctor", "--pid", "0"]).0, 2);
    // Where the kernel's threads can be seen.
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|it| it == "kthreadd\n") {
        let (code, told) = refusal(&["doctor", "--pid", "2"]);
        assert!(code == 2 && told.contains("thread of the kernel"), "{code}: {told}");
    }
}
