//! The program of `threadstorm`: pools, their threads, and the workers that act as the CPUs'
//! schedulers.

use core::sync::atomic::{AtomicBool, AtomicU64};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coreline::cid::CidError;
use coreline_topology::{Cid, CpuId, CpuSet};
use coreline_world::{Integer, Line, Ordering, Testbed, Time, Word};
use rand_pcg::Pcg64;

use super::ids::{Ids, SPACE};
use super::place::Cpus;
use super::{BODY, Load, Setup, TICK, WAKE_UP, WARM_UP};
use crate::crew::{clock_ns, crew, nanos, pinned};
use crate::{RunError, shuffle};

/// The next step of a thread when it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// A creator: creates the threads of this round.
    Create(u32),
    /// A creator: wakes those of this round, all of which have run.
    Release(u32),
    /// A created thread: says that it runs.
    Arrive,
    /// A created thread: says that it ends, and does.
    Depart,
}

/// The record of a thread. All but `cpu` is for the CPU that has the thread.
struct State<T> {
    next: Next,
    /// The CPU on which it runs or last ran; `None` before it has run.
    cpu: Option<usize>,
    /// Its task in the source of IDs, on lines of its own as in the kernel; `None` while it runs,
    /// and before and after its life.
    task: Option<Box<Line<T>>>,
}

/// The program's words are those of the world. The host's are for checks and measuring.
struct Pool<W: Testbed> {
    /// How many threads have arrived, or are about to end. The creator, which is one of these
    /// threads, resets this number before it creates or wakes threads.
    met: Line<W::U32>,
    /// When it began to be counted, in nanoseconds; 0 before. The host's.
    began: AtomicU64,
}

/// Threads are numbered: for each pool its creator, then two for each that is created in a round,
/// since threads of one round may still be ending while those of the next are created.
struct Storm<W: Testbed, I: Ids<W>> {
    load: Load,
    ids: Box<Line<I>>,
    cpus: Cpus<W>,
    anywhere: CpuSet,
    /// CPUs in the order in which pinned threads are dealt to them.
    deal: Vec<usize>,
    pools: Vec<Pool<W>>,
    finished: Line<W::U32>,
    /// By thread. The host's locks, which are never held while time passes.
    threads: Vec<Mutex<State<I::Task>>>,
    /// For each thread: 1 while a CPU has it, also while it is switched out there.
    on_cpu: Vec<Line<W::U32>>,
    /// For each ID: whether a running thread has it. The host's.
    held: Vec<AtomicBool>,
    /// The first thing that went wrong.
    broken: Mutex<Option<RunError>>,
}

/// A space has no more IDs.
const MOST_IDS: usize = 1 << 16;

/// The streams of the generator: for dealing threads to CPUs, and one for each worker.
const DEAL: u128 = 0xDEA1;
const WORKER: u128 = 0x2_0000;

/// A kind of call.
#[derive(Debug, Clone, Copy)]
enum Call {
    Enter,
    Leave,
    /// The switch-in of a thread that has not run before.
    FirstSwitchIn,
    SwitchIn,
    SwitchOut,
    Migrate,
    Expire,
}

const CALLS: usize = Call::Expire as usize + 1;

#[derive(Debug, Default)]
struct Tally {
    /// Nanoseconds and number, by kind.
    calls: [(u64, u64); CALLS],
    /// Nanoseconds that were not idle.
    busy: u64,
    /// Switch-ins, also those that are not counted.
    switches: u64,
    /// Threads created in a second, by the pools whose creators ended here.
    rate: f64,
}

/// A CPU's scheduler.
struct Worker {
    /// The CPU's place.
    cpu: usize,
    /// The time between two reads of the clock with nothing between them.
    clock: u64,
    dice: Pcg64,
    ticked: Time,
    /// Whether what is done now is counted.
    counts: bool,
    tally: Tally,
}

/// Runs the program with a source of IDs. Returns the numbers of the scenario.
///
/// # Errors
///
/// [`RunError`] if a thread could not be started or has no ID, if two running threads had the same
/// ID, or if a thread is left in the source.
pub fn storm<W: Testbed, I: Ids<W>>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    let storm = Arc::new(Storm::<W, I>::new(setup)?);
    coreline_sim::name(&**storm.ids, SPACE);
    let mut begun = None;
    let tallies = crew::<W, _, _>(&storm, pinned(&setup.cpus), Storm::work, |missing| {
        begun = missing.is_none().then(|| storm.begin());
        if !matches!(begun, Some(Ok(_))) {
            storm.cpus.end();
        }
    })?;
    if let Some(first) = begun {
        storm.ids.leave(first?);
    }
    if let Some(broken) = lock(&storm.broken).take() {
        return Err(broken);
    }
    match storm.ids.users() {
        0 => Ok(numbers(&tallies)),
        left => Err(RunError::Check(format!(
            "{left} threads are left in the space of concurrency IDs, and none should be"
        ))),
    }
}

impl<W: Testbed, I: Ids<W>> Storm<W, I> {
    fn new(setup: &Setup) -> Result<Self, RunError> {
        let (pools, created) = setup.pair("size");
        let (pools, threads) = (pools as usize, (pools * (2 * created + 1)) as usize);
        let mut deal: Vec<usize> = (0..setup.cpus.len()).collect();
        shuffle(&mut deal, &mut Pcg64::new(u128::from(setup.seed), DEAL));
        let word = || Line(W::U32::new_in(0));
        let state = || Mutex::new(State { next: Next::Arrive, cpu: None, task: None });
        let pool = || Pool { met: word(), began: AtomicU64::new(0) };
        Ok(Storm {
            load: Load::of(setup),
            ids: Box::new(Line(I::new().map_err(lack)?)),
            cpus: Cpus::new(&setup.cpus, threads),
            anywhere: setup.cpus.iter().copied().collect(),
            deal,
            pools: (0..pools).map(|_| pool()).collect(),
            finished: word(),
            threads: (0..threads).map(|_| state()).collect(),
            on_cpu: (0..threads).map(|_| word()).collect(),
            held: (0..MOST_IDS).map(|_| AtomicBool::new(false)).collect(),
            broken: Mutex::new(None),
        })
    }

    /// A pool's n-th thread in a round; its creator is the 0th, in every round.
    fn thread(&self, pool: usize, n: u32, round: u32) -> usize {
        let created = self.load.threads as usize;
        let half = if n > 0 && round % 2 == 1 { created } else { 0 };
        pool * (2 * created + 1) + n as usize + half
    }

    fn pool(&self, thread: usize) -> usize {
        thread / (2 * self.load.threads as usize + 1)
    }

    /// The one CPU of a pinned thread: the same for both threads of a place in the pool.
    fn home(&self, thread: usize) -> Option<usize> {
        let created = self.load.threads as usize;
        let place = match thread % (2 * created + 1) {
            second if second > created => second - created,
            first => first,
        };
        let dealt = self.pool(thread) * (created + 1) + place;
        self.load.is_pinned.then(|| self.deal[dealt % self.deal.len()])
    }

    fn id(&self, cpu: usize) -> CpuId {
        self.load.cpus[cpu]
    }

    /// A thread is a user from now on, and does `next` when it first runs.
    fn enter(&self, thread: usize, next: Next) -> Result<(), CidError> {
        let task = match self.home(thread) {
            Some(cpu) => self.ids.enter(&CpuSet::from_iter([self.id(cpu)])),
            None => self.ids.enter(&self.anywhere),
        };
        let task = Some(Box::new(Line(task?)));
        *lock(&self.threads[thread]) = State { next, cpu: None, task };
        Ok(())
    }

    /// The run reports the first error.
    fn fail(&self, broken: RunError) {
        lock(&self.broken).get_or_insert(broken);
    }

    /// Sends the creators to their CPUs. Returns the thread that created them, which sleeps until
    /// all is over.
    fn begin(&self) -> Result<I::Task, RunError> {
        let first = self.ids.enter(&self.anywhere).map_err(lack)?;
        let creators: Vec<usize> =
            (0..self.pools.len()).map(|pool| self.thread(pool, 0, 0)).collect();
        creators.iter().try_for_each(|&it| self.enter(it, Next::Create(0)).map_err(lack))?;
        let mut dice = Pcg64::new(u128::from(self.load.seed), DEAL);
        for creator in creators {
            let home = self.home(creator);
            self.cpus.send(creator, home.unwrap_or_else(|| self.cpus.for_new(&mut dice)));
        }
        Ok(first)
    }

    fn work(&self, cpu: usize) -> Tally {
        let mut worker = Worker {
            cpu,
            clock: clock_ns::<W>(),
            dice: Pcg64::new(u128::from(self.load.seed), WORKER + cpu as u128),
            ticked: W::now(),
            counts: false,
            tally: Tally::default(),
        };
        let (mut queue, mut goes_on) = (VecDeque::new(), true);
        loop {
            if goes_on {
                goes_on = self.cpus.receive(cpu, &mut queue);
            }
            match queue.pop_front() {
                Some(thread) => self.run(&mut worker, thread),
                None if goes_on => continue,
                None => return worker.tally,
            }
            if W::now() - worker.ticked >= TICK {
                worker.ticked = W::now();
                worker.timed::<W, _>(Call::Expire, |now| self.ids.expire(now));
            }
        }
    }

    /// Switches a thread in, lets it run, and switches it out.
    fn run(&self, worker: &mut Worker, thread: usize) {
        let begin = W::now();
        // Acquire: pairs with the Release below, on the CPU that ran this thread last, or the
        // thread that had its number two rounds before.
        self.on_cpu[thread].wait_until(Ordering::Acquire, |on| on == 0);
        // Relaxed: the thread is sent on only after this store, and the send publishes it.
        self.on_cpu[thread].store(1, Ordering::Relaxed);
        let (next, last, task) = {
            let mut state = lock(&self.threads[thread]);
            (state.next, state.cpu.replace(worker.cpu), state.task.take())
        };
        let task = task.expect("a thread sent to a CPU has not ended, and is nowhere else");
        // Relaxed: the host's.
        worker.counts = self.pools[self.pool(thread)].began.load(Ordering::Relaxed) != 0;
        let cpu = self.id(worker.cpu);
        if let Some(last) = last {
            W::work(WAKE_UP);
            if last != worker.cpu {
                let last = self.id(last);
                let migrate = |now| self.ids.migrate(now, &task, last, cpu);
                worker.timed::<W, _>(Call::Migrate, migrate).unwrap_or_else(|error| {
                    self.fail(lack(error));
                });
            }
        }
        W::work(self.load.path);
        worker.tally.switches += 1;
        let call = if last.is_some() { Call::SwitchIn } else { Call::FirstSwitchIn };
        let cid = worker.timed::<W, _>(call, |now| self.ids.switch_in(now, cpu, &task));
        let cid = cid.unwrap_or_else(|error| {
            self.fail(lack(error));
            None
        });
        if let Some(cid) = cid {
            self.hold(cid);
        }
        let then = match next {
            Next::Create(_) | Next::Release(_) => self.create(worker, thread, next),
            Next::Arrive | Next::Depart => self.live(worker, thread, next),
        };
        if let Some(cid) = cid {
            // Relaxed: the host's.
            self.held[cid.index()].store(false, Ordering::Relaxed);
        }
        worker.timed::<W, _>(Call::SwitchOut, |now| self.ids.switch_out(now, cpu, &task));
        match then {
            Some(next) => {
                let mut state = lock(&self.threads[thread]);
                state.next = next;
                state.task = Some(task);
            }
            None => worker.timed::<W, _>(Call::Leave, |_| self.ids.leave(task.0)),
        }
        W::work(self.load.path);
        // Release: pairs with the Acquire above, and with that in `create`.
        self.on_cpu[thread].store(0, Ordering::Release);
        if worker.counts {
            worker.tally.busy += nanos(begin, W::now());
        }
    }

    /// Asserts that no other thread has the ID.
    fn hold(&self, cid: Cid) {
        // Relaxed: the host's.
        if self.held[cid.index()].swap(true, Ordering::Relaxed) {
            self.fail(RunError::Check(format!(
                "two running threads have the same concurrency ID, {cid}"
            )));
        }
    }

    /// Runs a creator until it sleeps. Returns what it does next; `None` if it ends.
    fn create(&self, worker: &mut Worker, thread: usize, mut next: Next) -> Option<Next> {
        let number = self.pool(thread);
        let pool = &self.pools[number];
        let all = self.load.threads;
        loop {
            // Relaxed: no thread adds to it before one is sent.
            pool.met.store(0, Ordering::Relaxed);
            next = match next {
                Next::Create(round) if round == WARM_UP + self.load.rounds => {
                    self.finish(worker, pool);
                    return None;
                }
                Next::Create(round) => {
                    if round == WARM_UP {
                        worker.counts = true;
                        // Relaxed: the host's.
                        pool.began.store(W::now().as_nanos().max(1), Ordering::Relaxed);
                    }
                    (1..=all).for_each(|n| self.start(worker, self.thread(number, n, round)));
                    Next::Release(round)
                }
                Next::Release(round) => {
                    (1..=all).for_each(|n| self.wake(worker, self.thread(number, n, round)));
                    Next::Create(round + 1)
                }
                other => return Some(other),
            };
            if !self.meet(pool) {
                return Some(next);
            }
        }
    }

    /// Creates a thread.
    fn start(&self, worker: &mut Worker, thread: usize) {
        W::work(self.load.rest * 2 / 3);
        // Acquire: pairs with the Release in `run`, where it ended two rounds before.
        self.on_cpu[thread].wait_until(Ordering::Acquire, |on| on == 0);
        if let Err(error) = worker.timed::<W, _>(Call::Enter, |_| self.enter(thread, Next::Arrive))
        {
            self.fail(lack(error));
        }
        let home = self.home(thread);
        let cpu = home.unwrap_or_else(|| self.cpus.for_new(&mut worker.dice));
        self.cpus.send(thread, cpu);
    }

    /// Runs a created thread until it sleeps. Returns what it does next; `None` if it ends.
    fn live(&self, worker: &mut Worker, thread: usize, next: Next) -> Option<Next> {
        W::work(BODY);
        let number = self.pool(thread);
        if self.meet(&self.pools[number]) {
            self.wake(worker, self.thread(number, 0, 0));
        }
        if next == Next::Arrive {
            return Some(Next::Depart);
        }
        W::work(self.load.rest / 3);
        None
    }

    /// One more thread has come; returns whether it was the last.
    fn meet(&self, pool: &Pool<W>) -> bool {
        // AcqRel: what all did before they came is visible to the last.
        pool.met.fetch_add(1, Ordering::AcqRel) == self.load.threads
    }

    fn wake(&self, worker: &mut Worker, thread: usize) {
        let last = lock(&self.threads[thread]).cpu;
        let roaming = || match last {
            Some(last) => self.cpus.for_woken(worker.cpu, last, &mut worker.dice),
            None => worker.cpu,
        };
        let cpu = self.home(thread).unwrap_or_else(roaming);
        self.cpus.send(thread, cpu);
    }

    fn finish(&self, worker: &mut Worker, pool: &Pool<W>) {
        // Relaxed: the host's.
        let began = Time::from_nanos(pool.began.load(Ordering::Relaxed));
        let created = f64::from(self.load.rounds) * f64::from(self.load.threads);
        worker.tally.rate += 1e9 * created / nanos(began, W::now()).max(1) as f64;
        // AcqRel: all that the pools did comes before the end.
        if self.finished.fetch_add(1, Ordering::AcqRel) + 1 == self.load.pools {
            self.cpus.end();
        }
    }
}

impl Worker {
    /// Makes a call, and records the time that it took.
    fn timed<W: Testbed, R>(&mut self, call: Call, f: impl FnOnce(Time) -> R) -> R {
        let start = W::now();
        let result = f(start);
        if self.counts {
            let (ns, number) = &mut self.tally.calls[call as usize];
            *ns += nanos(start, W::now()).saturating_sub(self.clock);
            *number += 1;
        }
        result
    }
}

fn lack(error: CidError) -> RunError {
    RunError::Lack(error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In the order that they are declared in: threads created in a second; what IDs cost a created
/// thread in all; a switch-in of a thread that has run before, with its arrival if it comes from
/// another CPU, and a switch-out; entering, the first switch-in and leaving; an arrival from
/// another CPU, 0 if there was none; the share of all calls in the time of CPUs that do not idle.
fn numbers(tallies: &[Tally]) -> Vec<f64> {
    let sum = |part: &dyn Fn(&Tally) -> u64| tallies.iter().map(part).sum::<u64>() as f64;
    let ns = |calls: &[Call]| -> f64 {
        calls.iter().map(|&call| sum(&|tally| tally.calls[call as usize].0)).sum()
    };
    let number = |call: Call| sum(&|tally| tally.calls[call as usize].1).max(1.0);
    let mean = |calls: &[Call], of: Call| ns(calls) / number(of);
    let all: f64 = tallies.iter().flat_map(|tally| tally.calls).map(|call| call.0 as f64).sum();
    vec![
        tallies.iter().map(|tally| tally.rate).sum(),
        all / number(Call::Enter),
        mean(&[Call::SwitchIn, Call::Migrate, Call::Expire], Call::SwitchIn)
            + mean(&[Call::SwitchOut], Call::SwitchOut),
        mean(&[Call::Enter, Call::FirstSwitchIn, Call::Leave], Call::Enter),
        mean(&[Call::Migrate], Call::Migrate),
        100.0 * all / sum(&|tally| tally.busy),
        sum(&|tally| tally.switches),
    ]
}
