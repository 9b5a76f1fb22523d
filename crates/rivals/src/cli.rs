//! The command line.

use std::io::{self, BufWriter, Write};

use clap::Parser;
use coreline_topology::{CpuId, CpuSet};
use coreline_world::native::probe;

use crate::class::{Bench, Class, Form};
use crate::crew;
use crate::error::Error;
use crate::estimate::{Cell, Estimate, budget, fit, left_out};
use crate::measure::{Entrants, measure};
use crate::plan::{LEAST_SAMPLES, LEAST_WINDOWS, Plan};
use crate::progress::Progress;
use crate::report::{Report, Row};
use crate::table;
use crate::text::tell;

/// Times coreline's primitives and their alternatives in one process, interleaved and on pinned
/// threads.
#[derive(Parser)]
#[command(
    name = "coreline-rivals",
    version,
    after_help = "Exit codes: 0 done (a goal that is not reached is still 0), 1 a candidate \
                  miscounted, 2 an error in the arguments, 3 this machine lacks something that \
                  the measurement needs."
)]
pub(crate) struct Cli {
    /// What to compare
    class: Class,
    /// Print one JSON object (coreline.rivals/1) instead of tables; notes go to standard error
    #[arg(long)]
    json: bool,
    /// Make few short repetitions; they show that everything works, but not how fast it is
    #[arg(long, conflicts_with = "reps")]
    quick: bool,
    /// Take this many samples of each candidate at each thread count
    #[arg(long, value_name = "N", default_value_t = 21,
          value_parser = clap::value_parser!(u16).range(LEAST_SAMPLES as i64..=1000))]
    reps: u16,
    /// End after about N minutes, with fewer and shorter samples and less exact figures
    ///
    /// The number of time windows shrinks first, then their length. If time is short, candidates
    /// whose windows end late are left out. A fifth of the time is kept for repeating disturbed
    /// samples. A run that is shorter anyway does not change. If N is too small for figures that
    /// are worth quoting, nothing is measured.
    #[arg(long, value_name = "N", conflicts_with_all = ["quick", "reps"],
          value_parser = clap::value_parser!(u16).range(1..))]
    minutes: Option<u16>,
    /// Measure while this many threads of another process compute without end
    ///
    /// Figures are elapsed times, each with the CPU time that the process takes per operation.
    /// Goals are for quiet machines, and are not shown.
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u16).range(0..=1024))]
    beside: u16,
    /// Measure only with this many threads
    #[arg(long, value_name = "N", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Measure only the forms with these words in their titles, such as 100/500
    #[arg(long, value_name = "WORDS")]
    form: Option<String>,
}

impl Cli {
    pub(crate) fn execute(&self) -> Result<(), Error> {
        let machine = probe();
        let allowed = machine.allowed.map_err(Error::NoCpus)?;
        let cpus: Vec<CpuId> = allowed.iter().collect();
        let mut bench = self.class.bench();
        select(&mut bench, &self.threads, self.form.as_deref())?;
        let entrants = Entrants::of(&bench);
        let cells = entrants.cells();
        let (plan, progress) = self.plan(&cells, cpus.len())?;
        let rows = measure(self.class, &entrants, &plan, &cpus, progress)?;
        let mut notes = entrants.notes;
        if let Err(why) = machine.sections {
            notes.push(format!("coreline's operations run on atomics here: {why}"));
        }
        if self.beside == 0 && !crew::knows_waits() {
            notes.push(
                "this kernel does not say how long a thread waited for its CPU (schedstat), so no \
                 sample was discarded at up to as many threads as CPUs"
                    .to_owned(),
            );
        }
        if self.quick {
            notes.push("quick: few short samples, no figures to quote".to_owned());
        } else {
            notes.extend(shortened(&bench, &plan));
            notes.extend(left_out(&cells, &plan, cpus.len()));
            notes.extend(thin(&rows));
        }
        let mut out = BufWriter::new(io::stdout().lock());
        if self.json {
            notes.iter().for_each(tell);
            serde_json::to_writer_pretty(&mut out, &Report::new(&rows)).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            preface(&bench, &plan, &allowed, &notes, &mut out)?;
            if self.beside > 0 {
                bench.forms.iter_mut().for_each(|form| form.goals.clear());
            }
            table::show(&bench, &rows, &mut out)?;
        }
        Ok(out.flush()?)
    }

    /// How much to measure. Says how long that takes, if it is long.
    ///
    /// # Errors
    ///
    /// [`Error::TooLittleTime`] if that is not enough for what was asked for.
    fn plan(&self, cells: &[Cell<'_>], cpus: usize) -> Result<(Plan, Progress), Error> {
        let full = if self.quick { Plan::QUICK } else { Plan::full(self.reps.into()) };
        let full = full.beside(self.beside.into());
        let plan = match self.minutes {
            Some(minutes) => fit(full, minutes, cells, cpus)?,
            None => full,
        };
        let estimate = Estimate::of(cells, &plan, cpus);
        let budget = self.minutes.map(budget);
        if let Some(announcement) = estimate.announcement(budget) {
            tell(announcement);
        }
        Ok((plan, Progress::new(estimate, budget)))
    }
}

/// Leaves of the forms what was asked for.
///
/// # Errors
///
/// [`Error::Nothing`] if that is nothing.
fn select(bench: &mut Bench, threads: &[usize], title: Option<&str>) -> Result<(), Error> {
    let all = bench.forms.iter().map(|form| format!("{:?} at {:?}", form.title, form.threads));
    let all = all.collect::<Vec<_>>().join(", ");
    for form in &mut bench.forms {
        form.threads.retain(|it| threads.is_empty() || threads.contains(it));
    }
    // Whole words: 0/0 is not 100/0.
    let words = |text: &str| format!(" {text} ");
    let is_asked = |form: &Form| title.is_none_or(|part| words(form.title).contains(&words(part)));
    bench.forms.retain(|form| is_asked(form) && !form.threads.is_empty());
    if bench.forms.is_empty() { Err(Error::Nothing(all)) } else { Ok(()) }
}

/// The consequence of shorter windows than the forms ask for, if the plan has such windows.
fn shortened(bench: &Bench, plan: &Plan) -> Option<String> {
    let asked = bench.forms.iter().find_map(|form| form.window)?.length;
    (plan.longest < asked).then(|| {
        format!(
            "windows of {:?} where a full run has {asked:?}: each thread gets fewer time slices, \
             so the shares of many threads are lower and vary more, which alone can make them miss \
             a goal",
            plan.longest
        )
    })
}

/// How many figures rest on too few samples.
fn thin(rows: &[Row]) -> Option<String> {
    let least = |row: &Row| match row.share_min_max {
        Some(_) => LEAST_WINDOWS,
        None => LEAST_SAMPLES,
    };
    let thin = rows.iter().filter(|row| row.samples < least(row)).count();
    let all = rows.len();
    (thin > 0).then(|| {
        format!(
            "{thin} of {all} figures rest on fewer than {LEAST_SAMPLES} samples ({LEAST_WINDOWS} \
             where they are windows of time), because other programs disturbed the rest; do not \
             quote them, and measure on a quieter machine"
        )
    })
}

/// The subject and the method of the measurement.
fn preface(
    bench: &Bench,
    plan: &Plan,
    allowed: &CpuSet,
    notes: &[String],
    out: &mut dyn Write,
) -> io::Result<()> {
    let time = if plan.beside == 0 { "CPU time" } else { "passing time on all CPUs used" };
    writeln!(
        out,
        "ns of {time} of {}; {} samples of {} us ({} us where threads share CPUs), interleaved; \
         threads pinned to CPUs {allowed} in turn",
        bench.operation,
        plan.repetitions,
        plan.sample_ns / 1000,
        plan.crowded_ns / 1000,
    )?;
    if let Some(window) = bench.forms.iter().find_map(|form| form.window) {
        let window = window.length.min(plan.longest);
        writeln!(
            out,
            "more than 1 thread: ns of {} windows of {window:?} by what all threads did in them; \
             share: the operations of the slowest thread divided by those of the fastest",
            plan.timed,
        )?;
    }
    if plan.beside > 0 {
        writeln!(
            out,
            "beside {} threads of another process that compute without end; CPU ns: what this \
             process used for an operation",
            plan.beside,
        )?;
    }
    for note in notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{Params, Role};

    #[test]
    fn forms_and_threads_can_be_chosen() {
        let chosen = |threads: &[usize], title| {
            let mut bench = Class::Locks.bench();
            select(&mut bench, threads, title)?;
            let forms = bench.forms.into_iter().map(|form| (form.title, form.threads));
            Ok::<_, Error>(forms.collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[], None).unwrap().len(), 5);
        assert_eq!(chosen(&[1], None).unwrap(), [("uncontended", vec![1])]);
        let some = [("section/outside 100/500 ns", vec![2, 32])];
        assert_eq!(chosen(&[2, 32], Some("100/500")).unwrap(), some);
        assert_eq!(chosen(&[], Some("0/0")).unwrap().len(), 1);
        let error = chosen(&[1], Some("100/500")).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("\"uncontended\" at [1], "), "{error}");
    }

    #[test]
    fn figures_on_too_few_samples_are_counted() {
        let row = |samples| Row {
            class: Class::Cid,
            name: "sched_getcpu".to_owned(),
            ours: false,
            role: Role::Rival,
            threads: 1,
            params: Params::default(),
            ns_median: None,
            ns_min: None,
            samples,
            discarded: 0,
            share_min_max: None,
            lost: None,
            beside: 0,
            cpu_ns_median: None,
            ns_interval: None,
            form: "index",
        };
        assert_eq!(thin(&[row(15), row(21)]), None);
        let note = thin(&[row(15), row(14), row(0)]).unwrap();
        assert!(note.starts_with("2 of 3 figures rest on fewer than 15 samples"), "{note}");
    }
}
