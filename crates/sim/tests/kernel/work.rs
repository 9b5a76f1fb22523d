//! Computation: how long it takes, and what can come between.

use std::time::Duration;

use coreline_sim::{FailureKind, Sim};
use coreline_world::{Clock, JoinHandle, Threads, Work};

use crate::common::{machine, on};
use crate::run;

const SPAN: Duration = Duration::from_millis(10);

/// How long work takes when `threads` on one CPU do it at the same time.
fn worked(threads: usize, seed: u64) -> Vec<Duration> {
    let program = move || {
        let work = || {
            let start = Sim::now();
            Sim::work(SPAN);
            Sim::now() - start
        };
        let workers: Vec<_> = (0..threads).map(|_| on(1, work)).collect();
        workers.into_iter().map(JoinHandle::join).collect()
    };
    run(machine("host-2c", seed), program).0
}

#[test]
fn work_takes_its_span_give_or_take_a_tenth() {
    let spans: Vec<_> = (0..20).map(|seed| worked(1, seed)[0]).collect();
    for span in &spans {
        // A tick and two looks at the clock come on top.
        assert!((SPAN * 9 / 10..SPAN * 11 / 10 + SPAN / 500).contains(span), "{span:?}");
    }
    assert!(spans.iter().any(|span| span.abs_diff(spans[0]) > SPAN / 50), "all alike: {spans:?}");
}

#[test]
fn work_is_preempted_and_goes_on() {
    let spans = worked(4, 1);
    let longest = spans.iter().max().unwrap();
    // The slice is shorter than their work, so they take turns; nothing is done twice.
    let all = SPAN * 4;
    assert!((all * 8 / 10..all * 12 / 10).contains(longest), "{longest:?}");
}

#[test]
fn work_without_an_end_leaves_no_thread_to_run() {
    let failure = machine("host-2c", 1).run(|| Sim::work(Duration::MAX)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock, "{failure}");
}

#[test]
fn others_run_while_one_works() {
    let program = || {
        let worker = on(1, || {
            Sim::work(SPAN);
            Sim::now()
        });
        Sim::sleep(SPAN / 2);
        let first = Sim::now();
        (first, worker.join())
    };
    let (first, second) = run(machine("host-2c", 1), program).0;
    assert!(second > first);
}
