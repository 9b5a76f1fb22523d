//! Where a verb's result goes, and in which form.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use comfy_table::{LineStyle, Table, TableStyle};
use coreline_world::native::output_was_closed;
use serde::Serialize;

use crate::error::Error;
use crate::text::Form;

/// A table with nothing but a line under its header.
pub(crate) fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let line = LineStyle::none().fill('-').junction('-');
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(line)).set_header(header);
    table
}

/// Standard output that says so where nothing can be written: std takes one that is closed for one
/// that takes all.
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if output_was_closed() {
            return Err(io::Error::other("standard output is closed"));
        }
        io::stdout().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// The options of every verb that has a result.
#[derive(Args)]
pub(crate) struct Output {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Output {
    /// For standard output.
    pub(crate) fn printed(json: bool) -> Output {
        Output { json, out: None }
    }

    /// What text may be made of.
    pub(crate) fn form(&self) -> Form {
        if self.out.is_some() { Form::plain() } else { Form::of_output() }
    }

    /// Whether a result goes on to where what is missing would not be seen.
    pub(crate) fn is_kept(&self) -> bool {
        self.json || self.out.is_some()
    }

    /// Makes a result and shows it as asked.
    pub(crate) fn show<T: Serialize>(
        &self,
        make: impl FnOnce() -> Result<T, Error>,
        show: impl FnOnce(&T, &mut dyn Write) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let target = self.out.as_deref().map(Target::new).transpose()?;
        let result = make()?;
        let mut text = Vec::new();
        if self.json {
            serde_json::to_writer_pretty(&mut text, &result).map_err(io::Error::from)?;
            text.push(b'\n');
        } else {
            show(&result, &mut text)?;
        }
        match target {
            Some(target) => target.write(&text),
            None => {
                let mut stdout = BufWriter::new(Stdout);
                stdout.write_all(&text)?;
                Ok(stdout.flush()?)
            }
        }
    }
}

/// A file that a result will be written to.
///
/// It is opened before the result is made, so that nothing runs for minutes in vain, and made or
/// emptied after that, so that a failure, or an interrupt, leaves what was there before.
pub(crate) struct Target<'a> {
    path: &'a Path,
    there: Option<File>,
}

impl<'a> Target<'a> {
    pub(crate) fn new(path: &'a Path) -> Result<Target<'a>, Error> {
        Ok(Target { path, there: open(path)? })
    }

    pub(crate) fn write(self, text: &[u8]) -> Result<(), Error> {
        let Target { path, there } = self;
        let written = write(there, path, text);
        written.map_err(|source| Error::OutWrite { path: path.to_owned(), source })
    }
}

fn out_file(path: &Path, source: io::Error) -> Error {
    Error::OutFile { path: path.to_owned(), source }
}

/// Opens a file that is there; of another one, sees whether it can be made.
fn open(path: &Path) -> Result<Option<File>, Error> {
    match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = File::create_new(path).and_then(|_| fs::remove_file(path));
            made.map(|()| None)
        }
        opened => opened.map(Some),
    }
    .map_err(|error| out_file(path, error))
}

/// Writes to the file that is there, or else makes it.
fn write(there: Option<File>, path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = there.map_or_else(|| File::create(path), Ok)?;
    // A pipe or a device has no length.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text)
}
