//! Schedules: the choice of the thread that runs next.

use core::fmt;
use core::str::FromStr;

/// The policy by which a machine chooses the thread that runs next.
///
/// Times are meaningful only in a run by [time](Schedule::Time). For each seed, such a run shows
/// one order of events, which is the order on a machine without unlikely events. The other
/// schedules search for mistakes instead. They choose a thread at every *point*. Every access to
/// memory, every step of a restartable operation and every call of the world is a point. One thread
/// at a time runs to its next point. Time still advances step by step, as on a machine with one
/// CPU, so a clock never goes backwards. But these times are not a measurement. A sleep or a
/// deadline ends when its time is reached, or when no other thread can run. Under these schedules,
/// the machine also has the faults [`Faults::SEARCH`](crate::Faults::SEARCH) and [checks
/// memory](crate::MemoryChecks), unless the program sets them otherwise.
///
/// ```
/// use coreline_sim::Schedule;
///
/// let schedule: Schedule = "pct:3:2000".parse()?;
/// assert_eq!(schedule, Schedule::Pct { depth: 3, steps: 2000 });
/// # Ok::<(), coreline_sim::ParseScheduleError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Schedule {
    /// The schedule by time. The CPU with the earliest time acts next. Threads of a CPU share it by
    /// time slices.
    #[default]
    Time,
    /// The random schedule. At every point, a random CPU that can act is chosen. At one point in
    /// eight, the CPU switches to another of its threads if it has any. This rate is high enough to
    /// hit unlucky moments, and low enough for a restartable operation to complete.
    Random,
    /// Probabilistic concurrency testing: Burckhardt, Kothari, Musuvathi and Nagarakatte, ["A
    /// randomized scheduler with probabilistic guarantees of finding bugs"][pct], ASPLOS 2010. Each
    /// thread has a random priority, and the runnable thread with the highest priority runs. At
    /// `depth - 1` random points the running thread gets the lowest priority so far. If a mistake
    /// occurs only when `depth` events happen in a certain order, one run finds the mistake with a
    /// probability of at least `1 / (threads * steps^(depth - 1))`.
    ///
    /// A thread gets the lowest priority if it waits for other threads. It counts as waiting if it
    /// [yields](coreline_world::Threads::yield_now), [relaxes](coreline_world::Words::relax) in a
    /// loop, passes 10,000 points while other threads could run, or loses its CPU while it waits
    /// for a write.
    ///
    /// [pct]: https://www.microsoft.com/en-us/research/wp-content/uploads/2016/02/asplos277-pct.pdf
    Pct {
        /// The number of events that must happen in a certain order for the mistake to occur.
        /// Values from 1 to 4 find most mistakes.
        depth: u32,
        /// The approximate number of points in the program. Change points are chosen among these.
        /// [`Report::steps`](crate::Report::steps) of a run is a good guess.
        steps: u64,
    },
    /// A list of choices: see [`Choices`].
    Choices(Choices),
}

/// A list of choices, which is the record of a schedule.
///
/// At every point where more than one thread can run, the threads are ordered. The first is the
/// thread that ran last, if it can continue and does not yield. The other threads follow in cyclic
/// order of their numbers, starting after that thread. The first thread runs, unless the list names
/// another thread.
///
/// The text form is a list of pairs `point.choice`, with points and choices counted from 0, such as
/// `12.1,40.2`. The empty list is `none`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choices(
    /// Points in ascending order, each with what is chosen there.
    pub(crate) Vec<(u64, u32)>,
);

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<_> =
            self.0.iter().map(|(point, choice)| format!("{point}.{choice}")).collect();
        f.write_str(if pairs.is_empty() { "none" } else { "" })?;
        f.write_str(&pairs.join(","))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Time => write!(f, "time"),
            Schedule::Random => write!(f, "random"),
            Schedule::Pct { depth, steps } => write!(f, "pct:{depth}:{steps}"),
            Schedule::Choices(choices) => write!(f, "choices:{choices}"),
        }
    }
}

/// The error for a schedule that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a schedule; write time, random, pct:DEPTH:STEPS with both numbers at least 1, \
     or choices: followed by pairs POINT.CHOICE with ascending points, separated by commas"
)]
pub struct ParseScheduleError {
    /// The given text.
    text: String,
}

impl FromStr for Schedule {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseScheduleError { text: text.to_owned() };
        match text.split_once(':') {
            None if text == "time" => Ok(Schedule::Time),
            None if text == "random" => Ok(Schedule::Random),
            Some(("pct", numbers)) => {
                let (depth, steps) = numbers.split_once(':').ok_or_else(wrong)?;
                let (depth, steps) =
                    (depth.parse().map_err(|_| wrong())?, steps.parse().map_err(|_| wrong())?);
                if depth == 0 || steps == 0 {
                    return Err(wrong());
                }
                Ok(Schedule::Pct { depth, steps })
            }
            Some(("choices", list)) => {
                list.parse().map(Schedule::Choices).map_err(|_: ParseScheduleError| wrong())
            }
            _ => Err(wrong()),
        }
    }
}

impl FromStr for Choices {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseScheduleError { text: text.to_owned() };
        if text == "none" {
            return Ok(Choices::default());
        }
        let pair = |pair: &str| -> Option<(u64, u32)> {
            let (point, choice) = pair.split_once('.')?;
            Some((point.parse().ok()?, choice.parse().ok()?))
        };
        let pairs: Vec<_> = text.split(',').map(pair).collect::<Option<_>>().ok_or_else(wrong)?;
        let ascending = pairs.windows(2).all(|pair| pair[0].0 < pair[1].0);
        ascending.then_some(Choices(pairs)).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for schedule in [
            Schedule::Time,
            Schedule::Random,
            Schedule::Pct { depth: 3, steps: 1000 },
            Schedule::Choices(Choices::default()),
            Schedule::Choices(Choices(vec![(12, 1), (40, 2)])),
        ] {
            assert_eq!(schedule.to_string().parse(), Ok(schedule));
        }
        for wrong in ["", "pct", "pct:0:1", "pct:1", "choices", "choices:", "choices:4.1,3.1", "x"]
        {
            let error = wrong.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
    }
}
