//! Threads that start together, in one role or in several.

use core::fmt;
use core::time::Duration;
use std::panic::resume_unwind;

use coreline_topology::CpuId;
use coreline_world::{Clock as _, Line};

use super::course::{Course, Marks, STEADY, Until};
use crate::Sim;
use crate::engine::inside;
use crate::hardware::arena;
use crate::mirrors::atomic::{AtomicU64, Ordering};
use crate::mirrors::hint::work;
use crate::mirrors::thread::{self, Builder, ScopedJoinHandle};
use crate::results::report::Transfers;

/// The result of threads that started together.
#[derive(Debug, Clone, PartialEq)]
pub struct Parallel {
    /// The condition that ended the measurement.
    pub until: Until,
    /// The time from the common start to the end of the last thread, in simulated nanoseconds.
    pub span_ns: u64,
    /// The time between the starts of the first and the last thread, in simulated nanoseconds. It
    /// is small, unless several threads share a CPU.
    pub apart_ns: u64,
    /// The accesses of the span by source, for the whole machine. They include the few accesses
    /// that a thread makes after its own last operation.
    pub transfers: Transfers,
    /// The results by role, in the order in which [`roles`] got them; one for [`parallel`].
    pub roles: Vec<RoleRun>,
}

/// The result of the threads of one role.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleRun {
    /// The role's name.
    pub name: String,
    /// The condition that ended the measurement.
    pub until: Until,
    /// The time from the common start to the end of the role's last thread, in simulated
    /// nanoseconds.
    pub span_ns: u64,
    /// How far the rate of all threads changed within the run: the highest rate of its windows,
    /// divided by the lowest. The windows are the last three of [`Until::Steady`], and otherwise
    /// the two halves of all rounds or of the time. The result is NaN if they do not show the
    /// change: each thread made one round, a thread began too late, or no round of the role ended
    /// in one of the last three windows.
    pub drift: f64,
    /// The results by thread, ordered by thread number.
    pub threads: Vec<ThreadRun>,
}

/// The result of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadRun {
    /// The number of rounds.
    pub rounds: u64,
    /// The number of operations that the rounds counted.
    pub operations: u64,
    /// The time that the rounds took, in simulated nanoseconds. In a window, it is the time from
    /// the first thread's start to the end of this thread's last round.
    pub time_ns: u64,
}

impl Parallel {
    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.runs().count()
    }

    /// Returns the results of all threads, ordered by role and thread number.
    pub fn runs(&self) -> impl Iterator<Item = ThreadRun> + '_ {
        self.roles.iter().flat_map(|role| &role.threads).copied()
    }

    /// Returns the throughput of all threads, in operations per simulated second.
    pub fn per_second(&self) -> f64 {
        self.roles.iter().map(RoleRun::per_second).sum()
    }

    /// Returns the lowest [`share`](RoleRun::share) of a role.
    pub fn share(&self) -> f64 {
        self.roles.iter().map(RoleRun::share).fold(f64::NAN, f64::min)
    }

    /// Returns the highest [`drift`](RoleRun::drift) of a role, or NaN if the drift of a role is
    /// NaN.
    pub fn drift(&self) -> f64 {
        let most = |most: f64, role: f64| if role.is_nan() { role } else { most.max(role) };
        self.roles.iter().map(|role| role.drift).fold(1.0, most)
    }
}

impl RoleRun {
    /// Returns the throughput of the role's threads, in operations per simulated second. For a
    /// number of rounds, this is all operations over the time of the slowest thread. Otherwise it
    /// is the sum of the threads' own rates. In a window, the time of each of them counts from the
    /// common start. It is 0 if the role has no thread.
    pub fn per_second(&self) -> f64 {
        let rate = |operations: u64, ns: u64| match operations {
            0 => 0.0,
            _ => operations as f64 * 1e9 / ns as f64,
        };
        match self.until {
            Until::Rounds(_) => {
                rate(self.threads.iter().map(|thread| thread.operations).sum(), self.span_ns)
            }
            _ => self.threads.iter().map(|thread| rate(thread.operations, thread.time_ns)).sum(),
        }
    }

    /// Returns the slowest thread's speed in rounds, divided by the fastest thread's speed. A value
    /// of 1 is fair.
    pub fn share(&self) -> f64 {
        let speed = |thread: &ThreadRun| thread.rounds as f64 / thread.time_ns.max(1) as f64;
        let speeds = || self.threads.iter().map(speed);
        let (low, high) = (speeds().fold(f64::NAN, f64::min), speeds().fold(f64::NAN, f64::max));
        low / high
    }

    /// Returns whether the rate was steady: its [`drift`](RoleRun::drift) is at most 1.2.
    pub fn is_steady(&self) -> bool {
        self.threads.is_empty() || self.drift <= STEADY
    }
}

/// The work of some threads of a measurement.
pub struct Role<'a> {
    name: &'a str,
    threads: usize,
    op: Box<dyn Fn(usize) -> u64 + Sync + 'a>,
}

impl<'a> Role<'a> {
    /// Creates a role whose threads run `op`, which counts as one operation. `op` gets the number
    /// of its thread in the role, counted from 0. There may be no thread.
    pub fn new(name: &'a str, threads: usize, op: impl Fn(usize) + Sync + 'a) -> Role<'a> {
        Role::counting(name, threads, move |thread| {
            op(thread);
            1
        })
    }

    /// Creates a role whose threads run `op`, which returns how many operations it counts as. This
    /// is 0 if the operation failed, or if only the other roles count.
    pub fn counting(
        name: &'a str,
        threads: usize,
        op: impl Fn(usize) -> u64 + Sync + 'a,
    ) -> Role<'a> {
        // A closure of the harness takes no place among the program's objects.
        let _host = arena::leave();
        Role { name, threads, op: Box::new(op) }
    }
}

impl fmt::Debug for Role<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Role { name, threads, .. } = self;
        f.debug_struct("Role").field("name", name).field("threads", threads).finish_non_exhaustive()
    }
}

/// The interval at which a waiting thread checks whether the others have arrived.
const LOOK: Duration = Duration::from_micros(20);

/// How long before the common start a thread is awake.
const AWAKE: Duration = Duration::from_micros(5);

/// The approximate precision of the common start: the time that a read of the clock takes.
const EXACT: Duration = Duration::from_nanos(30);

/// Runs `op` on each of `threads` threads, which start at the same time, for a number of rounds, a
/// window of time, or [until](Until) the rate is steady. `op` gets the number of its thread,
/// counted from 0. Call `parallel` in a machine.
///
/// Thread `n` runs on CPU `n`. If there are more threads than CPUs, the assignment wraps around to
/// the first CPU. Before the start each thread does one more operation, which is not timed, because
/// first accesses miss and allocate memory. The caller's other code, such as setup and drops, is
/// not timed either.
///
/// ```
/// use coreline_sim::atomic::{AtomicU64, Ordering};
/// use coreline_sim::{Machine, measure};
///
/// #[global_allocator]
/// static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
///
/// let run = Machine::preset("epyc-9654-2s")?.run(|| {
///     let hits = AtomicU64::new(0);
///     measure::parallel(192, 10, |_| _ = hits.fetch_add(1, Ordering::Relaxed))
/// })?;
/// println!("{:.0} million additions a second", run.value.per_second() / 1e6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// Panics outside of a machine, if the number of threads or rounds or the window is 0, if a
/// measurement that ends by time has 100,000 rounds of a thread that take no simulated time, or if
/// `op` panics, after all threads are done.
#[track_caller]
pub fn parallel(threads: usize, until: impl Into<Until>, op: impl Fn(usize) + Sync) -> Parallel {
    roles(until, &[Role::new("all", threads, op)])
}

/// Runs the threads of several roles, which start at the same time. A role has a closure, a number
/// of threads, and a rule that counts operations. Call `roles` in a machine.
///
/// The threads are numbered in the order of the roles, and run on CPUs as for [`parallel`]. Use a
/// window of time, or [`Until::Steady`]: threads of different roles take different times for a
/// round.
///
/// ```
/// use coreline_sim::hint::work;
/// use coreline_sim::measure::{Role, Until, roles};
/// use coreline_sim::sync::RwLock;
/// use coreline_sim::Machine;
/// use std::time::Duration;
///
/// #[global_allocator]
/// static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
///
/// let run = Machine::preset("epyc-9654-2s")?.run(|| {
///     let table = Box::new(RwLock::new(0));
///     let read = Role::new("readers", 7, |_| _ = *table.read().unwrap());
///     let write = Role::new("a writer", 1, |_| {
///         *table.write().unwrap() += 1;
///         work(Duration::from_micros(10));
///     });
///     roles(Until::Steady, &[read, write])
/// })?;
/// let [readers, writer] = &run.value.roles[..] else { unreachable!() };
/// assert!(readers.per_second() > 10.0 * writer.per_second());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// Panics like [`parallel`].
#[track_caller]
pub fn roles(until: impl Into<Until>, roles: &[Role<'_>]) -> Parallel {
    let until = until.into();
    let threads: usize = roles.iter().map(|role| role.threads).sum();
    let is_long = match until {
        Until::Rounds(rounds) => rounds > 0,
        Until::Window(window) => !window.is_zero(),
        Until::Steady => true,
    };
    assert!(threads > 0 && is_long, "{threads} threads and {until:?}: nothing to measure");
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let line = StartLine::default();
    let course = Course::new(until, roles.iter().map(|role| role.threads));
    let part = |role: usize, number| {
        let op = &roles[role].op;
        let arrival = Arrival(&line);
        op(number);
        drop(arrival);
        line.pass();
        let begin = Moment::now();
        let marks = course.run(role, begin.at_ns, || op(number));
        ([begin, Moment::now()], marks)
    };
    let lanes: Vec<([Moment; 2], Marks)> = thread::scope(|scope| {
        let numbers =
            (0..).zip(roles).flat_map(|(role, of)| (0..of.threads).map(move |n| (role, n)));
        let start = |(place, (role, number))| {
            let builder = Builder::new().on(CpuId::new((place % cpus) as u32));
            let run = move || part(role, number);
            builder.spawn_scoped(scope, run).expect("the CPU is the machine's")
        };
        let crew: Vec<_> = numbers.enumerate().map(start).collect();
        line.open(threads);
        let join =
            |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|it| resume_unwind(it));
        crew.into_iter().map(join).collect()
    });
    let begins = || lanes.iter().map(|([begin, _], _)| *begin);
    let by_time = |moment: &Moment| moment.at_ns;
    let first = begins().min_by_key(by_time).unwrap_or_default();
    let end = lanes.iter().map(|([_, end], _)| *end).max_by_key(by_time).unwrap_or_default();
    let last_ns = begins().map(|begin| begin.at_ns).max().unwrap_or_default();
    let mut left = &lanes[..];
    let role = |(number, role): (usize, &Role<'_>)| {
        let (own, others) = left.split_at(role.threads);
        left = others;
        let end_ns = own.iter().map(|([_, end], _)| end.at_ns).max().unwrap_or(first.at_ns);
        let (drift, span_ns) = (course.drift(number), end_ns - first.at_ns);
        let threads = own.iter().map(|(moments, marks)| thread_run(moments, marks, until));
        RoleRun { name: role.name.to_owned(), until, span_ns, drift, threads: threads.collect() }
    };
    Parallel {
        until,
        span_ns: end.at_ns - first.at_ns,
        apart_ns: last_ns - first.at_ns,
        transfers: end.transfers.since(&first.transfers),
        roles: roles.iter().enumerate().map(role).collect(),
    }
}

/// The counted work of a thread. The time of the rounds is measured between two reads of the clock,
/// and so is the time of all threads together.
fn thread_run([begin, end]: &[Moment; 2], marks: &Marks, until: Until) -> ThreadRun {
    let (from, to) = marks.counted(until);
    let time_ns = match until {
        Until::Rounds(_) => end.at_ns - begin.at_ns,
        _ => to.at_ns - from.at_ns,
    };
    let rounds = to.rounds - from.rounds;
    ThreadRun { rounds, operations: to.operations - from.operations, time_ns }
}

/// A point of a run: the time, and the accesses so far.
#[derive(Debug, Clone, Copy, Default)]
struct Moment {
    at_ns: u64,
    transfers: Transfers,
}

impl Moment {
    fn now() -> Moment {
        Moment { at_ns: now_ns(), transfers: inside(|engine| engine.all_transfers()) }
    }
}

fn now_ns() -> u64 {
    Sim::now().as_nanos()
}

/// The place where threads wait for each other. They sleep, because a thread that spins would delay
/// other threads on its CPU.
#[derive(Default)]
struct StartLine {
    arrived: Line<AtomicU64>,
    /// The common start time in simulated nanoseconds, or 0 if it is not known yet.
    start: Line<AtomicU64>,
}

/// A thread that arrives at the start line. It also counts as arrived if it panics before, because
/// the others must not wait for it.
struct Arrival<'a>(&'a StartLine);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.arrived.fetch_add(1, Ordering::Relaxed);
    }
}

impl StartLine {
    /// Waits for the common start.
    fn pass(&self) {
        let start = loop {
            match self.start.load(Ordering::Relaxed) {
                0 => thread::sleep(LOOK),
                start => break Duration::from_nanos(start),
            }
        };
        let left = || start.saturating_sub(Duration::from_nanos(now_ns()));
        thread::sleep(left().saturating_sub(AWAKE));
        // Spans of work differ by a share of their length, so the last is a short one; then there
        // are looks at the clock.
        while left() > 4 * EXACT {
            work(left() * 3 / 4);
        }
        while !left().is_zero() {}
    }

    /// Sets the start, once all wait.
    fn open(&self, threads: usize) {
        // Relaxed, as all here: lines up times and hands nothing over.
        while self.arrived.load(Ordering::Relaxed) < threads as u64 {
            thread::sleep(LOOK);
        }
        // All have looked by then: they read one line, one after the other.
        let until = 3 * LOOK + Duration::from_nanos(threads as u64 * 500) + AWAKE;
        let start = now_ns() + until.as_nanos() as u64;
        self.start.store(start, Ordering::Relaxed);
    }
}
