//! The verb `doctor`.

use serde_json::Value;

use crate::coreline;

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

/// coreline registers threads that the C library was told not to register, unless it may not.
#[test]
fn doctor_names_the_registrar() {
    let (report, text) = doctor(&[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")]);
    let rseq = &report["rseq"];
    // Null where the C library knows no rseq.
    assert!(rseq["size"].is_null() || rseq["size"] == 0, "{rseq}");
    if rseq["usable"] == true {
        assert_eq!((&rseq["registered_by"], &rseq["abi"]), (&"coreline".into(), &"legacy".into()));
        assert!(text.contains("  registered by: coreline, legacy ABI\n"), "{text}");
        assert_eq!(rseq["mm_cid"].is_u64(), rseq["feature_size"].as_u64() >= Some(28));
    } else {
        assert_eq!((&rseq["registered_by"], &rseq["abi"]), (&"none".into(), &Value::Null));
        assert!(report["fast_paths"][0]["remedy"].is_string());
    }
}
