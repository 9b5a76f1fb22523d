//! The origin of a result: the program that made it and, natively, the machine and the day.

use std::time::{SystemTime, UNIX_EPOCH};

use coreline_topology::CpuSet;
use coreline_world::native::probe;
use serde::Serialize;

use crate::host::Host;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Program {
    version: &'static str,
    /// Of its source; null if it was built from neither a checkout nor a package.
    commit: Option<&'static str>,
}

impl Program {
    pub(crate) const THIS: Program =
        Program { version: env!("CARGO_PKG_VERSION"), commit: option_env!("CORELINE_COMMIT") };
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Here {
    processor: String,
    /// Its release.
    kernel: String,
    /// Those that the process may use, as a CPU list; null if that is not known.
    cpus: Option<String>,
    /// In UTC: `2026-11-23`.
    day: String,
}

impl Here {
    pub(crate) fn now() -> Here {
        let probe = probe();
        let cpus = probe.allowed.ok().map(|cpus| cpus.to_string());
        Here { processor: processor(), kernel: probe.kernel, cpus, day: today() }
    }
}

/// The processor, as the kernel names it.
pub(crate) fn processor() -> String {
    let named = Host::here(&CpuSet::default()).processor;
    named.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// In UTC: `2026-11-23`.
pub(crate) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    day(since.as_secs() / (24 * 60 * 60))
}

/// The day that is this many days after 1 January 1970, in UTC: `2026-11-23`.
fn day(mut days: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (20_780, "2026-11-23"),
            (20_818, "2026-12-31"),
            (20_819, "2027-01-01"),
        ] {
            assert_eq!(day(days), expected);
        }
    }
}
