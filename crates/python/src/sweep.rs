//! A grid's cells, a store with its plan, and a task.
//!
//! A task is JSON. If it has a `store`, the worker writes the rows there, and returns as JSON what
//! it wrote. Otherwise it returns the rows as a Parquet file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coreline_lab::sweep::{self as lab, Estimate, Plan, Row, Task, TaskRows, WorkerStore, Written};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::{Deserialize, Serialize};

use crate::error;
use crate::rows::Rows;

/// The number of cells, the seconds of CPU time, the bytes of memory, and whether the time is a
/// guess.
type EstimateParts = (usize, f64, u64, bool);

fn parts(estimate: &Estimate) -> EstimateParts {
    let Estimate { cells, time, memory, is_rough } = *estimate;
    (cells, time.as_secs_f64(), memory, is_rough)
}

/// The cells of a specification.
#[pyclass(frozen, module = "coreline._coreline")]
pub(crate) struct Sweep(Arc<lab::Sweep>);

#[pymethods]
impl Sweep {
    /// Reads a specification in the form of JSON.
    #[new]
    fn new(py: Python<'_>, specification: &str) -> PyResult<Sweep> {
        let sweep = py.detach(|| lab::Sweep::from_json(specification));
        Ok(Sweep(Arc::new(sweep.map_err(error::of)?)))
    }

    #[getter]
    fn scenario(&self) -> &'static str {
        self.0.scenario()
    }

    #[getter]
    fn keys(&self) -> Vec<String> {
        self.0.keys().to_vec()
    }

    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0.columns()
    }

    /// The task that runs these cells, as JSON, for one of this many workers.
    fn task(&self, keys: Vec<String>, workers: usize) -> PyResult<String> {
        json(self.0.task(keys, workers), None)
    }

    /// The estimate of the cells that a store lacks; of all cells without a store.
    #[pyo3(signature = (store = None))]
    fn estimate(&self, py: Python<'_>, store: Option<PathBuf>) -> PyResult<EstimateParts> {
        let plan = py.detach(|| match store {
            Some(dir) => lab::Store::look(&dir, &self.0)?.plan(&self.0),
            None => Plan::new(&self.0, |_| false),
        });
        Ok(parts(&plan.map_err(error::of)?.estimate()))
    }
}

/// An open store of a sweep, with the plan of the cells that remain.
#[pyclass(frozen, module = "coreline._coreline")]
pub(crate) struct Store {
    sweep: Arc<lab::Sweep>,
    open: Mutex<Option<(lab::Store, Plan)>>,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, Option<(lab::Store, Plan)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut lab::Store, &mut Plan) -> Result<T, lab::SweepError> + Send,
    ) -> PyResult<T> {
        py.detach(|| match &mut *self.lock() {
            Some((store, plan)) => act(store, plan).map_err(error::of),
            None => Err(PyValueError::new_err("the store is closed")),
        })
    }
}

#[pymethods]
impl Store {
    /// Opens the store of a sweep, or creates it, and locks it.
    #[new]
    fn new(py: Python<'_>, dir: PathBuf, sweep: &Sweep) -> PyResult<Store> {
        let sweep = Arc::clone(&sweep.0);
        let open = py.detach(|| {
            let store = lab::Store::open(&dir, &sweep)?;
            let plan = store.plan(&sweep)?;
            Ok((store, plan))
        });
        let open = Mutex::new(Some(open.map_err(error::of)?));
        Ok(Store { sweep, open })
    }

    /// Unlocks the store.
    fn close(&self) {
        self.lock().take();
    }

    /// The estimate of the cells that no task has taken.
    fn estimate(&self, py: Python<'_>) -> PyResult<EstimateParts> {
        self.with(py, |_, plan| Ok(parts(&plan.estimate())))
    }

    /// The keys of the next task for one of this many workers, or nothing if no cell remains.
    fn next_keys(&self, py: Python<'_>, workers: usize) -> PyResult<Option<Vec<String>>> {
        self.with(py, |_, plan| Ok(plan.next_keys(workers)))
    }

    /// Commits what a worker returned for these keys, and returns the number of its rows. Keys
    /// without a row run later.
    fn commit(&self, py: Python<'_>, keys: Vec<String>, file: &[u8]) -> PyResult<usize> {
        self.with(py, |store, plan| {
            let done = TaskRows::from_parquet(file)?;
            store.commit(&done)?;
            plan.learn(keys, &done.steps(), done.time);
            Ok(done.rows.len())
        })
    }

    /// The task that runs these cells and writes their rows into this store, as JSON.
    fn task(&self, py: Python<'_>, keys: Vec<String>, workers: usize) -> PyResult<String> {
        let store = self.with(py, |store, _| store.for_workers())?;
        json(self.sweep.task(keys, workers), Some(store))
    }

    /// Commits what a worker wrote for these keys, and returns the number of its rows. Keys without
    /// a row run later.
    fn accept(&self, py: Python<'_>, keys: Vec<String>, written: &[u8]) -> PyResult<usize> {
        let written: Written = serde_json::from_slice(written).map_err(invalid)?;
        self.with(py, |store, plan| {
            store.accept(&keys, &written)?;
            let steps = written.steps();
            plan.learn(keys, &steps, written.time);
            Ok(steps.len())
        })
    }

    /// The rows of the sweep that the store has.
    fn rows(&self, py: Python<'_>) -> PyResult<Rows> {
        let rows = self.with(py, |store, _| store.rows(&self.sweep))?;
        Ok(Rows::new(self.sweep.scenario(), rows))
    }
}

/// The input of a worker.
#[derive(Serialize, Deserialize)]
struct Order {
    #[serde(flatten)]
    task: Task,
    /// Where the rows go.
    store: Option<WorkerStore>,
}

/// A task of keys on machines that are given by the texts of their files, as JSON.
#[pyfunction]
pub(crate) fn task(keys: Vec<String>, machines: Vec<String>) -> PyResult<String> {
    json(Task::new(keys, machines, 1), None)
}

/// Runs a task, and returns its rows as a Parquet file, or what was written into its store.
#[pyfunction]
pub(crate) fn run_task<'py>(py: Python<'py>, task: &str) -> PyResult<Bound<'py, PyBytes>> {
    let Order { task, store } = read(task)?;
    let write = |store: WorkerStore| {
        // Before the first cell runs, so that no minutes are lost.
        store.check()?;
        store.write(&task.run(|| false)?)
    };
    let answer = py.detach(|| match store {
        None => task.run(|| false).and_then(|done| done.to_parquet()).map_err(error::of),
        Some(store) => serde_json::to_vec(&write(store).map_err(error::of)?).map_err(invalid),
    });
    Ok(PyBytes::new(py, &answer?))
}

/// The file of the one row of a task that no worker survives.
#[pyfunction]
pub(crate) fn failed_row<'py>(
    py: Python<'py>,
    task: &str,
    why: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let task = read(task)?.task;
    let file = || {
        let machines = lab::Machines::new(&task.machines)?;
        let row = |key: &String| Row::failed(key, why, &machines);
        let rows = task.keys.iter().map(row).collect::<Result<_, _>>()?;
        TaskRows { rows, time: std::time::Duration::ZERO }.to_parquet()
    };
    Ok(PyBytes::new(py, &py.detach(file).map_err(error::of)?))
}

fn read(task: &str) -> PyResult<Order> {
    serde_json::from_str(task).map_err(invalid)
}

fn json(task: Task, store: Option<WorkerStore>) -> PyResult<String> {
    serde_json::to_string(&Order { task, store }).map_err(invalid)
}

fn invalid(error: serde_json::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}
