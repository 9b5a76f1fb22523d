//! What threads come to that share one thing: the last table of docs/simulating.md. These are its
//! rows of std.
//!
//! ```sh
//! cargo run --release -p coreline-sim --example ported
//! ```
//!
//! The rows of ported packages are for a crate that has them, which the guide says how to make:
//!
//! ```text
//! use arc_swap::ArcSwap;
//! use concurrent_queue::ConcurrentQueue;
//! use crossbeam_queue::{ArrayQueue, SegQueue};
//! use dashmap::DashMap;
//! use sharded_slab::Slab;
//! use thingbuf::ThingBuf;
//!
//! row("ArrayQueue", || ArrayQueue::new(1024), |queue, n| {
//!     _ = queue.push(n).map(|()| queue.pop());
//! })?;
//! row("SegQueue", SegQueue::new, |queue, n| {
//!     queue.push(n);
//!     queue.pop();
//! })?;
//! row("concurrent-queue, bounded", || ConcurrentQueue::bounded(1024), |queue, n| {
//!     _ = queue.push(n).map(|()| queue.pop());
//! })?;
//! row("concurrent-queue, unbounded", ConcurrentQueue::unbounded, |queue, n| {
//!     _ = queue.push(n).map(|()| queue.pop());
//! })?;
//! row("ThingBuf", || ThingBuf::new(1024), |queue, n| _ = queue.push(n).map(|()| queue.pop()))?;
//! row("ArcSwap, load", || ArcSwap::from_pointee(0), |swap, _| drop(swap.load()))?;
//! row("ArcSwap, thread 0 stores", || ArcSwap::from_pointee(0), |swap, n| match n {
//!     0 => swap.store(Arc::new(n)),
//!     _ => drop(swap.load()),
//! })?;
//! row("sharded-slab", Slab::new, |slab, n| _ = slab.insert(n).map(|key| slab.remove(key)))?;
//! row("DashMap, a key each", DashMap::new, |map, n| {
//!     map.insert(n, n);
//!     drop(map.get(&n));
//! })?;
//! row("DashMap, one key", || DashMap::<_, _>::from_iter([(0, 0)]), |map, _| drop(map.get(&0)))?;
//! ```

use std::collections::VecDeque;
use std::error::Error;

use coreline_sim::measure::parallel;
use coreline_sim::sync::{Arc, Mutex, RwLock};
use coreline_sim::{Allocator, Machine};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Prints millions of operations a second of all threads, which do ten each on what `make` makes.
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn row<T: Sync + 'static>(
    name: &str,
    make: fn() -> T,
    operation: fn(&T, usize),
) -> Result<(), Box<dyn Error>> {
    let mut text = format!("{name:32}");
    for threads in [8, 24, 96, 192, 384] {
        let program = move || {
            // On the heap, where its lines do not depend on how the compiler lays out a stack.
            let shared = Box::new(make());
            parallel(threads, 10, |thread| operation(&shared, thread))
        };
        let machine = Machine::preset("epyc-9654-2s")?.seed(1);
        text += &format!("{:10.2}", machine.run(program)?.value.per_second() / 1e6);
    }
    println!("{text}");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    row("Mutex<VecDeque>", Mutex::<VecDeque<usize>>::default, |queue, thread| {
        queue.lock().unwrap().push_back(thread);
        queue.lock().unwrap().pop_front();
    })?;
    row("RwLock<Arc>, read and clone", RwLock::<Arc<usize>>::default, |cell, _| {
        drop(Arc::clone(&cell.read().unwrap()));
    })?;
    Ok(())
}
