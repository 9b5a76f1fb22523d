//! Locks beside more threads than CPUs: the table of the module `coreline::lock`.
//!
//! ```sh
//! cargo run --release -p coreline-rivals --example oversubscribed
//! ```
//!
//! Threads take turns of 100 ns, 500 ns apart, each pinned to a CPU. Under a readers-writer lock
//! one turn in a hundred writes.

use std::cell::UnsafeCell;
use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use coreline::lock::{Near, Osq, ReadMostly, TicketLock};
use coreline_topology::CpuId;
use coreline_world::{JoinHandle, Native, Place, Placement, Threads};

const WINDOW: Duration = Duration::from_millis(1500);
const RUNS: usize = 5;
const WRITES: u64 = 100;

#[allow(dead_code, reason = "its tests are those of the program")]
#[path = "../src/class/steps.rs"]
mod steps;

use steps::Steps;

/// A lock: has `section` run with the count that it guards, to write or to read.
type Lock = Arc<dyn Fn(bool, &mut dyn FnMut(u64)) + Send + Sync>;

/// What is behind a lock without data.
struct Behind(UnsafeCell<u64>);

// SAFETY: looked at under its lock alone.
unsafe impl Sync for Behind {}

macro_rules! mutex {
    ($new:expr, |$lock:ident| $held:expr) => {{
        let lock = $new;
        Arc::new(move |_, section: &mut dyn FnMut(u64)| {
            let $lock = &lock;
            let mut held = $held;
            section(*held);
            *held += 1;
        })
    }};
}

macro_rules! read_write {
    ($new:expr, |$write:ident| $written:expr) => {{
        let lock = $new;
        Arc::new(move |writes, section: &mut dyn FnMut(u64)| {
            if writes {
                let $write = &lock;
                let mut held = $written;
                section(*held);
                *held += 1;
            } else {
                section(*lock.read());
            }
        })
    }};
}

fn locks() -> Result<Vec<(&'static str, Lock)>, Box<dyn Error>> {
    let queue = (Osq::<Near, Native>::new_in(), Behind(UnsafeCell::new(0)));
    let in_queue = move |_, section: &mut dyn FnMut(u64)| {
        let (queue, behind) = &queue;
        let _turn = queue.lock();
        // SAFETY: this thread has its turn.
        let count = unsafe { &mut *behind.0.get() };
        section(*count);
        *count += 1;
    };
    Ok(vec![
        ("Mutex", mutex!(coreline::Mutex::new(0_u64), |lock| lock.lock())),
        ("RwLock", read_write!(coreline::RwLock::new(0_u64), |lock| lock.write())),
        (
            "ReadMostly",
            read_write!(ReadMostly::new(0_u64)?, |lock| lock.write().expect("heavy fences")),
        ),
        ("TicketLock", mutex!(TicketLock::new(0_u64), |lock| lock.lock())),
        ("Osq", Arc::new(in_queue)),
        ("std Mutex", mutex!(std::sync::Mutex::new(0_u64), |lock| lock.lock().unwrap())),
        ("parking_lot RwLock", read_write!(parking_lot::RwLock::new(0_u64), |lock| lock.write())),
    ])
}

/// Millions of turns in a second; the fewest turns of a thread over the most; the longest wait, ms.
fn run(lock: &Lock, cpus: &[CpuId], threads: usize) -> Result<[f64; 3], Box<dyn Error>> {
    let (stop, start) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(threads + 1)));
    let spawn = |thread: usize| {
        let (lock, stop, start) = (Arc::clone(lock), Arc::clone(&stop), Arc::clone(&start));
        let turns = move || {
            let (inside, outside) = (Steps::<100>::new(), Steps::<500>::new());
            let (mut turns, mut longest, mut worked) = (0_u64, Duration::ZERO, 0);
            start.wait();
            // Relaxed: a sign.
            while !stop.load(Ordering::Relaxed) {
                let called = Instant::now();
                let mut section = |count| {
                    longest = longest.max(called.elapsed());
                    worked = inside.take(worked ^ count);
                };
                lock((turns + 13 * thread as u64).is_multiple_of(WRITES), &mut section);
                turns += 1;
                worked = outside.take(worked);
            }
            black_box(worked);
            (turns, longest)
        };
        Native::spawn(Placement::On(cpus[thread % cpus.len()]), turns)
    };
    let spawned = (0..threads).map(spawn).collect::<Result<Vec<_>, _>>()?;
    start.wait();
    thread::sleep(WINDOW);
    // Relaxed: a sign.
    stop.store(true, Ordering::Relaxed);
    let done: Vec<_> = spawned.into_iter().map(JoinHandle::join).collect();
    let turns = done.iter().map(|(turns, _)| *turns);
    let (fewest, most) = (turns.clone().min().unwrap_or(0), turns.clone().max().unwrap_or(0));
    let longest = done.iter().map(|(_, longest)| *longest).max().unwrap_or_default();
    Ok([
        turns.sum::<u64>() as f64 / WINDOW.as_micros() as f64,
        fewest as f64 / most.max(1) as f64,
        longest.as_secs_f64() * 1e3,
    ])
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let cpus: Vec<CpuId> = Native::topology().cpus().map(|cpu| cpu.id).collect();
    let locks = locks()?;
    for threads in [4 * cpus.len(), 16 * cpus.len()] {
        println!("{threads} threads on {} CPUs: least, middle and most of {RUNS} runs", cpus.len());
        println!("{:20}{:>22}{:>22}{:>22}", "", "million turns/s", "share", "longest wait, ms");
        let mut all = vec![Vec::new(); locks.len()];
        for _ in 0..RUNS {
            for ((_, lock), runs) in locks.iter().zip(&mut all) {
                runs.push(run(lock, &cpus, threads)?);
            }
        }
        for ((name, _), runs) in locks.iter().zip(&all) {
            let of = |which: usize| {
                let mut sorted: Vec<f64> = runs.iter().map(|run| run[which]).collect();
                sorted.sort_by(f64::total_cmp);
                format!("{:.2} {:.2} {:.2}", sorted[0], sorted[RUNS / 2], sorted[RUNS - 1])
            };
            println!("{name:20}{:>22}{:>22}{:>22}", of(0), of(1), of(2));
        }
    }
    Ok(())
}
