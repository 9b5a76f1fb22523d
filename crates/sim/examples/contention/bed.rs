//! The two worlds in which these programs run, and what they need of each beside `Testbed`.

use core::hint::black_box;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Instant;

use coreline_sim::Sim;
use coreline_sim::sync::{Condvar as SimCondvar, Mutex as SimMutex};
use coreline_topology::CpuId;
use coreline_world::native::run_queue_wait;
use coreline_world::{
    Integer, JoinHandle, Line, Native, Ordering, Placement, Testbed, Word, Work as _,
};

/// A world, with its mutex and a way to compute for a few nanoseconds.
pub(crate) trait Bed: Testbed {
    /// A deque in std's mutex.
    type Deque: Deque;

    /// A turn that is passed on by std's condition variable.
    type Turns: Turns;

    /// What computes for about `span` each time. Its result depends on its argument, so it begins
    /// when that is there. Ask for it ahead: how long a computation is takes time to find.
    fn computing(span: Duration) -> impl Fn(u64) -> u64 + Copy + Send + Sync + 'static;

    /// For how long the calling thread wanted a CPU and had none, where that is known.
    fn waited() -> Option<u64>;
}

/// A deque in a mutex.
pub(crate) trait Deque: Default + Send + Sync + 'static {
    fn push(&self, value: u64);
    fn pop(&self) -> Option<u64>;
    fn len(&self) -> usize;
}

/// A turn that threads take one after the other, asleep while it is not theirs.
pub(crate) trait Turns: Default + Send + Sync + 'static {
    /// Waits for the turn of this one of two threads, and passes it on.
    fn take(&self, thread: u64);
}

/// What one world has of std: the mutexes of the two have the same methods and no common trait.
macro_rules! of_std {
    ($name:ident, $turns:ident, $mutex:ident, $condvar:ident) => {
        #[derive(Default)]
        pub(crate) struct $turns($mutex<u64>, $condvar);

        impl Turns for $turns {
            fn take(&self, thread: u64) {
                let Self(turn, changed) = self;
                let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                while *turn % 2 != thread {
                    turn = changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
                }
                *turn += 1;
                drop(turn);
                changed.notify_one();
            }
        }

        #[derive(Default)]
        pub(crate) struct $name(Line<$mutex<VecDeque<u64>>>);

        impl Deque for $name {
            fn push(&self, value: u64) {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(value);
            }

            fn pop(&self) -> Option<u64> {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
            }

            fn len(&self) -> usize {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
            }
        }
    };
}

use std::sync::{Condvar as StdCondvar, Mutex as StdMutex};
of_std!(NativeDeque, NativeTurns, StdMutex, StdCondvar);
of_std!(SimDeque, SimTurns, SimMutex, SimCondvar);

impl Bed for Sim {
    type Deque = SimDeque;
    type Turns = SimTurns;

    fn computing(span: Duration) -> impl Fn(u64) -> u64 + Copy + Send + Sync + 'static {
        move |seed| {
            if !span.is_zero() {
                Sim::work(span);
            }
            seed
        }
    }

    fn waited() -> Option<u64> {
        None
    }
}

impl Bed for Native {
    type Deque = NativeDeque;
    type Turns = NativeTurns;

    fn computing(span: Duration) -> impl Fn(u64) -> u64 + Copy + Send + Sync + 'static {
        let turns = match span.is_zero() {
            true => 0,
            false => (span.as_nanos() as f64 / ns_per_turn()).round() as u64,
        };
        move |seed| if turns == 0 { seed } else { black_box(chain(turns, seed)) }
    }

    fn waited() -> Option<u64> {
        run_queue_wait()
    }
}

/// A chain of dependent multiplications and additions.
#[inline]
fn chain(turns: u64, seed: u64) -> u64 {
    (0..turns).fold(seed, |x, _| x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e))
}

/// How long a turn of [`chain`] takes: the fastest of many, measured once.
fn ns_per_turn() -> f64 {
    static NS: OnceLock<f64> = OnceLock::new();
    *NS.get_or_init(|| {
        const TURNS: u64 = 20_000;
        let once = |_| {
            let start = Instant::now();
            black_box(chain(black_box(TURNS), 1));
            start.elapsed().as_nanos() as f64 / TURNS as f64
        };
        (0..200).map(once).fold(f64::MAX, f64::min)
    })
}

/// What each of several threads did, in nanoseconds of its world.
pub(crate) struct Sample<T> {
    /// From the first thread's start to the last one's end.
    pub(crate) wall: u64,
    /// Whether other load had a CPU of these threads.
    pub(crate) disturbed: bool,
    /// What each thread gave.
    pub(crate) each: Vec<T>,
}

/// A thread that waited longer than this on a run queue, in microseconds per millisecond, was
/// disturbed; as in `coreline validate`.
const MOST_WAITED_US_PER_MS: u64 = 40;

/// Has a thread on each CPU run `program` with its number: first to warm up, then timed. All
/// threads begin either part together.
pub(crate) fn sample<W: Bed, T: Send + 'static>(
    cpus: &[CpuId],
    program: impl Fn(usize, bool) -> T + Send + Sync + 'static,
) -> Sample<T> {
    let threads = cpus.len() as u32;
    let missing = Arc::new(Line(W::U32::new_in(2 * threads)));
    let program = Arc::new(program);
    let start = |(number, &cpu): (usize, &CpuId)| {
        let (missing, program) = (Arc::clone(&missing), Arc::clone(&program));
        let meet = move |left: u32| {
            // Relaxed, twice: lines up times and hands nothing over.
            missing.fetch_sub(1, Ordering::Relaxed);
            missing.wait_until(Ordering::Relaxed, |now| now <= left);
        };
        let body = move || {
            let before = W::waited();
            meet(threads);
            program(number, false);
            meet(0);
            let start = W::now().as_nanos();
            let result = program(number, true);
            let end = W::now().as_nanos();
            let waited = W::waited().zip(before).map(|(after, before)| after - before);
            (start, end, waited, result)
        };
        W::spawn(Placement::On(cpu), body).expect("the machine has these CPUs")
    };
    let crew: Vec<_> = cpus.iter().enumerate().map(start).collect();
    let lanes: Vec<_> = crew.into_iter().map(JoinHandle::join).collect();
    let start = lanes.iter().map(|lane| lane.0).min().unwrap_or(0);
    let end = lanes.iter().map(|lane| lane.1).max().unwrap_or(0);
    let wall = end.saturating_sub(start);
    let is_long = |waited: u64| waited > wall * MOST_WAITED_US_PER_MS / 1000;
    let disturbed = lanes.iter().any(|lane| lane.2.is_some_and(is_long));
    Sample { wall, disturbed, each: lanes.into_iter().map(|lane| lane.3).collect() }
}
