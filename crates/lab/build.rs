//! Tells the program of which commit it is: of the package, or of the checkout that it is built in.
//!
//! What was changed in a checkout and not committed is not seen.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo says it"));
    if let Some(commit) = of_package(&package).or_else(|| of_checkout(&package)) {
        println!("cargo::rustc-env=CORELINE_COMMIT={commit}");
    }
}

/// What `cargo package` notes.
fn of_package(package: &Path) -> Option<String> {
    let text = fs::read_to_string(package.join(".cargo_vcs_info.json")).ok()?;
    let (_, behind) = text.split_once("\"sha1\"")?;
    let commit = behind.split('"').nth(1)?;
    Some(if behind.contains("\"dirty\"") { format!("{commit}-dirty") } else { commit.to_owned() })
}

/// The commit that git names, if this workspace is the root of its checkout: a copied folder may
/// lie in another project's.
fn of_checkout(package: &Path) -> Option<String> {
    let root = package.parent()?.parent()?.canonicalize().ok()?;
    let top = PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root {
        return None;
    }
    // A line more for each commit, checkout and merge.
    let log = root.join(git(&root, &["rev-parse", "--git-path", "logs/HEAD"])?);
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    git(&root, &["rev-parse", "HEAD"])
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
