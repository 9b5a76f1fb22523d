//! Random programs on machines small and large, under every schedule, with and without faults: time
//! goes forward within a thread and along every message, a CPU has one thread at a time, no update,
//! interrupt or wake-up is lost, every report adds up, and the same seed gives the same run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coreline_sim::interrupts::{Monitored, mask, monitor_wait, send};
use coreline_sim::{
    Arbitration, Choices, Faults, Kernel, Machine, Overlap, Report, Schedule, Sim, Spec,
    Statistics, on_signal,
};
use coreline_topology::{Cid, CpuId};
use coreline_world::conformance::restartable::BareWords;
use coreline_world::{
    Cell, Clock, Fences, IndexBy, Integer, JoinHandle, Line, Ordering, Parked, Place, Placement,
    Signals, Sleep, Threads, Time, Word, Words, Work,
};

use crate::common::{U32, U64};

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
    /// The thread that each CPU has, and since when it has been so.
    cpus: Vec<(Option<usize>, Time)>,
    /// The concurrency IDs in use.
    cids: Vec<bool>,
    /// Shared with the test, which looks whether all have ended.
    threads: Rc<RefCell<BTreeMap<usize, Known>>>,
    /// Whether CPUs may go out of service, which sends bound threads away, too.
    offline: bool,
}

impl Kernel for Doubting {
    fn switch_in(&mut self, at: Time, cpu: CpuId, thread: usize) -> Cid {
        let mut known = self.threads.borrow_mut();
        let known = known.get_mut(&thread).expect("an unknown thread");
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
        let mut known = self.threads.borrow_mut();
        let known = known.get_mut(&thread).expect("an unknown thread");
        let place = &mut self.cpus[cpu.index()];
        assert!(
            place.0 == Some(thread) && at >= place.1,
            "{cpu} has {place:?}, not {thread}, at {at}"
        );
        let (on, cid) = known.on.take().expect("a thread on a CPU has an ID");
        assert!(on == cpu && at >= known.at, "{thread} {known:?} at {at}");
        self.cids[cid] = false;
        *place = (None, at);
        known.at = at;
    }

    fn spawned(&mut self, thread: usize, cpu: CpuId, bound: bool) {
        let bound = bound.then_some(cpu);
        let known = Known { on: None, bound, at: Time::from_nanos(0), exited: false };
        assert!(self.threads.borrow_mut().insert(thread, known).is_none());
    }

    fn migrated(&mut self, _at: Time, thread: usize, from: CpuId, _to: CpuId) {
        let mut known = self.threads.borrow_mut();
        let known = known.get_mut(&thread).expect("an unknown thread");
        assert!(known.on.is_none() && !known.exited, "{thread} {known:?}");
        if self.offline && known.bound == Some(from) {
            known.bound = None;
        }
    }

    fn exited(&mut self, thread: usize) {
        let mut known = self.threads.borrow_mut();
        let known = known.get_mut(&thread).expect("an unknown thread");
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
    by_cpu: BareWords<Sim>,
    by_cid: BareWords<Sim>,
    additions: Line<U64>,
    /// Interrupts sent, and handled; and signals.
    sent: Line<U64>,
    handled: Line<U64>,
    signals: Line<U64>,
    /// What the threads store to without looking, on two lines.
    stores: [[U64; 8]; 2],
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
            by_cpu: BareWords::new_in(IndexBy::Cpu).unwrap(),
            by_cid: BareWords::new_in(IndexBy::KernelCid).unwrap(),
            additions: Line(U64::new_in(0)),
            sent: Line(U64::new_in(0)),
            handled: Line(U64::new_in(0)),
            signals: Line(U64::new_in(0)),
            stores: [0, 1].map(|_| [0; 8].map(|_| U64::new_in(0))),
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

/// Sends an interrupt to a CPU, if that is in service; else to this one. The handler stores 1 to
/// a word, in one of several ways.
fn interrupt(shared: &Arc<Shared>, dice: &mut Dice, cpus: u64) -> Arc<Line<U64>> {
    let flag = Arc::new(Line(U64::new_in(0)));
    let (way, work) = (dice.below(4), Duration::from_nanos(dice.below(8000)));
    let handler = {
        let (shared, flag) = (Arc::clone(shared), Arc::clone(&flag));
        move || {
            match way {
                0 => flag.store(1, Ordering::Release),
                1 => {
                    shared.stores[0].iter().for_each(|word| word.store(9, Ordering::Relaxed));
                    Sim::work(work);
                    flag.store(1, Ordering::Release);
                }
                2 => {
                    Sim::wake(&*shared.words[0], 1);
                    flag.fetch_add(1, Ordering::Release);
                }
                _ => {
                    flag.store(1, Ordering::Release);
                    Sim::work(work);
                }
            }
            shared.handled.fetch_add(1, Ordering::Relaxed);
        }
    };
    let first = send(CpuId::new(dice.below(cpus) as u32), handler.clone());
    let mut sent = first.is_ok();
    while !sent {
        // Between the two calls this CPU may go out of service, too.
        sent = send(Sim::cpu(), handler.clone()).is_ok();
    }
    shared.sent.fetch_add(1, Ordering::Relaxed);
    flag
}

/// A thread that waits until this one tells it to end: by polling, spinning or parking.
fn waiter(dice: &mut Dice, place: Placement) -> Option<(Arc<Line<U32>>, SimHandle)> {
    let word = Arc::new(Line(U32::new_in(0)));
    let (theirs, way) = (Arc::clone(&word), dice.below(3));
    let wait = move || {
        match way {
            0 => {
                while theirs.load(Ordering::Acquire) == 0 {
                    Sim::relax();
                }
            }
            1 => _ = theirs.wait_until(Ordering::Acquire, |told| told == 1),
            _ => {
                while theirs.load(Ordering::Acquire) == 0 {
                    Sim::park(&theirs, 0, None);
                }
            }
        }
        Sim::now()
    };
    Some((word, Sim::spawn(place, wait).ok()?))
}

type SimHandle = <Sim as Threads>::JoinHandle<Time>;

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
        match dice.below(23) {
            0 => shared.times[dice.below(2) as usize].store(now.as_nanos(), Ordering::Release),
            1 => {
                let then = shared.times[dice.below(2) as usize].load(Ordering::Acquire);
                assert!(
                    Sim::now().as_nanos() >= then,
                    "at {then} a thread wrote that it is {then}"
                );
            }
            2 => shared.with_futex(|| Sim::sleep(ns(&mut dice, 5000))),
            3 => shared.with_futex(Sim::yield_now),
            4 => shared.with_ticket(|| (0..dice.below(5)).for_each(|_| Sim::relax())),
            5 => {
                shared.by_cpu.add(1).unwrap();
                shared.by_cid.add(1).unwrap();
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
                // A CPU may be out of service.
                children.extend(child);
            }
            13 => Sim::work(ns(&mut dice, 9000)),
            14 => {
                let line = &shared.stores[dice.below(2) as usize];
                (0..dice.below(12)).for_each(|n| line[n as usize % 8].store(n, Ordering::Relaxed));
            }
            15 => _ = shared.stores[dice.below(2) as usize][3].load(Ordering::Relaxed),
            16 => _ = interrupt(shared, &mut dice, cpus),
            17 => {
                let flag = interrupt(shared, &mut dice, cpus);
                flag.wait_until(Ordering::Acquire, |flag| flag == 1);
            }
            18 => {
                let flag = interrupt(shared, &mut dice, cpus);
                while monitor_wait(&**flag, 0) == Monitored::Disturbed {}
            }
            19 => {
                let _masked = mask();
                shared.stores[0][1].store(1, Ordering::Relaxed);
                Sim::work(ns(&mut dice, 900));
                shared.stores[1][2].fetch_add(1, Ordering::Relaxed);
            }
            20 => {
                let _held = Sim::hold();
                shared.stores[0][1].fetch_add(1, Ordering::Relaxed);
            }
            21 => {
                let cpu = CpuId::new(dice.below(cpus) as u32);
                let place = [Placement::Anywhere, Placement::On(cpu)][dice.below(2) as usize];
                if let Some((word, waiter)) = waiter(&mut dice, place) {
                    (0..dice.below(3)).for_each(|_| Sim::yield_now());
                    let told = Sim::now();
                    word.store(1, Ordering::Release);
                    Sim::wake(&**word, 1);
                    assert!(waiter.join() >= told);
                }
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

/// What a run has besides its machine.
#[derive(Clone)]
struct With {
    seed: u64,
    request_percent: u32,
    faults: Faults,
    schedule: Schedule,
    arbitration: Arbitration,
    overlap: Overlap,
}

/// Runs six random threads and their offspring.
fn run(spec: &Spec, with: &With, statistics: Statistics) -> Report {
    let With { seed, request_percent, faults, ref schedule, arbitration, overlap } = *with;
    let cpus = spec.topology().cpu_count();
    let threads = Rc::default();
    let kernel = Doubting {
        cpus: vec![(None, Time::from_nanos(0)); cpus],
        cids: vec![false; cpus],
        threads: Rc::clone(&threads),
        offline: faults.offline > 0,
    };
    let machine = Machine::new(spec.clone()).seed(seed).faults(faults).kernel(Box::new(kernel));
    let machine = machine.schedule(schedule.clone()).arbitration(arbitration);
    let machine = machine.overlap(overlap);
    let machine = machine.request_percent(request_percent).step_limit(20_000_000);
    let run = machine.statistics(statistics).run(move || {
        let shared = Arc::new(Shared::new());
        let theirs = Arc::clone(&shared);
        on_signal(move || {
            theirs.signals.fetch_add(1, Ordering::Relaxed);
            theirs.stores[1][7].store(7, Ordering::Relaxed);
        });
        let first: Vec<_> = (1..=6)
            .map(|n| {
                let shared = Arc::clone(&shared);
                let body = move || thread(&shared, seed * 7919 + n * 104_729, 60, cpus as u64);
                Sim::spawn(Placement::Anywhere, body).unwrap()
            })
            .collect();
        first.into_iter().for_each(|thread| _ = thread.join());
        shared
    });
    let run = run.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(threads.borrow().values().all(|thread: &Known| thread.exited));
    // Outside of the machine: detached threads have added, too.
    let value = |word: &U64| word.load(Ordering::Relaxed);
    let additions = value(&run.value.additions);
    assert_eq!(run.value.by_cpu.values().sum::<u64>(), additions, "seed {seed}, faults {faults}");
    assert_eq!(run.value.by_cid.values().sum::<u64>(), additions, "seed {seed}, faults {faults}");
    assert_eq!(value(&run.value.sent), value(&run.value.handled), "seed {seed}, faults {faults}");
    assert!(faults.signal > 0 || value(&run.value.signals) == 0);
    run.report
}

/// Runs with full statistics, which change nothing, and elsewhere again; what they say adds up.
fn run_and_check(spec: &Spec, with: &With) -> Report {
    let report = run(spec, with, Statistics::Full);
    let details = report.details.as_ref().unwrap();
    for cpu in &details.cpus {
        let sum: u64 = cpu.by_name().iter().map(|(_, ns)| ns).sum();
        assert_eq!(sum, report.time_ns, "seed {}: {cpu:?}", with.seed);
    }
    let accesses: u64 = details.lines.iter().map(|line| line.cost.transfers.total()).sum();
    assert_eq!(accesses, report.transfers.total());
    let again = std::thread::scope(|scope| {
        scope.spawn(|| run(spec, with, Statistics::Full)).join().unwrap()
    });
    assert_eq!(report, again);
    let plain = run(spec, with, Statistics::default());
    assert_eq!(plain, Report { details: None, ..report.clone() });
    report
}

/// A machine of `sockets` with these cores and hardware threads, whose time slices are short.
fn small(sockets: u32, cores: u32, threads: u32, slice: &str) -> Spec {
    let text = include_str!("../../machines/host-2c.toml")
        .replace("sockets = 1", &format!("sockets = {sockets}"))
        .replace("cores_per_cache = 2", &format!("cores_per_cache = {cores}"))
        .replace("threads_per_core = 1", &format!("threads_per_core = {threads}"))
        .replace("ns = 3000000.0", &format!("ns = {slice}"))
        .replacen("name = \"host-2c\"", "name = \"small\"", 1);
    Spec::parse("small", &text).unwrap()
}

fn specs() -> [Spec; 6] {
    [
        small(1, 1, 1, "500.0"),
        small(1, 1, 2, "2000.0"),
        small(2, 1, 1, "300.0"),
        small(2, 2, 2, "700.0"),
        Spec::preset("host-2c").unwrap(),
        Spec::preset("epyc-9654-2s").unwrap(),
    ]
}

const INTERRUPTING: Faults = Faults { preempt: 3, migrate: 4, ..Faults::NONE };
const ALL: Faults = Faults {
    preempt: 6,
    migrate: 8,
    preempt_access: 20,
    signal: 40,
    delay: 50,
    offline: 1000,
    ..Faults::NONE
};

#[test]
fn random_programs_keep_the_laws_on_every_machine() {
    for spec in &specs() {
        for seed in 0..6 {
            for (request_percent, faults, arbitration, overlap) in [
                (0, Faults::NONE, Arbitration::Nearest, Overlap::Serial),
                (30, INTERRUPTING, Arbitration::Fifo, Overlap::Serial),
                (50, ALL, Arbitration::Nearest, Overlap::Serial),
                (100, ALL, Arbitration::Fifo, Overlap::Serial),
                (0, Faults::NONE, Arbitration::Fifo, Overlap::Independent),
                (30, INTERRUPTING, Arbitration::Nearest, Overlap::Independent),
                (100, ALL, Arbitration::Nearest, Overlap::Independent),
            ] {
                let schedule = Schedule::Time;
                let with = With { seed, request_percent, faults, schedule, arbitration, overlap };
                let report = run(spec, &with, Statistics::default());
                assert!(faults == Faults::NONE || report.restarts > 0 && report.preemptions > 0);
            }
        }
    }
}

#[test]
fn random_programs_keep_the_laws_under_every_schedule() {
    let pct = Schedule::Pct { depth: 4, steps: 20_000 };
    for spec in &specs()[..5] {
        for seed in 0..2 {
            for schedule in [Schedule::Random, pct.clone(), Schedule::Choices(Choices::default())] {
                for faults in [Faults::NONE, ALL] {
                    let (schedule, arbitration) = (schedule.clone(), Arbitration::Fifo);
                    let overlap = Overlap::Independent;
                    let with =
                        With { seed, request_percent: 30, faults, schedule, arbitration, overlap };
                    run(spec, &with, Statistics::default());
                }
            }
        }
    }
}

#[test]
fn random_programs_are_the_same_again_and_their_reports_add_up() {
    let arbitration = Arbitration::Nearest;
    for spec in &specs() {
        for (schedule, faults, overlap) in [
            (Schedule::Time, Faults::NONE, Overlap::Serial),
            (Schedule::Time, ALL, Overlap::Serial),
            (Schedule::Random, ALL, Overlap::Serial),
            (Schedule::Time, Faults::NONE, Overlap::Independent),
            (Schedule::Time, ALL, Overlap::Independent),
        ] {
            let with =
                With { seed: 7, request_percent: 30, faults, schedule, arbitration, overlap };
            run_and_check(spec, &with);
        }
    }
}
