//! What a guest needs besides our programs, from Debian's packages: a kernel, BusyBox, and the C
//! library of another release.
//!
//! Nothing is installed: `apt-get` keeps its lists, and we what we unpack, in a folder of ours for
//! each suite. So packages for another processor, or of another suite, can be fetched without
//! telling this machine's package manager.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::error::Error;
use crate::target::{Arch, require};
use crate::workspace;

/// The keys that sign Debian's suites, where Debian's package of them puts them.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The folder, the processor and the suite that packages are fetched for.
#[derive(Debug)]
pub(crate) struct Debian {
    arch: Arch,
    folder: PathBuf,
    /// `None`: what this machine's package manager knows.
    suite: Option<String>,
    /// Whether the lists of packages are up to date.
    is_updated: Cell<bool>,
}

impl Debian {
    pub(crate) fn new(arch: Arch, folder: &Path, suite: Option<&str>) -> Debian {
        let name = suite.map_or_else(|| "debian".to_owned(), |suite| format!("debian-{suite}"));
        let (folder, suite) = (folder.join(name), suite.map(str::to_owned));
        Debian { arch, folder, suite, is_updated: Cell::new(false) }
    }

    /// The newest kernel of the suite.
    pub(crate) fn kernel(&self) -> Result<PathBuf, Error> {
        let name = "linux-image";
        if !self.has(&[name]) {
            let package = self.kernel_package()?;
            self.unpack(&package, &[name], |_, file| file.starts_with("vmlinuz"))?;
        }
        Ok(self.folder.join(name))
    }

    /// The package that has the kernel in it. The package with the name that does not change only
    /// depends on it: at once, or through others.
    fn kernel_package(&self) -> Result<String, Error> {
        self.update()?;
        let mut package = format!("linux-image-{}", self.arch.debian());
        loop {
            let depends = workspace::output(self.apt("apt-cache")?.args(["depends", &package]))?;
            match kernel_among(&String::from_utf8_lossy(&depends)) {
                Some(next) => package = next.to_owned(),
                None => return Ok(package),
            }
        }
    }

    /// A statically linked BusyBox.
    pub(crate) fn busybox(&self) -> Result<PathBuf, Error> {
        let name = "busybox";
        if !self.has(&[name]) {
            self.unpack("busybox-static", &[name], |name, file| file == name)?;
        }
        Ok(self.folder.join(name))
    }

    /// The files of the suite's glibc, and of the compiler's library, with these names.
    pub(crate) fn libraries(&self, names: &[&str]) -> Result<Vec<PathBuf>, Error> {
        if !self.has(names) {
            let of_compiler = |name: &&str| name.starts_with("libgcc");
            for (package, is_compilers) in [("libc6", false), ("libgcc-s1", true)] {
                let names = names.iter().copied();
                let names: Vec<_> =
                    names.filter(|name| of_compiler(name) == is_compilers).collect();
                self.unpack(package, &names, |name, file| file == name)?;
            }
        }
        Ok(names.iter().map(|name| self.folder.join(name)).collect())
    }

    /// Whether our folder has these files.
    fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.folder.join(name).is_file())
    }

    /// Brings the lists of packages up to date.
    fn update(&self) -> Result<(), Error> {
        if self.is_updated.get() {
            return Ok(());
        }
        for folder in ["lists/partial", "cache/archives/partial"] {
            let folder = self.folder.join(folder);
            fs::create_dir_all(&folder)
                .map_err(|source| Error::Write { path: folder.clone(), source })?;
        }
        if let Some(suite) = &self.suite {
            let signed = if Path::new(KEYS).is_file() {
                format!(" [signed-by={KEYS}]")
            } else {
                String::new()
            };
            let line = format!("deb{signed} {} {suite} main\n", mirror()?);
            workspace::write(&self.sources(), &line)?;
        }
        workspace::run(self.apt("apt-get")?.args(["-qq", "update"]))?;
        self.is_updated.set(true);
        Ok(())
    }

    fn sources(&self) -> PathBuf {
        self.folder.join("sources.list")
    }

    fn apt(&self, program: &str) -> Result<Command, Error> {
        let remedy = "without Debian's package tools, give both --kernel FILE and --busybox FILE";
        require(program, remedy)?;
        let arch = self.arch.debian();
        let folder = self.folder.display();
        let mut apt = workspace::command(program, &[]);
        apt.current_dir(&self.folder);
        for option in [
            format!("APT::Architecture={arch}"),
            format!("APT::Architectures={arch}"),
            format!("Dir::State::Lists={folder}/lists"),
            format!("Dir::Cache={folder}/cache"),
            // Its own user may not write into a folder of ours.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
        ] {
            apt.args(["-o", &option]);
        }
        if self.suite.is_some() {
            let sources = format!("Dir::Etc::SourceList={}", self.sources().display());
            apt.args(["-o", &sources, "-o", "Dir::Etc::SourceParts=-"]);
        }
        Ok(apt)
    }

    /// Keeps files of a package, each under its name here: that which `is_it` says of its name here
    /// and its name there.
    fn unpack(
        &self,
        package: &str,
        names: &[&str],
        is_it: impl Fn(&str, &str) -> bool,
    ) -> Result<(), Error> {
        let cannot_read = |path: &Path, source| Error::Read { path: path.to_owned(), source };
        let cannot_write = |path: &Path, source| Error::Write { path: path.to_owned(), source };
        println!("fetching {package} into {}", self.folder.display());
        self.update()?;
        // Anything there was left by an interrupted run.
        let scratch = self.folder.join("unpack");
        match fs::remove_dir_all(&scratch) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(cannot_write(&scratch, source));
            }
            _ => fs::create_dir_all(&scratch).map_err(|source| cannot_write(&scratch, source))?,
        }
        let mut download = self.apt("apt-get")?;
        workspace::run(download.args(["-qq", "download", package]).current_dir(&scratch))?;
        let downloaded = found_in(&scratch, |file| file.ends_with(".deb"))
            .map_err(|source| cannot_read(&scratch, source))?;
        let root = scratch.join("root");
        let mut extract = workspace::command("dpkg-deb", &["--extract"]);
        workspace::run(extract.arg(&downloaded).arg(&root))?;
        for name in names {
            let found = found_in(&root, |file| is_it(name, file))
                .map_err(|source| cannot_read(&root, source))?;
            let kept = self.folder.join(name);
            fs::rename(found, &kept).map_err(|source| cannot_write(&kept, source))?;
        }
        fs::remove_dir_all(&scratch).map_err(|source| cannot_write(&scratch, source))
    }
}

/// Where this machine's package manager gets Debian's packages from.
///
/// # Errors
///
/// If it does not get any: on another system.
pub(crate) fn mirror() -> Result<String, Error> {
    let remedy = "give a kernel with --kernel FILE";
    require("apt-get", remedy)?;
    let format = "$(ORIGIN) $(LABEL) $(REPO_URI)";
    let arguments = ["indextargets", "--format", format, "Created-By: Packages"];
    let targets = workspace::output(&mut workspace::command("apt-get", &arguments))?;
    let targets = String::from_utf8_lossy(&targets).into_owned();
    let mirror = targets.lines().find_map(|line| line.strip_prefix("Debian Debian "));
    mirror.map(str::to_owned).ok_or_else(|| Error::Missing {
        what: "a source of Debian's packages among those of apt-get".to_owned(),
        remedy: remedy.to_owned(),
    })
}

/// The package with a kernel among what `apt-cache depends` names: one with the kernel alone, or
/// one that has it with its modules or depends on the former.
fn kernel_among(text: &str) -> Option<&str> {
    let depends =
        || text.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")).map(str::trim);
    let named = |start: &'static str| depends().find(move |name| name.starts_with(start));
    named("linux-binary-").or_else(|| named("linux-image-"))
}

/// The file in `folder`, at any depth, whose name is the one looked for. Links do not count.
fn found_in(folder: &Path, is_it: impl Fn(&str) -> bool) -> io::Result<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && is_it(&entry.file_name().to_string_lossy()) {
                return Ok(entry.path());
            }
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_found_among_dependencies() {
        let text = "linux-image-arm64\n  Depends: linux-image-6.1.0-9-arm64\n  Depends: other\n";
        assert_eq!(kernel_among(text), Some("linux-image-6.1.0-9-arm64"));
        assert_eq!(kernel_among("linux-image-6.1.0-9-arm64\n  Depends: kmod\n"), None);
        let text = "linux-image-7.3.4-amd64\n |Depends: dracut\n  Depends: linux-base-7.3.4\n  \
                    Depends: linux-binary-7.3.4-amd64\n  Depends: linux-image-7.3.4-amd64-x\n";
        assert_eq!(kernel_among(text), Some("linux-binary-7.3.4-amd64"));
    }

    #[test]
    fn a_file_is_found_at_any_depth() {
        let here = workspace::root().join("xtask");
        let found = found_in(&here, |name| name == "init.sh").expect("it is there");
        assert!(found.ends_with("src/guest/init.sh"));
        let error = found_in(&here, |name| name == "no such file").expect_err("it is not there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
