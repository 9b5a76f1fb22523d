//! What a replay line calls one run.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

use super::{MOST_DELAY_MS, SEQUENCES};
use crate::scenario::{Param, Params, Variant};

/// What a replay line calls one run of this scenario: all that the run depends on besides what the
/// line says itself. Defaults are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IntermittentProgram {
    /// The configuration's name.
    pub(crate) config: String,
    pub(crate) delay_ms: u64,
    pub(crate) variant: Variant,
    /// How often each thread runs and is counted.
    pub(crate) sequences: u32,
}

/// More sequences are taken for a typing mistake.
const MOST_SEQUENCES: u32 = 1000;

impl fmt::Display for IntermittentProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IntermittentProgram { config, delay_ms, variant, sequences } = self;
        write!(f, "intermittent config={config} delay={delay_ms} variant={variant}")?;
        if *sequences != SEQUENCES {
            write!(f, " sequences={sequences}")?;
        }
        Ok(())
    }
}

impl crate::scenario::Program for IntermittentProgram {
    const FORM: &str =
        "`intermittent config=NAME delay=MS variant=NAME`, optionally with `sequences=N`";

    fn parse(text: &str) -> Option<IntermittentProgram> {
        text.parse().ok()
    }

    fn config(&self) -> &str {
        &self.config
    }

    fn variant(&self) -> Variant {
        self.variant
    }

    fn params(&self) -> Params {
        Params::from([("delay_ms", Param::Number(self.delay_ms))])
    }
}

/// The program is not one of this scenario, or not written in its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParseProgramError;

impl FromStr for IntermittentProgram {
    type Err = ParseProgramError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or(ParseProgramError)
    }
}

fn parse(text: &str) -> Option<IntermittentProgram> {
    let mut words = text.split_whitespace();
    if words.next()? != "intermittent" {
        return None;
    }
    let mut value = |key| words.next()?.strip_prefix(key)?.strip_prefix('=');
    let program = IntermittentProgram {
        config: value("config")?.to_owned(),
        delay_ms: value("delay")?.parse().ok().filter(|&delay| delay <= MOST_DELAY_MS)?,
        variant: <Variant as ValueEnum>::from_str(value("variant")?, false).ok()?,
        sequences: SEQUENCES,
    };
    let Some(more) = words.next() else { return Some(program) };
    let sequences = more.strip_prefix("sequences=")?.parse().ok()?;
    let sensible = (1..=MOST_SEQUENCES).contains(&sequences) && words.next().is_none();
    sensible.then_some(IntermittentProgram { sequences, ..program })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_back_and_others_are_refused() {
        let plain = "intermittent config=24-core/24-L3 delay=10 variant=recent";
        for more in ["", " sequences=2"] {
            let line = format!("{plain}{more}");
            assert_eq!(line.parse::<IntermittentProgram>().unwrap().to_string(), line);
        }
        for text in [
            "",
            "laws::counter",
            "intermittent",
            "intermittent config=c delay=x variant=cpu-id",
            "intermittent config=c delay=99999 variant=cpu-id",
            "intermittent config=c delay=1 variant=nothing",
            "intermittent config=c delay=1 variant=cpu-id sequences=0",
            "intermittent config=c delay=1 variant=cpu-id sequences=1001",
            "intermittent config=c delay=1 variant=cpu-id sequences=2 more",
            "intermittent config=c delay=1 variant=cpu-id speed=1",
        ] {
            assert!(text.parse::<IntermittentProgram>().is_err(), "{text:?}");
        }
    }
}
