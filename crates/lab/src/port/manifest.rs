//! The manifest of a package: it depends on the simulator, and no longer on what its tests need.

use serde::Serialize;
use toml::{Table, Value};

use super::mirrors::of_crate;
use crate::unportable::ManifestError;

/// A manifest that was read.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) name: String,
    pub(super) version: String,
    /// `2015` where it says nothing.
    pub(super) edition: String,
    /// Its build script's path, which runs on the host.
    pub(super) build: String,
    /// The packages that it needs at run time, in order.
    pub(super) needs: Vec<String>,
    /// Whether `[dependencies]` is a table of its own or none.
    is_open: bool,
}

/// A package that is needed, and in which threads wait for each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) ported: bool,
    /// What a machine sees of it, if it is not ported.
    pub(super) why: Option<&'static str>,
}

impl Manifest {
    pub(super) fn read(text: &str) -> Result<Manifest, ManifestError> {
        let table: Table = text.parse().map_err(Box::new)?;
        let package = table.get("package").and_then(Value::as_table);
        let package = package.ok_or(ManifestError::NoPackage("name"))?;
        let inherited = |value: &Value| value.get("workspace").is_some();
        if let Some((key, _)) = package.iter().find(|(_, value)| inherited(value)) {
            return Err(ManifestError::Inherited(key.clone()));
        }
        let text_of = |key| package.get(key).and_then(Value::as_str).map(str::to_owned);
        let needs = dependencies(&table);
        if let Some((name, _)) = needs.iter().find(|(_, value)| inherited(value)) {
            return Err(ManifestError::Inherited(format!("dependency {name}")));
        }
        let package_of = |(name, value): &(&String, &Value)| {
            value.get("package").and_then(Value::as_str).unwrap_or(name).to_owned()
        };
        let mut names: Vec<_> = needs.iter().map(package_of).collect();
        names.sort();
        names.dedup();
        let is_open = !text.lines().any(|line| {
            line.trim_start()
                .strip_prefix("dependencies")
                .is_some_and(|rest| rest.trim_start().starts_with('='))
        });
        Ok(Manifest {
            name: text_of("name").ok_or(ManifestError::NoPackage("name"))?,
            version: text_of("version").unwrap_or_else(|| "0.0.0".to_owned()),
            edition: text_of("edition").unwrap_or_else(|| "2015".to_owned()),
            build: text_of("build").unwrap_or_else(|| "build.rs".to_owned()),
            needs: names,
            is_open,
        })
    }

    /// The packages that it needs and in which threads wait for each other.
    pub(super) fn synchronising(&self, ported: &[String]) -> Vec<Dependency> {
        let of = |name: &String| {
            let (ported, why) = (ported.contains(name), of_crate(name));
            (ported || why.is_some()).then(|| Dependency {
                name: name.clone(),
                ported,
                why: why.filter(|_| !ported),
            })
        };
        self.needs.iter().filter_map(of).collect()
    }
}

/// The dependencies at run time, also those of some targets only.
fn dependencies(table: &Table) -> Vec<(&String, &Value)> {
    let targets = table.get("target").and_then(Value::as_table).into_iter().flatten();
    let tables = targets.filter_map(|(_, target)| target.as_table());
    std::iter::once(table)
        .chain(tables)
        .filter_map(|table| table.get("dependencies")?.as_table())
        .flatten()
        .collect()
}

/// Where the simulator comes from: a folder, or a version.
#[derive(Debug, Clone)]
pub(super) enum Simulator {
    Path(String),
    Version(String),
}

/// The manifest as the ported copy has it, and what was taken out of it.
pub(super) fn port(
    manifest: &Manifest,
    text: &str,
    simulator: &Simulator,
) -> Result<(String, Vec<String>), ManifestError> {
    if !manifest.is_open {
        return Err(ManifestError::Inline);
    }
    let mut out = String::new();
    let mut gone: Vec<String> = Vec::new();
    let mut is_kept = true;
    for line in text.split_inclusive('\n') {
        if let Some(header) = header(line) {
            is_kept = !is_of_tests(&header);
            if !is_kept {
                gone.push(header);
            }
        }
        if is_kept {
            out += line;
        }
    }
    gone.dedup();
    if !out.ends_with('\n') {
        out.push('\n');
    }
    let (key, value) = match simulator {
        Simulator::Path(path) => ("path", path),
        Simulator::Version(version) => ("version", version),
    };
    let value = Value::String(value.clone());
    out +=
        &format!("\n# Added by `coreline port`.\n[dependencies.coreline-sim]\n{key} = {value}\n");
    let _: Table = out.parse().map_err(Box::new)?;
    Ok((out, gone))
}

/// The name in a line such as `[dependencies]` or `[[bench]]`.
fn header(line: &str) -> Option<String> {
    let line = line.trim();
    let inner = line.strip_prefix('[')?.split('#').next()?.trim_end().strip_suffix(']')?;
    let inner = inner.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(inner);
    Some(inner.trim().to_owned())
}

/// Whether a section is of what the copy does not have.
fn is_of_tests(header: &str) -> bool {
    let names = |part: &str| matches!(part, "dev-dependencies" | "test" | "bench" | "example");
    let first = header.split('.').next().unwrap_or_default();
    names(first) || (first == "target" && header.contains(".dev-dependencies"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
[package]
name = \"queue\" # a comment
version = \"1.2.3\"
edition = \"2021\"

[[bench]]
name = \"b\"

[dependencies.crossbeam-utils]
version = \"0.8\"

[dependencies.renamed]
package = \"parking_lot\"
version = \"0.12\"

[dev-dependencies.rand]
version = \"0.8\"

[target.\"cfg(loom)\".dependencies.loom]
version = \"0.7\"

[target.'cfg(loom)'.dev-dependencies.more]
version = \"1\"

[features]
std = []
";

    #[test]
    fn what_tests_need_goes_and_the_simulator_comes() {
        let manifest = Manifest::read(TEXT).unwrap();
        assert_eq!((&*manifest.name, &*manifest.edition), ("queue", "2021"));
        assert_eq!(manifest.needs, ["crossbeam-utils", "loom", "parking_lot"]);
        let simulator = Simulator::Path("../sim".to_owned());
        let (text, gone) = port(&manifest, TEXT, &simulator).unwrap();
        let more = "target.'cfg(loom)'.dev-dependencies.more";
        assert_eq!(gone, ["bench", "dev-dependencies.rand", more]);
        let table: Table = text.parse().unwrap();
        assert_eq!(table["dependencies"]["coreline-sim"]["path"].as_str(), Some("../sim"));
        assert!(table.get("dev-dependencies").is_none() && table.get("bench").is_none(), "{text}");
        assert!(text.contains("name = \"queue\" # a comment\n"), "what stays is byte for byte");
        assert!(table["target"]["cfg(loom)"].get("dependencies").is_some());
    }

    #[test]
    fn dependencies_in_which_threads_wait_are_told_from_others() {
        let manifest = Manifest::read(TEXT).unwrap();
        let told = manifest.synchronising(&["crossbeam-utils".to_owned()]);
        let told: Vec<_> = told.iter().map(|it| (&*it.name, it.ported)).collect();
        assert_eq!(told, [("crossbeam-utils", true), ("parking_lot", false)]);
    }

    #[test]
    fn a_manifest_that_cannot_be_used_says_why() {
        let error = |text: &str| Manifest::read(text).unwrap_err().to_string();
        assert!(error("[workspace]\n").contains("package.name"));
        assert!(error("[package]\nname = \"a\"\nversion.workspace = true\n").contains("version"));
        let needs = "[package]\nname = \"a\"\n[dependencies]\nb = { workspace = true }\n";
        assert!(error(needs).contains("dependency b"));
        assert!(error("[package\n").contains("expected"), "{}", error("[package\n"));
        let inline = "dependencies = {}\n[package]\nname = \"a\"\n";
        let manifest = Manifest::read(inline).unwrap();
        let version = Simulator::Version("0.1.0".to_owned());
        assert!(matches!(port(&manifest, inline, &version), Err(ManifestError::Inline)));
    }
}
