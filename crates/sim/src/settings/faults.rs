//! Faults that the machine injects into the program.

use core::fmt;
use core::str::FromStr;

/// Interruptions and defects that a machine injects. By default, all are off in runs by time, and
/// [`SEARCH`](Faults::SEARCH) is on under other schedules.
///
/// Rates are "once in n", or zero for never. The machine's seed decides the moments of the faults.
/// No fault takes a thread off its CPU while the thread has [interrupts
/// masked](crate::interrupts::mask).
///
/// ```
/// use coreline_sim::Faults;
///
/// let faults: Faults = "preempt:5,signal:20,offline:1000".parse()?;
/// assert_eq!(faults, Faults { preempt: 5, signal: 20, offline: 1000, ..Faults::NONE });
/// # Ok::<(), coreline_sim::ParseFaultsError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// The rate of preemptions in restartable operations. The thread is preempted before one in
    /// this many steps. It moves to the end of its CPU's run queue. With 1, no operation ever
    /// commits.
    pub preempt: u32,
    /// The rate of preemptions at other memory accesses. The thread is preempted before one in this
    /// many such accesses.
    pub preempt_access: u32,
    /// The rate of migrations. The thread is moved to another CPU before one in this many steps of
    /// a restartable operation. Threads that are bound to a CPU are not moved.
    pub migrate: u32,
    /// The rate of signals. The thread gets a signal before one in this many steps of a restartable
    /// operation, and before one in this many other accesses. See [`on_signal`](crate::on_signal).
    pub signal: u32,
    /// The rate of stalls. The thread's CPU stalls for up to ten microseconds before one in this
    /// many accesses, as with a firmware interrupt or a hypervisor. The thread loses only time.
    pub delay: u32,
    /// The rate at which CPUs go out of service. The thread's CPU goes out of service before one in
    /// this many steps of a restartable operation, and before one in this many other accesses. It
    /// stays out of service until the end of the run. The CPU's threads move to other CPUs, even if
    /// they are bound to this one. The last CPU stays in service.
    pub offline: u32,
    /// The rate of spurious wake-ups. One in this many waits ends immediately although no other
    /// thread woke the thread: a [`park`](crate::thread::park), a wait for a
    /// [`Condvar`](crate::sync::Condvar), and a sleep on a word
    /// ([`Sleep::park`](coreline_world::Sleep::park)). Interfaces permit these wake-ups, so a
    /// program must check again.
    pub spurious: u32,
    /// The rate of weak exchanges that fail. One in this many calls of `compare_exchange_weak` that
    /// would succeed fails, as the interface permits.
    pub weak: u32,
    /// The rate at which spinning is cut short. Under a schedule that [searches](crate::Schedule),
    /// a thread that spins (`spin_loop`, `yield_now`) continues alone after one in this many turns.
    /// It does so until it changes a word or blocks, or for 1,000 turns. Before its first access of
    /// each kind to each word, from each place in the source, another thread may run instead. So
    /// the search reaches the code that the thread runs after it has spun without success. Unless
    /// this rate is 0, the locks of [`sync`](crate::sync) mostly do not spin before they park.
    pub cut_spins: u32,
    /// Whether the kernel fails to restart restartable operations. The arm64 kernel had this defect
    /// after the rewrite in 6.19, for a thread that another thread preempts on the same CPU.
    /// Programs lose updates. A start-up self-test should detect the defect.
    pub missed_aborts: bool,
    /// Whether a fence of restartable operations fails to restart them. Stopping slots relies on
    /// these restarts.
    pub missed_fences: bool,
}

impl Faults {
    /// No faults.
    pub const NONE: Faults = Faults {
        preempt: 0,
        preempt_access: 0,
        migrate: 0,
        signal: 0,
        delay: 0,
        offline: 0,
        spurious: 0,
        weak: 0,
        cut_spins: 0,
        missed_aborts: false,
        missed_fences: false,
    };

    /// The unlikely events that interfaces permit. These are the faults of a machine under a
    /// schedule that searches, unless [`Machine::faults`](crate::Machine::faults) sets others. As
    /// text, they are `search`.
    pub const SEARCH: Faults = Faults { spurious: 16, weak: 16, cut_spins: 8, ..Faults::NONE };

    /// These faults without what depends on the schedule alone.
    pub(crate) fn without_luck(self) -> Faults {
        self.with_luck_of(Faults::NONE)
    }

    /// These faults with the luck of others.
    fn with_luck_of(self, other: Faults) -> Faults {
        let Faults { spurious, weak, cut_spins, .. } = other;
        Faults { spurious, weak, cut_spins, ..self }
    }

    /// Whether ordinary accesses are hit, too.
    pub(crate) fn hit_accesses(self) -> bool {
        [self.preempt_access, self.signal, self.delay, self.offline].into_iter().any(|n| n != 0)
    }

    /// The rates by name, in the order in which they are written.
    fn rates(&mut self) -> [(&'static str, &mut u32); 9] {
        [
            ("preempt", &mut self.preempt),
            ("preempt-access", &mut self.preempt_access),
            ("migrate", &mut self.migrate),
            ("signal", &mut self.signal),
            ("delay", &mut self.delay),
            ("offline", &mut self.offline),
            ("spurious", &mut self.spurious),
            ("weak", &mut self.weak),
            ("cut-spins", &mut self.cut_spins),
        ]
    }

    /// The defects by name.
    fn defects(&mut self) -> [(&'static str, &mut bool); 2] {
        [("missed-aborts", &mut self.missed_aborts), ("missed-fences", &mut self.missed_fences)]
    }
}

/// The word for the faults of [`Faults::SEARCH`].
const SEARCH: &str = "search";

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = self.without_luck();
        let is_search = *self == rest.with_luck_of(Faults::SEARCH);
        let (mut rates, mut defects) = (if is_search { rest } else { *self }, *self);
        let rates = rates.rates().into_iter().filter(|(_, rate)| **rate != 0);
        let defects = defects.defects().into_iter().filter(|(_, there)| **there);
        let search = is_search.then(|| SEARCH.to_owned());
        let parts: Vec<String> = search
            .into_iter()
            .chain(rates.map(|(name, rate)| format!("{name}:{rate}")))
            .chain(defects.map(|(name, _)| name.to_owned()))
            .collect();
        f.write_str(if parts.is_empty() { "none" } else { "" })?;
        f.write_str(&parts.join(","))
    }
}

/// The error for a list of faults that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{part:?} is not a fault; write none, or some of search,preempt:N,preempt-access:N,migrate:N,\
     signal:N,\
     delay:N,offline:N,spurious:N,weak:N,cut-spins:N,missed-aborts,missed-fences"
)]
pub struct ParseFaultsError {
    /// The part of the list that is wrong.
    part: String,
}

impl FromStr for Faults {
    type Err = ParseFaultsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut faults = Faults::NONE;
        if text == "none" {
            return Ok(faults);
        }
        for part in text.split(',') {
            let wrong = || ParseFaultsError { part: part.to_owned() };
            match part.split_once(':') {
                Some((asked, number)) => {
                    let mut rates = faults.rates().into_iter();
                    let (_, rate) = rates.find(|(name, _)| *name == asked).ok_or_else(wrong)?;
                    *rate = number.parse().map_err(|_| wrong())?;
                }
                None if part == SEARCH => faults = faults.with_luck_of(Faults::SEARCH),
                None => {
                    let mut defects = faults.defects().into_iter();
                    let (_, there) = defects.find(|(name, _)| *name == part).ok_or_else(wrong)?;
                    *there = true;
                }
            }
        }
        Ok(faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for faults in [
            Faults::NONE,
            Faults { preempt: 8, ..Faults::NONE },
            Faults {
                preempt: 3,
                preempt_access: 4,
                migrate: 5,
                signal: 6,
                delay: 7,
                offline: 8,
                spurious: 9,
                weak: 10,
                cut_spins: 11,
                missed_aborts: true,
                missed_fences: true,
            },
            Faults { missed_fences: true, ..Faults::NONE },
            Faults::SEARCH,
            Faults { preempt: 7, missed_aborts: true, ..Faults::SEARCH },
            Faults { weak: 7, ..Faults::SEARCH },
        ] {
            assert_eq!(faults.to_string().parse(), Ok(faults));
        }
        assert!("preempt".parse::<Faults>().is_err());
        assert_eq!(Faults { preempt: 7, ..Faults::SEARCH }.to_string(), "search,preempt:7");
        assert_eq!(Faults::default(), Faults::NONE);
        assert!("preempt:x".parse::<Faults>().unwrap_err().to_string().contains("preempt:x"));
        assert!("".parse::<Faults>().is_err());
        assert!("missed-aborts:1".parse::<Faults>().is_err());
    }
}
