//! The verbs `sweep` and `cells`, and `replay --json`, which is `cell`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use coreline_scenarios::Scenario;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

use crate::fields::{self, assert_listed};
use crate::{coreline, file, json, output, refusal};

/// 48 cells, which take from one to a few hundred milliseconds together.
const SPEC: &str = r#"
scenario = "lockscale"
machine = ["host-2c", "desktop-12c"]
variant = ["fifo", "near"]
seed = "3..=4"
cost = "shares"
quick = true

[params]
threads = [1, 2, 8]
outside = 500
"#;

/// The number of cells of [`SPEC`]: 8 threads do not fit on two CPUs.
const CELLS: usize = (2 + 3) * 2 * 2 * 3;

/// A specification's file, and an empty folder for its rows.
fn begin(name: &str, spec: &str) -> (String, PathBuf) {
    let store = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sweep-{name}"));
    let _ = fs::remove_dir_all(&store);
    let spec = file(&format!("sweep-{name}.toml"), spec);
    (spec.to_str().unwrap().to_owned(), store)
}

/// The arguments of a sweep.
fn sweep<'a>(spec: &'a str, store: &'a Path) -> [&'a str; 4] {
    ["sweep", spec, "--store", store.to_str().unwrap()]
}

type Rows = BTreeMap<String, BTreeMap<String, Field>>;

/// The rows of a store, by key. Panics if a key has two.
fn rows(store: &Path) -> Rows {
    let mut all = Rows::new();
    for entry in fs::read_dir(store).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "parquet") {
            continue;
        }
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let row: BTreeMap<String, Field> =
                row.get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect();
            let Field::Str(key) = &row["replay"] else { panic!("no key in {row:?}") };
            assert!(all.insert(key.clone(), row.clone()).is_none(), "two rows of {key}");
        }
    }
    all
}

/// A file of rows.
fn a_file(store: &Path) -> PathBuf {
    let mut paths = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| path.extension().is_some_and(|end| end == "parquet")).unwrap()
}

#[test]
fn a_sweep_runs_each_cell_once_and_goes_on_where_it_stopped() {
    let (spec, store) = begin("once", SPEC);
    let listed = json(&["cells", &spec, "--json"]);
    assert_listed(&listed);
    let keys: BTreeSet<&str> =
        listed["cells"].as_array().unwrap().iter().map(|it| it["key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), CELLS);
    assert_eq!(listed["rough"], true);

    let swept = json(&[&sweep(&spec, &store)[..], &["--json"]].concat());
    let mut listed = fields::listed("coreline.sweep/1");
    assert_eq!(swept["failed"], Value::Array(Vec::new()));
    listed.retain(|field| !field.starts_with("failed[]"));
    assert_eq!(fields::of(&swept, &listed), listed);
    assert_eq!((&swept["before"], &swept["now"]), (&0.into(), &CELLS.into()), "{swept}");
    let all = rows(&store);
    assert_eq!(all.keys().map(String::as_str).collect::<BTreeSet<_>>(), keys);

    // A few rows less, as if a task had not been finished.
    fs::remove_file(a_file(&store)).unwrap();
    let missing = CELLS - rows(&store).len();
    let left = json(&["cells", &spec, "--store", store.to_str().unwrap(), "--json"]);
    assert_eq!(left["cells"].as_array().unwrap().len(), missing);
    assert_eq!(left["rough"], missing == CELLS);
    let swept = json(&[&sweep(&spec, &store)[..], &["--json"]].concat());
    assert_eq!((&swept["before"], &swept["now"]), (&(CELLS - missing).into(), &missing.into()));
    assert_eq!(rows(&store), all);
}

/// A cell by its key is the row that the sweep wrote.
#[test]
fn the_key_of_a_cell_gives_its_row() {
    let (spec, store) = begin("key", SPEC);
    assert!(output(&sweep(&spec, &store)).status.success());
    for (key, row) in rows(&store).into_iter().step_by(7) {
        let cell = json(&["cell", &key, "--json"]);
        let replayed = json(&["replay", "--json", &key]);
        assert_eq!(cell, replayed);
        assert_listed(&cell);
        let of_cell = cell["row"].as_object().unwrap();
        assert_eq!(of_cell.len(), row.len());
        for (name, field) in row {
            let same = match (&of_cell[&name], &field) {
                (Value::Null, Field::Null) => true,
                (Value::String(text), Field::Str(other)) => text == other,
                (Value::Number(number), Field::ULong(other)) => number.as_u64() == Some(*other),
                (Value::Number(number), Field::Double(other)) => number.as_f64() == Some(*other),
                _ => false,
            };
            assert!(same, "{name}: {} {field:?}", of_cell[&name]);
        }
    }
}

/// `run` is the same cells: the mean over the runs of a point, rounded, is what it shows.
#[test]
fn the_cells_of_a_band_fold_to_what_run_shows() {
    let run = ["run", "intermittent", "--world", "desktop-12c", "--quick", "--band", "--seed", "9"];
    let narrow = ["--variant", "recent", "--scan", "switch", "--delay", "10", "--turns", "timed"];
    let shown = json(&[&run[..], &narrow, &["--json"]].concat());
    let spec = r#"
        scenario = "intermittent"
        machine = "desktop-12c"
        variant = "recent"
        seed = 9
        cost = "band"
        quick = true
        params = { scan = "switch", delay = 10, turns = "timed" }
    "#;
    let (spec, store) = begin("fold", spec);
    assert!(output(&sweep(&spec, &store)).status.success());
    let rows = rows(&store);
    let listed = json(&["cells", &spec, "--json"]);
    let scenario = Scenario::named("intermittent").unwrap();
    let runs = scenario.runs[1] as usize;
    let mut compared = 0;
    for row in shown["rows"].as_array().unwrap().iter().filter(|row| row["derived"] == false) {
        let metric = row["metric"].as_str().unwrap();
        let kind = scenario.figures.iter().find(|it| it.metric.name == metric).unwrap().metric.kind;
        // All cells weigh the same, so the list has the order of the band.
        let of_config: Vec<f64> = listed["cells"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cell| &rows[cell["key"].as_str().unwrap()])
            .filter(|cell| cell["config"] == Field::Str(row["config"].as_str().unwrap().to_owned()))
            .map(|cell| match cell[metric] {
                Field::Double(value) => value,
                _ => panic!("no {metric} in {cell:?}"),
            })
            .collect();
        let means = of_config.chunks(runs).map(|of| of.iter().sum::<f64>() / runs as f64);
        let points: Vec<f64> =
            row["points"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect();
        assert_eq!(means.map(|mean| kind.round(mean)).collect::<Vec<_>>(), points, "{metric}");
        compared += points.len();
    }
    assert!(compared > 48, "{compared}");
}

/// Killed at any moment, a sweep loses nothing that it wrote, and writes nothing twice.
#[test]
fn a_sweep_that_is_killed_again_and_again_ends_with_the_same_rows() {
    let (spec, store) = begin("killed", &SPEC.replace("3..=4", "3..=14"));
    let whole = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sweep-whole");
    let _ = fs::remove_dir_all(&whole);
    assert!(output(&sweep(&spec, &whole)).status.success());
    let all = rows(&whole).len();
    let mut in_the_middle = 0;
    for moment in 0..50 {
        fs::create_dir_all(&store).unwrap();
        let mut child = coreline(&sweep(&spec, &store));
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let until = Instant::now() + Duration::from_millis(moment * 8);
        while child.try_wait().unwrap().is_none() && Instant::now() < until {
            std::thread::yield_now();
        }
        // No error if it has ended.
        child.kill().unwrap();
        child.wait().unwrap();
        // Each file is whole, and no key has two rows.
        in_the_middle += usize::from((1..all).contains(&rows(&store).len()));
    }
    if in_the_middle == 0 {
        // This host is slow, or fast: wait for the first file.
        fs::remove_dir_all(&store).unwrap();
        let mut child = coreline(&sweep(&spec, &store)).stderr(Stdio::null()).spawn().unwrap();
        while !store.exists() || rows(&store).is_empty() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!((1..all).contains(&rows(&store).len()));
    }
    assert!(output(&sweep(&spec, &store)).status.success());
    assert_eq!(rows(&store), rows(&whole));
    let unfinished = |entry: &fs::DirEntry| entry.file_name().to_str().unwrap().contains("unfin");
    assert!(!fs::read_dir(&store).unwrap().any(|entry| unfinished(&entry.unwrap())));
}

#[test]
fn a_store_that_is_in_use_or_is_not_ours_is_left_as_it_is() {
    let (spec, store) = begin("foreign", SPEC);
    assert!(output(&sweep(&spec, &store)).status.success());
    let before = rows(&store);

    let lock = File::options().write(true).open(store.join(".lock")).unwrap();
    lock.lock().unwrap();
    let (code, told) = refusal(&sweep(&spec, &store));
    assert!(code == 3 && told.contains("another sweep is using"), "{code} {told}");
    // Not by closing: a child of another test may have the descriptor, too.
    lock.unlock().unwrap();

    let (other, _) = begin("other", "scenario = \"shootdown\"\nmachine = \"host-2c\"");
    let (code, told) = refusal(&sweep(&other, &store));
    assert!(code == 2 && told.contains("rows of the scenario lockscale"), "{code} {told}");

    let a_file = a_file(&store);
    let text = fs::read(&a_file).unwrap();
    for (bytes, why) in [(&text[..text.len() / 2], "is not a file of a sweep"), (b"", "not a file")]
    {
        let damaged = store.join("damaged.parquet");
        fs::write(&damaged, bytes).unwrap();
        let (code, told) = refusal(&sweep(&spec, &store));
        assert!(code == 2 && told.contains(why) && told.contains("damaged"), "{code} {told}");
        fs::remove_file(&damaged).unwrap();
    }

    let copy = store.join("copy.parquet");
    fs::copy(&a_file, &copy).unwrap();
    let (code, told) = refusal(&sweep(&spec, &store));
    assert!(code == 2 && told.contains("row of the same cell"), "{code} {told}");
    fs::remove_file(&copy).unwrap();

    let ours = json(&["cells", &spec, "--json"])["engine"].as_str().unwrap().to_owned();
    let mut theirs = ours.clone().into_bytes();
    theirs[0] ^= 1;
    let forged = store.join("forged.parquet");
    fs::write(&forged, replaced(&text, ours.as_bytes(), &theirs)).unwrap();
    let (code, told) = refusal(&sweep(&spec, &store));
    assert!(code == 2 && told.contains("rows of the engine"), "{code} {told}");
    fs::remove_file(&forged).unwrap();
    assert_eq!(rows(&store), before);

    let (code, told) = refusal(&sweep(&spec, &a_file));
    assert!(code == 1 && told.contains("cannot create the folder"), "{code} {told}");
}

/// Of the same length, so that the file's other parts stay where they are.
fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    let at = text.windows(from.len()).rposition(|found| found == from).unwrap();
    text[at..at + to.len()].copy_from_slice(to);
    text
}

/// As on a full disk: no file may grow.
#[test]
fn a_row_that_cannot_be_written_stops_the_sweep_and_loses_nothing() {
    let (spec, store) = begin("full", SPEC);
    assert!(output(&sweep(&spec, &store)).status.success());
    fs::remove_file(a_file(&store)).unwrap();
    let before = rows(&store);
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
    let mut full = Command::new("bash");
    full.args(["-c", script, "bash", env!("CARGO_BIN_EXE_coreline")]);
    let full = full.args(sweep(&spec, &store)).output().unwrap();
    let told = String::from_utf8_lossy(&full.stderr);
    assert_eq!(full.status.code(), Some(1), "{told}");
    assert!(told.contains("cannot write to") && told.contains("run the same command"), "{told}");
    assert_eq!(rows(&store), before);
    assert!(output(&sweep(&spec, &store)).status.success());
    assert_eq!(rows(&store).len(), CELLS);
}

/// A cell that this host cannot run has no row: with more memory it runs. A machine takes 512 MiB
/// of address space.
#[test]
fn a_host_without_memory_stops_the_sweep_and_leaves_no_row_of_it() {
    let (spec, store) = begin("memory", SPEC);
    let script = "ulimit -v 400000; exec \"$@\"";
    let mut poor = Command::new("bash");
    poor.args(["-c", script, "bash", env!("CARGO_BIN_EXE_coreline")]);
    let poor = poor.args(sweep(&spec, &store)).output().unwrap();
    let told = String::from_utf8_lossy(&poor.stderr);
    assert_eq!(poor.status.code(), Some(3), "{told}");
    assert!(told.contains("this host cannot run coreline-sim/1"), "{told}");
    assert!(output(&sweep(&spec, &store)).status.success());
    assert_eq!(rows(&store).len(), CELLS);
}

/// Else a second sweep could use a folder of the same name, and both would have a row of a cell.
#[test]
fn a_sweep_whose_folder_is_moved_stops() {
    let (spec, store) = begin("moved", &SPEC.replace("3..=4", "0..1000"));
    let mut child = coreline(&sweep(&spec, &store));
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while !store.exists() || rows(&store).is_empty() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    let elsewhere = store.with_extension("elsewhere");
    let _ = fs::remove_dir_all(&elsewhere);
    fs::rename(&store, &elsewhere).unwrap();
    fs::create_dir(&store).unwrap();
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    // The second reason if the sweep writes between the two calls above, when there is no folder.
    let reasons = ["moved or replaced", "No such file or directory"];
    assert!(!ended.status.success() && reasons.iter().any(|why| told.contains(why)), "{told}");
    assert_eq!(rows(&store).len(), 0);
}

#[test]
fn a_specification_that_is_wrong_says_what_would_be_right() {
    let with = |line: &str| format!("scenario = \"lockscale\"\nmachine = \"host-2c\"\n{line}");
    for (spec, why) in [
        ("machine = \"host-2c\"".to_owned(), "missing field `scenario`"),
        ("scenario = \"lockscal\"\nmachine = \"host-2c\"".to_owned(), "did you mean lockscale?"),
        ("scenario = \"lockscale\"\nmachine = \"host-2d\"".to_owned(), "did you mean host-2c?"),
        ("scenario = \"lockscale\"\nmachine = \"none.toml\"".to_owned(), "none.toml"),
        (with("variant = \"fifi\""), "did you mean fifo?"),
        (with("config = \"3-core\""), "2-core"),
        (with("seed = \"a..b\""), "neither a number nor a range"),
        (with("seed = \"5..5\""), "range of seeds \"5..5\" is empty"),
        (with("seed = \"0..2000000\""), "at most 1048576 seeds"),
        (with("seed = 2305843009213693953"), "too many or too large"),
        (with("seed = 1.5"), "a value or a list of values"),
        (with("variant = []"), "variant is an empty list"),
        (with("config = [\"all\", \"nonsense\"]"), "2-core"),
        (with("cost = \"all\""), "`point`, `shares`, `band`"),
        (with("arbitration = \"lifo\""), "write fifo or nearest"),
        (with("seeds = 3"), "unknown field `seeds`"),
        (with("[params]\nthread = 1"), "did you mean threads?"),
        (with("[params]\nthreads = 0"), "threads cannot be \"0\""),
        (with("[params]\nthreads = 64"), "has no cells"),
    ] {
        let (path, store) = begin("wrong", &spec);
        let (code, told) = refusal(&sweep(&path, &store));
        assert!(code == 2 && told.contains(why), "{spec}: {code} {told}");
        assert!(!store.exists(), "{spec}");
    }
}
