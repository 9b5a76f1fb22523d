//! What a block says: a command, what the rows and columns of its table are, and which figures.
//!
//! ```text
//! coreline run lockscale --world kunpeng920-96c-4n
//!   | rows threads | columns variant
//!   | variant fifo, near | metric turns_per_s / 1000000 "millions of turns a second"
//! ```
//!
//! The command comes first. Then, in any order, clauses, with bars between:
//!
//! | clause | says |
//! |---|---|
//! | `rows KEY, ...` | what tells rows apart: `config`, `variant`, `metric` or a parameter |
//! | `columns KEY, ...` | the same of columns |
//! | `KEY VALUE, ...` | only these values, in this order |
//! | `without ranges` | no cell shows a range |
//! | `with published` | a cell shows the published figure, too |
//!
//! A word of the command in capitals stands for each value of the clause whose key is this word:
//! `--world WORLD` with `world big, small` makes one table of the results of two commands, whose
//! rows then have the key `world`.
//!
//! A key of `rows` and a value may be followed by what the table calls it, in double quotes; a
//! metric also by `/ NUMBER`, by which its figures are divided.

/// What a block says.
#[derive(Debug, PartialEq)]
pub(super) struct Spec {
    /// The words of the command.
    pub(super) command: Vec<String>,
    pub(super) rows: Vec<Item>,
    pub(super) columns: Vec<Item>,
    /// By key, the values that the table has.
    pub(super) only: Vec<(String, Vec<Item>)>,
    pub(super) has_ranges: bool,
    pub(super) has_published: bool,
}

/// One of the commands of a block.
#[derive(Debug, PartialEq)]
pub(super) struct Run {
    pub(super) command: Vec<String>,
    /// The values of the words in capitals, with their keys.
    pub(super) given: Vec<(String, String)>,
}

/// A key or a value.
#[derive(Debug, PartialEq)]
pub(super) struct Item {
    pub(super) name: String,
    /// What figures of this metric are divided by.
    pub(super) divisor: f64,
    /// What the table calls it.
    pub(super) label: Option<String>,
}

impl Spec {
    /// What it says, or what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Spec, String> {
        let mut clauses = text.split('|').map(str::trim);
        let command: Vec<_> = clauses.next().unwrap_or_default().split_whitespace().collect();
        let ["coreline", "run", _, ..] = command[..] else {
            return Err(format!(
                "a table begins with `coreline run SCENARIO`, and not with {:?}",
                command.join(" ")
            ));
        };
        let mut spec = Spec {
            command: command.into_iter().map(str::to_owned).collect(),
            rows: Vec::new(),
            columns: Vec::new(),
            only: Vec::new(),
            has_ranges: true,
            has_published: false,
        };
        for clause in clauses {
            spec.add(clause)?;
        }
        for (what, items) in [("rows", &spec.rows), ("columns", &spec.columns)] {
            if items.is_empty() {
                return Err(format!("no clause `{what} KEY` says what {what} are"));
            }
        }
        if let Some(key) =
            spec.rows.iter().find(|key| spec.columns.iter().any(|it| it.name == key.name))
        {
            return Err(format!("`{}` is a key of rows and of columns", key.name));
        }
        if let Some(key) = spec.open_keys().find(|key| spec.values(key).is_none()) {
            let word = key.to_uppercase();
            return Err(format!("no clause `{key} VALUE, ...` says what {word} stands for"));
        }
        let is_told = spec.axes().any(|key| key.name == "metric");
        match (is_told, spec.values("metric").map_or(0, <[Item]>::len)) {
            (false, 0 | 2..) => {
                Err("which figures? Say `metric NAME`, one where neither rows nor \
                                     columns are metrics"
                    .to_owned())
            }
            _ => Ok(spec),
        }
    }

    fn add(&mut self, clause: &str) -> Result<(), String> {
        let (word, rest) = clause.split_once(char::is_whitespace).unwrap_or((clause, ""));
        let rest = rest.trim();
        let again = || format!("`{word}` is said twice");
        match (word, rest) {
            ("without", "ranges") => self.has_ranges = false,
            ("with", "published") => self.has_published = true,
            ("without" | "with", _) => {
                return Err(format!("`{clause}` is neither `without ranges` nor `with published`"));
            }
            ("rows", _) if self.rows.is_empty() => self.rows = items(clause, rest)?,
            ("columns", _) if self.columns.is_empty() => self.columns = items(clause, rest)?,
            ("rows" | "columns", _) => return Err(again()),
            _ if self.values(word).is_some() => return Err(again()),
            _ => self.only.push((word.to_owned(), items(clause, rest)?)),
        }
        Ok(())
    }

    /// The scenario.
    pub(super) fn scenario(&self) -> &str {
        &self.command[2]
    }

    /// The keys whose values the command leaves open.
    pub(super) fn open_keys(&self) -> impl Iterator<Item = String> {
        let is_open = |word: &&String| word.chars().all(|c| c.is_ascii_uppercase());
        self.command.iter().filter(is_open).map(|word| word.to_lowercase())
    }

    /// The commands, in the order of the values.
    pub(super) fn runs(&self) -> Vec<Run> {
        let mut runs = vec![Run { command: self.command.clone(), given: Vec::new() }];
        for key in self.open_keys() {
            let open = key.to_uppercase();
            let values = self.values(&key).unwrap_or_default();
            let with = |run: &Run, value: &Item| {
                let name = |word: &String| if *word == open { &value.name } else { word }.clone();
                let mut given = run.given.clone();
                given.push((key.clone(), value.name.clone()));
                Run { command: run.command.iter().map(name).collect(), given }
            };
            runs = runs.iter().flat_map(|run| values.iter().map(|it| with(run, it))).collect();
        }
        runs
    }

    /// The keys of rows, then of columns.
    pub(super) fn axes(&self) -> impl Iterator<Item = &Item> {
        self.rows.iter().chain(&self.columns)
    }

    /// The values of a key that the table has; all there are if it does not say.
    pub(super) fn values(&self, key: &str) -> Option<&[Item]> {
        self.only.iter().find(|(known, _)| known == key).map(|(_, items)| &**items)
    }

    /// What the block says of this value of a key.
    pub(super) fn value(&self, key: &str, name: &str) -> Option<&Item> {
        self.values(key)?.iter().find(|item| item.name == name)
    }
}

/// The items of a clause.
fn items(clause: &str, rest: &str) -> Result<Vec<Item>, String> {
    pieces(rest).into_iter().map(|piece| item(clause, piece.trim())).collect()
}

/// What is between commas that are not quoted.
fn pieces(text: &str) -> Vec<&str> {
    let mut is_quoted = false;
    text.split(|c| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    })
    .collect()
}

fn item(clause: &str, text: &str) -> Result<Item, String> {
    let wrong = |what: &str| format!("in `{clause}`: {what}");
    let (text, label) = match text.split_once('"') {
        None => (text, None),
        Some((before, quoted)) => {
            let label = quoted.strip_suffix('"').filter(|label| !label.contains('"'));
            (before, Some(label.ok_or_else(|| wrong("a name in quotes is not closed"))?.to_owned()))
        }
    };
    let words: Vec<_> = text.split_whitespace().collect();
    let (name, divisor) = match words[..] {
        [name] => (name, 1.0),
        [name, "/", number] => {
            let number: Option<f64> = number.parse().ok();
            let number = number.filter(|number| number.is_finite() && *number > 0.0);
            (name, number.ok_or_else(|| wrong("what follows `/` is not a number above 0"))?)
        }
        [] => return Err(wrong("a name is missing")),
        _ => return Err(wrong("a comma is missing, or quotes")),
    };
    Ok(Item { name: name.to_owned(), divisor, label })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, divisor: f64, label: Option<&str>) -> Item {
        Item { name: name.to_owned(), divisor, label: label.map(str::to_owned) }
    }

    #[test]
    fn a_block_says_what_its_table_is() {
        let text = "coreline run lockscale --world big \n | rows threads \"CPUs, all\"\n \
                    | columns variant, metric | without ranges\n| variant near, fifo \"FIFO\"\n \
                    | metric wait_ns / 1000 \"wait, us\", share | config 24-core/24-L3";
        let spec = Spec::parse(text).expect("it is right");
        assert_eq!(spec.command, ["coreline", "run", "lockscale", "--world", "big"]);
        assert_eq!(spec.scenario(), "lockscale");
        assert_eq!(spec.rows, [item("threads", 1.0, Some("CPUs, all"))]);
        assert_eq!(spec.columns, [item("variant", 1.0, None), item("metric", 1.0, None)]);
        let variants = [item("near", 1.0, None), item("fifo", 1.0, Some("FIFO"))];
        assert_eq!(spec.values("variant"), Some(&variants[..]));
        assert_eq!(spec.value("metric", "wait_ns"), Some(&item("wait_ns", 1e3, Some("wait, us"))));
        assert_eq!(spec.value("metric", "turns"), None);
        assert_eq!(spec.values("config"), Some(&[item("24-core/24-L3", 1.0, None)][..]));
        assert_eq!(spec.values("place"), None);
        assert!(!spec.has_ranges && !spec.has_published);
        let spec = Spec::parse("coreline run x | rows a | columns metric | with published");
        let spec = spec.expect("metrics are columns, so it may have all");
        assert!(spec.has_ranges && spec.has_published);
    }

    #[test]
    fn words_in_capitals_stand_for_values() {
        let text = "coreline run x --world WORLD --band --seed SEED | rows world | columns metric \
                    | world big, small | seed 1, 2";
        let runs = Spec::parse(text).expect("it is right").runs();
        let commands: Vec<_> = runs.iter().map(|run| run.command[4..].join(" ")).collect();
        let expected = [
            "big --band --seed 1",
            "big --band --seed 2",
            "small --band --seed 1",
            "small --band --seed 2",
        ];
        assert_eq!(commands, expected);
        let given = [("world", "small"), ("seed", "1")];
        assert_eq!(runs[2].given, given.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let plain = Spec::parse("coreline run x | rows a | columns metric").expect("it is right");
        assert_eq!(plain.runs(), [Run { command: plain.command.clone(), given: vec![] }]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("", "begins with `coreline run"),
            ("coreline ledger | rows a | columns b", "begins with `coreline run"),
            ("coreline run x | columns b | metric c", "`rows KEY`"),
            ("coreline run x | rows a | metric c", "`columns KEY`"),
            ("coreline run x | rows a | columns b", "which figures"),
            ("coreline run x | rows a | columns b | metric c, d", "which figures"),
            ("coreline run x | rows a | columns a | metric c", "of rows and of columns"),
            ("coreline run x | rows a | rows b", "said twice"),
            ("coreline run x | metric a | metric b", "said twice"),
            ("coreline run x | without range", "neither"),
            ("coreline run x | rows a,", "name is missing"),
            ("coreline run x | rows a b", "comma is missing"),
            ("coreline run x | rows a \"b", "not closed"),
            ("coreline run x | metric a / b", "not a number"),
            ("coreline run x | metric a / 0", "not a number"),
            ("coreline run x --world WORLD | rows a | columns metric", "what WORLD stands for"),
        ];
        for (text, what) in cases {
            let message = Spec::parse(text).expect_err(text);
            assert!(message.contains(what), "{text}: {message}");
        }
    }
}
