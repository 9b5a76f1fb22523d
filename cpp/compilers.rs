// The C++ compilers of this machine, for the build script and for the tests.

use std::process::{Command, Stdio};

/// `CXX`, or else the first of the usual names; and `clang++` if it is another one.
fn compilers() -> Vec<String> {
    let chosen = std::env::var("CXX").ok().filter(|name| !name.is_empty());
    let first = chosen.or_else(|| ["g++", "c++"].map(str::to_owned).into_iter().find(runs));
    let both = first.into_iter().chain(["clang++".to_owned()].into_iter().filter(runs));
    let mut names: Vec<String> = both.collect();
    names.dedup();
    names
}

/// Whether there is a program of this name.
#[allow(clippy::ptr_arg, reason = "used as a predicate for names")]
fn runs(name: &String) -> bool {
    let quietly =
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quietly.is_ok_and(|status| status.success())
}
