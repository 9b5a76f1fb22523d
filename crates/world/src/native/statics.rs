//! Statics: one object per process, one object per thread.
//!
//! The objects of a [`WorldStatic`] are a list, one for each type that the key was used with. The
//! object of the first type, often the only one, is found with one load and one comparison.
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | the key's, and `next` of an object | the next object; null: there is none | all, once |
//!
//! No object is ever taken out or dropped. There is no lock that a fork could leave locked.

use core::any::{Any, TypeId};
use core::cell::{Cell, RefCell};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::rc::Rc;

use crate::native::Native;
use crate::statics::Kept;
use crate::{Statics, WorldLocal, WorldStatic};

/// An object of the process.
#[repr(C)]
struct Object<T> {
    kept: Kept,
    object: T,
}

/// One object of the calling thread.
struct Local {
    key: *const WorldLocal,
    object: Rc<dyn Any>,
}

thread_local! {
    /// Found by a walk: a thread has one object per key, and a program has few keys.
    static LOCALS: RefCell<Vec<Local>> = const { RefCell::new(Vec::new()) };

    /// Whether the thread is in [`unless_making`]. Never dropped, so it is there for as
    /// long as the thread allocates; and never allocated.
    static MAKING: Cell<bool> = const { Cell::new(false) };
}

impl Statics for Native {
    /// Must not be called from a signal handler before the object exists.
    #[inline]
    fn with_static<T: Send + Sync + 'static, R>(
        key: &'static WorldStatic,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> R {
        // Acquire pairs with the release in `find_or_keep`: without it the object could be seen
        // unwritten.
        match NonNull::new(key.process().load(Ordering::Acquire)) {
            // SAFETY: from the list of a key.
            Some(kept) if unsafe { is_of::<T>(kept) } => use_it(unsafe { object(kept) }),
            _ => use_it(find_or_keep(key, init)),
        }
    }

    #[inline]
    fn try_with_static<T: Send + Sync + 'static, R>(
        key: &'static WorldStatic,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        // Acquire: as in `with_static`.
        match NonNull::new(key.process().load(Ordering::Acquire)) {
            // SAFETY: from the list of a key.
            Some(kept) if unsafe { is_of::<T>(kept) } => Some(use_it(unsafe { object(kept) })),
            _ => unless_making(|| find_or_keep(key, init)).map(use_it),
        }
    }

    #[inline]
    fn find_static<T: Send + Sync + 'static, R>(
        key: &'static WorldStatic,
        use_it: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        let mut link = key.process();
        loop {
            // Acquire: as in `with_static`.
            let kept = NonNull::new(link.load(Ordering::Acquire))?;
            // SAFETY: from the list of a key.
            if unsafe { is_of::<T>(kept) } {
                // SAFETY: from the list of a key, and of this type.
                return Some(use_it(unsafe { object(kept) }));
            }
            // SAFETY: what is in a list never goes.
            link = &unsafe { kept.as_ref() }.next;
        }
    }

    /// Must not be called from a signal handler.
    ///
    /// While a thread ends, after its objects were dropped, each call makes an object of its own.
    fn with_local<T: 'static, R>(
        key: &'static WorldLocal,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> R {
        // Nothing is borrowed while `init` or `use_it` runs: both may use this and other keys.
        let object = find_local(key).unwrap_or_else(|| keep_local(key, Rc::new(init())));
        use_it(&object)
    }
}

/// # Safety
///
/// From the list of a key.
#[inline]
unsafe fn is_of<T: 'static>(kept: NonNull<Kept>) -> bool {
    // SAFETY: what is in a list never changes except for `next`, and never goes.
    unsafe { kept.as_ref() }.of == TypeId::of::<T>()
}

/// # Safety
///
/// From the list of a key, and [`is_of::<T>`](is_of).
#[inline]
unsafe fn object<T: 'static>(kept: NonNull<Kept>) -> &'static T {
    // SAFETY: `find_or_keep` puts in an `Object` with the `TypeId` of its own type, whose first
    // field this is. It never goes.
    &unsafe { kept.cast::<Object<T>>().as_ref() }.object
}

/// Calls `make`, unless the calling thread is in such a call already; `None` then.
fn unless_making<R>(make: impl FnOnce() -> R) -> Option<R> {
    /// Also where `make` panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            MAKING.set(false);
        }
    }
    if MAKING.replace(true) {
        return None;
    }
    let _end = End;
    Some(make())
}

/// The way of a key's first use, and of every use with a further type.
#[cold]
fn find_or_keep<T: Send + Sync + 'static>(
    key: &'static WorldStatic,
    init: impl FnOnce() -> T,
) -> &'static T {
    let mut link = key.process();
    let mut init = Some(init);
    // Dropped where another thread was faster, or `init` itself.
    let mut made = None;
    loop {
        // Acquire pairs with the release below, as in `with_static`.
        if let Some(kept) = NonNull::new(link.load(Ordering::Acquire)) {
            // SAFETY: from the list of a key.
            if unsafe { is_of::<T>(kept) } {
                // SAFETY: from the list of a key, and of this type.
                return unsafe { object(kept) };
            }
            // SAFETY: what is in a list never goes.
            link = &unsafe { kept.as_ref() }.next;
        } else if let Some(init) = init.take() {
            // It may use this and other keys, and take its time.
            let kept = Kept { of: TypeId::of::<T>(), next: AtomicPtr::new(ptr::null_mut()) };
            made = Some(Box::new(Object { kept, object: init() }));
        } else if let Some(new) = made.take() {
            let new = Box::into_raw(new);
            let last = ptr::null_mut();
            // Release pairs with the acquire loads. Relaxed: nothing is read after a failure.
            match link.compare_exchange(last, new.cast(), Ordering::Release, Ordering::Relaxed) {
                // SAFETY: made above, and kept for good.
                Ok(_) => return &unsafe { &*new }.object,
                // SAFETY: made above, and no other thread has seen it.
                Err(_) => made = Some(unsafe { Box::from_raw(new) }),
            }
        }
    }
}

fn find_local<T: 'static>(key: &'static WorldLocal) -> Option<Rc<T>> {
    let found = LOCALS.try_with(|locals| {
        let locals = locals.borrow();
        let mut of_key = locals.iter().filter(|local| ptr::eq(local.key, key));
        of_key.find_map(|local| Rc::downcast(Rc::clone(&local.object)).ok())
    });
    // An error means that the thread is ending and its objects are gone.
    found.ok().flatten()
}

/// Keeps `made` for the calling thread, unless an object was kept while `made` was constructed.
/// Returns the object to use.
fn keep_local<T: 'static>(key: &'static WorldLocal, made: Rc<T>) -> Rc<T> {
    if let Some(object) = find_local(key) {
        return object;
    }
    let object: Rc<dyn Any> = Rc::<T>::clone(&made);
    // An error means that the thread is ending: then the object lives for this one use.
    let _ = LOCALS.try_with(|locals| locals.borrow_mut().push(Local { key, object }));
    made
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn threads_that_race_share_one_object() {
        static KEY: WorldStatic = WorldStatic::new("race");
        let barrier = Barrier::new(8);
        let use_it = || {
            barrier.wait();
            KEY.with::<Native, _, _>(
                || AtomicU32::new(0),
                |word| {
                    word.fetch_add(1, Ordering::Relaxed);
                    ptr::from_ref(word).addr()
                },
            )
        };
        let seen: Vec<usize> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(use_it)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|&at| at == seen[0]), "{seen:?}");
        let count = KEY.with::<Native, AtomicU32, _>(
            || unreachable!("made already"),
            |word| word.load(Ordering::Relaxed),
        );
        assert_eq!(count, 8);
    }

    #[test]
    fn an_object_of_each_type() {
        static KEY: WorldStatic = WorldStatic::new("types");
        let first = |value: u32| KEY.with::<Native, u32, _>(|| value, |object| *object);
        let second = |value: u64| KEY.with::<Native, u64, _>(|| value, |object| *object);
        assert_eq!((first(1), second(2)), (1, 2));
        assert_eq!((first(3), second(4)), (1, 2));
    }

    #[test]
    fn making_an_object_ends_where_it_comes_back_to_itself() {
        static KEY: WorldStatic = WorldStatic::new("within itself");
        fn try_it(init: impl FnOnce() -> u32) -> Option<u32> {
            KEY.try_with::<Native, _, _>(init, |object| *object)
        }
        assert_eq!(try_it(|| try_it(|| 1).map_or(2, |inner| 10 + inner)), Some(2));
        assert_eq!(try_it(|| unreachable!("made")), Some(2));
        assert_eq!(unless_making(|| try_it(|| 3)), Some(Some(2)), "it is there");
        let panics = || unless_making(|| panic!("as a constructor may"));
        drop(std::panic::catch_unwind(panics).unwrap_err());
        assert_eq!(unless_making(|| 4), Some(4), "the one that panicked is over");
    }

    #[test]
    fn making_an_object_may_use_its_own_key() {
        static KEY: WorldStatic = WorldStatic::new("nested");
        let outer = KEY.with::<Native, u32, _>(
            || 10 + KEY.with::<Native, u32, _>(|| 1, |inner| *inner),
            |object| *object,
        );
        assert_eq!(outer, 1, "the object that was kept first is the object");

        static LOCAL: WorldLocal = WorldLocal::new("nested");
        let outer = LOCAL.with::<Native, u32, _>(
            || 10 + LOCAL.with::<Native, u32, _>(|| 1, |inner| *inner),
            |object| LOCAL.with::<Native, u32, _>(|| 2, |again| (*object, *again)),
        );
        assert_eq!(outer, (1, 1));
    }

    #[test]
    fn each_thread_has_its_own_and_drops_it() {
        struct Counted(&'static AtomicU32);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
                // The thread's objects are going: this makes another, for this use only.
                assert_eq!(OTHER.with::<Native, u32, _>(|| 5, |object| *object), 5);
            }
        }
        static OTHER: WorldLocal = WorldLocal::new("other");
        static KEY: WorldLocal = WorldLocal::new("each");
        static DROPS: AtomicU32 = AtomicU32::new(0);
        for dropped in 1..=3 {
            let ended = thread::spawn(|| {
                KEY.with::<Native, _, _>(|| Counted(&DROPS), |_| ());
                KEY.with::<Native, Counted, _>(|| unreachable!("made already"), |_| ());
            });
            ended.join().unwrap();
            assert_eq!(DROPS.load(Ordering::Relaxed), dropped);
        }
    }
}
