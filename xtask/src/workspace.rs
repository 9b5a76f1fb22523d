//! The workspace that this program belongs to, and the commands it runs there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use serde_json::Value;

use crate::error::Error;

/// The root of the workspace: the folder above this package's.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// A command that runs in the root.
pub(crate) fn command(program: impl AsRef<OsStr>, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// The cargo that runs us, or the one on the PATH.
pub(crate) fn cargo(args: &[&str]) -> Command {
    command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), args)
}

/// Runs a command whose output goes where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<(), Error> {
    let status =
        command.status().map_err(|source| Error::Start { command: line(command), source })?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::Failed { command: line(command), status }),
    }
}

/// Runs a command and returns what it wrote to its standard output.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, Error> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| Error::Start { command: line(command), source })?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(Error::Failed { command: line(command), status: output.status }),
    }
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_stem().unwrap_or_default();
    let words = [program].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// What cargo knows of the packages of the workspace.
pub(crate) fn metadata() -> Result<Value, Error> {
    metadata_with(&["--no-deps"])
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder() -> Result<PathBuf, Error> {
    let metadata = metadata()?;
    let folder = metadata["target_directory"].as_str().map(PathBuf::from);
    folder.ok_or(Error::Metadata { what: "target directory" })
}

/// What cargo knows of all packages that this machine's programs are built from, with whatever
/// features.
pub(crate) fn metadata_of_all() -> Result<Value, Error> {
    let compiler = output(&mut command("rustc", &["--version", "--verbose"]))?;
    let compiler = String::from_utf8_lossy(&compiler);
    let host = compiler.lines().find_map(|line| line.strip_prefix("host: "));
    // Without this cargo would fetch the packages of other systems, too.
    let host = host.ok_or_else(|| Error::Missing {
        what: "a line `host:` in what `rustc --version --verbose` says".to_owned(),
        remedy: "set PATH so that it finds rustc itself".to_owned(),
    })?;
    metadata_with(&["--all-features", "--filter-platform", host])
}

fn metadata_with(args: &[&str]) -> Result<Value, Error> {
    let json = output(cargo(&["metadata", "--format-version", "1"]).args(args))?;
    serde_json::from_slice(&json).map_err(|_| Error::Metadata { what: "JSON" })
}

/// The paths, relative to the root, of all files that are or could be committed.
pub(crate) fn files() -> Result<Vec<String>, Error> {
    // A user who runs this program trusts the folder already. Without this, git would ask for that
    // where the folder belongs to another user, as it does in many a container.
    let trust = format!("safe.directory={}", root().display());
    let list = ["-c", &trust, "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let names = output(&mut command("git", &list))?;
    let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<_> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// The text of a file below the root.
pub(crate) fn read(path: impl AsRef<Path>) -> Result<String, Error> {
    let path = root().join(path);
    fs::read_to_string(&path).map_err(|source| Error::Read { path, source })
}

/// The bytes of a file, below the root or anywhere.
pub(crate) fn read_bytes(path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
    let path = root().join(path);
    fs::read(&path).map_err(|source| Error::Read { path, source })
}

/// Writes a file below the root, and the folders above it.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    let path: PathBuf = root().join(path);
    let folder = path.parent().unwrap_or(root());
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&path, text))
        .map_err(|source| Error::Write { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_that_a_feature_asks_for_are_known() {
        let metadata = metadata_of_all().expect("cargo runs");
        let packages = metadata["packages"].as_array().expect("cargo's format");
        for name in ["tikv-jemalloc-sys", "snmalloc-sys"] {
            assert!(packages.iter().any(|it| it["name"] == name), "{name} is not there");
        }
    }
}
