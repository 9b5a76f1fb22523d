//! The verb `scale`: runs the tests of a package, and compares the curves of throughput that they
//! measure in the simulator with those that a baseline file has.
//!
//! | module | holds |
//! |---|---|
//! | [`record`] | a curve, as a test measured it |
//! | [`baseline`] | the file of the curves that must not get worse |
//! | [`build`] | the arguments of Cargo that say what is built |
//! | [`gate`] | what became of each curve |
//! | [`show`], [`junit`], [`picture`] | the result in words, as JUnit's XML, and drawn |

mod baseline;
mod build;
mod gate;
mod junit;
mod picture;
mod record;
mod show;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus};

use clap::{Args, ValueHint};

use self::baseline::{Baseline, Curve};
use self::gate::Gate;
use self::record::{Key, Record};
use crate::error::Error;
use crate::output::{Output, Stdout, Target};
use crate::scale_error::ScaleError;

/// What `coreline_sim::measure::scaling` reads.
const FOLDER: &str = "CORELINE_SCALE";

/// The name of the baseline in the workspace's folder.
const BASELINE: &str = "coreline-scale.toml";

#[derive(Args)]
pub(crate) struct Choice {
    /// Accept the curves as they are now, and write the baseline
    #[arg(long, value_name = "REASON")]
    bless: Option<String>,
    /// The baseline; the default is coreline-scale.toml in the folder of the workspace
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    baseline: Option<PathBuf>,
    /// By how many percent a curve may fall
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = percent)]
    tolerance: f64,
    /// Compare only the curves that the tests measured, such as those of one test
    #[arg(long)]
    partial: bool,
    /// Run no tests, and read the curves from this folder. Tests write them there if the
    /// environment variable CORELINE_SCALE has the folder's path
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "cargo")]
    from: Option<PathBuf>,
    /// Write the result as Markdown, for a comment on a pull request
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    markdown: Option<PathBuf>,
    /// Write the result as JUnit XML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    junit: Option<PathBuf>,
    /// Draw the curves that changed, before and now; without a change, draw all curves
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<PathBuf>,
    /// Draw the same picture as PNG
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    png: Option<PathBuf>,
    /// Print an annotation of GitHub Actions for each curve that fails
    #[arg(long, conflicts_with = "json")]
    github: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// The arguments of `cargo test`, such as `-p PACKAGE` or `--test scaling`
    #[arg(last = true, value_name = "ARGUMENT")]
    cargo: Vec<OsString>,
}

fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| (0.0..100.0).contains(value));
    value.ok_or_else(|| "expected a number from 0 to less than 100, such as 10".to_owned())
}

/// A folder for the curves of one run, which goes when it is dropped.
struct Records(PathBuf);

impl Records {
    fn new() -> Result<Records, ScaleError> {
        let number = process::id();
        let folder = (0..).map(|n| env::temp_dir().join(format!("coreline-scale-{number}-{n}")));
        for folder in folder {
            match fs::create_dir(&folder) {
                Ok(()) => return Ok(Records(folder)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(ScaleError::Folder(error)),
            }
        }
        unreachable!("there are more names than folders")
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        // Nothing depends on it: the folder is in the one for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Compares or blesses as asked, and shows what came of it.
pub(crate) fn scale(choice: &Choice) -> Result<(), Error> {
    if choice.bless.as_ref().is_some_and(|reason| reason.trim().is_empty()) {
        return Err(ScaleError::NoReason.into());
    }
    let files = [&choice.markdown, &choice.junit, &choice.svg, &choice.png];
    let targets = files.map(|path| path.as_deref().map(Target::new).transpose());
    let targets = targets.into_iter().collect::<Result<Vec<_>, Error>>()?;
    let path = choice.baseline.clone().map_or_else(|| baseline_path(&choice.cargo), Ok)?;
    let before = Baseline::read(&path)?;
    let (records, status) = records(choice)?;
    let failed = status.filter(|status| !status.success()).map(|status| status.to_string());
    let mut gate = Gate::new(&before, &records, choice, failed.clone());
    if let Some(reason) = &choice.bless {
        if let Some(status) = failed {
            return Err(ScaleError::Unblessed { status }.into());
        }
        let mixed = records.values().find(|it| it.simulator != before.simulator);
        if let Some(record) = mixed.filter(|_| choice.partial && !before.curves.is_empty()) {
            let (was, is) = (before.simulator, record.simulator.clone());
            return Err(ScaleError::Mixed { was, is }.into());
        }
        blessed(&before, &records, choice, reason).write(&path)?;
        gate.blessed = Some(reason.clone());
    }
    let forms: [&dyn Fn() -> Result<Vec<u8>, Error>; 4] = [
        &|| Ok(gate.markdown().into_bytes()),
        &|| Ok(gate.junit().into_bytes()),
        &|| picture::svg(&gate),
        &|| picture::png(&gate),
    ];
    for (target, form) in targets.into_iter().zip(forms) {
        target.map_or(Ok(()), |target| target.write(&form()?))?;
    }
    let output = Output::printed(choice.json);
    let failing = gate.failing;
    let annotations = choice.github.then(|| gate.annotations(&below_checkout()));
    let is_blessed = gate.blessed.is_some();
    output.show(|| Ok(gate), |gate, out| gate.show(output.form(), out))?;
    Stdout.write_all(annotations.unwrap_or_default().as_bytes())?;
    match failed {
        Some(status) => Err(ScaleError::Tests { status }.into()),
        None if failing > 0 && !is_blessed => Err(ScaleError::Fails { count: failing }.into()),
        None => Ok(()),
    }
}

/// The baseline with the measured curves. An unchanged curve keeps its reason.
fn blessed(
    before: &Baseline,
    records: &BTreeMap<Key, Record>,
    choice: &Choice,
    reason: &str,
) -> Baseline {
    let mut curves = if choice.partial { before.curves.clone() } else { BTreeMap::new() };
    for (key, record) in records {
        let now = Curve::new(record, reason);
        let then = before.curves.get(key);
        let is_same =
            |then: &&Curve| now == Curve { reason: now.reason.clone(), ..(*then).clone() };
        let then = then.filter(is_same).cloned();
        curves.insert(key.clone(), then.unwrap_or(now));
    }
    let simulator = records.values().next().map(|record| record.simulator.clone());
    Baseline { simulator: simulator.unwrap_or_default(), curves }
}

/// The path of the working directory in GitHub's checkout, which annotations need before paths.
fn below_checkout() -> PathBuf {
    let checkout = env::var_os("GITHUB_WORKSPACE").map(PathBuf::from);
    let here = env::current_dir().ok();
    let below = checkout
        .zip(here)
        .and_then(|(checkout, here)| here.strip_prefix(checkout).map(Path::to_owned).ok());
    below.unwrap_or_default()
}

/// Cargo, as it calls its subcommands, or else by its name.
fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn named(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// In the folder of the workspace whose tests run with these arguments.
fn baseline_path(arguments: &[OsString]) -> Result<PathBuf, ScaleError> {
    let mut command = cargo();
    command.args(["locate-project", "--workspace", "--message-format", "plain"]);
    if let Some(manifest) = build::manifest(arguments) {
        command.args(["--manifest-path", &manifest]);
    }
    let output = command
        .output()
        .map_err(|source| ScaleError::Cargo { command: named(&command), source })?;
    let [found, said] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    match Path::new(&found).parent().filter(|_| output.status.success()) {
        Some(folder) => Ok(folder.join(BASELINE)),
        None => Err(ScaleError::NoPackage { said }),
    }
}

/// The curves that the tests measured, and how the tests ended if they ran.
fn records(choice: &Choice) -> Result<(BTreeMap<Key, Record>, Option<ExitStatus>), ScaleError> {
    if let Some(folder) = &choice.from {
        return Ok((record::read(folder)?, None));
    }
    let folder = Records::new()?;
    let mut command = cargo();
    command.arg("test").args(&choice.cargo).env(FOLDER, &folder.0);
    // The output of the tests is no result of ours.
    command.stdout(io::stderr());
    let status = command
        .status()
        .map_err(|source| ScaleError::Cargo { command: named(&command), source })?;
    match record::read(&folder.0) {
        Err(ScaleError::NoCurves) if !status.success() => {
            Err(ScaleError::Tests { status: status.to_string() })
        }
        records => Ok((records?, Some(status))),
    }
}
