//! The verb `preload`: runs a program with `libcoreline_pthread.so` in front of the C library.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{self, Path, PathBuf};
use std::process::Command;
use std::{env, iter};

use clap::{Args, ValueHint};
use coreline_world::native::{exec, is_executable, runs_as_owner};

const LIBRARY: &str = "libcoreline_pthread.so";

/// The variable that the dynamic linker reads.
const PRELOAD: &str = "LD_PRELOAD";

/// The variable that the library reads.
const STATS: &str = "CORELINE_PRELOAD_STATS";

#[derive(Args)]
pub(crate) struct Choice {
    /// Print at exit which locks were busy and which callers waited, on standard error or at the
    /// end of FILE; counting makes lock calls slower
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "-",
        value_hint = ValueHint::FilePath
    )]
    stats: Option<OsString>,
    /// The path of libcoreline_pthread.so, which `cargo build --release -p coreline-preload`
    /// builds; the default is the file of this name in this program's folder
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    library: Option<PathBuf>,
    /// The program, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM",
        value_hint = ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
}

/// Why a program could not be run with the library.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreloadError {
    #[error(
        "there is no library {}; build it with `cargo build --release -p coreline-preload`, or \
         give its path with --library",
        .0.display()
    )]
    NoLibrary(PathBuf),
    #[error(
        "{PRELOAD} cannot name {}, whose path has a space or a colon; move the library, or give \
         another path with --library",
        .0.display()
    )]
    Path(PathBuf),
    #[error("{} is not a library; give the path of {LIBRARY} with --library", .0.display())]
    NotElf(PathBuf),
    #[error("there is no program {}; give its path, or check PATH", .0.display())]
    NoProgram(PathBuf),
    #[error(
        "{} is linked statically, so no library can replace its functions; link it dynamically",
        .0.display()
    )]
    Static(PathBuf),
    #[error(
        "{} is loaded by {loader}, but the library needs glibc 2.34 or later; build the program \
         for glibc",
        path.display()
    )]
    OtherLibc { path: PathBuf, loader: String },
    #[error(
        "{} is for another processor than {}; build the library for the program's processor",
        program.display(), library.display()
    )]
    OtherProcessor { program: PathBuf, library: PathBuf },
    #[error(
        "{} is setuid or setgid, so the dynamic linker ignores {PRELOAD}; run a copy without that \
         mode, as the user or group whose rights it needs",
        .0.display()
    )]
    AsOwner(PathBuf),
    #[error("cannot read {}: {source}; make it readable", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot run {}: {source}", path.display())]
    Exec { path: PathBuf, source: io::Error },
}

/// Runs the program in the place of this process. Returns only if that fails.
pub(crate) fn preload(choice: &Choice) -> PreloadError {
    match command(choice) {
        Ok((path, mut command)) => PreloadError::Exec { path, source: exec(&mut command) },
        Err(error) => error,
    }
}

/// The program's file, and the command that runs it.
fn command(choice: &Choice) -> Result<(PathBuf, Command), PreloadError> {
    let library = library(choice.library.as_deref())?;
    let (name, arguments) = choice.command.split_first().expect("clap asks for one");
    let program = find(name).ok_or_else(|| PreloadError::NoProgram(name.into()))?;
    check(&program, &library)?;
    let before = env::var_os(PRELOAD).filter(|before| !before.is_empty());
    let preloads: Vec<_> = iter::once(library.into_os_string()).chain(before).collect();
    let mut command = Command::new(name);
    command.args(arguments).env(PRELOAD, preloads.join(OsStr::new(":")));
    match &choice.stats {
        Some(output) if output == "-" => command.env(STATS, output),
        // The program may change its working directory.
        Some(output) => {
            command.env(STATS, path::absolute(output).unwrap_or_else(|_| output.into()))
        }
        None => command.env_remove(STATS),
    };
    Ok((program, command))
}

/// The whole path of the library, whatever folder the program will be in.
fn library(given: Option<&Path>) -> Result<PathBuf, PreloadError> {
    let beside = || env::current_exe().unwrap_or_default().with_file_name(LIBRARY);
    let path = given.map_or_else(beside, Path::to_owned);
    let path = path.canonicalize().map_err(|_| PreloadError::NoLibrary(path))?;
    match path.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        true => Err(PreloadError::Path(path)),
        false => Ok(path),
    }
}

/// The file that `execvp` would run.
fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| is_executable(path));
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

/// Whether the dynamic linker would load the library into the program.
fn check(program: &Path, library: &Path) -> Result<(), PreloadError> {
    let read = |path| File::open(path).and_then(|file| Elf::read(&file));
    let failed = |source| PreloadError::Read { path: library.to_owned(), source };
    let Some(of_library) = read(library).map_err(failed)? else {
        return Err(PreloadError::NotElf(library.to_owned()));
    };
    // A script is run by another program. A program that the caller may run and not read is left
    // to the dynamic linker.
    let Ok(Some(elf)) = read(program) else { return Ok(()) };
    if (elf.class, elf.machine) != (of_library.class, of_library.machine) {
        let (program, library) = (program.to_owned(), library.to_owned());
        return Err(PreloadError::OtherProcessor { program, library });
    }
    if runs_as_owner(program).unwrap_or(false) {
        return Err(PreloadError::AsOwner(program.to_owned()));
    }
    match elf.loader {
        None => Err(PreloadError::Static(program.to_owned())),
        Some(loader) if loader.contains("ld-musl") => {
            Err(PreloadError::OtherLibc { path: program.to_owned(), loader })
        }
        Some(_) => Ok(()),
    }
}

/// The header of a program or library.
#[derive(Debug, PartialEq, Eq)]
struct Elf {
    /// Whether the file is for 32 or 64 bits, and its byte order.
    class: [u8; 2],
    machine: u16,
    /// The dynamic linker; none in a library, and in a program that is linked statically.
    loader: Option<String>,
}

impl Elf {
    /// `None` if the file is neither.
    fn read(mut file: impl Read + Seek) -> io::Result<Option<Self>> {
        /// As in `elf.h`.
        const INTERPRETER: u32 = 3;
        const OF_64_BITS: u8 = 2;
        let mut header = [0; 64];
        match file.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        if !header.starts_with(b"\x7fELF") {
            return Ok(None);
        }
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, &it| all << 8 | u64::from(it));
        let class = [header[4], header[5]];
        let mut elf = Elf { class, machine: number(&header[18..20]) as u16, loader: None };
        if class[0] != OF_64_BITS {
            // Its other fields are elsewhere, and the class says enough.
            return Ok(Some(elf));
        }
        let (at, size) = (number(&header[32..40]), number(&header[54..56]));
        for part in 0..number(&header[56..58]) {
            let mut entry = [0; 56];
            file.seek(SeekFrom::Start(at.saturating_add(part * size)))?;
            file.read_exact(&mut entry)?;
            if number(&entry[..4]) == u64::from(INTERPRETER) {
                let mut name = Vec::new();
                file.seek(SeekFrom::Start(number(&entry[8..16])))?;
                // No path is longer.
                file.by_ref().take(number(&entry[32..40]).min(4096)).read_to_end(&mut name)?;
                name.retain(|&byte| byte != 0);
                elf.loader = Some(String::from_utf8_lossy(&name).into_owned());
            }
        }
        Ok(Some(elf))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A file with one part of this type, whose text is this.
    fn file(class: u8, machine: u8, part: u8, text: &str) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        (file[18], file[32], file[54], file[56]) = (machine, 64, 56, 1);
        (file[64], file[64 + 8], file[64 + 32]) = (part, 120, text.len() as u8);
        file.extend(text.as_bytes());
        file
    }

    fn read(file: Vec<u8>) -> Option<Elf> {
        Elf::read(Cursor::new(file)).unwrap()
    }

    #[test]
    fn a_header_has_the_processor_and_the_loader() {
        let elf = |machine, loader: Option<&str>| {
            Some(Elf { class: [2, 1], machine, loader: loader.map(str::to_owned) })
        };
        assert_eq!(read(file(2, 62, 3, "/lib/ld.so\0")), elf(62, Some("/lib/ld.so")));
        assert_eq!(read(file(2, 183, 1, "/lib/ld.so\0")), elf(183, None));
        assert_eq!(read(file(1, 3, 3, "/lib/ld.so\0")).unwrap().class, [1, 1]);
        assert_eq!(read(b"#!/bin/sh\n".to_vec()), None);
        assert_eq!(read(vec![b'#'; 100]), None);
        let mut torn = file(2, 62, 3, "");
        torn.truncate(80);
        assert!(Elf::read(Cursor::new(torn)).is_err());
    }
}
