//! Sweeps: grids of simulated runs, whose finished rows are kept in a folder of Parquet files.
//!
//! A *cell* is one simulated run. Its key is its [replay line](coreline_sim::Replay), which holds
//! everything that the run depends on except the code, so the same key gives the same [row](Row) on
//! any host. [`ENGINE`] names the code. A [`Sweep`] is the list of the cells that a specification
//! names. A [`Plan`] cuts it into [tasks](Task) that take half a second or more. A [`Store`] keeps
//! the rows of finished tasks, so that no finished cell runs again.
//!
//! The program's verb `sweep` runs tasks on the threads of one process. Another engine runs them in
//! processes of its own. Such a process returns what [`Task::run`] returned, or writes it into the
//! store's folder if it sees the folder, too: see the Python package.
//!
//! | module | holds |
//! |---|---|
//! | `spec` | a specification, and the cells that it names |
//! | `cell` | a run of a cell, and its row |
//! | `plan` | estimates; the next task |
//! | `file` | the rows of a task as a Parquet file |
//! | `shared` | the store's folder as a worker sees it |
//! | `store` | finished rows, in Parquet files |
//! | `show` | the verbs `sweep` and `cells` |

pub(crate) mod cell;
mod file;
mod plan;
mod shared;
pub(crate) mod show;
mod spec;
mod store;
#[cfg(test)]
mod tests;

use cell::Cell;
pub use cell::{ENGINE, Kind, Machines, Row, Task, TaskRows};
pub use plan::{Estimate, Plan};
pub use shared::{WorkerStore, Written};
pub use spec::Sweep;
pub use store::Store;

pub use crate::sweep_error::SweepError;
