//! The page that lists what `--json` prints, `docs/json.md`, beside what it prints.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::fields::{self, PAGE, listed};
use crate::{compare, json, port};

/// A field may be missing where what holds it was `null` or empty.
fn is_held(field: &str, fields: &BTreeSet<String>, of_nothing: &[&str]) -> bool {
    fields.contains(field) || of_nothing.iter().any(|holder| field.starts_with(holder))
}

/// The committed files are the same values as what is printed, as tests of their modules say;
/// making them anew takes long.
#[test]
fn the_page_lists_what_predictions_have() {
    for file in [
        include_str!("../../host-2c.predictions.toml"),
        include_str!("../../blind.predictions.toml"),
    ] {
        fields::assert_listed(&toml::from_str(file).unwrap());
    }
}

#[test]
fn each_schema_has_its_section() {
    let mut named = BTreeSet::new();
    schemas(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut named);
    // Another package's, which has a test of its own.
    named.insert("coreline.rivals/1".to_owned());
    let heads = PAGE.lines().filter_map(|line| line.strip_prefix("## `")?.strip_suffix('`'));
    // Sections of the simulator's values are compared by a test of its own.
    let heads = heads.filter(|head| head.starts_with("coreline."));
    assert_eq!(heads.map(str::to_owned).collect::<BTreeSet<_>>(), named);
}

/// Adds the schemas that the source in a folder names.
fn schemas(folder: &Path, named: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            schemas(&path, named);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let parts = text.split('"').filter(|it| it.starts_with("coreline."));
            let is_schema = |it: &&str| {
                it.rsplit_once('/').is_some_and(|(_, version)| version.parse::<u8>().is_ok())
            };
            named.extend(parts.filter(is_schema).map(str::to_owned));
        }
    }
}

#[test]
fn the_page_lists_what_is_printed() {
    let own = ["--only", "ping-pong-cas"];
    let result = compare::result("page.json");
    let matrix = crate::file("page.csv", ",\n30,\n");
    let matrix = matrix.to_str().unwrap();
    let package = port::package("page", "use std::sync::Arc;\n");
    for (arguments, of_nothing) in [
        (vec!["run", "shootdown", "--world", "host-2c", "--quick", "--json"], &["here."][..]),
        (vec!["run", "shootdown", "--quick", "--json"], &[]),
        (vec!["compare", &result, &result, "--json"], &["changes[]."]),
        (vec!["machines", "--json"], &[]),
        (vec!["machines", "host-2c", "--json"], &["node_distances[]."]),
        (vec!["machines", "import", matrix, "--json"], &[]),
        // All samples may have been disturbed.
        ([&["validate", "--quick", "--json"], &own[..]].concat(), &["rows[].measured."]),
        // There may be one CPU.
        (vec!["measure", "--quick", "--json"], &["quantities[].ns.", "core_to_core[]."]),
        (vec!["bench", "sim", "--quick", "--json"], &[]),
        // What leaves something ends with exit code 1.
        (vec!["port", &package, "--check", "--json"], &["packages[].files[].left[]."]),
        // There may be no quota, nothing reserved, no tree, and none of the host's files.
        (vec!["doctor", "--json"], &["limits.quota.", "huge_pages.pools[].", "topology.", "host."]),
    ] {
        let result = json(&arguments);
        let listed = listed(result["schema"].as_str().unwrap());
        let fields = fields::of(&result, &listed);
        let unknown: Vec<_> = fields.difference(&listed).collect();
        assert!(unknown.is_empty(), "{arguments:?}: not on the page: {unknown:?}");
        let gone: Vec<_> =
            listed.iter().filter(|field| !is_held(field, &fields, of_nothing)).collect();
        assert!(gone.is_empty(), "{arguments:?}: not printed: {gone:?}");
    }
}
