//! The fields that the pages of `docs/` on JSON list for a schema, beside those that a
//! value has. The tests of the program use this, and those of modules whose results take long to
//! make.

use std::collections::BTreeSet;

use serde_json::Value;

pub(crate) const PAGE: &str = concat!(
    include_str!("../../../../docs/json.md"),
    "\n",
    include_str!("../../../../docs/json-pages.md"),
    "\n",
    include_str!("../../../../docs/json-report.md"),
    "\n",
    include_str!("../../../../docs/json-doctor.md"),
    "\n",
    include_str!("../../../../docs/json-packages.md")
);

/// The fields that the page lists for a schema.
pub(crate) fn listed(schema: &str) -> BTreeSet<String> {
    let head = format!("## `{schema}`\n");
    let (_, section) = PAGE.split_once(&head).unwrap_or_else(|| panic!("no section {schema}"));
    let section = section.split("\n## ").next().unwrap();
    let field = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    section.lines().filter_map(field).collect()
}

/// The fields of a value, named as the page names them.
pub(crate) fn of(value: &Value, listed: &BTreeSet<String>) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    add(value, "", listed, &mut fields);
    fields
}

/// That the page lists what the value has, and nothing else.
pub(crate) fn assert_listed(value: &Value) {
    let listed = listed(value["schema"].as_str().unwrap());
    assert_eq!(of(value, &listed), listed);
}

/// What a list or an object holds is listed below it, and an object whose keys are data is one that
/// the page lists with `*`.
fn add(value: &Value, path: &str, listed: &BTreeSet<String>, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let field = |key: &str| match path {
                    "" => key.to_owned(),
                    path => format!("{path}.{key}"),
                };
                let any = field("*");
                let field = if listed.contains(&any) { any } else { field(key) };
                add(value, &field, listed, fields);
                fields.insert(field);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| add(item, &format!("{path}[]"), listed, fields));
        }
        _ => {}
    }
}
