//! The class `calls`: a thread has a function run on another CPU, and waits for its value.
//!
//! One operation is one call of a small function of an integer, and its answer, between a caller on
//! the first CPU that this process may use and a worker on the second.
//!
//! | form | the worker | the caller |
//! |---|---|---|
//! | polling | polls, and never sleeps | calls again at once |
//! | parked 60 us, 500 us | sleeps when there is no call | computes so long before each call |
//! | callers | polls and sleeps as its library lets it | sleeps until the answer is there |
//!
//! In the last form all threads call one worker as fast as they can: see [`callers`]. In every
//! other form the caller spins until the answer is there. The gap is stated because it decides: the
//! longer a CPU idles, the longer it takes to wake. It is not in the figure. Where calls follow
//! each other at once, all of a sample are timed together; after gaps each is timed by itself, the
//! clock included, and their median stands for the sample.
//!
//! # What stands where
//!
//! - Ours runs any function: the caller hands over a closure. For the others a message is the bare
//!   integer, and the worker knows the function: the least that a user could get away with.
//! - Channels are one for questions and one for answers, made once. With tokio, an answer has a
//!   channel of its own, as its documentation has it. Those that can be bounded have 64 places.
//! - A channel's worker sleeps when its library lets it. kanal's yields its CPU 256 times before:
//!   its figure after 60 us is that of a worker that is awake, and where others want the CPU most
//!   of its samples are discarded.
//! - [`ours`] has a worker thread of its own. For all others thread 1 of the sample is the worker.
//! - The floors are for a worker that polls. The ping-pong is two transfers of one line and nothing
//!   else; the mailbox carries question and answer beside the word that says so, on the same line.
//!
//! # A new candidate
//!
//! Its [`Way`], and a line in [`polling`] or [`parked`]. The goals for [`OURS`] are here already.

mod callers;
mod channels;
mod ours;
mod words;

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coreline::Lacking;
use coreline_topology::CpuId;
use coreline_world::native::probe;
use coreline_world::{Native, Why, World};

use self::channels::{Crossbeam, Flume, Kanal, Std, Tokio};
use self::ours::Called;
use self::words::{Futex, Park, PingPong, Slot};
use super::{Account, Bench, Candidate, Form, Goal, Most, Params, ROUND, Role, Subject};

/// The candidate to which the goals apply.
const OURS: &str = "coreline Workers";
const STD: &str = "std mpsc";
const FUTEX: &str = "raw futex";
const PING_PONG: &str = "one-line ping-pong";

const CHANNELS: [&str; 5] = [STD, "crossbeam-channel", "flume", "kanal", "tokio mpsc+oneshot"];

/// The goals, set in advance: to a worker that polls, times the floor and times the best channel;
/// to one that sleeps, times the bare system call after the same gap.
const POLLING_MOST_FLOOR: f64 = 1.45;
const POLLING_MOST_CHANNEL: f64 = 0.85;
const PARKED_MOST_FUTEX: f64 = 1.08;

/// Calls before each sample, which wake the worker and are not measured.
const WARM_UP: u64 = 4 * ROUND;

/// How often a thread looks before it lets others run: for longer than a worker takes to wake.
const LOOKS: u32 = 20_000;

pub(super) fn bench() -> Bench {
    let forms = vec![
        form::<0>("polling", STD, polling()),
        form::<60>("parked 60 us", FUTEX, parked::<60>()),
        form::<500>("parked 500 us", FUTEX, parked::<500>()),
        callers::form(),
    ];
    Bench { operation: "a call and its answer", forms }
}

fn form<const GAP_US: u64>(
    title: &'static str,
    reference: &str,
    candidates: Vec<Candidate>,
) -> Form {
    let times = |most, other: &str| Most::Times(most, other.to_owned());
    let most = match GAP_US {
        0 => {
            vec![times(POLLING_MOST_FLOOR, PING_PONG), Most::Best(POLLING_MOST_CHANNEL, &CHANNELS)]
        }
        _ => vec![times(PARKED_MOST_FUTEX, FUTEX)],
    };
    Form {
        title,
        threads: vec![2],
        window: None,
        params: Params { gap_us: Some(GAP_US), ..Params::default() },
        candidates,
        reference: reference.to_owned(),
        goals: most.into_iter().map(|most| Goal::everywhere(OURS, most)).collect(),
    }
}

fn polling() -> Vec<Candidate> {
    let mut candidates = either::<0>();
    candidates.push(by::<PingPong, 0>(PING_PONG, Role::Floor));
    candidates.push(by::<Slot, 0>("one-slot mailbox", Role::Floor));
    candidates
}

fn parked<const GAP_US: u64>() -> Vec<Candidate> {
    let mut candidates = either::<GAP_US>();
    candidates.push(by::<Park, GAP_US>("std park", Role::Rival));
    candidates.push(by::<Futex, GAP_US>(FUTEX, Role::Rival));
    candidates
}

/// Those whose worker may poll or sleep.
fn either<const GAP_US: u64>() -> Vec<Candidate> {
    let [std, crossbeam, flume, kanal, tokio] = CHANNELS;
    vec![
        Candidate { name: OURS.to_owned(), role: Role::Ours, make: make_ours::<GAP_US> },
        by::<Std, GAP_US>(std, Role::Rival),
        by::<Crossbeam, GAP_US>(crossbeam, Role::Rival),
        by::<Flume, GAP_US>(flume, Role::Rival),
        by::<Kanal, GAP_US>(kanal, Role::Rival),
        by::<Tokio, GAP_US>(tokio, Role::Rival),
    ]
}

fn by<W: Way, const GAP_US: u64>(name: &str, role: Role) -> Candidate {
    Candidate { name: name.to_owned(), role, make: make::<W, GAP_US> }
}

fn make_ours<const GAP_US: u64>() -> Result<Arc<dyn Subject>, Lacking> {
    Ok(Arc::new(Called::<GAP_US>::new(second_cpu()?)?))
}

fn make<W: Way, const GAP_US: u64>() -> Result<Arc<dyn Subject>, Lacking> {
    second_cpu()?;
    Ok(Arc::new(Calls::<W, GAP_US>::new()))
}

/// The CPU of thread 1 if there are two threads.
fn second_cpu() -> Result<CpuId, Lacking> {
    let second = probe().allowed.ok().and_then(|cpus| cpus.iter().nth(1));
    second.ok_or_else(|| {
        lacking(Why::new("this process may use one CPU alone"), "let it use another one, too")
    })
}

fn lacking(why: Why, remedy: &'static str) -> Lacking {
    Lacking { world: <Native as World>::NAME, capability: "calls between CPUs", why, remedy }
}

/// The called function.
#[inline(always)]
fn function(question: u64) -> u64 {
    question.wrapping_mul(3) ^ 1
}

/// A way to call, and to be called.
trait Way: 'static {
    type Caller: Caller;
    type Worker: Worker;

    fn new() -> (Self::Caller, Self::Worker);
}

trait Caller: Send {
    /// Before each sample, on the thread that will call. The worker's `begin` is under way.
    fn begin(&mut self) {}

    /// Asks, and spins until the answer is there.
    fn call(&mut self, question: u64) -> u64;
}

trait Worker: Send {
    /// Before each sample, on the thread that will serve.
    fn begin(&mut self) {}

    /// Waits for a question and answers it. `SLEEPS`: sleeps until there is one, without polling
    /// for longer than its library does. Otherwise it polls.
    fn serve<const SLEEPS: bool>(&mut self);
}

/// This many calls after a warm-up: how many of the answers are right, and for how many nanoseconds
/// the calls lasted.
#[inline(always)]
fn ask<const GAP_US: u64>(caller: &mut impl Caller, ops: u64) -> (u64, u64) {
    caller.begin();
    for question in 0..WARM_UP {
        caller.call(question);
    }
    let mut answers = 0_u64;
    let mut ask = |question| answers = answers.wrapping_add(caller.call(question));
    let lasted = if GAP_US == 0 {
        let start = Instant::now();
        (0..ops).for_each(ask);
        start.elapsed()
    } else {
        let mut calls: Vec<Duration> = Vec::with_capacity(ops as usize);
        for question in 0..ops {
            compute(Duration::from_micros(GAP_US));
            let start = Instant::now();
            ask(question);
            calls.push(start.elapsed());
        }
        calls.sort_unstable();
        calls[calls.len() / 2] * ops as u32
    };
    let expected = (0..ops).map(function).fold(0, u64::wrapping_add);
    (if answers == expected { ops } else { 0 }, lasted.as_nanos() as u64)
}

/// Has the CPU do something else for this long.
fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        hint::spin_loop();
    }
}

/// Thread 0 calls, thread 1 is the worker. Each has its end for a whole sample.
struct Calls<W: Way, const GAP_US: u64> {
    caller: Mutex<W::Caller>,
    worker: Mutex<W::Worker>,
    /// Right answers, and calls that were served.
    done: AtomicU64,
}

impl<W: Way, const GAP_US: u64> Calls<W, GAP_US> {
    fn new() -> Self {
        let (caller, worker) = W::new();
        Calls { caller: caller.into(), worker: worker.into(), done: AtomicU64::new(0) }
    }
}

impl<W: Way, const GAP_US: u64> Subject for Calls<W, GAP_US> {
    fn run(&self, thread: usize, ops: u64) {
        self.account(thread, ops);
    }

    /// The threads are 0 and 1, and do as many operations in each sample: one alone would wait for
    /// the other.
    fn account(&self, thread: usize, ops: u64) -> Account {
        let (done, counted) = match thread {
            0 => {
                let mut caller = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
                let (right, lasted) = ask::<GAP_US>(&mut *caller, ops);
                (right, Some(lasted))
            }
            1 => {
                let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
                worker.begin();
                for _ in 0..WARM_UP + ops {
                    if GAP_US == 0 { worker.serve::<false>() } else { worker.serve::<true>() }
                }
                (ops, None)
            }
            _ => unreachable!("the form is for two threads"),
        };
        // Relaxed: read when the threads have reported through a channel.
        self.done.fetch_add(done, Ordering::Relaxed);
        Account { counted, waited: 0 }
    }

    fn total(&self) -> Option<u64> {
        Some(self.done.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_goals_are_those_set_in_advance() {
        let mut said = Vec::new();
        for form in bench().forms {
            for Goal { candidate, threads, most, share } in &form.goals {
                assert_eq!((candidate.as_str(), *threads, *share), (OURS, None, None));
                let most = match most {
                    Most::Times(most, other) => format!("{most}x {other}"),
                    Most::Best(most, others) if *others == CHANNELS => format!("{most}x the best"),
                    other => panic!("{other:?}"),
                };
                said.push((form.title, most));
            }
        }
        assert_eq!(
            said,
            [
                ("polling", "1.45x one-line ping-pong".to_owned()),
                ("polling", "0.85x the best".to_owned()),
                ("parked 60 us", "1.08x raw futex".to_owned()),
                ("parked 500 us", "1.08x raw futex".to_owned()),
            ]
        );
    }

    /// Answers one question of each hundred wrongly.
    struct Wrong;

    impl Caller for Wrong {
        fn call(&mut self, question: u64) -> u64 {
            function(question) + u64::from(question % 100 == 99)
        }
    }

    #[test]
    fn a_wrong_answer_is_not_counted() {
        assert_eq!(ask::<0>(&mut Wrong, 96).0, 96);
        assert_eq!(ask::<0>(&mut Wrong, 104).0, 0);
    }

    #[test]
    fn the_gaps_are_not_in_the_figure() {
        const CALLS: u64 = 4 * ROUND;
        let start = Instant::now();
        let (right, lasted) = ask::<60>(&mut Wrong, CALLS);
        assert!(start.elapsed() >= Duration::from_micros(60 * CALLS));
        assert_eq!(right, CALLS);
        // Half of the calls would have to be disturbed.
        assert!(lasted < 60_000 * CALLS, "{lasted}");
    }

    #[test]
    fn every_way_carries_questions_and_answers() {
        for form in bench().forms.into_iter().filter(|form| form.params.gap_us.is_some()) {
            for candidate in form.candidates {
                let Ok(subject) = (candidate.make)() else { continue };
                for sample in 1..=3 {
                    thread::scope(|scope| {
                        scope.spawn(|| subject.run(1, 3 * ROUND));
                        let counted = subject.account(0, 3 * ROUND).counted;
                        assert!(counted.is_some_and(|ns| ns > 0), "{}", candidate.name);
                    });
                    let total = subject.total();
                    assert_eq!(total, Some(sample * 6 * ROUND), "{}", candidate.name);
                }
            }
        }
    }
}
