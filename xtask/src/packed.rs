//! The packages that are published, as their users get them.
//!
//! They are packed, unpacked outside of the workspace, and built there: a file, a version or a
//! dependency that only the workspace has is missed here. Beside them lie new crates, one for each
//! of [`PAGES`], with the dependencies that the page gives and a program or a test for each of its
//! Rust blocks that stand alone, and all of them run. The packed program is installed, too,
//! and says its version.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

use crate::error::Error;
use crate::workspace;

/// A page whose reader makes a new crate of it.
struct Page {
    file: &'static str,
    /// What we call the crate.
    reader: &'static str,
    /// How many of its Rust blocks are whole programs or tests: the first ones.
    whole: usize,
}

const PAGES: [Page; 2] = [
    Page { file: "README.md", reader: "reader", whole: usize::MAX },
    // The other blocks of the guide are cut from examples.
    Page { file: "docs/simulating.md", reader: "reader-of-the-guide", whole: 1 },
];

/// The folder below which the program is installed.
const INSTALLED: &str = "installed";

/// The package of the program, and the program's name.
const PROGRAM: [&str; 2] = ["coreline-lab", "coreline"];

/// Nothing is optimised: what runs here runs for moments. The debug information is that of the
/// workspace, so that what was compiled of other packages there serves here, too.
const PROFILE: &str = "[profile.dev]\nopt-level = 0\ndebug = \"line-tables-only\"\n";

/// Packs, unpacks, builds, runs.
pub(crate) fn run() -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let published = published(&metadata)?;
    let target = workspace::target_folder()?;
    pack(&published)?;
    // Not below the root, whose workspace cargo would take them for. The same folder each time, so
    // that what is compiled of it replaces what was.
    let mut hasher = DefaultHasher::new();
    workspace::root().hash(&mut hasher);
    let folder = env::temp_dir().join(format!("coreline-packed-{:x}", hasher.finish()));
    let _ = fs::remove_dir_all(&folder);
    let done = build(&published, &target, &folder);
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
    // Built below, all of them together. Changes that are not committed must be checked, too.
    let mut cargo = workspace::cargo(&["package", "--quiet", "--no-verify", "--allow-dirty"]);
    for (name, _) in published {
        cargo.args(["--package", name]);
    }
    println!("{}", workspace::line(&cargo));
    workspace::run(&mut cargo)
}

fn build(published: &[Published<'_>], target: &Path, folder: &Path) -> Result<(), Error> {
    let write = |path: PathBuf, text: &str| workspace::write(&path, text);
    let mut runs = Vec::new();
    for Page { file, reader, whole } in PAGES {
        let page = workspace::read(file)?;
        let dependencies = dependencies(&page).ok_or(Error::NoDependencies { file })?;
        let reader_folder = folder.join(reader);
        write(reader_folder.join("Cargo.toml"), &manifest_of_reader(reader, &dependencies))?;
        // A package has to have more than tests.
        write(reader_folder.join("src/lib.rs"), "")?;
        for (number, Program { text, kind }) in programs(&page, whole).into_iter().enumerate() {
            let folder = if kind == ProgramKind::Main { "src/bin" } else { "tests" };
            // Programs of all readers lie in one folder.
            let name = format!("{reader}-{number}");
            write(reader_folder.join(format!("{folder}/{name}.rs")), &text)?;
            runs.push((reader, name, kind));
        }
    }
    write(folder.join("Cargo.toml"), &manifest(published))?;
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
        // The workspace's own folder, for what was compiled of other packages.
        cargo.current_dir(folder).arg("--target-dir").arg(target);
        println!("{}", workspace::line(&cargo));
        workspace::run(&mut cargo)
    };
    // Together packages have features that one lacks which is built by itself.
    for Page { reader, .. } in &PAGES {
        cargo(&format!("check --quiet --package {reader} --all-targets"))?;
    }
    cargo("build --quiet --workspace --lib --bins")?;
    for (reader, name, kind) in &runs {
        match kind {
            // Not by cargo, which would compile all of it again for this one package's features.
            ProgramKind::Main => {
                let mut block = Command::new(target.join("debug").join(name));
                println!("{}", workspace::line(&block));
                workspace::run(&mut block)?;
            }
            ProgramKind::Test => cargo(&format!("test --quiet --package {reader} --test {name}"))?,
        }
    }
    install(published, folder, cargo)?;
    let pages = PAGES.map(|page| page.file).join(" and ");
    println!("packed: {} packages, {} programs of {pages}", published.len(), runs.len());
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

/// The workspace of what was unpacked: where it depends on a published package, it gets that.
fn manifest(published: &[Published<'_>]) -> String {
    let readers = PAGES.iter().map(|page| page.reader.to_owned());
    let packages = published.iter().map(|(name, version)| format!("{name}-{version}"));
    let members: Vec<_> = readers.chain(packages).collect();
    let mut text = format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n");
    text.push_str("\n[patch.crates-io]\n");
    for (name, version) in published {
        // Writing to a string does not fail, here and below.
        let _ = writeln!(text, "{name} = {{ path = \"{name}-{version}\" }}");
    }
    text + PROFILE
}

/// Without the profiles that a page gives: cargo takes those of a workspace's root alone.
fn manifest_of_reader(reader: &str, dependencies: &str) -> String {
    let mut is_profile = false;
    let kept = dependencies.lines().filter(|line| {
        is_profile = if line.starts_with('[') { line.starts_with("[profile.") } else { is_profile };
        !is_profile
    });
    let dependencies = kept.collect::<Vec<_>>().join("\n");
    format!("[package]\nname = \"{reader}\"\nedition = \"2024\"\n\n{dependencies}\n")
}

/// The texts of a page's fenced blocks in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let (mut blocks, mut open): (Vec<String>, Option<String>) = (Vec::new(), None);
    for line in page.lines() {
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

/// The dependencies that a page gives, with the profiles beside them.
fn dependencies(page: &str) -> Option<String> {
    let heads = ["[dependencies]\n", "[dev-dependencies]\n"];
    let is_it = |block: &String| heads.iter().any(|head| block.starts_with(head));
    blocks(page, "toml").into_iter().find(is_it)
}

/// A block that stands alone.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    text: String,
    kind: ProgramKind,
}

#[derive(Debug, PartialEq, Eq)]
enum ProgramKind {
    /// It has a `main`.
    Main,
    /// It has tests.
    Test,
}

/// The first this many programs and tests that a page gives. A block with neither is the inside of
/// a `main`, as it is for rustdoc.
fn programs(page: &str, whole: usize) -> Vec<Program> {
    let program = |text: String| match text.lines().any(|line| line.starts_with("#[test]")) {
        true => Program { text, kind: ProgramKind::Test },
        false if text.contains("fn main()") => Program { text, kind: ProgramKind::Main },
        false => Program { text: format!("fn main() {{\n{text}}}\n"), kind: ProgramKind::Main },
    };
    blocks(page, "rust").into_iter().take(whole).map(program).collect()
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
```rust
#[test]
fn f() {}
```
";

    #[test]
    fn the_blocks_of_a_readme_are_found() {
        assert_eq!(dependencies(README).as_deref(), Some("[dependencies]\nx = \"1\"\n"));
        let program = |text: &str, kind| Program { text: text.to_owned(), kind };
        let all = [
            program("fn main() {}\n", ProgramKind::Main),
            program("fn main() {\nassert!(true);\n}\n", ProgramKind::Main),
            program("#[test]\nfn f() {}\n", ProgramKind::Test),
        ];
        assert_eq!(programs(README, usize::MAX), all);
        assert_eq!(programs(README, 1), all[..1]);
        assert_eq!(dependencies("```toml\n[features]\n```\n"), None);
        assert_eq!(programs("```rust\nfn main() {}\n", 1), [], "no end");
    }

    #[test]
    fn a_readers_manifest_has_the_dependencies_of_its_page_and_no_profiles() {
        let page = "```toml\n[dev-dependencies]\nx = \"1\"\n\n[profile.dev]\nopt-level = 1\n```\n";
        let manifest = manifest_of_reader("r", &dependencies(page).expect("a block"));
        let head = "[package]\nname = \"r\"\nedition = \"2024\"\n\n";
        assert_eq!(manifest, format!("{head}[dev-dependencies]\nx = \"1\"\n\n"));
    }

    #[test]
    fn debug_information_is_that_of_the_workspace() {
        let root = workspace::read("Cargo.toml").expect("the manifest");
        let dev = root.split("[profile.dev]\n").nth(1).and_then(|it| it.split("\n[").next());
        let debug = PROFILE.lines().last().expect("a line");
        assert!(dev.is_some_and(|dev| dev.lines().any(|line| line == debug)));
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
    fn nine_packages_of_this_workspace_are_published() {
        let metadata = workspace::metadata().expect("cargo runs");
        let names: Vec<_> = published(&metadata).expect("cargo's format");
        let names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
        let nine = [
            "coreline-topology",
            "coreline-world",
            "coreline-sim-macros",
            "coreline-sim",
            "coreline",
            "coreline-parking-lot",
            "coreline-metrics",
            "coreline-scenarios",
            "coreline-lab",
        ];
        assert_eq!(names.len(), nine.len(), "{names:?}");
        assert!(nine.iter().all(|name| names.contains(name)), "{names:?}");
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
        assert!(programs(&readme, usize::MAX).len() > 1);
    }

    #[test]
    fn the_guide_begins_with_a_test() {
        let guide = workspace::read("docs/simulating.md").expect("the guide is there");
        assert!(dependencies(&guide).is_some_and(|it| it.contains("\ncoreline-sim = ")));
        assert!(programs(&guide, 1).iter().any(|it| it.kind == ProgramKind::Test));
    }
}
