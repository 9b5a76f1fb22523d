//! [`Param`]: a parameter of a scenario, as data.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The value of a parameter. Results and the files of published figures contain its serialised
/// form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number, in the parameter's unit.
    Number(u64),
    /// One of the parameter's names.
    Name(String),
    /// Two numbers, shown as two parameters.
    Pair(u64, u64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Name(name) => f.write_str(name),
            Value::Pair(one, other) => write!(f, "{one}x{other}"),
        }
    }
}

/// A value for each parameter, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values(BTreeMap<&'static str, Value>);

impl Values {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub(super) fn insert(&mut self, name: &'static str, value: Value) {
        self.0.insert(name, value);
    }

    /// The value of a parameter. The scenario declares all parameters that its program asks for.
    pub(super) fn value(&self, name: &str) -> &Value {
        self.get(name).unwrap_or_else(|| panic!("no parameter {name} is declared"))
    }

    /// Returns the number that a parameter has.
    ///
    /// # Panics
    ///
    /// Panics if the scenario declares no such parameter, or a parameter of another kind.
    pub fn number(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Number(number) => *number,
            other => panic!("{name} is {other}"),
        }
    }

    /// Returns the two numbers that a parameter has.
    ///
    /// # Panics
    ///
    /// The same panics as for [`number`](Values::number).
    pub fn pair(&self, name: &str) -> (u64, u64) {
        match self.value(name) {
            Value::Pair(one, other) => (*one, *other),
            other => panic!("{name} is {other}"),
        }
    }

    /// Returns the name or word that a parameter has.
    ///
    /// # Panics
    ///
    /// The same panics as for [`number`](Values::number).
    pub fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Value::Name(text) => text,
            other => panic!("{name} is {other}"),
        }
    }

    /// Returns whether a parameter has this name as its value.
    pub fn is(&self, name: &str, value: &str) -> bool {
        matches!(self.get(name), Some(Value::Name(name)) if name == value)
    }
}

/// The set of values that a parameter can have.
#[derive(Clone, Copy)]
pub enum Domain {
    /// A number between the lowest and the highest. A larger number counts as a typing mistake.
    Number(u64, u64),
    /// A number from 1 to the number of CPUs that take part. The field is the number of CPUs of the
    /// largest simulated machine. A default value that is too large is reduced to the number of
    /// CPUs that take part. `all` also means that number.
    Cpus(u64),
    /// A name from this list. Each name has its meaning, and the list is in the order of rows.
    Names(&'static [(&'static str, &'static str)]),
    /// A pair of numbers with these two names, each from 1 to the given maximum.
    Pair(&'static str, &'static str, u64),
    /// A word in a form of the scenario, or one of its names.
    Words(&'static Words),
}

/// A form of values that are words without spaces, such as a short description of a load.
pub struct Words {
    /// The value's name in the help text.
    pub form: &'static str,
    /// The possible values, for the help text and for errors.
    pub about: &'static str,
    /// Words that have a name of their own, by name.
    pub names: &'static [(&'static str, &'static str)],
    /// A function that returns `None` if a text is not such a word or name.
    pub parse: fn(&str) -> Option<()>,
    /// A function that converts the text of a TOML file into a word.
    pub of_toml: fn(&str) -> Result<String, String>,
}

/// The purpose of a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// An option on the command line, which is also a part of the replay line and a column of rows.
    Option,
    /// An option of the simulated kernel. The kernel's name contains the value, and the program in
    /// the replay line does not.
    Kernel,
    /// A number of repetitions. It occurs only in the program of the replay line, after the
    /// variant.
    Effort,
    /// A number of repetitions, which is left out of the replay line if it has the default value.
    UsualEffort,
}

/// A parameter of a scenario.
#[derive(Clone, Copy)]
pub struct Param {
    /// The name of the parameter in options and replay lines.
    pub name: &'static str,
    /// The unit: `ms`, `us`, `ns`, or empty. In rows, it is a part of the parameter's name.
    pub unit: &'static str,
    /// The description, for the help text.
    about: &'static str,
    /// The values that the parameter can have.
    pub domain: Domain,
    /// The purpose of the parameter.
    pub role: Role,
    /// The values that run by default.
    pub usual: &'static [&'static str],
    /// The values that the quick form runs by default.
    pub quick: &'static [&'static str],
    /// The function for values that depend on more than the form, if there is one.
    depends: fn(&Around<'_>) -> Vec<u64>,
}

/// The facts on which default values may depend.
pub struct Around<'a> {
    /// Whether the quick form runs.
    pub quick: bool,
    /// Whether the program runs on this machine.
    pub natively: bool,
    /// The number of CPUs that take part.
    pub cpus: usize,
    /// The values of the parameters that come before the one whose default is computed.
    pub values: &'a Values,
}

impl Around<'_> {
    /// Of these numbers of threads, and of all CPUs over each of `parts`, those for which there are
    /// CPUs. The quick form has `quick` and all CPUs.
    pub(crate) fn threads(&self, quick: &[u64], usual: &[u64], parts: &[u64]) -> Vec<u64> {
        let cpus = self.cpus as u64;
        let (few, parts) = if self.quick { (quick, &[1][..]) } else { (usual, parts) };
        let all = few.iter().copied().chain(parts.iter().map(|part| cpus / part));
        all.filter(|threads| (1..=cpus).contains(threads)).collect()
    }
}

impl Param {
    /// Creates an option, for which rows have a column.
    pub const fn new(name: &'static str, about: &'static str, domain: Domain) -> Param {
        let (unit, role) = ("", Role::Option);
        Param { name, unit, about, domain, role, usual: &[], quick: &[], depends: |_| Vec::new() }
    }

    /// Creates an option whose value is a number in this range.
    pub const fn number(name: &'static str, about: &'static str, to: [u64; 2]) -> Param {
        Param::new(name, about, Domain::Number(to[0], to[1]))
    }

    /// Creates a parameter for the number of repetitions, from 1 to `most`.
    pub const fn effort(name: &'static str, most: u64) -> Param {
        Param { role: Role::Effort, ..Param::number(name, "", [1, most]) }
    }

    /// Sets the default values.
    pub const fn usual(self, usual: &'static [&'static str]) -> Param {
        Param { usual, quick: usual, ..self }
    }

    /// Sets the default values of the quick form.
    pub const fn quick(self, quick: &'static [&'static str]) -> Param {
        Param { quick, ..self }
    }

    /// Sets the unit: `ms`, `us` or `ns`.
    pub const fn unit(self, unit: &'static str) -> Param {
        Param { unit, ..self }
    }

    /// Sets the purpose.
    pub const fn role(self, role: Role) -> Param {
        Param { role, ..self }
    }

    /// Sets a function that computes the default values, if they depend on more than the form. If
    /// the function returns no values, the defaults depend only on the form.
    pub const fn depends(self, depends: fn(&Around<'_>) -> Vec<u64>) -> Param {
        Param { depends, ..self }
    }

    /// Returns whether the user can choose the value on the command line.
    pub fn is_option(&self) -> bool {
        matches!(self.role, Role::Option | Role::Kernel)
    }

    /// Whether the program names it after the variant.
    pub(super) fn is_effort(&self) -> bool {
        matches!(self.role, Role::Effort | Role::UsualEffort)
    }

    /// Returns a description of the value's format: `MS`, `N`, `barrier|independent`.
    pub fn form(&self) -> String {
        match self.domain {
            Domain::Number(..) | Domain::Cpus(_) if self.unit.is_empty() => "N".to_owned(),
            Domain::Number(..) | Domain::Cpus(_) => self.unit.to_uppercase(),
            Domain::Names(names) => names.iter().map(|name| name.0).collect::<Vec<_>>().join("|"),
            Domain::Pair(one, other, _) => {
                format!("{}x{}", one.to_uppercase(), other.to_uppercase())
            }
            Domain::Words(words) => words.form.to_owned(),
        }
    }

    /// Returns the help text.
    pub fn help(&self) -> String {
        let about = match self.domain {
            Domain::Words(words) => format!("{}: {}", self.about, words.about),
            _ => self.about.to_owned(),
        };
        let usual = match self.usual {
            [] => return about,
            [one] => (*one).to_owned(),
            [some @ .., last] => format!("{} and {last}", some.join(", ")),
        };
        format!("{}; the default is {usual}; may be given more than once", about)
    }

    /// Returns the names that rows have for the parameter: two names if its values are pairs. The
    /// name contains the unit, as in `delay_ms`.
    pub fn row_names(&self) -> Vec<String> {
        match self.domain {
            Domain::Pair(one, other, _) => vec![one.to_owned(), other.to_owned()],
            _ if self.unit.is_empty() => vec![self.name.to_owned()],
            _ => vec![format!("{}_{}", self.name, self.unit)],
        }
    }

    /// The names that rows have for a value, and its parts.
    pub(super) fn rows(&self, value: &Value) -> Vec<(String, Value)> {
        let parts = match value {
            &Value::Pair(one, other) => vec![Value::Number(one), Value::Number(other)],
            value => vec![value.clone()],
        };
        self.row_names().into_iter().zip(parts).collect()
    }

    /// Returns the parameter's value in a row of a result, where it has the same name as in the
    /// replay line. Returns `None` if the row has no value, or if the value is out of range.
    pub fn of_row(&self, params: &BTreeMap<String, Value>) -> Option<Value> {
        let part = |name: &String| params.get(name).map(Value::to_string);
        let parts: Option<Vec<String>> = self.row_names().iter().map(part).collect();
        self.parse(&parts?.join("x"))
    }

    /// Parses a value. Returns `None` if the text is not a value, or if the value is out of range.
    pub fn parse(&self, text: &str) -> Option<Value> {
        let number = |text: &str, from, to| {
            let number: Option<u64> = text.parse().ok();
            number.filter(|number| (from..=to).contains(number))
        };
        match self.domain {
            Domain::Number(from, to) => number(text, from, to).map(Value::Number),
            Domain::Cpus(to) => number(text, 1, to).map(Value::Number),
            Domain::Names(names) => {
                let name = names.iter().find(|name| name.0 == text)?.0;
                Some(Value::Name(name.to_owned()))
            }
            Domain::Pair(_, _, to) => {
                let (one, other) = text.split_once('x')?;
                Some(Value::Pair(number(one, 1, to)?, number(other, 1, to)?))
            }
            Domain::Words(words) => (words.parse)(text).map(|()| Value::Name(text.to_owned())),
        }
    }

    /// Puts values into the order of rows, each once.
    pub(super) fn sort(&self, values: &mut Vec<Value>) {
        let place = |name: &str| match self.domain {
            Domain::Names(names) | Domain::Words(&Words { names, .. }) => {
                names.iter().position(|known| known.0 == name)
            }
            _ => None,
        };
        values.sort_by_cached_key(|value| match value {
            &Value::Number(number) => (number, 0),
            &Value::Pair(one, other) => (one, other),
            Value::Name(name) => (place(name).map_or(u64::MAX, |place| place as u64), 0),
        });
        values.dedup();
    }

    /// The values that run by default.
    pub(super) fn usual_values(&self, around: &Around<'_>) -> Vec<Value> {
        let depending = (self.depends)(around);
        if !depending.is_empty() {
            return depending.into_iter().map(Value::Number).collect();
        }
        let texts = if around.quick { self.quick } else { self.usual };
        let most = around.cpus as u64;
        let value = |text: &&str| match (self.domain, self.parse(text)) {
            (Domain::Cpus(_), Some(Value::Number(number))) => Some(Value::Number(number.min(most))),
            (Domain::Cpus(_), _) => Some(Value::Number(most)),
            (_, value) => value,
        };
        texts.iter().filter_map(value).collect()
    }

    /// The value that a program does not name, if there is one.
    pub(super) fn left_out(&self) -> Option<&'static str> {
        let usual = self.usual.first().copied();
        usual.filter(|_| self.role == Role::UsualEffort)
    }
}
