//! The file with the curves that must not get worse. It is text that people review.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

use super::record::{Key, Record};
use crate::scale_error::ScaleError;

const FORMAT: u32 = 1;

const HEAD: &str = "\
# The throughput of this package's code on simulated machines. `cargo coreline scale` fails if a
# curve gets worse. `cargo coreline scale --bless \"REASON\"` writes this file. Review it like code.
#
# A row has the operations per second with a number of threads, at each point of the band.
";

#[derive(Debug, Deserialize)]
struct File {
    format: u32,
    simulator: String,
    #[serde(default)]
    curve: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(flatten)]
    key: Key,
    #[serde(flatten)]
    curve: Curve,
}

/// A curve as it was when it was blessed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Curve {
    /// The digest of what figures depend on, beside the code.
    pub(super) band: String,
    pub(super) reason: String,
    /// The highest number of threads to which the program scales.
    pub(super) scales_to: usize,
    /// By the number of threads, which is text in TOML.
    #[serde(deserialize_with = "rows")]
    pub(super) rates: BTreeMap<usize, Vec<f64>>,
}

fn rows<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<usize, Vec<f64>>, D::Error> {
    let rows = BTreeMap::<String, Vec<f64>>::deserialize(from)?;
    let row = |(threads, rates): (String, Vec<f64>)| {
        let number = threads.parse().map_err(|_| {
            serde::de::Error::custom(format!("{threads:?} is not a number of threads"))
        });
        number.map(|threads| (threads, rates))
    };
    rows.into_iter().map(row).collect()
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Baseline {
    /// The version of coreline-sim that simulated the curves.
    pub(super) simulator: String,
    pub(super) curves: BTreeMap<Key, Curve>,
}

/// A rate as the file has it: four digits say more than a test of scaling needs.
pub(super) fn rounded(rate: f64) -> f64 {
    written(rate).parse().unwrap_or(rate)
}

fn written(rate: f64) -> String {
    format!("{rate:.3e}")
}

impl Curve {
    pub(super) fn new(record: &Record, reason: &str) -> Curve {
        let row = |row: &super::record::Row| {
            (row.threads, row.rates.iter().copied().map(rounded).collect())
        };
        Curve {
            band: record.band.clone(),
            reason: reason.to_owned(),
            scales_to: record.scales_to,
            rates: record.rows.iter().map(row).collect(),
        }
    }
}

impl Baseline {
    /// Reads the file. A file that is not there has no curves.
    pub(super) fn read(path: &Path) -> Result<Baseline, ScaleError> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Baseline::default()),
            text => text.map_err(|source| ScaleError::Read {
                path: path.to_owned(),
                source,
                remedy: "give another file with --baseline",
            })?,
        };
        Baseline::parse(&text).map_err(|why| ScaleError::Baseline { path: path.to_owned(), why })
    }

    fn parse(text: &str) -> Result<Baseline, String> {
        let File { format, simulator, curve } =
            toml::from_str(text).map_err(|error| error.to_string())?;
        if format != FORMAT {
            return Err(format!("its format is {format}, and this program reads {FORMAT}"));
        }
        let mut curves = BTreeMap::new();
        for Entry { key, curve } in curve {
            let named = format!("{:?} of {} on {}", key.name, key.package, key.machine);
            if curves.insert(key, curve).is_some() {
                return Err(format!("the curve {named} occurs twice"));
            }
        }
        Ok(Baseline { simulator, curves })
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), ScaleError> {
        fs::write(path, self.text())
            .map_err(|source| ScaleError::Write { path: path.to_owned(), source })
    }

    fn text(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut text =
            format!("{HEAD}format = {FORMAT}\nsimulator = {}\n", quoted(&self.simulator));
        for (Key { package, name, machine }, Curve { band, reason, scales_to, rates }) in
            &self.curves
        {
            text += "\n[[curve]]\n";
            for (field, value) in [
                ("package", package),
                ("name", name),
                ("machine", machine),
                ("band", band),
                ("reason", reason),
            ] {
                let _ = writeln!(text, "{field} = {}", quoted(value));
            }
            let _ = writeln!(text, "scales_to = {scales_to}\n[curve.rates]");
            for (threads, rates) in rates {
                let rates: Vec<String> = rates.iter().copied().map(written).collect();
                let _ = writeln!(text, "{threads} = [{}]", rates.join(", "));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline() -> Baseline {
        let key = |name: &str| Key {
            package: "p".to_owned(),
            name: name.to_owned(),
            machine: "host-2c".to_owned(),
        };
        let curve = |first: f64| Curve {
            band: "00ff".to_owned(),
            reason: "a \"quoted\" reason".to_owned(),
            scales_to: 24,
            rates: [(1, vec![first, 1.0]), (24, vec![2.5e9, 0.0])].into(),
        };
        let curves = [(key("a"), curve(1.234e7)), (key("b \"c\"\n"), curve(3.0))];
        Baseline { simulator: "0.1.0".to_owned(), curves: curves.into() }
    }

    #[test]
    fn what_is_written_is_read_back() {
        assert_eq!(Baseline::parse(&baseline().text()), Ok(baseline()));
    }

    #[test]
    fn a_broken_file_says_what_is_wrong() {
        let text = baseline().text();
        for (from, to, what) in [
            ("format = 1", "format = 2", "its format is 2"),
            ("24 = [", "x = [", "\"x\" is not a number of threads"),
            ("band = \"00ff\"\n", "", "missing field `band`"),
            (
                "name = \"\"\"\nb \"c\"\n\"\"\"",
                "name = \"a\"",
                "the curve \"a\" of p on host-2c occurs twice",
            ),
        ] {
            let broken = text.replace(from, to);
            assert_ne!(broken, text, "{from}");
            let why = Baseline::parse(&broken).expect_err("it is broken");
            assert!(why.contains(what), "{why}");
        }
    }

    #[test]
    fn a_rate_keeps_four_digits() {
        assert_eq!(rounded(123_456_789.0), 1.235e8);
        assert_eq!(rounded(0.0), 0.0);
    }
}
