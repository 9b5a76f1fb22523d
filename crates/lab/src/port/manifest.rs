//! The manifest of a package: it depends on the simulator, and no longer on what its tests need.

use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use toml::{Table, Value};

use super::mirrors::of_crate;
use crate::unportable::ManifestError;

#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) name: String,
    pub(super) version: String,
    /// `2015` where it says nothing.
    pub(super) edition: String,
    /// Its build script's path, which runs on the host.
    pub(super) build: PathBuf,
    /// The packages that it needs at run time, in order.
    pub(super) needs: Vec<String>,
}

/// A package that is needed, and in which threads wait for each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) ported: bool,
    /// The part of it that a machine sees, if it is not ported.
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
        let name = text_of("name").ok_or(ManifestError::NoPackage("name"))?;
        if !is_name(&name) {
            return Err(ManifestError::Name(name));
        }
        Ok(Manifest {
            name,
            version: text_of("version").unwrap_or_else(|| "0.0.0".to_owned()),
            edition: text_of("edition").unwrap_or_else(|| "2015".to_owned()),
            build: text_of("build").map_or_else(|| "build.rs".into(), |path| plain(&path)),
            needs: names,
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

/// Whether it can be a package's name: the copy's folder has it, and must lie in `--out`.
fn is_name(name: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    !name.is_empty() && name.chars().all(fits)
}

/// The path as the list of files has it: without `.`.
fn plain(path: &str) -> PathBuf {
    Path::new(path).components().filter(|part| *part != Component::CurDir).collect()
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

/// The source of the simulator: a folder, or a version.
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
    let mut out = String::new();
    let mut gone: Vec<String> = Vec::new();
    let (mut is_kept, mut at) = (true, 0);
    for line in text.split_inclusive('\n') {
        if let Some(path) = header(&text[..at], line) {
            is_kept = !is_of_tests(&path);
            if !is_kept {
                gone.push(path.join("."));
            }
        }
        at += line.len();
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
    // Sections alone went, so what cannot be read is the one that came.
    match out.parse::<Table>() {
        Ok(_) => Ok((out, gone)),
        Err(why) if manifest.needs.iter().any(|it| it == "coreline-sim") => {
            Err(Box::new(why).into())
        }
        Err(_) => Err(ManifestError::Inline),
    }
}

/// The keys in a line such as `[dependencies]` or `[[bench]]`, if it is one: what is before it is
/// whole by itself, so the line lies in no string and in no array.
fn header(before: &str, line: &str) -> Option<Vec<String>> {
    if !line.trim_start().starts_with('[') {
        return None;
    }
    let mut inner: Table = line.parse().ok()?;
    let _: Table = before.parse().ok()?;
    let mut path = Vec::new();
    while let Some((key, value)) = inner.into_iter().next() {
        path.push(key);
        inner = match value {
            Value::Table(table) => table,
            _ => break,
        };
    }
    Some(path)
}

/// Whether a section describes parts that the copy does not have.
fn is_of_tests(path: &[String]) -> bool {
    let path: Vec<_> = path.iter().map(String::as_str).collect();
    matches!(
        path[..],
        ["dev-dependencies" | "test" | "bench" | "example", ..]
            | ["target", _, "dev-dependencies", ..]
    )
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
        let more = "target.cfg(loom).dev-dependencies.more";
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
        for name in ["", "..", "../escaped", "/escaped", "../.cargo", "a/b", "a b", "\u{e4}"] {
            let told = error(&format!("[package]\nname = {name:?}\n"));
            assert!(told.contains(&format!("{name:?}")) && told.contains("name"), "{told}");
        }
        assert!(error("[package\n").contains("expected"), "{}", error("[package\n"));
        let inline = "dependencies = {}\n[package]\nname = \"a\"\n";
        let manifest = Manifest::read(inline).unwrap();
        let version = Simulator::Version("0.1.0".to_owned());
        assert!(matches!(port(&manifest, inline, &version), Err(ManifestError::Inline)));
    }

    fn ported(text: &str) -> (Table, Vec<String>) {
        let manifest = Manifest::read(text).unwrap();
        let version = Simulator::Version("0.1.0".to_owned());
        let (text, gone) = port(&manifest, text, &version).unwrap();
        (text.parse().unwrap(), gone)
    }

    #[test]
    fn a_line_in_a_string_or_an_array_is_no_header() {
        let (table, gone) = ported(
            "[package]\nname = \"a\"\ndescription = \"\"\"\n[dev-dependencies]\n\
             dependencies = 1\n\"\"\"\n\
             [package.metadata]\nlists = [\n[1],\n[2]\n]\nlast = 1\n[features]\nstd = []\n",
        );
        assert!(table.contains_key("features") && gone.is_empty(), "{table} {gone:?}");
        assert_eq!(table["package"]["metadata"]["last"].as_integer(), Some(1));
    }

    #[test]
    fn what_is_needed_at_run_time_stays_below_what_tests_need() {
        let (table, gone) = ported(
            "[package]\nname = \"a\"\n[dev-dependencies]\nrand = \"1\"\n\
             [target.'cfg(feature = \"a#b]\")'.dependencies] # why\nlibc = \"0.2\"\n\
             [ \"dev-dependencies\" . more ]\nversion = \"1\"\n",
        );
        let of_target = &table["target"]["cfg(feature = \"a#b]\")"]["dependencies"];
        assert_eq!(of_target["libc"].as_str(), Some("0.2"));
        assert_eq!(gone, ["dev-dependencies", "dev-dependencies.more"]);
    }

    #[test]
    fn a_build_script_is_known_by_its_path_however_it_is_written() {
        let build = |text: &str| {
            let text = format!("[package]\nname = \"a\"\n{text}");
            Manifest::read(&text).unwrap().build
        };
        assert_eq!(build(""), Path::new("build.rs"));
        assert_eq!(build("build = \"./build.rs\"\n"), Path::new("build.rs"));
        assert_eq!(build("build = \"./of/./build.rs\"\n").to_str(), Some("of/build.rs"));
    }
}
