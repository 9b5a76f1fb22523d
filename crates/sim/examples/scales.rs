//! Does a queue scale? The first page of docs/simulating.md.
//!
//! ```sh
//! cargo run --release -p coreline-sim --example scales
//! ```

use std::collections::VecDeque;
use std::error::Error;

use coreline_sim::claim::Band;
use coreline_sim::measure::{Parallel, compare, parallel, scaling};
use coreline_sim::sync::Mutex; // was std::sync
use coreline_sim::{Machine, Spec, Statistics};

#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

type Queue = Mutex<VecDeque<usize>>;

fn use_it(queue: &Queue, value: usize) {
    queue.lock().unwrap().push_back(value);
    queue.lock().unwrap().pop_front();
}

fn one_for_all(threads: usize) -> Parallel {
    let queue = Box::new(Queue::default());
    parallel(threads, 20, |thread| use_it(&queue, thread))
}

fn one_for_each(threads: usize) -> Parallel {
    let queues: Vec<Queue> = (0..threads).map(|_| Queue::default()).collect();
    parallel(threads, 20, |thread| use_it(&queues[thread], thread))
}

/// What the guide shows.
pub(crate) fn story() -> Result<String, Box<dyn Error>> {
    let band = Band::quick(&Spec::preset("epyc-9654-2s")?, 1);
    let threads = [1, 8, 24, 96, 384];
    let all = scaling(&band, "one for all", &threads, one_for_all)?;
    let each = scaling(&band, "one for each", &threads, one_for_each)?;
    let mut text = format!("{all}\n{each}\n{}", compare(&each, &all));

    let machine = Machine::preset("epyc-9654-2s")?.statistics(Statistics::Full);
    let report = machine.run(|| one_for_each(24))?.report.to_string();
    let why = report.lines().skip_while(|line| !line.starts_with("false sharing"));
    for line in why.take_while(|line| !line.is_empty()) {
        text += &format!("{line}\n");
    }

    let apart = scaling(&band, "a line for each", &threads, a_line_for_each)?;
    assert!(apart.scales_to() >= 384, "{apart}");
    text += &apart.to_string();
    Ok(text)
}

/// A queue on cache lines of its own.
#[derive(Default)]
#[repr(align(64))]
struct Apart(Queue);

fn a_line_for_each(threads: usize) -> Parallel {
    let queues: Vec<Apart> = (0..threads).map(|_| Apart::default()).collect();
    parallel(threads, 20, |thread| use_it(&queues[thread].0, thread))
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", story()?);
    Ok(())
}
