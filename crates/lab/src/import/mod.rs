//! The verb `machines import`: a machine file of a matrix of core-to-core latencies.
//!
//! | module | does |
//! |---|---|
//! | [`matrix`] | reads the matrix |
//! | [`levels`] | finds groups of CPUs that are near each other |
//! | [`places`] | says what the groups are, and what transfers take in each class |
//!
//! [`ImportError`] says why there is none. The matrix gives the tree and the cost of transfers. All
//! else is as in another machine, and its source says so.

mod levels;
mod matrix;
mod places;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use coreline_sim::{Class, Spec};
use coreline_topology::{Shape, Topology};
use serde::Serialize;

use crate::error::Error;
use crate::import_error::ImportError;
use crate::listing::Listing;
use crate::measure::Figure;
use crate::measure::file::{File, Origin, name};
use crate::output::Target;
use crate::text::{Form, counted};
use crate::world;
use matrix::Matrix;
use places::Places;

/// The matrix, and the path of the machine file.
#[derive(Debug, Args)]
pub(crate) struct Choice {
    /// The matrix: comma-separated values, the one-way latency between each two CPUs in
    /// nanoseconds; a lower triangle is enough, and the first row may name the CPUs
    #[arg(value_name = "FILE.csv", value_hint = clap::ValueHint::FilePath)]
    matrix: PathBuf,
    /// Write a machine file; then `--world FILE` simulates the machine
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The machine's name in that file; the default is made from the matrix's file name
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// The machine that supplies all costs but transfers: a preset's name, or a machine file
    #[arg(
        long,
        default_value = "epyc-9654-2s",
        value_name = "NAME|FILE",
        value_parser = world::specs(),
        hide_possible_values = true
    )]
    like: Spec,
    /// The number of sockets, if the matrix suggests a wrong number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    sockets: Option<u16>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// To thousandths of a nanosecond.
fn round(ns: f64) -> f64 {
    (ns * 1000.0).round() / 1000.0
}

/// The result. The schema is `coreline.import/1`.
#[derive(Debug, Serialize)]
pub(crate) struct Imported {
    schema: &'static str,
    matrix: PathBuf,
    name: String,
    /// The machine that gives all but transfers.
    like: String,
    /// The path of the machine file; null if none was asked for.
    file: Option<PathBuf>,
    sockets: u32,
    nodes_per_socket: u32,
    caches_per_node: u32,
    cores_per_cache: u32,
    threads_per_core: u32,
    classes: Vec<Row>,
    /// How many pairs no class has.
    left_out: usize,
    /// The CPU of the matrix for each simulated CPU.
    cpus: Vec<usize>,
    #[serde(skip)]
    text: String,
}

/// A class of distance, one way.
#[derive(Debug, Serialize)]
struct Row {
    class: &'static str,
    pairs: usize,
    /// The middle pair, in nanoseconds.
    median: f64,
    /// Half of the pairs lie between these.
    low: f64,
    high: f64,
}

/// A machine's name, made from a file's name.
fn name_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let words = stem.split(|it: char| !it.is_ascii_alphanumeric()).filter(|it| !it.is_empty());
    let name = words.collect::<Vec<_>>().join("-");
    if name.is_empty() { "imported".to_owned() } else { name }
}

/// Makes the machine file, writes it if one is asked for, and shows what was found.
pub(crate) fn import(choice: &Choice, form: Form, out: &mut dyn Write) -> Result<(), Error> {
    let target = choice.out.as_deref().map(Target::new).transpose()?;
    let matrix = Matrix::read(&choice.matrix)?;
    let mut imported = imported(choice, &matrix)?;
    if let Some(target) = target {
        target.write(imported.text.as_bytes())?;
        imported.file.clone_from(&choice.out);
    }
    if choice.json {
        serde_json::to_writer_pretty(&mut *out, &imported).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        imported.show(form, out)?;
    }
    Ok(out.flush()?)
}

fn imported(choice: &Choice, matrix: &Matrix) -> Result<Imported, Error> {
    let levels = levels::levels(matrix)?;
    let places = Places::of(matrix, &levels, choice.sockets.map(usize::from))?;
    let Places { shape, cpus, transfers, left_out } = places;
    let topology = Topology::uniform(shape).map_err(|error| {
        let (file, key, why) = (name_of(&choice.matrix), "topology".to_owned(), error.to_string());
        ImportError::File(coreline_sim::SpecError::Value { file, key, why })
    })?;
    let file_name = choice.matrix.file_name().unwrap_or_default().to_string_lossy();
    let name = choice.name.clone().unwrap_or_else(|| name_of(&choice.matrix));
    let like = &choice.like;
    let file = File {
        name: &name,
        of: &format!("core-to-core latencies of {file_name}"),
        origin: Origin::Matrix { file: &file_name, cpus: &cpus },
        topology: &topology,
        rows: &[],
        transfers: &transfers,
        like,
    };
    let text = file.text(shape);
    // A figure may be one that no machine file has, and the name that of a preset.
    Spec::parse(&name, &text).map_err(ImportError::File)?;
    let row = |(class, figure): &(Class, Figure)| {
        let Figure { median, low, high, samples: pairs, .. } = *figure;
        Row { class: class.name(), pairs, median, low, high }
    };
    let Shape { sockets, nodes_per_socket, caches_per_node, cores_per_cache, threads_per_core } =
        shape;
    Ok(Imported {
        schema: "coreline.import/1",
        matrix: choice.matrix.clone(),
        name,
        like: like.name().to_owned(),
        file: None,
        sockets,
        nodes_per_socket,
        caches_per_node,
        cores_per_cache,
        threads_per_core,
        classes: transfers.iter().map(row).collect(),
        left_out,
        cpus,
        text,
    })
}

impl Imported {
    fn show(&self, form: Form, out: &mut dyn Write) -> Result<(), Error> {
        let parts = [
            (self.sockets, "socket"),
            (self.nodes_per_socket, "node"),
            (self.caches_per_node, "last-level cache"),
            (self.cores_per_cache, "core"),
            (self.threads_per_core, "hardware thread"),
        ];
        let parts = parts.map(|(count, what)| counted(count as usize, what)).join(" of ");
        let head = format!("{}: {}, as {parts}", self.name, counted(self.cpus.len(), "CPU"));
        write!(out, "{}", form.paragraph("", &head))?;
        let columns =
            [("class", false), ("ns", true), ("middle half (IQR)", false), ("pairs", true)];
        let mut listing = Listing::new(&columns);
        for Row { class, pairs, median, low, high } in &self.classes {
            let range = format!("{low:.1} to {high:.1}");
            listing.row([(*class).to_owned(), format!("{median:.1}"), range, pairs.to_string()]);
        }
        write!(out, "{}", listing.text(form))?;
        let mut notes = Vec::new();
        if self.left_out > 0 {
            notes.push(format!(
                "{} were left out: only one socket shows how far apart its caches are, because \
                 lines that the other sockets exchange pass through its memory",
                counted(self.left_out, "pair")
            ));
        }
        if !self.cpus.is_sorted() {
            notes.push(
                "the simulated CPUs are not numbered as in the matrix; the machine file and --json \
                 list both numbers"
                    .to_owned(),
            );
        }
        notes.push(match &self.file {
            Some(path) => format!(
                "{} has these latencies, and the costs of {} for the rest; to simulate the \
                 machine: coreline run intermittent --world {}",
                path.display(),
                self.like,
                path.display()
            ),
            None => "for a machine file: --out mine.toml".to_owned(),
        });
        for note in notes {
            write!(out, "{}", form.paragraph("", &note))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
