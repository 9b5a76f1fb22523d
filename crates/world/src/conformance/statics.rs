//! Laws of statics.

use std::sync::Arc;

use super::spawn;
use crate::{Integer, JoinHandle, Ordering, Testbed, Word, Words, WorldLocal, WorldStatic};

/// Checks that all threads get the same object for a key. The object is created once, so one
/// thread's changes are visible to the other threads.
pub fn a_static_is_one_object<W: Testbed>() {
    static COUNTER: WorldStatic = WorldStatic::new("conformance counter");
    fn add<W: Testbed>(value: u32) -> (usize, u32) {
        COUNTER.with::<W, W::U32, _>(
            || W::U32::new_in(0),
            |word| (core::ptr::from_ref(word).addr(), word.fetch_add(value, Ordering::Relaxed)),
        )
    }
    // A native static outlives this law: compare with what an earlier run left.
    let (here, before) = add::<W>(0);
    let threads = [spawn::<W, _>(|| add::<W>(1)), spawn::<W, _>(|| add::<W>(2))];
    for thread in threads {
        assert_eq!(thread.join().0, here);
    }
    assert_eq!(add::<W>(0), (here, before + 3));
}

/// Checks that one key with two types names two objects, and that each keeps its first value.
pub fn a_static_is_one_object_for_each_type<W: Testbed>() {
    static KEY: WorldStatic = WorldStatic::new("conformance types");
    for _ in 0..2 {
        assert_eq!(KEY.with::<W, u8, _>(|| 7, |object| *object), 7);
        assert_eq!(KEY.with::<W, u16, _>(|| 9, |object| *object), 9);
    }
    assert_eq!(KEY.with::<W, u8, _>(|| 8, |object| *object), 7);
}

/// Checks that two keys name two objects of one type, even if both keys have the same name. The
/// same must hold for the keys of locals.
pub fn each_key_has_its_own_object<W: Testbed>() {
    static ONE: WorldStatic = WorldStatic::new("conformance key");
    static OTHER: WorldStatic = WorldStatic::new("conformance key");
    static LOCAL: WorldLocal = WorldLocal::new("conformance local key");
    static OTHER_LOCAL: WorldLocal = WorldLocal::new("conformance local key");
    for _ in 0..2 {
        assert_eq!(ONE.with::<W, u32, _>(|| 1, |object| *object), 1);
        assert_eq!(OTHER.with::<W, u32, _>(|| 2, |object| *object), 2);
        assert_eq!(LOCAL.with::<W, u32, _>(|| 3, |object| *object), 3);
        assert_eq!(OTHER_LOCAL.with::<W, u32, _>(|| 4, |object| *object), 4);
    }
}

/// Checks that a local belongs to its thread from its first use to the thread's end. The local must
/// drop at that end, before the join returns.
pub fn a_local_belongs_to_its_thread<W: Testbed>() {
    static LOCAL: WorldLocal = WorldLocal::new("conformance local");

    struct Local<W: Words> {
        uses: W::U32,
        dropped: Arc<W::U32>,
    }

    impl<W: Words> Drop for Local<W> {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn use_it<W: Testbed>(dropped: &Arc<W::U32>) -> u32 {
        LOCAL.with::<W, Local<W>, _>(
            || Local { uses: W::U32::new_in(0), dropped: Arc::clone(dropped) },
            |local| local.uses.fetch_add(1, Ordering::Relaxed),
        )
    }

    let dropped = Arc::new(W::U32::new_in(0));
    let thread = || {
        let dropped = Arc::clone(&dropped);
        spawn::<W, _>(move || {
            let uses = [use_it::<W>(&dropped), use_it::<W>(&dropped)];
            assert_eq!(uses, [0, 1], "the second use must find the first one's object");
            dropped.load(Ordering::Relaxed)
        })
    };
    assert_eq!(thread().join(), 0, "dropped before the thread's end");
    assert_eq!(dropped.load(Ordering::Relaxed), 1, "not dropped at the thread's end");
    for thread in [thread(), thread()] {
        thread.join();
    }
    assert_eq!(dropped.load(Ordering::Relaxed), 3);
}
