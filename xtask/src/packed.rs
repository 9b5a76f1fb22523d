//! The packages that are published, as their users get them.
//!
//! They are packed, unpacked outside of the workspace, and built there: a file, a version or a
//! dependency that only the workspace has is missed here. Beside them lies a new crate with the
//! `[dependencies]` that README.md gives and one program for each of its Rust blocks, and all of
//! them run. The packed program is installed, too, and says its version.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

use crate::error::Error;
use crate::workspace;

/// The crate that README's reader makes.
const READER: &str = "reader";

/// The folder below which the program is installed.
const INSTALLED: &str = "installed";

/// The package of the program, and the program's name.
const PROGRAM: [&str; 2] = ["coreline-lab", "coreline"];

/// Packs, unpacks, builds, runs.
pub(crate) fn run() -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let published = published(&metadata)?;
    let target = metadata["target_directory"].as_str();
    let target = Path::new(target.ok_or(Error::Metadata { what: "target directory" })?);
    pack(&published)?;
    // Not below the root, whose workspace cargo would take them for. The same folder each time, so
    // that what is compiled of it replaces what was.
    let mut hasher = DefaultHasher::new();
    workspace::root().hash(&mut hasher);
    let folder = env::temp_dir().join(format!("coreline-packed-{:x}", hasher.finish()));
    let _ = fs::remove_dir_all(&folder);
    let done = build(&published, target, &folder);
    // What is left behind in the folder for such files does no harm.
    let _ = fs::remove_dir_all(&folder);
    done
}

/// A package, with its version.
type Published<'a> = (&'a str, &'a str);

/// The packages that say nothing against it.
fn published(metadata: &Value) -> Result<Vec<Published<'_>>, Error> {
    let packages = metadata["packages"].as_array().ok_or(Error::Metadata { what: "packages" })?;
    let published = packages.iter().filter(|it| it["publish"].is_null());
    let package = published.map(|it| it["name"].as_str().zip(it["version"].as_str()));
    let unknown = Error::Metadata { what: "package as expected" };
    package.collect::<Option<_>>().ok_or(unknown)
}

fn pack(published: &[Published<'_>]) -> Result<(), Error> {
    // Built below, all of them together. A change that is not committed is to be checked, too.
    let mut cargo = workspace::cargo(&["package", "--quiet", "--no-verify", "--allow-dirty"]);
    for (name, _) in published {
        cargo.args(["--package", name]);
    }
    println!("{}", workspace::line(&cargo));
    workspace::run(&mut cargo)
}

fn build(published: &[Published<'_>], target: &Path, folder: &Path) -> Result<(), Error> {
    let readme = workspace::read("README.md")?;
    let programs = programs(&readme);
    let dependencies = dependencies(&readme).ok_or(Error::NoDependencies)?;
    let write = |path: PathBuf, text: &str| workspace::write(&path, text);
    for (number, program) in programs.iter().enumerate() {
        write(folder.join(format!("{READER}/src/bin/block-{number}.rs")), program)?;
    }
    write(folder.join(READER).join("Cargo.toml"), &manifest_of_reader(&dependencies))?;
    let root = workspace::read("Cargo.toml")?;
    write(folder.join("Cargo.toml"), &manifest(published, &root))?;
    // The versions and the compiler that are tested, and that are here already.
    for file in ["Cargo.lock", "rust-toolchain.toml"] {
        write(folder.join(file), &workspace::read(file)?)?;
    }
    for (name, version) in published {
        let package = target.join("package").join(format!("{name}-{version}.crate"));
        // Touched: all files of a package are of one day in 2006, and would never look changed.
        let mut tar = workspace::command("tar", &["-xmzf"]);
        workspace::run(tar.arg(package).arg("-C").arg(folder))?;
    }
    let cargo = |line: &str| {
        let mut cargo = workspace::cargo(&line.split(' ').collect::<Vec<_>>());
        // The workspace's own folder and profiles, so that what was compiled of other packages
        // serves here, too.
        cargo.current_dir(folder).arg("--target-dir").arg(target);
        println!("{}", workspace::line(&cargo));
        workspace::run(&mut cargo)
    };
    // Together packages have features that one lacks which is built by itself.
    cargo(&format!("check --quiet --package {READER}"))?;
    cargo("build --quiet --workspace --lib --bins")?;
    for number in 0..programs.len() {
        // Not by cargo, which would compile all of it again for this one package's features.
        let mut block = Command::new(target.join("debug").join(format!("block-{number}")));
        println!("{}", workspace::line(&block));
        workspace::run(&mut block)?;
    }
    install(published, folder, cargo)?;
    println!("packed: {} packages, {} programs of README.md", published.len(), programs.len());
    Ok(())
}

/// Installs the program and asks it for its version.
fn install(
    published: &[Published<'_>],
    folder: &Path,
    cargo: impl Fn(&str) -> Result<(), Error>,
) -> Result<(), Error> {
    let [package, program] = PROGRAM;
    let version = published.iter().find(|(name, _)| *name == package).map(|(_, version)| version);
    let version = version.ok_or(Error::Metadata { what: "package of the program" })?;
    // As it was built before.
    cargo(&format!(
        "install --quiet --debug --locked --path {package}-{version} --root {INSTALLED}"
    ))?;
    let mut installed = Command::new(folder.join(INSTALLED).join("bin").join(program));
    println!("{program} --version");
    let said = workspace::output(installed.arg("--version"))?;
    is_version(&String::from_utf8_lossy(&said), program, version)
}

fn is_version(said: &str, program: &str, version: &str) -> Result<(), Error> {
    let expected = format!("{program} {version}");
    match said.trim_end() == expected {
        true => Ok(()),
        false => Err(Error::Installed { said: said.trim_end().to_owned(), expected }),
    }
}

/// The workspace of what was unpacked: where it depends on a published package, it gets that. Its
/// profiles are those of the manifest `root`, but that the program is not optimised, to be compiled
/// soon.
fn manifest(published: &[Published<'_>], root: &str) -> String {
    let mut text = format!("[workspace]\nresolver = \"3\"\nmembers = [\"{READER}\"");
    // Writing to a string does not fail, here and below.
    for (name, version) in published {
        let _ = write!(text, ", \"{name}-{version}\"");
    }
    text.push_str("]\n\n[patch.crates-io]\n");
    for (name, version) in published {
        let _ = writeln!(text, "{name} = {{ path = \"{name}-{version}\" }}");
    }
    for line in profiles(root) {
        let _ = writeln!(text, "{line}");
    }
    let [package, _] = PROGRAM;
    let _ = writeln!(text, "[profile.dev.package.{package}]\nopt-level = 0\ndebug = false");
    text
}

/// The lines of a manifest's profiles.
fn profiles(manifest: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    manifest.lines().filter(move |line| {
        inside = if line.starts_with('[') { line.starts_with("[profile.") } else { inside };
        inside
    })
}

fn manifest_of_reader(dependencies: &str) -> String {
    format!("[package]\nname = \"{READER}\"\nedition = \"2024\"\n\n{dependencies}\n")
}

/// The texts of a README's fenced blocks in this language.
fn blocks(readme: &str, language: &str) -> Vec<String> {
    let (mut blocks, mut open): (Vec<String>, Option<String>) = (Vec::new(), None);
    for line in readme.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take().and_then(|it| {
                let (of, text) = it.split_once('\n')?;
                (of == language).then(|| text.to_owned())
            })),
            (Some(of), None) => open = Some(format!("{of}\n")),
            (None, Some(text)) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// The dependencies that a README gives.
fn dependencies(readme: &str) -> Option<String> {
    blocks(readme, "toml").into_iter().find(|block| block.starts_with("[dependencies]\n"))
}

/// The programs that a README gives. A block without a `main` is the inside of one, as it is for
/// rustdoc.
fn programs(readme: &str) -> Vec<String> {
    let program = |block: String| match block.contains("fn main()") {
        true => block,
        false => format!("fn main() {{\n{block}}}\n"),
    };
    blocks(readme, "rust").into_iter().map(program).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const README: &str = "\
# x
```sh
cargo add x
```
```toml
[profile.dev]
```
```toml
[dependencies]
x = \"1\"
```
```rust
fn main() {}
```
text
```rust
assert!(true);
```
";

    #[test]
    fn the_blocks_of_a_readme_are_found() {
        assert_eq!(dependencies(README).as_deref(), Some("[dependencies]\nx = \"1\"\n"));
        let main = "fn main() {\nassert!(true);\n}\n";
        assert_eq!(programs(README), ["fn main() {}\n", main]);
        assert_eq!(dependencies("```toml\n[dev-dependencies]\n```\n"), None);
        assert_eq!(programs("```rust\nfn main() {}\n"), [""; 0], "no end");
    }

    #[test]
    fn profiles_are_taken_along() {
        let root = "[a]\nb = 1\n[profile.dev]\nc = 2\n[profile.release]\nd = 3\n[e]\nf = 4";
        let lines = ["[profile.dev]", "c = 2", "[profile.release]", "d = 3"];
        assert_eq!(profiles(root).collect::<Vec<_>>(), lines);
        assert!(manifest(&[("x", "1.2.3")], root).contains("\n[profile.release]\nd = 3\n["));
    }

    #[test]
    fn what_says_no_to_a_registry_is_not_published() {
        let metadata = json!({ "packages": [
            { "name": "a", "version": "1.2.3", "publish": null },
            { "name": "b", "version": "1.2.3", "publish": [] },
        ] });
        assert_eq!(published(&metadata).expect("cargo's format"), [("a", "1.2.3")]);
        assert!(published(&json!({ "packages": [{ "publish": null }] })).is_err());
    }

    #[test]
    fn six_packages_of_this_workspace_are_published() {
        let metadata = workspace::metadata().expect("cargo runs");
        let names: Vec<_> = published(&metadata).expect("cargo's format");
        let names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
        let six = [
            "coreline-topology",
            "coreline-world",
            "coreline-sim-macros",
            "coreline-sim",
            "coreline",
            "coreline-lab",
        ];
        assert_eq!(names.len(), six.len(), "{names:?}");
        assert!(six.iter().all(|name| names.contains(name)), "{names:?}");
    }

    #[test]
    fn a_program_of_another_version_is_an_error() {
        assert!(is_version("coreline 1.2.3\n", "coreline", "1.2.3").is_ok());
        for said in ["coreline 1.2.30\n", "coreline 1.2.3-a", "lab 1.2.3\n", ""] {
            let error = is_version(said, "coreline", "1.2.3");
            assert!(matches!(error, Err(Error::Installed { .. })), "{said:?}");
        }
    }

    #[test]
    fn the_readme_has_dependencies_and_programs() {
        let readme = workspace::read("README.md").expect("README.md is there");
        let dependencies = dependencies(&readme).expect("a block of dependencies");
        assert!(dependencies.contains("\ncoreline = "), "{dependencies}");
        assert!(programs(&readme).len() > 1);
    }
}
