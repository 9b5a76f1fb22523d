//! The verb `stat`. This process publishes, and the program shows that.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{env, process, thread};

use coreline::stat::page::Page;
use coreline::stat::{Stats, Values};
use serde_json::Value;

use crate::{coreline, fields};

/// The folder of a test, which is empty.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn stat(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = coreline(&[&["stat"], arguments].concat());
    command.env("CORELINE_STAT_DIR", folder).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output = stat(folder, arguments);
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The test of this name in a process of its own, which publishes.
fn again(test: &str, folder: &Path) -> Command {
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["--exact", test]).env("CORELINE_STAT_DIR", folder).env("STAT_AGAIN", "1");
    again
}

fn is_again() -> bool {
    env::var_os("STAT_AGAIN").is_some()
}

struct Requests(u64);

impl Stats for Requests {
    const KIND: &'static str = "server";

    fn put(&self, to: &mut Values<'_>) {
        to.count("requests", self.0);
        to.level("open", 2);
    }
}

#[test]
fn each_form_shows_what_a_process_publishes() {
    let test = "stat::each_form_shows_what_a_process_publishes";
    if !is_again() {
        let folder = folder("stat-forms");
        let run = again(test, &folder).output().unwrap();
        assert!(run.status.success(), "{run:?}");
        return;
    }
    let folder = PathBuf::from(env::var_os("CORELINE_STAT_DIR").unwrap());
    let published = coreline::stat::publish("forms").unwrap();
    published.add("http", || Some(Requests(1234)));
    published.refresh().unwrap();
    let pid = process::id().to_string();

    for target in [pid.as_str(), "forms"] {
        let shown = text(&stat(&folder, &[target]));
        assert!(shown.starts_with(&format!("forms (process {pid}): ")), "{shown}");
        assert!(shown.contains("requests") && shown.contains("1,234"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    }
    let listed = text(&stat(&folder, &[]));
    assert!(listed.starts_with("1 process publishes.") && listed.contains(&pid), "{listed}");

    let report: Value = serde_json::from_str(&text(&stat(&folder, &["forms", "--json"]))).unwrap();
    fields::assert_listed(&report);
    let process = &report["processes"][0];
    assert_eq!((&process["name"], &process["pid"]), (&"forms".into(), &process::id().into()));
    let values = process["values"].as_array().unwrap();
    let requests = values.iter().find(|it| it["name"] == "requests").unwrap();
    assert_eq!((&requests["value"], &requests["level"]), (&1234.into(), &false.into()));

    let page = text(&stat(&folder, &["--prometheus"]));
    let line = format!(
        "# TYPE coreline_server_requests_total counter\n\
         coreline_server_requests_total{{process=\"forms\",pid=\"{pid}\",object=\"http\"}} 1234\n"
    );
    assert!(page.contains(&line), "{page}");
    assert!(page.contains("coreline_locks_waits_total{"), "{page}");

    let (code, said) = refused(&folder, &["form"]);
    assert!(code == 2 && said.contains("did you mean forms?"), "{said}");

    // A later version, and a damaged page.
    let mine = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&mine).unwrap();
    let own = Page::from_bytes(&whole).unwrap();
    assert_eq!(own.name, "forms");
    // The thread of the publication would write the page again.
    drop(published);
    for (at, byte, what) in [(8, 9, "the page has version 9"), (200, 9, "the page is damaged")] {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        fs::write(&mine, bytes).unwrap();
        let (code, said) = refused(&folder, &[&pid]);
        assert!(code == 3 && said.contains(what), "{said}");
        assert!(text(&stat(&folder, &[])).contains(what));
    }
    fs::write(&mine, Page { pid: 1, ..own }.to_bytes()).unwrap();
    assert!(refused(&folder, &[&pid]).1.contains("it is that of another process"));
    // Larger than any page: no more than that is read.
    File::options().write(true).open(&mine).unwrap().set_len(1 << 40).unwrap();
    assert!(refused(&folder, &[&pid]).1.contains("the page is damaged"));
    fs::remove_file(&mine).unwrap();
    let (code, said) = refused(&folder, &[&pid]);
    assert!(code == 3 && said.contains("publishes nothing"), "{said}");
}

#[test]
fn a_program_that_was_run_shows_its_last_values() {
    let test = "stat::a_program_that_was_run_shows_its_last_values";
    if is_again() {
        let published = coreline::stat::publish("run").unwrap();
        published.add("http", || Some(Requests(77)));
        return drop(published);
    }
    let folder = folder("stat-run");
    let program = env::current_exe().unwrap();
    let run = |options: &[&str]| {
        let arguments = [options, &["--", program.to_str().unwrap(), "--exact", test]].concat();
        let mut command = coreline(&[&["stat"], arguments.as_slice()].concat());
        command.env("CORELINE_STAT_DIR", &folder).env("STAT_AGAIN", "1").output().unwrap()
    };
    let shown = text(&run(&[]));
    // The program's own output comes first.
    let (_, shown) = shown.split_once("run (process ").unwrap();
    assert!(shown.contains("requests") && shown.contains("77"), "{shown}");
    let watched = text(&run(&["--watch"]));
    assert!(watched.contains("77"), "{watched}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "the files are removed");
}

#[test]
fn a_file_that_is_not_of_the_program_is_not_shown() {
    let test = "stat::a_file_that_is_not_of_the_program_is_not_shown";
    if is_again() {
        // As if an earlier process had left it that had the same number.
        let folder = PathBuf::from(env::var_os("CORELINE_STAT_DIR").unwrap());
        drop(coreline::stat::publish("earlier").unwrap());
        let own = fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
        let name = own.file_name().into_string().unwrap();
        let here = name.rsplit_once('-').unwrap().1;
        return fs::rename(own.path(), folder.join(format!("{}-1-{here}", process::id()))).unwrap();
    }
    let folder = folder("stat-earlier");
    let program = env::current_exe().unwrap();
    let mut command = coreline(&["stat", "--", program.to_str().unwrap(), "--exact", test]);
    let run = command.env("CORELINE_STAT_DIR", &folder).env("STAT_AGAIN", "1").output().unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(!run.status.success() && said.contains("has ended and published nothing"), "{said}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "it went so far");
}

#[test]
fn a_long_watch_ends_with_the_program() {
    let test = "stat::a_long_watch_ends_with_the_program";
    if is_again() {
        let published = coreline::stat::publish("watched").unwrap();
        // Long enough for the first look.
        thread::sleep(Duration::from_secs(1));
        return drop(published);
    }
    let folder = folder("stat-long");
    let program = env::current_exe().unwrap();
    let arguments = ["stat", "--watch=600", "--", program.to_str().unwrap(), "--exact", test];
    let mut command = coreline(&arguments);
    let begin = Instant::now();
    let run = command.env("CORELINE_STAT_DIR", &folder).env("STAT_AGAIN", "1").output().unwrap();
    assert!(text(&run).contains("watched (process "));
    assert!(begin.elapsed() < Duration::from_secs(300));
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let folder = folder("stat-refused");
    assert!(text(&stat(&folder, &[])).starts_with("No process publishes."));
    for (arguments, code, what) in [
        (vec!["4000000000"], 3, "there is no process 4000000000"),
        (vec!["1"], 3, "the process 1 publishes nothing"),
        (vec!["server"], 2, "no process publishes under the name \"server\""),
        (vec!["--", "no-such-program"], 3, "cannot run \"no-such-program\""),
        (vec!["--", "true"], 3, "\"true\" has ended and published nothing"),
        (vec!["--json", "--prometheus"], 2, "cannot be used with"),
        (vec!["1", "--", "true"], 2, "cannot be used with"),
        (vec!["--watch=0"], 2, "0 is not in"),
    ] {
        let (found, said) = refused(&folder, &arguments);
        assert!(found == code && said.contains(what), "{arguments:?}: {found}: {said}");
    }
    // A folder that cannot be read.
    fs::write(&folder, "").unwrap();
    let (code, said) = refused(&folder, &["1"]);
    assert!(code == 3 && said.contains("cannot read"), "{said}");
}
