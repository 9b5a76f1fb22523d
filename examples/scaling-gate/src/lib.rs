//! Two types that many threads change at once: [`Hits`] and [`Sessions`]. A test for each of their
//! operations measures the throughput on a simulated machine, and CI compares it with
//! `coreline-scale.toml`.

mod hits;
#[cfg(test)]
mod scaling;
mod sessions;
mod sync;

pub use hits::Hits;
pub use sessions::Sessions;

use core::cell::Cell;

use sync::atomic::{AtomicUsize, Ordering};

/// How many threads have a number.
static THREADS: AtomicUsize = AtomicUsize::new(0);

sync::thread_local! {
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns a number that the calling thread keeps.
fn thread_number() -> usize {
    NUMBER.with(|number| match number.get() {
        Some(number) => number,
        None => {
            // Relaxed: numbers must differ, and order nothing.
            let new = THREADS.fetch_add(1, Ordering::Relaxed);
            number.set(Some(new));
            new
        }
    })
}
