//! What a guest needs besides our programs, from Debian's packages: a kernel and BusyBox.
//!
//! Nothing is installed: `apt-get` keeps its lists, and we what we unpack, in a folder of ours. So
//! packages for another processor can be fetched without telling this machine's package manager.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::error::Error;
use crate::target::{Arch, require};
use crate::workspace;

/// The folder, and the processor, that packages are fetched for.
#[derive(Debug)]
pub(crate) struct Debian {
    arch: Arch,
    folder: PathBuf,
}

impl Debian {
    pub(crate) fn new(arch: Arch, folder: &Path) -> Debian {
        Debian { arch, folder: folder.join("debian") }
    }

    /// The kernel of this machine's Debian release.
    pub(crate) fn kernel(&self) -> Result<PathBuf, Error> {
        let name = "linux-image";
        self.cached(name, || {
            // The package of that name only depends on the one with the kernel in it.
            let newest = format!("linux-image-{}", self.arch.debian());
            self.update()?;
            let depends = workspace::output(self.apt("apt-cache")?.args(["depends", &newest]))?;
            let depends = String::from_utf8_lossy(&depends);
            let package = depended(&depends).ok_or_else(|| Error::Missing {
                what: format!("a package with a kernel among the dependencies of {newest}"),
                remedy: "give a kernel with --kernel FILE".to_owned(),
            })?;
            self.unpack(package, name, "boot", |file| file.starts_with("vmlinuz-"))
        })
    }

    /// A statically linked BusyBox.
    pub(crate) fn busybox(&self) -> Result<PathBuf, Error> {
        let name = "busybox";
        self.cached(name, || {
            self.update()?;
            self.unpack("busybox-static", name, "bin", |file| file == "busybox")
        })
    }

    /// The file of this name in our folder, which `fetch` puts there if it is not.
    fn cached(&self, name: &str, fetch: impl Fn() -> Result<(), Error>) -> Result<PathBuf, Error> {
        let file = self.folder.join(name);
        if !file.is_file() {
            println!("fetching {name} for {} into {}", self.arch.debian(), self.folder.display());
            fetch()?;
        }
        Ok(file)
    }

    /// Brings the lists of packages up to date.
    fn update(&self) -> Result<(), Error> {
        for folder in ["lists/partial", "cache/archives/partial"] {
            let folder = self.folder.join(folder);
            fs::create_dir_all(&folder)
                .map_err(|source| Error::Write { path: folder.clone(), source })?;
        }
        workspace::run(self.apt("apt-get")?.args(["-qq", "update"]))
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
        Ok(apt)
    }

    /// Keeps one file of a package under `name`: that in the package's `folder` which `is_it`
    /// knows.
    fn unpack(
        &self,
        package: &str,
        name: &str,
        folder: &str,
        is_it: impl Fn(&str) -> bool,
    ) -> Result<(), Error> {
        let cannot_read = |path: &Path, source| Error::Read { path: path.to_owned(), source };
        let cannot_write = |path: &Path, source| Error::Write { path: path.to_owned(), source };
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
        let downloaded = only_file(&scratch, |file| file.ends_with(".deb"))
            .map_err(|source| cannot_read(&scratch, source))?;
        let root = scratch.join("root");
        let mut extract = workspace::command("dpkg-deb", &["--extract"]);
        workspace::run(extract.arg(&downloaded).arg(&root))?;
        let folder = root.join(folder);
        let found = only_file(&folder, is_it).map_err(|source| cannot_read(&folder, source))?;
        let kept = self.folder.join(name);
        fs::rename(found, &kept).map_err(|source| cannot_write(&kept, source))?;
        fs::remove_dir_all(&scratch).map_err(|source| cannot_write(&scratch, source))
    }
}

/// The package that `apt-cache depends` names first.
fn depended(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix("Depends: ")).map(str::trim_end)
}

/// The file in `folder` whose name is the one looked for.
fn only_file(folder: &Path, is_it: impl Fn(&str) -> bool) -> io::Result<PathBuf> {
    let files = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let found = files.iter().find(|file| is_it(&file.file_name().to_string_lossy()));
    found.map(fs::DirEntry::path).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dependency_is_found() {
        let text = "linux-image-arm64\n  Depends: linux-image-6.1.0-9-arm64\n  Depends: other\n";
        assert_eq!(depended(text), Some("linux-image-6.1.0-9-arm64"));
        assert_eq!(depended("linux-image-arm64\n"), None);
    }
}
