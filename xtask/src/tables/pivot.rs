//! The table of a block, from the rows of a result (`coreline.run/2`, docs/json.md).

use std::collections::BTreeMap;

use serde_json::Value;

use super::spec::{Item, Spec};

/// From here on, numbers have commas.
const COMMAS_FROM: f64 = 10_000.0;

/// The least range that is shown, as a part of the figure.
const RANGE_MIN: f64 = 0.01;

/// The figures of a result.
pub(super) struct Rows {
    rows: Vec<Row>,
    /// What lies between the lowest and the highest, in words; `None` if there is no range.
    spans: Option<String>,
}

#[derive(Clone)]
struct Row {
    /// The value of each key.
    keys: BTreeMap<String, String>,
    unit: String,
    value: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    published: Option<f64>,
}

impl Rows {
    /// Of a result; `None` if it is none.
    pub(super) fn new(result: &Value) -> Option<Rows> {
        if result["schema"] != "coreline.run/2" {
            return None;
        }
        let spans = match result["spans"].as_str()? {
            "point" => None,
            spans => Some(format!("the {}", spans.replace('-', " "))),
        };
        let rows = result["rows"].as_array()?.iter().map(Row::new).collect::<Option<_>>()?;
        Some(Rows { rows, spans })
    }

    /// Those of several results, each with the values of keys that its own rows lack.
    pub(super) fn joined(parts: &[(&Rows, &[(String, String)])]) -> Rows {
        let with = |row: &Row, given: &[(String, String)]| {
            let mut row = row.clone();
            row.keys.extend(given.iter().cloned());
            row
        };
        let rows =
            parts.iter().flat_map(|(part, given)| part.rows.iter().map(|it| with(it, given)));
        Rows { rows: rows.collect(), spans: parts.iter().find_map(|(part, _)| part.spans.clone()) }
    }
}

impl Row {
    fn new(row: &Value) -> Option<Row> {
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let params = row["params"].as_object()?.iter();
        let mut keys: BTreeMap<_, _> = params.map(|(key, it)| (key.clone(), word(it))).collect();
        for key in ["config", "variant", "metric"] {
            keys.insert(key.to_owned(), row[key].as_str()?.to_owned());
        }
        Some(Row {
            keys,
            unit: row["unit"].as_str()?.to_owned(),
            value: row["value"].as_f64(),
            low: row["low"].as_f64(),
            high: row["high"].as_f64(),
            published: row["published"].as_f64(),
        })
    }

    fn key(&self, key: &str) -> &str {
        self.keys.get(key).map_or("", String::as_str)
    }

    /// All numbers that may be shown.
    fn numbers(&self) -> impl Iterator<Item = f64> {
        [self.value, self.low, self.high].into_iter().flatten()
    }
}

/// How the figures of a metric are shown.
struct Form {
    divisor: f64,
    /// As the result has them: no figure has more decimals than one of these that is as large,
    numbers: Vec<f64>,
    /// except for these: a ratio of 1 is 1.00.
    decimals_min: usize,
}

/// The table in Markdown; or why there is none.
pub(super) fn table(spec: &Spec, result: &Rows) -> Result<String, String> {
    let rows = chosen(spec, &result.rows)?;
    unambiguous(spec, &rows)?;
    let forms = forms(spec, &rows);
    let down = headings(spec, &spec.rows, &rows);
    let across = headings(spec, &spec.columns, &rows);
    let mut text = String::from("|");
    for key in &spec.rows {
        text += &format!(" {} |", key.label.as_deref().unwrap_or(&key.name));
    }
    across.iter().for_each(|heading| text += &format!(" {} |", heading.labels.join(": ")));
    text += &format!("\n|{}\n", "---|".repeat(spec.rows.len() + across.len()));
    let mut has_range = false;
    for heading in &down {
        text += "|";
        heading.labels.iter().for_each(|label| text += &format!(" {label} |"));
        for column in &across {
            let is_it =
                |row: &&&Row| heading.is_of(&spec.rows, row) && column.is_of(&spec.columns, row);
            let row = rows.iter().find(is_it);
            let (cell, ranges) = row.map_or_else(
                || (String::new(), false),
                |row| cell(spec, row, &forms[row.key("metric")]),
            );
            has_range |= ranges;
            text += &format!(" {cell} |");
        }
        text.push('\n');
    }
    text += &format!("\n{}\n", caption(spec, &rows, result.spans.as_deref().filter(|_| has_range)));
    Ok(text)
}

/// The rows of the values that the block names.
fn chosen<'a>(spec: &Spec, rows: &'a [Row]) -> Result<Vec<&'a Row>, String> {
    for (key, values) in &spec.only {
        for value in values {
            if !rows.iter().any(|row| row.key(key) == value.name) {
                return Err(format!("the result has no row whose {key} is {}", value.name));
            }
        }
    }
    let is_chosen = |row: &&Row| {
        spec.only.iter().all(|(key, values)| values.iter().any(|it| it.name == row.key(key)))
    };
    let chosen: Vec<_> = rows.iter().filter(is_chosen).collect();
    if chosen.is_empty() {
        return Err("no row of the result has all values that the block names".to_owned());
    }
    Ok(chosen)
}

/// That no two rows fall into one cell.
fn unambiguous(spec: &Spec, rows: &[&Row]) -> Result<(), String> {
    let mut cells = BTreeMap::<Vec<&str>, &Row>::new();
    for row in rows {
        let cell = spec.axes().map(|key| row.key(&key.name)).collect();
        if let Some(other) = cells.insert(cell, row) {
            let mut keys = row.keys.iter();
            let key = keys.find(|(key, value)| other.key(key) != **value);
            let key = key.map_or("seed", |(key, _)| key);
            return Err(format!(
                "two figures fall into one cell, as they differ in {key} alone; add it to rows or \
                 columns, or choose one value with a clause `{key} VALUE`"
            ));
        }
    }
    Ok(())
}

/// What stands at the side or at the head of the table.
struct Heading {
    names: Vec<String>,
    labels: Vec<String>,
}

impl Heading {
    fn is_of(&self, keys: &[Item], row: &Row) -> bool {
        self.names.iter().zip(keys).all(|(name, key)| row.key(&key.name) == name)
    }
}

/// The headings of these keys: values in the block's order, or in that of the result.
fn headings(spec: &Spec, keys: &[Item], rows: &[&Row]) -> Vec<Heading> {
    let place = |key: &Item, row: &Row| {
        let name = row.key(&key.name);
        let told =
            spec.values(&key.name).map(|values| values.iter().position(|it| it.name == name));
        told.flatten().or_else(|| rows.iter().position(|row| row.key(&key.name) == name))
    };
    let mut placed = BTreeMap::new();
    for row in rows {
        let places: Vec<_> = keys.iter().map(|key| place(key, row)).collect();
        placed.entry(places).or_insert_with(|| Heading {
            names: keys.iter().map(|key| row.key(&key.name).to_owned()).collect(),
            labels: keys.iter().map(|key| label(spec, &key.name, row)).collect(),
        });
    }
    placed.into_values().collect()
}

/// What the table calls the value that a row has of a key.
fn label(spec: &Spec, key: &str, row: &Row) -> String {
    let name = row.key(key);
    match (spec.value(key, name).and_then(|item| item.label.clone()), key) {
        (Some(label), _) => label,
        (None, "metric") => format!("`{name}`, {}", row.unit),
        (None, "variant") => format!("`{name}`"),
        (None, _) => name.to_owned(),
    }
}

/// By metric.
fn forms<'a>(spec: &Spec, rows: &[&'a Row]) -> BTreeMap<&'a str, Form> {
    let mut forms = BTreeMap::new();
    for row in rows {
        let metric = row.key("metric");
        let divisor = spec.value("metric", metric).map_or(1.0, |item| item.divisor);
        let decimals_min = if row.unit == "ratio" { 2 } else { 0 };
        let form = Form { divisor, numbers: Vec::new(), decimals_min };
        let form = forms.entry(metric).or_insert(form);
        form.numbers.extend(row.numbers());
    }
    forms
}

/// How many decimals a number is written with.
fn decimals(number: f64) -> usize {
    number.to_string().split_once('.').map_or(0, |(_, decimals)| decimals.len())
}

/// A cell, and whether it shows a range.
fn cell(spec: &Spec, row: &Row, form: &Form) -> (String, bool) {
    let Some(value) = row.value.map(|value| form.show(value)) else {
        return ("-".to_owned(), false);
    };
    let is_wide = |&(low, high): &(f64, f64)| high - low > RANGE_MIN * high.abs();
    let range = row.low.zip(row.high).filter(is_wide);
    let range = range.map(|(low, high)| [low, high].map(|it| form.show(it)));
    let range = range.filter(|[low, high]| spec.has_ranges && low != high);
    let mut text = value;
    if let Some([low, high]) = &range {
        text += &format!(" ({low} to {high})");
    }
    if let Some(published) = row.published.filter(|_| spec.has_published) {
        let form = Form { numbers: vec![published], decimals_min: 0, ..*form };
        text += &format!("; published {}", form.show(published));
    }
    (text, range.is_some())
}

impl Form {
    /// With about three digits.
    fn show(&self, number: f64) -> String {
        let figure = number / self.divisor;
        let size = figure.abs();
        let wanted = match size {
            _ if size >= 100.0 || size == 0.0 => 0,
            _ if size >= 10.0 => 1,
            _ if size >= 0.1 => 2,
            _ => 1 - size.log10().floor() as i32,
        };
        let decimals = (wanted as usize).min(self.decimals_max(number));
        let text = format!("{figure:.decimals$}");
        if size < COMMAS_FROM { text } else { with_commas(&text) }
    }

    fn decimals_max(&self, number: f64) -> usize {
        let least = 10f64.powf(number.abs().log10().floor());
        let as_large = self.numbers.iter().copied().filter(|it| it.abs() >= least);
        // What is divided by 1,000 has three decimals more.
        let more = self.divisor.log10().round().max(0.0) as usize;
        as_large.map(decimals).max().unwrap_or_default().max(self.decimals_min) + more
    }
}

/// `1234567` as `1,234,567`.
fn with_commas(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What the table shows, and what makes it.
fn caption(spec: &Spec, rows: &[&Row], spans: Option<&str>) -> String {
    let mut parts = Vec::new();
    if spec.axes().all(|key| key.name != "metric") {
        parts.push(format!("The figures are {}.", label(spec, "metric", rows[0])));
    }
    let range = |spans| format!("Parentheses give the range over {spans}, if it exceeds 1 %.");
    parts.extend(spans.map(range));
    let open: Vec<_> = spec.open_keys().collect();
    let each =
        if open.is_empty() { String::new() } else { format!(" for each {}", open.join(" and ")) };
    parts.push(format!("`{}` prints these figures{each}.", spec.command.join(" ")));
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A figure of 10, 20 or so, with its range and what was published.
    fn row(threads: u64, variant: &str, metric: &str, figures: [f64; 3]) -> Value {
        let [value, low, high] = figures;
        json!({
            "config": "all", "params": { "threads": threads, "place": "packed" },
            "variant": variant, "metric": metric, "value": value, "low": low, "high": high,
            "unit": if metric == "turns" { "1/s" } else { "ratio" },
            "published": if variant == "near" { json!(1.5) } else { json!(null) },
        })
    }

    fn result(rows: Vec<Value>) -> Rows {
        let result = json!({ "schema": "coreline.run/2", "spans": "request-shares", "rows": rows });
        Rows::new(&result).expect("it is a result")
    }

    fn small() -> Rows {
        result(vec![
            row(8, "fifo", "turns", [2e6, 1.5e6, 2e6]),
            // The range is less than 1 %.
            row(8, "near", "turns", [12_345_678.0, 12_300_000.0, 12_400_000.0]),
            row(1, "fifo", "turns", [3e6, 3e6, 3e6]),
            row(8, "near", "gain", [1.2, 1.1, 1.36]),
            row(8, "near", "share", [0.0123, 0.0123, 0.0123]),
        ])
    }

    fn made(clauses: &str) -> Result<String, String> {
        let spec = Spec::parse(&format!("coreline run x --world big | {clauses}"));
        table(&spec.expect("it can be read"), &small())
    }

    #[test]
    fn rows_become_cells() {
        let table = made("rows threads | columns variant | metric turns / 1000000").unwrap();
        let expected = "\
| threads | `fifo` | `near` |
|---|---|---|
| 8 | 2.00 (1.50 to 2.00) | 12.3 |
| 1 | 3.00 |  |

The figures are `turns`, 1/s. Parentheses give the range over the request shares, if it exceeds \
1 %. `coreline run x --world big` prints these figures.
";
        assert_eq!(table, expected);
    }

    #[test]
    fn a_block_chooses_names_and_orders() {
        let table = made(
            "rows variant \"lock\", threads | columns metric | with published | without ranges \
             | metric gain \"over FIFO\", turns | variant near \"sorted\", fifo | threads 1, 8",
        );
        let expected = "\
| lock | threads | over FIFO | `turns`, 1/s |
|---|---|---|---|
| sorted | 8 | 1.20; published 1.5 | 12,345,678; published 1.5 |
| `fifo` | 1 |  | 3,000,000 |
| `fifo` | 8 |  | 2,000,000 |

`coreline run x --world big` prints these figures.
";
        assert_eq!(table.unwrap(), expected);
        let table = made("rows threads | columns variant | metric gain").unwrap();
        assert!(table.contains("| 8 | 1.20 (1.10 to 1.36) |"), "{table}");
    }

    #[test]
    fn results_of_several_commands_make_one_table() {
        let text = "coreline run x --world WORLD | rows world, threads | columns variant \
                    | metric turns / 1000000 | world big \"large\", small";
        let spec = Spec::parse(text).expect("it can be read");
        let other = result(vec![row(8, "fifo", "turns", [1e6, 1e6, 1e6])]);
        let runs = spec.runs();
        let joined = Rows::joined(&[(&small(), &runs[0].given), (&other, &runs[1].given)]);
        let expected = "\
| world | threads | `fifo` | `near` |
|---|---|---|---|
| large | 8 | 2.00 (1.50 to 2.00) | 12.3 |
| large | 1 | 3.00 |  |
| small | 8 | 1.00 |  |

The figures are `turns`, 1/s. Parentheses give the range over the request shares, if it exceeds \
1 %. `coreline run x --world WORLD` prints these figures for each world.
";
        assert_eq!(table(&spec, &joined).unwrap(), expected);
    }

    #[test]
    fn figures_have_three_digits_and_none_that_the_result_lacks() {
        let form =
            |numbers: &[f64], divisor| Form { divisor, numbers: numbers.to_vec(), decimals_min: 0 };
        let cases = [
            (form(&[216.7], 1.0), 216.7, "217"),
            (form(&[12.3], 1.0), 12.3, "12.3"),
            (form(&[12.0, 3.9], 1.0), 12.0, "12"),
            (form(&[12.0, 3.9], 1.0), 3.9, "3.9"),
            (form(&[1.2, 1.16], 1.0), 1.2, "1.20"),
            (form(&[0.00123], 1.0), 0.00123, "0.0012"),
            (form(&[0.0, 1.11], 1.0), 0.0, "0"),
            (form(&[9990.0], 1e3), 9990.0, "9.99"),
            (form(&[9999.0], 1.0), 9999.0, "9999"),
            (form(&[10_000.0], 1.0), 10_000.0, "10,000"),
            (form(&[-123_456.0], 1.0), -123_456.0, "-123,456"),
        ];
        for (form, figure, shown) in cases {
            assert_eq!(form.show(figure), shown);
        }
        let ratio = Form { decimals_min: 2, ..form(&[1.0, 0.994], 1.0) };
        assert_eq!(ratio.show(1.0), "1.00");
    }

    #[test]
    fn what_a_table_cannot_show_is_said() {
        let cases = [
            ("rows threads | columns place | metric turns", "differ in variant alone"),
            ("rows threads | columns variant | metric turns | threads 7", "whose threads is 7"),
            (
                "rows threads | columns variant | metric gain | variant fifo",
                "no row of the result has all values",
            ),
        ];
        for (clauses, what) in cases {
            let message = made(clauses).expect_err(clauses);
            assert!(message.contains(what), "{message}");
        }
        assert!(Rows::new(&json!({ "schema": "coreline.ledger/2", "rows": [] })).is_none());
    }
}
