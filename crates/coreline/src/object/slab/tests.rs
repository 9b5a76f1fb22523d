//! The memory of objects, and walks over it while threads wait.

use std::sync::Arc;

use coreline_sim::{Machine, Sim};
use coreline_topology::CpuId;
use coreline_world::{Clock, JoinHandle, Native, Placement, Threads};

use super::*;

#[test]
fn objects_do_not_overlap_and_stay_in_their_slabs() {
    for (size, align) in [(8, 8), (72, 8), (64, 64), (5000, 8), (100_000, 4096)] {
        let object = Layout::from_size_align(size, align).unwrap();
        let plan = Plan::of(object).unwrap();
        assert!(plan.count >= FEWEST && plan.first + plan.count * plan.stride <= plan.slab.size());
        let slabs = Slabs::<Native>::new_in(object, 0, Box::new([None])).unwrap();
        let many = plan.count * 2 + 1;
        let mut objects: Vec<_> = (0..many).map(|_| slabs.reserve(0).unwrap()).collect();
        objects.sort_unstable();
        assert!(objects.windows(2).all(|pair| pair[1].addr().get() - pair[0].addr().get() >= size));
        assert!(objects.iter().all(|object| object.addr().get().is_multiple_of(align)));
        assert_eq!(slabs.bytes(), 3 * plan.slab.size());
        let mut found = Vec::new();
        slabs.each(|lives| found.push(NonNull::from_ref(lives).cast()));
        found.sort_unstable();
        assert_eq!(found, objects);
        for object in &objects[1..] {
            // SAFETY: reserved above, and used by nothing.
            unsafe { slabs.give_back(*object) };
        }
        slabs.trim();
        assert_eq!(slabs.bytes(), plan.slab.size());
        let again: Vec<_> = (1..many).map(|_| slabs.reserve(0).unwrap()).collect();
        assert_eq!(slabs.bytes(), 3 * plan.slab.size());
        for object in again.iter().chain(&objects[..1]) {
            // SAFETY: reserved above, and used by nothing.
            unsafe { slabs.give_back(*object) };
        }
        let walk = {
            slabs.with(|lists| lists.walks += 1);
            Walk(&slabs)
        };
        slabs.trim();
        assert_eq!(slabs.bytes(), 3 * plan.slab.size(), "a thread walks over them");
        drop(walk);
        assert_eq!(slabs.bytes(), 0, "what was left to that thread");
    }
}

/// A thread that walks over all objects holds up one that reserves for no longer than it looks
/// at a word of the map.
#[test]
fn a_walk_over_many_objects_holds_up_no_thread() {
    const MANY: usize = 20_000;
    let program = || {
        let object = Layout::new::<[u64; 2]>();
        let slabs = Slabs::<Sim>::new_in(object, 0, Box::new([None])).unwrap();
        (0..MANY).for_each(|_| _ = slabs.reserve(0).unwrap());
        let slabs = Arc::new(slabs);
        let theirs = Arc::clone(&slabs);
        let walk = move || {
            let (begun, mut met) = (Sim::now(), 0);
            theirs.each(|lives| {
                // Relaxed: it is the time that counts.
                lives.load(Ordering::Relaxed);
                met += 1;
            });
            assert!(met >= MANY);
            Sim::now() - begun
        };
        let walk = Sim::spawn(Placement::On(CpuId::new(1)), walk).unwrap();
        let mut longest = core::time::Duration::ZERO;
        for _ in 0..2000 {
            let begun = Sim::now();
            let object = slabs.reserve(0).unwrap();
            longest = longest.max(Sim::now() - begun);
            // SAFETY: just reserved, and used by nothing.
            unsafe { slabs.give_back(object) };
        }
        (longest, walk.join())
    };
    let run = Machine::preset("host-2c").unwrap().run(program);
    let (longest, walk) = run.unwrap_or_else(|failure| panic!("{failure}")).value;
    assert!(20 * longest < walk, "held up for {longest:?}, by a walk of {walk:?}");
}

/// A thread that waits for the lock may have lost its CPU, or may have been left behind by a
/// fork: a walk then gives way for a millisecond in all.
#[test]
fn a_walk_ends_though_a_thread_waits_for_ever() {
    let program = || {
        let object = Layout::new::<[u64; 2]>();
        let slabs = Slabs::<Sim>::new_in(object, 0, Box::new([None])).unwrap();
        (0..20_000).for_each(|_| _ = slabs.reserve(0).unwrap());
        // Relaxed: no other thread is there.
        slabs.waiting.store(1, Ordering::Relaxed);
        let begun = Sim::now();
        slabs.each(|_| ());
        Sim::now() - begun
    };
    let run = Machine::preset("host-2c").unwrap().run(program);
    let walk = run.unwrap_or_else(|failure| panic!("{failure}")).value;
    assert!((WAYS * WAY..2 * WAYS * WAY).contains(&walk), "{walk:?}");
}
