//! What a replay line calls one run.

use std::fmt;

use crate::scenario::{self, Keys, Param, Params, Scenario, Variant};

/// All that a run depends on besides what the replay line says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShootdownProgram {
    /// The configuration's name.
    pub(crate) config: String,
    pub(crate) present: u64,
    pub(crate) variant: Variant,
    pub(crate) updates: u32,
}

/// The CPUs of the largest simulated machine.
pub(crate) const MOST_PRESENT: u64 = 4096;

const MOST_UPDATES: u64 = 10_000;

impl fmt::Display for ShootdownProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShootdownProgram { config, present, variant, updates } = self;
        write!(f, "shootdown config={config} present={present} variant={variant} updates={updates}")
    }
}

impl scenario::Program for ShootdownProgram {
    const FORM: &str = "`shootdown config=NAME present=N variant=NAME updates=N`";

    fn parse(text: &str) -> Option<ShootdownProgram> {
        let mut keys = Keys::of(Scenario::Shootdown, text)?;
        let program = ShootdownProgram {
            config: keys.text("config")?.to_owned(),
            present: keys.number("present", MOST_PRESENT).filter(|&present| present > 0)?,
            variant: keys.name("variant")?,
            updates: keys.number("updates", MOST_UPDATES).filter(|&updates| updates > 0)? as u32,
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
        Params::from([("present", Param::Number(self.present))])
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::Program as _;

    use super::*;

    #[test]
    fn a_program_reads_back_and_others_are_refused() {
        let line = "shootdown config=120-thread/4-L3 present=8 variant=eager updates=50";
        assert_eq!(ShootdownProgram::parse(line).unwrap().to_string(), line);
        for (from, to) in [
            ("shootdown", "switchstorm"),
            ("present=8", "present=0"),
            ("present=8", "present=4097"),
            ("updates=50", "updates=0"),
            ("updates=50", ""),
            ("updates=50", "updates=50 more"),
        ] {
            assert_eq!(ShootdownProgram::parse(&line.replace(from, to)), None, "{from} {to}");
        }
    }
}
