//! What a replay line calls one run.

use std::fmt;

use crate::scenario::{self, Keys, Param, Params, Scenario, Variant};

/// All that a run depends on besides what the replay line says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TenantsProgram {
    /// The configuration's name.
    pub(crate) config: String,
    pub(crate) tenants: u64,
    /// Of each tenant.
    pub(crate) tasks: u64,
    pub(crate) variant: Variant,
}

/// What fits into a simulated machine's memory.
pub(crate) const MOST_TENANTS: u64 = 10_000;

/// More is taken for a typing mistake.
pub(crate) const MOST_TASKS: u64 = 64;

impl fmt::Display for TenantsProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TenantsProgram { config, tenants, tasks, variant } = self;
        write!(f, "tenants config={config} tenants={tenants} tasks={tasks} variant={variant}")
    }
}

impl scenario::Program for TenantsProgram {
    const FORM: &str = "`tenants config=NAME tenants=N tasks=N variant=NAME`";

    fn parse(text: &str) -> Option<TenantsProgram> {
        let mut keys = Keys::of(Scenario::Tenants, text)?;
        let program = TenantsProgram {
            config: keys.text("config")?.to_owned(),
            tenants: keys.number("tenants", MOST_TENANTS).filter(|&tenants| tenants > 0)?,
            tasks: keys.number("tasks", MOST_TASKS).filter(|&tasks| tasks > 0)?,
            variant: keys.name("variant")?,
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
            ("tenants", Param::Number(self.tenants)),
            ("tasks", Param::Number(self.tasks)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::Program as _;

    use super::*;

    #[test]
    fn a_program_reads_back_and_others_are_refused() {
        let line = "tenants config=384-thread/24-L3 tenants=1000 tasks=2 variant=domain";
        assert_eq!(TenantsProgram::parse(line).unwrap().to_string(), line);
        for (from, to) in [
            ("tenants config", "shootdown config"),
            ("tenants=1000", "tenants=0"),
            ("tenants=1000", "tenants=10001"),
            ("tasks=2", "tasks=0"),
            ("tasks=2", "tasks=65"),
            ("variant=domain", "variant=domains"),
            ("variant=domain", "variant=domain more"),
        ] {
            assert_eq!(TenantsProgram::parse(&line.replace(from, to)), None, "{from} {to}");
        }
    }
}
