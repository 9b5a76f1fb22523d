//! Whether each queue is one, and whether it scales.

use std::sync::Arc;

use coreline_sim::claim::Band;
use coreline_sim::hint::spin_loop;
use coreline_sim::measure::{Parallel, compare, parallel, scaling};
use coreline_sim::{Spec, thread};

use super::*;
use crate::sync::Mutex;

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

fn push<Q: Queue<usize>>(queue: &Q, mut value: usize) {
    while let Err(full) = queue.push(value) {
        value = full;
        spin_loop();
    }
}

/// A value, of which there must be one. A queue may seem empty while a thread that came earlier is
/// still putting its value in.
fn pop<Q: Queue<usize>>(queue: &Q) -> usize {
    loop {
        match queue.pop() {
            Some(value) => return value,
            None => spin_loop(),
        }
    }
}

/// Half of the threads put values in, and the others take out as many. Each value comes out once.
fn each_comes_out_once<Q: Queue<usize> + 'static>() {
    const PAIRS: usize = 4;
    const EACH: usize = 20;
    // Smaller than what goes through, so that it is full at times.
    let queue = Arc::new(Q::new(8).unwrap());
    let spawn = |number: usize| {
        let queue = Arc::clone(&queue);
        thread::spawn(move || -> Vec<usize> {
            let mine = number / 2 * EACH..(number / 2 + 1) * EACH;
            if number.is_multiple_of(2) {
                mine.for_each(|value| push(&*queue, value));
                return Vec::new();
            }
            mine.map(|_| pop(&*queue)).collect()
        })
    };
    let threads: Vec<_> = (0..2 * PAIRS).map(spawn).collect();
    let mut out: Vec<usize> = threads.into_iter().flat_map(|it| it.join().unwrap()).collect();
    out.sort_unstable();
    assert!(out.iter().copied().eq(0..PAIRS * EACH), "came out: {out:?}");
    assert_eq!(queue.pop(), None);
}

#[coreline_sim::test(machine = "desktop-12c", seeds = 8, faults = "preempt:16")]
fn a_locked_queue_is_one() {
    each_comes_out_once::<Locked<usize>>();
}

#[coreline_sim::test(machine = "desktop-12c", seeds = 16, faults = "preempt:16")]
fn a_ring_is_a_queue() {
    each_comes_out_once::<Ring<usize>>();
}

#[coreline_sim::test(machine = "host-2c", seeds = 32, schedule = "random")]
fn a_ring_is_a_queue_in_unlikely_orders() {
    each_comes_out_once::<Ring<usize>>();
}

#[coreline_sim::test(machine = "desktop-12c", seeds = 16, faults = "preempt:16")]
fn lanes_are_a_queue() {
    each_comes_out_once::<Lanes<usize>>();
}

#[coreline_sim::test(machine = "host-2c", seeds = 32, schedule = "random")]
fn lanes_are_a_queue_in_unlikely_orders() {
    each_comes_out_once::<Lanes<usize>>();
}

/// Looks at the first value, and takes it out afterwards: by then it may be gone.
struct Careless(Mutex<Vec<usize>>);

impl Queue<usize> for Careless {
    fn new(_: usize) -> Result<Self, TooLarge> {
        Ok(Careless(Mutex::default()))
    }

    fn push(&self, value: usize) -> Result<(), usize> {
        self.0.lock().unwrap().push(value);
        Ok(())
    }

    fn pop(&self) -> Option<usize> {
        let value = self.0.lock().unwrap().last().copied()?;
        self.0.lock().unwrap().pop();
        Some(value)
    }
}

#[coreline_sim::test(machine = "desktop-12c", seeds = 8, faults = "preempt:16")]
#[should_panic(expected = "program=")]
fn a_careless_queue_is_caught() {
    each_comes_out_once::<Careless>();
}

#[test]
fn what_is_left_in_a_ring_is_dropped() {
    let value = Arc::new(());
    let ring = Ring::new(4).unwrap();
    (0..4).for_each(|_| ring.push(Arc::clone(&value)).unwrap());
    assert!(ring.push(Arc::clone(&value)).is_err(), "it is full");
    drop(ring.pop());
    assert_eq!(Arc::strong_count(&value), 4);
    drop(ring);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[coreline_sim::test(machine = "host-2c")]
fn what_no_memory_has_is_refused() {
    for capacity in [usize::MAX, usize::MAX / 2 + 1, isize::MAX as usize / 128] {
        assert_eq!(Ring::<u8>::new(capacity).err(), Some(TooLarge { capacity }));
    }
    let capacity = usize::MAX;
    assert_eq!(Lanes::<u8>::new(capacity).err(), Some(TooLarge { capacity }));
    assert_eq!(Locked::<u8>::new(capacity).err(), Some(TooLarge { capacity }));
}

/// What went into another ring while its own was full comes out late.
#[coreline_sim::test(machine = "host-2c")]
fn lanes_promise_no_order() {
    let lanes = Lanes::new(4).unwrap();
    (1..=3).for_each(|value| lanes.push(value).unwrap());
    assert_eq!(lanes.pop(), Some(1));
    lanes.push(4).unwrap();
    let rest = [(); 3].map(|()| lanes.pop().unwrap());
    assert_eq!(rest, [2, 4, 3]);
}

/// This many threads put a value in and take one out, four times each time: so the first time,
/// which does not count, gets at all that the others need.
fn used<Q: Queue<usize>>(threads: usize) -> Parallel {
    let queue = Q::new(4 * threads).unwrap();
    let four = |thread| {
        for _ in 0..4 {
            push(&queue, thread);
            pop(&queue);
        }
    };
    parallel(threads, 5, four)
}

/// With a thread on each of 384 CPUs, each is at least half as fast as one that is alone.
fn scales<Q: Queue<usize>>() {
    const THREADS: usize = 384;
    let [alone, all] = [1, THREADS].map(|threads| used::<Q>(threads).per_second());
    let each = all / alone / THREADS as f64;
    assert!(
        each >= 0.5,
        "it does not scale: each of {THREADS} threads has {each:.1e} of its speed"
    );
}

#[coreline_sim::test(machine = "epyc-9654-2s", seeds = 3)]
fn lanes_scale() {
    scales::<Lanes<usize>>();
}

#[coreline_sim::test(machine = "epyc-9654-2s")]
#[should_panic(expected = "it does not scale: each of 384 threads")]
fn a_ring_does_not_scale() {
    scales::<Ring<usize>>();
}

#[coreline_sim::test(machine = "epyc-9654-2s")]
#[should_panic(expected = "it does not scale: each of 384 threads")]
fn a_locked_queue_does_not_scale() {
    scales::<Locked<usize>>();
}

/// The tables of README.md: `cargo test --release -p queue-scaling tables -- --nocapture`.
#[test]
fn tables() {
    let band = Band::quick(&Spec::preset("epyc-9654-2s").unwrap(), 1);
    let threads = [1, 24, 384];
    let locked = scaling(&band, "a locked queue", &threads, used::<Locked<usize>>).unwrap();
    let ring = scaling(&band, "a ring", &threads, used::<Ring<usize>>).unwrap();
    let lanes = scaling(&band, "lanes", &threads, used::<Lanes<usize>>).unwrap();
    println!("{locked}\n{ring}\n{lanes}\n{}", compare(&lanes, &ring));
    assert_eq!((locked.scales_to(), ring.scales_to(), lanes.scales_to()), (1, 1, 384));
}
