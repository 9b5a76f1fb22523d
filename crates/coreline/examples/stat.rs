//! A program whose threads wait for one lock, and that publishes how.
//!
//! `coreline stat -- target/release/examples/stat` shows the counts at its end, and `coreline stat
//! contended` while it runs: `target/release/examples/stat 60` runs for a minute.

use std::time::{Duration, Instant};
use std::{env, error, thread};

use coreline::{Mutex, ObjectCache, Workers};

static SHARED: Mutex<u64> = Mutex::new(0);

#[expect(clippy::print_stdout, reason = "an example that says what it did")]
fn main() -> Result<(), Box<dyn error::Error>> {
    let seconds = env::args().nth(1).map_or(Ok(1), |it| it.parse())?;
    // Dropped after the publication, whose last look shows them.
    let workers = Workers::new()?;
    let published = coreline::stat::publish("contended")?;
    published.workers("workers", &workers);
    let buffers: &ObjectCache<Vec<u8>> = Box::leak(Box::new(
        ObjectCache::builder("buffers").build(|| Ok::<_, String>(Vec::with_capacity(4096)))?,
    ));
    published.add("buffers", || Some(buffers.stats()));

    let end = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while Instant::now() < end {
                    let mut buffer = buffers.get().expect("memory for a buffer");
                    buffer.clear();
                    let mut shared = SHARED.lock();
                    buffer.extend_from_slice(&shared.to_le_bytes());
                    *shared += 1;
                }
            });
        }
    });
    let cpus: Vec<_> = workers.cpus().collect();
    for cpu in cpus {
        workers.call_on(cpu, || ()).map_err(|refused| refused.to_string())?;
    }
    println!("{} sections", *SHARED.lock());
    Ok(())
}
