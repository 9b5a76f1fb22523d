//! Where a verb's result goes, and in which form.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use comfy_table::{LineStyle, Table, TableStyle};
use serde::Serialize;

use crate::error::Error;

/// A table with nothing but a line under its header.
pub(crate) fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let line = LineStyle::none().fill('-').junction('-');
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(line)).set_header(header);
    table
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
    /// Makes a result and shows it as asked.
    ///
    /// The file is opened first, so that nothing runs for minutes in vain, and emptied last, so
    /// that a failure leaves the result of an earlier run.
    pub(crate) fn show<T: Serialize>(
        &self,
        make: impl FnOnce() -> Result<T, Error>,
        show: impl FnOnce(&T, &mut dyn Write) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let file = self.out.as_deref().map(open).transpose()?;
        let result = make()?;
        let mut text = Vec::new();
        if self.json {
            serde_json::to_writer_pretty(&mut text, &result).map_err(io::Error::from)?;
            text.push(b'\n');
        } else {
            show(&result, &mut text)?;
        }
        match (file, &self.out) {
            (Some(file), Some(path)) => write(file, &text).map_err(|error| out_file(path, error)),
            _ => {
                let mut stdout = BufWriter::new(io::stdout().lock());
                stdout.write_all(&text)?;
                Ok(stdout.flush()?)
            }
        }
    }
}

fn out_file(path: &Path, source: io::Error) -> Error {
    Error::OutFile { path: path.to_owned(), source }
}

fn open(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| out_file(path, error))
}

fn write(mut file: File, text: &[u8]) -> io::Result<()> {
    // A pipe or a device has no length.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text)
}
