//! When the threads of a measurement end, and whether their rates are steady.
//!
//! A thread reads the time after each round, at no cost. It records the times in the host's memory,
//! so a measurement of two minutes has the same cache lines as one of two rounds.

use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::inside;
use crate::hardware::arena;

/// The condition that ends a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Each thread runs its operation this many times. A `u64` converts to this.
    ///
    /// All threads of a role together are as fast as the slowest of them permits, and the others
    /// stop early. Threads whose operations differ in length need a window.
    Rounds(u64),
    /// Each thread runs its operation until this much simulated time has passed since the first
    /// thread's start. A [`Duration`] converts to this. A round that has begun by then is finished
    /// and counted, with its time.
    ///
    /// If threads share a CPU, one may begin later than others, or only after the window. Its time
    /// counts from the same start, so it is slower, and makes no round at all if it begins too
    /// late. A window of many time slices shows what each thread gets.
    ///
    /// Threads end at different times, so an operation must not wait forever for an operation of
    /// another thread.
    Window(Duration),
    /// The threads run until the rate of each role is steady. As in a window, an operation must not
    /// wait forever for an operation of another thread.
    ///
    /// The first window ends when each thread has done 32 rounds, or all together 256 for each
    /// thread. Each of the next windows doubles the time since the start. The rate is steady if the
    /// rates of the last three windows lie within a factor of 1.2, each role ended a round in each
    /// of them, and all threads had begun before them. The measurement ends then, or after 8
    /// doublings, and its result is that of the last three windows. A thread that begins later than
    /// these windows did nothing before, so it is slower. Work that occurs less often than once in
    /// these windows is not seen.
    Steady,
}

impl From<u64> for Until {
    fn from(rounds: u64) -> Until {
        Until::Rounds(rounds)
    }
}

impl From<Duration> for Until {
    fn from(window: Duration) -> Until {
        Until::Window(window)
    }
}

/// Rates are steady if the highest is at most this much above the lowest.
pub(super) const STEADY: f64 = 1.2;

/// The rounds of each thread after which the first window of [`Until::Steady`] ends.
const FIRST_ROUNDS: u64 = 32;

/// The rounds of all threads, for each thread, after which it ends though some have done fewer.
const FIRST_ROUNDS_OF_ALL: u64 = 256;

/// How many windows are compared.
const COMPARED: usize = 3;

/// How often the time may double.
const DOUBLINGS: usize = 8;

/// If this many rounds take no simulated time, the window would never end.
const FOR_NOTHING: u32 = 100_000;

/// What a thread has done by a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mark {
    pub(super) at_ns: u64,
    pub(super) rounds: u64,
    pub(super) operations: u64,
}

/// What a thread did: when its time began, and then the moments at which it was looked at.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<Mark>);

impl Marks {
    fn note(&mut self, mark: Mark) {
        let _host = arena::leave();
        self.0.push(mark);
    }

    /// The first and the last moment of what counts.
    pub(super) fn counted(&self, until: Until) -> (Mark, Mark) {
        let last = self.0.len().saturating_sub(1);
        let first = if until == Until::Steady { last.saturating_sub(COMPARED) } else { 0 };
        let at = |index| self.0.get(index).copied().unwrap_or_default();
        (at(first), at(last))
    }
}

/// The highest over the lowest. All zero are equal.
fn ratio(rates: &[f64]) -> f64 {
    let high = rates.iter().copied().fold(0.0, f64::max);
    let low = rates.iter().copied().fold(f64::INFINITY, f64::min);
    if high == low { 1.0 } else { high / low }
}

/// What the threads of a measurement share: how far they are, and when they end. All of it is the
/// host's, so it costs nothing, and decides by simulated time.
pub(super) struct Course {
    until: Until,
    /// Never contended: no thread switches while it has it.
    progress: Mutex<Progress>,
}

/// What was done so far.
struct Progress {
    roles: Vec<OfRole>,
    /// When the first thread began, in simulated nanoseconds.
    begin_ns: u64,
    /// The number of threads that have done [`FIRST_ROUNDS`].
    warm: usize,
    /// Of [`Until::Steady`]: when the present window ends, none in the first one; and the end of
    /// each window with what each role had done by then.
    end_ns: Option<u64>,
    ended: Vec<(u64, Vec<OfRole>)>,
    is_over: bool,
}

/// What the threads of a role have done so far.
#[derive(Clone, Copy, Default)]
struct OfRole {
    threads: usize,
    /// How many of them have begun, before the end of a [`Until::Window`].
    begun: usize,
    rounds: u64,
    operations: u64,
    /// When the latest round ended.
    at_ns: u64,
    /// When half of the rounds or of the time was over, and the number of operations up to that
    /// time.
    half: Option<(u64, u64)>,
}

impl Course {
    /// `roles` has the number of threads of each.
    pub(super) fn new(until: Until, roles: impl Iterator<Item = usize>) -> Course {
        let _host = arena::leave();
        let progress = Progress {
            roles: roles.map(|threads| OfRole { threads, ..OfRole::default() }).collect(),
            begin_ns: u64::MAX,
            warm: 0,
            end_ns: None,
            ended: Vec::new(),
            is_over: false,
        };
        Course { until, progress: Mutex::new(progress) }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the rounds of a thread of this role, which begins now.
    ///
    /// # Panics
    ///
    /// If the rounds of a window take no simulated time.
    pub(super) fn run(&self, role: usize, begin_ns: u64, op: impl Fn() -> u64) -> Marks {
        let mut marks = Marks::default();
        let mut progress = self.progress();
        progress.begin_ns = progress.begin_ns.min(begin_ns);
        // Threads that share a CPU may run one after the other. If each had a window of its own,
        // all of them would seem to be as fast as one that is alone.
        let from_ns = match self.until {
            Until::Window(_) => progress.begin_ns,
            _ => begin_ns,
        };
        let mut mark = Mark { at_ns: from_ns, ..Mark::default() };
        marks.note(mark);
        if let Until::Window(window) = self.until
            && window <= Duration::from_nanos(begin_ns - from_ns)
        {
            marks.note(Mark { at_ns: begin_ns, ..mark });
            return marks;
        }
        // Likewise of [`Until::Steady`]: in windows that ended before, the thread did nothing.
        progress.ended.iter().for_each(|&(at_ns, _)| marks.note(Mark { at_ns, ..mark }));
        if progress.is_over {
            return marks;
        }
        progress.roles[role].begun += 1;
        drop(progress);
        let mut idle = 0;
        loop {
            let operations = op();
            mark.operations += operations;
            mark.rounds += 1;
            let now_ns = inside(|engine| engine.now().as_nanos());
            idle = if now_ns == mark.at_ns { idle + 1 } else { 0 };
            mark.at_ns = now_ns;
            let mut progress = self.progress();
            progress.count(role, operations, mark);
            let is_over = match self.until {
                Until::Rounds(rounds) => {
                    progress.roles[role].halve(rounds);
                    mark.rounds >= rounds
                }
                Until::Window(window) => {
                    let passed = Duration::from_nanos(now_ns - from_ns);
                    if passed >= window / 2 {
                        progress.roles[role].half_is_over();
                    }
                    passed >= window
                }
                Until::Steady => {
                    progress.end_window(now_ns);
                    while marks.0.len() <= progress.ended.len() {
                        marks.note(mark);
                    }
                    progress.is_over
                }
            };
            drop(progress);
            if is_over {
                if self.until != Until::Steady {
                    marks.note(mark);
                }
                return marks;
            }
            assert!(
                idle < FOR_NOTHING || matches!(self.until, Until::Rounds(_)),
                "{FOR_NOTHING} rounds took no simulated time, so the window never ends; measure a \
                 number of rounds, or say with `hint::work` how long a round takes"
            );
        }
    }

    /// The highest rate of a role's windows over the lowest: see
    /// [`RoleRun::drift`](super::RoleRun::drift).
    pub(super) fn drift(&self, role: usize) -> f64 {
        let progress = self.progress();
        let OfRole { threads, begun, at_ns, operations, half, .. } = progress.roles[role];
        match (self.until, half) {
            _ if threads == 0 => 1.0,
            _ if begun < threads => f64::NAN,
            (Until::Rounds(1), _) | (Until::Rounds(_) | Until::Window(_), None) => f64::NAN,
            (Until::Steady, _) => progress.drift(role),
            (_, Some((half_ns, by_half))) => {
                let rate = |count: u64, ns: u64| count as f64 / ns.max(1) as f64;
                let early = rate(by_half, half_ns - progress.begin_ns);
                ratio(&[early, rate(operations - by_half, at_ns - half_ns)])
            }
        }
    }
}

impl OfRole {
    /// Notes when half of this many rounds of each thread is over.
    fn halve(&mut self, rounds: u64) {
        if self.rounds * 2 >= rounds * self.threads as u64 {
            self.half_is_over();
        }
    }

    fn half_is_over(&mut self) {
        self.half.get_or_insert((self.at_ns, self.operations));
    }
}

impl Progress {
    /// A thread has done a round, and so has come to `mark`.
    fn count(&mut self, role: usize, operations: u64, mark: Mark) {
        let role = &mut self.roles[role];
        role.operations += operations;
        role.rounds += 1;
        role.at_ns = role.at_ns.max(mark.at_ns);
        self.warm += usize::from(mark.rounds == FIRST_ROUNDS);
    }

    /// Ends the window, if it is over, and the measurement, if the rates are steady.
    fn end_window(&mut self, now_ns: u64) {
        let is_end = match self.end_ns {
            Some(end_ns) => now_ns >= end_ns,
            None => {
                let sum = |of: fn(&OfRole) -> u64| self.roles.iter().map(of).sum::<u64>();
                let threads = sum(|role| role.threads as u64);
                self.warm as u64 == threads
                    || sum(|role| role.rounds) >= FIRST_ROUNDS_OF_ALL * threads
            }
        };
        if self.is_over || !is_end || now_ns <= self.begin_ns {
            return;
        }
        let _host = arena::leave();
        self.ended.push((now_ns, self.roles.clone()));
        self.end_ns = Some(self.begin_ns + 2 * (now_ns - self.begin_ns));
        let is_steady = (0..self.roles.len()).all(|role| self.drift(role) <= STEADY);
        self.is_over = is_steady || self.ended.len() > DOUBLINGS;
    }

    /// Of the last windows. NaN if there are too few, or if they do not show the role's rate: a
    /// thread had not begun before them, or no round ended in one of them.
    fn drift(&self, role: usize) -> f64 {
        let Some(from) = self.ended.len().checked_sub(COMPARED + 1) else { return f64::NAN };
        let pairs = || {
            let ends = self.ended[from..].iter().zip(&self.ended[from + 1..]);
            ends.map(|((from_ns, from), (to_ns, to))| {
                (&from[role], &to[role], (to_ns - from_ns) as f64)
            })
        };
        let shows = |(from, to, _): (&OfRole, &OfRole, _)| {
            to.threads == 0 || (from.begun == to.threads && from.rounds < to.rounds)
        };
        if !pairs().all(shows) {
            return f64::NAN;
        }
        let rate =
            |(from, to, ns): (&OfRole, &OfRole, f64)| (to.operations - from.operations) as f64 / ns;
        ratio(&pairs().map(rate).collect::<Vec<_>>())
    }
}
