//! The class `read-mostly`: reading a value that no thread replaces meanwhile, but one could.
//!
//! Locks read under their guard, and clone nothing: better than for a user that must keep the
//! value.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, RwLock};

use arc_swap::{ArcSwap, Cache};
use coreline::mask::{Reader, Versioned};
use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::ShardedLock;

use super::{Bench, Form, Goal, Most, Params, Role, candidate, does, rounds};

const OURS: [&str; 2] = ["coreline Versioned get", "coreline Versioned enter+get"];
const OF_THE_THREAD: &str = "coreline Versioned, thread-local reader";
const REFERENCE: &str = "arc-swap load";

/// The goals, set in advance: times the reference.
const MOST: f64 = 0.5;
const MOST_OF_THE_THREAD: f64 = 1.0;

/// The value that is read.
const VALUE: u64 = 7;

pub(super) fn bench() -> Bench {
    let goal = |(name, most)| Goal::everywhere(name, Most::Times(most, REFERENCE.to_owned()));
    let goals = [(OURS[0], MOST), (OURS[1], MOST), (OF_THE_THREAD, MOST_OF_THE_THREAD)];
    let form = Form {
        title: "read",
        threads: vec![1, 2, 8],
        window: None,
        params: Params::default(),
        candidates: vec![
            candidate(OURS[0], Role::Ours, || {
                does(Versioned::new(VALUE), |value, _, ops| {
                    let reader = value.reader();
                    let mut reading = reader.enter();
                    rounds(ops, |_| {
                        black_box(*reading.get());
                    });
                })
            }),
            candidate(OURS[1], Role::Ours, || {
                does(Versioned::new(VALUE), |value, _, ops| {
                    let reader = value.reader();
                    rounds(ops, |_| {
                        black_box(*reader.enter().get());
                    });
                })
            }),
            candidate(OF_THE_THREAD, Role::Ours, || {
                does((), |(), _, ops| {
                    rounds(ops, |_| {
                        READER.with(|reader| black_box(*reader.enter().get()));
                    });
                })
            }),
            candidate(REFERENCE, Role::Rival, || {
                does(ArcSwap::from_pointee(VALUE), |value, _, ops| {
                    rounds(ops, |_| {
                        black_box(**value.load());
                    });
                })
            }),
            candidate("arc-swap Cache", Role::Rival, || {
                does(ArcSwap::from_pointee(VALUE), |value, _, ops| {
                    let mut cache = Cache::new(value);
                    rounds(ops, |_| {
                        black_box(**cache.load());
                    });
                })
            }),
            candidate("std RwLock<Arc<T>>", Role::Rival, || {
                does(RwLock::new(Arc::new(VALUE)), |value, _, ops| {
                    rounds(ops, |_| {
                        black_box(**value.read().expect("no thread panics"));
                    });
                })
            }),
            candidate("parking_lot RwLock<Arc<T>>", Role::Rival, || {
                does(parking_lot::RwLock::new(Arc::new(VALUE)), |value, _, ops| {
                    rounds(ops, |_| {
                        black_box(**value.read());
                    });
                })
            }),
            candidate("crossbeam ShardedLock<Arc<T>>", Role::Rival, || {
                does(ShardedLock::new(Arc::new(VALUE)), |value, _, ops| {
                    rounds(ops, |_| {
                        black_box(**value.read().expect("no thread panics"));
                    });
                })
            }),
            candidate("thread-local version check", Role::Rival, || {
                does(Checked::new(VALUE), |value, _, ops| {
                    rounds(ops, |_| {
                        black_box(value.get());
                    });
                })
            }),
            candidate("plain load", Role::Floor, || {
                does(CachePadded::new(AtomicU64::new(VALUE)), |value, _, ops| {
                    rounds(ops, |_| {
                        black_box(value.load(Ordering::Relaxed));
                    });
                })
            }),
        ],
        reference: REFERENCE.to_owned(),
        goals: goals.map(goal).into(),
    };
    Bench { operation: "a read", forms: vec![form] }
}

/// For code that has no place to keep a reader, such as tasks that move between threads.
static SHARED: LazyLock<Versioned<u64>> = LazyLock::new(|| Versioned::new(VALUE));

thread_local! {
    static READER: Reader<u64> = SHARED.reader();
}

/// The hand-written form: a version beside the value, and a copy of both in each thread. It is
/// safe, but is never told when a copy may go.
struct Checked {
    version: CachePadded<AtomicU64>,
    current: Mutex<Arc<u64>>,
}

thread_local! {
    static COPY: RefCell<(u64, Option<Arc<u64>>)> = const { RefCell::new((0, None)) };
}

impl Checked {
    fn new(value: u64) -> Self {
        Checked {
            version: CachePadded::new(AtomicU64::new(1)),
            current: Mutex::new(Arc::new(value)),
        }
    }

    #[inline(always)]
    fn get(&self) -> u64 {
        COPY.with_borrow_mut(|(version, copy)| {
            // Acquire: pairs with the Release of a store that would replace the value.
            let now = self.version.load(Ordering::Acquire);
            match copy {
                Some(copy) if *version == now => **copy,
                _ => {
                    let current = Arc::clone(&self.current.lock().expect("no thread panics"));
                    (*version, *copy) = (now, Some(Arc::clone(&current)));
                    *current
                }
            }
        })
    }
}
