//! The native part of the Python package `coreline`, which is thin: it hands the sweeps of
//! [`coreline_lab`] to Python. The classes that users see are in the folder `python`.
//!
//! | module | holds |
//! |---|---|
//! | `error` | exceptions |
//! | `rows` | rows, as dictionaries and as Arrow's C stream |
//! | `sweep` | a grid's cells, a store with its plan, a task |
//!
//! The module does not need the GIL, and `PyO3` declares that by default: its classes are frozen,
//! a store is behind a lock, and functions keep no state. Free-threaded interpreters before 3.15
//! load no abi3 library, so they need one of their own. No such interpreter has run it yet.

mod error;
mod rows;
mod sweep;

use std::ffi::OsString;

use pyo3::prelude::*;

/// The memory of simulated programs comes from their machine.
#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

#[pymodule(name = "_coreline")]
mod module {
    #[pymodule_export]
    use super::rows::Rows;
    #[pymodule_export]
    use super::sweep::{Store, Sweep, failed_row, run_task, task};
    #[pymodule_export]
    use super::{engine, machine, machines, program, scenarios};
}

/// The code that computes rows.
#[pyfunction]
fn engine() -> &'static str {
    coreline_lab::sweep::ENGINE
}

/// The names of the machines that the package brings.
#[pyfunction]
fn machines() -> Vec<&'static str> {
    coreline_lab::catalogue::machines()
}

/// The facts of a machine, as JSON.
#[pyfunction]
fn machine(py: Python<'_>, asked: &str) -> PyResult<String> {
    let facts = py.detach(|| coreline_lab::catalogue::machine(asked));
    facts.map(|facts| facts.to_string()).map_err(error::of)
}

/// The scenarios, as JSON.
#[pyfunction]
fn scenarios() -> String {
    coreline_lab::catalogue::scenarios().to_string()
}

/// Runs the program `coreline` with these arguments, and returns its exit code.
#[pyfunction]
fn program(py: Python<'_>, args: Vec<OsString>) -> u8 {
    // Python leaves a standard output alone that is closed, so it is not too late.
    coreline_world::native::note_output();
    py.detach(|| coreline_lab::program_with(args))
}
