//! Tests of the statistics of a cache that no thread uses.

use std::sync::Arc;

use coreline_sim::{Faults, Machine, Sim};
use coreline_topology::CpuId;
use coreline_world::{Clock, JoinHandle, Native, Ordering, Placement, Threads, Word, Words, World};

use super::budget::batch;
use super::cache::ObjectCache;
use super::depot::ROUNDS;
use super::handle::Object;
use crate::Lacking;

type Cache<W> = ObjectCache<[u64; 3], (), W>;

/// Room that is taken in the limit: for stacks, and for what is in depots.
fn check_room<W: World>(cache: &Cache<W>, limit: usize) {
    let stacks: usize = cache.parts.iter().map(|part| part.idle.capacity()).sum();
    let over = cache.parts.iter().map(|part| &part.idle).find(|it| it.len() > it.capacity());
    assert!(over.is_none(), "of {limit}: more than there is room for: {over:?}");
    // Relaxed: no thread uses the cache.
    let room = cache.state.0.room.load(Ordering::Relaxed) as usize;
    assert_eq!(room, stacks + cache.depots.objects(), "of {limit}");
    let stats = cache.stats();
    assert!(stats.idle <= room && room <= limit, "{stats}: {room} of {limit}");
}

/// Nothing is left, in memory or in the limit.
fn check_empty<W: World>(cache: &Cache<W>) {
    cache.shrink();
    if cache.idle_limit.is_some() {
        check_room(cache, 0);
    }
    let stats = cache.stats();
    assert_eq!((stats.live, stats.idle, cache.slabs.bytes()), (0, 0, 0), "{stats}");
}

/// Threads on all CPUs get and give back, and shrink.
fn use_by_all(cache: &Arc<Cache<Sim>>, threads: u32, shrinks: bool) {
    let work = |thread: u32| {
        let cache = Arc::clone(cache);
        move || {
            let mut held = Vec::new();
            for round in 0..12 {
                let last = round == 11;
                // In the end more than the largest stack takes.
                let many = if last && !shrinks { 140 } else { (thread * 7 + round * 3) % 11 };
                held.extend((0..many).map(|_| cache.get().unwrap()));
                held.truncate(if last { 0 } else { (thread + round) as usize % 5 });
                if shrinks && (thread + round).is_multiple_of(16) {
                    cache.shrink();
                }
            }
        }
    };
    let on = |thread: u32| Placement::On(CpuId::new(thread));
    let threads: Vec<_> =
        (0..threads).map(|thread| Sim::spawn(on(thread), work(thread)).unwrap()).collect();
    threads.into_iter().for_each(JoinHandle::join);
}

#[test]
fn room_is_what_stacks_and_depots_may_hold() {
    for (machine, threads, seeds) in [("host-2c", 2, 100), ("kunpeng920-96c-4n", 96, 2)] {
        for seed in 0..seeds {
            let faults = Faults { preempt: 9, migrate: 9, preempt_access: 40, ..Faults::NONE };
            let program = move || {
                for limit in [0, 3, 40, 1000] {
                    let builder = Cache::<Sim>::builder_in("room").magazine(2).idle_limit(limit);
                    let cache = Arc::new(builder.build(|| Ok::<_, Lacking>([0; 3])).unwrap());
                    use_by_all(&cache, threads, true);
                    check_room(&cache, limit);
                    check_empty(&cache);
                }
            };
            let machine = Machine::preset(machine).unwrap().seed(seed).faults(faults);
            machine.run(program).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

/// Threads that roam, and give back more than may be idle. Where stacks grew, one that had looked
/// before, and was moved, made a full one smaller.
#[test]
fn stacks_stay_as_they_are_where_idle_objects_have_a_limit() {
    let limit = 64;
    let program = move || {
        let builder = Cache::<Sim>::builder_in("stays").magazine(1).idle_limit(limit);
        let cache = Arc::new(builder.build(|| Ok::<_, Lacking>([0; 3])).unwrap());
        cache.enlarge();
        let work = |cache: Arc<Cache<Sim>>| {
            move || drop((0..24).map(|_| cache.get().unwrap()).collect::<Vec<_>>())
        };
        let spawn = |_| Sim::spawn(Placement::Anywhere, work(Arc::clone(&cache))).unwrap();
        let threads: Vec<_> = (0..8).map(spawn).collect();
        threads.into_iter().for_each(JoinHandle::join);
        check_room(&cache, limit);
        let sizes: Vec<_> = cache.parts.iter().map(|part| part.idle.capacity()).collect();
        assert!(sizes.iter().all(|size| matches!(size, 0 | 2)), "{sizes:?}");
        assert!(sizes.contains(&2), "{sizes:?}");
    };
    for seed in 0..100 {
        let faults = Faults { migrate: 3, preempt_access: 3, ..Faults::NONE };
        let machine = Machine::preset("host-2c").unwrap().seed(seed).faults(faults);
        machine.run(program).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn what_is_in_a_depot_is_of_its_node() {
    let program = || {
        let builder = Cache::<Sim>::builder_in("home").magazine(2);
        let cache = Arc::new(builder.build(|| Ok::<_, Lacking>([0; 3])).unwrap());
        use_by_all(&cache, 96, false);
        let mut found = 0;
        for depot in 0..cache.depots.len() {
            let mut into = [None; ROUNDS];
            while cache.depots.drain(depot, &mut into) > 0 {
                for body in into.iter_mut().filter_map(Option::take) {
                    // SAFETY: an object of this cache, which was not destroyed.
                    assert_eq!(unsafe { cache.slabs.node_of(body.cast()) }, depot);
                    cache.unmake(body);
                    found += 1;
                }
            }
        }
        assert!(cache.depots.len() == 4 && found > 0, "{found} objects in depots");
        check_empty(&cache);
    };
    let machine = Machine::preset("kunpeng920-96c-4n").unwrap();
    machine.run(program).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn memory_comes_back_and_is_aligned() {
    for align in [1, 64, 1 << 12, 1 << 16] {
        let cache = ObjectCache::<u8, u64>::builder("aligned").alignment(align);
        let cache = cache.build(|| Ok::<_, Lacking>(7)).unwrap();
        let objects: Vec<_> = (0..100).map(|_| cache.get().unwrap()).collect();
        assert!(objects.iter().all(|object| (&raw const **object).addr() % align == 0));
        drop(objects);
        assert!(cache.stats().bytes > 100 * align);
        assert_eq!((cache.shrink(), cache.slabs.bytes()), (100, 0));
    }
    let failing = Cache::<Native>::builder_in("failing").build(|| Err::<[u64; 3], _>("never"));
    let failing = failing.unwrap();
    for _ in 0..3 {
        failing.get().unwrap_err();
        failing.shrink();
        assert_eq!(failing.slabs.bytes(), 0, "what was reserved is given back");
    }
}

/// Objects that go from one CPU to another need the magazines that are under way, and no more.
#[test]
fn magazines_are_used_again() {
    let program = || {
        let builder = Cache::<Sim>::builder_in("one way").magazine(4);
        let cache = builder.build(|| Ok::<_, Lacking>([0; 3])).unwrap();
        // So that objects can go from thread to thread.
        let cache: &'static Cache<Sim> = Box::leak(Box::new(cache));
        let get = || (0..20).map(|_| cache.get().unwrap()).collect::<Vec<_>>();
        let mut bytes = Vec::new();
        for _ in 0..40 {
            let got = Sim::spawn(Placement::On(CpuId::new(0)), get).unwrap().join();
            Sim::spawn(Placement::On(CpuId::new(1)), move || drop(got)).unwrap().join();
            bytes.push(cache.depots.bytes());
        }
        assert_eq!(bytes[5], bytes[39], "{bytes:?}");
    };
    let machine = Machine::preset("host-2c").unwrap();
    machine.run(program).unwrap_or_else(|failure| panic!("{failure}"));
}

/// How many objects of this size a CPU keeps before some go to a depot.
fn kept<const SIZE: usize>() -> u64 {
    let program = || {
        let builder = ObjectCache::<[u8; SIZE], (), Sim>::builder_in("kept");
        let cache = builder.build(|| Ok::<_, Lacking>([0; SIZE])).unwrap();
        let flushes = |count: u64| {
            drop((0..count).map(|_| cache.get().unwrap()).collect::<Vec<_>>());
            cache.stats().flushes
        };
        (1..).find(|count| flushes(*count) > 0).unwrap() - 1
    };
    Machine::preset("host-2c").unwrap().run(program).unwrap().value
}

/// Two magazines, each of which has the objects in 4 KiB, but 8 of larger ones and 32 of smaller
/// ones. With fewer, large objects would move back and forth between CPUs and depots.
#[test]
fn a_cpu_keeps_two_magazines() {
    assert_eq!((kept::<8>(), kept::<64>(), kept::<240>()), (64, 64, 2 * 16));
    assert_eq!((kept::<900>(), kept::<8192>()), (16, 16), "at least");
}

#[test]
fn magazines_grow_while_cpus_meet_at_a_depot() {
    let largest = |builder: super::Builder<[u64; 3], (), Sim>| {
        let cache = Arc::new(builder.build(|| Ok::<_, Lacking>([0; 3])).unwrap());
        use_by_all(&cache, 96, false);
        cache.parts.iter().map(|part| part.idle.capacity()).max().unwrap()
    };
    let program = move || {
        let grown = largest(Cache::<Sim>::builder_in("grows").magazine(2));
        assert!(grown > 2 * 2, "no stack has grown");
        // All stacks have half of the limit at most: here 5 objects for each of 96 CPUs.
        let limited = Cache::<Sim>::builder_in("limited").magazine(32).idle_limit(960);
        assert_eq!(largest(limited), 5);
    };
    let machine = Machine::preset("kunpeng920-96c-4n").unwrap();
    machine.run(program).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn memory_comes_in_slabs_of_64_kib_or_eight_objects() {
    fn slab<const SIZE: usize>() -> usize {
        let cache = ObjectCache::<[u8; SIZE]>::builder("slabs");
        let cache = cache.build(|| Ok::<_, Lacking>([0; SIZE])).unwrap();
        let _object = cache.get().unwrap();
        cache.slabs.bytes()
    }
    assert_eq!((slab::<8>(), slab::<2048>(), slab::<20_000>()), (64 << 10, 64 << 10, 256 << 10));
}

#[test]
fn objects_of_two_cpus_share_no_line() {
    let program = || {
        let cache = Cache::<Sim>::builder_in("apart").build(|| Ok::<_, Lacking>([0; 3])).unwrap();
        let cache: &'static Cache<Sim> = Box::leak(Box::new(cache));
        let line = |cpu| {
            let get = move || cache.get().unwrap().into_raw().addr().get() / 64;
            Sim::spawn(Placement::On(CpuId::new(cpu)), get).unwrap().join()
        };
        // Of three objects that lie one behind the other, the middle one shares a line.
        let (first, middle, last) = (line(0), line(1), line(0));
        assert!(middle != first && middle != last);
    };
    Machine::preset("host-2c").unwrap().run(program).unwrap();
}

/// The stocks of all CPUs hold less than two batches each.
#[test]
fn stocks_of_a_budget_are_at_most_a_quarter_of_its_limit() {
    for (limit, cpus) in [(1 << 20, 4), (1000, 2), (123_456, 96)] {
        let stocked = 2 * batch(limit, cpus) * cpus;
        assert!((limit / 8..=limit / 4).contains(&stocked), "{stocked} of {limit}");
    }
    assert_eq!(batch(u64::MAX, 1), 1 << 20, "a quarter of no limit is not stocked");
}

/// The number of objects of this size whose memory a CPU keeps.
fn kept_vacant<const SIZE: usize>() -> usize {
    let program = || {
        let builder = ObjectCache::<[u8; SIZE], (), Sim>::builder_in("vacant");
        let cache = builder.build(|| Ok::<_, Lacking>([0; SIZE])).unwrap();
        let vacant = || cache.parts.iter().map(|part| part.vacant.len()).sum();
        let all: Vec<_> = (0..40).map(|_| cache.get().unwrap()).collect();
        all.into_iter().for_each(Object::discard);
        let kept = vacant();
        let bytes = cache.slabs.bytes();
        let again: Vec<_> = (0..40).map(|_| cache.get().unwrap()).collect();
        assert_eq!((vacant(), cache.slabs.bytes()), (0, bytes), "all of it is used again");
        again.into_iter().for_each(Object::discard);
        let stats = cache.stats();
        assert_eq!((stats.gets, stats.constructed, stats.live), (80, 80, 0), "{stats}");
        assert_eq!((stats.destroyed, stats.discarded), (80, 80), "{stats}");
        assert_eq!((cache.shrink(), vacant(), cache.slabs.bytes()), (0, 0, 0));
        assert_eq!(cache.stats().gets, 80, "also when the memory is gone");
        kept
    };
    Machine::preset("host-2c").unwrap().run(program).unwrap().value
}

#[test]
fn a_cpu_keeps_the_memory_of_discarded_objects() {
    let of_sizes = [kept_vacant::<8>(), kept_vacant::<240>(), kept_vacant::<8192>()];
    assert_eq!(of_sizes, [32, 16, 0], "at most 32 objects, and 4 KiB");
}

#[test]
fn a_constructor_that_fails_in_vacant_memory_leaks_none() {
    let made = <Native as Words>::U32::new_in(0);
    // Relaxed: one thread.
    let construct = move || match made.fetch_add(1, Ordering::Relaxed) {
        0 => Ok([0; 3]),
        _ => Err("no more"),
    };
    let cache = ObjectCache::<[u64; 3]>::builder("once").build(construct).unwrap();
    cache.get().unwrap().discard();
    cache.get().unwrap_err();
    let stats = cache.stats();
    assert_eq!((stats.gets, stats.constructed, stats.destroyed), (1, 1, 1), "{stats}");
    cache.shrink();
    assert_eq!(cache.slabs.bytes(), 0);
}

#[test]
fn a_constructor_that_panics_in_vacant_memory_leaks_none() {
    let made = <Native as Words>::U32::new_in(0);
    // Relaxed: one thread.
    let construct = move || match made.fetch_add(1, Ordering::Relaxed) {
        0 => Ok::<_, Lacking>([0; 3]),
        _ => panic!("no more"),
    };
    let cache = ObjectCache::<[u64; 3]>::builder("once").build(construct).unwrap();
    cache.get().unwrap().discard();
    std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| drop(cache.get()))).unwrap_err();
    let stats = cache.stats();
    assert_eq!((stats.gets, stats.constructed, stats.destroyed), (1, 1, 1), "{stats}");
    cache.shrink();
    assert_eq!(cache.slabs.bytes(), 0);
}

/// An object that is discarded on another node leaves memory there that is not of that node.
#[test]
fn vacant_memory_is_used_on_its_own_node() {
    let program = || {
        let cache = Cache::<Sim>::builder_in("own").build(|| Ok::<_, Lacking>([0; 3])).unwrap();
        let cache: &'static Cache<Sim> = Box::leak(Box::new(cache));
        let on = |cpu| Placement::On(CpuId::new(cpu));
        let get = || cache.get().unwrap();
        let object = Sim::spawn(on(0), get).unwrap().join();
        let theirs = move || {
            object.discard();
            let vacant = || cache.parts.iter().map(|part| part.vacant.len()).sum::<usize>();
            assert_eq!(vacant(), 1);
            let object = get().into_raw();
            assert_eq!(vacant(), 0);
            // SAFETY: an object of this cache, which was not destroyed.
            let node = unsafe { cache.slabs.node_of(object.cast()) };
            (node, cache.here())
        };
        let (node, here) = Sim::spawn(on(95), theirs).unwrap().join();
        assert!(node == here && here > 0, "on node {node}, for {here}");
    };
    let machine = Machine::preset("kunpeng920-96c-4n").unwrap();
    machine.run(program).unwrap_or_else(|failure| panic!("{failure}"));
}

/// CPUs that construct and discard share no line for that.
#[test]
fn cpus_that_discard_do_not_meet() {
    let took = |threads: u32| {
        let program = move || {
            let cache = Cache::<Sim>::builder_in("apart").build(|| Ok::<_, Lacking>([0; 3]));
            let cache: &'static Cache<Sim> = Box::leak(Box::new(cache.unwrap()));
            let discard = |many: usize| (0..many).for_each(|_| cache.get().unwrap().discard());
            let work = move || {
                discard(1);
                let begun = Sim::now();
                discard(100);
                Sim::now() - begun
            };
            let on = |cpu| Sim::spawn(Placement::On(CpuId::new(cpu)), work).unwrap();
            let threads: Vec<_> = (0..threads).map(on).collect();
            threads.into_iter().map(JoinHandle::join).max().unwrap()
        };
        let run = Machine::preset("kunpeng920-96c-4n").unwrap().run(program);
        run.unwrap_or_else(|failure| panic!("{failure}")).value
    };
    let (alone, beside) = (took(1), took(16));
    assert!(beside < 2 * alone, "{beside:?} beside 15 others, {alone:?} alone");
}
