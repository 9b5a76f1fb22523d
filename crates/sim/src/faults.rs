//! Faults: what the machine does to the program beyond running it.

use core::fmt;
use core::str::FromStr;

/// Interruptions and defects that a machine injects, all off by default.
///
/// Rates are "once in n", zero for never; what is hit is drawn from the machine's seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Before one in this many steps of a restartable operation, the thread is preempted (so that
    /// with 1 none ever commits): it goes behind the other threads of its CPU.
    pub preempt: u32,
    /// Before one in this many steps of a restartable operation, a thread that is not bound to its
    /// CPU is moved to another.
    pub migrate: u32,
    /// The kernel does not make restartable operations restart, as that of arm64 did not for a
    /// thread preempted by another on the same CPU, after the rewrite in 6.19. Programs lose
    /// updates; a start-up self-test is there to notice.
    pub missed_aborts: bool,
    /// A fence of restartable operations restarts none. Whoever stops slots relies on it.
    pub missed_fences: bool,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, rate) in [("preempt", self.preempt), ("migrate", self.migrate)] {
            if rate != 0 {
                write!(f, "{separator}{name}:{rate}")?;
                separator = ",";
            }
        }
        let defects =
            [("missed-aborts", self.missed_aborts), ("missed-fences", self.missed_fences)];
        for (name, _) in defects.into_iter().filter(|(_, there)| *there) {
            write!(f, "{separator}{name}")?;
            separator = ",";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// A list of faults that cannot be read: what was wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{part:?} is no fault; write none, or some of preempt:N,migrate:N,missed-aborts,missed-fences"
)]
pub struct ParseFaultsError {
    /// The part of the list that is wrong.
    part: String,
}

impl FromStr for Faults {
    type Err = ParseFaultsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut faults = Faults::default();
        if text == "none" {
            return Ok(faults);
        }
        for part in text.split(',') {
            let wrong = || ParseFaultsError { part: part.to_owned() };
            match part.split_once(':') {
                Some(("preempt", rate)) => faults.preempt = rate.parse().map_err(|_| wrong())?,
                Some(("migrate", rate)) => faults.migrate = rate.parse().map_err(|_| wrong())?,
                None if part == "missed-aborts" => faults.missed_aborts = true,
                None if part == "missed-fences" => faults.missed_fences = true,
                _ => return Err(wrong()),
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
            Faults::default(),
            Faults { preempt: 8, ..Faults::default() },
            Faults { preempt: 3, migrate: 5, missed_aborts: true, missed_fences: true },
            Faults { missed_fences: true, ..Faults::default() },
        ] {
            assert_eq!(faults.to_string().parse(), Ok(faults));
        }
        assert!("preempt".parse::<Faults>().is_err());
        assert!("preempt:x".parse::<Faults>().unwrap_err().to_string().contains("preempt:x"));
        assert!("".parse::<Faults>().is_err());
    }
}
