//! Threads use locks, workers or a `Versioned` in random ways, and check every result.
//!
//! ```text
//! cargo run --release -p coreline --example endurance -- locks 64 60
//! ```
//!
//! The arguments are what to use (`locks`, `workers` or `versioned`), how many threads, for how
//! many seconds, and the random seed. Run it where threads have fewer CPUs than they could use:
//! under `taskset`, `chrt -f 5`, in a control group with a quota, and while something stops and
//! continues the process. The program ends with an error if a value is lost, and if a thread makes
//! no step for a long time. Then it prints what each thread does, with all stacks if `gdb` is
//! there.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, panic, process, thread};

use coreline::world::{Clock, Native, Time};

mod locks;
mod versioned;
mod workers;

/// So many seconds of the watchdog without a step of a thread are a hang. They are counted by the
/// watchdog's own turns, which a stopped process does not get.
const HANG: u32 = 120;

/// What one thread does.
#[derive(Default)]
struct Seen {
    steps: AtomicU64,
    /// The step that it is in.
    doing: Mutex<&'static str>,
    /// The longest step in nanoseconds.
    longest: AtomicU64,
    is_over: AtomicBool,
}

/// What a thread uses to take its steps.
pub(crate) struct Hand {
    pub(crate) number: u32,
    random: u64,
    seen: Arc<Seen>,
    stop: Arc<AtomicBool>,
}

impl Hand {
    /// A random number below this.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    /// Whether this is one of so many.
    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// A deadline in the past, soon, or in some milliseconds.
    pub(crate) fn deadline(&mut self) -> Time {
        let most = [1, 2_000, 100_000, 3_000_000][self.below(4) as usize];
        Native::now() + Duration::from_nanos(self.below(most))
    }

    /// Computes, and sometimes yields or sleeps.
    pub(crate) fn work(&mut self) {
        let spins = match self.below(1_000) {
            0 => return thread::sleep(Duration::from_micros(self.below(1_500))),
            1..10 => return thread::yield_now(),
            10..100 => self.below(5_000),
            _ => self.below(60),
        };
        (0..spins).for_each(|_| std::hint::spin_loop());
    }

    /// Whether the time is not over.
    pub(crate) fn goes_on(&self) -> bool {
        // Relaxed: nothing else follows from it.
        !self.stop.load(Ordering::Relaxed)
    }

    /// Takes a step, which the watchdog sees.
    pub(crate) fn step<R>(&mut self, doing: &'static str, step: impl FnOnce(&mut Self) -> R) -> R {
        *self.seen.doing.lock().unwrap_or_else(|locked| locked.into_inner()) = doing;
        let begun = Instant::now();
        let result = step(self);
        let took = begun.elapsed().as_nanos() as u64;
        // Relaxed, all: only counts, which this thread writes.
        self.seen.longest.fetch_max(took, Ordering::Relaxed);
        self.seen.steps.fetch_add(1, Ordering::Relaxed);
        result
    }
}

/// Runs this on so many threads for so long, under a watchdog.
pub(crate) fn crew<R: Send>(settings: &Settings, work: impl Fn(Hand) -> R + Sync) -> Vec<R> {
    let stop = Arc::new(AtomicBool::new(false));
    let all: Vec<Arc<Seen>> = (0..settings.threads).map(|_| Arc::default()).collect();
    // The last one is this thread, which begins when all others are over.
    let own = Arc::new(Seen { is_over: AtomicBool::new(true), ..Seen::default() });
    let watched: Vec<_> = all.iter().chain([&own]).cloned().collect();
    let stopped = Arc::clone(&stop);
    let seconds = settings.seconds;
    thread::spawn(move || watch(&watched, &stopped, seconds));
    let results = thread::scope(|scope| {
        let start = |(number, seen): (u32, &Arc<Seen>)| {
            let (seen, stop, work) = (Arc::clone(seen), Arc::clone(&stop), &work);
            let random = u64::from(settings.seed) << 32 | u64::from(number);
            scope.spawn(move || {
                let over = Arc::clone(&seen);
                let result = work(Hand { number, random, seen, stop });
                // Relaxed: nothing else follows from it.
                over.is_over.store(true, Ordering::Relaxed);
                result
            })
        };
        let threads: Vec<_> = (0..).zip(&all).map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, R>| thread.join().expect("a thread fails");
        threads.into_iter().map(join).collect()
    });
    // Relaxed: nothing else follows from it.
    own.is_over.store(false, Ordering::Relaxed);
    let steps: u64 = all.iter().map(|seen| seen.steps.load(Ordering::Relaxed)).sum();
    let longest = all.iter().map(|seen| seen.longest.load(Ordering::Relaxed)).max();
    let fewest = all.iter().map(|seen| seen.steps.load(Ordering::Relaxed)).min();
    let longest = Duration::from_nanos(longest.unwrap_or(0));
    println!("{steps} steps, at least {} a thread, the longest {longest:?}", fewest.unwrap_or(0));
    results
}

/// Ends the run after so many of its turns, and the process if a thread hangs.
fn watch(all: &[Arc<Seen>], stop: &AtomicBool, seconds: u32) {
    let mut last: Vec<(u64, u32)> = all.iter().map(|_| (u64::MAX, 0)).collect();
    for turn in 0.. {
        thread::sleep(Duration::from_secs(1));
        if turn >= seconds {
            // Relaxed: nothing else follows from it.
            stop.store(true, Ordering::Relaxed);
        }
        for (number, (seen, last)) in all.iter().zip(&mut last).enumerate() {
            // Relaxed, both: only what the thread said last.
            let (steps, is_over) =
                (seen.steps.load(Ordering::Relaxed), seen.is_over.load(Ordering::Relaxed));
            *last = if last.0 == steps && !is_over { (steps, last.1 + 1) } else { (steps, 0) };
            if last.1 >= HANG {
                eprintln!("thread {number} has made no step in {HANG} s");
                give_up(all);
            }
        }
    }
}

/// Says what all threads do, and ends the process.
fn give_up(all: &[Arc<Seen>]) -> ! {
    for (number, seen) in all.iter().enumerate() {
        let doing = seen.doing.lock().map_or("?", |doing| *doing);
        // Relaxed, both: only what the thread said last.
        let (steps, is_over) =
            (seen.steps.load(Ordering::Relaxed), seen.is_over.load(Ordering::Relaxed));
        eprintln!("{number}: {doing}, {steps} steps{}", if is_over { ", over" } else { "" });
    }
    let pid = process::id().to_string();
    let stacks = ["-p", &pid, "-batch", "-ex", "thread apply all bt 14"];
    let _ = process::Command::new("gdb").args(stacks).status();
    process::exit(3);
}

/// How a run goes.
pub(crate) struct Settings {
    pub(crate) threads: u32,
    pub(crate) seconds: u32,
    pub(crate) seed: u32,
}

fn main() {
    let Some((run, settings)) = arguments() else {
        eprintln!("usage: endurance locks|workers|versioned [THREADS [SECONDS [SEED]]]");
        process::exit(2);
    };
    // Planned panics are many. Others end the process.
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&PLANNED) {
            usual(info);
            process::exit(4);
        }
    }));
    run(&settings);
}

/// The threads' use of one of the library's parts.
type Subject = fn(&Settings);

/// What to run, and how.
fn arguments() -> Option<(Subject, Settings)> {
    let run = match env::args().nth(1)?.as_str() {
        "locks" => locks::run,
        "workers" => workers::run,
        "versioned" => versioned::run,
        _ => return None,
    };
    let number = |at, usual| env::args().nth(at).map_or(Some(usual), |text| text.parse().ok());
    let (threads, seconds, seed) = (number(2, 64)?, number(3, 10)?, number(4, 1)?);
    (threads > 0).then_some((run, Settings { threads, seconds, seed }))
}

/// The payload of panics that belong to the run.
const PLANNED: &str = "planned";

/// Runs this; returns whether it panicked as planned.
pub(crate) fn panicked(f: impl FnOnce()) -> bool {
    panic::catch_unwind(panic::AssertUnwindSafe(f)).is_err()
}

/// Panics as planned.
pub(crate) fn panics() -> ! {
    panic::panic_any(PLANNED)
}
