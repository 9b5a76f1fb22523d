//! An interrupt from the keyboard: what was finished is there, and says that it is not all.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::{MACHINE, file};

/// The program with interrupts as a terminal starts it, however the tests were started.
fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_coreline")]).args(arguments);
    command.env("LC_ALL", "C").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Waits until the program notes interrupts: the kernel says which signals it catches.
fn wait_until_noted(child: &Child) {
    const INTERRUPT: u64 = 1 << (2 - 1);
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        if u64::from_str_radix(caught.trim(), 16).unwrap() & INTERRUPT != 0 {
            return;
        }
        assert!(!status.contains("State:\tZ"), "it ended before it noted interrupts");
        std::thread::yield_now();
    }
}

/// The exit code, and what was said after what was read of standard output.
fn rest(mut child: Child) -> (Option<i32>, String, String) {
    let [mut out, mut told] = [String::new(), String::new()];
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut out).unwrap();
    }
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    (child.wait().unwrap().code(), out, told)
}

const LONG: [&str; 5] = ["run", "intermittent", "--world", MACHINE, "--band"];

#[test]
fn an_interrupted_run_says_what_it_left_out() {
    for world in [&[][..], &LONG[2..]] {
        let child = start(&[&LONG[..2], world].concat());
        wait_until_noted(&child);
        interrupt(&child);
        let (code, out, told) = rest(child);
        assert_eq!(code, Some(130), "{out}{told}");
        let line = out.lines().find(|line| line.starts_with("interrupted: ")).unwrap();
        let counts: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(counts.len() == 2 && counts[0] < counts[1], "{out}");
        assert!(out.contains("was left out") && out.contains("again: coreline run"), "{out}");
        let others = told.lines().filter(|line| !line.ends_with(" left"));
        assert_eq!(others.filter(|line| line.contains("coreline:")).count(), 0, "{told}");
    }
}

/// A part would be taken for the whole.
#[test]
fn an_interrupt_leaves_no_part_of_a_result_as_json_or_in_a_file() {
    let old = file("interrupted.txt", "an earlier result");
    for more in [&["--json"][..], &["--out", old.to_str().unwrap()]] {
        let child = start(&[&LONG[..], more].concat());
        wait_until_noted(&child);
        interrupt(&child);
        let (code, out, told) = rest(child);
        assert_eq!((code, out.as_str()), (Some(130), ""), "{told}");
        assert!(told.contains("interrupted: nothing was written"), "{told}");
    }
    assert_eq!(std::fs::read_to_string(old).unwrap(), "an earlier result");
}

/// What was finished stays, and the same command goes on.
#[test]
fn an_interrupted_sweep_keeps_its_rows_and_goes_on() {
    let spec = "scenario = \"lockscale\"\nmachine = \"host-2c\"\nseed = \"0..3000\"\nquick = true\n\
                params = { threads = 2 }";
    let spec = file("interrupted-sweep.toml", spec);
    let store = spec.with_extension("rows");
    let _ = std::fs::remove_dir_all(&store);
    let arguments = ["sweep", spec.to_str().unwrap(), "--store", store.to_str().unwrap(), "--json"];
    let child = start(&arguments);
    wait_until_noted(&child);
    interrupt(&child);
    let (code, out, told) = rest(child);
    assert_eq!(code, Some(130), "{out}{told}");
    let swept: serde_json::Value = serde_json::from_str(&out).unwrap();
    let now = swept["now"].as_u64().unwrap();
    assert!(swept["interrupted"] == true && now < swept["cells"].as_u64().unwrap(), "{out}");
    // The rest of it, which is no part of this test, would take a minute.
    let child = start(&arguments);
    wait_until_noted(&child);
    interrupt(&child);
    let (_, out, _) = rest(child);
    let swept: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(swept["before"].as_u64(), Some(now), "{out}");
}

#[test]
fn an_interrupted_first_page_keeps_the_rows_that_are_there() {
    let mut child = start(&[]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut before = String::new();
    // The first change's second line.
    for line in lines.by_ref().map(Result::unwrap) {
        before += &format!("{line}\n");
        if line.starts_with("  recent-ids: ") {
            break;
        }
    }
    interrupt(&child);
    let after: Vec<String> = lines.map(Result::unwrap).collect();
    let (code, _, told) = rest(child);
    assert_eq!(code, Some(130), "{before}{after:?}{told}");
    let said = after.join(" ");
    assert!(said.contains("interrupted: ") && said.contains(" of 5 changes were run"), "{said}");
    assert!(said.contains("the rest is left out"), "{said}");
    assert!(!said.contains("Next: "), "{said}");
}
