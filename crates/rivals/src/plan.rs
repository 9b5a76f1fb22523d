//! How much to measure.

use std::time::Duration;

use crate::class::Form;
use crate::crew::Span;

/// With fewer kept samples a figure is not worth quoting.
pub(crate) const LEAST_SAMPLES: usize = 15;
/// The same where each is a window of time.
pub(crate) const LEAST_WINDOWS: usize = 5;

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
            longest: Duration::MAX,
            retries: 6,
        }
    }

    /// Whether the program works, in seconds. No figure of it is worth quoting.
    pub(crate) const QUICK: Plan = Plan {
        repetitions: 3,
        sample_ns: 200_000,
        crowded_ns: 1_000_000,
        timed: 1,
        longest: Duration::from_millis(15),
        retries: 2,
    };

    /// How long a sample of this form is at this number of threads, where it is a window of time.
    pub(crate) fn window(&self, form: &Form, threads: usize) -> Option<Duration> {
        let window = form.window.filter(|_| threads > 1)?;
        Some(window.length.min(self.longest))
    }

    /// How long a sample should take that is not a window, in nanoseconds. `crowded`: its threads
    /// share CPUs.
    pub(crate) fn length_ns(&self, crowded: bool) -> u64 {
        if crowded { self.crowded_ns } else { self.sample_ns }
    }

    /// How often a disturbed one is repeated. A window is long: what disturbs all of several
    /// goes on for minutes.
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
    fn a_window_is_never_longer_than_its_form_asks_for() {
        let form = &Class::Rwlocks.bench().forms[0];
        let asked = form.window.unwrap().length;
        let of = |longest| Plan { longest, ..Plan::full(21) }.window(form, 2);
        assert_eq!(of(2 * asked), Some(asked));
        assert_eq!(of(asked / 2), Some(asked / 2));
        assert_eq!(Plan::full(21).window(form, 1), None, "one thread contends with none");
    }
}
