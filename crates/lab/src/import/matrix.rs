//! The file of a matrix: one-way latencies between all CPUs, as comma-separated values.
//!
//! A row and a column stand for each CPU. Either triangle may be empty, and the diagonal does not
//! count; of a pair that has two latencies, the mean counts. The first row, and with it the first
//! column, may name the CPUs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::import_error::ImportError;

/// No file for the maximum number of CPUs is this large.
const LARGEST: u64 = 512 << 20;

/// The maximum number of CPUs in a machine file.
const MOST_CPUS: usize = 4096;

/// Latencies in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Matrix {
    cpus: usize,
    /// Row by row, symmetric; 0 on the diagonal.
    ns: Vec<f64>,
}

impl Matrix {
    /// Makes a matrix from the latency of each pair.
    pub(super) fn of(cpus: usize, ns: impl Fn(usize, usize) -> f64) -> Matrix {
        let cell = |at: usize| {
            let (a, b) = (at / cpus, at % cpus);
            if a == b { 0.0 } else { ns(a.max(b), a.min(b)) }
        };
        Matrix { cpus, ns: (0..cpus * cpus).map(cell).collect() }
    }

    pub(super) fn read(path: &Path) -> Result<Matrix, ImportError> {
        let of = |source| ImportError::Unreadable { path: path.to_owned(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(of)?;
        file.take(LARGEST + 1).read_to_string(&mut text).map_err(of)?;
        if text.len() as u64 > LARGEST {
            let why = format!("it is larger than {} MiB", LARGEST >> 20);
            return Err(of(io::Error::new(io::ErrorKind::FileTooLarge, why)));
        }
        Matrix::parse(path, &text)
    }

    /// Parses a file's text. Errors count rows and columns from 1, and CPUs from 0.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Matrix, ImportError> {
        let trim = |cell: &str| cell.trim().trim_matches('"').to_owned();
        // Blank lines at the end are no rows. A row without latencies has commas there.
        let lines = text.lines().map(|line| line.split(',').map(trim).collect::<Vec<_>>());
        let mut rows: Vec<(usize, Vec<String>)> = lines.enumerate().collect();
        while rows.last().is_some_and(|(_, row)| row.len() == 1 && row[0].is_empty()) {
            rows.pop();
        }
        let first_column = without_labels(&mut rows);
        let path = || path.to_owned();
        let cpus = rows.len();
        if !(2..=MOST_CPUS).contains(&cpus) {
            return Err(ImportError::Size { path: path(), cpus, most: MOST_CPUS });
        }
        let columns = rows.iter().map(|(_, row)| row.len()).max().unwrap_or(0);
        // The last CPU's column is empty in a lower triangle, and its comma may be left out.
        if columns > cpus || columns + 1 < cpus {
            return Err(ImportError::NotSquare { path: path(), rows: cpus, columns });
        }
        let mut cells = vec![None; cpus * cpus];
        for (a, (line, row)) in rows.iter().enumerate() {
            for (b, text) in row.iter().enumerate().filter(|(b, text)| *b != a && !text.is_empty())
            {
                let ns = text.parse().ok().filter(|ns: &f64| ns.is_finite() && *ns > 0.0);
                let Some(ns) = ns else {
                    let (row, column, text) = (line + 1, b + first_column + 1, text.clone());
                    return Err(ImportError::Cell { path: path(), row, column, text });
                };
                cells[a * cpus + b] = Some(ns);
            }
        }
        for (a, b) in (0..cpus).flat_map(|a| (0..a).map(move |b| (a, b))) {
            if cells[a * cpus + b].or(cells[b * cpus + a]).is_none() {
                return Err(ImportError::Missing { path: path(), a, b });
            }
        }
        Ok(Matrix::of(cpus, |a, b| {
            let both = [cells[a * cpus + b], cells[b * cpus + a]];
            let known = both.iter().flatten().count();
            both.iter().flatten().sum::<f64>() / known as f64
        }))
    }

    pub(super) fn cpus(&self) -> usize {
        self.cpus
    }

    pub(super) fn at(&self, a: usize, b: usize) -> f64 {
        self.ns[a * self.cpus + b]
    }
}

/// Takes away the row of labels, if there is one, and the column of the same labels. Returns how
/// many columns went.
fn without_labels(rows: &mut Vec<(usize, Vec<String>)>) -> usize {
    let Some((_, head)) = rows.first() else { return 0 };
    let is_label = |at: usize, cell: &str| match cell.parse::<f64>() {
        // Numbers of CPUs, and no latencies.
        Ok(number) => number == at as f64 || number == at as f64 + 1.0,
        Err(_) => !cell.is_empty(),
    };
    let column = usize::from(rows.len() == head.len() && rows.len() > 1);
    let labels = &head[column..];
    let are_labels = labels.iter().enumerate().all(|(at, cell)| is_label(at, cell));
    let named = |at: usize| rows[at].1.first() == head.get(at);
    let is_column = column == 0 || (1..rows.len()).all(named);
    let is_head = rows.len() == labels.len() + 1 && are_labels && is_column;
    if !is_head {
        return 0;
    }
    rows.remove(0);
    rows.iter_mut().for_each(|(_, row)| drop(row.drain(..column.min(row.len()))));
    column
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Matrix, String> {
        Matrix::parse(Path::new("m.csv"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_matrix_is_read_in_each_of_its_forms() {
        let known = Matrix::of(3, |a, b| match (a, b) {
            (1, 0) => 10.0,
            (2, 0) => 20.5,
            _ => 30.0,
        });
        for text in [
            // A lower triangle, as the program of the public collection prints it.
            ",,\n10,,\n20.5,30,\n",
            ",\n10,\n20.5,30\n",
            // An upper one; all of it, with a diagonal; with spaces.
            ",10,20.5\n,,30\n,,\n",
            "0,10,20.5\n10,0,30\n20.5,30,0\n",
            " nan, 10 ,20.5\r\n10,nan,30\r\n20.5,30,nan\r\n\n",
            // Two latencies of one pair.
            ",9,20.5\n11,,30\n20.5,30,\n",
            // Labels: numbers from 0 or 1, or names; with a column, or without.
            "CPU,0,1,2\n0,,,\n1,10,,\n2,20.5,30,\n",
            ",1,2,3\n1,,10,20.5\n2,10,,30\n3,20.5,30,\n",
            "0,1,2\n,,\n10,,\n20.5,30,\n",
            "\"\",\"a\",\"b\",\"c\"\n\"a\",,,\n\"b\",10,,\n\"c\",20.5,30,\n",
        ] {
            assert_eq!(parse(text), Ok(known.clone()), "{text}");
        }
        assert_eq!((known.cpus(), known.at(0, 2), known.at(1, 1)), (3, 20.5, 0.0));
        // Two CPUs, and numbers that could be labels.
        assert_eq!(parse(",\n1,").unwrap().at(1, 0), 1.0);
    }

    #[test]
    fn what_is_no_matrix_says_where_and_why() {
        for (text, why) in [
            ("", "at least 2 CPUs"),
            ("5", "at least 2 CPUs"),
            (",,\n10,,\n", "2 rows of 3 columns"),
            (",\n10\n20,30\n1,2\n", "4 rows of 2 columns"),
            (",,\n10,,\n20,x,\n", "row 3, column 2: \"x\""),
            (",,\n10,,\n20,0.0,\n", "row 3, column 2: \"0.0\""),
            (",,\n10,,\n-20,3,\n", "row 3, column 1: \"-20\""),
            (",,\n10,,\ninf,3,\n", "row 3, column 1: \"inf\""),
            ("CPU,0,1,2\n0,,,\n1,10,,\n2,20,y,\n", "row 4, column 3: \"y\""),
            (",,\n10,,\n20,,\n", "between CPUs 2 and 1 is missing"),
        ] {
            let told = parse(text).unwrap_err();
            assert!(told.contains(why) && told.contains("m.csv"), "{text}: {told}");
        }
    }
}
