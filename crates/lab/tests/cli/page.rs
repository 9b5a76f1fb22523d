//! The page that lists what `--json` prints, `docs/json.md`, beside what it prints.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{json, port};

const PAGE: &str = include_str!("../../../../docs/json.md");

/// The fields that the page lists for a schema.
fn listed(schema: &str) -> BTreeSet<String> {
    let head = format!("## `{schema}`\n");
    let (_, section) = PAGE.split_once(&head).unwrap_or_else(|| panic!("no section {schema}"));
    let section = section.split("\n## ").next().unwrap();
    let field = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    section.lines().filter_map(field).collect()
}

/// Adds the fields of a value. What a list or an object holds is listed below it, and an object
/// whose keys are data is one that the page lists with `*`.
fn printed(value: &Value, path: &str, listed: &BTreeSet<String>, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let field = |key: &str| match path {
                    "" => key.to_owned(),
                    path => format!("{path}.{key}"),
                };
                let any = field("*");
                let field = if listed.contains(&any) { any } else { field(key) };
                printed(value, &field, listed, fields);
                fields.insert(field);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| printed(item, &format!("{path}[]"), listed, fields));
        }
        _ => {}
    }
}

/// A field may be missing where what holds it was `null` or empty.
fn is_held(field: &str, fields: &BTreeSet<String>, of_nothing: &[&str]) -> bool {
    fields.contains(field) || of_nothing.iter().any(|holder| field.starts_with(holder))
}

/// The committed file is the same value as what is printed, as a test of its module says; making
/// it anew takes long.
#[test]
fn the_page_lists_what_predictions_have() {
    let file = include_str!("../../host-2c.predictions.toml");
    let file: Value = toml::from_str(file).unwrap();
    let listed = listed(file["schema"].as_str().unwrap());
    let mut fields = BTreeSet::new();
    printed(&file, "", &listed, &mut fields);
    assert_eq!(fields, listed);
}

#[test]
fn the_page_lists_what_is_printed() {
    let own = ["--only", "ping-pong-cas"];
    let package = port::package("page", "use std::sync::Arc;\n");
    for (arguments, of_nothing) in [
        (vec!["run", "shootdown", "--world", "host-2c", "--quick", "--json"], &[][..]),
        (vec!["run", "shootdown", "--quick", "--json"], &[]),
        (vec!["machines", "--json"], &[]),
        (vec!["machines", "host-2c", "--json"], &[]),
        // All samples may have been disturbed.
        ([&["validate", "--quick", "--json"], &own[..]].concat(), &["rows[].measured."]),
        // All samples may have been disturbed, and there may be one CPU.
        (vec!["measure", "--quick", "--json"], &["quantities[].ns.", "core_to_core[]."]),
        (vec!["bench", "sim", "--quick", "--json"], &[]),
        // What leaves something ends with exit code 1.
        (vec!["port", &package, "--check", "--json"], &["packages[].files[].left[]."]),
        // There may be no quota, nothing reserved, no tree, and none of the host's files.
        (vec!["doctor", "--json"], &["limits.quota.", "huge_pages.pools[].", "topology.", "host."]),
    ] {
        let result = json(&arguments);
        let listed = listed(result["schema"].as_str().unwrap());
        let mut fields = BTreeSet::new();
        printed(&result, "", &listed, &mut fields);
        let unknown: Vec<_> = fields.difference(&listed).collect();
        assert!(unknown.is_empty(), "{arguments:?}: not on the page: {unknown:?}");
        let gone: Vec<_> =
            listed.iter().filter(|field| !is_held(field, &fields, of_nothing)).collect();
        assert!(gone.is_empty(), "{arguments:?}: not printed: {gone:?}");
    }
}
