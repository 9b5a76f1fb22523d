//! The destination of a verb's result, and its form.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use coreline_world::native::output_was_unwritable;
use serde::Serialize;

use crate::error::Error;
use crate::export::Columns;
use crate::text::Form;

/// Standard output that says so where nothing can be written: std takes one that is closed for one
/// that takes all.
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if output_was_unwritable() {
            return Err(io::Error::other("standard output is closed, or not open for writing"));
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

/// The options of a verb whose result has rows.
#[derive(Args)]
pub(crate) struct RowsOutput {
    #[command(flatten)]
    pub(crate) output: Output,
    /// Print the rows as CSV instead of text; `--out FILE.csv` does so, too
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Format {
    Text,
    Json,
    Csv,
    Parquet,
}

impl RowsOutput {
    /// The format that an option names, or else that of the file's extension.
    fn format(&self) -> Format {
        let Output { json, out } = &self.output;
        let ends = |end| {
            let extension = out.as_deref().and_then(Path::extension);
            extension.is_some_and(|extension| extension.eq_ignore_ascii_case(end))
        };
        match () {
            () if *json => Format::Json,
            () if self.csv => Format::Csv,
            () if ends("json") => Format::Json,
            () if ends("csv") => Format::Csv,
            () if ends("parquet") => Format::Parquet,
            () => Format::Text,
        }
    }

    /// Whether a result is stored or passed on. Then a reader would not notice that parts are
    /// missing.
    pub(crate) fn is_kept(&self) -> bool {
        self.csv || self.output.is_kept()
    }

    /// Makes a result and shows it as asked. Rows repeat these fields of the result.
    pub(crate) fn show<T: Serialize>(
        &self,
        of_all: &[&str],
        make: impl FnOnce() -> Result<T, Error>,
        show: impl FnOnce(&T, &mut dyn Write) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let format = self.format();
        self.output.put(make, |result, text| {
            if let Format::Text | Format::Json = format {
                return form(format == Format::Json, result, show, text);
            }
            let result = serde_json::to_value(result).map_err(io::Error::from)?;
            let columns = Columns::new(&result, of_all);
            let bytes = match format {
                Format::Parquet => columns.parquet()?,
                _ => columns.csv()?,
            };
            Ok(text.write_all(&bytes)?)
        })
    }
}

fn form<T: Serialize>(
    json: bool,
    result: &T,
    show: impl FnOnce(&T, &mut dyn Write) -> Result<(), Error>,
    text: &mut Vec<u8>,
) -> Result<(), Error> {
    if !json {
        return show(result, text);
    }
    serde_json::to_writer_pretty(&mut *text, result).map_err(io::Error::from)?;
    text.push(b'\n');
    Ok(())
}

impl Output {
    pub(crate) fn printed(json: bool) -> Output {
        Output { json, out: None }
    }

    /// The form of text.
    pub(crate) fn form(&self) -> Form {
        if self.out.is_some() { Form::plain() } else { Form::of_output() }
    }

    /// Whether a result is stored or passed on. Then a reader would not notice that parts are
    /// missing.
    pub(crate) fn is_kept(&self) -> bool {
        self.json || self.out.is_some()
    }

    /// Makes a result and shows it as asked.
    pub(crate) fn show<T: Serialize>(
        &self,
        make: impl FnOnce() -> Result<T, Error>,
        show: impl FnOnce(&T, &mut dyn Write) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.put(make, |result, text| form(self.json, result, show, text))
    }

    /// Makes a result and puts it where it was asked for.
    fn put<T>(
        &self,
        make: impl FnOnce() -> Result<T, Error>,
        form: impl FnOnce(&T, &mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let target = self.out.as_deref().map(Target::new).transpose()?;
        let result = make()?;
        let mut text = Vec::new();
        form(&result, &mut text)?;
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
/// An error on opening it must not waste minutes of work, so it is opened before the result is
/// computed. It is created or emptied only after that. So a failure or an interrupt leaves the old
/// content.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_or_the_name_of_the_file_says_the_format() {
        let format = |json, csv, out: &str| {
            let out = (!out.is_empty()).then(|| PathBuf::from(out));
            RowsOutput { output: Output { json, out }, csv }.format()
        };
        assert_eq!(format(false, false, ""), Format::Text);
        assert_eq!(format(false, false, "a.txt"), Format::Text);
        assert_eq!(format(false, false, "a.json"), Format::Json);
        assert_eq!(format(false, false, "a/b.CSV"), Format::Csv);
        assert_eq!(format(false, false, "b.parquet"), Format::Parquet);
        assert_eq!(format(true, false, "b.csv"), Format::Json);
        assert_eq!(format(false, true, ""), Format::Csv);
    }
}
