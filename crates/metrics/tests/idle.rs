//! Series that are not used, or are removed.

mod common;

use std::thread;
use std::time::Duration;

use common::{page, with};
use coreline_metrics::{Handle, Kind, Recorder};
use metrics::{Key, counter, gauge, histogram};

/// Series are idle as soon as a page finds them unused since the one before.
fn at_once(kinds: &[Kind]) -> Recorder {
    let builder = Recorder::builder();
    let add = |builder: coreline_metrics::Builder, kind: &Kind| {
        builder.idle_timeout(*kind, Duration::ZERO)
    };
    kinds.iter().fold(builder, add).build()
}

/// The value of a sample on a page that is made now.
fn value(handle: &Handle, sample: &str) -> Option<f64> {
    page(handle).samples.get(sample).copied()
}

#[test]
fn a_live_handle_brings_its_series_back_and_a_dropped_one_is_freed() {
    let recorder = at_once(&[Kind::Counter]);
    let handle = recorder.handle();
    let counter = with(&recorder, || counter!("c"));
    counter.increment(1);
    assert_eq!(value(&handle, "c"), Some(1.0));
    assert_eq!(value(&handle, "c"), None);
    assert_eq!(value(&handle, "c"), None);
    assert_eq!(handle.stats().series, 1, "the handle is alive");
    counter.increment(2);
    assert_eq!(value(&handle, "c"), Some(3.0));
    assert_eq!(value(&handle, "c"), None);
    // A look-up finds the same series, without using it. Another thread makes it: a thread that
    // looks a key up twice keeps a handle.
    let look_up = || with(&recorder, || counter!("c"));
    let again = thread::scope(|scope| scope.spawn(look_up).join().unwrap());
    assert_eq!(value(&handle, "c"), None);
    again.increment(1);
    assert_eq!(value(&handle, "c"), Some(4.0));
    drop((counter, again));
    assert_eq!((value(&handle, "c"), handle.stats().series), (None, 0));
    with(&recorder, || counter!("c").increment(1));
    assert_eq!(value(&handle, "c"), Some(1.0));
}

#[test]
fn timeouts_are_by_kind_and_a_use_without_a_change_is_a_use() {
    let recorder = at_once(&[Kind::Gauge, Kind::Histogram]);
    let handle = recorder.handle();
    let (gauge, histogram) = with(&recorder, || {
        counter!("c").increment(1);
        (gauge!("g"), histogram!("h"))
    });
    let shown = || {
        let page = page(&handle);
        ["c", "g", "h_count"].map(|sample| page.samples.contains_key(sample))
    };
    assert_eq!(shown(), [true, true, true]);
    gauge.set(0);
    assert_eq!(shown(), [true, true, false]);
    // A hot gauge that goes up and down by the same amount is in use.
    (0..10_000).for_each(|_| gauge.increment(1));
    assert_eq!(shown(), [true, true, false]);
    gauge.increment(1);
    gauge.decrement(1);
    assert_eq!(shown(), [true, true, false]);
    histogram.record(f64::NAN);
    assert_eq!(shown(), [true, false, true]);
    assert_eq!(shown(), [true, false, false]);
}

#[test]
fn upkeep_frees_without_a_page() {
    let recorder = at_once(&[Kind::Counter, Kind::Gauge, Kind::Histogram]);
    let handle = recorder.handle();
    let use_all = || {
        for number in 0..1_000 {
            counter!("c", "number" => number.to_string()).increment(1);
            gauge!("g", "number" => number.to_string()).set(1);
            histogram!("h", "number" => number.to_string()).record(1);
        }
    };
    // A thread that ends, with the handles that it kept. Only `join` waits for that end.
    thread::scope(|scope| scope.spawn(|| with(&recorder, use_all)).join().unwrap());
    assert_eq!(handle.stats().series, 3_000);
    handle.upkeep();
    assert_eq!(handle.stats().series, 3_000);
    handle.upkeep();
    assert_eq!(handle.stats().series, 0);
}

#[test]
fn a_thread_keeps_no_handle_for_two_keys_of_one_hash_that_it_used_once_each() {
    let recorder = at_once(&[Kind::Counter]);
    let handle = recorder.handle();
    // What the facade's hash reads of a short text does not include its length.
    let labels = ["1", "11"].map(|number| [("number", number)]);
    let [one, other] = labels.each_ref().map(|labels| Key::from_parts("c", labels));
    assert_eq!((one.get_hash(), one == other), (other.get_hash(), false));
    with(&recorder, || labels.iter().for_each(|labels| counter!("c", labels).increment(1)));
    assert_eq!(handle.stats().series, 2);
    (0..2).for_each(|_| handle.upkeep());
    assert_eq!(handle.stats().series, 0);
}

#[test]
fn a_timeout_that_is_not_over_hides_nothing() {
    let recorder = Recorder::builder().idle_timeout(Kind::Counter, Duration::MAX).build();
    with(&recorder, || counter!("c").increment(1));
    let handle = recorder.handle();
    assert_eq!([(); 3].map(|()| value(&handle, "c")), [Some(1.0); 3]);
}

#[test]
fn removed_series_are_gone_until_they_are_used_again() {
    let recorder = Recorder::default();
    let handle = recorder.handle();
    let kept = with(&recorder, || {
        counter!("c", "a" => "1").increment(1);
        counter!("c", "a" => "2").increment(2);
        let kept = gauge!("g", "a" => "1");
        kept.set(3);
        kept
    });
    let removed = handle.remove_if(|kind, key| {
        kind != Kind::Histogram && key.labels().any(|label| label.value() == "1")
    });
    assert_eq!((removed, handle.stats().series), (2, 2));
    assert_eq!(value(&handle, "c{a=\"1\"}"), None);
    assert_eq!(value(&handle, "c{a=\"2\"}"), Some(2.0));
    assert_eq!(value(&handle, "g{a=\"1\"}"), None);
    assert_eq!(handle.remove(&Key::from_parts("g", &[("a", "1")])), 0, "it is gone already");
    kept.increment(1);
    assert_eq!(value(&handle, "g{a=\"1\"}"), Some(4.0));
    with(&recorder, || counter!("c", "a" => "1").increment(1));
    assert_eq!(value(&handle, "c{a=\"1\"}"), Some(1.0), "no handle was left");
}

#[test]
fn a_series_that_threads_look_up_comes_back_after_each_removal() {
    let recorder = Recorder::default();
    let handle = recorder.handle();
    for round in 1..=5 {
        with(&recorder, || (0..3).for_each(|_| counter!("often").increment(1)));
        assert!(value(&handle, "often").is_some(), "round {round}");
        assert_eq!(handle.remove(&Key::from_name("often")), 1);
        assert_eq!(value(&handle, "often"), None);
    }
}

/// Threads use series by short-lived handles while others remove them: each use is on a page before
/// its removal, or after.
#[test]
fn no_addition_is_lost_while_series_come_and_go() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let recorder = at_once(&[Kind::Counter]);
    let handle = recorder.handle();
    let done = AtomicBool::new(false);
    let kept = with(&recorder, || counter!("kept"));
    thread::scope(|scope| {
        let add = || {
            with(&recorder, || (0..20_000).for_each(|_| counter!("kept").increment(1)));
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(add)).collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                handle.upkeep();
                handle.remove(&Key::from_name("kept"));
            }
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    kept.increment(1);
    assert_eq!(value(&handle, "kept"), Some(60_001.0));
}
