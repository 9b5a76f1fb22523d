//! What is known against the packages that we build with: advisories about their security, and
//! whether they are still looked after. (Their licences are a rule of `tidy`.)

use std::process::Stdio;

use crate::error::Error;
use crate::workspace;

/// Looks them up with cargo-deny, by its defaults.
pub(crate) fn run() -> Result<(), Error> {
    let mut asked = workspace::cargo(&["deny", "--version"]);
    let asked = asked.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !asked.is_ok_and(|status| status.success()) {
        return Err(Error::Missing {
            what: "cargo-deny".to_owned(),
            remedy: "`cargo install --locked cargo-deny` compiles it, for many minutes".to_owned(),
        });
    }
    let mut cargo = workspace::cargo(&["deny", "--all-features", "check", "advisories"]);
    println!("{}", workspace::line(&cargo));
    workspace::run(&mut cargo)
}

/// The same as a step that no change fails by: an advisory that appears in the world is no fault of
/// the change that is checked that day, and neither is a network that is down.
pub(crate) fn say() -> Result<(), Error> {
    if let Err(error) = run() {
        println!("advisories: {error}; CI goes on, see CONTRIBUTING.md");
    }
    Ok(())
}
