//! The verbs, run on this repository.

use std::fs;
use std::path::Path;
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

/// A checkout without links has the texts of licences, too.
#[test]
fn texts_of_licences_are_files() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut texts = 0;
    for folder in fs::read_dir(crates).expect("crates") {
        for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let path = folder.as_ref().expect("a folder").path().join(name);
            let Ok(metadata) = path.symlink_metadata() else { continue };
            assert!(metadata.is_file(), "{} is a link", path.display());
            texts += 1;
        }
    }
    assert!(texts >= 14, "{texts} texts");
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
