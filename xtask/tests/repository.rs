//! The verbs, run on this repository.

use std::process::Command;

fn passes(verb: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(verb.split(' ')).output();
    let output = output.expect("cargo built the program");
    assert!(
        output.status.success(),
        "`cargo xtask {verb}` failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_repository_is_tidy() {
    passes("tidy");
}

#[test]
fn the_tables_of_the_documents_can_be_made() {
    passes("tables --check");
}

#[test]
fn fast_paths_are_what_hand_written_code_compiles_to() {
    passes("golden");
}

#[test]
fn an_unknown_verb_is_a_usage_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("tydi").output();
    assert_eq!(output.expect("cargo built the program").status.code(), Some(2));
}
