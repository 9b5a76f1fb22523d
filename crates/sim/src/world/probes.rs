//! Probes: how a program names objects and reads the statistics of its run.

use crate::engine;
use crate::results::report::Transfers;

/// Names the memory of an object of the simulated program, with all its lines. The names appear in
/// the report of a machine with [full statistics](crate::Statistics::Full), and in the reports on
/// locks. The call takes no simulated time, and does nothing outside of a machine.
///
/// ```
/// use coreline_sim::{Machine, Sim, Statistics, name};
/// use coreline_world::{Integer, Ordering, Word, Words};
///
/// #[global_allocator]
/// static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
///
/// let run = Machine::preset("host-2c")?.statistics(Statistics::Full).run(|| {
///     let hits = Box::new(<Sim as Words>::U64::new_in(0));
///     name(&*hits, "hits");
///     hits.fetch_add(1, Ordering::Relaxed);
/// })?;
/// let details = run.report.details.unwrap();
/// assert!(details.lines.iter().any(|line| line.names == ["hits"]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn name<T: ?Sized>(object: &T, name: &str) {
    let address = core::ptr::from_ref(object).addr();
    engine::with(|engine| engine.name(address, size_of_val(object), name));
}

/// Returns the number of accesses so far to lines of the simulated program's memory. `which` gets a
/// line's address, and returns whether the line counts. The difference between two results covers
/// the time in between.
/// The call takes no simulated time. The result does not include accesses to stacks. The call
/// returns `None` without [full statistics](crate::Statistics::Full), or outside of a machine.
///
/// ```
/// use coreline_sim::{Machine, Sim, Statistics, transfers};
/// use coreline_world::{Integer, Ordering, Word, Words};
///
/// #[global_allocator]
/// static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
///
/// let run = Machine::preset("host-2c")?.statistics(Statistics::Full).run(|| {
///     let hits = Box::new(<Sim as Words>::U64::new_in(0));
///     let line = (&raw const *hits).addr() & !63;
///     let count = || transfers(|address| address == line).map_or(0, |all| all.total());
///     hits.fetch_add(1, Ordering::Relaxed);
///     let before = count();
///     (0..3).for_each(|_| _ = hits.fetch_add(1, Ordering::Relaxed));
///     count() - before
/// })?;
/// assert_eq!(run.value, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn transfers(which: impl Fn(usize) -> bool) -> Option<Transfers> {
    engine::with(|engine| engine.transfers(which)).flatten()
}
