//! The laws of the ends of objects: one that cannot live again, or that its holder discards, is
//! destroyed once, where it is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use coreline::object::{Budget, GetError, Object, ObjectCache};
use coreline_sim::Sim;
use coreline_world::{JoinHandle, Native, Ordering, Place, Placement, Testbed, Threads, Word};

use crate::worlds::{self, Effort, FEW, NATIVE, TORN, panic_of};

/// Something of which the system has few, as open files.
struct Handle(Arc<AtomicU32>);

impl Handle {
    /// One more, of at most ten.
    fn open(open: &Arc<AtomicU32>) -> Result<Handle, &'static str> {
        if open.fetch_add(1, Ordering::Relaxed) < 10 {
            return Ok(Handle(Arc::clone(open)));
        }
        open.fetch_sub(1, Ordering::Relaxed);
        Err("too many open files")
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn an_object_that_fails_its_check_is_destroyed_at_once() {
    let (open, told) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (opens, tells) = (Arc::clone(&open), Arc::clone(&told));
    let cache = ObjectCache::<Handle>::builder("connections")
        .check(|_| Err("broken".into()))
        .on_failure(move |handle, why| {
            assert!(handle.0.load(Ordering::Relaxed) > 0, "it is there still");
            assert_eq!(why.to_string(), "broken");
            tells.fetch_add(1, Ordering::Relaxed);
        })
        .build(move || Handle::open(&opens))
        .unwrap();
    for _ in 0..1000 {
        drop(cache.get().unwrap());
        assert_eq!(open.load(Ordering::Relaxed), 0);
    }
    let stats = cache.stats();
    assert_eq!((stats.failed, stats.destroyed, stats.quarantined), (1000, 1000, 0), "{stats}");
    assert_eq!((stats.discarded, told.load(Ordering::Relaxed)), (0, 1000), "{stats}");
    assert!(cache.quarantined().is_empty());
    cache.close().unwrap();
}

#[test]
fn a_quarantine_keeps_the_last_objects_until_the_cache_shrinks() {
    let open = Arc::new(AtomicU32::new(0));
    let opens = Arc::clone(&open);
    let cache = ObjectCache::<(Handle, u64)>::builder("connections")
        .check(|(_, number)| Err(format!("number {number}").into()))
        .quarantine(4)
        .build(move || Handle::open(&opens).map(|handle| (handle, 0)))
        .unwrap();
    let mut number = 0;
    let mut fail = |many: u64| {
        for _ in 0..many {
            number += 1;
            cache.get().unwrap().1 = number;
        }
    };
    fail(50);
    assert_eq!((cache.stats().quarantined, open.load(Ordering::Relaxed)), (4, 4));
    let mut found = cache.quarantined();
    let why: Vec<_> = found.iter().map(|found| found.why().to_string()).collect();
    assert_eq!(why, ["number 47", "number 48", "number 49", "number 50"], "the oldest first");
    assert_eq!(found[0].kept().1, 47);
    assert_eq!(cache.stats().quarantined, 4, "until they are destroyed");
    drop(found);
    assert_eq!((cache.stats().quarantined, open.load(Ordering::Relaxed)), (0, 0));
    fail(3);
    assert_eq!(cache.stats().quarantined, 3);
    assert_eq!((cache.shrink(), open.load(Ordering::Relaxed)), (3, 0));
    let stats = cache.stats();
    assert_eq!((stats.quarantined, stats.failed, stats.destroyed), (0, 53, 53), "{stats}");
}

/// Threads bring objects that fail, look at what was put aside, and shrink.
fn each_failed_object_is_destroyed_once<W: Testbed>(effort: Effort) {
    let (made, gone) = (Arc::new(W::U32::new_in(0)), Arc::new(W::U32::new_in(0)));
    let count = |word: &W::U32| {
        use coreline_world::Integer;
        // Relaxed: a count, read after the threads were joined.
        word.fetch_add(1, Ordering::Relaxed)
    };
    let (makes, goes) = (Arc::clone(&made), Arc::clone(&gone));
    let cache = ObjectCache::<u32, (), W>::builder_in("failing")
        .magazine(1)
        .quarantine(2)
        .check(|number| if *number % 3 == 0 { Err("a third".into()) } else { Ok(()) })
        .destructor(move |_| _ = count(&goes))
        .build(move || Ok::<_, GetError>(count(&makes)));
    let cache = Arc::new(cache.unwrap());
    let threads = effort.crew::<W, _, _>(|thread| {
        let cache = Arc::clone(&cache);
        move || {
            for round in 0..effort.rounds {
                let objects: Vec<_> = (0..3).map(|_| cache.get().unwrap()).collect();
                match (thread + round) % 8 {
                    0 => _ = cache.quarantined(),
                    1 => _ = cache.shrink(),
                    _ => {}
                }
                objects.into_iter().skip(1).for_each(Object::discard);
            }
        }
    });
    threads.into_iter().for_each(JoinHandle::join);
    let stats = cache.stats();
    let rounds = u64::from(effort.threads * effort.rounds);
    assert!(stats.quarantined <= 2 && stats.failed > 0, "{stats}");
    assert_eq!((stats.live, stats.discarded), (0, 2 * rounds), "{stats}");
    cache.shrink();
    // Relaxed, both: the threads were joined.
    let (made, gone) = (made.load(Ordering::Relaxed), gone.load(Ordering::Relaxed));
    assert_eq!(made, gone, "each is destroyed once");
    assert_eq!(cache.stats().destroyed, u64::from(gone));
}

#[test]
fn each_failed_object_is_destroyed_once_natively() {
    each_failed_object_is_destroyed_once::<Native>(Effort { rounds: 2000, ..NATIVE });
}

#[test]
fn each_failed_object_is_destroyed_once_when_simulated() {
    let law = || each_failed_object_is_destroyed_once::<Sim>(FEW);
    worlds::simulate("object::failed", "host-2c", TORN, law).unwrap();
}

/// Says whether `f` panics, and what it panics with.
fn panics(f: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(f)).err()?;
    Some((*panic.downcast_ref::<&str>()?).to_string())
}

/// Ends in a panic, if it is told to.
struct Ending(bool);

impl Drop for Ending {
    fn drop(&mut self) {
        assert!(!self.0, "a life ends in a panic");
    }
}

/// The first panic goes on; an object goes, with its charge, whatever panics.
#[test]
fn an_object_that_ends_in_panics_is_destroyed_once() {
    let budget = Budget::new("lives", 1).unwrap();
    let (destroyed, unlucky) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (destroys, is_unlucky) = (Arc::clone(&destroyed), Arc::clone(&unlucky));
    let cache = ObjectCache::<u32, Ending>::builder("panics")
        .budget(budget.clone(), 1)
        .check(|kind| match *kind {
            1 => panic!("a check panics"),
            2 => Err("it fails".into()),
            _ => Ok(()),
        })
        .on_failure(|kind, _| assert!(*kind != 2, "a hook panics"))
        .destructor(move |_| {
            destroys.fetch_add(1, Ordering::Relaxed);
            assert!(!is_unlucky.load(Ordering::Relaxed), "a destructor panics");
        })
        .build(|| Ok::<_, GetError>(0))
        .unwrap();
    type How = fn(Object<'_, u32, Ending>);
    let give: [(u32, bool, How, &str); 4] = [
        (1, false, |object| drop(object), "a check panics"),
        (2, false, |object| drop(object), "a hook panics"),
        (0, true, |object| drop(object), "a life ends in a panic"),
        (0, true, |object| object.discard(), "a life ends in a panic"),
    ];
    for is_unlucky in [false, true] {
        unlucky.store(is_unlucky, Ordering::Relaxed);
        for (kind, ends, how, expected) in give {
            let mut object = cache.get_with(|| Ending(ends)).unwrap();
            *object = kind;
            assert_eq!(panics(|| how(object)).as_deref(), Some(expected));
            let stats = cache.stats();
            assert_eq!((stats.live, stats.idle, budget.used()), (0, 0, 0), "{stats}");
            assert_eq!(destroyed.swap(0, Ordering::Relaxed), 1, "{kind}: {expected}");
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.failed, stats.discarded, stats.destroyed), (6, 2, 8), "{stats}");
}

#[test]
fn an_object_that_comes_back_in_a_panic_is_discarded_if_the_cache_says_so() {
    for discards in [true, false] {
        let checks = Arc::new(AtomicU32::new(0));
        let checked = Arc::clone(&checks);
        let cache = ObjectCache::<u32>::builder("panics")
            .discard_on_panic(discards)
            .check(move |_| {
                checked.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .build(|| Ok::<_, GetError>(0))
            .unwrap();
        let _other = cache.get().unwrap();
        for _ in 0..3 {
            let broken = panics(|| {
                let mut object = cache.get().unwrap();
                *object = 7;
                panic!("half changed");
            });
            assert_eq!(broken.as_deref(), Some("half changed"));
            // Outside of the panic it goes back.
            assert_eq!(*cache.get().unwrap(), if discards { 0 } else { 7 });
        }
        let stats = cache.stats();
        assert_eq!((stats.discarded, stats.failed), (3 * u64::from(discards), 0), "{stats}");
        assert_eq!(checks.load(Ordering::Relaxed), if discards { 3 } else { 6 });
    }
}

/// The panic of one simulated thread is no other thread's, though all run in one of the host's.
#[test]
fn objects_of_other_threads_than_the_one_that_panics_live_again_when_simulated() {
    struct Yields;

    impl Drop for Yields {
        fn drop(&mut self) {
            // The other threads go on while this one unwinds.
            (0..50).for_each(|_| coreline_sim::thread::yield_now());
        }
    }

    let law = || {
        let cache = ObjectCache::<u32, (), Sim>::builder_in("panics").discard_on_panic(true);
        let cache = Arc::new(cache.build(|| Ok::<_, GetError>(0)).unwrap());
        let work = |breaks: bool| {
            let cache = Arc::clone(&cache);
            move || {
                let broken = panics(|| {
                    let object = cache.get().unwrap();
                    let _yields = Yields;
                    assert!(!breaks, "it breaks");
                    drop(object);
                    (0..20).for_each(|_| drop(cache.get().unwrap()));
                });
                assert_eq!(broken.is_some(), breaks);
            }
        };
        let place = FEW.places::<Sim>();
        let spawn = |thread| {
            use coreline_world::Threads;
            Sim::spawn(place(thread), work(thread % 2 == 0)).unwrap()
        };
        let threads: Vec<_> = (0..4).map(spawn).collect();
        threads.into_iter().for_each(JoinHandle::join);
        let stats = cache.stats();
        assert_eq!((stats.live, stats.discarded), (0, 2), "{stats}");
    };
    worlds::simulate("object::panics", "host-2c", TORN, law).unwrap();
}

/// Runs on a stack of 256 KiB.
fn on_a_small_stack(f: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let small = thread::Builder::new().stack_size(256 << 10);
        small.spawn_scoped(scope, f).unwrap().join().unwrap();
    });
}

/// More than that stack has room for.
const LARGE: usize = 1 << 20;

/// A large object that counts its drops.
struct Large {
    bytes: [u8; LARGE],
    drops: Arc<AtomicU32>,
}

impl Drop for Large {
    fn drop(&mut self) {
        assert_eq!(self.bytes[LARGE - 1], 7);
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn objects_that_are_larger_than_the_stack_are_built_and_destroyed_in_place() {
    let drops = Arc::new(AtomicU32::new(0));
    for in_place in [false, true] {
        let theirs = Arc::clone(&drops);
        let mut builder = ObjectCache::<Large>::builder("large").alignment(64);
        if in_place {
            builder = builder.destructor_in_place(|large| large.bytes.fill(7));
        }
        let cache = builder.build_in_place(move |mut large| {
            let at = large.as_uninit().as_mut_ptr();
            // SAFETY: the memory of the object, all of whose fields are written.
            Ok::<_, GetError>(unsafe {
                (&raw mut (*at).bytes).write_bytes(if in_place { 1 } else { 7 }, 1);
                (&raw mut (*at).drops).write(Arc::clone(&theirs));
                large.assume_built()
            })
        });
        let cache = cache.unwrap();
        on_a_small_stack(|| {
            let first = cache.get().unwrap();
            drop((cache.get().unwrap(), first));
            cache.get().unwrap().discard();
            assert_eq!(drops.swap(0, Ordering::Relaxed), 1);
            assert_eq!(cache.shrink(), 1);
            drop(cache);
        });
        assert_eq!(drops.swap(0, Ordering::Relaxed), 1);
    }
}

#[test]
fn what_was_built_in_place_is_dropped_if_the_constructor_gives_up() {
    struct Counted(Arc<AtomicU32>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    let dropped = Arc::new(AtomicU32::new(0));
    let theirs = Arc::clone(&dropped);
    let step = AtomicU32::new(0);
    let cache = ObjectCache::<[Counted; 8]>::builder("gives up").build_in_place(move |array| {
        let step = step.fetch_add(1, Ordering::Relaxed);
        let built = array.fill_with(|number| {
            assert!(step != 0 || number < 5, "an element panics");
            Counted(Arc::clone(&theirs))
        });
        if step == 1 { Err("it gives up") } else { Ok(built) }
    });
    let cache = cache.unwrap();
    assert_eq!(panics(|| drop(cache.get())).as_deref(), Some("an element panics"));
    assert_eq!(dropped.swap(0, Ordering::Relaxed), 5);
    assert!(matches!(cache.get(), Err(GetError::Constructor(_))));
    assert_eq!(dropped.swap(0, Ordering::Relaxed), 8);
    drop(cache.get().unwrap());
    assert_eq!((dropped.load(Ordering::Relaxed), cache.shrink()), (0, 1));
    assert_eq!(dropped.load(Ordering::Relaxed), 8);
}

#[test]
fn an_object_is_dropped_in_place_also_if_its_destructor_panics() {
    let drops = Arc::new(AtomicU32::new(0));
    let theirs = Arc::clone(&drops);
    let cache = ObjectCache::<Ending, ()>::builder("in place")
        .destructor_in_place(move |_| {
            theirs.fetch_add(1, Ordering::Relaxed);
            panic!("a destructor panics");
        })
        .build(|| Ok::<_, GetError>(Ending(false)))
        .unwrap();
    drop(cache.get().unwrap());
    assert_eq!(panics(|| _ = cache.shrink()).as_deref(), Some("a destructor panics"));
    assert_eq!((drops.load(Ordering::Relaxed), cache.stats().destroyed), (1, 1));
}

/// A handle keeps its cache; the last one drops it with all objects.
#[test]
fn an_owned_object_keeps_its_cache() {
    let open = Arc::new(AtomicU32::new(0));
    let opens = Arc::clone(&open);
    let cache = ObjectCache::<Handle, Ending>::builder("owned").build(move || Handle::open(&opens));
    let cache = Arc::new(cache.unwrap());
    let get = || cache.get_owned_with(|| Ending(false)).unwrap();
    let (first, second, third) = (get(), get(), get());
    assert!(Arc::ptr_eq(first.cache(), &cache));
    first.discard();
    assert_eq!((cache.stats().live, open.load(Ordering::Relaxed)), (2, 2));
    drop(cache);
    let gives_back = move || {
        let cache = Arc::clone(second.cache());
        drop(second);
        let stats = cache.stats();
        assert_eq!((stats.live, stats.idle), (1, 1), "{stats}");
    };
    thread::spawn(gives_back).join().unwrap();
    assert_eq!(open.load(Ordering::Relaxed), 2, "the third keeps the cache");
    let last = panics(move || {
        let mut third = third;
        third.life_mut().0 = true;
        drop(third);
    });
    assert_eq!(last.as_deref(), Some("a life ends in a panic"));
    assert_eq!(open.load(Ordering::Relaxed), 0, "the cache is gone");
}

/// A cache's own memory after it shrank is the same however many objects were idle at one time, but
/// for what is left of their magazines.
#[test]
fn a_cache_that_shrank_keeps_little_memory() {
    let bytes_after = |many: usize| {
        let cache = ObjectCache::<u64>::builder("many").build(|| Ok::<_, GetError>(7)).unwrap();
        let objects: Vec<_> = (0..many).map(|_| cache.get().unwrap()).collect();
        drop(objects);
        assert_eq!(cache.shrink(), many);
        cache.stats().bytes
    };
    // On one CPU: each on which it is used has its part of the cache.
    let both = Native::spawn(Placement::On(Native::cpu()), move || [100, 100_000].map(bytes_after));
    let bytes = both.unwrap().join();
    // Of 512 bytes each: 17 bytes, with the part of the last ones.
    let magazines = 100_000 / 32 + 64;
    assert!(bytes[1] - bytes[0] <= 17 * magazines, "{bytes:?}");
}

#[test]
#[cfg(debug_assertions)]
fn a_destructor_that_calls_a_cache_is_found_natively() {
    static OTHER: std::sync::OnceLock<ObjectCache<u32>> = std::sync::OnceLock::new();
    OTHER.get_or_init(|| ObjectCache::builder("other").build(|| Ok::<_, GetError>(0)).unwrap());
    let theirs = OTHER.get().expect("made");
    let calls: [fn(&mut Option<Object<'_, u32>>); 3] = [
        |_| drop(OTHER.get().expect("made").get()),
        |object| drop(object.take()),
        |_| _ = OTHER.get().expect("made").shrink(),
    ];
    for call in calls {
        let held = Mutex::new(Some(theirs.get().unwrap()));
        let cache = ObjectCache::<u32>::builder("calls")
            .destructor(move |_| call(&mut held.lock().unwrap_or_else(PoisonError::into_inner)))
            .build(|| Ok::<_, GetError>(0))
            .unwrap();
        drop(cache.get().unwrap());
        let message = panic_of(AssertUnwindSafe(|| _ = cache.shrink()));
        assert!(message.contains("take leaf locks only") && message.contains("other"), "{message}");
        drop(cache);
        assert_eq!(theirs.stats().live, 0, "it went back nevertheless");
    }
}

#[test]
fn what_is_never_given_back_is_told() {
    let cache = ObjectCache::<u32>::builder("leaky").build(|| Ok::<_, GetError>(7)).unwrap();
    let leaked = cache.get().unwrap().into_raw();
    let told = cache.close().unwrap_err();
    assert_eq!((told.name.as_str(), told.count), ("leaky", 1), "{told}");
    // SAFETY: it keeps its memory.
    assert_eq!(unsafe { leaked.read() }, 7);
}
