//! The gate, and the search.

use std::error::Error;

use coreline_sim::atomic::{AtomicBool, Ordering};
use coreline_sim::sync::{Arc, Condvar, Mutex};
use coreline_sim::{Machine, Schedule, search, thread};

/// A gate whose flag is not under its lock: if it opens between the look at the flag and the wait,
/// the notification wakes no thread.
#[derive(Default)]
struct Gate {
    open: AtomicBool,
    lock: Mutex<()>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        while !self.open.load(Ordering::Acquire) {
            let guard = self.lock.lock().unwrap();
            drop(self.opened.wait(guard));
        }
    }

    fn open(&self) {
        self.open.store(true, Ordering::Release);
        self.opened.notify_all();
    }
}

fn program() {
    let gate = Arc::new(Gate::default());
    let theirs = Arc::clone(&gate);
    let waiter = thread::spawn(move || theirs.pass());
    let opener = thread::spawn(move || gate.open());
    waiter.join().unwrap();
    opener.join().unwrap();
}

fn machine(seed: u64) -> Machine {
    let machine = Machine::preset("host-2c").expect("it comes with the simulator");
    machine.seed(seed).schedule(Schedule::Pct { depth: 3, steps: 100 }).program("gate")
}

/// What the guide shows: the first failure of 10,000 seeds, and whether its line brings it back.
pub(crate) fn story() -> Result<String, Box<dyn Error>> {
    let failure = search((0..10_000).map(machine), program).err().ok_or("no seed fails")?;

    let line = failure.replay.to_string();
    let again = Machine::replay(&line.parse()?)?.run(program).err();
    assert_eq!(again.as_ref(), Some(&failure), "the line brings the failure back");
    Ok(format!("{failure}\n"))
}
