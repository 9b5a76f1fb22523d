//! Object caches, forks and the ends of threads.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{process, thread};

use coreline::object::{Budget, GetError, Object, ObjectCache};
use coreline_world::native;

use crate::filter::{in_a_child, trap};
use crate::fork::in_children;
use crate::os::on_signal;

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
                    (0..4).for_each(|_| held.pop().into_iter().for_each(Object::discard));
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
                objects.into_iter().step_by(3).for_each(Object::discard);
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

/// Objects are not for handlers, so no system call holds signals off while one is constructed or
/// destroyed.
#[test]
fn objects_are_constructed_and_destroyed_without_system_calls() {
    in_a_child("object::objects_are_constructed_and_destroyed_without_system_calls", || {
        static HELD: AtomicU32 = AtomicU32::new(0);

        extern "C" fn held(_signal: c_int) {
            // Relaxed: a count of this thread's.
            HELD.fetch_add(1, Ordering::Relaxed);
        }

        // Without sections each operation on a stack holds signals off.
        if native::probe().sections.is_err() {
            return;
        }
        let cache = ObjectCache::<[u64; 8]>::builder("quiet").build(|| Ok::<_, GetError>([7; 8]));
        let cache = cache.unwrap();
        drop(cache.get().unwrap());
        let mut objects = Vec::with_capacity(5000);
        on_signal(libc::SIGSYS, held);
        trap(libc::SYS_rt_sigprocmask);
        objects.extend((0..5000).map(|_| cache.get().unwrap()));
        // Relaxed, here and below: a count of this thread's.
        let constructing = HELD.swap(0, Ordering::Relaxed);
        objects.clear();
        assert_eq!(cache.shrink(), 5000);
        let destroying = HELD.swap(0, Ordering::Relaxed);
        // What stacks and slabs are made by may hold them off now and then.
        assert!(constructing < 100 && destroying < 100, "{constructing}, {destroying}");
    });
}

/// Where signals are not held off, a handler may fork while its thread has the lock of the objects'
/// memory, or waits for it, and return in the child.
#[test]
fn a_child_that_a_handler_forked_goes_on_where_its_thread_stood() {
    in_a_child("object::a_child_that_a_handler_forked_goes_on_where_its_thread_stood", || {
        static PARENT: AtomicU32 = AtomicU32::new(0);
        static FORKED: AtomicU32 = AtomicU32::new(0);

        extern "C" fn fork(_signal: c_int) {
            // The bare call: what the C library does at a fork is not for handlers.
            // SAFETY: without flags it is a fork, whose child has all memory of its own.
            let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
            if child == 0 {
                // SAFETY: ends a child that waits for good.
                unsafe { libc::alarm(30) };
            } else {
                // Relaxed: a count.
                FORKED.fetch_add(1, Ordering::Relaxed);
            }
        }

        // Relaxed: before all threads.
        PARENT.store(process::id(), Ordering::Relaxed);
        // None is idle: each get constructs, and each object that comes back is destroyed. Nothing
        // of it allocates, as another thread may have the allocator's lock at the time of a fork.
        let cache = ObjectCache::<[u64; 8]>::builder("handlers")
            .idle_limit(0)
            .build(|| Ok::<_, GetError>([7; 8]))
            .unwrap();
        let over = AtomicBool::new(false);
        let child = || process::id() != PARENT.load(Ordering::Relaxed);
        let use_it = || {
            let mut held: [Option<Object<'_, [u64; 8]>>; 8] = Default::default();
            held.iter_mut().for_each(|place| *place = cache.get().ok());
            held.iter().all(|object| object.as_ref().is_some_and(|object| **object == [7; 8]))
        };
        thread::scope(|scope| {
            let mut ids = Vec::new();
            for _ in 0..2 {
                let (tell, told) = std::sync::mpsc::channel();
                let (over, use_it) = (&over, &use_it);
                scope.spawn(move || {
                    // SAFETY: asks for the calling thread.
                    tell.send(unsafe { libc::pthread_self() }).unwrap();
                    // Relaxed: carries nothing but itself.
                    while !over.load(Ordering::Relaxed) {
                        let sound = use_it();
                        if child() {
                            let sound = sound && (0..20).all(|_| use_it());
                            // SAFETY: ends the child.
                            unsafe { libc::_exit(i32::from(!sound)) };
                        }
                        assert!(sound);
                    }
                });
                ids.push(told.recv().unwrap());
            }
            on_signal(libc::SIGUSR1, fork);
            for round in 0..200_u32 {
                // SAFETY: the thread runs until it is told that it is over.
                unsafe { libc::pthread_kill(ids[round as usize % 2], libc::SIGUSR1) };
                // Relaxed: a count.
                while FORKED.load(Ordering::Relaxed) <= round {
                    thread::yield_now();
                }
                let mut status = 0;
                // SAFETY: waits for any child.
                assert!(unsafe { libc::wait(&raw mut status) } > 0);
                assert!(libc::WIFEXITED(status), "signal {} ended it", libc::WTERMSIG(status));
                assert_eq!(libc::WEXITSTATUS(status), 0);
            }
            // Relaxed: carries nothing but itself.
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(cache.stats().live, 0);
    });
}
