//! The curves that the gate compares. Each has a name of its own.

use coreline_sim::Spec;
use coreline_sim::claim::Band;
use coreline_sim::measure::{Parallel, Scaling, parallel, scaling};

use crate::{Hits, Sessions};

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

/// Operations of each thread.
const ROUNDS: u64 = 20;

fn curve(
    name: &str,
    program: impl Fn(usize) -> Parallel + Clone + Send + Sync + 'static,
) -> Scaling {
    let machine = Spec::preset("epyc-9654-2s").unwrap();
    scaling(&Band::quick(&machine, 1), name, &[1, 8, 48, 192, 384], program).unwrap()
}

#[test]
fn hits_scale() {
    let hits = curve("add to hits", |threads| {
        let hits = Hits::new();
        parallel(threads, ROUNDS, |_| hits.add(1))
    });
    assert_eq!(hits.scales_to(), 384, "{hits}");
}

#[test]
fn totals_are_read_beside_writers() {
    curve("read the total beside writers", |threads| {
        let hits = Hits::new();
        parallel(threads, ROUNDS, |thread| match thread {
            0 => assert!(hits.total() < u64::MAX),
            _ => hits.add(1),
        })
    });
}

#[test]
fn sessions_open_and_close() {
    let sessions = curve("open and close sessions", |threads| {
        let sessions = Sessions::new();
        parallel(threads, ROUNDS, |thread| {
            sessions.open(thread as u64, String::new());
            assert!(sessions.close(thread as u64));
        })
    });
    assert_eq!(sessions.scales_to(), 384, "{sessions}");
}

#[test]
fn users_are_found() {
    let users = curve("find users", |threads| {
        let sessions = Sessions::new();
        (0..threads as u64).for_each(|number| sessions.open(number, "user".to_owned()));
        parallel(threads, ROUNDS, |thread| {
            assert!(sessions.user(thread as u64).is_some());
        })
    });
    assert_eq!(users.scales_to(), 384, "{users}");
}

/// All threads ask for one session: this does not scale, and must not get worse.
#[test]
fn one_user_is_found_by_all() {
    curve("find one user", |threads| {
        let sessions = Sessions::new();
        sessions.open(7, "user".to_owned());
        parallel(threads, ROUNDS, |_| assert!(sessions.user(7).is_some()))
    });
}
