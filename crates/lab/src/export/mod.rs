//! Rows of a result as a table for other programs: CSV and Parquet.
//!
//! A column has the name of its field in JSON. Fields within a field have a dot in their names, as
//! in `params.threads`. Lists, which have no place in a cell, are in JSON alone.

pub(crate) mod parquet;

use std::io;

use serde_json::{Map, Value};

use crate::error::Error;

use parquet::ColumnKind;

/// A column of a table.
#[derive(Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// The kind of its cells, or else the narrowest kind that holds all of them.
    pub(crate) kind: Option<ColumnKind>,
    pub(crate) cells: Vec<Value>,
}

/// Columns of equal length.
#[derive(Debug, PartialEq)]
pub(crate) struct Columns(pub(crate) Vec<Column>);

impl Columns {
    /// Of the `rows` of a result; `of_all` are fields of the result that each row repeats, so that
    /// the rows of several results can be told apart.
    pub(crate) fn new(result: &Value, of_all: &[&str]) -> Columns {
        let of_all: Map<String, Value> =
            of_all.iter().map(|name| ((*name).to_owned(), result[name].clone())).collect();
        let rows = result["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut columns: Vec<Column> = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            for (name, value) in
                cells("", of_all.iter().chain(row.as_object().into_iter().flatten()))
            {
                let found = columns.iter().position(|column| column.name == name);
                let column = found.unwrap_or_else(|| {
                    columns.push(Column { name, kind: None, cells: Vec::new() });
                    columns.len() - 1
                });
                let cells = &mut columns[column].cells;
                cells.resize(at, Value::Null);
                cells.push(value.clone());
            }
        }
        columns.iter_mut().for_each(|column| column.cells.resize(rows.len(), Value::Null));
        Columns(columns)
    }

    fn rows(&self) -> usize {
        self.0.first().map_or(0, |column| column.cells.len())
    }

    /// As CSV: a line of names, then a line for each row. Cells are quoted as RFC 4180 says; what
    /// is null is empty. Lines end as lines of Unix do.
    pub(crate) fn csv(&self) -> Result<Vec<u8>, Error> {
        let mut out = csv::Writer::from_writer(Vec::new());
        let written = |error: csv::Error| Error::Output(io::Error::from(error));
        out.write_record(self.0.iter().map(|column| &column.name)).map_err(written)?;
        for row in 0..self.rows() {
            out.write_record(self.0.iter().map(|column| text(&column.cells[row])))
                .map_err(written)?;
        }
        out.into_inner().map_err(|error| Error::Output(error.into_error()))
    }

    pub(crate) fn parquet(&self) -> Result<Vec<u8>, Error> {
        parquet::file(self, &[]).map_err(|error| Error::Output(io::Error::other(error)))
    }
}

/// The cells of a row, by name.
fn cells<'a>(
    prefix: &str,
    fields: impl Iterator<Item = (&'a String, &'a Value)>,
) -> Vec<(String, &'a Value)> {
    let mut all = Vec::new();
    for (name, value) in fields {
        let name = format!("{prefix}{name}");
        match value {
            Value::Array(_) => {}
            Value::Object(fields) => all.extend(cells(&format!("{name}."), fields.iter())),
            _ => all.push((name, value)),
        }
    }
    all
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows. Each has fields that the other one lacks.
    pub(super) fn columns() -> Columns {
        let result = serde_json::json!({
            "scenario": "x",
            "rows": [
                { "params": { "threads": 2 }, "value": 1.5, "points": [1.0], "why": null },
                { "params": { "look": "a \"b\", c" }, "value": null, "why": "two\nlines" },
            ],
        });
        Columns::new(&result, &["scenario"])
    }

    #[test]
    fn what_is_written_as_csv_is_read_again() {
        let csv = columns().csv().unwrap();
        let text = String::from_utf8(csv.clone()).unwrap();
        assert!(text.contains("\"a \"\"b\"\", c\""), "{text}");
        let mut read = csv::Reader::from_reader(&csv[..]);
        let names: Vec<_> = read.headers().unwrap().iter().map(str::to_owned).collect();
        assert_eq!(names, ["scenario", "params.threads", "value", "why", "params.look"]);
        let rows: Vec<_> = read.records().map(Result::unwrap).collect();
        assert_eq!(rows[0], vec!["x", "2", "1.5", "", ""]);
        assert_eq!(rows[1], vec!["x", "", "", "two\nlines", "a \"b\", c"]);
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn a_result_without_rows_has_no_columns() {
        let none = Columns::new(&serde_json::json!({ "scenario": "x", "rows": [] }), &["scenario"]);
        assert_eq!((none.rows(), none.0.len()), (0, 0));
    }
}
