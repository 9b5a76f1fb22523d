//! The class `locks`: taking and freeing a mutex, contended in every degree.
//!
//! Each form is a section of some length and work outside it of some length: [`Steps`], calibrated
//! once. The section adds 1 to what the mutex guards, so that a lock that lets two threads in is
//! found out, and its work begins with that count.
//!
//! If threads contend, a sample is a window of time in which each does what it can. It is long,
//! because locks that favour some threads do so for whole time slices.
//!
//! # A new candidate
//!
//! Its type in `by_guard!`, if it has `new(0)` and `lock()`, and a line in [`candidates`]. The
//! goals for [`OURS`] are here already.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coreline::{Lacking, TicketLock};
use crossbeam_utils::CachePadded;
use mcslock::relax::Relax;

use super::steps::Steps;
use super::{Bench, Candidate, Form, Goal, Most, Params, Role, Subject, Window, rounds};
use crate::native::PthreadMutex;

/// The candidate to which the goals apply.
const OURS: &str = "coreline Mutex";
const REFERENCE: &str = "parking_lot Mutex";

/// Rivals whose waiters sleep in the end.
const BLOCKING: [&str; 5] =
    ["std Mutex", REFERENCE, "usync Mutex", "pthread mutex", "pthread mutex adaptive"];

/// The goals, set in advance: times the reference uncontended, times the best of those that block.
const UNCONTENDED_MOST: f64 = 0.75;
const CONTENDED_MOST: f64 = 1.08;

/// Spins in the order of arrival, and never lets others run.
const SPINS: &str = "mcslock raw spins";

const WINDOW: Window = Window { length: Duration::from_millis(1500), late: &[SPINS] };

pub(super) fn bench() -> Bench {
    let forms = vec![
        form::<0, 0>("uncontended", &[1]),
        form::<0, 0>("section/outside 0/0 ns", &[2, 8, 32]),
        form::<0, 500>("section/outside 0/500 ns", &[2, 8, 32]),
        form::<100, 0>("section/outside 100/0 ns", &[2, 8, 32]),
        form::<100, 500>("section/outside 100/500 ns", &[2, 8, 32]),
    ];
    Bench { operation: "an acquisition", forms }
}

fn form<const SECTION: u64, const OUTSIDE: u64>(title: &'static str, threads: &[usize]) -> Form {
    let mut form = Form {
        title,
        threads: threads.into(),
        window: Some(WINDOW),
        params: Params { cs_ns: Some(SECTION), out_ns: Some(OUTSIDE), ..Params::default() },
        candidates: candidates::<SECTION, OUTSIDE>(),
        reference: REFERENCE.to_owned(),
        goals: Vec::new(),
    };
    let goals = threads.iter().flat_map(|&threads| goal(threads, SECTION, OUTSIDE));
    form.goals = goals.filter(|goal| form.has(&goal.candidate)).collect();
    form
}

/// The goal for this number of threads, section and work outside.
fn goal(threads: usize, section: u64, outside: u64) -> Option<Goal> {
    let best = || Most::Best(CONTENDED_MOST, &BLOCKING);
    let (most, share) = match (threads, section, outside) {
        (1, 0, 0) => (Most::Times(UNCONTENDED_MOST, REFERENCE.to_owned()), None),
        (2, 0, 0) | (2, 100, 500) => (best(), Some(0.8)),
        (32, 100, 500) => (best(), Some(0.5)),
        _ => return None,
    };
    Some(Goal { candidate: OURS.to_owned(), threads: Some(threads), most, share })
}

/// The table of candidates.
fn candidates<const SECTION: u64, const OUTSIDE: u64>() -> Vec<Candidate> {
    use mcslock::raw;
    vec![
        ours::<coreline::Mutex<u64>, SECTION, OUTSIDE>(OURS),
        ours::<TicketLock<u64>, SECTION, OUTSIDE>("coreline TicketLock"),
        rival::<Mutex<u64>, SECTION, OUTSIDE>("std Mutex"),
        rival::<parking_lot::Mutex<u64>, SECTION, OUTSIDE>(REFERENCE),
        rival::<usync::Mutex<u64>, SECTION, OUTSIDE>("usync Mutex"),
        rival::<spin::Mutex<u64>, SECTION, OUTSIDE>("spin Mutex"),
        rival::<raw::spins::Mutex<u64>, SECTION, OUTSIDE>(SPINS),
        rival::<raw::yields::Mutex<u64>, SECTION, OUTSIDE>("mcslock raw yields"),
        rival::<PthreadMutex, SECTION, OUTSIDE>("pthread mutex"),
        rival::<Adaptive, SECTION, OUTSIDE>("pthread mutex adaptive"),
    ]
}

/// A mutex around a count.
trait Lock: Send + Sync + 'static {
    /// A free one around 0.
    fn new() -> Self;

    /// Takes the lock, does this, frees the lock.
    fn lock_and(&self, section: impl FnOnce(&mut u64));
}

/// Locks with a guard; where one may be poisoned, also what takes it out of the result.
macro_rules! by_guard {
    ($($lock:ty $(=> $healthy:ident)?;)*) => {$(
        impl Lock for $lock {
            fn new() -> Self {
                Self::new(0)
            }

            #[inline(always)]
            fn lock_and(&self, section: impl FnOnce(&mut u64)) {
                section(&mut self.lock()$(.$healthy())?);
            }
        }
    )*};
}

by_guard! {
    coreline::Mutex<u64>;
    TicketLock<u64>;
    Mutex<u64> => unwrap;
    parking_lot::Mutex<u64>;
    usync::Mutex<u64>;
    spin::Mutex<u64>;
}

/// The node lies on the waiter's stack.
impl<R: Relax + 'static> Lock for mcslock::raw::Mutex<u64, R> {
    fn new() -> Self {
        Self::new(0)
    }

    #[inline(always)]
    fn lock_and(&self, section: impl FnOnce(&mut u64)) {
        self.lock_then(section);
    }
}

impl Lock for PthreadMutex {
    fn new() -> Self {
        Self::new()
    }

    #[inline(always)]
    fn lock_and(&self, section: impl FnOnce(&mut u64)) {
        self.lock_and(section);
    }
}

struct Adaptive(PthreadMutex);

impl Lock for Adaptive {
    fn new() -> Self {
        Adaptive(PthreadMutex::adaptive())
    }

    #[inline(always)]
    fn lock_and(&self, section: impl FnOnce(&mut u64)) {
        self.0.lock_and(section);
    }
}

fn ours<L: Lock, const SECTION: u64, const OUTSIDE: u64>(name: &str) -> Candidate {
    Candidate { name: name.to_owned(), role: Role::Ours, make: make::<L, SECTION, OUTSIDE> }
}

fn rival<L: Lock, const SECTION: u64, const OUTSIDE: u64>(name: &str) -> Candidate {
    Candidate { role: Role::Rival, ..ours::<L, SECTION, OUTSIDE>(name) }
}

fn make<L: Lock, const SECTION: u64, const OUTSIDE: u64>() -> Result<Arc<dyn Subject>, Lacking> {
    let lock = CachePadded::new(L::new());
    Ok(Arc::new(Guarded {
        lock,
        section: Steps::<SECTION>::new(),
        outside: Steps::<OUTSIDE>::new(),
    }))
}

/// A lock, and what a thread does inside and outside.
struct Guarded<L, const SECTION: u64, const OUTSIDE: u64> {
    /// On lines of its own, with the count in it as users have it.
    lock: CachePadded<L>,
    section: Steps<SECTION>,
    outside: Steps<OUTSIDE>,
}

impl<L: Lock, const SECTION: u64, const OUTSIDE: u64> Guarded<L, SECTION, OUTSIDE> {
    #[inline(always)]
    fn turn(&self, section: Steps<SECTION>, outside: Steps<OUTSIDE>, worked: u64) -> u64 {
        let mut worked = worked;
        self.lock.lock_and(|count| {
            *count += 1;
            worked = section.take(worked ^ *count);
        });
        outside.take(worked)
    }
}

impl<L: Lock, const SECTION: u64, const OUTSIDE: u64> Subject for Guarded<L, SECTION, OUTSIDE> {
    fn run(&self, _: usize, ops: u64) {
        let (section, outside) = (self.section, self.outside);
        let mut worked = 0;
        rounds(ops, |_| worked = self.turn(section, outside, worked));
        black_box(worked);
    }

    fn run_until(&self, _: usize, stop: &AtomicBool) -> u64 {
        let (section, outside) = (self.section, self.outside);
        let (mut done, mut worked) = (0, 0);
        // At each acquisition: eight may take a second, where waiters spin and the next one has no
        // CPU. Relaxed: the flag hands nothing over.
        while !stop.load(Ordering::Relaxed) {
            worked = self.turn(section, outside, worked);
            done += 1;
        }
        black_box(worked);
        done
    }

    fn total(&self) -> Option<u64> {
        let mut total = 0;
        self.lock.lock_and(|count| total = *count);
        Some(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goals_are_those_set_in_advance() {
        let mut said = Vec::new();
        for threads in [1, 2, 8, 32] {
            for (section, outside) in [(0, 0), (0, 500), (100, 0), (100, 500)] {
                let Some(goal) = goal(threads, section, outside) else { continue };
                assert_eq!((goal.candidate.as_str(), goal.threads), (OURS, Some(threads)));
                let most = match goal.most {
                    Most::Times(most, other) => format!("{most}x {other}"),
                    Most::Best(most, others) if others == BLOCKING => format!("{most}x the best"),
                    other => panic!("{other:?}"),
                };
                said.push((threads, section, outside, most, goal.share));
            }
        }
        let best = || "1.08x the best".to_owned();
        assert_eq!(
            said,
            [
                (1, 0, 0, "0.75x parking_lot Mutex".to_owned(), None),
                (2, 0, 0, best(), Some(0.8)),
                (2, 100, 500, best(), Some(0.8)),
                (32, 100, 500, best(), Some(0.5)),
            ]
        );
        let named = candidates::<0, 0>();
        assert!(BLOCKING.iter().all(|name| named.iter().any(|it| it.name == *name)));
    }

    #[test]
    fn a_window_ends_when_it_is_told_to() {
        for candidate in candidates::<0, 0>() {
            let subject = (candidate.make)().unwrap();
            assert_eq!(subject.run_until(0, &AtomicBool::new(true)), 0, "{}", candidate.name);
            assert_eq!(subject.total(), Some(0));
        }
    }
}
