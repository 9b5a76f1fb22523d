//! The verb `stat`: what processes publish that use the library.
//!
//! | module | holds |
//! |---|---|
//! | [`read`] | the pages of processes |
//! | [`show`] | a page for people |
//! | [`prometheus`] | pages for Prometheus |

mod prometheus;
mod read;
mod show;

use std::ffi::OsString;
use std::io::Write;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use console::Term;
use coreline::stat::page::Page;
use coreline_world::native::{has_ended, note_interrupts};
use serde::Serialize;

use crate::error::Error;
use crate::stat_error::StatError;
use crate::text::Form;
use read::{Look, Process};

/// How often a program that was started is looked for, until it publishes.
const STEP: Duration = Duration::from_millis(20);

/// How often a program that was started is asked whether it has ended.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(crate) struct Choice {
    /// The number of a process, or the name under which it publishes; without it, the command lists
    /// the processes that publish
    #[arg(value_name = "PID|NAME")]
    target: Option<String>,
    /// Show the values again every SECONDS, with their rates, until the process ends
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        conflicts_with_all = ["json", "prometheus"]
    )]
    watch: Option<u64>,
    /// Print one JSON object; without PID or NAME, of all processes
    #[arg(long)]
    json: bool,
    /// Print the values in the text format of Prometheus; without PID or NAME, of all processes
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Run this program, and show what it has published when it ends
    #[arg(
        last = true,
        value_name = "PROGRAM",
        conflicts_with = "target",
        value_hint = ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
}

/// What processes have published. The schema is `coreline.stat/1`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: &'static str,
    processes: Vec<Shown<'a>>,
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    pid: u32,
    name: &'a str,
    /// Since the values were read.
    age_ms: u64,
    looks: u64,
    left_out: u32,
    values: Vec<Value<'a>>,
}

#[derive(Debug, Serialize)]
struct Value<'a> {
    kind: &'a str,
    object: &'a str,
    name: &'a str,
    value: u64,
    level: bool,
}

impl<'a> Shown<'a> {
    fn new(look: &'a Look) -> Shown<'a> {
        let Page { pid, ref name, looks, left_out, ref rows, .. } = look.page;
        let values = rows.iter().map(|row| Value {
            kind: &row.kind,
            object: &row.object,
            name: &row.name,
            value: row.value,
            level: row.is_level,
        });
        let age_ms = u64::try_from(look.age.as_millis()).unwrap_or(u64::MAX);
        Shown { pid, name, age_ms, looks, left_out, values: values.collect() }
    }
}

/// Runs the verb.
pub(crate) fn stat(choice: &Choice, out: &mut dyn Write) -> Result<(), Error> {
    if let Some((name, arguments)) = choice.command.split_first() {
        let mut command = Command::new(name);
        return run(choice, command.args(arguments), out);
    }
    let Some(target) = &choice.target else { return all(choice, out) };
    let mut process = Process::named(target)?;
    let look = process.look()?;
    let Some(seconds) = choice.watch else { return put(choice, &[look], out) };
    let mut screen = Screen::new(seconds);
    screen.show(look, out)?;
    loop {
        thread::sleep(screen.every);
        // Before the look, which then shows the last values.
        let runs = process.follow();
        let look = process.look()?;
        screen.show(look, out)?;
        if !runs {
            return Err(StatError::Ended { pid: process.pid() }.into());
        }
    }
}

/// Shows all processes that publish.
fn all(choice: &Choice, out: &mut dyn Write) -> Result<(), Error> {
    loop {
        let (looks, failed) = read::all();
        if choice.json || choice.prometheus {
            return put(choice, &looks, out);
        }
        write!(out, "{}", show::all(&looks, &failed, Form::of_output()))?;
        let Some(seconds) = choice.watch else { return Ok(()) };
        out.flush()?;
        thread::sleep(Duration::from_secs(seconds));
        Screen::new(seconds).clear(out)?;
    }
}

fn put(choice: &Choice, looks: &[Look], out: &mut dyn Write) -> Result<(), Error> {
    if choice.json {
        let processes = looks.iter().map(Shown::new).collect();
        let report = Report { schema: "coreline.stat/1", processes };
        let text = serde_json::to_string_pretty(&report).map_err(std::io::Error::from)?;
        return Ok(writeln!(out, "{text}")?);
    }
    if choice.prometheus {
        return Ok(write!(out, "{}", prometheus::text(looks))?);
    }
    for look in looks {
        write!(out, "{}", show::one(look, None, Form::of_output()))?;
    }
    Ok(())
}

/// The place where values are shown again and again.
struct Screen {
    every: Duration,
    before: Option<Look>,
}

impl Screen {
    fn new(seconds: u64) -> Screen {
        Screen { every: Duration::from_secs(seconds), before: None }
    }

    /// On a terminal, makes room at the top.
    fn clear(&self, out: &mut dyn Write) -> Result<(), Error> {
        match Term::stdout().is_term() {
            true => write!(out, "\x1b[H\x1b[J")?,
            false => writeln!(out)?,
        }
        Ok(())
    }

    fn show(&mut self, look: Look, out: &mut dyn Write) -> Result<(), Error> {
        if self.before.is_some() || Term::stdout().is_term() {
            self.clear(out)?;
        }
        write!(out, "{}", show::one(&look, self.before.as_ref(), Form::of_output()))?;
        self.before = Some(look);
        Ok(out.flush()?)
    }
}

/// A program that runs until it is dropped.
struct Program {
    name: String,
    child: Child,
}

impl Drop for Program {
    /// Where the values cannot be shown, the program goes on without this one.
    fn drop(&mut self) {
        let _ = self.child.wait();
    }
}

/// Runs a program, and shows what it has published.
fn run(choice: &Choice, command: &mut Command, out: &mut dyn Write) -> Result<(), Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    // An interrupt from the keyboard ends the program, whose values are then shown.
    note_interrupts();
    // Its page stays when it ends.
    let started = command.env("CORELINE_STAT_KEEP", "1").spawn();
    let child = started.map_err(|source| StatError::Run { program: name.clone(), source })?;
    let mut program = Program { name, child };
    let failed = |source| StatError::Run { program: program.name.clone(), source };
    let pid = program.child.id();
    let ended = |waits| has_ended(pid, waits).map_err(failed);
    let mut screen = choice.watch.map(Screen::new);
    let mut process = None;
    while !ended(screen.is_none())? {
        let Some(screen) = &mut screen else { continue };
        process = process.or_else(|| Process::of(pid).ok());
        let Some(process) = &mut process else {
            thread::sleep(STEP);
            continue;
        };
        process.follow();
        // The first page may not be written yet.
        match process.look() {
            Ok(look) => screen.show(look, out)?,
            Err(StatError::Page { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let next = Instant::now() + screen.every;
        while Instant::now() < next && !ended(false)? {
            thread::sleep(PAUSE);
        }
    }
    // Before it is waited for: until then, no other process has its number.
    let found = Process::of(pid).ok().or(process);
    let status = program.child.wait().map_err(failed)?;
    let not_published = || StatError::NotPublished { program: program.name.clone() };
    let mut process = found.ok_or_else(not_published)?;
    let look = process.look()?;
    process.remove();
    match &mut screen {
        Some(screen) => screen.show(look, out)?,
        None => put(choice, &[look], out)?,
    }
    match status.success() {
        true => Ok(()),
        false => {
            let (program, status) = (program.name.clone(), status.to_string());
            Err(StatError::Failed { program, status }.into())
        }
    }
}
