//! Object caches and forks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use coreline::object::{Budget, GetError, ObjectCache};

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
