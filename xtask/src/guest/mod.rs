//! `cargo xtask guest`: the native tests under another kernel, on an emulated machine.
//!
//! Builds the tests, packs them into an archive that the kernel unpacks as its file system, boots
//! it in QEMU, and reads from the serial console how they end. docs/running-elsewhere.md says what
//! such a run shows and what it cannot.

mod cpio;
mod debian;
mod pairs;
mod programs;
mod qemu;
mod verdict;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use cpio::Archive;
use debian::Debian;
pub(crate) use pairs::{Choice, run as run_pairs, step};
use programs::{Built, Program};
use qemu::{Guest, Shape};
use verdict::{JSON, Line, Verdict};

use crate::error::Error;
use crate::target::{Arch, Libc, NOT_NATIVE, Target};
use crate::workspace;

/// The guest's first process.
const INIT: &str = include_str!("init.sh");

/// How much longer the guest may be silent than a program may take: it boots, and ends programs at
/// their limit.
const GRACE: Duration = Duration::from_secs(180);

/// How often a guest is started that does not get as far as its first process: emulated, a kernel
/// now and then panics over time that another machine's load took from it.
const BOOTS: u32 = 3;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The guest's processor
    #[arg(long, value_enum, default_value = "x86_64")]
    arch: Arch,
    /// The C library to build for
    #[arg(long, value_enum, default_value = "glibc")]
    libc: Libc,
    /// CPUs of the guest, spread evenly over its nodes
    #[arg(long, default_value_t = 16)]
    cpus: u32,
    /// NUMA nodes of the guest
    #[arg(long, default_value_t = 4)]
    nodes: u32,
    /// Kernel to boot [default: that of this machine's Debian release]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Debian suite whose newest kernel to boot, such as sid
    #[arg(long, value_name = "SUITE", conflicts_with = "kernel")]
    suite: Option<String>,
    /// Debian suite whose glibc the guest has [default: the linker's glibc]
    #[arg(long, value_name = "SUITE", conflicts_with = "libc")]
    glibc_from: Option<String>,
    /// Statically linked BusyBox for the guest's processor [default: Debian's]
    #[arg(long, value_name = "FILE")]
    busybox: Option<PathBuf>,
    /// Environment variable for the programs, such as CORELINE_RSEQ=off; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Only the programs with this in their names, such as world/; may be repeated
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Also the tests that are simulated or model-checked, though they show the same everywhere
    #[arg(long)]
    all_worlds: bool,
    /// Seconds that each program may take
    #[arg(long, default_value_t = 900)]
    limit: u32,
    /// Arguments for every test program, such as a filter on names
    #[arg(last = true, value_name = "TEST ARGUMENTS")]
    arguments: Vec<String>,
}

/// A program that the guest runs.
struct Run {
    name: String,
    /// Where in the guest it runs, and what it is and is given, as the guest's shell reads it.
    folder: String,
    line: String,
}

pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let (_, done) = Kit::new(options)?.boot(options)?;
    done
}

/// What guests of one target have in common.
struct Kit {
    target: Target,
    /// Where what is fetched and made is kept.
    folder: PathBuf,
    built: Built,
}

impl Kit {
    fn new(options: &Options) -> Result<Kit, Error> {
        let target = Target { arch: options.arch, libc: options.libc };
        let folder = workspace::target_folder()?.join("guest").join(options.arch.name());
        fs::create_dir_all(&folder)
            .map_err(|source| Error::Write { path: folder.clone(), source })?;
        // Looks for what may be missing before anything is fetched or built.
        target.check()?;
        shape(options).command()?;
        Files::of(options, target, &folder)?;
        Ok(Kit { target, folder, built: Built::new(target)? })
    }

    /// Runs the programs in a guest, and prints how they ended. The inner error: one did not pass,
    /// or the guest stopped before it had run all.
    fn boot(&self, options: &Options) -> Result<(Verdict, Result<(), Error>), Error> {
        let files = Files::of(options, self.target, &self.folder)?;
        let mut archive = Archive::default();
        for (place, file) in self.target.places_of_libraries().into_iter().zip(files.libraries) {
            archive.file(Path::new(place), &workspace::read_bytes(&file)?)?;
        }
        let runs = self.pack(&mut archive, options)?;
        archive.file(Path::new("bin/busybox"), &workspace::read_bytes(&files.busybox)?)?;
        let archive = archive.finish()?;
        let initramfs = self.folder.join("initramfs.cpio");
        fs::write(&initramfs, &archive)
            .map_err(|source| Error::Write { path: initramfs.clone(), source })?;
        println!("{} programs, {} MiB", runs.len(), archive.len() >> 20);

        let start = Instant::now();
        let silence = Duration::from_secs(u64::from(options.limit)) + GRACE;
        let guest = || {
            let mut qemu = shape(options).command()?;
            qemu.arg("-kernel").arg(&files.kernel).arg("-initrd").arg(&initramfs);
            println!("==> boot: {}", workspace::line(&qemu));
            Guest::start(qemu)
        };
        let (verdict, listened) = boot(guest, silence, runs.len());

        println!("\nguest: verdict after {:.0} s", start.elapsed().as_secs_f64());
        for Run { name, .. } in &runs {
            println!("  {name:<28} {}", verdict.of(name));
        }
        println!("  tests that passed: {}", verdict.passed());
        let failed = verdict.failed(runs.iter().map(|run| run.name.as_str()));
        let failed = failed.join(", ");
        let done = listened.and(match failed.is_empty() {
            true => Ok(()),
            false => Err(Error::Guest(failed)),
        });
        Ok((verdict, done))
    }

    /// Puts the programs into the archive, with the folders, files and script that they need.
    fn pack(&self, archive: &mut Archive, options: &Options) -> Result<Vec<Run>, Error> {
        let scratch = self.folder.join("stripped");
        let stripped = |file: &Path| self.target.stripped(file, &scratch);
        for folder in ["proc", "sys", "dev", "tmp"] {
            archive.folder(Path::new(folder))?;
        }
        archive.file(Path::new("bin/coreline"), &stripped(&self.built.doctor)?)?;
        let doctor = |name: &str| Run {
            name: name.to_owned(),
            folder: "/".to_owned(),
            line: format!("/bin/coreline {name}"),
        };
        let mut runs = vec![doctor("doctor"), doctor(JSON)];
        let mut places = BTreeSet::new();
        let is_asked = |it: &&Program| {
            options.only.is_empty() || options.only.iter().any(|part| it.name.contains(part))
        };
        for Program { name, file, folder } in self.built.tests.iter().filter(is_asked) {
            let place = format!("/tests/{name}");
            places.extend(Path::new(&place).parent().map(Path::to_owned));
            archive.file(Path::new(&place), &stripped(file)?)?;
            pack_data(archive, folder)?;
            let line = command(&place, options);
            let (name, folder) = (name.clone(), folder.to_string_lossy().into_owned());
            runs.push(Run { name, folder, line });
        }
        for library in &self.built.libraries {
            let bytes = stripped(library)?;
            for place in &places {
                // Beside the programs, as cargo puts them.
                archive.file(&place.join(library.file_name().unwrap_or_default()), &bytes)?;
            }
        }
        archive.file(Path::new("init"), INIT.as_bytes())?;
        archive.file(Path::new("plan"), plan(&runs, options).as_bytes())?;
        Ok(runs)
    }
}

/// What a guest boots, and has beside our programs.
struct Files {
    kernel: PathBuf,
    busybox: PathBuf,
    /// At the target's places of libraries.
    libraries: Vec<PathBuf>,
}

impl Files {
    /// Fetches them, unless they are there.
    fn of(options: &Options, target: Target, folder: &Path) -> Result<Files, Error> {
        let debian = |suite: Option<&str>| Debian::new(options.arch, folder, suite);
        let kernel = || debian(options.suite.as_deref()).kernel();
        let kernel = options.kernel.clone().map_or_else(kernel, absolute)?;
        let busybox = options.busybox.clone().map_or_else(|| debian(None).busybox(), absolute)?;
        let libraries = match &options.glibc_from {
            None => target.libraries()?,
            Some(suite) => {
                let places = target.places_of_libraries();
                let names = places.iter().map(|place| place.rsplit('/').next().unwrap_or(place));
                debian(Some(suite)).libraries(&names.collect::<Vec<_>>())?
            }
        };
        Ok(Files { kernel, busybox, libraries })
    }
}

fn shape(options: &Options) -> Shape {
    Shape { arch: options.arch, cpus: options.cpus, nodes: options.nodes }
}

/// Starts a guest, and once more where it did not get as far as its first process; what it said.
fn boot(
    mut start: impl FnMut() -> Result<Guest, Error>,
    silence: Duration,
    programs: usize,
) -> (Verdict, Result<(), Error>) {
    let mut boots = 1;
    loop {
        let mut verdict = Verdict::default();
        let listened =
            start().and_then(|mut guest| listen(&mut guest, silence, programs, &mut verdict));
        match &listened {
            Err(why @ (Error::Stopped | Error::Silent(_))) if !verdict.is_up && boots < BOOTS => {
                println!("==> boot {boots} of {BOOTS} reached no first process: {why}; again");
                boots += 1;
            }
            _ => return (verdict, listened),
        }
    }
}

/// A file that the user named, relative to the user's folder.
fn absolute(file: PathBuf) -> Result<PathBuf, Error> {
    file.canonicalize().map_err(|source| Error::Read { path: file, source })
}

/// How a test program is called.
fn command(program: &str, options: &Options) -> String {
    // Those that run in every world take hours here.
    let left_out = NOT_NATIVE.into_iter().chain(["every_world"]).filter(|_| !options.all_worlds);
    let skips = left_out.flat_map(|name| ["--skip", name]);
    let words = [program].into_iter().chain(skips);
    let words = words.chain(options.arguments.iter().map(String::as_str));
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// Puts the files that tests of this package may read where they would be on this machine.
fn pack_data(archive: &mut Archive, package: &Path) -> Result<(), Error> {
    archive.folder(package)?;
    for file in workspace::files()? {
        let file = workspace::root().join(file);
        let data = file.starts_with(package.join("tests")) && !file.ends_with(".rs");
        if data && file.is_file() {
            archive.file(&file, &workspace::read_bytes(&file)?)?;
        }
    }
    Ok(())
}

/// The name and the value of an environment variable.
fn variable(word: &str) -> Result<(String, String), String> {
    match word.split_once('=') {
        Some((name, value))
            if !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !name.starts_with(|c: char| c.is_ascii_digit()) =>
        {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("not NAME=VALUE with a name of letters, digits and underscores".to_owned()),
    }
}

/// The script for the shell of the guest.
fn plan(runs: &[Run], options: &Options) -> String {
    let mut plan = String::new();
    for (name, value) in &options.env {
        plan += &format!("export {name}={}\n", quoted(value));
    }
    for Run { name, folder, line } in runs {
        let (limit, name, folder) = (options.limit, quoted(name), quoted(folder));
        plan += &format!("run {limit} {name} {folder} {line}\n");
    }
    plan
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Prints what the guest prints, and notes what it says of its programs, until it ends.
fn listen(
    guest: &mut Guest,
    silence: Duration,
    programs: usize,
    verdict: &mut Verdict,
) -> Result<(), Error> {
    let start = Instant::now();
    let mut begun = start;
    let (mut number, mut running) = (0, String::new());
    let mut done = false;
    while let Some(line) = guest.line(silence)? {
        let line = Line::parse(&line);
        verdict.is_up |= !matches!(line, Line::Text(_));
        match line {
            Line::Up(kernel) => {
                println!("==> up after {:.1} s: {kernel}", start.elapsed().as_secs_f64());
                verdict.kernel = Some(kernel.to_owned());
            }
            Line::Begin(name) => {
                begun = Instant::now();
                number += 1;
                name.clone_into(&mut running);
                println!("\n==> [{number}/{programs}] {name}");
            }
            Line::End(status, name) => verdict.end(name, status, begun.elapsed()),
            Line::Done => done = true,
            Line::Text(text) => {
                verdict.hear(&running, text);
                println!("{text}");
            }
        }
    }
    match done {
        true => Ok(()),
        false => Err(Error::Stopped),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &str) -> Options {
        Command::parse_from(["guest"].into_iter().chain(words.split_whitespace())).options
    }

    fn doctor() -> Run {
        Run { name: "doctor".into(), folder: "/".into(), line: "/bin/coreline doctor".into() }
    }

    #[test]
    fn the_plan_is_what_the_shell_is_to_do() {
        let options = options("--limit 7 --env A=b'c --env D=");
        let plan = plan(&[doctor()], &options);
        let expected = "export A='b'\\''c'\nexport D=''\n\
                        run 7 'doctor' '/' /bin/coreline doctor\n";
        assert_eq!(plan, expected);
    }

    #[test]
    fn tests_of_other_worlds_are_left_out_unless_asked_for() {
        let all = command("/tests/a", &options("--all-worlds -- lose it's"));
        assert_eq!(all, "'/tests/a' 'lose' 'it'\\''s'");
        let native = command("/tests/a", &options("-- lose"));
        assert!(
            native.starts_with("'/tests/a' '--skip' 'model::' ") && native.ends_with(" 'lose'")
        );
    }

    #[test]
    fn what_is_no_variable_is_refused() {
        for word in ["A", "=b", "A;B=c", "1=c"] {
            assert!(variable(word).is_err(), "{word}");
        }
        assert_eq!(variable("A_1=b=c"), Ok(("A_1".to_owned(), "b=c".to_owned())));
    }

    #[test]
    fn the_shell_of_this_machine_can_read_the_first_process() {
        workspace::run(&mut workspace::command("sh", &["-n", "-c", INIT])).expect("no mistake");
    }

    #[test]
    fn a_guest_that_stops_early_is_an_error() {
        let mut verdict = Verdict::default();
        let mut said = |text: &str| {
            let guest = Guest::start(workspace::command("printf", &[text]));
            listen(&mut guest.expect("a program"), Duration::from_secs(60), 2, &mut verdict)
        };
        assert!(said("@guest up L\\n@guest end 0 a\\n@guest done\\n").is_ok());
        assert!(matches!(said("@guest up L\\n@guest end 1 b\\n"), Err(Error::Stopped)));
        assert_eq!(verdict.failed(["a", "b"].into_iter()), ["b"]);
    }

    #[test]
    fn a_boot_that_fails_is_tried_again_and_a_run_is_not() {
        let said = |texts: &[&'static str]| {
            let mut boots = 0;
            let start = || {
                boots += 1;
                Guest::start(workspace::command("printf", &[texts[boots - 1]]))
            };
            let (_, listened) = boot(start, Duration::from_secs(60), 1);
            (boots, listened.is_ok())
        };
        let (panic, good) = ("Kernel panic\\n", "@guest up L\\n@guest done\\n");
        assert_eq!(said(&[panic, good]), (2, true));
        assert_eq!(said(&[panic, panic, panic]), (3, false));
        assert_eq!(said(&["@guest up L\\nKernel panic\\n", good]), (1, false));
        assert_eq!(said(&["@gu[ 1.0] x\\n@guest begin a\\nKernel panic\\n", good]), (1, false));
    }
}
