//! Other processors and C libraries than those that this program was built for.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::error::Error;
use crate::workspace;

/// The packages whose code or tests differ between machines.
pub(crate) const NATIVE_PACKAGES: &str = "-p coreline-topology -p coreline-world -p coreline";

/// Parts of the names of tests that run in no native world. They show the same on every machine,
/// and take most of the time.
pub(crate) const NOT_NATIVE: [&str; 7] = [
    "model::",
    "every_interleaving",
    "simulat",
    "schedules",
    "under_preemption",
    "is_caught",
    "are_caught",
];

/// Targets without Linux, on which what programs are built from must compile.
pub(crate) const ELSEWHERE: [&str; 2] = ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Libc {
    /// From the linker's own folders, linked dynamically.
    Glibc,
    /// Rust's own copy, linked statically.
    Musl,
}

/// What a program is built for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) arch: Arch,
    pub(crate) libc: Libc,
}

impl Arch {
    /// As rustc, QEMU and the C tools name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        }
    }

    /// As Debian names it.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Arch::X86_64 => "amd64",
            Arch::Aarch64 => "arm64",
        }
    }

    /// The processor that runs this program, if it is one of these.
    pub(crate) fn host() -> Option<Arch> {
        [Arch::X86_64, Arch::Aarch64].into_iter().find(|arch| arch.name() == env::consts::ARCH)
    }

    /// A tool of the C compiler's collection that works on this processor's programs: this
    /// machine's own, or the cross tool as Debian names it.
    fn tool(self, own: &str, cross: &str) -> Result<String, Error> {
        if Arch::host() == Some(self) {
            return require(own, "install a C compiler");
        }
        // Debian writes package names with hyphens.
        let (name, package) = (self.name(), self.name().replace('_', "-"));
        let libc = format!("libc6-dev-{}-cross", self.debian());
        let remedy =
            format!("install a cross compiler (in Debian gcc-{package}-linux-gnu, {libc})");
        require(&format!("{name}-linux-gnu-{cross}"), &remedy)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let libc = match self.libc {
            Libc::Glibc => "gnu",
            Libc::Musl => "musl",
        };
        write!(f, "{}-unknown-linux-{libc}", self.arch.name())
    }
}

impl Target {
    fn linker(self) -> Result<String, Error> {
        self.arch.tool("cc", "gcc")
    }

    fn strip(self) -> Result<String, Error> {
        self.arch.tool("strip", "strip")
    }

    /// Asks for all that building for this target needs.
    ///
    /// # Errors
    ///
    /// If something is not there: Rust's standard library for the target, or a linker.
    pub(crate) fn check(self) -> Result<(), Error> {
        check_std(&self.to_string())?;
        self.linker()?;
        self.strip()?;
        Ok(())
    }

    /// Whether it is what cargo builds for unless it is told otherwise: this program was.
    pub(crate) fn is_host(self) -> bool {
        Arch::host() == Some(self.arch)
            && cfg!(target_env = "gnu")
            && matches!(self.libc, Libc::Glibc)
    }

    /// A cargo that builds for this target: the verb and what goes with it is `line`.
    pub(crate) fn cargo(self, line: &str) -> Result<Command, Error> {
        let triple = self.to_string();
        let mut words = line.split(' ').collect::<Vec<_>>();
        words.splice(1..1, ["--target", &triple]);
        let mut cargo = workspace::cargo(&words);
        let variable = triple.to_uppercase().replace('-', "_");
        cargo.env(format!("CARGO_TARGET_{variable}_LINKER"), self.linker()?);
        Ok(cargo)
    }

    /// A program's bytes without its debug information, which is most of them.
    pub(crate) fn stripped(self, program: &Path, scratch: &Path) -> Result<Vec<u8>, Error> {
        let mut strip = workspace::command(self.strip()?, &["--strip-debug", "-o"]);
        workspace::run(strip.arg(scratch).arg(program))?;
        workspace::read_bytes(scratch)
    }

    /// Where a program looks for the C library's files that it needs at run time.
    pub(crate) fn places_of_libraries(self) -> Vec<&'static str> {
        let loader = match (self.libc, self.arch) {
            (Libc::Musl, _) => return Vec::new(),
            (Libc::Glibc, Arch::X86_64) => "lib64/ld-linux-x86-64.so.2",
            (Libc::Glibc, Arch::Aarch64) => "lib/ld-linux-aarch64.so.1",
        };
        vec![loader, "lib/libc.so.6", "lib/libgcc_s.so.1", "lib/libm.so.6"]
    }

    /// These files, of the C library that belongs to the linker.
    pub(crate) fn libraries(self) -> Result<Vec<PathBuf>, Error> {
        let linker = self.linker()?;
        let find = |name: &'static str| {
            let file = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
            let ask = format!("-print-file-name={file}");
            let found = workspace::output(&mut workspace::command(&linker, &[&ask]))?;
            let found = PathBuf::from(String::from_utf8_lossy(&found).trim_end());
            // The compiler prints the name of a file that it does not find as it was given.
            match found.is_absolute() {
                true => Ok(found),
                false => Err(Error::Missing {
                    what: format!("{file}, which programs for {self} need"),
                    remedy: format!("install the C library that belongs to {linker}, or use musl"),
                }),
            }
        };
        self.places_of_libraries().into_iter().map(find).collect()
    }
}

/// Asks for Rust's standard library for a target, by the name that rustc has for it.
///
/// # Errors
///
/// If it is not there.
pub(crate) fn check_std(triple: &str) -> Result<(), Error> {
    let print = ["--print", "target-libdir", "--target", triple];
    let folder = workspace::output(&mut workspace::command("rustc", &print))?;
    match Path::new(String::from_utf8_lossy(&folder).trim_end()).is_dir() {
        true => Ok(()),
        false => Err(Error::Missing {
            what: format!("Rust's standard library for {triple}"),
            remedy: format!("run `rustup target add {triple}`"),
        }),
    }
}

/// The name of a program that is on the PATH.
pub(crate) fn require(name: &str, remedy: &str) -> Result<String, Error> {
    let path = env::var_os("PATH").unwrap_or_default();
    match env::split_paths(&path).any(|folder| folder.join(name).is_file()) {
        true => Ok(name.to_owned()),
        false => Err(Error::Missing {
            what: format!("the program {name}"),
            remedy: format!("{remedy}, or put it on the PATH"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_named_as_rustc_names_them() {
        let target = Target { arch: Arch::X86_64, libc: Libc::Musl };
        assert_eq!(target.to_string(), "x86_64-unknown-linux-musl");
        let target = Target { arch: Arch::Aarch64, libc: Libc::Glibc };
        assert_eq!(target.to_string(), "aarch64-unknown-linux-gnu");
    }

    #[test]
    fn a_missing_program_is_named_with_its_remedy() {
        let message = require("no-such-program", "install it").unwrap_err().to_string();
        assert!(message.contains("no-such-program") && message.contains("install it"), "{message}");
        assert_eq!(require("sh", "").expect("every Unix has it"), "sh");
    }
}
