//! The Python package: built into a fresh virtual environment, and tested there.

use std::process::Stdio;

use crate::error::Error;
use crate::workspace;

/// Runs `python/check`, or says why it cannot.
pub(crate) fn check() -> Result<(), Error> {
    // Debian splits what a virtual environment needs into packages of its own.
    let mut asked = workspace::command("python3", &["-c", "import ensurepip, venv"]);
    let asked = asked.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !asked.is_ok_and(|status| status.success()) {
        println!(
            "python: skipped, because there is no python3 that makes virtual environments; install \
             python3 and python3-venv"
        );
        return Ok(());
    }
    let mut check = workspace::command("bash", &["python/check"]);
    println!("{}", workspace::line(&check));
    workspace::run(&mut check)
}
