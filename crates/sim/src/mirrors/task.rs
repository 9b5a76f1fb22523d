//! Asynchronous code in a machine: `block_on`, and a small executor for one thread.
//!
//! std has no executor, so the crate has its own. [`Executor`] is minimal. It consists of a queue
//! of ready tasks under a mutex of the machine. Its thread parks when the queue is empty. Any
//! simulated thread may use a waker, and the waker's cost is charged.
//!
//! std's [`Waker`] takes a std `Arc` of a type that implements [`Wake`]. The language lets only
//! std's own type be the receiver `self: Arc<Self>`. So code that implements `Wake` keeps std's
//! `Arc` as the receiver. `Waker::from` also takes the mirrored `Arc`.

use core::future::Future;
use core::pin::{Pin, pin};
use std::collections::VecDeque;
use std::sync::Arc as HostArc;

pub use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker, ready};

use super::sync::{Arc, Condvar, Mutex, PoisonError};
use super::thread::{self, Thread};

impl<W: Wake + Send + Sync + 'static> From<Arc<W>> for Waker {
    fn from(task: Arc<W>) -> Waker {
        Waker::from(task.into_std())
    }
}

/// Wakes a thread that blocks on a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: HostArc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to completion on the calling thread. The thread parks while the future waits.
///
/// ```
/// # #[global_allocator]
/// # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
/// use coreline_sim::{Machine, task};
///
/// let run = Machine::preset("host-2c")?.run(|| task::block_on(async { 6 * 7 }))?;
/// assert_eq!(run.value, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// Panics outside of a machine.
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(HostArc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// The tasks that are ready, by number, and whether their executor waits for one.
struct Ready {
    queue: Mutex<VecDeque<usize>>,
    came: Condvar,
}

impl Ready {
    fn push(&self, task: usize) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // A task that is in the queue is polled after this wake in any case.
        if !queue.contains(&task) {
            queue.push_back(task);
        }
        drop(queue);
        self.came.notify_one();
    }

    #[track_caller]
    fn pop(&self) -> usize {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(task) = queue.pop_front() {
                return task;
            }
            queue = self.came.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Wakes a task of an executor.
struct Task {
    number: usize,
    ready: HostArc<Ready>,
}

impl Wake for Task {
    fn wake(self: HostArc<Self>) {
        self.ready.push(self.number);
    }
}

/// An executor that runs futures on one thread, which parks while no future is ready. The futures
/// need not be `Send`.
///
/// ```
/// # #[global_allocator]
/// # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
/// use std::cell::Cell;
/// use std::rc::Rc;
///
/// use coreline_sim::{Machine, task};
///
/// let run = Machine::preset("host-2c")?.run(|| {
///     let sum = Rc::new(Cell::new(0));
///     let mut executor = task::Executor::new();
///     for n in 1..=4 {
///         let sum = Rc::clone(&sum);
///         executor.spawn(async move { sum.set(sum.get() + n) });
///     }
///     executor.run();
///     sum.get()
/// })?;
/// assert_eq!(run.value, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Executor<'a> {
    /// The tasks by number; `None` for one that has ended.
    tasks: Vec<Option<Pin<Box<dyn Future<Output = ()> + 'a>>>>,
    ready: HostArc<Ready>,
}

impl<'a> Executor<'a> {
    /// Creates an executor without tasks.
    pub fn new() -> Executor<'a> {
        let ready = Ready { queue: Mutex::new(VecDeque::new()), came: Condvar::new() };
        Executor { tasks: Vec::new(), ready: HostArc::new(ready) }
    }

    /// Adds a task, which [`run`](Executor::run) will run.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + 'a) {
        self.ready.push(self.tasks.len());
        self.tasks.push(Some(Box::pin(future)));
    }

    /// Runs all tasks to completion, in the order in which they were woken.
    ///
    /// # Panics
    ///
    /// Panics outside of a machine, or if a task panics.
    #[track_caller]
    pub fn run(&mut self) {
        let mut left = self.tasks.iter().flatten().count();
        while left > 0 {
            let number = self.ready.pop();
            let Some(task) = &mut self.tasks[number] else { continue };
            let waker = Waker::from(HostArc::new(Task { number, ready: self.ready.clone() }));
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                self.tasks[number] = None;
                left -= 1;
            }
        }
    }
}

impl Default for Executor<'_> {
    fn default() -> Self {
        Executor::new()
    }
}

impl core::fmt::Debug for Executor<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Executor").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}
