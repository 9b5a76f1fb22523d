//! The curves that the tests measured, as `coreline_sim::measure::scaling` wrote them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::scale_error::ScaleError;

const SCHEMA: &str = "scale-record/1";

/// A curve, as a test measured it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Record {
    schema: String,
    pub(super) simulator: String,
    #[serde(flatten)]
    pub(super) key: Key,
    pub(super) test: String,
    pub(super) band: String,
    pub(super) scales_to: usize,
    pub(super) rows: Vec<Row>,
}

/// The data that identifies a curve.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Key {
    pub(super) package: String,
    pub(super) name: String,
    pub(super) machine: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Row {
    pub(super) threads: usize,
    /// Operations per simulated second, at each point of the band.
    pub(super) rates: Vec<f64>,
    pub(super) replay: String,
    pub(super) hottest: Option<Hottest>,
}

/// The word whose accesses take the most time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Hottest {
    pub(super) names: Vec<String>,
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) share: f64,
    pub(super) shared_with: Vec<String>,
}

/// All records of a folder, by what they are known by.
pub(super) fn read(folder: &Path) -> Result<BTreeMap<Key, Record>, ScaleError> {
    let unreadable = |path: &Path, source| ScaleError::Read {
        path: path.to_owned(),
        source,
        remedy: "give the folder that CORELINE_SCALE named when the tests ran",
    };
    let mut records = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
        let path = entry.map_err(|error| unreadable(folder, error))?.path();
        if path.extension() != Some(OsStr::new("toml")) {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
        let wrong = |why: String| ScaleError::Record { path: path.clone(), why };
        let record: Record = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if record.schema != SCHEMA {
            return Err(wrong(format!("its schema is {:?}, not {SCHEMA:?}", record.schema)));
        }
        let key = record.key.clone();
        // A runner that repeats a test measures its curve again.
        if records.get(&key).is_some_and(|other| *other != record) {
            let Key { package, name, machine } = key;
            return Err(ScaleError::Twice { package, name, machine });
        }
        records.insert(key, record);
    }
    match records.is_empty() {
        true => Err(ScaleError::NoCurves),
        false => Ok(records),
    }
}
