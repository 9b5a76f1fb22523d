//! Object caches, forks and the ends of threads.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use coreline::object::{Budget, GetError, Object, ObjectCache};

use crate::fork::in_children;

/// A child that was forked while other threads got and gave back, constructed and destroyed.
#[test]
fn a_child_goes_on_with_the_objects_that_are_idle() {
    let budget = Budget::new("children", 1 << 30).unwrap();
    let cache = ObjectCache::<[u64; 8]>::builder("objects")
        .magazine(2)
        .idle_limit(40)
        .budget(budget.clone(), 64)
        .build(|| Ok::<_, GetError>([7; 8]))
        .unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut held = Vec::new();
                // Relaxed: carries nothing but itself.
                while !over.load(Ordering::Relaxed) {
                    (0..9).for_each(|_| held.push(cache.get().unwrap()));
                    held.truncate(2);
                    cache.shrink();
                }
            });
        }
        in_children(&over, || {
            for _ in 0..20 {
                let objects: Vec<_> = (0..30).map(|_| cache.get().unwrap()).collect();
                assert!(objects.iter().all(|object| **object == [7; 8]));
                let mut at: Vec<_> =
                    objects.iter().map(|object| (&raw const **object).addr()).collect();
                at.sort_unstable();
                at.dedup();
                assert_eq!(at.len(), 30, "an object in two hands");
            }
            cache.shrink();
        });
    });
    assert_eq!((cache.stats().live, budget.used()), (0, 0));
}

/// Objects that a thread kept to its end go back, or are destroyed, when its locals are dropped.
#[test]
fn a_thread_that_ends_gives_its_objects_back() {
    static CACHE: OnceLock<ObjectCache<u32>> = OnceLock::new();
    static DESTROYED: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static KEPT: RefCell<Vec<Object<'static, u32>>> = const { RefCell::new(Vec::new()) };
    }
    // Relaxed, here and below: a count, read after the thread was joined.
    let destroy = |_| _ = DESTROYED.fetch_add(1, Ordering::Relaxed);
    let builder = ObjectCache::builder("kept").idle_limit(3).destructor(destroy);
    let cache = CACHE.get_or_init(|| builder.build(|| Ok::<_, GetError>(0)).unwrap());
    for first in [true, false] {
        let keep = move || {
            let get = || cache.get().unwrap();
            // Locals drop in any order: the list, before or after what the cache has of the thread.
            let got = (!first).then(get);
            KEPT.with_borrow_mut(|kept| kept.extend((0..5).map(|_| get())));
            drop(got);
        };
        thread::spawn(keep).join().unwrap();
        let stats = cache.stats();
        assert_eq!((stats.live, stats.quarantined), (0, 0), "{stats}");
        assert!(stats.idle <= 3 && DESTROYED.load(Ordering::Relaxed) >= 2, "{stats}");
    }
}
