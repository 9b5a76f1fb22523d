//! The rule of leaf locks, checked in builds with debug assertions.
//!
//! The destructor of an [`ObjectCache`](super::ObjectCache) runs in the thread that shrank the
//! cache, whatever that thread was doing. It must not take a lock that some thread holds while it
//! uses a cache. That thread may be the same one, or may wait for it. So a destructor must take
//! only leaf locks, and must not call a cache.

use core::cell::Cell;

use coreline_world::{World, WorldLocal};

/// How many destructors the calling thread is in.
static DESTRUCTORS: WorldLocal = WorldLocal::new("destructors of object caches");

fn with<W: World, R>(f: impl FnOnce(&Cell<u32>) -> R) -> R {
    DESTRUCTORS.with::<W, Cell<u32>, R>(|| Cell::new(0), f)
}

/// Runs a destructor.
pub(super) fn in_a_destructor<W: World>(destructor: impl FnOnce()) {
    /// Ends it, also if it panics.
    struct End<W: World>(core::marker::PhantomData<W>);

    impl<W: World> Drop for End<W> {
        fn drop(&mut self) {
            // A thread that ends may have dropped its count: then each call finds a new one.
            with::<W, _>(|inside| inside.set(inside.get().saturating_sub(1)));
        }
    }

    let _end = cfg!(debug_assertions).then(|| {
        with::<W, _>(|inside| inside.set(inside.get() + 1));
        End::<W>(core::marker::PhantomData)
    });
    destructor();
}

/// Panics in a destructor, in builds with debug assertions.
#[inline]
pub(super) fn no_cache_in_a_destructor<W: World>(name: &str) {
    if cfg!(debug_assertions) {
        let inside = with::<W, _>(Cell::get) > 0;
        assert!(
            !inside,
            "the destructor of an object calls the cache {name}: it may take leaf locks only"
        );
    }
}
