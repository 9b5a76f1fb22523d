//! `scale`: what a baseline has passes, and what is slower, new, gone or other fails. The curves
//! come from a folder here. The nightly step `gate` runs the tests of a package.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{coreline, file};

/// A curve of a package, with the throughput at both points for 1, 8 and 64 threads.
fn record(name: &str, rates: [[f64; 2]; 3]) -> String {
    let rows = [1, 8, 64].iter().zip(rates).map(|(threads, [first, second])| {
        format!(
            "[[rows]]\nthreads = {threads}\nrates = [{first:e}, {second:e}]\n\
             replay = \"coreline-sim/1 machine=host-2c seed=1 request=30 faults=none \
             program={name} threads={threads}\"\n[rows.hottest]\nnames = [\"shard\"]\n\
             file = \"src/hits.rs\"\nline = {threads}\nshare = 0.5\n\
             shared_with = [\"src/hits.rs:9\"]\n"
        )
    });
    let to = if rates == SLOW { 1 } else { 64 };
    format!(
        "schema = \"scale-record/1\"\nsimulator = \"0.1.0\"\npackage = \"p\"\n\
         test = \"t::{name}\"\nname = \"{name}\"\nmachine = \"host-2c\"\n\
         band = \"00ff\"\nscales_to = {to}\n{}",
        rows.collect::<String>()
    )
}

const GOOD: [[f64; 2]; 3] = [[1e6, 1e6], [8e6, 7e6], [6.4e7, 6e7]];

/// From 8 threads on.
const SLOW: [[f64; 2]; 3] = [[1e6, 1e6], [4e6, 3e6], [1e6, 1e6]];

/// An empty folder with these files, and the path of a baseline that is not there.
fn folder(name: &str, records: &[String]) -> (PathBuf, PathBuf) {
    let folder = file(name, "");
    fs::remove_file(&folder).unwrap();
    _ = fs::remove_dir_all(folder.with_extension("curves"));
    let curves = folder.with_extension("curves");
    fs::create_dir(&curves).unwrap();
    put(&curves, records);
    (curves, folder.with_extension("toml"))
}

fn put(folder: &Path, records: &[String]) {
    for (number, record) in records.iter().enumerate() {
        fs::write(folder.join(format!("{number}.toml")), record).unwrap();
    }
}

/// The exit code, and what was said on standard output and error.
fn scale((curves, baseline): &(PathBuf, PathBuf), more: &[&str]) -> (i32, String, String) {
    let [curves, baseline] = [curves, baseline].map(|path| path.to_str().unwrap());
    let arguments = [&["scale", "--from", curves, "--baseline", baseline], more].concat();
    let output = coreline(&arguments).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    (output.status.code().unwrap(), out, err)
}

fn blessed(name: &str) -> (PathBuf, PathBuf) {
    let at = folder(name, &[record("a", GOOD), record("b", GOOD)]);
    _ = fs::remove_file(&at.1);
    let (code, out, _) = scale(&at, &["--bless", "the first"]);
    assert_eq!((code, out.lines().next()), (0, Some("2 curves blessed")));
    at
}

#[test]
fn what_was_blessed_passes_and_keeps_its_bytes() {
    let at = blessed("scale_same");
    let (code, out, _) = scale(&at, &[]);
    assert_eq!(code, 0, "{out}");
    assert!(out.starts_with("2 curves: none is worse than its baseline\n"), "{out}");
    let text = fs::read_to_string(&at.1).unwrap();
    scale(&at, &["--bless", "another reason"]);
    assert_eq!(fs::read_to_string(&at.1).unwrap(), text, "a curve that is the same has its reason");
    // As fast in all, but one thread is slower than the others now.
    put(&at.0, &[record("a", GOOD).replace("scales_to = 64", "scales_to = 8")]);
    scale(&at, &["--bless", "less fair"]);
    let less_fair = text.replacen("the first", "less fair", 1).replacen("= 64\n", "= 8\n", 1);
    assert_eq!(fs::read_to_string(&at.1).unwrap(), less_fair);
}

#[test]
fn a_curve_that_falls_fails_with_its_place_and_the_command_for_more() {
    let at = blessed("scale_slower");
    put(&at.0, &[record("a", SLOW)]);
    let [markdown, junit, svg, png] =
        ["scale.md", "scale.xml", "scale.svg", "scale.png"].map(|name| file(name, ""));
    let mut more = vec!["--github"];
    for (option, path) in
        [("--markdown", &markdown), ("--junit", &junit), ("--svg", &svg), ("--png", &png)]
    {
        more.extend([option, path.to_str().unwrap()]);
    }
    let (code, out, err) = scale(&at, &more);
    assert_eq!((code, err.as_str()), (1, "coreline: 1 curve fails the gate\n"));
    let says = "slower from 8 threads on (0.50 times). It scaled to 64 threads, and scales to 1";
    let joined = out.replace('\n', " ");
    for part in ["1 of 2 curves fails", says, "src/hits.rs:8", "CORELINE_REPLAY='coreline-sim/1"] {
        assert!(joined.contains(part), "no {part:?} in {out}");
    }
    // A command has no line breaks in its words.
    let is_whole = |line: &str| line.starts_with("::") || line.contains("CORELINE_REPLAY");
    assert!(out.lines().all(|line| line.len() <= 80 || is_whole(line)), "{out}");
    assert!(
        out.contains("\n::error file=src/hits.rs,line=8,title=Scaling::a (p, host-2c): slower")
    );
    let [markdown, junit, svg] = [markdown, junit, svg].map(|it| fs::read_to_string(it).unwrap());
    assert!(markdown.starts_with("### Scaling: 1 of 2 curves fails\n"), "{markdown}");
    assert!(markdown.contains(says) && markdown.contains("src/hits.rs:8"), "{markdown}");
    assert!(junit.contains("tests=\"2\" failures=\"1\"") && junit.contains(says), "{junit}");
    assert!(svg.contains("a (host-2c), before") && svg.contains("a (host-2c), now"), "{svg}");
    assert!(fs::read(png).unwrap().starts_with(b"\x89PNG"));

    let (code, out, _) = scale(&at, &["--tolerance", "99"]);
    assert_eq!(code, 0, "{out}");
}

#[test]
fn the_object_has_what_the_text_has() {
    let at = blessed("scale_json");
    put(&at.0, &[record("a", SLOW)]);
    let (code, out, _) = scale(&at, &["--json"]);
    let gate: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &gate["failing"]), (1, &1.into()));
    let curve = &gate["curves"][0];
    assert_eq!((&curve["verdict"], &curve["from"]), (&"worse".into(), &8.into()));
    assert_eq!(curve["rows"][1]["ratio"], serde_json::json!([0.5, 0.42857142857142855, 0.5]));
    crate::fields::assert_listed(&gate);
}

#[test]
fn curves_that_are_new_gone_or_other_fail() {
    let at = blessed("scale_other");
    let other = record("b", GOOD).replace("00ff", "0001");
    for (second, partial, says, fails) in [
        (record("c", GOOD), false, "2 of 3 curves fail", true),
        (record("c", GOOD), true, "1 of 2 curves fails", true),
        (record("a", GOOD).replace("\"a\"", "\"b\""), true, "2 curves: none is worse", false),
        (other, false, "1 of 2 curves fails", true),
        (record("b", GOOD).replace("0.1.0", "0.0.9"), false, "fail", true),
    ] {
        put(&at.0, &[record("a", GOOD), second]);
        let (code, out, _) = scale(&at, if partial { &["--partial"] } else { &[] });
        assert_eq!(code, i32::from(fails), "{out}");
        assert!(out.contains(says), "no {says:?} in {out}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let at = blessed("scale_wrong");
    let twice = [record("a", GOOD), record("a", SLOW)];
    for (records, more, code, says) in [
        (&twice[..], &[][..], 2, "two curves of the package p are named \"a\" on host-2c"),
        (&["schema = 3".to_owned()], &[], 2, "is not a record of a curve"),
        (&[], &["--bless", " "], 2, "the reason is empty"),
        (
            &[record("a", GOOD).replace("0.1.0", "0.0.9"), record("b", GOOD)],
            &["--partial", "--bless", "again"],
            2,
            "bless all curves at once",
        ),
        (&[], &["--tolerance", "100"], 2, "a number from 0 to less than 100"),
        (&[], &["--", "-p", "p"], 2, "cannot be used with"),
    ] {
        put(&at.0, records);
        let (ended, _, err) = scale(&at, more);
        assert_eq!(ended, code, "{err}");
        assert!(err.contains(says), "no {says:?} in {err}");
    }
    fs::write(&at.1, "format = 7\nsimulator = \"\"\n").unwrap();
    put(&at.0, &[record("a", GOOD), record("b", GOOD)]);
    let (code, _, err) = scale(&at, &[]);
    assert_eq!(code, 2);
    assert!(err.contains("is not a baseline: its format is 7"), "{err}");
    let empty = folder("scale_empty", &[]);
    let (code, _, err) = scale(&empty, &[]);
    assert_eq!(code, 1);
    assert!(err.contains("no test measured a curve"), "{err}");
}

/// The program that Cargo calls gives its arguments to the other one.
#[test]
fn cargo_finds_its_subcommand() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_cargo-coreline"))
        .args(["coreline", "scale", "--help"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("--bless"), "{said}");
}
