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

/// The test programs, and the libraries that they load.
pub(crate) fn tests(target: Target) -> Result<(Vec<Program>, Vec<PathBuf>), Error> {
    let line = format!("test --no-run --message-format json-render-diagnostics {NATIVE_PACKAGES}");
    let messages = workspace::output(&mut target.cargo(&line)?)?;
    let mut tests = programs(&messages, |message| message["profile"]["test"] == true);
    // Cargo names them in the order in which it finished them.
    tests.sort_by(|one, other| one.name.cmp(&other.name));
    Ok((tests, libraries(&messages)))
}

pub(crate) fn doctor(target: Target) -> Result<Program, Error> {
    let line = "build --message-format json-render-diagnostics -p coreline-lab --bin coreline";
    let messages = workspace::output(&mut target.cargo(line)?)?;
    let program = programs(&messages, |message| message["target"]["name"] == "coreline").pop();
    program.ok_or_else(|| Error::Missing {
        what: "the program `coreline` among what cargo built".to_owned(),
        remedy: "coreline-lab must have a binary of that name".to_owned(),
    })
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
        assert_eq!(tests, [expected]);
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
