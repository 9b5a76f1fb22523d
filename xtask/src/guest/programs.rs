//! The programs that a guest runs: tests of chosen packages, and `coreline doctor`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::Error;
use crate::target::{NATIVE_PACKAGES, Target};
use crate::workspace;

/// A program, as cargo built it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Folder of its package and name of its target, such as `world/native_switch`.
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    /// The folder of its package: where cargo would run a test.
    pub(crate) folder: PathBuf,
}

/// All that a guest runs.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) doctor: PathBuf,
    pub(crate) tests: Vec<Program>,
    /// The libraries that tests load.
    pub(crate) libraries: Vec<PathBuf>,
}

impl Built {
    /// Builds it.
    pub(crate) fn new(target: Target) -> Result<Built, Error> {
        let format = "--no-run --message-format json-render-diagnostics";
        let (tests, doctor) = if target.is_host() {
            // What the tests of the whole workspace were built with: another choice of packages has
            // other features, and would compile most of it again.
            let line = format!("test --workspace {format}");
            let words: Vec<&str> = line.split(' ').collect();
            let all = workspace::output(&mut workspace::cargo(&words))?;
            (all.clone(), all)
        } else {
            let tests = target.cargo(&format!("test {format} {NATIVE_PACKAGES}"))?;
            let line =
                "build --message-format json-render-diagnostics -p coreline-lab --bin coreline";
            (workspace::output(&mut { tests })?, workspace::output(&mut target.cargo(line)?)?)
        };
        let is_doctor =
            |it: &Value| it["profile"]["test"] == false && it["target"]["name"] == "coreline";
        let doctor = programs(&doctor, is_doctor).pop().ok_or_else(|| Error::Missing {
            what: "the program `coreline` among what cargo built".to_owned(),
            remedy: "coreline-lab must have a binary of that name".to_owned(),
        })?;
        let libraries = libraries(&tests);
        let mut tests = programs(&tests, |it| it["profile"]["test"] == true);
        tests.retain(Program::is_native);
        // Cargo names them in the order in which it finished them.
        tests.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Built { doctor: doctor.file, tests, libraries })
    }
}

impl Program {
    /// Whether it is of one of the packages whose tests a guest runs. A package's folder has its
    /// name, less what all their names begin with.
    fn is_native(&self) -> bool {
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let mut packages = NATIVE_PACKAGES.split(' ').filter(|word| *word != "-p");
        packages.any(|name| name.strip_prefix("coreline-").unwrap_or(name) == folder)
    }
}

/// The programs among what cargo built, as far as they are wanted.
fn programs(messages: &[u8], wanted: impl Fn(&Value) -> bool) -> Vec<Program> {
    let program = |line: &[u8]| {
        let message: Value = serde_json::from_slice(line).ok().filter(&wanted)?;
        let file = Path::new(message["executable"].as_str()?);
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        let package = folder.file_name()?.to_string_lossy();
        Some(Program {
            name: format!("{package}/{}", message["target"]["name"].as_str()?),
            file: file.to_owned(),
            folder: folder.to_owned(),
        })
    };
    messages.split(|&byte| byte == b'\n').filter_map(program).collect()
}

/// The libraries among what cargo built that a program may load while it runs.
fn libraries(messages: &[u8]) -> Vec<PathBuf> {
    let files = |line: &[u8]| {
        let message: Value = serde_json::from_slice(line).ok()?;
        let loadable = message["target"]["kind"].as_array()?.contains(&"cdylib".into());
        let files = message["filenames"].as_array().filter(|_| loadable)?;
        Some(files.iter().filter_map(Value::as_str).map(PathBuf::from).collect::<Vec<_>>())
    };
    let files = messages.split(|&byte| byte == b'\n').filter_map(files).flatten();
    files.filter(|file| file.extension().is_some_and(|end| end == "so")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_are_found_among_cargos_messages() {
        let message = |name: &str, test: bool, executable: Option<&str>| {
            json!({
                "reason": "compiler-artifact",
                "manifest_path": "/r/crates/world/Cargo.toml",
                "target": { "name": name },
                "profile": { "test": test },
                "executable": executable,
            })
        };
        let messages = [
            message("coreline_world", false, None),
            message("native_switch", true, Some("/r/target/native_switch-0")),
            message("example", false, Some("/r/target/example-0")),
            json!({ "reason": "build-finished", "success": true }),
        ];
        let text = messages.map(|message| message.to_string()).join("\n") + "\nnot json\n";
        let tests = programs(text.as_bytes(), |message| message["profile"]["test"] == true);
        let expected = Program {
            name: "world/native_switch".to_owned(),
            file: "/r/target/native_switch-0".into(),
            folder: "/r/crates/world".into(),
        };
        assert!(expected.is_native());
        assert_eq!(tests, [expected]);
        let lab =
            Program { name: String::new(), file: "/a".into(), folder: "/r/crates/lab".into() };
        assert!(!lab.is_native());
    }

    #[test]
    fn libraries_to_load_are_found_among_cargos_messages() {
        let message = |kinds: &[&str], files: &[&str]| {
            json!({ "target": { "kind": kinds }, "filenames": files }).to_string()
        };
        let messages = [
            message(&["lib"], &["/r/target/deps/libworld.rlib"]),
            message(&["cdylib", "rlib"], &["/r/deps/libplugin.so", "/r/deps/libplugin.rlib"]),
            message(&["proc-macro"], &["/r/target/deps/libderive.so"]),
        ];
        let found = libraries(messages.join("\n").as_bytes());
        assert_eq!(found, [PathBuf::from("/r/deps/libplugin.so")]);
    }
}
