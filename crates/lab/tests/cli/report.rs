//! `report`: a page that draws all its charts, JSON, pictures. What the page does is seen in
//! Chromium where there is one (Debian's package `chromium`); elsewhere those tests say that they
//! are skipped.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::fields::{listed, of};
use crate::{compare, file, json as printed, output, refusal};

/// The path of a result with whiskers, published figures and a name that would be a script.
fn published(name: &str) -> String {
    let run = ["run", "switchstorm", "--world", "ivybridge-ex-4s", "--quick", "--json"];
    let mut result = printed(&run);
    let rows = result["rows"].as_array_mut().unwrap();
    rows[0]["why"] = "see <img src=x onerror=alert(1)> and https://example.org/a?b&c".into();
    rows[0]["variant"] = "</script><script>alert(1)</script>".into();
    written(name, &result)
}

fn written(name: &str, result: &Value) -> String {
    file(name, &result.to_string()).to_str().unwrap().to_owned()
}

/// A result over numbers of threads.
fn locks(name: &str) -> String {
    let path = file(name, "").to_str().unwrap().to_owned();
    let run = ["run", "lockscale", "--world", "host-2c", "--quick", "--json", "--out", &path];
    assert!(output(&run).status.success());
    path
}

fn told(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_page_of_documents_lists_what_json_has() {
    let results = [compare::result("report_json.json"), published("report_json_2.json")];
    let mut report = printed(&["report", &results[0], &results[1], "--json"]);
    for chart in report["charts"].as_array_mut().unwrap() {
        let figure = &mut chart["figure"];
        assert!(figure["layout"]["title"]["text"].is_string(), "{figure}");
        assert!(!figure["data"].as_array().unwrap().is_empty(), "{figure}");
        // What is in a figure is Plotly's.
        *figure = json!({ "data": [], "layout": {} });
    }
    let listed = listed("coreline.report/1");
    assert_eq!(of(&report, &listed), listed);
}

#[test]
fn the_same_result_twice_has_charts_of_two_names() {
    let result = compare::result("report_twice.json");
    let list = told(&output(&["report", &result, &result, "--list"]));
    let names: Vec<_> =
        list.lines().skip(2).filter_map(|it| it.split_whitespace().next()).collect();
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), names.len(), "{list}");
    assert!(names.iter().any(|name| name.contains("host-2c-no-2")), "{list}");
}

#[test]
fn a_figure_that_is_0_everywhere_has_no_chart() {
    let path = locks("report_zeros.json");
    let charts = |path: &str| told(&output(&["report", path, "--list"]));
    assert!(charts(&path).contains("longest-wait"));
    let mut result: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for row in result["rows"].as_array_mut().unwrap() {
        if row["metric"] == "longest_wait" {
            row["value"] = 0.into();
        }
    }
    let zeros = charts(&written("report_zeros_2.json", &result));
    assert!(!zeros.contains("longest-wait") && zeros.contains("-share"), "{zeros}");
}

#[test]
fn what_is_no_result_is_refused_with_what_is() {
    let old = file("report_old.json", "{\"schema\": \"coreline.measure/1\"}");
    let empty = file("report_empty.json", "");
    let text = file("report_text.json", "hello");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let large = folder.join("report_large.json");
    // It takes no room on disk.
    fs::File::create(&large).unwrap().set_len(65 << 20).unwrap();
    for (path, why) in [
        (old.as_path(), "its schema is coreline.measure/1, and not coreline.run/2"),
        (empty.as_path(), "it is empty"),
        (text.as_path(), "expected value"),
        (large.as_path(), "larger than 64 MiB"),
        (folder.as_path(), "directory"),
        (Path::new("no/such.json"), "No such file"),
    ] {
        let (code, told) = refusal(&["report", path.to_str().unwrap(), "--list"]);
        assert_eq!(code, 2, "{told}");
        assert!(told.contains(why) && told.contains("--json --out FILE"), "{told}");
    }
    fs::remove_file(large).unwrap();
}

#[test]
fn a_picture_has_its_chart_and_an_unknown_name_a_hint() {
    let result = compare::result("report_picture.json");
    let png = file("report.png", "").to_str().unwrap().to_owned();
    let svg = png.replace(".png", ".svg");
    let chart = "boxes-host-2c";
    told(&output(&["report", &result, "--png", chart, "--out", &png]));
    assert!(fs::read(png).unwrap().starts_with(b"\x89PNG\r\n"));
    told(&output(&["report", &result, "--svg", chart, "--out", &svg]));
    let svg = fs::read_to_string(svg).unwrap();
    for said in ["socket 0", "coreline machines host-2c", "simulated machine host-2c"] {
        assert!(svg.contains(said), "{said}: {svg}");
    }
    let (code, told) = refusal(&["report", &result, "--png", "boxes-host-c2"]);
    assert!(code == 2 && told.contains("did you mean boxes-host-2c?"), "{told}");
    let (code, _) = refusal(&["report", &result, "--png", chart, "--json"]);
    assert_eq!(code, 2);
}

#[test]
fn a_machine_that_is_no_preset_is_said_to_be_none() {
    let mut result = printed(&["run", "shootdown", "--world", "host-2c", "--quick", "--json"]);
    result["machine_digest"] = "0123456789abcdef".into();
    let result = written("report_digest.json", &result);
    let page = file("report_digest.html", "").to_str().unwrap().to_owned();
    told(&output(&["report", &result, "--out", &page]));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("or its file has changed") && !page.contains("id=\"boxes-host-2c\""));
    assert!(!page.contains("coreline replay"));
}

/// A browser that can be asked without a screen.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut all = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .filter(|file| file.is_file());
    all.next()
}

/// In the page's head: what went wrong while it was read, also a load that its policy forbids.
const WATCH: &str = "<script>window.wrong = [];
addEventListener('error', (it) => wrong.push(String(it.message)));
addEventListener('unhandledrejection', (it) => wrong.push(String(it.reason)));
addEventListener('securitypolicyviolation', (it) => wrong.push('loads ' + it.blockedURI));
window.alert = () => wrong.push('a name was run');
</script>";

/// At the page's end: when all is drawn, opens a row and tells the page around it what is there.
const PROBE: &str = "<script>(function probe() {
  if (!document.documentElement.dataset.drawn) return setTimeout(probe, 20);
  const marks = {};
  for (const box of document.querySelectorAll('[data-chart]')) {
    const seen = [...box.querySelectorAll('.point, g.slice, .heatmaplayer image')];
    marks[box.dataset.chart] = seen.filter((it) => it.getBoundingClientRect().width > 0).length;
  }
  const wide = [...document.querySelectorAll('[data-chart] .main-svg')].filter(
    (it) => it.getBoundingClientRect().right > innerWidth).length;
  document.querySelectorAll('details.rows').forEach((it) => { it.open = true; });
  const row = document.querySelector('details.row');
  const before = row.querySelector('dl').checkVisibility();
  row.querySelector('summary').click();
  setTimeout(() => parent.postMessage({
    wrong, marks, wide, before,
    after: row.querySelector('dl').checkVisibility(),
    text: row.querySelector('dl').innerText,
    focusable: row.querySelector('summary').tabIndex,
    links: row.querySelectorAll('dl a').length,
    named: [...document.querySelectorAll('[role=img]')].every((it) => it.ariaLabel.length > 20),
    overflow: document.documentElement.scrollWidth - innerWidth,
  }, '*'), 50);
})();</script>";

/// What the probe tells of a page in a window of such a width, and that the console has nothing.
fn probed(browser: &Path, page: &Path, width: u32) -> Value {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let watched = folder.join(format!("report_{width}_watched.html"));
    let around = folder.join(format!("report_{width}.html"));
    let text = fs::read_to_string(page).unwrap();
    let text = text.replacen("<head>", &format!("<head>{WATCH}"), 1);
    let (body, end) = text.rsplit_once("</body>").unwrap();
    fs::write(&watched, format!("{body}{PROBE}</body>{end}")).unwrap();
    let frame = format!(
        "<!DOCTYPE html><body><script>onmessage = (it) => {{ document.body.dataset.told = \
         JSON.stringify(it.data); }};</script>\n<iframe src=\"{}\" width=\"{width}\" \
         height=\"3000\" style=\"border: 0\"></iframe></body>",
        watched.file_name().unwrap().to_str().unwrap()
    );
    fs::write(&around, frame).unwrap();
    let profile = folder.join(format!("report_{width}_profile"));
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=120000", "--dump-dom"])
        .args(["--window-size=1500,3000", &format!("--user-data-dir={}", profile.display())])
        .arg(format!("file://{}", around.display()))
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    let console: Vec<_> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
    let dom = String::from_utf8_lossy(&output.stdout);
    let told = dom.split_once("data-told=\"").and_then(|(_, rest)| rest.split_once('"'));
    let told = told.unwrap_or_else(|| panic!("the page told nothing: {dom:.2000}\n{log:.2000}")).0;
    let marks = [("&quot;", "\""), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
    let told = marks.iter().fold(told.to_owned(), |told, (from, to)| told.replace(from, to));
    serde_json::from_str(&told).unwrap()
}

/// How many marks a figure has: points, columns, boxes; a heat map is one picture.
fn marks(figure: &Value) -> usize {
    let count = |trace: &Value| match trace["type"].as_str().unwrap() {
        "heatmap" => 1,
        "treemap" => trace["labels"].as_array().unwrap().len(),
        _ => trace["x"].as_array().unwrap().len(),
    };
    figure["data"].as_array().unwrap().iter().map(count).sum()
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn in_a_browser_every_chart_is_drawn_and_a_row_opens() {
    let Some(browser) = chromium() else {
        eprintln!("skipped: there is no chromium; on Debian, `apt-get install chromium`");
        return;
    };
    let results = [
        published("report_page.json"),
        locks("report_page_2.json"),
        compare::result("report_3.json"),
    ];
    let page = file("report_page.html", "");
    let arguments = ["report", &results[0], &results[1], &results[2]];
    told(&output(&[&arguments[..], &["--out", page.to_str().unwrap()]].concat()));
    let report = printed(&[&arguments[..], &["--json"]].concat());
    let expected: BTreeMap<_, _> = report["charts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chart| (chart["id"].as_str().unwrap().to_owned(), marks(&chart["figure"])))
        .collect();
    assert!(expected.len() > 20 && expected.values().all(|count| *count > 0), "{expected:?}");
    for width in [390, 1400] {
        let told = probed(&browser, &page, width);
        assert_eq!(told["wrong"], json!([]), "at {width}: {told}");
        let drawn: BTreeMap<String, usize> = serde_json::from_value(told["marks"].clone()).unwrap();
        assert_eq!(drawn, expected, "at {width}");
        let opened = [&told["before"], &told["after"]];
        assert_eq!(opened, [false, true], "at {width}: a row is closed, and opens: {told}");
        let text = told["text"].as_str().unwrap();
        assert!(text.contains("see <img src=x onerror=alert(1)>"), "{text}");
        assert!(text.contains("coreline run switchstorm --world ivybridge-ex-4s"), "{text}");
        assert_eq!(told["focusable"], 0, "at {width}: the keyboard opens a row, too");
        assert!(told["links"].as_u64().unwrap() > 0 && told["named"] == true, "{told}");
        assert!(told["overflow"].as_f64().unwrap() <= 0.0, "at {width}: {told}");
        assert_eq!(told["wide"], 0, "at {width}: charts fit");
    }
}
