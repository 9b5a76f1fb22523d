//! A file of rows: the rows of one task, in Parquet. It is also the form in which a worker returns
//! them, because it keeps each value bit by bit.

use std::time::Duration;

use bytes::Bytes;
use coreline_scenarios::Scenario;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

use super::cell::{Row, TaskRows};
use super::{ENGINE, SweepError};
use crate::export::parquet::file;

/// The facts that a file has, by name: the engine, the scenario, the CPU time of its rows.
const FACTS: [&str; 3] = ["coreline.engine", "coreline.scenario", "coreline.cpu_us"];

/// The values of [`FACTS`] in a file.
pub(super) fn facts(reader: &dyn FileReader) -> [Option<String>; 3] {
    let facts = reader.metadata().file_metadata().key_value_metadata();
    FACTS.map(|name| {
        let found = facts?.iter().find(|fact| fact.key == name);
        found?.value.clone()
    })
}

/// The CPU time that a fact tells.
pub(super) fn time(fact: Option<String>) -> Duration {
    let time = fact.and_then(|time| time.parse().ok()).map(Duration::from_micros);
    time.unwrap_or_default()
}

/// All rows of a file of a scenario.
pub(super) fn rows(
    file: impl ChunkReader + 'static,
    scenario: &'static Scenario,
) -> Result<Vec<Row>, String> {
    let text = |error: parquet::errors::ParquetError| error.to_string();
    let reader = SerializedFileReader::new(file).map_err(text)?;
    let columns = super::cell::columns(scenario);
    let mut rows = Vec::new();
    for row in reader.get_row_iter(None).map_err(text)? {
        let row = row.map_err(text)?;
        let names = row.get_column_iter().map(|(name, _)| name);
        if !names.eq(columns.iter().map(|(name, _)| name)) {
            return Err(format!("its columns are not those of rows of {}", scenario.name));
        }
        let value = |(name, field): (&String, &Field)| match field {
            Field::Null => Ok(Value::Null),
            Field::Str(text) => Ok(Value::from(text.as_str())),
            Field::ULong(number) => Ok(Value::from(*number)),
            Field::Double(number) => Ok(Value::from(*number)),
            other => Err(format!("{name} cannot be {other}")),
        };
        let values: Result<Vec<Value>, String> = row.get_column_iter().map(value).collect();
        rows.push(Row::of_values(scenario, values?));
    }
    Ok(rows)
}

impl TaskRows {
    /// Returns the rows as a Parquet file, which [`from_parquet`](TaskRows::from_parquet) reads.
    /// Without rows it returns no bytes.
    ///
    /// # Errors
    ///
    /// [`SweepError::Returned`] if a row is too large for a file.
    pub fn to_parquet(&self) -> Result<Vec<u8>, SweepError> {
        let Some(first) = self.rows.first() else { return Ok(Vec::new()) };
        let time = self.time.as_micros().to_string();
        let facts = [ENGINE.to_owned(), first.scenario.name.to_owned(), time];
        let facts: Vec<_> = FACTS.into_iter().zip(facts).collect();
        file(&Row::table(first.scenario, &self.rows), &facts)
            .map_err(|error| SweepError::Returned { why: error.to_string() })
    }

    /// Reads the rows that a worker returned.
    ///
    /// # Errors
    ///
    /// [`SweepError::Worker`] if the worker has another engine, and [`SweepError::Returned`] if
    /// the bytes are not those of [`to_parquet`](TaskRows::to_parquet).
    pub fn from_parquet(bytes: &[u8]) -> Result<TaskRows, SweepError> {
        if bytes.is_empty() {
            return Ok(TaskRows { rows: Vec::new(), time: Duration::ZERO });
        }
        let returned = |why: String| SweepError::Returned { why };
        let bytes = Bytes::copy_from_slice(bytes);
        let reader = SerializedFileReader::new(bytes.clone());
        let reader = reader.map_err(|error| returned(error.to_string()))?;
        let [engine, scenario, cpu] = facts(&reader);
        match engine {
            Some(engine) if engine == ENGINE => {}
            Some(found) => return Err(SweepError::Worker { asked: ENGINE.into(), ours: found }),
            None => return Err(returned("the bytes do not name their engine".to_owned())),
        }
        let scenario = scenario.as_deref().and_then(Scenario::named);
        let scenario =
            scenario.ok_or_else(|| returned("their scenario is not known".to_owned()))?;
        let rows = rows(bytes, scenario).map_err(returned)?;
        Ok(TaskRows { rows, time: time(cpu) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Task;
    use super::*;

    /// Two keys of the cheapest cell. The second one fails.
    fn done() -> TaskRows {
        let key = |steps| {
            format!(
                "coreline-sim/1 machine=host-2c seed=7 request=30 faults=none{steps} \
                 program=lockscale config=2-core/1-L3 threads=1 place=packed section=100 \
                 outside=500 variant=fifo window=1000"
            )
        };
        let keys = ["", " steps=100"].map(key).to_vec();
        let task = Task::new(keys, Vec::new(), 1);
        task.run(|| false).unwrap()
    }

    #[test]
    fn rows_come_back_as_they_were_sent() {
        let done = done();
        assert!(done.rows[0].error().is_none() && done.rows[1].error().is_some());
        let back = TaskRows::from_parquet(&done.to_parquet().unwrap()).unwrap();
        assert_eq!(back.rows, done.rows);
        assert_eq!(back.time.as_micros(), done.time.as_micros());
    }

    #[test]
    fn what_is_no_file_of_rows_is_refused() {
        let of = |bytes: &[u8]| TaskRows::from_parquet(bytes);
        assert!(of(b"").unwrap().rows.is_empty());
        assert!(matches!(of(b"rows"), Err(SweepError::Returned { .. })));
        let whole = done().to_parquet().unwrap();
        assert!(matches!(of(&whole[1..]), Err(SweepError::Returned { .. })));
        // An engine of the same length, so that only its name differs.
        let forged = ENGINE.replace(|c: char| c.is_ascii_digit(), "x");
        let text = whole.windows(ENGINE.len()).position(|it| it == ENGINE.as_bytes()).unwrap();
        let mut other = whole;
        other[text..text + ENGINE.len()].copy_from_slice(forged.as_bytes());
        assert!(matches!(of(&other), Err(SweepError::Worker { .. })));
    }
}
