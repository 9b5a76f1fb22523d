//! Exceptions. Python code defines them, so that they have attributes and other bases.

use coreline_lab::sweep::SweepError;
use pyo3::PyErr;

pyo3::import_exception!(coreline._errors, EngineMismatch);
pyo3::import_exception!(coreline._errors, HostTooSmall);
pyo3::import_exception!(coreline._errors, InvalidChart);
pyo3::import_exception!(coreline._errors, InvalidGrid);
pyo3::import_exception!(coreline._errors, StoreError);
pyo3::import_exception!(coreline._errors, StoreInUse);
pyo3::import_exception!(coreline._errors, StoreNotShared);
pyo3::import_exception!(coreline._errors, UnknownCell);

/// The exception for an error. The option of the program is a parameter here.
pub(crate) fn of(error: SweepError) -> PyErr {
    let text = error.to_string().replace("--store", "store=");
    match error {
        SweepError::Spec { .. } => InvalidGrid::new_err(text),
        SweepError::Key { key, .. } => UnknownCell::new_err((text, key)),
        SweepError::Host { key, .. } => HostTooSmall::new_err((text, key)),
        SweepError::Chart { .. } => InvalidChart::new_err(text),
        SweepError::InUse(_) => StoreInUse::new_err(text),
        SweepError::NotShared { .. } => StoreNotShared::new_err(text),
        SweepError::Engine { .. } | SweepError::Worker { .. } => EngineMismatch::new_err(text),
        _ => StoreError::new_err(text),
    }
}
