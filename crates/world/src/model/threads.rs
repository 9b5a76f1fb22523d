//! Threads of the model.

use core::sync::atomic::AtomicUsize;
use core::time::Duration;

use super::{Model, place, statics};
use crate::{JoinHandle, Ordering, Place, Placement, SpawnError, Threads};

loom::lazy_static! {
    /// How many threads this execution has had. loom counts ended threads, too. Not an atomic of
    /// loom: the count is the model's own, and must add no interleavings.
    static ref STARTED: AtomicUsize = AtomicUsize::new(1);
}

/// A handle to a thread of the [`Model`].
///
/// The thread must be joined if it uses statics, parks or wakes, because these end with the first
/// thread.
#[derive(Debug)]
pub struct ModelJoinHandle<T>(loom::thread::JoinHandle<T>);

impl<T> JoinHandle<T> for ModelJoinHandle<T> {
    /// Never sees a panic: the first one in any thread fails the check.
    #[track_caller]
    fn join(self) -> T {
        self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn is_current(&self) -> bool {
        self.0.thread().id() == loom::thread::current().id()
    }
}

impl Threads for Model {
    type JoinHandle<T: Send + 'static> = ModelJoinHandle<T>;

    fn spawn<T, F>(placement: Placement, f: F) -> Result<ModelJoinHandle<T>, SpawnError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        spawn(placement, Box::new(f))
    }

    fn yield_now() {
        loom::thread::yield_now();
    }

    fn sleep(_: Duration) {
        loom::thread::yield_now();
    }
}

/// Boxed, so that loom's part of it is compiled once for each type of result, and not for each
/// closure.
fn spawn<T: Send + 'static>(
    placement: Placement,
    f: Box<dyn FnOnce() -> T + Send>,
) -> Result<ModelJoinHandle<T>, SpawnError> {
    let cpu = match placement {
        Placement::Anywhere => Model::cpu(),
        Placement::On(cpu) => cpu,
    };
    let machine = place::topology();
    if machine.cpu(cpu).is_none() {
        return Err(SpawnError::Cpu {
            cpu,
            why: "the model has no such CPU".into(),
            allowed: format!("CPUs {}", machine.set()),
        });
    }
    // Relaxed: one host thread runs all threads of an execution.
    if STARTED.fetch_add(1, Ordering::Relaxed) >= loom::MAX_THREADS {
        return Err(SpawnError::Exhausted(format!(
            "loom runs at most {} threads in an execution, including ended threads and the first \
             thread; use fewer",
            loom::MAX_THREADS
        )));
    }
    Ok(ModelJoinHandle(loom::thread::spawn(move || {
        place::set_cpu(cpu);
        let value = f();
        statics::end_thread();
        value
    })))
}
