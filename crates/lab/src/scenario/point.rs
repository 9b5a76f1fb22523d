//! [`Point`]: a scenario with a value for all that it depends on; what a replay line calls a
//! program.

use core::ops::Deref;
use core::time::Duration;
use std::collections::BTreeMap;
use std::fmt;

use coreline_topology::CpuId;

use super::Scenario;
use super::param::{Around, Domain, Param, Role, Value, Values};
use crate::config::Config;

/// All that a run depends on besides its world, machine and seed. Displays as it is parsed: the
/// scenario's name, then `key=value` in a fixed order.
#[derive(Clone)]
pub(crate) struct Point {
    pub(crate) scenario: &'static Scenario,
    /// The configuration's name.
    pub(crate) config: String,
    pub(crate) variant: &'static str,
    values: Values,
}

/// Values that were chosen, by parameter.
pub(crate) type Chosen = BTreeMap<&'static str, Vec<Value>>;

/// A point, and the rest of what one run of a program depends on.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) point: Point,
    pub(crate) cpus: Vec<CpuId>,
    /// Seeds all that is drawn.
    pub(crate) seed: u64,
}

impl Deref for Setup {
    type Target = Point;

    fn deref(&self) -> &Point {
        &self.point
    }
}

impl Deref for Point {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.values
    }
}

impl Point {
    /// By the parameter's unit.
    pub(crate) fn duration(&self, name: &str) -> Duration {
        let number = self.number(name);
        match self.scenario.param(name).unit {
            "ms" => Duration::from_millis(number),
            "us" => Duration::from_micros(number),
            _ => Duration::from_nanos(number),
        }
    }

    /// What rows say of the parameters, by name, with the unit in it: `delay_ms`.
    pub(crate) fn params(&self) -> BTreeMap<String, Value> {
        let shown = self.scenario.params.iter().filter(|param| param.is_option());
        let of = |param: &Param| Some(param.rows(self.get(param.name)?));
        shown.filter_map(of).flatten().collect()
    }

    /// Whether the two differ in their variant at most.
    pub(crate) fn is_beside(&self, other: &Point) -> bool {
        self.config == other.config && self.values == other.values
    }

    /// The same of another variant.
    pub(crate) fn of(&self, variant: &'static str) -> Point {
        Point { variant, ..self.clone() }
    }

    /// The name of the kernel that its simulated machine has, if it has one: the variant's policy,
    /// and the value of the kernel's parameter.
    pub(crate) fn kernel(&self) -> Option<String> {
        let param = self.scenario.params.iter().find(|param| param.role == Role::Kernel)?;
        let policy = self.scenario.variant(self.variant)?.policy?;
        Some(format!("{policy}:{}", self.get(param.name)?))
    }

    /// Reads the program of a replay line. `None` if it names another scenario, is not written as
    /// [`Scenario::form`] says, or has a value out of range.
    pub(crate) fn parse(scenario: &'static Scenario, text: &str) -> Option<Point> {
        let mut words = text.split_whitespace().peekable();
        (words.next()? == scenario.name).then_some(())?;
        let mut value = |key: &str| {
            let value = words.peek()?.strip_prefix(key)?.strip_prefix('=')?;
            words.next();
            Some(value)
        };
        let config = value("config")?.to_owned();
        let mut values = Values::default();
        for param in scenario.params.iter().filter(|param| param.role == Role::Option) {
            values.insert(param.name, param.parse(value(param.name)?)?);
        }
        let variant = scenario.variant(value("variant")?)?.name;
        for param in scenario.params.iter().filter(|param| param.is_effort()) {
            let text = value(param.name).or_else(|| param.left_out())?;
            values.insert(param.name, param.parse(text)?);
        }
        words.next().is_none().then_some(Point { scenario, config, variant, values })
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { scenario, config, variant, values } = self;
        write!(f, "{} config={config}", scenario.name)?;
        for param in scenario.params.iter().filter(|param| param.role == Role::Option) {
            write!(f, " {}={}", param.name, self.value(param.name))?;
        }
        write!(f, " variant={variant}")?;
        for param in scenario.params.iter().filter(|param| param.is_effort()) {
            match values.get(param.name) {
                Some(value) if param.left_out() != Some(&*value.to_string()) => {
                    write!(f, " {}={value}", param.name)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Scenario {
    /// How the program of a replay line is written.
    pub(crate) fn form(&self) -> String {
        let mut form = format!("`{} config=NAME", self.name);
        let key = |param: &Param| format!(" {}={}", param.name, param.form());
        let of = |role| self.params.iter().filter(move |param| param.role == role).map(key);
        form.extend(of(Role::Option).chain([" variant=NAME".to_owned()]).chain(of(Role::Effort)));
        form.push('`');
        form.extend(of(Role::UsualEffort).map(|key| format!(", optionally with `{}`", key.trim())));
        form
    }

    /// All points of a configuration, in the order of rows: variants of the same values follow each
    /// other.
    ///
    /// # Errors
    ///
    /// The parameter, and the value that was chosen, if that is more than the configuration's CPUs.
    pub(crate) fn points(
        &'static self,
        config: &Config,
        variants: &[&'static str],
        chosen: &Chosen,
        (quick, natively): (bool, bool),
    ) -> Result<Vec<Point>, (&'static str, u64)> {
        let cpus = config.cpus.len();
        let config = config.name.clone();
        let mut points =
            vec![Point { scenario: self, config, variant: "", values: Values::default() }];
        for param in self.params.iter().filter(|it| !(natively && it.role == Role::Kernel)) {
            let mut next = Vec::new();
            for point in points {
                let around = Around { quick, natively, cpus, values: &point.values };
                let mut values = match chosen.get(param.name) {
                    Some(values) => values.clone(),
                    None => param.usual_values(&around),
                };
                param.sort(&mut values);
                if let (Domain::Cpus(_), Some(&Value::Number(asked))) =
                    (param.domain, values.last())
                    && asked > cpus as u64
                {
                    return Err((param.name, asked));
                }
                for value in values {
                    let mut point = point.clone();
                    point.values.insert(param.name, value);
                    next.push(point);
                }
            }
            points = next;
        }
        let each = |point: Point| variants.iter().map(move |variant| point.of(variant));
        Ok(points.into_iter().flat_map(each).collect())
    }
}

#[cfg(test)]
impl Setup {
    /// A run of a program on these CPUs, with seed 1.
    pub(crate) fn new(program: &str, cpus: impl IntoIterator<Item = u32>) -> Setup {
        let point = super::ALL.iter().find_map(|scenario| Point::parse(scenario, program));
        let point = point.unwrap_or_else(|| panic!("{program} is no program"));
        Setup { point, cpus: cpus.into_iter().map(CpuId::new).collect(), seed: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ALL;
    use super::*;

    fn parse(text: &str) -> Option<Point> {
        ALL.iter().find_map(|scenario| Point::parse(scenario, text))
    }

    const PROGRAMS: [&str; 7] = [
        "intermittent config=24-core/24-L3 delay=10 turns=timed variant=recent",
        "intermittent config=24-core/24-L3 delay=10 turns=timed variant=recent sequences=2",
        "switchstorm config=120-thread/4-L3 wake=barrier period=25 path=1500 flush=0 \
         variant=always-set rounds=200",
        "shootdown config=120-thread/4-L3 present=8 variant=eager updates=50",
        "threadstorm config=384-thread/24-L3 size=8x32 place=pinned rest=30 path=1500 \
         variant=owned rounds=10",
        "tenants config=384-thread/24-L3 tenants=1000 tasks=2 variant=domain",
        "lockscale config=96-core/4-L3 threads=96 place=spread section=100 outside=500 \
         variant=near window=4000",
    ];

    #[test]
    fn a_program_reads_back_and_others_are_refused() {
        for program in PROGRAMS {
            assert_eq!(parse(program).unwrap().to_string(), program);
            for wrong in ["sing config=x", "", program.split_once(' ').unwrap().0] {
                assert!(parse(wrong).is_none(), "{wrong}");
            }
            assert!(parse(&format!("{program} more")).is_none() && parse(&program[1..]).is_none());
        }
        for (from, to) in [
            ("config=24-core/24-L3 ", ""),
            ("delay=10", "delay=x"),
            ("delay=10", "delay=10001"),
            ("=recent", "=nothing"),
            ("sequences=2", "sequences=0"),
            ("sequences=2", "sequences=1001"),
            ("sequences=2", "speed=1"),
            ("wake=barrier", "wake=never"),
            ("period=25", "period=0"),
            ("path=1500", "path=1000001"),
            ("flush=0 ", ""),
            ("rounds=200", "rounds=0"),
            (" rounds=10", ""),
            ("present=8", "present=0"),
            ("present=8", "present=4097"),
            ("variant=eager", "variant=recent"),
            ("size=8x32", "size=8"),
            ("size=8x32", "size=8x0"),
            ("size=8x32", "size=257x8"),
            ("place=pinned", "place=here"),
            ("rest=30", "rest=100001"),
            ("tenants=1000", "tenants=10001"),
            ("tasks=2", "tasks=65"),
            ("place=spread", "place=pinned"),
            ("window=4000", "window=0"),
        ] {
            let program = PROGRAMS.iter().rev().find(|program| program.contains(from)).unwrap();
            assert!(parse(&program.replace(from, to)).is_none(), "{program}: {from} {to}");
        }
    }

    #[test]
    fn a_form_says_how_a_program_is_written() {
        let forms = ALL.map(Scenario::form);
        assert_eq!(
            forms[..2],
            [
                "`intermittent config=NAME delay=MS turns=timed|called variant=NAME`, optionally \
                 with `sequences=N`",
                "`switchstorm config=NAME wake=barrier|independent period=US path=NS flush=US \
                 variant=NAME rounds=N`",
            ]
        );
        assert!(forms[3].contains(" size=POOLSxTHREADS "), "{}", forms[3]);
    }
}
