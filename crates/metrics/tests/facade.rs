//! The facade's macros, and what pages then have.

mod common;

use std::thread;

use common::{labels, page, parse, with};
use coreline_metrics::{Format, InstallError, Kind, Matcher, Recorder, Stats};
use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

#[test]
fn each_form_of_the_macros_reaches_the_page() {
    let recorder = Recorder::default();
    with(&recorder, || {
        describe_counter!("requests_total", Unit::Count, "All requests\nof \\ clients");
        describe_gauge!("connections", "Open \"connections\"");
        describe_histogram!("request_seconds", Unit::Seconds, "");
        counter!("requests_total").increment(1);
        let (path, labels) = (String::from("/a"), [("method", "GET"), ("code", "200")]);
        counter!("requests_total", "path" => path.clone()).increment(2);
        counter!("requests_total", "path" => path, "method" => "GET").increment(3);
        counter!("requests_total", &labels).increment(4);
        counter!(format!("dynamic_{}", 1)).increment(5);
        counter!(target: "elsewhere", level: metrics::Level::DEBUG, "levels").increment(6);
        counter!("absolute").absolute(7);
        counter!("absolute").absolute(5);
        counter!("absolute").increment(1);
        gauge!("connections").set(2);
        gauge!("connections").increment(1.5);
        gauge!("connections").decrement(0.25);
        histogram!("request_seconds").record(0.0625);
        histogram!("request_seconds").record_many(3.0, 2);
        histogram!("request_seconds").record_many(1.0, 0);
        histogram!("request_seconds").record(std::time::Duration::from_nanos(1_953_125));
    });
    let page = page(&recorder.handle());
    for (sample, value) in [
        ("requests_total", 1.0),
        ("requests_total{path=\"/a\"}", 2.0),
        ("requests_total{method=\"GET\",path=\"/a\"}", 3.0),
        ("requests_total{code=\"200\",method=\"GET\"}", 4.0),
        ("dynamic_1", 5.0),
        ("levels", 6.0),
        ("absolute", 8.0),
        ("connections", 3.25),
        ("request_seconds_bucket{le=\"0.005\"}", 1.0),
        ("request_seconds_bucket{le=\"0.05\"}", 1.0),
        ("request_seconds_bucket{le=\"0.1\"}", 2.0),
        ("request_seconds_bucket{le=\"5\"}", 4.0),
        ("request_seconds_bucket{le=\"+Inf\"}", 4.0),
        ("request_seconds_sum", 6.064_453_125),
        ("request_seconds_count", 4.0),
        ("coreline_metrics_refused_series_total", 0.0),
        ("coreline_metrics_refused_values_total", 0.0),
    ] {
        assert_eq!(page.samples.get(sample), Some(&value), "{sample} of {page:#?}");
    }
    assert_eq!(page.types["requests_total"], "counter");
    assert_eq!(page.types["connections"], "gauge");
    assert_eq!(page.types["request_seconds"], "histogram");
    assert_eq!(page.helps["requests_total"], r"All requests\nof \\ clients");
    assert_eq!(page.helps["connections"], "Open \"connections\"");
    assert!(!page.ended && page.units.is_empty());
}

#[test]
fn openmetrics_keeps_the_names_of_all_samples() {
    let recorder = Recorder::default();
    with(&recorder, || {
        describe_counter!("sent_bytes_total", Unit::Bytes, "a \"quote\"");
        describe_histogram!("wait_seconds", Unit::Seconds, "Waits");
        describe_gauge!("level", Unit::Bytes, "Without its unit");
        counter!("sent_bytes_total").increment(1);
        counter!("requests").increment(2);
        counter!("level_total").increment(3);
        counter!("wait_seconds_count_total").increment(4);
        counter!("made_total").increment(5);
        gauge!("made_created").set(6);
        counter!("_total").increment(7);
        gauge!("level").set(f64::NEG_INFINITY);
        histogram!("wait_seconds").record(1.0);
    });
    let handle = recorder.handle();
    let open = parse(&handle.render_as(Format::OpenMetrics));
    assert!(open.ended);
    assert_eq!(open.samples, page(&handle).samples);
    assert_eq!(open.types["sent_bytes"], "counter");
    assert_eq!(open.types["requests"], "unknown");
    // A page has one family of a name.
    assert_eq!((&*open.types["level"], &*open.types["level_total"]), ("gauge", "unknown"));
    // A histogram has samples of its own, and a counter may have one of its creation.
    for counter in ["wait_seconds_count_total", "made_total", "_total"] {
        assert_eq!(open.types[counter], "unknown", "{counter}");
    }
    assert_eq!(open.helps["sent_bytes"], r#"a \"quote\""#);
    assert_eq!((&*open.units["sent_bytes"], &*open.units["wait_seconds"]), ("bytes", "seconds"));
    assert_eq!(open.units.len(), 2);
    for (accept, format) in [
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", Format::OpenMetrics),
        ("text/plain, Application/OpenMetrics-Text; q=0.3", Format::OpenMetrics),
        ("application/openmetrics-text;q=0", Format::Text),
        ("text/plain", Format::Text),
        ("", Format::Text),
    ] {
        assert_eq!(Format::accepted(accept), format, "{accept}");
    }
}

#[test]
fn names_and_labels_are_made_valid_and_equal_ones_are_added_up() {
    let recorder = Recorder::default();
    with(&recorder, || {
        counter!("http.requests").increment(1);
        counter!("http_requests").increment(2);
        counter!("http_requests", "a" => "1", "b" => "2").increment(4);
        counter!("http_requests", "b" => "2", "a" => "1").increment(8);
        gauge!("9 größen", "le bel" => "\"\\\n", "__name__" => "x").set(f64::NAN);
        histogram!("h.h", "le" => "mine").record(1.0);
        histogram!("h_h", "le" => "mine").record(2.0);
        counter!("").increment(1);
    });
    let handle = recorder.handle();
    let text = handle.render();
    let page = parse(&text);
    assert_eq!(page.samples["http_requests"], 3.0);
    assert_eq!(page.samples["http_requests{a=\"1\",b=\"2\"}"], 12.0);
    assert_eq!(page.samples["h_h_bucket{le_=\"mine\",le=\"1\"}"], 1.0);
    assert_eq!(page.samples["h_h_sum{le_=\"mine\"}"], 3.0);
    assert_eq!(page.samples["_"], 1.0);
    let (gauge, value) = page.samples.iter().find(|(it, _)| it.starts_with("_9_gr")).unwrap();
    assert!(value.is_nan());
    let inside = gauge.split_once('{').unwrap().1.strip_suffix('}').unwrap();
    let expected = [("_name__", "x"), ("le_bel", "\"\\\n")];
    assert_eq!(labels(inside), expected.map(|(key, value)| (key.into(), value.into())));
}

#[test]
fn unusual_values_of_histograms_are_as_documented() {
    let recorder = Recorder::builder().bounds(&[-1.0, 0.0, 1.0]).unwrap().build();
    with(&recorder, || {
        let unusual = histogram!("unusual");
        unusual.record(f64::NAN);
        histogram!("other").record_many(f64::NAN, 2);
        unusual.record(-1.0);
        unusual.record(-0.5);
        unusual.record(-0.0);
    });
    let handle = recorder.handle();
    let counts = || {
        let page = page(&handle);
        let counts = ["-1", "0", "1", "+Inf"];
        let counts = counts.map(|le| page.samples[&format!("unusual_bucket{{le=\"{le}\"}}")]);
        (counts, page.samples["unusual_sum"], page.samples["unusual_count"])
    };
    assert_eq!(counts(), ([1.0, 3.0, 3.0, 3.0], -1.5, 3.0));
    assert_eq!(page(&handle).samples["coreline_metrics_refused_values_total"], 3.0);
    assert_eq!(handle.stats(), Stats { series: 2, refused_series: 0, refused_values: 3 });
    with(&recorder, || histogram!("unusual").record(f64::INFINITY));
    assert_eq!(counts(), ([1.0, 3.0, 3.0, 4.0], f64::INFINITY, 4.0));
    with(&recorder, || histogram!("unusual").record(f64::NEG_INFINITY));
    let (buckets, sum, count) = counts();
    assert_eq!((buckets, count), ([2.0, 4.0, 4.0, 5.0], 5.0));
    assert!(sum.is_nan());
}

#[test]
fn bounds_follow_names_and_prefixes() {
    let builder = Recorder::builder().bounds_for(Matcher::Prefix("size.".into()), &[64.0]).unwrap();
    let recorder =
        builder.bounds_for(Matcher::Name("size.of".into()), &[1.0, 2.0]).unwrap().build();
    with(&recorder, || {
        ["size.of", "size.all", "time"].into_iter().for_each(|name| histogram!(name).record(1));
    });
    let page = page(&recorder.handle());
    let buckets = |name: &str| page.samples.keys().filter(|it| it.starts_with(name)).count();
    assert_eq!(["size_of_b", "size_all_b", "time_b"].map(buckets), [3, 2, 12]);
    assert!(Recorder::builder().bounds(&[2.0, 1.0]).is_err());
}

#[test]
fn global_labels_are_on_all_series_that_have_none_of_the_name() {
    let builder = Recorder::builder().label("service", "first").label("service", "shop");
    let recorder = builder.label("le", "x").build();
    with(&recorder, || {
        counter!("a").increment(1);
        counter!("a", "service" => "own").increment(2);
    });
    let page = page(&recorder.handle());
    assert_eq!(page.samples["a{le_=\"x\",service=\"shop\"}"], 1.0);
    assert_eq!(page.samples["a{le_=\"x\",service=\"own\"}"], 2.0);
    assert!(page.samples.keys().all(|it| it.contains("le_=\"x\"")), "{page:?}");
}

#[test]
fn additions_of_many_threads_are_all_there() {
    const THREADS: u64 = 8;
    const EACH: u64 = 20_000;
    let recorder = Recorder::builder().bounds(&[10.0, 100.0]).unwrap().build();
    let bound = with(&recorder, || counter!("bound"));
    let work = |thread: u64| {
        with(&recorder, || {
            for n in 0..EACH {
                bound.increment(1);
                counter!("looked_up").increment(2);
                counter!("labelled", "thread" => (thread % 2).to_string()).increment(1);
                gauge!("gauge").increment(3);
                gauge!("gauge").decrement(2);
                histogram!("values").record((n % 200) as f64);
            }
        });
    };
    thread::scope(|scope| {
        (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread))));
        // Pages that are made meanwhile never go back.
        let handle = recorder.handle();
        let mut before = 0.0;
        for _ in 0..50 {
            let now = page(&handle).samples.get("looked_up").copied().unwrap_or(0.0);
            assert!(before <= now, "{before} {now}");
            before = now;
        }
    });
    let page = page(&recorder.handle());
    let all = (THREADS * EACH) as f64;
    for (sample, value) in [
        ("bound", all),
        ("looked_up", 2.0 * all),
        ("labelled{thread=\"0\"}", all / 2.0),
        ("labelled{thread=\"1\"}", all / 2.0),
        ("gauge", all),
        ("values_bucket{le=\"10\"}", all * 11.0 / 200.0),
        ("values_bucket{le=\"100\"}", all * 101.0 / 200.0),
        ("values_count", all),
        ("values_sum", all * 99.5),
    ] {
        assert_eq!(page.samples[sample], value, "{sample}");
    }
}

#[test]
fn a_set_discards_what_all_cpus_added_before_and_keeps_what_they_add_later() {
    let recorder = Recorder::default();
    let gauge = with(&recorder, || gauge!("hot"));
    let (handle, value) = (recorder.handle(), 0.5);
    for round in 0..3 {
        let add = || (0..10_000).for_each(|_| gauge.increment(1));
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(add))));
        gauge.set(value);
        assert_eq!(page(&handle).samples["hot"], 0.5, "round {round}");
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(add))));
        assert_eq!(page(&handle).samples["hot"], 40_000.5, "round {round}");
    }
    gauge.increment(f64::NAN);
    assert!(page(&handle).samples["hot"].is_nan());
    gauge.set(1);
    assert_eq!(page(&handle).samples["hot"], 1.0);
}

#[test]
fn absolute_values_of_many_threads_end_at_the_highest() {
    let recorder = Recorder::default();
    let counter = with(&recorder, || counter!("highest"));
    let raise = |thread: u64| (0..5_000).for_each(|n| counter.absolute(2 * n + thread));
    thread::scope(|scope| (0..4).for_each(|it| drop(scope.spawn(move || raise(it % 2)))));
    assert_eq!(page(&recorder.handle()).samples["highest"], 9_999.0);
    // Hot, and so on per-CPU memory.
    (0..10_000).for_each(|_| counter.increment(1));
    thread::scope(|scope| (0..4).for_each(|it| drop(scope.spawn(move || raise(it % 2)))));
    assert_eq!(page(&recorder.handle()).samples["highest"], 19_999.0);
    counter.absolute(20_001);
    assert_eq!(page(&recorder.handle()).samples["highest"], 20_001.0);
}

#[test]
fn series_beyond_the_limit_are_refused_and_counted() {
    let recorder = Recorder::builder().max_series(2).build();
    with(&recorder, || {
        counter!("a").increment(1);
        gauge!("b").set(1);
        (0..3).for_each(|_| histogram!("c").record(1.0));
        counter!("a").increment(1);
    });
    let handle = recorder.handle();
    let seen = page(&handle);
    assert_eq!(seen.samples["a"], 2.0);
    assert!(!seen.samples.contains_key("c_count"));
    assert_eq!(seen.samples["coreline_metrics_refused_series_total"], 3.0);
    assert_eq!(handle.remove_if(|kind, _| kind == Kind::Gauge), 1);
    with(&recorder, || histogram!("c").record(1.0));
    assert_eq!(page(&handle).samples["c_count"], 1.0);
}

#[test]
fn a_name_belongs_to_one_kind() {
    let recorder = Recorder::default();
    with(&recorder, || {
        counter!("x").increment(1);
        gauge!("x", "a" => "b").set(2);
        histogram!("h").record(1.0);
        counter!("h_count").increment(1);
        gauge!("y_sum").set(1);
        histogram!("y").record(1.0);
    });
    let handle = recorder.handle();
    let page = page(&handle);
    assert_eq!((page.samples["x"], page.samples["h_count"]), (1.0, 1.0));
    assert!(!page.samples.contains_key("x{a=\"b\"}") && !page.samples.contains_key("y_count"));
    assert_eq!(handle.stats().refused_series, 3);
    // A name is free again with its last series.
    assert_eq!(handle.remove(&metrics::Key::from_name("x")), 1);
    with(&recorder, || gauge!("x").set(5));
    assert_eq!(common::page(&handle).samples["x"], 5.0);
}

#[test]
fn a_second_installation_is_an_error_and_the_first_one_stays() {
    let handle = Recorder::builder().install().unwrap();
    assert!(matches!(Recorder::builder().install(), Err(InstallError::Installed)));
    counter!("global").increment(1);
    assert_eq!(page(&handle).samples["global"], 1.0);
}

#[test]
fn two_recorders_of_a_thread_keep_their_series_apart() {
    let recorders = [Recorder::default(), Recorder::default()];
    for (number, recorder) in [0, 1, 0, 1, 0, 1].map(|number| (number, &recorders[number])) {
        with(recorder, || counter!("same").increment(1 + number as u64));
    }
    let values = recorders.map(|it| page(&it.handle()).samples["same"]);
    assert_eq!(values, [3.0, 6.0]);
}
