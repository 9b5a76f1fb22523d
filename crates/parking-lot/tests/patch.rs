//! The package for `[patch.crates-io]`: a program that depends on `parking_lot` gets these locks.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

#[test]
fn a_patched_program_has_these_locks() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("patched");
    fs::create_dir_all(folder.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"patched\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[workspace]\n\
         [dependencies]\nparking_lot = {{ version = \"0.12.1\", features = [\"arc_lock\"] }}\n\
         [patch.crates-io]\nparking_lot = {{ path = {:?} }}\n",
        here.join("patch")
    );
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    // Bytes that parking_lot's lock does not have.
    let program = "fn main() { \
         *std::sync::Arc::new(parking_lot::Mutex::new(1)).lock_arc() += 1; \
         print!(\"{}\", std::mem::size_of::<parking_lot::RawMutex>()); }";
    fs::write(folder.join("src/main.rs"), program).unwrap();
    // The versions that are here already.
    fs::copy(here.join("../../Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let cargo = env::var_os("CARGO").expect("cargo runs the tests");
    let mut run = Command::new(cargo);
    run.args(["run", "--quiet", "--offline", "--target-dir"]).arg(folder.join("target"));
    let output = run.current_dir(&folder).output().unwrap();
    let [printed, said] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!((&*printed, output.status.success()), ("8", true), "{said}");
}
