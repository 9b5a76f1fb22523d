//! Calibration, repetitions, retries.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use coreline_topology::CpuId;
use indicatif::{ProgressBar, ProgressStyle};
use rand_core::Rng;
use rand_pcg::Pcg64;

use crate::class::{Bench, Class, Form, ROUND, Role, Subject};
use crate::crew::{Crew, Span};
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
    /// Samples of each candidate where they are windows of time.
    pub(crate) timed: usize,
    /// Of how long a form wants a window, what it gets, in percent.
    pub(crate) window_percent: u32,
    /// How often a disturbed sample is repeated before it is given up.
    pub(crate) retries: u32,
}

impl Plan {
    /// What figures need.
    pub(crate) fn full(repetitions: usize) -> Plan {
        Plan {
            repetitions,
            sample_ns: 1_500_000,
            crowded_ns: 12_000_000,
            // They are long, and each is a mean over many hand-overs.
            timed: repetitions.div_ceil(3),
            window_percent: 100,
            retries: 6,
        }
    }

    /// Whether the program works, in seconds. No figure of it is worth quoting.
    pub(crate) const QUICK: Plan = Plan {
        repetitions: 3,
        sample_ns: 200_000,
        crowded_ns: 1_000_000,
        timed: 1,
        window_percent: 1,
        retries: 2,
    };
}

impl Plan {
    /// How many samples of this kind.
    fn samples(&self, span: Span) -> usize {
        match span {
            Span::Ops(_) => self.repetitions,
            Span::Window(_) => self.timed,
        }
    }

    /// How often a disturbed one is repeated. A window is long: what disturbs all of several
    /// goes on for minutes.
    fn retries(&self, span: Span) -> u32 {
        match span {
            Span::Ops(_) => self.retries,
            Span::Window(_) => self.retries / 3,
        }
    }
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
    span: Span,
    /// Nanoseconds per operation.
    samples: Vec<f64>,
    /// [`Sample::share`], where there is one.
    shares: Vec<f64>,
    discarded: u32,
}

/// The order of candidates differs from repetition to repetition, but not from run to run.
const SEED: u128 = 5;

/// Measures all candidates of a class on these CPUs.
///
/// # Errors
///
/// [`Error`] if a thread cannot be started, or a candidate miscounted.
pub(crate) fn measure(
    class: Class,
    bench: &Bench,
    plan: &Plan,
    cpus: &[CpuId],
) -> Result<Measured, Error> {
    // What this machine or build lacks, and the candidates that are not measured for it.
    let mut lacking: Vec<(String, Vec<String>)> = Vec::new();
    let mut entrants = Vec::new();
    for form in &bench.forms {
        for candidate in &form.candidates {
            match (candidate.make)() {
                Ok(subject) => {
                    let (name, role) = (candidate.name.as_str(), candidate.role);
                    entrants.push(Entrant { form, name, role, subject });
                }
                Err(why) => {
                    let (why, name) = (why.to_string(), format!("{:?}", candidate.name));
                    match lacking.iter_mut().find(|(other, _)| *other == why) {
                        Some((_, names)) if names.contains(&name) => {}
                        Some((_, names)) => names.push(name),
                        None => lacking.push((why, vec![name])),
                    }
                }
            }
        }
    }
    let note = |(why, names): &(_, Vec<_>)| format!("left out {}: {why}", names.join(", "));
    let notes = lacking.iter().map(note).collect();
    let mut counts: Vec<_> = bench.forms.iter().flat_map(|form| &form.threads).copied().collect();
    counts.sort_unstable();
    counts.dedup();
    let mut dice = Pcg64::new(SEED, 0);
    let mut rows = Vec::new();
    let progress = progress();
    for threads in counts {
        let crew = Crew::new(threads, cpus)?;
        let mut runs = Vec::new();
        for entrant in entrants.iter().filter(|it| it.form.threads.contains(&threads)) {
            progress.set_message(format!("{threads} threads: calibrating {}", entrant.name));
            let span = match entrant.form.window {
                Some(window) if threads > 1 => Span::Window(window * plan.window_percent / 100),
                _ => Span::Ops(calibrate(&crew, entrant, plan)?),
            };
            runs.push(Run { entrant, span, samples: Vec::new(), shares: Vec::new(), discarded: 0 });
        }
        // What is put in another order, so that the runs stay in that of the table.
        let mut order: Vec<_> = (0..runs.len()).collect();
        progress.inc_length(runs.iter().map(|run| plan.samples(run.span) as u64).sum());
        for repetition in 0..plan.repetitions.max(plan.timed) {
            shuffle(&mut order, &mut dice);
            for &number in &order {
                let run = &mut runs[number];
                if repetition >= plan.samples(run.span) {
                    continue;
                }
                progress.set_message(format!("{threads} threads: {}", run.entrant.name));
                let take = || checked(&crew, run.entrant.name, &run.entrant.subject, run.span);
                let (sample, discarded) = calm(plan.retries(run.span), take)?;
                run.samples.extend(sample.as_ref().map(Sample::ns_per_op));
                run.shares.extend(sample.as_ref().and_then(Sample::share));
                run.discarded += discarded;
                progress.inc(1);
            }
        }
        crew.dismiss();
        rows.extend(runs.iter().map(|run| run.row(class, threads)));
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
            ns_interval: summary.and_then(|summary| summary.interval),
            share_min_max: Summary::of(&self.shares).map(|summary| summary.median),
            form: form.title,
        }
    }
}

/// How many operations of each thread make a sample as long as planned.
fn calibrate(crew: &Crew, entrant: &Entrant<'_>, plan: &Plan) -> Result<u64, Error> {
    if let Some(ops) = entrant.form.ops() {
        return Ok(ops);
    }
    let target = if crew.is_crowded() { plan.crowded_ns } else { plan.sample_ns };
    let mut ops = 16 * ROUND;
    loop {
        // The shortest of a few: a disturbed one would make the operation look slow.
        let mut shortest = u64::MAX;
        for _ in 0..5 {
            let sample = checked(crew, entrant.name, &entrant.subject, Span::Ops(ops))?;
            shortest = shortest.min(sample.counted().max(1));
        }
        if shortest >= target / 8 {
            let ops = u128::from(ops) * u128::from(target) / u128::from(shortest);
            // At least a round, however little a busy machine got done.
            return Ok(u64::try_from(ops).unwrap_or(u64::MAX).next_multiple_of(ROUND).max(ROUND));
        }
        ops *= 4;
    }
}

/// Takes a sample and compares what the candidate counted with what was done.
fn checked(
    crew: &Crew,
    name: &str,
    subject: &Arc<dyn Subject>,
    span: Span,
) -> Result<Sample, Error> {
    let before = subject.total();
    let sample = crew.sample(subject, span);
    if let (Some(before), Some(after)) = (before, subject.total()) {
        let threads = crew.threads();
        let expected = sample.ops();
        let found = after.wrapping_sub(before);
        if found != expected {
            return Err(Error::WrongSum { name: name.to_owned(), threads, expected, found });
        }
    }
    Ok(sample)
}

/// Takes samples until one is not disturbed, `1 + retries` at most; returns how many were
/// discarded, too. The last one is kept in any case if its figure is the threads' own
/// [CPU time](Sample::is_cpu_time).
///
/// The pause after each disturbed sample is twice the one before, from 1 ms on: most of what
/// disturbs is over soon.
fn calm(
    retries: u32,
    mut take: impl FnMut() -> Result<Sample, Error>,
) -> Result<(Option<Sample>, u32), Error> {
    for disturbed in 0..=retries {
        let sample = take()?;
        if !sample.is_disturbed() || (disturbed == retries && sample.is_cpu_time()) {
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
fn progress() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left, {msg}");
    let style = style.expect("the template is one");
    ProgressBar::new(0).with_style(style)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use coreline_world::native::probe;

    use super::*;
    use crate::disturbance::{Kind, Lane};

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
            match checked(&crew, "lossy", &subject, Span::Ops(100)) {
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
            let (start, end, ran) = (0, 1_000_000, 1_000_000);
            let lane = Lane { cpu: 0, ops: 1, start, end, ran, waited, counted: None };
            Sample { lanes: vec![lane], cpus: 1, kind: Kind::Ops }
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
        let crowded = || {
            let sample = sample(Some(0));
            let lane = Lane { ran: 100_000, ..sample.lanes[0] };
            Ok(Sample { lanes: vec![lane; 2], ..sample })
        };
        let (kept, discarded) = calm(2, crowded).unwrap();
        assert_eq!((kept.map(|it| it.ns_per_op()), discarded), (Some(100_000.0), 2));
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
