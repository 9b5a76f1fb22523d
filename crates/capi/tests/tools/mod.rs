//! What the tests of C programs share: the library as `install.sh` installs it, or as it lies in
//! the folder that `CORELINE_INSTALLED` names, and tools that may be missing.

#![allow(clippy::print_stderr, reason = "a test says what it does not test")]

use std::env::{self, consts};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A folder with all that is installed and compiled, for one run.
pub(crate) fn work() -> &'static Path {
    static WORK: OnceLock<PathBuf> = OnceLock::new();
    WORK.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder of cargo's for tests");
        install(&built(), &folder.join("installed"));
        folder
    })
}

/// Where cargo has put the libraries: beside this test program, or one folder above.
pub(crate) fn built() -> PathBuf {
    let program = env::current_exe().expect("Linux knows it");
    let beside = program.parent().expect("a folder");
    let folders = [Some(beside), beside.parent()].into_iter().flatten();
    let name = format!("{}coreline_capi.a", consts::DLL_PREFIX);
    let mut folders = folders.filter(|folder| folder.join(&name).exists());
    folders.next().unwrap_or_else(|| panic!("no {name} beside {}", program.display())).to_owned()
}

pub(crate) fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn install(built: &Path, prefix: &Path) {
    let mut install = Command::new("sh");
    install.arg(package().join("install.sh")).arg(built).arg(prefix);
    run(&mut install);
}

/// Where the library is installed.
pub(crate) fn prefix() -> PathBuf {
    let named = env::var_os("CORELINE_INSTALLED").map(PathBuf::from);
    named.unwrap_or_else(|| work().join("installed"))
}

/// Whether a tool is here. Says so if it is not.
pub(crate) fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        eprintln!("not tested: {tool} is not installed");
    }
    found
}

pub(crate) fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Runs a command that must succeed; returns what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = output(command);
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
    stdout.into_owned()
}

/// What Rust's standard library needs, as in the pkg-config file.
pub(crate) const STATIC: &[&str] = &["-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];
