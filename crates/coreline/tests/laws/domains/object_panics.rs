//! Panics of what a cache calls end no process and lose no object, also one at a time when the
//! thread unwinds already.

use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use coreline::object::{Budget, GetError, ObjectCache};

/// Panics when it is dropped.
#[derive(Debug)]
struct Bad;

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bad")
    }
}

impl Error for Bad {}

impl Drop for Bad {
    fn drop(&mut self) {
        panic!("a reason that cannot be dropped");
    }
}

fn caught(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

#[test]
fn a_check_panics_while_its_thread_unwinds() {
    let cache = ObjectCache::<Vec<u8>>::builder("unwinds")
        .check(|bytes| {
            assert!(bytes.len() < 10, "too long");
            Ok(())
        })
        .build(|| Ok::<_, GetError>(Vec::new()))
        .unwrap();
    assert!(caught(|| {
        let mut bytes = cache.get().unwrap();
        bytes.resize(100, 0);
        panic!("with an object that is half changed");
    }));
    let stats = cache.stats();
    assert_eq!((stats.failed, stats.live, stats.destroyed), (1, 0, 1), "{stats}");
}

#[test]
fn several_destructors_of_one_list_panic() {
    let cache = ObjectCache::<u32>::builder("several")
        .quarantine(2)
        .check(|_| Err("no".into()))
        .destructor(|_| panic!("a destructor"))
        .build(|| Ok::<_, GetError>(0))
        .unwrap();
    let objects = [cache.get().unwrap(), cache.get().unwrap()];
    drop(objects);
    assert!(caught(|| {
        // One panic goes on, and the other one is contained.
        let _quarantined = cache.quarantined();
        panic!("while they are there");
    }));
    assert_eq!(cache.stats().quarantined, 0);
}

#[test]
fn a_reason_whose_drop_panics_loses_no_object() {
    for quarantine in [0, 1] {
        let cache = ObjectCache::<u32>::builder("reasons")
            .quarantine(quarantine)
            .check(|_| Err(Box::new(Bad)))
            .build(|| Ok::<_, GetError>(0))
            .unwrap();
        for _ in 0..3 {
            let object = cache.get().unwrap();
            caught(|| drop(object));
        }
        caught(|| _ = cache.shrink());
        let stats = cache.stats();
        assert_eq!((stats.destroyed, stats.quarantined), (3, 0), "{stats}");
    }
}

/// Panics when it is dropped.
struct Kept;

impl Drop for Kept {
    fn drop(&mut self) {
        panic!("an object that cannot be dropped");
    }
}

#[test]
fn an_object_and_its_reason_panic() {
    let cache = ObjectCache::<Kept>::builder("both")
        .quarantine(1)
        .check(|_| Err(Box::new(Bad)))
        .build(|| Ok::<_, GetError>(Kept))
        .unwrap();
    drop(cache.get().unwrap());
    assert!(caught(|| drop(cache.quarantined())));
    assert_eq!(cache.stats().quarantined, 0);
}

#[test]
fn a_refusal_costs_no_more_than_its_budgets() {
    let root = Budget::new("root", 1000).unwrap();
    let mut leaf = root.clone();
    for _ in 0..40 {
        leaf = leaf.child("inner", 1000).unwrap();
    }
    root.charge(1000).unwrap();
    // With two tries for each level, of each of which the level above makes two, it would not end.
    assert_eq!(leaf.charge(1).unwrap_err().name, "root");
    root.uncharge(500);
    leaf.charge(500).unwrap();
    assert_eq!((root.used(), leaf.used()), (1000, 500));
}
