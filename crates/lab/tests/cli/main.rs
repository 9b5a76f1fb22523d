//! The program as its users see it: output, exit codes, replay.

mod bench;
mod compare;
mod doctor;
mod export;
mod fields;
mod interrupt;
mod ledger;
mod machines;
mod measure;
mod page;
mod port;
mod preload;
mod readme;
mod readscale;
mod replay;
mod report;
mod scale;
mod scenario;
mod stat;
mod storm;
mod sweep;
mod tenants;
mod threadstorm;
mod usage;
mod validate;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

const MACHINE: &str = "epyc-9654-2s";

/// The variants of a simulated world.
const SIMULATED: [&str; 5] = ["cpu-id", "first-fit", "recent", "owned", "clustered"];

/// The variants of switchstorm, in any world.
const STORM: [&str; 5] = ["always-set", "test-first", "lazy", "refcounted", "two-level"];

fn coreline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coreline"));
    command.args(arguments);
    for variable in ["CORELINE_RSEQ", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
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

/// A simulated ping-pong gives the core-to-core latency of a machine file back.
fn assert_comes_back(transfer: &Value) {
    let [of_file, simulated, cost] =
        ["file_ns", "simulated_ns", "transfer_ns"].map(|key| transfer[key].as_f64().unwrap());
    assert_eq!(transfer["reached"], true, "{transfer}");
    assert!((simulated / of_file - 1.0).abs() < 0.03 && cost > 0.0, "{transfer}");
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Whether a native row can say something: its CPUs are known to be under several caches.
fn is_testable(row: &Value) -> bool {
    let config = row["config"].as_str().unwrap();
    config.ends_with("-L3") && !config.ends_with("/1-L3")
}
