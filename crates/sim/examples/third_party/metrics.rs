//! A metric that all threads add to: by one shared value, or by shards.
//!
//! The mechanism of a metrics library, written anew: a sum for each set of attributes, found in a
//! map under a readers-writer lock, which is held to read while an atomic is added to. Shards are
//! such maps, each on lines of its own, chosen by thread.

use std::collections::BTreeMap;

use coreline_sim::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use coreline_sim::sync::RwLock;
use coreline_sim::thread::{self, Builder};
use coreline_sim::time::Duration;
use coreline_sim::{Failure, Machine, hint};
use coreline_topology::CpuId;

/// Sums by attribute set, on lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct Shard(RwLock<BTreeMap<u32, Box<AtomicU64>>>);

impl Shard {
    fn add(&self, attributes: u32, value: u64) {
        let sums = self.0.read().unwrap();
        if let Some(sum) = sums.get(&attributes) {
            sum.fetch_add(value, Ordering::Relaxed);
            return;
        }
        drop(sums);
        let mut sums = self.0.write().unwrap();
        sums.entry(attributes).or_default().fetch_add(value, Ordering::Relaxed);
    }
}

/// Simulated time that is measured.
const WINDOW: Duration = Duration::from_micros(200);

/// Million additions a second of all threads together.
pub(crate) fn rate(machine: Machine, threads: u32, shards: usize) -> Result<f64, Box<Failure>> {
    let run = machine.run(move || {
        let metric: Vec<Shard> = (0..shards).map(|_| Shard::default()).collect();
        let (ready, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let added: u64 = thread::scope(|scope| {
            let start = |cpu: u32| {
                let (shard, ready, stop) = (&metric[cpu as usize % shards], &ready, &stop);
                let body = move || {
                    shard.add(7, 1);
                    ready.fetch_add(1, Ordering::Relaxed);
                    while ready.load(Ordering::Relaxed) <= threads as usize {
                        hint::spin_loop();
                    }
                    let mut added = 0;
                    while !stop.load(Ordering::Relaxed) {
                        shard.add(7, 1);
                        added += 1;
                    }
                    added
                };
                // CPU 0 belongs to the first thread, which says when it is over.
                Builder::new().on(CpuId::new(cpu + 1)).spawn_scoped(scope, body).unwrap()
            };
            let workers: Vec<_> = (0..threads).map(start).collect();
            while ready.load(Ordering::Relaxed) < threads as usize {
                thread::sleep(Duration::from_micros(50));
            }
            ready.fetch_add(1, Ordering::Relaxed);
            thread::sleep(WINDOW);
            stop.store(true, Ordering::Relaxed);
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        added
    })?;
    Ok(run.value as f64 / WINDOW.as_micros() as f64)
}
