//! Why no machine file can be made from a matrix of latencies.

use std::io;
use std::path::PathBuf;

use coreline_sim::SpecError;

/// Each says what was expected, what was found and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("cannot read {}: {source}; give the file of a matrix of latencies", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{}: a matrix has at least 2 CPUs and at most {most}, and this one has {cpus}",
        path.display()
    )]
    Size { path: PathBuf, cpus: usize, most: usize },
    #[error(
        "{}: {rows} rows of {columns} columns do not form a square matrix; each CPU needs a row \
         and a column",
        path.display()
    )]
    NotSquare { path: PathBuf, rows: usize, columns: usize },
    #[error(
        "{}, row {row}, column {column}: {text:?} is not a latency in nanoseconds; a latency is a \
         number above 0",
        path.display()
    )]
    Cell { path: PathBuf, row: usize, column: usize, text: String },
    #[error(
        "{}: the latency between CPUs {a} and {b} is missing; every pair needs one, below or \
         above the diagonal",
        path.display()
    )]
    Missing { path: PathBuf, a: usize, b: usize },
    #[error(
        "the latencies form no classes: eight of ten lie between {low} and {high} ns, and no \
         threshold splits the CPUs into groups; a machine file needs classes, such as cores that \
         share a cache"
    )]
    NoClasses { low: f64, high: f64 },
    #[error(
        "a machine file describes a machine whose parts are all alike, but these latencies form \
         {parts} (less than {below} ns between the CPUs of a part, more than {above} ns to the \
         next CPUs); measure one kind of cores, or repeat the measurement if the parts should be \
         alike"
    )]
    Uneven { parts: String, below: f64, above: f64 },
    #[error(
        "the classes {near} and {far} overlap: eight of ten pairs of {near} lie between {near_low} \
         and {near_high} ns, and of {far} between {far_low} and {far_high} ns; repeat the \
         measurement on an idle machine"
    )]
    Overlap {
        near: &'static str,
        near_low: f64,
        near_high: f64,
        far: &'static str,
        far_low: f64,
        far_high: f64,
    },
    #[error(
        "the latencies form {levels} levels of groups ({groups}), but a machine file has only \
         hardware threads, caches, nodes and sockets; give the number of sockets with --sockets"
    )]
    TooDeep { levels: usize, groups: String },
    #[error(
        "the matrix does not split into {asked} sockets; its groups are {groups}; leave out \
         --sockets, or give the number of groups of one size"
    )]
    Sockets { asked: usize, groups: String },
    #[error("no machine file can be made from the matrix: {0}; choose another machine with --like")]
    File(SpecError),
}
