//! Warnings and broken links: of the workspace in one build, and of each package by itself.
//!
//! In one build cargo gives a crate every feature that any package of the build asks for. So a
//! build of the workspace shows neither that a package forgot to ask for a feature, nor that a
//! library does not compile, or that its documentation has a broken link, without features. Builds
//! of single packages show that, and take several times as long.

use serde_json::Value;

use crate::error::Error;
use crate::{pages, workspace};

/// The feature that takes away what only Linux has, and pages about that with it.
const PORTABLE: &str = "portable";

/// That the workspace compiles with all targets and without warnings.
pub(crate) fn clippy() -> Result<(), Error> {
    run("clippy --quiet --workspace --all-targets -- -D warnings")
}

/// That no documentation has a broken link: that of the workspace with all features of libraries
/// but [`PORTABLE`], of which all links are followed, and that of programs.
pub(crate) fn docs() -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let folder = workspace::target_folder()?.join("doc");
    let crates: Vec<_> = packages(&metadata)?.iter().map(|it| it.name.replace('-', "_")).collect();
    pages::clear(&folder, &crates)?;
    let [workspace, programs @ ..] = &doc_lines(&metadata)?[..] else { return Ok(()) };
    run(workspace)?;
    pages::check(&folder, &crates)?;
    programs.iter().try_for_each(|line| run(line))
}

/// That each package compiles with the features that it asks for itself, and each library without
/// features and with each feature alone; and that no library's documentation has a broken link
/// without features.
pub(crate) fn features() -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    for line in clippy_lines(&metadata)? {
        run(&format!("clippy --quiet {line} -- -D warnings"))?;
    }
    bare_doc_lines(&metadata)?.iter().try_for_each(|line| run(line))
}

fn run(line: &str) -> Result<(), Error> {
    let mut cargo = workspace::cargo(&line.split(' ').collect::<Vec<_>>());
    cargo.env("RUSTDOCFLAGS", "-D warnings");
    println!("{}", workspace::line(&cargo));
    workspace::run(&mut cargo)
}

struct Package<'a> {
    name: &'a str,
    is_library: bool,
    features: Vec<&'a str>,
}

impl<'a> Package<'a> {
    fn new(metadata: &'a Value) -> Option<Self> {
        let targets = metadata["targets"].as_array()?;
        let kinds = targets.iter().filter_map(|target| target["kind"].as_array()).flatten();
        let features = metadata["features"].as_object()?.keys().map(String::as_str);
        Some(Package {
            name: metadata["name"].as_str()?,
            is_library: kinds.into_iter().any(|kind| matches!(kind.as_str(), Some("lib" | "rlib"))),
            features: features.filter(|name| *name != "default").collect(),
        })
    }
}

fn packages(metadata: &Value) -> Result<Vec<Package<'_>>, Error> {
    let packages = metadata["packages"].as_array().ok_or(Error::Metadata { what: "packages" })?;
    let package = |it| Package::new(it).ok_or(Error::Metadata { what: "package as expected" });
    packages.iter().map(package).collect()
}

/// What clippy is told to look at.
fn clippy_lines(metadata: &Value) -> Result<Vec<String>, Error> {
    let mut lines = Vec::new();
    for Package { name, is_library, features } in packages(metadata)? {
        if is_library {
            let bare = format!("-p {name} --no-default-features");
            let with = |feature| format!("{bare} --features {feature}");
            lines.extend(features.into_iter().map(with));
            lines.push(bare);
        }
        lines.push(format!("-p {name} --all-targets"));
    }
    Ok(lines)
}

/// What is documented. A feature of a program may need more of the machine than CI has, and changes
/// nothing that has documentation.
fn doc_lines(metadata: &Value) -> Result<Vec<String>, Error> {
    let packages = packages(metadata)?;
    let (libraries, programs): (Vec<_>, Vec<_>) = packages.iter().partition(|it| it.is_library);
    let plain = || programs.iter().filter(|it| !it.features.is_empty()).map(|it| it.name);
    let excluded: String = plain().map(|name| format!(" --exclude {name}")).collect();
    let mut features = Vec::new();
    for Package { name, features: all, .. } in &libraries {
        let shown = all.iter().filter(|feature| **feature != PORTABLE);
        features.extend(shown.map(|feature| format!("{name}/{feature}")));
    }
    let features = match features.is_empty() {
        true => String::new(),
        false => format!(" --features {}", features.join(",")),
    };
    let mut lines = vec![format!("doc --workspace --no-deps{features}{excluded}")];
    lines.extend(plain().map(|name| format!("doc --quiet --no-deps -p {name}")));
    Ok(lines)
}

/// The documentation of each library without features.
fn bare_doc_lines(metadata: &Value) -> Result<Vec<String>, Error> {
    let bare =
        |it: &Package<'_>| format!("doc --quiet --no-deps --no-default-features -p {}", it.name);
    Ok(packages(metadata)?.iter().filter(|it| it.is_library).map(bare).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_feature_is_alone_once() {
        let lib = json!([{ "kind": ["lib"] }, { "kind": ["test"] }]);
        let both = json!([{ "kind": ["cdylib", "rlib"] }]);
        let metadata = json!({ "packages": [
            { "name": "a", "targets": lib, "features": { "default": ["x"], "x": [], "y": ["x"] } },
            { "name": "b", "targets": both, "features": {} },
            { "name": "c", "targets": [{ "kind": ["bin"] }], "features": { "z": [] } },
        ] });
        assert_eq!(
            clippy_lines(&metadata).expect("metadata in cargo's format"),
            [
                "-p a --no-default-features --features x",
                "-p a --no-default-features --features y",
                "-p a --no-default-features",
                "-p a --all-targets",
                "-p b --no-default-features",
                "-p b --all-targets",
                "-p c --all-targets",
            ]
        );
    }

    #[test]
    fn programs_are_documented_without_features() {
        let (lib, program) = (json!([{ "kind": ["lib"] }]), json!([{ "kind": ["bin"] }]));
        let metadata = json!({ "packages": [
            { "name": "a", "targets": lib, "features": { "portable": [], "x": [], "y": [] } },
            { "name": "b", "targets": program, "features": {} },
            { "name": "c", "targets": program, "features": { "z": [] } },
        ] });
        assert_eq!(
            doc_lines(&metadata).expect("metadata in cargo's format"),
            [
                "doc --workspace --no-deps --features a/x,a/y --exclude c",
                "doc --quiet --no-deps -p c",
            ]
        );
        assert_eq!(
            bare_doc_lines(&metadata).expect("metadata in cargo's format"),
            ["doc --quiet --no-deps --no-default-features -p a"]
        );
    }

    #[test]
    fn metadata_of_another_format_is_an_error() {
        for metadata in [json!({}), json!({ "packages": [{ "name": "a" }] })] {
            assert!(matches!(clippy_lines(&metadata), Err(Error::Metadata { .. })), "{metadata}");
        }
    }

    #[test]
    fn the_packages_of_this_workspace_are_read() {
        let metadata = workspace::metadata().expect("cargo runs");
        let packages = packages(&metadata).expect("metadata in cargo's format");
        let package = |name| packages.iter().find(|package| package.name == name);
        let world = package("coreline-world").expect("a member of the workspace");
        assert!(world.is_library && world.features.contains(&"model"));
        assert!(!package("xtask").expect("a member of the workspace").is_library);
    }
}
