//! Tells the program of which commit it is: of the package, or of the checkout that it is built in.
//! What was changed in a checkout and not committed is not seen.
//!
//! Tells it also of which engine it is: of which sources its simulated results are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo says it"));
    if let Some(commit) = of_package(&package).or_else(|| of_checkout(&package)) {
        println!("cargo::rustc-env=CORELINE_COMMIT={commit}");
    }
    println!("cargo::rustc-env=CORELINE_ENGINE={}", engine(&package));
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

/// The packages whose sources decide a simulated result.
const ENGINE: [&str; 5] = ["topology", "world", "sim", "coreline", "scenarios"];

/// The engine of this program: its version and, in a checkout, where the sources may be of no
/// version, their digest.
fn engine(package: &Path) -> String {
    let version = env::var("CARGO_PKG_VERSION").expect("cargo says it");
    let Some(crates) = package.parent() else { return version };
    let (mut parts, mut files) = (Vec::new(), Vec::new());
    for name in ENGINE {
        let folder = crates.join(name);
        if !folder.is_dir() {
            return version;
        }
        parts.extend(["src", "machines"].map(|part| folder.join(part)));
    }
    // What makes rows of numbers.
    parts.extend(["run", "sweep"].map(|part| package.join("src").join(part)));
    for part in parts.iter().filter(|part| part.is_dir()) {
        println!("cargo::rerun-if-changed={}", part.display());
        list(part, &mut files);
    }
    files.sort();
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        // FNV-1a, of the name below the crates and of the text.
        let name = file.strip_prefix(crates).unwrap_or(&file).as_os_str().as_encoded_bytes();
        for &byte in name.iter().chain(&fs::read(&file).unwrap_or_default()) {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    format!("{version}+{digest:016x}")
}

/// All files of a folder and of those in it, if there is such a folder.
fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            list(&path, files);
        } else {
            files.push(path);
        }
    }
}
