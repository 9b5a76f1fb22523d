//! The measured quantities, with a program for each.
//!
//! Each is small enough to show where its time goes. All run natively only. `validate` checks the
//! effect of the costs on a simulated machine.

use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use coreline_sim::PingPong;
use coreline_topology::{CpuId, Distance, NodeId, Topology};
use coreline_world::native::Probe;
use coreline_world::{
    Clock, Fences, JoinHandle, Line, Native, Placement, Sleep, Threads, Word, Words,
};

use super::memory::Lines;
use super::sample::{Meeting, Part, time};
use crate::disturbance::waits_of_new_thread;

/// How a machine file has a quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Use {
    /// It is this cost.
    Cost(&'static str),
    /// It is this cost, once this many of another quantity are taken off it.
    Beyond(&'static str, f64, &'static str),
    /// No cost of today's machine files is like it.
    None,
}

/// Something that can be timed on a machine.
pub(super) struct Quantity {
    /// The name in options and results.
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) used: Use,
    /// A thread runs on each.
    pub(super) cpus: Vec<CpuId>,
    /// One sample in this many rounds: those that take long are taken seldom.
    pub(super) every: usize,
    pub(super) part: Arc<Part>,
}

/// Why a machine has no such quantity.
pub(super) type Lack = (&'static str, &'static str, &'static str);

const SYSCALL: &str = "syscall";
const HIT: &str = "hit";

/// The quantities of a machine on which the process may use these CPUs, and the quantities that the
/// machine does not have. Loads that no cache serves go to this many bytes.
pub(super) fn all(machine: &Probe, allowed: &[CpuId], bytes: usize) -> (Vec<Quantity>, Vec<Lack>) {
    let topology: &Topology = &machine.topology;
    let (mut found, mut lacks) = (Vec::new(), Vec::new());
    let Some(&one) = allowed.first() else {
        return (found, lacks);
    };
    // Two cores under one cache if there are, and else the two cores that are nearest.
    let mut others: Vec<_> = allowed
        .iter()
        .filter_map(|&cpu| Some((topology.distance(one, cpu)?, cpu)))
        .filter(|(distance, _)| *distance > Distance::SameCore)
        .collect();
    others.sort_unstable();
    let near = others.first().map(|&(distance, cpu)| (distance <= Distance::SameCache, cpu));
    let mut add = |name, what, used, cpus: &[CpuId], every, part: Arc<Part>| {
        found.push(Quantity { name, what, used, cpus: cpus.to_vec(), every, part });
    };
    let cost = Use::Cost;
    add(HIT, "a load that the core's own cache serves", cost("private_hit"), &[one], 1, hit());
    let locked = Use::Beyond("locked", 1.0, HIT);
    add("addition", "fetch_add on a line that no other core uses", locked, &[one], 1, addition());
    add(
        "store",
        "a store on its way into the store buffer",
        cost("store_issue"),
        &[one],
        1,
        store(),
    );
    add("pause", "a spin loop's pause", cost("pause"), &[one], 1, pause());
    add("clock", "reading the clock", cost("clock"), &[one], 1, clock());
    add(SYSCALL, "a wake-up with no thread asleep", cost("syscall"), &[one], 1, syscall());
    add("page", "the first write to a page of new memory", Use::None, &[one], 1, page());
    let what = "the first write to a page that was only read";
    add("copied-page", what, cost("first_write"), &[one], 1, copied_page());
    let switch = Use::Beyond("switch", 2.0, SYSCALL);
    add("switch", "a switch from one thread to the next", switch, &[one, one], 1, alternate(500));
    add("slice", "the time slice of a thread on a CPU", cost("slice"), &[one, one], 4, slice());
    match near {
        Some((same_cache, other)) => {
            let both = &[one, other];
            let shared = if same_cache { cost("cache_hit") } else { Use::None };
            add(
                "shared-hit",
                "a clean line that another core holds",
                shared,
                both,
                1,
                shared_hit(),
            );
            add(
                "addition-of-two",
                "fetch_add, two cores on one line",
                Use::None,
                both,
                1,
                adders(),
            );
            let wake = Use::Beyond("wake", 1.0, SYSCALL);
            add("wake", "from a wake-up to the woken thread", wake, both, 1, alternate(100));
            add(
                "spawn",
                "from spawning a thread until it runs",
                cost("spawn"),
                &[one],
                1,
                spawn(other),
            );
            // Elsewhere a heavy fence interrupts no thread, and costs next to nothing.
            if machine.asymmetric_fences {
                let what = "a fence in all running threads (two here)";
                add("broadcast", what, cost("broadcast"), both, 1, broadcast());
            } else {
                lacks.push(("broadcast", "broadcast", "fences do not use membarrier here"));
            }
        }
        None => {
            let why = "this needs two cores, and this process may use only one";
            for (name, cost) in [
                ("shared-hit", "cache_hit"),
                ("wake", "wake"),
                ("spawn", "spawn"),
                ("broadcast", "broadcast"),
            ] {
                lacks.push((name, cost, why));
            }
        }
    }
    let home = topology.cpu(one).map(|cpu| cpu.node);
    let far = home.and_then(|home| farthest(topology, home));
    let mut memory =
        |name, what, cost: &'static str, node: Option<NodeId>| match Lines::new(bytes, node) {
            Ok(lines) => add(name, what, Use::Cost(cost), &[one], 1, chase(lines)),
            Err(why) => lacks.push((name, cost, why)),
        };
    memory("memory", "a line in the memory of the CPU's node", "memory_local", home);
    match far {
        Some(node) => {
            memory("far-memory", "a line in the farthest node", "memory_remote", Some(node))
        }
        None => lacks.push(("far-memory", "memory_remote", "this machine has only one node")),
    }
    (found, lacks)
}

/// The node with memory that is the farthest from this one.
fn farthest(topology: &Topology, home: NodeId) -> Option<NodeId> {
    let others = topology.memory_nodes().filter(|node| *node != home);
    others.max_by_key(|node| topology.node_distance(home, *node))
}

/// Loads, each of which names the next one's place.
fn hit() -> Arc<Part> {
    const HOPS: u32 = 50_000;
    // 8 KiB: in any first-level cache. 7 and 1024 have no common divisor, so that all are visited.
    let next: Vec<usize> = (0..1024).map(|at| (at + 7) % 1024).collect();
    Arc::new(move |_, _| {
        let mut at = 0;
        let mut chase = |hops| (0..hops).for_each(|_| at = next[black_box(at)]);
        chase(2048);
        Some(time(|| chase(HOPS)) / f64::from(HOPS))
    })
}

fn addition() -> Arc<Part> {
    const TIMES: u32 = 20_000;
    Arc::new(|_, _| {
        let word = Line(AtomicU64::new(0));
        // Relaxed: a count.
        let add = || _ = word.fetch_add(1, Ordering::Relaxed);
        add();
        Some(time(|| (0..TIMES).for_each(|_| add())) / f64::from(TIMES))
    })
}

fn store() -> Arc<Part> {
    const PASSES: u32 = 200;
    Arc::new(|_, _| {
        let words: Vec<AtomicU64> = (0..512).map(|_| AtomicU64::new(0)).collect();
        let passes = |count: u32| {
            for pass in 0..count {
                // Relaxed: no other thread reads it.
                words.iter().for_each(|word| word.store(u64::from(pass), Ordering::Relaxed));
                black_box(&words);
            }
        };
        passes(2);
        Some(time(|| passes(PASSES)) / f64::from(PASSES) / words.len() as f64)
    })
}

fn pause() -> Arc<Part> {
    const TIMES: u32 = 4000;
    Arc::new(|_, _| Some(time(|| (0..TIMES).for_each(|_| spin_loop())) / f64::from(TIMES)))
}

fn clock() -> Arc<Part> {
    const TIMES: u32 = 5000;
    Arc::new(|_, _| {
        let read = || _ = black_box(Native::now());
        Some(time(|| (0..TIMES).for_each(|_| read())) / f64::from(TIMES))
    })
}

fn syscall() -> Arc<Part> {
    const TIMES: u32 = 1000;
    Arc::new(|_, _| {
        let word = <Native as Words>::U32::new_in(0);
        let wake = || _ = Native::wake(&raw const word, 1);
        wake();
        Some(time(|| (0..TIMES).for_each(|_| wake())) / f64::from(TIMES))
    })
}

/// Writes to one page in this many, whatever their size is, of memory that was never touched.
fn page() -> Arc<Part> {
    Arc::new(|_, _| {
        let fresh = Lines::untouched().ok()?;
        Some(time(|| fresh.touch()) / fresh.touches() as f64)
    })
}

/// Copy-on-write faults in a row.
fn copied_page() -> Arc<Part> {
    const PAGES: usize = 64;
    Arc::new(|_, _| {
        let copied = Lines::copied(PAGES).ok()?;
        Some(time(|| copied.touch()) / copied.touches() as f64)
    })
}

/// Two threads that sleep in turn, and wake each other.
fn alternate(round_trips: u32) -> Arc<Part> {
    let turn = Line(<Native as Words>::U32::new_in(0));
    Arc::new(move |number, _| {
        let me = number as u32;
        let pass = || {
            // Acquire and Release: a turn is handed over with all that was done in it.
            while turn.load(Ordering::Acquire) != me {
                Native::park(&turn, 1 - me, None);
            }
            turn.store(1 - me, Ordering::Release);
            Native::wake(&raw const turn.0, 1);
        };
        pass();
        let ns = time(|| (0..round_trips).for_each(|_| pass()));
        (me == 0).then_some(ns / f64::from(2 * round_trips))
    })
}

/// Two threads that compute on one CPU. If time is missing in one thread, the other thread ran.
fn slice() -> Arc<Part> {
    const SPAN: Duration = Duration::from_millis(60);
    /// More than an interrupt takes, and less than a slice lasts.
    const GAP: Duration = Duration::from_micros(300);
    Arc::new(|_, _| {
        let start = Native::now();
        let (mut last, mut begun, mut runs) = (start, None, Vec::new());
        while last - start < SPAN {
            let now = Native::now();
            if now - last > GAP {
                // The first one is not complete.
                runs.extend(begun.map(|begun| (last - begun).as_nanos() as f64));
                begun = Some(now);
            }
            last = now;
        }
        runs.sort_unstable_by(f64::total_cmp);
        runs.get(runs.len() / 2).copied()
    })
}

/// A buffer of 64 KiB, each line of which names the next one to look at.
fn shared_hit() -> Arc<Part> {
    const LINES: usize = 1024;
    /// Larger than any core's own cache.
    const OTHER: usize = 1 << 20;
    let line = |at: usize| Line(AtomicU64::new((at as u64 * 5 + 1) % LINES as u64));
    let lines: Vec<Line<AtomicU64>> = (0..LINES).map(line).collect();
    // Relaxed: the values never change.
    let pass = move || {
        let mut at = 0;
        (0..LINES).for_each(|_| at = lines[at].load(Ordering::Relaxed) as usize);
        black_box(at);
    };
    Arc::new(move |number, meeting| {
        // Pushes what was written out of the own cache, so that the buffer is clean.
        let other = vec![1u64; OTHER];
        black_box(other.iter().sum::<u64>());
        meeting.all(1);
        if number == 1 {
            pass();
        }
        meeting.all(2);
        (number == 0).then(|| time(&pass) / LINES as f64)
    })
}

/// Two threads that add to one word; the figure is the time of each one's operation.
fn adders() -> Arc<Part> {
    const TIMES: u32 = 20_000;
    let word = Line(AtomicU64::new(0));
    Arc::new(move |_, meeting: &Meeting| {
        // Relaxed: a count.
        let add = |times| (0..times).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed));
        add(100);
        meeting.all(1);
        Some(time(|| add(TIMES)) / f64::from(TIMES))
    })
}

/// The thread goes on for a while once it runs, so that it can be told whether it shares its CPU.
fn spawn(on: CpuId) -> Arc<Part> {
    Arc::new(move |_, meeting| {
        let start = Native::now();
        let run = move || (Native::now(), waits_of_new_thread(start));
        let (ran, waits) = Native::spawn(Placement::On(on), run).ok()?.join();
        meeting.has_started(waits);
        Some((ran - start).as_nanos() as f64)
    })
}

fn broadcast() -> Arc<Part> {
    const TIMES: u32 = 30;
    // How many samples have ended: the other thread runs until its own has.
    let ended = AtomicU32::new(0);
    Arc::new(move |number, meeting| {
        // Relaxed, all: nothing is handed over.
        let sample = ended.load(Ordering::Relaxed);
        meeting.all(1);
        if number == 1 {
            while ended.load(Ordering::Relaxed) == sample {
                spin_loop();
            }
            return None;
        }
        let ns = time(|| (0..TIMES).for_each(|_| Native::fence_all()));
        ended.fetch_add(1, Ordering::Relaxed);
        Some(ns / f64::from(TIMES))
    })
}

/// Loads from lines that no cache holds, each of which waits for the previous one.
fn chase(lines: Lines) -> Arc<Part> {
    const HOPS: u32 = 2000;
    Arc::new(move |_, _| Some(time(|| lines.chase(HOPS)) / f64::from(HOPS)))
}

/// The published tools' game between two CPUs: the figure is one way.
pub(super) fn ping_pong() -> Arc<Part> {
    const ROUND_TRIPS: u64 = 1000;
    let game = PingPong::<Native>::new_in();
    Arc::new(move |number, meeting| {
        meeting.all(1);
        game.play(number as u32, 16);
        let ns = time(|| game.play(number as u32, ROUND_TRIPS));
        (number == 0).then_some(ns / (2 * ROUND_TRIPS) as f64)
    })
}
