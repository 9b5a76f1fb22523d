//! Calibration, repetitions, retries.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use coreline_topology::CpuId;
use rand_core::Rng;
use rand_pcg::Pcg64;

use crate::class::{Bench, Class, Form, Lost, ROUND, Role, Subject};
use crate::crew::{Crew, Span};
use crate::disturbance::Sample;
use crate::error::Error;
use crate::estimate::{Cell, Cost};
use crate::load::Load;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::Row;
use crate::statistics::Summary;

/// The candidates that this machine can have.
pub(crate) struct Entrants<'a> {
    all: Vec<Entrant<'a>>,
    /// Notes for the reader: candidates that this machine cannot have.
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
    cost: Cost,
    /// Nanoseconds per operation.
    samples: Vec<f64>,
    /// [`Sample::share`], where there is one.
    shares: Vec<f64>,
    /// [`Sample::cpu_ns_per_op`], beside load.
    cpu: Vec<f64>,
    discarded: u32,
    /// [`Subject::lost`], before the first sample.
    lost: Lost,
}

/// After so many windows in a row in which nothing was done, beside load, there is no figure.
const MOST_EMPTY: u32 = 100;

/// The order of candidates differs from repetition to repetition, but not from run to run.
const SEED: u128 = 5;

impl<'a> Entrants<'a> {
    /// Makes what is measured.
    pub(crate) fn of(bench: &'a Bench) -> Entrants<'a> {
        // What this machine or build lacks, and the candidates that are not measured for it.
        let mut lacking: Vec<(String, Vec<String>)> = Vec::new();
        let mut all = Vec::new();
        for form in &bench.forms {
            for candidate in &form.candidates {
                match (candidate.make)() {
                    Ok(subject) => {
                        let (name, role) = (candidate.name.as_str(), candidate.role);
                        all.push(Entrant { form, name, role, subject });
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
        Entrants { all, notes: lacking.iter().map(note).collect() }
    }

    /// All that may be measured.
    pub(crate) fn cells(&self) -> Vec<Cell<'a>> {
        let cells = |it: &Entrant<'a>| it.form.threads.iter().map(|&n| it.cell(n)).collect();
        self.all.iter().flat_map::<Vec<_>, _>(cells).collect()
    }

    /// All numbers of threads that some are measured with, from the least.
    fn thread_counts(&self) -> Vec<usize> {
        let mut counts: Vec<_> =
            self.all.iter().flat_map(|entrant| &entrant.form.threads).copied().collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    fn at(&self, threads: usize) -> impl Iterator<Item = &Entrant<'a>> {
        self.all.iter().filter(move |entrant| entrant.form.threads.contains(&threads))
    }
}

impl<'a> Entrant<'a> {
    fn cell(&self, threads: usize) -> Cell<'a> {
        Cell { form: self.form, name: self.name, threads }
    }
}

/// Measures all candidates on these CPUs.
///
/// # Errors
///
/// [`Error`] if a thread cannot be started, or a candidate miscounted.
pub(crate) fn measure(
    class: Class,
    entrants: &Entrants<'_>,
    plan: &Plan,
    cpus: &[CpuId],
    mut progress: Progress,
) -> Result<Vec<Row>, Error> {
    let mut dice = Pcg64::new(SEED, 0);
    let mut rows = Vec::new();
    for threads in entrants.thread_counts() {
        let crew = Crew::new(threads, cpus)?;
        let mut runs = Vec::new();
        for entrant in entrants.at(threads) {
            let Some(cost) = Cost::of(entrant.cell(threads), plan, cpus.len()) else { continue };
            progress.begin(&format!("{threads} threads: calibrating {}", entrant.name));
            runs.push(Run::new(entrant, &crew, plan, cost)?);
            progress.done(0, cost.calibration);
        }
        // After calibrating: how many operations make a sample does not follow from the load.
        let load = Load::start(plan.beside)?;
        sample_all(&mut runs, &crew, plan, &mut dice, &mut progress)?;
        drop(load);
        crew.dismiss();
        rows.extend(runs.iter().map(|run| run.row(class, threads, plan)));
    }
    progress.finish();
    Ok(rows)
}

/// Takes all samples at one number of threads, in turns.
fn sample_all(
    runs: &mut [Run<'_>],
    crew: &Crew,
    plan: &Plan,
    dice: &mut Pcg64,
    progress: &mut Progress,
) -> Result<(), Error> {
    // What is put in another order, so that the runs stay in that of the table.
    let mut order: Vec<_> = (0..runs.len()).collect();
    for repetition in 0..plan.repetitions.max(plan.timed) {
        shuffle(&mut order, dice);
        for &number in &order {
            let run = &mut runs[number];
            if repetition < run.cost.samples {
                progress.begin(&format!("{} threads: {}", crew.threads(), run.entrant.name));
                run.sample(crew, plan, progress)?;
                progress.done(1, run.cost.sample);
            }
        }
    }
    Ok(())
}

impl<'a> Run<'a> {
    /// Finds out how long its samples are.
    fn new(
        entrant: &'a Entrant<'a>,
        crew: &Crew,
        plan: &Plan,
        cost: Cost,
    ) -> Result<Run<'a>, Error> {
        let span = match plan.window(entrant.form, crew.threads()) {
            Some(window) => Span::Window(window),
            None => Span::Ops(calibrate(crew, entrant, plan)?),
        };
        let (samples, shares, cpu) = (Vec::new(), Vec::new(), Vec::new());
        // After calibrating, whose operations are others.
        let lost = entrant.subject.lost().unwrap_or_default();
        Ok(Run { entrant, span, cost, samples, shares, cpu, discarded: 0, lost })
    }

    /// Takes one sample.
    fn sample(&mut self, crew: &Crew, plan: &Plan, progress: &Progress) -> Result<(), Error> {
        let Entrant { name, subject, .. } = self.entrant;
        let take = || checked(crew, name, subject, self.span);
        if plan.beside > 0 {
            // A window may end before a thread had its CPU. Its time belongs to the operations of
            // the next window: if it did not count, slow spells would be left out.
            let (mut wall, mut cpu) = (0, 0);
            // Threads that came after the window's end have seen none of it.
            let shortest = match self.span {
                Span::Window(window) => window.as_nanos() as u64,
                Span::Ops(_) => 0,
            };
            for _ in 0..MOST_EMPTY {
                let sample = take()?;
                if sample.ops() > 0 {
                    let each = |empty: u64| empty as f64 / sample.ops() as f64;
                    self.samples.push(sample.wall_ns_per_op() + each(wall));
                    self.shares.extend(sample.share());
                    self.cpu.push(sample.cpu_ns_per_op() + each(cpu));
                    return Ok(());
                }
                wall += sample.wall().max(shortest);
                cpu += sample.cpu_ns;
            }
            self.discarded += MOST_EMPTY;
            return Ok(());
        }
        let (sample, discarded) = calm(plan.retries(self.span), || progress.may_repeat(), take)?;
        self.samples.extend(sample.as_ref().map(Sample::ns_per_op));
        self.shares.extend(sample.as_ref().and_then(Sample::share));
        self.discarded += discarded;
        Ok(())
    }

    fn row(&self, class: Class, threads: usize, plan: &Plan) -> Row {
        let Entrant { form, name, role, subject } = self.entrant;
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
            lost: subject.lost().map(|lost| lost.since(self.lost)),
            beside: plan.beside,
            cpu_ns_median: Summary::of(&self.cpu).map(|summary| summary.median),
            form: form.title,
        }
    }
}

/// How many operations of each thread make a sample as long as planned.
fn calibrate(crew: &Crew, entrant: &Entrant<'_>, plan: &Plan) -> Result<u64, Error> {
    if let Some(ops) = entrant.form.ops() {
        return Ok(ops);
    }
    let target = plan.length_ns(crew.is_crowded());
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

/// Takes samples until one is not disturbed, `1 + retries` at most, and repeats none where it may
/// not; returns how many were discarded, too. The last one is kept in any case if its figure is
/// the threads' own [CPU time](Sample::is_cpu_time).
///
/// The pause after each disturbed sample is twice the previous one, from 1 ms on, because most
/// disturbances are over soon.
fn calm(
    retries: u32,
    mut may_repeat: impl FnMut() -> bool,
    mut take: impl FnMut() -> Result<Sample, Error>,
) -> Result<(Option<Sample>, u32), Error> {
    let mut disturbed = 0;
    loop {
        let sample = take()?;
        if !sample.is_disturbed() {
            return Ok((Some(sample), disturbed));
        }
        if disturbed == retries || !may_repeat() {
            return Ok(match sample.is_cpu_time() {
                true => (Some(sample), disturbed),
                false => (None, disturbed + 1),
            });
        }
        thread::sleep(Duration::from_millis(1 << disturbed));
        disturbed += 1;
    }
}

fn shuffle<T>(items: &mut [T], dice: &mut Pcg64) {
    for last in (1..items.len()).rev() {
        // The bias is as small as the list is short.
        let other = dice.next_u64() % (last as u64 + 1);
        items.swap(last, other as usize);
    }
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
            Sample { lanes: vec![lane], cpus: 1, kind: Kind::Ops, cpu_ns: ran }
        };
        let take = |disturbed: u32, retries, repeats| {
            let mut taken = 0;
            let mut asked = 0;
            let may_repeat = || {
                asked += 1;
                asked <= repeats
            };
            let result = calm(retries, may_repeat, || {
                taken += 1;
                Ok(sample(Some(if taken <= disturbed { 500_000 } else { 0 })))
            });
            let (kept, discarded) = result.unwrap();
            (kept.is_some(), discarded, taken)
        };
        assert_eq!(take(0, 2, 9), (true, 0, 1));
        assert_eq!(take(2, 2, 9), (true, 2, 3));
        assert_eq!(take(3, 2, 9), (false, 3, 3), "given up");
        assert_eq!(take(2, 2, 1), (false, 2, 2), "no time left");
        assert_eq!(take(0, 2, 0), (true, 0, 1), "no time left, and none needed");
        let crowded = || {
            let sample = sample(Some(0));
            let lane = Lane { ran: 100_000, ..sample.lanes[0] };
            Ok(Sample { lanes: vec![lane; 2], ..sample })
        };
        let (kept, discarded) = calm(2, || true, crowded).unwrap();
        assert_eq!((kept.map(|it| it.ns_per_op()), discarded), (Some(100_000.0), 2));
        let (kept, discarded) = calm(2, || false, crowded).unwrap();
        assert!(kept.is_some() && discarded == 0, "kept, though disturbed");
        let (kept, discarded) = calm(2, || true, || Ok(sample(None))).unwrap();
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
