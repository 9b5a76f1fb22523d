//! Rules on the crates: which may depend on which, and where they are described.

use std::path::Path;

use serde_json::Value;

use super::Finding;
use crate::error::Error;

/// How high each crate lives; a crate may depend on lower ones only.
const STOREYS: &[(&str, u8)] = &[
    ("coreline-topology", 0),
    ("coreline-world", 1),
    ("coreline-sim-macros", 0),
    ("coreline-sim", 2),
    ("coreline", 2),
    ("coreline-scenarios", 3),
    ("coreline-lab", 4),
    ("coreline-python", 5),
    ("coreline-rivals", 4),
    ("coreline-plugin", 4),
    ("coreline-capi", 4),
    ("coreline-preload", 4),
    ("coreline-parking-lot", 4),
    ("coreline-metrics", 3),
    ("coreline-fastpaths", 4),
    ("coreline-cpp", 4),
];

/// Up to this storey even tests may not depend upward. Above it tests may put anything together.
const STRICT_STOREY: u8 = 1;

/// The developer commands: they live outside of the house, and depend on no part of it.
const OUTSIDE: &str = "xtask";

/// Where users' crates are, as examples: they depend on what is published alone, and nothing on
/// them.
const USERS: &str = "examples/";

/// A package, as far as the rules care.
struct Package<'a> {
    name: &'a str,
    /// Relative to the root.
    manifest: &'a str,
    is_published: bool,
    dependencies: &'a [Value],
}

impl<'a> Package<'a> {
    fn new(metadata: &'a Value, root: &str) -> Option<Self> {
        Some(Package {
            name: metadata["name"].as_str()?,
            manifest: metadata["manifest_path"].as_str()?.strip_prefix(root)?.get(1..)?,
            is_published: metadata["publish"].is_null(),
            dependencies: metadata["dependencies"].as_array()?,
        })
    }
}

fn packages(metadata: &Value) -> Result<Vec<Package<'_>>, Error> {
    let missing = |what| Error::Metadata { what };
    let root = metadata["workspace_root"].as_str().ok_or(missing("workspace root"))?;
    let packages = metadata["packages"].as_array().ok_or(missing("packages"))?;
    let package = |package| Package::new(package, root).ok_or(missing("package as expected"));
    packages.iter().map(package).collect()
}

fn storey(name: &str) -> Option<u8> {
    STOREYS.iter().find(|(known, _)| *known == name).map(|&(_, storey)| storey)
}

pub(super) fn edges(metadata: &Value, _: &str) -> Result<Vec<Finding>, Error> {
    let packages = packages(metadata)?;
    let mut found = Vec::new();
    for package in &packages {
        let mut complain = |message| found.push(Finding::new(package.manifest, 1, message));
        let own = storey(package.name);
        let is_user = package.manifest.starts_with(USERS);
        if is_user && package.is_published {
            complain(format!("{} is an example: it says `publish = false`", package.name));
        }
        if own.is_none() && package.name != OUTSIDE && !is_user {
            complain(format!("{} has no storey; give it one in tidy/crates.rs", package.name));
            continue;
        }
        for dependency in package.dependencies {
            let name = dependency["name"].as_str().unwrap_or_default();
            let Some(other) = packages.iter().find(|package| package.name == name) else {
                continue;
            };
            let for_tests = dependency["kind"] == "dev";
            let allowed = match (own, storey(name)) {
                _ if is_user => other.is_published,
                (Some(own), Some(other)) if for_tests => {
                    own > STRICT_STOREY || other < own || name == package.name
                }
                (Some(own), Some(other)) => other < own,
                _ => false,
            };
            if !allowed {
                let how = if for_tests { "in its tests" } else { "" };
                complain(format!("{} may not depend on {name} {how}", package.name));
            }
        }
    }
    Ok(found)
}

pub(super) fn listed(metadata: &Value, architecture: &str) -> Result<Vec<Finding>, Error> {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let words: Vec<_> = architecture.split(|c| !is_name(c)).collect();
    let mut found = Vec::new();
    for package in packages(metadata)? {
        let folder = Path::new(package.manifest).parent().and_then(Path::file_name);
        let folder = folder.unwrap_or_default().to_string_lossy();
        for name in [package.name, &*folder] {
            if !words.contains(&name) {
                let message = format!("{} is not described: no word {name}", package.manifest);
                found.push(Finding::new("ARCHITECTURE.md", 1, message));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An example.
    const USER: &str = "user";

    /// The messages of `edges` for a workspace with these (from, to, kind of dependency).
    fn messages(list: &[(&str, &str, Option<&str>)]) -> Vec<String> {
        let names = STOREYS.iter().map(|&(name, _)| name).chain([OUTSIDE, USER, "newcomer"]);
        let packages: Vec<_> = names
            .filter(|name| *name != "newcomer" || list.iter().any(|edge| edge.0 == *name))
            .map(|name| {
                let edges = list.iter().filter(|edge| edge.0 == name);
                let dependencies: Vec<_> =
                    edges.map(|(_, to, kind)| json!({ "name": to, "kind": kind })).collect();
                let folder = if name == USER { "examples" } else { "crates" };
                let unpublished = [
                    "coreline-rivals",
                    "coreline-plugin",
                    "coreline-capi",
                    "coreline-preload",
                    "coreline-fastpaths",
                    "coreline-python",
                    OUTSIDE,
                    USER,
                ];
                json!({
                    "name": name,
                    "manifest_path": format!("/r/{folder}/{name}/Cargo.toml"),
                    "publish": unpublished.contains(&name).then_some([""; 0]),
                    "dependencies": dependencies,
                })
            })
            .collect();
        let metadata = json!({ "workspace_root": "/r", "packages": packages });
        let found = edges(&metadata, "").expect("metadata in cargo's format");
        found.into_iter().map(|finding| format!("{}: {}", finding.file, finding.message)).collect()
    }

    #[test]
    fn downward_edges_pass() {
        assert_eq!(
            messages(&[
                ("coreline-world", "coreline-topology", None),
                ("coreline-sim", "coreline-world", None),
                ("coreline", "coreline-topology", None),
                ("coreline", "coreline-sim", Some("dev")),
                ("coreline-world", "coreline-world", Some("dev")),
                ("coreline-scenarios", "coreline-sim", None),
                ("coreline-lab", "coreline-scenarios", None),
                ("coreline-lab", "coreline-sim", None),
                ("coreline-rivals", "coreline", None),
                ("coreline-lab", "serde", None),
                ("coreline-python", "coreline-lab", None),
                ("xtask", "serde_json", None),
                (USER, "coreline", None),
                (USER, "coreline-sim", Some("dev")),
            ]),
            [""; 0]
        );
    }

    #[test]
    fn every_other_edge_is_found() {
        for edge in [
            ("coreline-topology", "coreline-world", None),
            ("coreline", "coreline-sim", None),
            ("coreline-sim", "coreline", None),
            ("coreline-sim", "coreline", Some("build")),
            ("coreline-world", "coreline-lab", None),
            ("coreline-scenarios", "coreline-lab", None),
            ("coreline", "coreline-scenarios", None),
            ("coreline-world", "coreline-sim", Some("dev")),
            ("coreline-topology", "coreline-world", Some("dev")),
            ("xtask", "coreline", None),
            ("xtask", "coreline-topology", Some("dev")),
            ("coreline-lab", "xtask", None),
            ("coreline-lab", "coreline-rivals", None),
            (USER, "coreline-rivals", None),
            (USER, "coreline-capi", None),
            ("coreline-rivals", "coreline-capi", None),
            (USER, "coreline-plugin", Some("dev")),
            ("coreline-lab", "coreline-fastpaths", None),
            ("coreline-lab", "coreline-python", None),
            (USER, "xtask", None),
            ("coreline-lab", USER, None),
            ("coreline", USER, Some("dev")),
            ("xtask", USER, None),
        ] {
            let found = messages(&[edge]);
            assert_eq!(found.len(), 1, "{edge:?}: {found:?}");
            let folder = if edge.0 == USER { "examples" } else { "crates" };
            let file = format!("{folder}/{}/Cargo.toml: ", edge.0);
            assert!(found[0].starts_with(&file) && found[0].contains(edge.1), "{found:?}");
        }
    }

    #[test]
    fn an_example_that_could_be_published_is_found() {
        let package = json!({
            "name": USER,
            "manifest_path": "/r/examples/user/Cargo.toml",
            "publish": null,
            "dependencies": [],
        });
        let metadata = json!({ "workspace_root": "/r", "packages": [package] });
        let found = edges(&metadata, "").expect("metadata in cargo's format");
        assert!(found.len() == 1 && found[0].message.contains("publish"), "{found:?}");
    }

    #[test]
    fn a_crate_without_a_storey_is_found() {
        assert_eq!(messages(&[("newcomer", "serde", None)]).len(), 1);
    }

    #[test]
    fn metadata_of_another_format_is_an_error() {
        let error = edges(&json!({ "packages": [{}] }), "").expect_err("no workspace root");
        assert!(error.to_string().contains("workspace root"));
    }

    #[test]
    fn every_crate_is_described() {
        let package = |name, folder| {
            let manifest = format!("/r/crates/{folder}/Cargo.toml");
            json!({ "name": name, "manifest_path": manifest, "dependencies": [] })
        };
        let packages = [package("coreline-sim", "sim"), package("coreline", "coreline")];
        let metadata = json!({ "workspace_root": "/r", "packages": packages });
        let found = |text| listed(&metadata, text).expect("metadata in cargo's format").len();
        assert_eq!(found("`crates/sim` is coreline-sim; crates/coreline is coreline"), 0);
        assert_eq!(found("crates/sim is coreline-sim, the simulator"), 2, "coreline twice");
        assert_eq!(found("coreline, and coreline-sim"), 1, "no folder sim");
    }
}
