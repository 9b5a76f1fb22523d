//! The classes: what is compared with what.

mod calls;
mod cid;
mod collections;
mod counters;
mod domains;
mod histograms;
mod limiters;
mod locks;
mod masks;
mod metrics;
mod objects;
mod read_mostly;
mod reclamation;
mod rwlocks;
mod slots;
mod steps;

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};
use std::time::Duration;

use clap::ValueEnum;
use coreline_world::{Lacking, Native, Threads};
use serde::Serialize;

/// The classes to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Class {
    /// Adding to a counter: one hot counter, and 8 counters in turn; recording in a histogram;
    /// taking permits of a rate limiter
    Counters,
    /// Reading the index of per-CPU memory (CPU number, concurrency ID); adding and leasing by a
    /// domain's IDs; making per-CPU values of sizes that leave holes
    Cid,
    /// Taking an object and giving it back, by the thread that took it or another; an object that
    /// owns per-CPU counters
    Objects,
    /// Taking a spare box and putting it back; putting records into a log that may lose some
    Collections,
    /// Adding to a counter of a metrics library: looked up at each addition, and bound
    Metrics,
    /// Setting a bit that is already set in a mask
    Masks,
    /// Reading a value that is seldom replaced
    ReadMostly,
    /// Reading in a read-side critical section; replacing a value that readers may hold
    Reclamation,
    /// Taking and freeing a mutex: uncontended, and by more threads than CPUs
    Locks,
    /// Reading under a read-write lock, and writing now and then
    Rwlocks,
    /// Running a function on a thread of another CPU and waiting for its value: a thread that
    /// polls, and one that sleeps
    Calls,
}

impl Class {
    /// The class as a table.
    pub(crate) fn bench(self) -> Bench {
        match self {
            Class::Counters => counters::bench(),
            Class::Cid => cid::bench(),
            Class::Objects => objects::bench(),
            Class::Collections => collections::bench(),
            Class::Metrics => metrics::bench(),
            Class::Masks => masks::bench(),
            Class::ReadMostly => read_mostly::bench(),
            Class::Reclamation => reclamation::bench(),
            Class::Locks => locks::bench(),
            Class::Rwlocks => rwlocks::bench(),
            Class::Calls => calls::bench(),
        }
    }
}

/// A class as a table.
pub(crate) struct Bench {
    /// The meaning of one operation.
    pub(crate) operation: &'static str,
    pub(crate) forms: Vec<Form>,
}

/// One question of a class: its candidates can be compared with each other.
pub(crate) struct Form {
    /// The title; no form of another class has the same.
    pub(crate) title: &'static str,
    /// With how many threads it is measured.
    pub(crate) threads: Vec<usize>,
    /// The window of time of a sample of more than one thread; `None` if a sample is a number of
    /// operations.
    pub(crate) window: Option<Window>,
    pub(crate) params: Params,
    pub(crate) candidates: Vec<Candidate>,
    /// The name of the rival that ratios are relative to.
    pub(crate) reference: String,
    pub(crate) goals: Vec<Goal>,
}

/// A sample that is a window of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) length: Duration,
    /// The candidates that end late where threads share CPUs: their waiters spin and take turns in
    /// the order of arrival, so the last operations of a window wait for one thread after another
    /// to get its CPU.
    pub(crate) late: &'static [&'static str],
}

/// How many operations make a sample where there is a gap before each.
const OPS_WITH_GAPS: u64 = 64;

impl Form {
    /// Whether it has this candidate.
    fn has(&self, name: &str) -> bool {
        self.candidates.iter().any(|it| it.name == name)
    }

    /// How many operations of each thread make a sample; `None`: as many as fit into its time.
    pub(crate) fn ops(&self) -> Option<u64> {
        // After a gap each is timed by itself, and their median is the sample.
        self.params.gap_us.is_some_and(|gap| gap > 0).then_some(OPS_WITH_GAPS)
    }

    /// How long the gaps of such a sample are together, nearly all that it takes.
    pub(crate) fn gaps(&self) -> Option<Duration> {
        let gap = self.params.gap_us.filter(|&gap| gap > 0)?;
        Some(Duration::from_micros(gap * OPS_WITH_GAPS))
    }
}

/// The parameters of a form, besides its number of threads. The schema has all of these for every
/// class; `null` is what a form does not have.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Params {
    cs_ns: Option<u64>,
    out_ns: Option<u64>,
    batch: Option<u64>,
    gap_us: Option<u64>,
    read_pct: Option<f64>,
}

/// Something to measure.
pub(crate) struct Candidate {
    /// Exact and stable: other programs look for it.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Makes the measured object, once for all samples. Returns an error that says what the machine
    /// lacks.
    pub(crate) make: fn() -> Result<Arc<dyn Subject>, Lacking>,
}

fn candidate(name: &str, role: Role, make: fn() -> Result<Arc<dyn Subject>, Lacking>) -> Candidate {
    Candidate { name: name.to_owned(), role, make }
}

/// Why something is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// One of coreline's.
    Ours,
    /// A user could take it instead.
    Rival,
    /// Nothing that does the work can be faster.
    Floor,
}

/// A goal: reached if the median of `candidate` is small enough, and its share great enough.
pub(crate) struct Goal {
    pub(crate) candidate: String,
    /// At which number of threads; `None`: at each that the form has.
    pub(crate) threads: Option<usize>,
    pub(crate) most: Most,
    /// The least share of the unluckiest thread.
    pub(crate) share: Option<f64>,
}

impl Goal {
    /// One that is the same at every number of threads.
    pub(crate) fn everywhere(candidate: &str, most: Most) -> Goal {
        Goal { candidate: candidate.to_owned(), threads: None, most, share: None }
    }
}

/// The largest value that reaches the goal.
#[derive(Debug, Clone)]
pub(crate) enum Most {
    /// This many times the median of the candidate of this name.
    Times(f64, String),
    /// This many times the least median of the candidates of these names; from 1 on, or more, if
    /// the 95 % intervals of the two medians overlap.
    Best(f64, &'static [&'static str]),
    /// This many nanoseconds.
    Ns(f64),
}

/// The work of a candidate in a sample.
pub(crate) trait Subject: Send + Sync {
    /// Does `ops` operations, a multiple of [`ROUND`], as thread number `thread`. No two threads
    /// that run at once have the same number.
    fn run(&self, thread: usize, ops: u64);

    /// Does the same, and says what the thread that takes the sample does not know of it.
    fn account(&self, thread: usize, ops: u64) -> Account {
        self.run(thread, ops);
        Account::default()
    }

    /// Does operations as thread number `thread` until `stop` is set, and returns how many.
    fn run_until(&self, thread: usize, stop: &AtomicBool) -> u64 {
        let mut done = 0;
        // Relaxed: the flag hands nothing over.
        while !stop.load(Ordering::Relaxed) {
            self.run(thread, ROUND);
            done += ROUND;
        }
        done
    }

    /// How many operations all threads did since the subject was made, as it counted them; `None`
    /// if it does not count.
    fn total(&self) -> Option<u64> {
        None
    }

    /// The number of records that were put into a log, and the number of these that were lost,
    /// since the subject was made; `None` if it is not a log that may lose records.
    fn lost(&self) -> Option<Lost> {
        None
    }
}

/// A value, and what a thread of this number does with it so many times. It does not count.
struct Does<V, F>(V, F);

fn does<V, F>(value: V, does: F) -> Result<Arc<dyn Subject>, Lacking>
where
    V: Send + Sync + 'static,
    F: Fn(&V, usize, u64) + Send + Sync + 'static,
{
    Ok(Arc::new(Does(value, does)))
}

impl<V: Send + Sync, F: Fn(&V, usize, u64) + Send + Sync> Subject for Does<V, F> {
    fn run(&self, thread: usize, ops: u64) {
        (self.1)(&self.0, thread, ops);
    }
}

/// Records that were lost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lost {
    pub(crate) records: u64,
    pub(crate) of: u64,
}

impl Lost {
    /// The part that was lost since.
    pub(crate) fn since(self, before: Lost) -> f64 {
        let of = self.of - before.of;
        if of == 0 { 0.0 } else { (self.records - before.records) as f64 / of as f64 }
    }
}

/// A subject's account of a thread's part in a sample.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Account {
    /// How many nanoseconds of it are measured; `None`: all.
    pub(crate) counted: Option<u64>,
    /// The time for which the subject's own thread waited on a run queue, in nanoseconds.
    pub(crate) waited: u64,
}

/// How many operations go into one round of a loop.
pub(crate) const ROUND: u64 = 8;

/// The loop of every candidate: rounds of 8 operations, written out, numbered from 0 in each.
///
/// Written out for all alike, so that the loop costs little and a number is a constant. The
/// compiler may neither merge two operations nor move one out of the loop: to it, the fence after
/// each could be a signal handler that looks at all memory whose address other code may know. So
/// memory of a thread's own must be shown to [`hint::black_box`] before.
#[inline(always)]
fn rounds(ops: u64, mut op: impl FnMut(usize)) {
    let mut fenced = |number| {
        op(number);
        compiler_fence(Ordering::SeqCst);
    };
    for _ in 0..ops / ROUND {
        fenced(0);
        fenced(1);
        fenced(2);
        fenced(3);
        fenced(4);
        fenced(5);
        fenced(6);
        fenced(7);
    }
}

/// Looks until there is something, with a pause after each look, and lets others run after this
/// many: the thread that is waited for may be waiting for this CPU.
#[inline(always)]
fn wait_until<T>(looks: u32, mut look: impl FnMut() -> Option<T>) -> T {
    let mut looked = 0;
    loop {
        if let Some(found) = look() {
            return found;
        }
        if looked < looks {
            hint::spin_loop();
            looked += 1;
        } else {
            Native::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::thread;

    use super::*;

    #[test]
    fn a_round_has_eight_operations() {
        let done = Cell::new([0; 8]);
        rounds(3 * ROUND, |number| {
            let mut counts = done.get();
            counts[number] += 1;
            done.set(counts);
        });
        assert_eq!(done.get(), [3; 8]);
    }

    #[test]
    fn names_are_unique_and_found() {
        for class in Class::value_variants() {
            let bench = class.bench();
            // A row is found by its name, its threads and its parameters.
            let mut rows = BTreeSet::new();
            for form in &bench.forms {
                let params = serde_json::to_string(&form.params).unwrap();
                for (it, threads) in
                    form.candidates.iter().flat_map(|it| form.threads.iter().map(move |n| (it, n)))
                {
                    assert!(rows.insert((&it.name, threads, params.clone())), "{}", it.name);
                }
                let role = |name: &String| {
                    let mut all = form.candidates.iter();
                    all.find(|it| it.name == *name).map(|it| it.role)
                };
                assert_eq!(role(&form.reference), Some(Role::Rival));
                for goal in &form.goals {
                    assert_eq!(role(&goal.candidate), Some(Role::Ours));
                    assert!(goal.threads.is_none_or(|threads| form.threads.contains(&threads)));
                    match &goal.most {
                        Most::Times(_, other) => assert!(role(other).is_some(), "{other}"),
                        Most::Best(_, others) => assert!(others.iter().all(|it| form.has(it))),
                        Most::Ns(_) => {}
                    }
                }
            }
        }
    }

    /// All of a form that one thread may run, by one; all others by two at once.
    #[test]
    fn a_candidate_that_counts_counts_every_operation() {
        for class in Class::value_variants() {
            for form in class.bench().forms {
                let alone = form.threads.contains(&1);
                for candidate in form.candidates {
                    let Ok(subject) = (candidate.make)() else { continue };
                    if alone {
                        subject.run(0, ROUND);
                        subject.run(1, 3 * ROUND);
                    } else {
                        thread::scope(|scope| {
                            scope.spawn(|| subject.run(0, 2 * ROUND));
                            subject.run(1, 2 * ROUND);
                        });
                    }
                    let counts = matches!(
                        class,
                        Class::Counters | Class::Locks | Class::Rwlocks | Class::Calls
                    ) || candidate.name.contains("add")
                        || candidate.name.contains("freed elsewhere");
                    match subject.total() {
                        Some(total) => assert_eq!(total, 4 * ROUND, "{}", candidate.name),
                        None => assert!(!counts, "{}", candidate.name),
                    }
                }
            }
        }
    }
}
