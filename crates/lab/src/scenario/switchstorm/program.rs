//! What a replay line calls one run.

use std::fmt;

use super::Wake;
use crate::scenario::{self, Keys, Param, Params, Scenario, Variant};

/// All that a run depends on besides what the replay line says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SwitchstormProgram {
    /// The configuration's name.
    pub(crate) config: String,
    pub(crate) wake: Wake,
    pub(crate) period_us: u64,
    pub(crate) path_ns: u64,
    /// 0: no flushes.
    pub(crate) flush_us: u64,
    pub(crate) variant: Variant,
    pub(crate) rounds: u32,
}

impl SwitchstormProgram {
    /// The default time of a switch without the policy's part: the cost `switch` of every machine
    /// file, which is from memory.
    pub(crate) const PATH_NS: u64 = 1500;
}

/// A second; more is taken for a typing mistake.
pub(crate) const MOST_US: u64 = 1_000_000;

/// A millisecond; more is taken for a typing mistake.
pub(crate) const MOST_PATH_NS: u64 = 1_000_000;

const MOST_ROUNDS: u64 = 100_000;

impl fmt::Display for SwitchstormProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SwitchstormProgram { config, wake, period_us, path_ns, flush_us, variant, rounds } =
            self;
        write!(
            f,
            "switchstorm config={config} wake={wake} period={period_us} path={path_ns} \
             flush={flush_us} variant={variant} rounds={rounds}"
        )
    }
}

impl scenario::Program for SwitchstormProgram {
    const FORM: &str = "`switchstorm config=NAME wake=barrier|independent period=US path=NS \
                        flush=US variant=NAME rounds=N`";

    fn parse(text: &str) -> Option<SwitchstormProgram> {
        let mut keys = Keys::of(Scenario::Switchstorm, text)?;
        let program = SwitchstormProgram {
            config: keys.text("config")?.to_owned(),
            wake: keys.name("wake")?,
            period_us: keys.number("period", MOST_US).filter(|&period| period > 0)?,
            path_ns: keys.number("path", MOST_PATH_NS)?,
            flush_us: keys.number("flush", MOST_US)?,
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
            ("wake", Param::Name(self.wake.to_string())),
            ("period_us", Param::Number(self.period_us)),
            ("path_ns", Param::Number(self.path_ns)),
            ("flush_us", Param::Number(self.flush_us)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::Program as _;

    use super::*;

    #[test]
    fn a_program_reads_back_and_others_are_refused() {
        let line = "switchstorm config=120-thread/4-L3 wake=barrier period=25 path=1500 flush=0 \
                    variant=always-set rounds=200";
        assert_eq!(SwitchstormProgram::parse(line).unwrap().to_string(), line);
        for (from, to) in [
            ("switchstorm", "intermittent"),
            ("wake=barrier", "wake=never"),
            ("period=25", "period=0"),
            ("path=1500", "path=1000001"),
            ("flush=0 ", ""),
            ("rounds=200", "rounds=0"),
            ("rounds=200", "rounds=200 more"),
        ] {
            assert_eq!(SwitchstormProgram::parse(&line.replace(from, to)), None, "{from} {to}");
        }
    }
}
