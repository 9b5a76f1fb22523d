//! Programs that take the place of this one, for `coreline preload`.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Runs the command in place of this process. Returns only if that fails.
pub fn exec(command: &mut Command) -> io::Error {
    command.exec()
}

/// Returns whether the program of this file runs with the rights of the file's user or group. The
/// dynamic linker then ignores most of the environment.
///
/// # Errors
///
/// An error if the file's mode cannot be read.
pub fn runs_as_owner(file: &Path) -> io::Result<bool> {
    const SET_USER_OR_GROUP: u32 = 0o6000;
    Ok(file.metadata()?.permissions().mode() & SET_USER_OR_GROUP != 0)
}

/// Returns whether the file is executable: at least one of its execute bits is set.
pub fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
