//! The test on the first page of docs/simulating.md, which has all of this file but these lines.

use std::collections::VecDeque;

use coreline_sim::claim::Band;
use coreline_sim::measure::{Parallel, parallel, scaling};
use coreline_sim::sync::Mutex; // was std::sync
use coreline_sim::{Allocator, Spec};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

#[derive(Default)]
#[repr(align(64))] // else neighbours share a cache line
struct Queue(Mutex<VecDeque<usize>>);

fn push_and_pop(threads: usize) -> Parallel {
    let queues: Vec<Queue> = (0..threads).map(|_| Queue::default()).collect();
    parallel(threads, 20, |thread| {
        queues[thread].0.lock().unwrap().push_back(thread);
        queues[thread].0.lock().unwrap().pop_front();
    })
}

#[test]
fn a_queue_for_each_thread_scales() {
    let band = Band::quick(&Spec::preset("epyc-9654-2s").unwrap(), 1);
    let threads = [1, 8, 24, 96, 384];
    let table = scaling(&band, "a queue for each thread", &threads, push_and_pop).unwrap();
    assert!(table.scales_to() >= 384, "{table}");
}
