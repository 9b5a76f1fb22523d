//! The verb `replay`: runs the program of a replay line again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use coreline_scenarios::point::Point;
use coreline_scenarios::{ALL, Scenario, simulate};
use coreline_sim::{Replay, Spec, SpecError, Trace};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::bench;
use crate::error::Error;
use crate::nearest::hint;
use crate::sweep::{ENGINE, Row};
use crate::validate::experiment::Experiment;
use crate::validate::simulated;
use crate::world;

/// A program that a line can name, ready to run on the line's machine; returns its result in words
/// and as a row, and where it is asked for what happened when.
type Run = Box<dyn FnOnce(&Spec, &Replay, Option<&mut Trace>) -> Result<(String, Fields), Error>>;

type Fields = Map<String, Value>;

/// The result of the run of a line. The schema is `coreline.cell/1`.
#[derive(Serialize)]
pub(crate) struct Replayed {
    schema: &'static str,
    engine: &'static str,
    row: Fields,
    #[serde(skip)]
    text: String,
}

/// Runs the program of a replay line, on the line's machine or on the machine of a machine file.
/// The events and their times go to the file `trace`.
pub(crate) fn replay(
    line: &str,
    file: Option<&str>,
    trace: Option<&Path>,
) -> Result<Replayed, Error> {
    check(line.trim())?;
    let replay: Replay = line.parse()?;
    let run = program(&replay)?;
    let spec = machine(&replay, file)?;
    // Before the run, which may take long.
    let create = |path: &Path| {
        File::create(path).map_err(|source| Error::TraceFile { path: path.to_owned(), source })
    };
    let to = trace.map(create).transpose()?;
    let mut happened = Trace::default();
    let (told, row) = run(&spec, &replay, trace.map(|_| &mut happened))?;
    let mut text = format!("{}\nthe run succeeded: {told}\n", replay.program);
    if let Some((path, file)) = trace.zip(to) {
        let mut file = BufWriter::new(file);
        let written = happened.write_json(&mut file).and_then(|()| file.flush());
        written.map_err(|source| Error::OutWrite { path: path.to_owned(), source })?;
        let (slices, path) = (happened.len(), path.display());
        text += &format!("{slices} slices are in {path}, which the viewer Perfetto opens\n");
        if happened.dropped() > 0 {
            let dropped = happened.dropped();
            text += &format!("{dropped} later slices did not fit into the trace\n");
        }
    }
    Ok(Replayed { schema: "coreline.cell/1", engine: ENGINE, row, text })
}

impl Replayed {
    pub(crate) fn show(&self, out: &mut dyn Write) -> Result<(), Error> {
        Ok(out.write_all(self.text.as_bytes())?)
    }
}

/// Refuses what would be taken otherwise than it is written: a line of another engine, settings
/// that are given twice, and values that the machine would bring into its range.
fn check(line: &str) -> Result<(), Error> {
    let ours = Replay::new("", "").to_string();
    let tag = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let (theirs, ours) = (tag(line), tag(&ours));
    let engine = |tag: &str| tag.split_once('/').map(|(engine, _)| engine.to_owned());
    if theirs != ours && engine(&theirs) == engine(&ours) {
        return Err(Error::ReplayEngine { line: theirs, ours });
    }
    let head = line.split_once(" program=").map_or(line, |(head, _)| head);
    let mut seen = BTreeSet::new();
    for (key, value) in head.split_whitespace().filter_map(|part| part.split_once('=')) {
        let wrong = |why| {
            let setting = format!("{key}={value}");
            Err(Error::ReplaySetting { setting, why })
        };
        if !seen.insert((key, "")) {
            return wrong("but this setting occurs twice");
        }
        let number: Option<u32> = value.parse().ok();
        match key {
            "request" if number.is_some_and(|percent| percent > 100) => {
                return wrong("but a share is at most 100 percent");
            }
            "steps" if number == Some(0) => return wrong("but a run takes at least one step"),
            "faults" | "scaled" => {
                for (name, number) in value.split(',').filter_map(|pair| pair.split_once(':')) {
                    if !seen.insert((key, name)) {
                        return wrong("but one of its names occurs twice");
                    }
                    if key == "scaled" && number == "0" {
                        return wrong("but a cost must be scaled to at least 1 percent");
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The line's program; or what to do with the line instead.
fn program(replay: &Replay) -> Result<Run, Error> {
    let program = replay.program.as_str();
    if let Some(experiment) = Experiment::of_program(program) {
        return Ok(Box::new(move |spec, replay, trace| {
            if trace.is_some() {
                return Err(Error::NoTrace { program: replay.program.clone() });
            }
            let ns = simulated::run(spec, replay, experiment)?;
            let row = [("replay", replay.to_string().into()), ("ns", ns.into())];
            let row = row.map(|(name, value): (&str, Value)| (name.to_owned(), value));
            Ok((format!("{ns:.2} ns ({})", experiment.what), row.into_iter().collect()))
        }));
    }
    if let Some(point) = ALL.iter().find_map(|scenario| Point::parse(scenario, program)) {
        return Ok(Box::new(move |spec, replay, trace| {
            let run = simulate(spec, replay, &point, trace)?;
            let told = point.scenario.tell(&run.numbers);
            Ok((told, Row::of(replay, &point, spec, Ok(run)).json()))
        }));
    }
    let machine = &replay.machine;
    let first = program.split([' ', ':']).next();
    let scenario = first.and_then(Scenario::named);
    let remedy = match first {
        _ if scenario.is_some() => {
            let form = scenario.map(|it| it.form()).unwrap_or_default();
            format!("a run of the scenario is {form}")
        }
        Some("validate") => format!("a prediction is {}", Experiment::form()),
        Some(bench::PROGRAM) => "`coreline bench sim` runs it again".to_owned(),
        Some("calibration") => format!(
            "it is the ping-pong that calibrates the cost of a transfer; `coreline machines \
             {machine}`, or its file, runs it again"
        ),
        Some("laws") => {
            let law = program.trim_start_matches("laws::");
            format!(
                "it is a law of coreline's tests: set CORELINE_REPLAY to the line and run \
                 `cargo test -p coreline --test 'laws-*' {law}`"
            )
        }
        _ => "it is a program of your own: run it again on `Machine::replay(&line.parse()?)?` in \
              the code that ran it, with the kernel that the line names; docs/simulating.md shows \
              how"
        .to_owned(),
    };
    let variant = program.split_whitespace().find_map(|word| word.strip_prefix("variant="));
    let names = || scenario.iter().flat_map(|scenario| scenario.variants).map(|it| it.name);
    let unknown = variant.filter(|asked| names().all(|name| name != *asked));
    let remedy = remedy + &unknown.map(|asked| hint(asked, names())).unwrap_or_default();
    Err(Error::Program { program: program.to_owned(), remedy })
}

/// The line's machine, with its costs moved as the line says.
fn machine(replay: &Replay, file: Option<&str>) -> Result<Spec, Error> {
    let mut spec = match file {
        None => Spec::preset(&replay.machine).map_err(|error| match error {
            SpecError::NoPreset { name } => Error::ReplayMachine { line: name },
            other => Error::MachineFile(other),
        })?,
        Some(file) => world::machine(file)?,
    };
    if spec.name() != replay.machine {
        return Err(Error::OtherMachine {
            line: replay.machine.clone(),
            file: file.unwrap_or_default().to_owned(),
            found: spec.name().to_owned(),
        });
    }
    if let Some(asked) = replay.digest.filter(|&digest| spec.digest() != Some(digest)) {
        return Err(Error::OtherFile {
            line: replay.machine.clone(),
            asked,
            of: file.unwrap_or("the preset").to_owned(),
            found: (spec.digest())
                .map_or("no digest".to_owned(), |digest| format!("the digest {digest:016x}")),
        });
    }
    for (cost, percent) in &replay.scaled {
        // The machine does so again, from the file's value; a mistake is the user's, not a failure.
        spec.scale(cost, *percent).map_err(Error::MachineFile)?;
    }
    Ok(spec)
}
