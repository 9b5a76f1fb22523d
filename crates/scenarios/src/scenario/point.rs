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

/// The settings of a run, other than its world, machine and seed. The text form, as in a replay
/// line, is the scenario's name, followed by `key=value` pairs in a fixed order.
#[derive(Clone)]
pub struct Point {
    /// The scenario.
    pub scenario: &'static Scenario,
    /// The configuration's name.
    pub config: String,
    /// The variant's name.
    pub variant: &'static str,
    values: Values,
}

/// The chosen values, by parameter.
pub type Chosen = BTreeMap<&'static str, Vec<Value>>;

/// The settings of one run: a point, the CPUs that take part, and the random seed.
#[derive(Clone)]
pub struct Setup {
    /// The point.
    pub point: Point,
    /// The CPUs that take part, in the order of the configuration.
    pub cpus: Vec<CpuId>,
    /// The random seed.
    pub seed: u64,
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
    /// Returns the duration that a parameter has, according to its unit.
    ///
    /// # Panics
    ///
    /// The same panics as for [`Values::number`].
    pub fn duration(&self, name: &str) -> Duration {
        let number = self.number(name);
        match self.scenario.param(name).unit {
            "ms" => Duration::from_millis(number),
            "us" => Duration::from_micros(number),
            _ => Duration::from_nanos(number),
        }
    }

    /// Returns the parameters by name, as rows show them. The name contains the unit, as in
    /// `delay_ms`.
    pub fn params(&self) -> BTreeMap<String, Value> {
        let shown = self.scenario.params.iter().filter(|param| param.is_option());
        let of = |param: &Param| Some(param.rows(self.get(param.name)?));
        shown.filter_map(of).flatten().collect()
    }

    /// Returns whether two points are equal, or differ only in their variant.
    pub fn is_beside(&self, other: &Point) -> bool {
        self.config == other.config && self.values == other.values
    }

    /// Returns the same point with another variant.
    pub fn of(&self, variant: &'static str) -> Point {
        Point { variant, ..self.clone() }
    }

    /// Returns the name of the kernel of the point's simulated machine, if it has one. The name
    /// consists of the variant's policy and the value of the kernel's parameter.
    pub fn kernel(&self) -> Option<String> {
        let param = self.scenario.params.iter().find(|param| param.role == Role::Kernel)?;
        let policy = self.scenario.variant(self.variant)?.policy?;
        Some(format!("{policy}:{}", self.get(param.name)?))
    }

    /// Parses the program of a replay line. Returns `None` if the line names another scenario, does
    /// not have the form of [`Scenario::form`], or has a value out of range.
    pub fn parse(scenario: &'static Scenario, text: &str) -> Option<Point> {
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
    /// Returns the form of the program in a replay line.
    pub fn form(&self) -> String {
        let mut form = format!("`{} config=NAME", self.name);
        let key = |param: &Param| format!(" {}={}", param.name, param.form());
        let of = |role| self.params.iter().filter(move |param| param.role == role).map(key);
        form.extend(of(Role::Option).chain([" variant=NAME".to_owned()]).chain(of(Role::Effort)));
        form.push('`');
        form.extend(of(Role::UsualEffort).map(|key| format!(", optionally with `{}`", key.trim())));
        form
    }

    /// Returns all points of a configuration, in the order of rows. Variants with the same values
    /// are adjacent.
    ///
    /// # Errors
    ///
    /// Returns the parameter and the chosen value if the value exceeds the configuration's number
    /// of CPUs.
    pub fn points(
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
