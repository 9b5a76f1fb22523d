//! The C++ compilers of this machine, for the build script and for the tests.

use std::env;
use std::process::{Command, Stdio};

/// `CXX`, or else the first of the usual names; and `clang++` if it is another one.
pub(crate) fn all() -> Vec<String> {
    let chosen = env::var("CXX").ok().filter(|name| !name.is_empty());
    let usual = || ["g++", "c++"].into_iter().find(|name| runs(name)).map(str::to_owned);
    let mut names: Vec<String> = chosen.or_else(usual).into_iter().collect();
    if runs("clang++") && !names.iter().any(|name| name == "clang++") {
        names.push("clang++".to_owned());
    }
    names
}

/// Whether there is a program of this name.
fn runs(name: &str) -> bool {
    let mut command = Command::new(name);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
