//! Whether blocks speak of scenarios, options, variants and figures that there are.

use std::collections::BTreeMap;

use super::spec::Spec;
use crate::error::Error;
use crate::workspace;

/// In place of a scenario, of what all have.
const ALL: &str = "-";

/// The names that there are: those of a kind of a scenario, in order.
pub(super) struct Names(BTreeMap<(String, String), Vec<String>>);

/// Options of every scenario, and whether a value follows. `--json` is ours to add, and with
/// `--out` nothing would come back.
const OPTIONS: &[(&str, bool)] = &[
    ("--world", true),
    ("--variant", true),
    ("--config", true),
    ("--seed", true),
    ("--band", false),
    ("--arbitration", true),
    ("--overlap", true),
    ("--quick", false),
];

impl Names {
    /// Asks the scenarios.
    pub(super) fn read() -> Result<Names, Error> {
        // Built as the tests are, it is there already where these ran.
        let line = "build --quiet --workspace --example names";
        workspace::run(&mut workspace::cargo(&line.split(' ').collect::<Vec<_>>()))?;
        let program = workspace::target_folder()?.join("debug").join("examples").join("names");
        let text = workspace::output(&mut workspace::command(program, &[]))?;
        Ok(Names::new(&String::from_utf8_lossy(&text)))
    }

    /// Of lines of a scenario, a kind and a name, with tabs between.
    fn new(text: &str) -> Names {
        let mut names = BTreeMap::<_, Vec<String>>::new();
        for line in text.lines() {
            if let [scenario, kind, name] = line.split('\t').collect::<Vec<_>>()[..] {
                let of = (scenario.to_owned(), kind.to_owned());
                names.entry(of).or_default().push(name.to_owned());
            }
        }
        Names(names)
    }

    fn of(&self, scenario: &str, kind: &str) -> &[String] {
        self.0.get(&(scenario.to_owned(), kind.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Checks all names of a block; or says which is wrong.
    pub(super) fn check(&self, spec: &Spec) -> Result<(), String> {
        let scenario = spec.scenario();
        if self.of(scenario, "metric").is_empty() {
            let all =
                self.0.keys().filter(|(_, kind)| kind == "metric").map(|(name, _)| name.as_str());
            return Err(format!("there is no scenario {scenario}; there are {}", list(all)));
        }
        for run in spec.runs() {
            self.check_command(scenario, &run.command[3..])?;
        }
        let is_given = |key: &str| spec.open_keys().any(|open| open == key);
        for key in spec.axes().map(|item| item.name.as_str()).filter(|key| !is_given(key)) {
            self.check_key(scenario, key)?;
        }
        for (key, values) in spec.only.iter().filter(|(key, _)| !is_given(key)) {
            self.check_key(scenario, key)?;
            for value in values {
                self.check_value(scenario, key, &value.name)?;
                if key != "metric" && value.divisor != 1.0 {
                    return Err(format!("only figures can be divided, and `{key}` is none"));
                }
            }
        }
        Ok(())
    }

    fn check_command(&self, scenario: &str, words: &[String]) -> Result<(), String> {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let known = OPTIONS.iter().find(|(option, _)| option == word);
            let own = word.strip_prefix("--").filter(|_| known.is_none());
            let own = own.map(|name| self.known(scenario, "option", name)).transpose()?;
            let needs_value = match (known, own) {
                (Some((_, needs_value)), _) => *needs_value,
                (None, Some(_)) => true,
                (None, None) => return Err(format!("{word} is not an option of the command")),
            };
            if needs_value {
                let value = words.next().ok_or_else(|| format!("{word} has no value"))?;
                match &**word {
                    "--world" => self.known(ALL, "world", value)?,
                    "--variant" => self.known(scenario, "variant", value)?,
                    other => self.check_value(scenario, &other[2..], value)?,
                }
            }
        }
        Ok(())
    }

    fn check_key(&self, scenario: &str, key: &str) -> Result<(), String> {
        match key {
            "config" | "variant" | "metric" => Ok(()),
            _ => self.known(scenario, "param", key).map_err(|message| {
                format!("{message}; beside them config, variant and metric are keys")
            }),
        }
    }

    /// Names alone can be checked: which numbers and configurations there are, a run knows.
    fn check_value(&self, scenario: &str, key: &str, value: &str) -> Result<(), String> {
        if self.of(scenario, key).is_empty() { Ok(()) } else { self.known(scenario, key, value) }
    }

    fn known(&self, scenario: &str, kind: &str, name: &str) -> Result<(), String> {
        let names = self.of(scenario, kind);
        if names.iter().any(|known| known == name) {
            return Ok(());
        }
        let whose = if scenario == ALL { String::new() } else { format!(" of {scenario}") };
        let all = list(names.iter().map(String::as_str));
        Err(format!("there is no {kind} {name}{whose}; there are {all}"))
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "-\tworld\tbig\nstorm\tvariant\tlazy\nstorm\tmetric\top_ns\n\
                         storm\toption\twake\nstorm\tparam\twake\nstorm\twake\tbarrier\n\
                         storm\toption\tperiod\nstorm\tparam\tperiod_us\n";

    #[test]
    fn a_block_speaks_of_what_there_is() {
        let checked = |command: &str, clauses: &str| {
            let text = format!("coreline run {command} | rows variant | {clauses}");
            Names::new(NAMES).check(&Spec::parse(&text).expect("it has a form"))
        };
        let fine = "columns period_us | metric op_ns / 1000 | wake barrier | config 8-core/1-L3";
        assert_eq!(checked("storm --world big --wake barrier --period 25 --band", fine), Ok(()));
        let worlds = "columns world | metric op_ns | world big";
        assert_eq!(checked("storm --world WORLD", worlds), Ok(()));
        let cases = [
            (
                "storm --world WORLD",
                "columns world | metric op_ns | world big, small",
                "world small",
            ),
            ("strom", fine, "no scenario strom; there are storm"),
            ("storm --world small", fine, "no world small; there are big"),
            ("storm --variant eager", fine, "no variant eager of storm; there are lazy"),
            ("storm --wake never", fine, "no wake never of storm; there are barrier"),
            ("storm --wake", fine, "--wake has no value"),
            ("storm --waek barrier", fine, "no option waek of storm; there are wake, period"),
            ("storm --json", fine, "no option json"),
            ("storm big", fine, "big is not an option"),
            ("storm", "columns period | metric op_ns", "no param period of storm"),
            ("storm", "columns wake | metric op", "no metric op of storm; there are op_ns"),
            ("storm", "columns wake | metric op_ns | variant eager", "no variant eager"),
            ("storm", "columns wake | metric op_ns | wake never", "no wake never"),
            ("storm", "columns wake | metric op_ns | variant lazy / 2", "only figures"),
        ];
        for (command, clauses, what) in cases {
            let message = checked(command, clauses).expect_err(command);
            assert!(message.contains(what), "{command}: {message}");
        }
    }
}
