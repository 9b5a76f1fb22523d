//! Rows, as dictionaries and as Arrow's C stream, which pandas, polars and `DuckDB` read.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray};
use arrow_array::{RecordBatchOptions, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use coreline_lab::sweep::{Kind, Row, TaskRows};
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use serde_json::Value;

use crate::error;

/// Rows of one scenario, which do not change.
#[pyclass(frozen, sequence, module = "coreline._coreline")]
pub(crate) struct Rows {
    columns: Vec<(String, Kind)>,
    rows: Vec<Row>,
}

impl Rows {
    pub(crate) fn new(scenario: &str, rows: Vec<Row>) -> Rows {
        Rows { columns: Row::columns(scenario).unwrap_or_default(), rows }
    }

    fn batch(&self) -> Result<RecordBatch, ArrowError> {
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for (name, kind) in &self.columns {
            let cells = self.rows.iter().map(|row| row.value(name));
            let (of, array): (DataType, ArrayRef) = match kind {
                Kind::Whole => {
                    (DataType::UInt64, Arc::new(UInt64Array::from_iter(cells.map(Value::as_u64))))
                }
                Kind::Number => {
                    (DataType::Float64, Arc::new(Float64Array::from_iter(cells.map(Value::as_f64))))
                }
                Kind::Text => {
                    (DataType::Utf8, Arc::new(StringArray::from_iter(cells.map(Value::as_str))))
                }
            };
            fields.push(Field::new(name, of, true));
            arrays.push(array);
        }
        let count = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &count)
    }
}

#[pymethods]
impl Rows {
    /// The rows of files that workers returned.
    #[staticmethod]
    fn from_parquet(py: Python<'_>, file: &[u8]) -> PyResult<Rows> {
        let done = py.detach(|| TaskRows::from_parquet(file)).map_err(error::of)?;
        let scenario = done.rows.first().map_or("", Row::scenario);
        Ok(Rows::new(scenario, done.rows))
    }

    #[getter]
    fn columns(&self) -> Vec<&str> {
        self.columns.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }

    /// A row as a dictionary, in the order of the columns.
    fn row<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyDict>> {
        let row = self.rows.get(index).ok_or_else(|| PyIndexError::new_err(index))?;
        let dictionary = PyDict::new(py);
        for (name, value) in row.json() {
            match value {
                Value::String(text) => dictionary.set_item(name, text)?,
                Value::Number(number) => match number.as_u64() {
                    Some(whole) => dictionary.set_item(name, whole)?,
                    None => dictionary.set_item(name, number.as_f64())?,
                },
                _ => dictionary.set_item(name, py.None())?,
            }
        }
        Ok(dictionary)
    }

    /// These rows as a new object.
    fn take(&self, indices: Vec<usize>) -> PyResult<Rows> {
        let row = |index: usize| self.rows.get(index).cloned();
        let rows: Option<Vec<Row>> = indices.into_iter().map(row).collect();
        let rows = rows.ok_or_else(|| PyIndexError::new_err("there is no such row"))?;
        Ok(Rows { columns: self.columns.clone(), rows })
    }

    /// A chart of a figure over a parameter, as a figure of Plotly in JSON.
    fn chart(&self, py: Python<'_>, metric: &str, over: Option<&str>) -> PyResult<String> {
        let chart = py.detach(|| coreline_lab::chart(&self.rows, metric, over));
        chart.map(|chart| chart.to_string()).map_err(error::of)
    }

    /// The rows as a stream of one batch.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows to leave a request unanswered.
        let _ = requested_schema;
        let wrong = |error: ArrowError| PyRuntimeError::new_err(error.to_string());
        let batch = self.batch().map_err(wrong)?;
        let schema = batch.schema();
        let batches = RecordBatchIterator::new([Ok(batch)], schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}
