//! The verb `port`, on two packages that the registry has: what is ported compiles, runs in a
//! machine, and is charged.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

use crate::{coreline, json, refusal};

/// The packages, with one that the first needs.
const PACKAGES: [&str; 3] = ["crossbeam-queue", "crossbeam-utils", "arc-swap"];

/// The workspace.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Threads share a queue and a pointer; both move from CPU to CPU, and nothing is lost. In a
/// second run statics begin anew, so that both are the same.
const PROGRAM: &str = r#"
use arc_swap::ArcSwap;
use coreline_sim::sync::Arc;
use coreline_sim::{Allocator, Machine, thread};
use crossbeam_queue::{ArrayQueue, SegQueue};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn program() -> usize {
    let array = ArrayQueue::new(64);
    let list = SegQueue::new();
    let swap = ArcSwap::from_pointee(0_usize);
    thread::scope(|scope| {
        for n in 0..8 {
            let (array, list, swap) = (&array, &list, &swap);
            scope.spawn(move || {
                for _ in 0..20 {
                    while array.push(n).is_err() {}
                    list.push(array.pop().unwrap_or(n));
                    swap.store(Arc::new(**swap.load() + n));
                }
            });
        }
    });
    assert!(**swap.load() > 0);
    array.len() + list.len()
}

fn main() {
    let machine = || Machine::preset("epyc-9654-2s").unwrap().seed(3);
    let [one, two] = [(); 2].map(|()| machine().run(program).unwrap());
    assert_eq!(one.report.time_ns, two.report.time_ns);
    println!("{} {} {}", one.value, one.report.transfers.misses(), one.report.transfers.total());
}
"#;

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("port").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    folder
}

/// The cargo that runs the tests, or the one on the PATH: that which compiled them may be another
/// user's.
fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The folders of the packages that this workspace is built with, as cargo has them.
fn sources() -> Vec<String> {
    // Of this host alone: what other systems need, cargo may not have fetched.
    let rustc = Command::new("rustc").arg("-vV").current_dir(ROOT).output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let cargo = cargo()
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", host])
        .current_dir(ROOT)
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    let all = metadata["packages"].as_array().unwrap();
    let of = |name: &&str| {
        let package = all.iter().find(|it| it["name"] == *name).unwrap();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        manifest.parent().unwrap().to_str().unwrap().to_owned()
    };
    PACKAGES.iter().map(of).collect()
}

#[test]
fn two_packages_of_the_registry_run_on_a_machine_once_they_are_ported() {
    let (sources, out) = (sources(), folder("ported"));
    let sim = format!("{ROOT}/crates/sim");
    let mut arguments: Vec<&str> = vec!["port"];
    arguments.extend(sources.iter().map(String::as_str));
    arguments.extend(["--sim", &sim, "--json", "--out", out.to_str().unwrap()]);
    let told = coreline(&arguments).output().unwrap();
    let result: Value = serde_json::from_slice(&told.stdout).unwrap();
    let packages = result["packages"].as_array().unwrap();
    assert_eq!(packages.len(), PACKAGES.len());
    // crossbeam-queue: nothing is left, and what it needs is ported, too.
    let queue = &packages[0];
    assert!(queue["files"].as_array().unwrap().iter().all(|it| it["left"] == Value::Array(vec![])));
    assert_eq!(queue["dependencies"][0]["ported"], true);

    // Nothing of it is ours: it lies under the target directory, and cargo has fetched it.
    let program = folder("program");
    fs::create_dir_all(program.join("src")).unwrap();
    fs::write(program.join("src/main.rs"), PROGRAM).unwrap();
    fs::copy(format!("{ROOT}/Cargo.lock"), program.join("Cargo.lock")).unwrap();
    let manifest = format!(
        "[package]\nname = \"program\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\narc-swap = \"1\"\ncrossbeam-queue = \"0.3\"\n\
         coreline-sim = {{ path = {sim:?} }}\n\n{}\n[profile.dev]\ndebug = false\n",
        result["patch"].as_str().unwrap(),
    );
    fs::write(program.join("Cargo.toml"), manifest).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("port").join("target");
    let run = cargo()
        .args(["run", "--quiet", "--offline", "--target-dir"])
        .arg(target)
        .current_dir(&program)
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let figures: Vec<u64> = text.split_whitespace().map(|it| it.parse().unwrap()).collect();
    let [held, moved, accesses] = figures[..] else { panic!("{text}") };
    assert_eq!(held, 160);
    // Eight threads that share three things: most operations have to fetch a line.
    assert!(moved > 500 && accesses > 5000, "{text}");
}

/// A link, which only a system's own part of std makes.
pub(crate) fn link(to: &str, at: &Path) {
    assert!(Command::new("ln").args(["-s", to]).arg(at).status().unwrap().success());
}

/// A made-up package with one file.
pub(crate) fn package(name: &str, source: &str) -> String {
    let folder = folder(name);
    fs::create_dir_all(folder.join("src")).unwrap();
    let manifest = "[package]\nname = \"made-up\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
                    [dependencies]\ncrossbeam-utils = \"0.8\"\n";
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.join("src/lib.rs"), source).unwrap();
    folder.to_str().unwrap().to_owned()
}

#[test]
fn a_check_writes_nothing_and_the_exit_code_says_whether_something_was_left() {
    let whole = package("whole", "pub use std::sync::Arc;\n");
    let result = json(&["port", &whole, "--check", "--json"]);
    assert_eq!((&result["left"], &result["patch"]), (&Value::from(0), &Value::Null));
    let change = &result["packages"][0]["files"][0]["changes"][0];
    assert_eq!(change["to"], "coreline_sim::sync::Arc");
    let source = fs::read_to_string(Path::new(&whole).join("src/lib.rs")).unwrap();
    assert_eq!(source, "pub use std::sync::Arc;\n");

    let part = package("part", "pub static mut N: u8 = 0;\n");
    let (code, told) = refusal(&["port", &part, "--check"]);
    assert!(code == 1 && told.contains("1 source location left as it was"), "{code}: {told}");
}

#[test]
fn copies_lie_outside_of_what_is_copied() {
    let whole = package("outside", "pub use std::sync::Arc;\n");
    let linked = format!("{whole}-linked");
    let _ = fs::remove_file(&linked);
    link(&whole, Path::new(&linked));
    for out in ["", "/src", "/src/new", "/../outside-linked/src", "/new/../src"] {
        let out = format!("{whole}{out}");
        let (code, told) = refusal(&["port", &whole, "--out", &out]);
        assert!(code == 2 && told.contains("--out"), "{out}: {code}: {told}");
        assert!(!Path::new(&out).join("made-up").exists(), "{out}");
    }
}

#[test]
fn what_is_no_file_is_skipped_and_what_is_no_text_is_copied_as_it_is() {
    let whole = package("strange", "pub use std::sync::Arc;\n");
    let (root, out) = (Path::new(&whole), folder("strange-copies"));
    for (to, at) in [(".", "one"), (".", "src/two"), ("lib.rs", "src/linked.rs")] {
        link(to, &root.join(at));
    }
    assert!(Command::new("mkfifo").arg(root.join("src/pipe.rs")).status().unwrap().success());
    let latin = b"// \n// \xe4\nfn f() { std::thread::park() }\n";
    fs::write(root.join("src/latin.rs"), latin).unwrap();
    let told = coreline(&["port", &whole, "--json", "--out", out.to_str().unwrap()]).output();
    let result: Value = serde_json::from_slice(&told.unwrap().stdout).unwrap();
    let package = &result["packages"][0];
    let notes = package["notes"].to_string();
    for name in ["one", "src/two", "src/linked.rs", "src/pipe.rs"] {
        assert!(notes.contains(&format!("{name}: neither")), "{name}: {notes}");
        assert!(!out.join("made-up").join(name).exists(), "{name}");
    }
    let files = package["files"].as_array().unwrap();
    let file = files.iter().find(|it| it["path"] == "src/latin.rs").unwrap();
    assert_eq!((&file["left"][0]["line"], &result["left"]), (&2.into(), &1.into()));
    assert_eq!(fs::read(out.join("made-up/src/latin.rs")).unwrap(), latin);
}

#[test]
fn what_cannot_be_ported_is_a_usage_error_that_says_why() {
    let good = package("good", "");
    let bad = package("bad", "\nfn f( {\n");
    let out = folder("there");
    fs::create_dir_all(out.join("made-up")).unwrap();
    let out = out.to_str().unwrap();
    for (arguments, what) in [
        (&["port", out, "--check"][..], "has no Cargo.toml"),
        (&["port", &bad, "--check"], "src/lib.rs:"),
        (&["port", &good, "--out", out], "already exists"),
        (&["port", &good, &good, "--check"], "made-up is named twice"),
        (&["port", &good, "--check", "--sim", out], "--sim"),
        (&["port", &good], "--out"),
        (&["port", &good, "--out", out, "--check"], "--check"),
    ] {
        let (code, told) = refusal(arguments);
        assert!(code == 2 && told.contains(what), "{arguments:?}: {code}: {told}");
    }
}
