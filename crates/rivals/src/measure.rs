//! Calibration, repetitions, retries.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use coreline_topology::CpuId;
use indicatif::{ProgressBar, ProgressStyle};
use rand_core::Rng;
use rand_pcg::Pcg64;

use crate::class::{Class, Form, ROUND, Role, Subject};
use crate::crew::Crew;
use crate::disturbance::Sample;
use crate::error::Error;
use crate::report::Row;
use crate::statistics::Summary;

/// How much to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Samples of each candidate at each thread count.
    pub(crate) repetitions: usize,
    /// How long a sample should take where each thread has a CPU, in nanoseconds.
    pub(crate) sample_ns: u64,
    /// The same where threads share CPUs: long enough to have each of them run several times.
    pub(crate) crowded_ns: u64,
    /// How often a disturbed sample is repeated before it is given up.
    pub(crate) retries: u32,
}

impl Plan {
    /// What figures need.
    pub(crate) fn full(repetitions: usize) -> Plan {
        Plan { repetitions, sample_ns: 1_500_000, crowded_ns: 12_000_000, retries: 6 }
    }

    /// Whether the program works, in seconds. No figure of it is worth quoting.
    pub(crate) const QUICK: Plan =
        Plan { repetitions: 3, sample_ns: 200_000, crowded_ns: 1_000_000, retries: 2 };
}

/// What was measured.
pub(crate) struct Measured {
    pub(crate) rows: Vec<Row>,
    /// What else the reader must know: candidates that this machine cannot have.
    pub(crate) notes: Vec<String>,
}

/// A candidate that this machine can have.
struct Entrant<'a> {
    form: &'a Form,
    name: &'a str,
    role: Role,
    subject: Arc<dyn Subject>,
}

/// An entrant at one number of threads.
struct Run<'a> {
    entrant: &'a Entrant<'a>,
    /// Operations of each thread in a sample.
    ops: u64,
    /// Nanoseconds per operation.
    samples: Vec<f64>,
    discarded: u32,
}

/// The order of candidates differs from repetition to repetition, but not from run to run.
const SEED: u128 = 5;

/// Measures all candidates of a class on these CPUs.
///
/// # Errors
///
/// [`Error`] if a thread cannot be started, or a candidate miscounted.
pub(crate) fn measure(class: Class, plan: &Plan, cpus: &[CpuId]) -> Result<Measured, Error> {
    let bench = class.bench();
    let mut notes = Vec::new();
    let mut entrants = Vec::new();
    for form in &bench.forms {
        for candidate in &form.candidates {
            match (candidate.make)() {
                Ok(subject) => {
                    let (name, role) = (candidate.name.as_str(), candidate.role);
                    entrants.push(Entrant { form, name, role, subject });
                }
                Err(lacking) => notes.push(format!("left out {:?}: {lacking}", candidate.name)),
            }
        }
    }
    let mut dice = Pcg64::new(SEED, 0);
    let mut rows = Vec::new();
    let progress = progress(bench.threads.len() * (plan.repetitions + 1) * entrants.len());
    for &threads in bench.threads {
        let crew = Crew::new(threads, cpus)?;
        let mut runs = Vec::new();
        for entrant in &entrants {
            progress.set_message(format!("{threads} threads: calibrating {}", entrant.name));
            let ops = calibrate(&crew, entrant, plan)?;
            runs.push(Run { entrant, ops, samples: Vec::new(), discarded: 0 });
            progress.inc(1);
        }
        for _ in 0..plan.repetitions {
            shuffle(&mut runs, &mut dice);
            for run in &mut runs {
                progress.set_message(format!("{threads} threads: {}", run.entrant.name));
                let take = || checked(&crew, run.entrant.name, &run.entrant.subject, run.ops);
                let (sample, discarded) = calm(plan.retries, take)?;
                run.samples.extend(sample.map(|sample| sample.ns_per_op(run.ops)));
                run.discarded += discarded;
                progress.inc(1);
            }
        }
        crew.dismiss();
        // In the order of the table, whatever the last shuffle was.
        let of = |entrant: &Entrant<'_>| runs.iter().find(|run| run.entrant.name == entrant.name);
        rows.extend(entrants.iter().filter_map(of).map(|run| run.row(class, threads)));
    }
    progress.finish_and_clear();
    Ok(Measured { rows, notes })
}

impl Run<'_> {
    fn row(&self, class: Class, threads: usize) -> Row {
        let Entrant { form, name, role, .. } = self.entrant;
        let summary = Summary::of(&self.samples);
        Row {
            class,
            name: (*name).to_owned(),
            ours: *role == Role::Ours,
            role: *role,
            threads,
            params: form.params,
            ns_median: summary.map(|summary| summary.median),
            ns_min: summary.map(|summary| summary.min),
            samples: self.samples.len(),
            discarded: self.discarded,
            share_min_max: None,
            form: form.title,
        }
    }
}

/// How many operations of each thread make a sample as long as planned.
fn calibrate(crew: &Crew, entrant: &Entrant<'_>, plan: &Plan) -> Result<u64, Error> {
    let target = if crew.is_crowded() { plan.crowded_ns } else { plan.sample_ns };
    let mut ops = 16 * ROUND;
    loop {
        // The shortest of a few: a disturbed one would make the operation look slow.
        let mut wall = u64::MAX;
        for _ in 0..5 {
            wall = wall.min(checked(crew, entrant.name, &entrant.subject, ops)?.wall().max(1));
        }
        if wall >= target / 8 {
            let ops = u128::from(ops) * u128::from(target) / u128::from(wall);
            return Ok(u64::try_from(ops).unwrap_or(u64::MAX).next_multiple_of(ROUND));
        }
        ops *= 4;
    }
}

/// Takes a sample and compares what the candidate counted with what was done.
fn checked(crew: &Crew, name: &str, subject: &Arc<dyn Subject>, ops: u64) -> Result<Sample, Error> {
    let before = subject.total();
    let sample = crew.sample(subject, ops);
    if let (Some(before), Some(after)) = (before, subject.total()) {
        let threads = crew.threads();
        let expected = ops * threads as u64;
        let found = after.wrapping_sub(before);
        if found != expected {
            return Err(Error::WrongSum { name: name.to_owned(), threads, expected, found });
        }
    }
    Ok(sample)
}

/// Takes samples until one is not disturbed, `1 + retries` at most; returns how many were, too.
///
/// The pause after each disturbed sample is twice the one before, from 1 ms on: most of what
/// disturbs is over soon.
fn calm(
    retries: u32,
    mut take: impl FnMut() -> Result<Sample, Error>,
) -> Result<(Option<Sample>, u32), Error> {
    for disturbed in 0..=retries {
        let sample = take()?;
        if !sample.is_disturbed() {
            return Ok((Some(sample), disturbed));
        }
        thread::sleep(Duration::from_millis(1 << disturbed));
    }
    Ok((None, retries + 1))
}

fn shuffle<T>(items: &mut [T], dice: &mut Pcg64) {
    for last in (1..items.len()).rev() {
        // The bias is as small as the list is short.
        let other = dice.next_u64() % (last as u64 + 1);
        items.swap(last, other as usize);
    }
}

/// Shows nothing where standard error is no terminal.
fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left, {msg}");
    let style = style.expect("the template is one");
    ProgressBar::new(steps as u64).with_style(style)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use coreline_world::native::probe;

    use super::*;
    use crate::disturbance::Lane;

    /// Counts one operation fewer than there are threads in a sample.
    #[derive(Default)]
    struct Lossy(AtomicU64);

    impl Subject for Lossy {
        fn run(&self, thread: usize, ops: u64) {
            // Relaxed, here and below: the reports of the threads come through channels.
            self.0.fetch_add(ops - u64::from(thread != 0), Ordering::Relaxed);
        }

        fn total(&self) -> Option<u64> {
            Some(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_wrong_sum_is_exit_code_1() {
        let cpus: Vec<_> = probe().allowed.unwrap().iter().collect();
        let subject: Arc<dyn Subject> = Arc::new(Lossy::default());
        for (threads, lost) in [(1, 0), (3, 2)] {
            let crew = Crew::new(threads, &cpus).unwrap();
            match checked(&crew, "lossy", &subject, 100) {
                Ok(_) => assert_eq!(lost, 0),
                Err(error) => {
                    assert_eq!(error.exit_code(), 1);
                    let text = error.to_string();
                    assert!(text.contains("3 threads did 300 operations on \"lossy\""), "{text}");
                    assert!(text.contains("counted 298"), "{text}");
                    assert_eq!(lost, 2);
                }
            }
            crew.dismiss();
        }
    }

    #[test]
    fn a_disturbed_sample_is_repeated_so_often() {
        let sample = |waited| {
            let lane = Lane { cpu: 0, start: 0, end: 1_000_000, ran: 1_000_000, waited };
            Sample { lanes: vec![lane], cpus: 1 }
        };
        let take = |disturbed: u32, retries| {
            let mut taken = 0;
            let result = calm(retries, || {
                taken += 1;
                Ok(sample(Some(if taken <= disturbed { 500_000 } else { 0 })))
            });
            let (kept, discarded) = result.unwrap();
            (kept.is_some(), discarded, taken)
        };
        assert_eq!(take(0, 2), (true, 0, 1));
        assert_eq!(take(2, 2), (true, 2, 3));
        assert_eq!(take(3, 2), (false, 3, 3), "given up");
        let (kept, discarded) = calm(2, || Ok(sample(None))).unwrap();
        assert!(kept.is_some() && discarded == 0, "nothing to judge by");
    }

    #[test]
    fn a_shuffle_loses_nothing_and_moves_something() {
        let mut dice = Pcg64::new(SEED, 0);
        let mut items: Vec<_> = (0..16).collect();
        shuffle(&mut items, &mut dice);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert_eq!(items, (0..16).collect::<Vec<_>>());
        shuffle::<u8>(&mut [], &mut dice);
    }
}
