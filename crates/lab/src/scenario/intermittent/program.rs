//! What a replay line calls one run.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

use super::{MOST_DELAY_MS, SEQUENCES};
use crate::kernel::Scan;
use crate::scenario::Variant;

/// What a replay line calls one run of this scenario: all that the run depends on beside what the
/// line says itself. What is as usual is not said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// The configuration's name.
    pub(crate) config: String,
    pub(crate) delay_ms: u64,
    /// Says also which kernel is installed: see [`Variant::kernel`].
    pub(crate) variant: Variant,
    /// What makes the kernel look for old references.
    pub(crate) scan: Scan,
    /// How often each thread runs and is counted.
    pub(crate) sequences: u32,
    /// An uncertain cost that is moved, and to how many percent.
    pub(crate) cost: Option<(String, u64)>,
}

/// More sequences, or more percent of a cost, are a slip of the pen.
const MOST: u64 = 1000;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Program { config, delay_ms, variant, scan, sequences, cost } = self;
        write!(f, "intermittent config={config} delay={delay_ms} variant={variant}")?;
        if *scan != Scan::default() {
            write!(f, " scan={scan}")?;
        }
        if *sequences != SEQUENCES {
            write!(f, " sequences={sequences}")?;
        }
        match cost {
            Some((name, percent)) => write!(f, " cost={name}:{percent}"),
            None => Ok(()),
        }
    }
}

/// A replay line's program is none of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the program {program:?} cannot be replayed here; `intermittent config=NAME delay=MS \
     variant=NAME`, optionally with `scan=NAME`, `sequences=N` and `cost=NAME:PERCENT`, can"
)]
pub(crate) struct ParseProgramError {
    program: String,
}

impl FromStr for Program {
    type Err = ParseProgramError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseProgramError { program: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Program> {
    let mut words = text.split_whitespace();
    if words.next()? != "intermittent" {
        return None;
    }
    let mut value = |key| words.next()?.strip_prefix(key)?.strip_prefix('=');
    let mut program = Program {
        config: value("config")?.to_owned(),
        delay_ms: value("delay")?.parse().ok().filter(|&delay| delay <= MOST_DELAY_MS)?,
        variant: <Variant as ValueEnum>::from_str(value("variant")?, false).ok()?,
        scan: Scan::default(),
        sequences: SEQUENCES,
        cost: None,
    };
    let number = |text: &str| text.parse().ok().filter(|&number| number <= MOST);
    for word in words {
        match word.split_once('=')? {
            ("scan", name) => program.scan = <Scan as ValueEnum>::from_str(name, false).ok()?,
            ("sequences", count) => {
                program.sequences = number(count).filter(|&count| count > 0)? as u32;
            }
            ("cost", cost) => {
                let (name, percent) = cost.split_once(':')?;
                program.cost = Some((name.to_owned(), number(percent)?));
            }
            _ => return None,
        }
    }
    Some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_back_and_others_are_refused() {
        let plain = "intermittent config=24-core/24-L3 delay=10 variant=recent";
        for more in ["", " scan=tick", " sequences=2", " cost=same_cache:130"] {
            let line = format!("{plain}{more}");
            assert_eq!(line.parse::<Program>().unwrap().to_string(), line);
        }
        let line = format!("{plain} scan=tick sequences=2 cost=same_cache:130");
        let program: Program = line.parse().unwrap();
        assert_eq!((program.scan, program.sequences), (Scan::Tick, 2));
        assert_eq!(program.to_string(), line);
        for text in [
            "",
            "laws::counter",
            "intermittent",
            "intermittent config=c delay=x variant=cpu-id",
            "intermittent config=c delay=99999 variant=cpu-id",
            "intermittent config=c delay=1 variant=none",
            "intermittent config=c delay=1 variant=cpu-id cost=a:1001",
            "intermittent config=c delay=1 variant=cpu-id cost=a",
            "intermittent config=c delay=1 variant=cpu-id scan=often",
            "intermittent config=c delay=1 variant=cpu-id sequences=0",
            "intermittent config=c delay=1 variant=cpu-id cost=a:1 more",
            "intermittent config=c delay=1 variant=cpu-id speed=1",
        ] {
            assert!(text.parse::<Program>().is_err(), "{text:?}");
        }
    }
}
