//! Statics: one object per process, one object per thread.
//!
//! The first type that a [`WorldStatic`] is used with has its object beside the key, found with one
//! load and one comparison. Objects of further types, which only a key used by code that is generic
//! over the object has, are found in a map behind a lock. No object of the process is ever dropped.

use core::any::{Any, TypeId};
use core::cell::RefCell;
use core::ptr;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::native::Native;
use crate::{Statics, WorldLocal, WorldStatic};

type Shared = &'static (dyn Any + Send + Sync);

/// The objects of further types, by the address of the key.
type Further = BTreeMap<(usize, TypeId), Shared>;

/// Whoever keeps an object, here or beside its key, holds the lock, so nobody else keeps one then.
static FURTHER: Mutex<Further> = Mutex::new(Further::new());

/// One object of the calling thread.
struct Local {
    key: *const WorldLocal,
    object: Rc<dyn Any>,
}

thread_local! {
    /// Few and found by a walk: a thread has one object per key, and a program has a handful of
    /// keys.
    static LOCALS: RefCell<Vec<Local>> = const { RefCell::new(Vec::new()) };
}

impl Statics for Native {
    /// Must not be called from a signal handler before the object exists, nor ever with a further
    /// type than the key's first: that takes a lock.
    #[inline]
    fn with_static<T: Send + Sync + 'static, R>(
        key: &'static WorldStatic,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> R {
        match key.process().get() {
            Some(&(of, object)) if of == TypeId::of::<T>() => {
                // SAFETY: `find_or_keep` stores an object with the `TypeId` of its own type.
                use_it(unsafe { &*ptr::from_ref(object).cast::<T>() })
            }
            _ => use_it(find_or_keep(key, init)),
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

/// The way of a key's first use, and of every use with a further type.
#[cold]
fn find_or_keep<T: Send + Sync + 'static>(
    key: &'static WorldStatic,
    init: impl FnOnce() -> T,
) -> &'static T {
    if let Some(object) = find(key, &further()) {
        return object;
    }
    // No lock is held while `init` runs: it may use this and other keys, and take its time.
    let made = Box::new(init());
    let mut further = further();
    if let Some(object) = find(key, &further) {
        // Another thread was faster, or `init` itself. `further` is unlocked before `made` drops.
        return object;
    }
    let object: &'static T = Box::leak(made);
    let of = TypeId::of::<T>();
    if key.process().set((of, object)).is_err() {
        further.insert((ptr::from_ref(key).addr(), of), object);
    }
    object
}

fn further() -> MutexGuard<'static, Further> {
    // No user code runs under the lock, and no step of ours leaves the map half-changed.
    FURTHER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find<T: 'static>(key: &'static WorldStatic, further: &Further) -> Option<&'static T> {
    let first = key.process().get().map(|&(_, object)| object);
    let object: Option<&'static T> = first.and_then(|object| object.downcast_ref());
    object.or_else(|| further.get(&(ptr::from_ref(key).addr(), TypeId::of::<T>()))?.downcast_ref())
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

/// Keeps `made` for the calling thread, unless the making of it kept one; returns the one to use.
fn keep_local<T: 'static>(key: &'static WorldLocal, made: Rc<T>) -> Rc<T> {
    if let Some(object) = find_local(key) {
        return object;
    }
    let object: Rc<dyn Any> = Rc::<T>::clone(&made);
    // An error as above: then the object lives for this one use.
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
