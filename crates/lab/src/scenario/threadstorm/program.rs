//! What a replay line calls one run.

use std::fmt;
use std::str::FromStr;

use super::Placing;
use crate::scenario::{self, Keys, Param, Params, Scenario, Variant};

/// How many pools there are, and how many threads each creates in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size {
    pub(crate) pools: u32,
    pub(crate) threads: u32,
}

/// More of either is taken for a typing mistake.
const MOST: u32 = 256;

/// A size that is none.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no size; it is POOLSxTHREADS, each from 1 to {MOST}, such as 8x8")]
pub(crate) struct ParseSizeError(String);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.pools, self.threads)
    }
}

impl FromStr for Size {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Size, ParseSizeError> {
        let number = |text: &str| text.parse().ok().filter(|number| (1..=MOST).contains(number));
        let size = text.split_once('x').and_then(|(pools, threads)| {
            Some(Size { pools: number(pools)?, threads: number(threads)? })
        });
        size.ok_or_else(|| ParseSizeError(text.to_owned()))
    }
}

/// All that a run depends on besides what the replay line says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ThreadstormProgram {
    /// The configuration's name.
    pub(crate) config: String,
    pub(crate) size: Size,
    pub(crate) place: Placing,
    pub(crate) rest_us: u64,
    pub(crate) path_ns: u64,
    pub(crate) variant: Variant,
    pub(crate) rounds: u32,
}

impl ThreadstormProgram {
    /// The default time to create and to end a thread: the cost `spawn` of every machine file, and
    /// half of that, both from memory.
    pub(crate) const REST_US: u64 = 30;

    /// The default time of a switch without IDs: the cost `switch` of every machine file, which is
    /// from memory.
    pub(crate) const PATH_NS: u64 = 1500;
}

/// A tenth of a second; more is taken for a typing mistake.
pub(crate) const MOST_REST_US: u64 = 100_000;

const MOST_PATH_NS: u64 = 1_000_000;

const MOST_ROUNDS: u64 = 100_000;

impl fmt::Display for ThreadstormProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ThreadstormProgram { config, size, place, rest_us, path_ns, variant, rounds } = self;
        write!(
            f,
            "threadstorm config={config} size={size} place={place} rest={rest_us} path={path_ns} \
             variant={variant} rounds={rounds}"
        )
    }
}

impl scenario::Program for ThreadstormProgram {
    const FORM: &str = "`threadstorm config=NAME size=POOLSxTHREADS place=roaming|pinned rest=US \
                        path=NS variant=NAME rounds=N`";

    fn parse(text: &str) -> Option<ThreadstormProgram> {
        let mut keys = Keys::of(Scenario::Threadstorm, text)?;
        let program = ThreadstormProgram {
            config: keys.text("config")?.to_owned(),
            size: keys.text("size")?.parse().ok()?,
            place: keys.name("place")?,
            rest_us: keys.number("rest", MOST_REST_US)?,
            path_ns: keys.number("path", MOST_PATH_NS)?,
            variant: keys.name("variant")?,
            rounds: keys.number("rounds", MOST_ROUNDS).filter(|&rounds| rounds > 0)? as u32,
        };
        keys.end().map(|()| program)
    }

    fn config(&self) -> &str {
        &self.config
    }

    fn variant(&self) -> Variant {
        self.variant
    }

    fn params(&self) -> Params {
        Params::from([
            ("pools", Param::Number(u64::from(self.size.pools))),
            ("threads", Param::Number(u64::from(self.size.threads))),
            ("place", Param::Name(self.place.to_string())),
            ("rest_us", Param::Number(self.rest_us)),
            ("path_ns", Param::Number(self.path_ns)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::Program as _;

    use super::*;

    #[test]
    fn a_program_reads_back_and_others_are_refused() {
        let line = "threadstorm config=384-thread/24-L3 size=8x32 place=pinned rest=30 path=1500 \
                    variant=owned rounds=10";
        assert_eq!(ThreadstormProgram::parse(line).unwrap().to_string(), line);
        for (from, to) in [
            ("threadstorm", "switchstorm"),
            ("size=8x32", "size=8"),
            ("size=8x32", "size=8x0"),
            ("size=8x32", "size=257x8"),
            ("place=pinned", "place=here"),
            ("rest=30", "rest=100001"),
            ("path=1500 ", ""),
            ("rounds=10", "rounds=0"),
            ("rounds=10", "rounds=10 more"),
        ] {
            assert_eq!(ThreadstormProgram::parse(&line.replace(from, to)), None, "{from} {to}");
        }
    }
}
