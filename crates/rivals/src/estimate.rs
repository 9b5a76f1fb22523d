//! How long measuring takes, estimated before it begins, and the plan that fits into a time.
//!
//! An estimate follows from the forms, the plan and the number of CPUs alone. It leaves out
//! repeats: nothing says in advance how often other load disturbs a sample.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::class::Form;
#[cfg(test)]
use crate::class::{Bench, Candidate};
use crate::error::Error;
use crate::plan::Plan;
use crate::text::{about, grouped};

/// The unit of measurement: a candidate of a form at one number of threads.
#[derive(Clone, Copy)]
pub(crate) struct Cell<'a> {
    pub(crate) form: &'a Form,
    pub(crate) name: &'a str,
    pub(crate) threads: usize,
}

impl Cell<'_> {
    /// The time for which its threads continue after a window of this length.
    ///
    /// If each thread has a CPU, all threads end at the same time. Otherwise a thread ends when it
    /// gets its CPU again: 29 ms later for 8 threads on 2 CPUs and 51 ms for 32, measured as the
    /// mean over candidates of `locks` that do not end late. Of those that do, each thread that
    /// came to its CPU in the window waits for its turn, and each turn comes after all other
    /// threads of its CPU have spun through a time slice.
    fn wind_down(&self, window: Duration, cpus: usize) -> Duration {
        let Cell { form, name, threads } = *self;
        if threads <= cpus {
            Duration::ZERO
        } else if form.window.is_some_and(|window| window.late.contains(&name)) {
            let (threads, cpus) = (threads as f64, cpus as f64);
            let turns = threads.min(cpus * window.div_duration_f64(SLICE));
            SLICE.mul_f64(turns * threads / cpus)
        } else {
            8 * SLICE
        }
    }
}

/// A time slice: the scheduler's 3 ms, up to the next tick, and what the switch costs.
const SLICE: Duration = Duration::from_millis(5);

/// The time after a window from which on a candidate is late.
const LATE: Duration = Duration::from_millis(200);

/// The time of a cell if nothing disturbs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Finding out how many operations make a sample.
    pub(crate) calibration: Duration,
    /// How many samples there are.
    pub(crate) samples: usize,
    /// One sample.
    pub(crate) sample: Duration,
    /// How long each is measured, where it is a window of time.
    window: Option<Duration>,
}

impl Cost {
    /// `None` where the plan leaves the cell out.
    pub(crate) fn of(cell: Cell<'_>, plan: &Plan, cpus: usize) -> Option<Cost> {
        let Cell { form, threads, .. } = cell;
        let Some(window) = plan.window(form, threads) else {
            return Some(Cost::of_operations(form, threads, plan, cpus));
        };
        let after = cell.wind_down(window, cpus);
        let (calibration, samples) = (Duration::ZERO, plan.timed);
        let cost = Cost { calibration, samples, sample: window + after, window: Some(window) };
        (plan.late || after < LATE).then_some(cost)
    }

    /// The case in which a sample is this many operations.
    fn of_operations(form: &Form, threads: usize, plan: &Plan, cpus: usize) -> Cost {
        let length = Duration::from_nanos(plan.length_ns(threads > cpus));
        // A thread that computes beside has its CPU as long as one that is measured.
        let sharing = 1 + plan.beside.div_ceil(cpus * threads.div_ceil(cpus));
        let sharing = u32::try_from(sharing).unwrap_or(u32::MAX);
        let (calibration, sample) = match form.gaps() {
            Some(gaps) => (Duration::ZERO, gaps * sharing),
            // Calibrating takes about as long as two samples: five at each of some lengths, the
            // last of which is between an eighth and a half of a sample's.
            None => (2 * length, length * sharing),
        };
        Cost { calibration, samples: plan.repetitions, sample, window: None }
    }

    fn total(&self) -> Duration {
        self.calibration + self.sample * u32::try_from(self.samples).unwrap_or(u32::MAX)
    }
}

/// The time of all measurements if nothing disturbs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Estimate {
    pub(crate) time: Duration,
    pub(crate) samples: usize,
    /// How many of them are windows.
    timed: usize,
    /// The longest window.
    window: Duration,
}

impl Estimate {
    /// Estimates these cells of the plan.
    pub(crate) fn of(cells: &[Cell<'_>], plan: &Plan, cpus: usize) -> Estimate {
        let mut sum = Estimate::default();
        for cost in cells.iter().filter_map(|&cell| Cost::of(cell, plan, cpus)) {
            sum.add(&cost);
        }
        sum
    }

    fn add(&mut self, cost: &Cost) {
        self.time += cost.total();
        self.samples += cost.samples;
        if let Some(window) = cost.window {
            self.timed += cost.samples;
            self.window = self.window.max(window);
        }
    }

    /// The announcement before measuring begins; `None` if it is over soon.
    pub(crate) fn announcement(&self, budget: Option<Duration>) -> Option<String> {
        let Estimate { time, samples, timed, window } = *self;
        if time < WORTH_SAYING {
            return None;
        }
        let what = if timed == 0 {
            format!("{} samples", grouped(samples))
        } else if timed == samples {
            format!("{} windows of {window:?}", grouped(timed))
        } else {
            format!(
                "{} samples, {} of them windows of {window:?}",
                grouped(samples),
                grouped(timed)
            )
        };
        let mut said = format!("this takes {} (an estimate): {what}", about(time));
        said += &match budget {
            Some(budget) => {
                let reserve = about(budget.saturating_sub(time));
                format!(". Repeats of disturbed samples add at most {reserve}")
            }
            None if time < WORTH_SHORTENING => ". Repeats of disturbed samples add to it".into(),
            None => ". Repeats of disturbed samples add to it. --minutes N ends in about N \
                     minutes, with less exact figures"
                .into(),
        };
        Some(said)
    }
}

/// Shorter runs announce nothing.
const WORTH_SAYING: Duration = Duration::from_secs(10);
/// Longer ones are told how they can be shorter.
const WORTH_SHORTENING: Duration = Duration::from_secs(120);

/// The cells that the plan leaves out, and why; `None` if it has all.
pub(crate) fn left_out(cells: &[Cell<'_>], plan: &Plan, cpus: usize) -> Option<String> {
    let is_out = |cell: &&Cell<'_>| Cost::of(**cell, plan, cpus).is_none();
    let named = |cell: &Cell<'_>| format!("{:?} at {} threads", cell.name, cell.threads);
    // By name: a candidate may be out of several forms.
    let out: BTreeSet<_> = cells.iter().filter(is_out).map(named).collect();
    let names = out.into_iter().collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "left out {names}: waiters that spin in the order of arrival end each window late; \
             give more minutes to measure that, too"
        )
    })
}

/// The largest plan whose estimate leaves a fifth of these minutes for repeats.
///
/// # Errors
///
/// [`Error::TooLittleTime`] if not even the smallest plan does.
pub(crate) fn fit(
    full: Plan,
    minutes: u16,
    cells: &[Cell<'_>],
    cpus: usize,
) -> Result<Plan, Error> {
    let lengths = cells.iter().filter_map(|cell| cell.form.window.map(|window| window.length));
    let window = lengths.max().unwrap_or_default();
    let mut least = Duration::ZERO;
    for plan in full.shorter(window) {
        least = Estimate::of(cells, &plan, cpus).time;
        if with_reserve(least) <= budget(minutes) {
            return Ok(plan);
        }
    }
    let needed = (with_reserve(least).as_secs_f64() / 60.0).ceil() as u64;
    Err(Error::TooLittleTime { asked: minutes, needed })
}

/// This many minutes.
pub(crate) fn budget(minutes: u16) -> Duration {
    Duration::from_secs(60 * u64::from(minutes))
}

fn with_reserve(time: Duration) -> Duration {
    time * 5 / 4
}

#[cfg(test)]
impl<'a> Cell<'a> {
    /// All of a class, whether this machine has them or not.
    pub(crate) fn all(bench: &'a Bench) -> Vec<Cell<'a>> {
        let mut cells = Vec::new();
        for form in &bench.forms {
            for &threads in &form.threads {
                let cell = |it: &'a Candidate| Cell { form, name: &it.name, threads };
                cells.extend(form.candidates.iter().map(cell));
            }
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::class::Class;
    use crate::plan::{LEAST_WINDOWS, SHORTEST_WINDOW};

    const SECOND: Duration = Duration::from_secs(1);

    fn estimate(class: Class, plan: &Plan, cpus: usize) -> Estimate {
        Estimate::of(&Cell::all(&class.bench()), plan, cpus)
    }

    #[test]
    fn windows_take_their_time() {
        let all = estimate(Class::Locks, &Plan::full(21), 32);
        let locks = Class::Locks.bench().forms[0].candidates.len();
        // Four forms, three numbers of threads, seven windows; uncontended there are 21 samples.
        assert_eq!(all.timed, locks * 4 * 3 * 7);
        assert_eq!(all.samples, all.timed + locks * 21);
        assert_eq!(all.window, SECOND * 3 / 2);
        let short = (locks * (21 + 2)) as u32 * Duration::from_micros(1500);
        assert_eq!(all.time, all.timed as u32 * all.window + short);
    }

    #[test]
    fn samples_of_threads_that_share_cpus_are_longer() {
        let plan = Plan::full(21);
        let sample = |form: &Form, name: &str, threads, cpus| {
            Cost::of(Cell { form, name, threads }, &plan, cpus).unwrap().sample.as_millis()
        };
        let form = &Class::Masks.bench().forms[0];
        assert_eq!([2, 1].map(|cpus| sample(form, "any", 2, cpus)), [1, 12]);
        let form = &Class::Locks.bench().forms[1];
        assert_eq!([8, 2].map(|cpus| sample(form, "any", 8, cpus)), [1500, 1540]);
        let late = form.window.unwrap().late[0];
        let samples = [8, 32].map(|threads| sample(form, late, threads, 2));
        assert_eq!(samples, [1500 + 160, 1500 + 2560], "each thread waits for a round of others");
        assert_eq!(sample(form, late, 8, 8), 1500);
        let short = Cell { form, name: late, threads: 32 }.wind_down(3 * SLICE, 2);
        assert_eq!(short, 6 * 16 * SLICE, "six of them came to their CPUs");
    }

    #[test]
    fn late_names_are_those_of_candidates() {
        for class in Class::value_variants() {
            for form in class.bench().forms {
                for late in form.window.map(|window| window.late).unwrap_or_default() {
                    assert!(form.candidates.iter().any(|it| it.name == *late), "{late}");
                }
            }
        }
    }

    #[test]
    fn gaps_take_their_time() {
        let bench = Class::Calls.bench();
        let of = |form| Cost::of(Cell { form, name: "any", threads: 2 }, &Plan::full(21), 2);
        let with_gaps = bench.forms.iter().filter(|form| form.window.is_none());
        let all: Vec<_> = with_gaps.filter_map(of).collect();
        let lengths = all.iter().map(|cost| cost.sample.as_micros());
        assert_eq!(lengths.collect::<Vec<_>>(), [1500, 64 * 60, 64 * 500]);
        let calibrated = all.iter().map(|cost| cost.calibration.as_micros());
        assert_eq!(calibrated.collect::<Vec<_>>(), [3000, 0, 0]);
    }

    #[test]
    fn samples_beside_load_last_as_long_as_it_has_the_cpus() {
        let bench = Class::Masks.bench();
        let sample = |threads, beside, cpus| {
            let cell = Cell { form: &bench.forms[0], name: "any", threads };
            let plan = Plan::full(21).beside(beside);
            Cost::of(cell, &plan, cpus).unwrap().sample.as_millis()
        };
        assert_eq!(sample(1, 4, 2), 40 * 3, "two of four on each CPU");
        assert_eq!(sample(2, 4, 2), 40 * 3);
        assert_eq!(sample(4, 4, 2), 40 * 2, "as many of ours");
        assert_eq!(sample(2, 0, 2), 1);
    }

    #[test]
    fn a_long_run_is_announced_with_its_length_and_a_way_out() {
        let all = estimate(Class::Locks, &Plan::full(21), 32);
        let said = all.announcement(None).unwrap();
        for part in ["minutes (an estimate): 1,", " of them windows of 1.5s. ", "--minutes N "] {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
        let said = all.announcement(Some(all.time + 300 * SECOND)).unwrap();
        assert!(said.contains("add at most about 5 minutes"), "{said}");
        assert!(!said.contains("--minutes"), "{said}");
        let all = Estimate { timed: all.samples, ..all }.announcement(None).unwrap();
        assert!(all.contains(" windows of 1.5s. ") && !all.contains("samples, "), "{all}");
        let short = Estimate { time: 60 * SECOND, ..Estimate::default() };
        assert!(!short.announcement(None).unwrap().contains("--minutes"));
        assert_eq!(Estimate { time: 9 * SECOND, ..short }.announcement(None), None);
        // Tests of the program rely on that.
        let quick = estimate(Class::Cid, &Plan::QUICK, 1);
        assert_eq!(quick.announcement(None), None);
    }

    #[test]
    fn a_plan_that_fits_leaves_a_fifth_for_repeats() {
        let bench = Class::Locks.bench();
        let cells = Cell::all(&bench);
        let full = Plan::full(21);
        let mut before = Duration::ZERO;
        for minutes in 2..60 {
            let plan = fit(full, minutes, &cells, 2).unwrap();
            let time = Estimate::of(&cells, &plan, 2).time;
            assert!(time <= budget(minutes) * 4 / 5, "{minutes}: {time:?}");
            // Most of it is used, unless there is no more to do. One window more of each candidate
            // may take minutes.
            assert!(time >= budget(minutes) * 2 / 3 || plan == full, "{minutes}: {time:?}");
            assert!(time >= before, "more time, more done");
            assert!(plan.timed > LEAST_WINDOWS && plan.longest >= SHORTEST_WINDOW, "{plan:?}");
            assert_eq!(plan.repetitions, 21, "they take hardly any time");
            before = time;
        }
        assert_eq!(fit(full, 60, &cells, 2).unwrap(), full);
    }

    #[test]
    fn less_than_the_floors_is_refused() {
        let bench = Class::Locks.bench();
        let cells = Cell::all(&bench);
        let error = fit(Plan::full(21), 1, &cells, 2).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let said = error.to_string();
        for part in ["--minutes 1 ", "--minutes 2,", "--form", "--threads"] {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
        let some: Vec<_> = cells.into_iter().filter(|cell| cell.threads == 8).collect();
        assert!(fit(Plan::full(21), 1, &some, 2).is_ok(), "fewer cells");
    }

    #[test]
    fn candidates_that_end_late_are_left_out_where_time_is_short() {
        let bench = Class::Locks.bench();
        let cells = Cell::all(&bench);
        let out = |minutes, cpus| {
            left_out(&cells, &fit(Plan::full(21), minutes, &cells, cpus).unwrap(), cpus)
        };
        let note = out(2, 2).unwrap();
        assert!(note.starts_with("left out \"mcslock raw spins\" at 32 threads: "), "{note}");
        assert_eq!(out(60, 2), None);
        assert_eq!(out(2, 32), None, "each thread has a CPU");
    }

    #[test]
    fn every_class_can_be_measured_in_a_few_minutes() {
        for class in Class::value_variants() {
            for cpus in [1, 2, 4, 8, 16, 32] {
                let fits = fit(Plan::full(21), 3, &Cell::all(&class.bench()), cpus);
                assert!(fits.is_ok(), "{class:?} on {cpus} CPUs: {}", fits.unwrap_err());
            }
        }
    }
}
