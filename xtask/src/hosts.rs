//! `cargo xtask hosts`: the tests on hosts that are not like this one.
//!
//! No test may depend on the host's name, its CPUs or caches, the user that runs it, or that user's
//! home. Each made-up host is a few lines of shell, which run in a mount namespace
//! of their own before each test program: root alone may make one. Tests that run in no native
//! world are left out, as they see nothing of the host.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::Error;
use crate::target::{NOT_NATIVE, require};
use crate::workspace;

/// A host that this one is made to look like.
struct Host {
    name: &'static str,
    /// What a shell does before it runs a test program, which is `"$@"`. `$SCRATCH` is a folder
    /// with the file `cpuinfo`, `$TMP` the one that tests write to.
    setup: &'static str,
}

const HOSTS: [Host; 6] = [
    // A processor with a name of 200 characters, some of which mean something elsewhere.
    Host {
        name: "long-name",
        setup: r#"mount --bind "$SCRATCH/cpuinfo" /proc/cpuinfo; exec "$@""#,
    },
    Host {
        name: "other-user",
        // What cargo has lies in root's home, where root alone may look: another folder takes its
        // place, which has that and nothing else. So the checkout must not lie there.
        setup: r#"mount -t tmpfs -o mode=1777 tmpfs "$TMP"
                  mkdir "$TMP/cargo" "$TMP/rustup"
                  export CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}"
                  export RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}"
                  mount --bind "$CARGO_HOME" "$TMP/cargo"
                  mount --bind "$RUSTUP_HOME" "$TMP/rustup"
                  mount -t tmpfs -o mode=755 tmpfs "$HOME"
                  mkdir -p "$CARGO_HOME" "$RUSTUP_HOME"
                  mount --bind "$TMP/cargo" "$CARGO_HOME"
                  mount --bind "$TMP/rustup" "$RUSTUP_HOME"
                  export HOME="$TMP" CARGO_TARGET_DIR="$TMP/target"
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@""#,
    },
    Host { name: "homeless", setup: r#"unset HOME USER LOGNAME; exec "$@""# },
    // Another language, time zone and terminal.
    Host {
        name: "abroad",
        setup: r#"export LANG=tr_TR.ISO-8859-9 LC_ALL=tr_TR.ISO-8859-9 LANGUAGE=tr
                  export TZ=Pacific/Chatham TERM=dumb COLUMNS=40 CLICOLOR_FORCE=1
                  exec "$@""#,
    },
    // A container that shows nothing of the machine.
    Host { name: "no-sys", setup: r#"mount -t tmpfs tmpfs /sys; exec "$@""# },
    Host { name: "one-cpu", setup: r#"exec taskset --cpu-list "$CPU" "$@""# },
];

#[derive(clap::Args)]
pub(crate) struct Choice {
    /// On these alone
    #[arg(value_name = "HOST")]
    hosts: Vec<String>,
}

/// Compiles the tests here, and runs them on each host; goes on after a failure.
pub(crate) fn run(choice: &Choice) -> Result<(), Error> {
    let all = HOSTS.map(|host| host.name);
    if let Some(asked) = choice.hosts.iter().find(|asked| !all.contains(&asked.as_str())) {
        return Err(Error::NoHost { asked: asked.clone(), all: all.join(", ") });
    }
    for (program, package) in [("unshare", "util-linux"), ("setpriv", "util-linux")] {
        require(program, &format!("install {package}"))?;
    }
    let programs = programs()?;
    let target = workspace::target_folder()?;
    let scratch = target.join("hosts");
    let info = fs::read_to_string("/proc/cpuinfo")
        .map_err(|source| Error::Read { path: "/proc/cpuinfo".into(), source })?;
    workspace::write(&scratch.join("cpuinfo"), &renamed(&info))?;
    let mut failed = Vec::new();
    let chosen =
        |host: &&Host| choice.hosts.is_empty() || choice.hosts.iter().any(|it| it == host.name);
    for Host { name, setup } in HOSTS.iter().filter(chosen) {
        for (program, folder) in &programs {
            let shell = ["--mount", "sh", "-ec", setup, "sh"];
            let mut unshare = workspace::command("unshare", &shell);
            unshare.arg(program).arg("--quiet").current_dir(folder);
            unshare.args(NOT_NATIVE.iter().flat_map(|part| ["--skip", part]));
            unshare
                .env("SCRATCH", &scratch)
                .env("TMP", target.join("tmp"))
                .env("CPU", last_cpu(&info));
            let called = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
            println!("\n==> {name}: {called}");
            if workspace::run(&mut unshare).is_err() {
                failed.push(format!("{name}: {called}"));
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::Hosts(failed.join("\n  "))) }
}

/// The test programs, each with the folder that it runs in.
fn programs() -> Result<Vec<(PathBuf, PathBuf)>, Error> {
    // The claims of scenarios are simulated.
    let line = "test --workspace --exclude coreline-scenarios --no-run --message-format json";
    let built = workspace::output(&mut workspace::cargo(&line.split(' ').collect::<Vec<_>>()))?;
    let messages = built.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let mut programs = Vec::new();
    for message in messages {
        let message: Value =
            serde_json::from_slice(message).map_err(|_| Error::Metadata { what: "JSON" })?;
        let is_test = message["profile"]["test"] == true;
        if let (true, Some(program)) = (is_test, message["executable"].as_str()) {
            let manifest = message["manifest_path"].as_str().map(Path::new).and_then(Path::parent);
            let folder = manifest.ok_or(Error::Metadata { what: "manifest's path" })?;
            programs.push((PathBuf::from(program), folder.to_owned()));
        }
    }
    Ok(programs)
}

/// What the kernel says of the processors, with another name of 200 characters.
fn renamed(info: &str) -> String {
    let name: String =
        "Processor \"of\" <200> |characters| ü $HOME % ".chars().cycle().take(200).collect();
    let line = |line: &str| match line.split_once(':') {
        Some((key, _)) if key.trim() == "model name" => format!("{key}: {name}\n"),
        _ => format!("{line}\n"),
    };
    info.lines().map(line).collect()
}

/// The number of the last CPU.
fn last_cpu(info: &str) -> String {
    let mut numbers = info.lines().filter_map(|line| line.split_once(':'));
    let last = numbers.rfind(|(key, _)| key.trim() == "processor");
    last.map_or_else(|| "0".to_owned(), |(_, number)| number.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_renamed_and_nothing_else() {
        let info = "processor\t: 0\nmodel name\t: AMD EPYC\n\nprocessor\t: 11\nmodel name\t: x\n";
        let renamed = renamed(info);
        assert_eq!(renamed.lines().count(), info.lines().count());
        let names = renamed.lines().filter_map(|line| line.strip_prefix("model name\t: "));
        assert!(names.clone().count() == 2 && names.clone().all(|it| it.chars().count() == 200));
        assert_eq!(last_cpu(info), "11");
        assert_eq!(last_cpu(&renamed), "11");
        assert_eq!(last_cpu(""), "0");
    }
}
