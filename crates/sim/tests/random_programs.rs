//! Random programs on machines small and large, with and without faults: whatever they do, time
//! goes forward for every thread and for whoever they tell, a CPU has one thread at a time, and no
//! update is lost.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coreline_sim::{Allocator, Faults, Kernel, Machine, Report, Sim, Spec};
use coreline_topology::{Cid, CpuId};
use coreline_world::conformance::slots::OwnSlots;
use coreline_world::{
    Cell, Clock, Fences, IndexBy, Integer, JoinHandle, Line, Ordering, Parked, Placement, Sleep,
    Threads, Time, Word, Words,
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

type U32 = <Sim as Words>::U32;
type U64 = <Sim as Words>::U64;

/// What the kernel knows of a thread.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Its CPU and its concurrency ID, while it has them.
    on: Option<(CpuId, usize)>,
    /// Where it must be.
    bound: Option<CpuId>,
    /// When it was switched last.
    at: Time,
    exited: bool,
}

/// A kernel that hands out the lowest free ID and does not trust the machine.
struct Doubting {
    /// Who has each CPU, and since when it has been so.
    cpus: Vec<(Option<usize>, Time)>,
    /// The concurrency IDs in use.
    cids: Vec<bool>,
    /// Shared with the test, which looks whether all have ended.
    threads: Rc<RefCell<Vec<Known>>>,
}

impl Kernel for Doubting {
    fn switch_in(&mut self, at: Time, cpu: CpuId, thread: usize) -> Cid {
        let known = &mut self.threads.borrow_mut()[thread];
        let place = &mut self.cpus[cpu.index()];
        assert!(
            place.0.is_none() && at >= place.1,
            "{cpu} has {place:?} and gets {thread} at {at}"
        );
        assert!(
            known.on.is_none() && !known.exited && at >= known.at,
            "{thread} {known:?} at {at}"
        );
        assert!(known.bound.is_none_or(|bound| bound == cpu), "{thread} {known:?} on {cpu}");
        let cid = self.cids.iter().position(|used| !used).expect("as many IDs as CPUs");
        self.cids[cid] = true;
        *place = (Some(thread), at);
        (known.on, known.at) = (Some((cpu, cid)), at);
        Cid::new(cid as u32)
    }

    fn switch_out(&mut self, at: Time, cpu: CpuId, thread: usize) {
        let known = &mut self.threads.borrow_mut()[thread];
        let place = &mut self.cpus[cpu.index()];
        assert!(
            place.0 == Some(thread) && at >= place.1,
            "{cpu} has {place:?}, not {thread}, at {at}"
        );
        let (on, cid) = known.on.take().expect("whoever has a CPU has an ID");
        assert!(on == cpu && at >= known.at, "{thread} {known:?} at {at}");
        self.cids[cid] = false;
        *place = (None, at);
        known.at = at;
    }

    fn spawned(&mut self, thread: usize, cpu: CpuId, bound: bool) {
        let mut threads = self.threads.borrow_mut();
        assert_eq!(threads.len(), thread);
        let bound = bound.then_some(cpu);
        threads.push(Known { on: None, bound, at: Time::from_nanos(0), exited: false });
    }

    fn exited(&mut self, thread: usize) {
        let known = &mut self.threads.borrow_mut()[thread];
        assert!(known.on.is_none() && !known.exited, "{thread} {known:?}");
        known.exited = true;
    }
}

/// The program's own dice.
struct Dice(u64);

impl Dice {
    /// A number below `bound`; xorshift, Marsaglia 2003.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// What the threads of a program share.
struct Shared {
    /// The time at which each was written.
    times: [Line<U64>; 2],
    /// Words to park on.
    words: [Line<U32>; 3],
    /// A lock that sleeps: 0 free, 1 held, 2 held with sleepers; and how many hold it.
    futex: Line<U32>,
    futex_holders: Line<U32>,
    /// A lock that spins, and how many hold it. All on one line.
    ticket: U32,
    serving: U32,
    ticket_holders: U32,
    by_cpu: OwnSlots<U64, Sim>,
    by_cid: OwnSlots<U64, Sim>,
    additions: Line<U64>,
    block: Cell<[u8; 3000], Sim>,
}

impl Shared {
    fn new() -> Shared {
        Shared {
            times: [0; 2].map(|_| Line(U64::new_in(0))),
            words: [0; 3].map(|_| Line(U32::new_in(0))),
            futex: Line(U32::new_in(0)),
            futex_holders: Line(U32::new_in(0)),
            ticket: U32::new_in(0),
            serving: U32::new_in(0),
            ticket_holders: U32::new_in(0),
            by_cpu: OwnSlots::words(IndexBy::Cpu).unwrap(),
            by_cid: OwnSlots::words(IndexBy::KernelCid).unwrap(),
            additions: Line(U64::new_in(0)),
            block: Cell::new_in([0; 3000]),
        }
    }

    fn with_futex(&self, f: impl FnOnce()) {
        let lock = &self.futex;
        if lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while lock.swap(2, Ordering::Acquire) != 0 {
                Sim::park(lock, 2, None);
            }
        }
        assert_eq!(self.futex_holders.fetch_add(1, Ordering::Relaxed), 0);
        f();
        assert_eq!(self.futex_holders.fetch_sub(1, Ordering::Relaxed), 1);
        if lock.swap(0, Ordering::Release) == 2 {
            Sim::wake(&**lock, 1);
        }
    }

    fn with_ticket(&self, f: impl FnOnce()) {
        let ticket = self.ticket.fetch_add(1, Ordering::Relaxed);
        self.serving.wait_until(Ordering::Acquire, |serving| serving == ticket);
        assert_eq!(self.ticket_holders.fetch_add(1, Ordering::Relaxed), 0);
        f();
        assert_eq!(self.ticket_holders.fetch_sub(1, Ordering::Relaxed), 1);
        self.serving.fetch_add(1, Ordering::Release);
    }
}

/// A random thread: `steps` things to do, and children that do half as many. Returns when it ended.
fn thread(shared: &Arc<Shared>, seed: u64, steps: u64, cpus: u64) -> Time {
    let mut dice = Dice(seed | 1);
    let mut children = Vec::new();
    let mut before = Sim::now();
    let ns = |dice: &mut Dice, most| Duration::from_nanos(dice.below(most));
    for _ in 0..steps {
        let now = Sim::now();
        assert!(now >= before, "{now} after {before}");
        before = now;
        match dice.below(14) {
            0 => shared.times[dice.below(2) as usize].store(now.as_nanos(), Ordering::Release),
            1 => {
                let then = shared.times[dice.below(2) as usize].load(Ordering::Acquire);
                assert!(
                    Sim::now().as_nanos() >= then,
                    "at {then} somebody wrote that it is {then}"
                );
            }
            2 => shared.with_futex(|| Sim::sleep(ns(&mut dice, 5000))),
            3 => shared.with_futex(Sim::yield_now),
            4 => shared.with_ticket(|| (0..dice.below(5)).for_each(|_| Sim::relax())),
            5 => {
                shared.by_cpu.add(1);
                shared.by_cid.add(1);
                shared.additions.fetch_add(1, Ordering::Relaxed);
            }
            6 => Sim::fence_restartable().unwrap(),
            7 => Sim::yield_now(),
            8 => Sim::sleep(ns(&mut dice, 10_000)),
            9 => {
                let word = &shared.words[dice.below(3) as usize];
                let (value, deadline) = (word.load(Ordering::Relaxed), now + ns(&mut dice, 20_000));
                let parked = Sim::park(word, value, Some(deadline));
                assert!(parked != Parked::TimedOut || Sim::now() >= deadline);
            }
            10 => {
                let word = &shared.words[dice.below(3) as usize];
                word.fetch_add(1, Ordering::Relaxed);
                Sim::wake(&**word, dice.below(3) as u32);
            }
            11 => shared.block.with_mut(|_| ()),
            12 if steps > 20 => {
                let cpu = CpuId::new(dice.below(cpus) as u32);
                let place = [Placement::Anywhere, Placement::On(cpu)][dice.below(2) as usize];
                let (theirs, seed) = (Arc::clone(shared), dice.below(u64::MAX));
                let child = Sim::spawn(place, move || {
                    assert!(Sim::now() >= now);
                    thread(&theirs, seed, steps / 2, cpus)
                });
                children.push(child.unwrap());
            }
            _ => {
                // Joined, or detached.
                if let Some(child) = children.pop()
                    && dice.below(4) > 0
                {
                    let end = child.join();
                    assert!(Sim::now() >= end);
                }
            }
        }
    }
    let end = children.into_iter().map(JoinHandle::join).max();
    assert!(end.is_none_or(|end| Sim::now() >= end));
    Sim::now()
}

/// Runs six random threads and their offspring.
fn run(spec: &Spec, seed: u64, request_percent: u32, faults: Faults) -> Report {
    let cpus = spec.topology().cpu_count();
    let threads = Rc::default();
    let kernel = Doubting {
        cpus: vec![(None, Time::from_nanos(0)); cpus],
        cids: vec![false; cpus],
        threads: Rc::clone(&threads),
    };
    let machine = Machine::new(spec.clone()).seed(seed).faults(faults).kernel(Box::new(kernel));
    let run = machine.request_percent(request_percent).step_limit(20_000_000).run(move || {
        let shared = Arc::new(Shared::new());
        let first: Vec<_> = (1..=6)
            .map(|n| {
                let shared = Arc::clone(&shared);
                let body = move || thread(&shared, seed * 7919 + n * 104_729, 100, cpus as u64);
                Sim::spawn(Placement::Anywhere, body).unwrap()
            })
            .collect();
        first.into_iter().for_each(|thread| _ = thread.join());
        shared
    });
    let run = run.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(threads.borrow().iter().all(|thread: &Known| thread.exited));
    // Outside of the machine: detached threads have added, too.
    let additions = run.value.additions.load(Ordering::Relaxed);
    assert_eq!(run.value.by_cpu.sum(), additions, "seed {seed}, faults {faults}");
    assert_eq!(run.value.by_cid.sum(), additions, "seed {seed}, faults {faults}");
    run.report
}

/// A machine of `sockets` with so many cores and hardware threads, whose time slices are short.
fn small(sockets: u32, cores: u32, threads: u32, slice: &str) -> Spec {
    let text = include_str!("../machines/host-2c.toml")
        .replace("sockets = 1", &format!("sockets = {sockets}"))
        .replace("cores_per_cache = 2", &format!("cores_per_cache = {cores}"))
        .replace("threads_per_core = 1", &format!("threads_per_core = {threads}"))
        .replace("ns = 3000000.0", &format!("ns = {slice}"));
    Spec::parse("small", &text).unwrap()
}

#[test]
fn random_programs_keep_the_laws_on_every_machine() {
    let interrupting = Faults { preempt: 3, migrate: 4, ..Faults::default() };
    let specs = [
        small(1, 1, 1, "500.0"),
        small(1, 1, 2, "2000.0"),
        small(2, 1, 1, "300.0"),
        small(2, 2, 2, "700.0"),
        Spec::preset("host-2c").unwrap(),
        Spec::preset("epyc-9654-2s").unwrap(),
    ];
    for spec in &specs {
        for seed in 0..6 {
            for (request_percent, faults) in [
                (0, Faults::default()),
                (30, interrupting),
                (50, Faults::default()),
                (100, interrupting),
            ] {
                run(spec, seed, request_percent, faults);
            }
        }
        let once = run(spec, 7, 30, interrupting);
        assert_eq!(once, run(spec, 7, 30, interrupting));
        assert!(once.restarts > 0 && once.preemptions > 0, "{once:?}");
    }
}
