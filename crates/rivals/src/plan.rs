//! How much to measure, and how much less where time is short.

use std::iter;
use std::time::Duration;

use crate::class::Form;
use crate::crew::Span;
use crate::text::millis;

/// With fewer kept samples a figure is not worth quoting.
pub(crate) const LEAST_SAMPLES: usize = 15;
/// The same where each is a window of time.
pub(crate) const LEAST_WINDOWS: usize = 5;

/// The fewest windows that a shorter plan has. A disturbed one may then be lost, and six are the
/// fewest with an interval of confidence, which the goals ask for.
const FEWEST_WINDOWS: usize = LEAST_WINDOWS + 1;

/// The shortest window of a shorter plan. With 16 threads to a CPU and time slices of 4 ms, each
/// thread runs once or twice in it.
pub(crate) const SHORTEST_WINDOW: Duration = Duration::from_millis(100);

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Samples of each candidate at each thread count.
    pub(crate) repetitions: usize,
    /// How long a sample should take where each thread has a CPU, in nanoseconds.
    pub(crate) sample_ns: u64,
    /// The same where threads share CPUs: long enough to have each of them run several times.
    pub(crate) crowded_ns: u64,
    /// Samples of each candidate where they are windows of time.
    pub(crate) timed: usize,
    /// The longest window: a form that asks for a longer one gets this.
    pub(crate) longest: Duration,
    /// Whether candidates are measured at numbers of threads where their windows end late.
    pub(crate) late: bool,
    /// How often a disturbed sample is repeated before it is given up.
    pub(crate) retries: u32,
    /// How many threads of another process compute meanwhile; then nothing counts as disturbed.
    pub(crate) beside: usize,
}

/// How long a sample beside load would take alone: many time slices of the scheduler.
const BESIDE_LOAD_NS: u64 = 40_000_000;

impl Plan {
    /// The plan for figures that can be quoted.
    pub(crate) fn full(repetitions: usize) -> Plan {
        Plan {
            repetitions,
            sample_ns: 1_500_000,
            crowded_ns: 12_000_000,
            // They are long, and each is a mean over many hand-offs.
            timed: repetitions.div_ceil(3),
            longest: Duration::MAX,
            late: true,
            retries: 6,
            beside: 0,
        }
    }

    /// The same beside this many threads that compute. Each sample is long enough to have its
    /// threads lose their CPUs several times.
    pub(crate) fn beside(self, threads: usize) -> Plan {
        let ns = |alone: u64| if threads > 0 { alone.max(BESIDE_LOAD_NS) } else { alone };
        let (sample_ns, crowded_ns) = (ns(self.sample_ns), ns(self.crowded_ns));
        Plan { beside: threads, sample_ns, crowded_ns, ..self }
    }

    /// Whether the program works, in seconds. No figure of it is worth quoting.
    pub(crate) const QUICK: Plan = Plan {
        repetitions: 3,
        sample_ns: 200_000,
        crowded_ns: 1_000_000,
        timed: 1,
        longest: Duration::from_millis(15),
        late: true,
        retries: 2,
        beside: 0,
    };

    /// Plans that ask for less and less, this one first. The last one asks for as little as
    /// figures allow.
    ///
    /// The number of windows falls first, because a short window says less about the shares of
    /// many threads. Then their length falls, from the longest that any form asks for. Where the
    /// shortest are still too long, candidates that end late go, and the others get long windows
    /// again. Samples of this many operations are short, so their number falls last.
    pub(crate) fn shorter(self, window: Duration) -> impl Iterator<Item = Plan> {
        let timed = self.timed.min(FEWEST_WINDOWS);
        let fewer = (timed..self.timed).rev().map(move |timed| Plan { timed, ..self });
        let fewest = Plan { timed, ..self };
        let punctual = Plan { late: false, ..fewest };
        let short = Plan { longest: SHORTEST_WINDOW, ..punctual };
        let samples = (LEAST_SAMPLES..self.repetitions).rev();
        let samples = samples.map(move |repetitions| Plan { repetitions, ..short });
        iter::once(self)
            .chain(fewer)
            .chain(fewest.with_windows_below(window))
            .chain(punctual.with_windows_below(window))
            .chain(samples)
    }

    fn with_windows_below(self, window: Duration) -> impl Iterator<Item = Plan> {
        let lengths = (millis(SHORTEST_WINDOW)..millis(window)).rev();
        lengths.map(move |ms| Plan { longest: Duration::from_millis(ms), ..self })
    }

    /// How long a sample of this form is at this number of threads, where it is a window of time.
    pub(crate) fn window(&self, form: &Form, threads: usize) -> Option<Duration> {
        // Beside load, too, as a count of operations says nothing of how long they take then.
        let window = form.window.filter(|_| threads > 1 || self.beside > 0)?;
        Some(window.length.min(self.longest))
    }

    /// How long a sample should take that is not a window, in nanoseconds. `crowded`: its threads
    /// share CPUs.
    pub(crate) fn length_ns(&self, crowded: bool) -> u64 {
        if crowded { self.crowded_ns } else { self.sample_ns }
    }

    /// How often a disturbed one is repeated. A window is long, so a disturbance of several windows
    /// lasts for minutes.
    pub(crate) fn retries(&self, span: Span) -> u32 {
        match span {
            Span::Ops(_) => self.retries,
            Span::Window(_) => self.retries / 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;

    #[test]
    fn plans_get_shorter_down_to_the_floors() {
        let full = Plan::full(21);
        let plans: Vec<_> = full.shorter(Duration::from_secs(1)).collect();
        assert_eq!(plans[0], full);
        let last = plans[plans.len() - 1];
        let floors = (last.repetitions, last.timed, last.longest, last.late);
        assert_eq!(floors, (LEAST_SAMPLES, LEAST_WINDOWS + 1, SHORTEST_WINDOW, false));
        for pair in plans.windows(2) {
            let sizes = |plan: &Plan| (plan.late, plan.timed, plan.longest, plan.repetitions);
            assert!(sizes(&pair[1]) < sizes(&pair[0]), "{pair:?}");
            // Windows take nearly all of the time.
            assert!(pair[1].repetitions == 21 || pair[1].longest == SHORTEST_WINDOW, "{pair:?}");
        }
    }

    #[test]
    fn a_window_is_never_longer_than_its_form_asks_for() {
        let form = &Class::Rwlocks.bench().forms[0];
        let asked = form.window.unwrap().length;
        let of = |longest| Plan { longest, ..Plan::full(21) }.window(form, 2);
        assert_eq!(of(2 * asked), Some(asked));
        assert_eq!(of(asked / 2), Some(asked / 2));
        assert_eq!(Plan::full(21).window(form, 1), None, "one thread contends with none");
        assert_eq!(Plan::full(21).beside(4).window(form, 1), Some(asked), "it does with the load");
    }
}
