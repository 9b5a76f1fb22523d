//! The endpoint, scraped by a client of a few lines, and by Prometheus if it is installed.

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use std::io::{Read, Write, pipe};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use common::{parse, with};
use coreline_metrics::{Kind, ListenError, Recorder};
use metrics::{counter, describe_counter, gauge, histogram};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The head and the body of an answer.
fn ask(address: SocketAddr, method: &str, target: &str, more: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let head = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers in UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head ends");
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn pages_are_served_until_the_endpoint_ends() {
    let recorder = Recorder::default();
    with(&recorder, || counter!("requests_total", "path" => "ü").increment(1));
    let endpoint = recorder.handle().http_listener(ANY).unwrap();
    let address = endpoint.local_addr();
    let (head, body) = ask(address, "GET", "/metrics", "");
    assert!(
        head.starts_with("http/1.1 200") && head.contains("text/plain; version=0.0.4"),
        "{head}"
    );
    assert_eq!(parse(&body).samples["requests_total{path=\"ü\"}"], 1.0);
    let accept = "Accept: application/openmetrics-text; version=1.0.0\r\n";
    let (head, body) = ask(address, "GET", "/metrics?x=y", accept);
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(parse(&body).ended);
    assert_eq!(ask(address, "HEAD", "/metrics", "").1, "");
    assert!(ask(address, "GET", "/", "").0.starts_with("http/1.1 404"));
    let (head, _) = ask(address, "POST", "/metrics", "Content-Length: 0\r\n");
    assert!(head.starts_with("http/1.1 405") && head.contains("allow: get, head"), "{head}");
    endpoint.shutdown();
    assert!(TcpStream::connect(address).is_err(), "nothing listens");
}

#[test]
fn an_endpoint_that_ended_does_not_listen_in_a_child_that_is_being_started() {
    let endpoint = Recorder::default().handle().http_listener(ANY).unwrap();
    let address = endpoint.local_addr();
    let (mut forked, mut say_forked) = pipe().unwrap();
    let (mut wait_for_end, mut ended) = pipe().unwrap();
    let mut child = Command::new("true");
    // SAFETY: it writes a byte and reads one, which a child may do before it executes its program.
    unsafe {
        child.pre_exec(move || {
            say_forked.write_all(&[1])?;
            wait_for_end.read_exact(&mut [0])
        });
    }
    thread::scope(|scope| {
        let started = scope.spawn(move || child.status());
        forked.read_exact(&mut [0]).unwrap();
        endpoint.shutdown();
        let refused = TcpStream::connect(address).is_err();
        ended.write_all(&[1]).unwrap();
        assert!(started.join().unwrap().unwrap().success());
        assert!(refused, "the child listens");
    });
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let taken = TcpListener::bind(ANY).unwrap();
    let address = taken.local_addr().unwrap();
    let error = Recorder::default().handle().http_listener(address).unwrap_err();
    assert!(matches!(error, ListenError::Bind { address: it, .. } if it == address));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn a_dropped_listener_serves_on_and_a_silent_client_blocks_no_other() {
    let handle = Recorder::default().handle();
    let address = handle.http_listener(ANY).unwrap().local_addr();
    let _silent: Vec<_> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(ask(address, "GET", "/metrics", "").0.starts_with("http/1.1 200"));
}

/// A program that ends with the test, and its folder.
struct Prometheus(Child, std::path::PathBuf);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = fs::remove_dir_all(&self.1);
    }
}

/// Whether this machine has a program. Says so if not.
fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        let mut err = std::io::stderr();
        writeln!(err, "skipped: {program} is not installed").expect("stderr takes a line");
    }
    there
}

fn some_of_each(recorder: &Recorder) {
    with(recorder, || {
        describe_counter!("requests_total", "All \"requests\"\nand \\ more");
        counter!("requests_total", "path" => "a\"b\\c\nd").increment(7);
        gauge!("temperature").set(-1.5);
        histogram!("wait_seconds", "queue" => "x").record(0.3);
        histogram!("wait_seconds", "queue" => "x").record(f64::INFINITY);
        counter!("without.suffix").increment(1);
    });
}

#[test]
fn promtool_finds_no_fault_in_a_page() {
    if !has("promtool") {
        return;
    }
    let recorder = Recorder::default();
    some_of_each(&recorder);
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().unwrap();
    let page = recorder.handle().render();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    // 3: it is valid, and has advice on names and descriptions.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}{page}");
}

#[test]
fn prometheus_scrapes_the_endpoint() {
    if !has("prometheus") {
        return;
    }
    let recorder = Recorder::builder().idle_timeout(Kind::Counter, Duration::MAX).build();
    some_of_each(&recorder);
    let endpoint = recorder.handle().http_listener(ANY).unwrap();
    let folder = env::temp_dir().join(format!("coreline-metrics-{}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: ours\n  static_configs:\n  \
         - targets: ['{}']\n",
        endpoint.local_addr()
    );
    let file = folder.join("prometheus.yml");
    fs::write(&file, config).unwrap();
    // Free a moment ago.
    let web = TcpListener::bind(ANY).unwrap().local_addr().unwrap();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .arg(format!("--web.listen-address={web}"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let prometheus = Prometheus(child, folder);
    let query = |text: &str| {
        TcpStream::connect(web).ok()?;
        Some(ask(web, "GET", &format!("/api/v1/query?query={text}"), "").1)
    };
    // Prometheus takes seconds to start, and then one to scrape.
    let end = Instant::now() + Duration::from_secs(60);
    let scraped = loop {
        match query("up%3D%3D1").filter(|answer| answer.contains("\"ours\"")) {
            Some(_) => break true,
            None if Instant::now() > end => break false,
            None => thread::sleep(Duration::from_millis(100)),
        }
    };
    assert!(scraped, "{:?}", query("up"));
    for (text, value) in [
        ("requests_total", "\"7\""),
        ("temperature", "\"-1.5\""),
        ("wait_seconds_bucket%7Ble%3D%220.5%22%7D", "\"1\""),
        ("wait_seconds_count", "\"2\""),
        ("wait_seconds_sum", "\"+Inf\""),
        ("without_suffix", "\"1\""),
        ("coreline_metrics_refused_series_total", "\"0\""),
    ] {
        let answer = query(text).unwrap();
        assert!(answer.contains(value), "{text}: {answer}");
    }
    assert!(query("requests_total").unwrap().contains(r#""path":"a\"b\\c\nd""#));
    drop(prometheus);
}
