//! How each world runs a law.
//!
//! A harness is a generic program that panics when the law is broken. It runs natively as a stress
//! test, on simulated machines with many seeds and faults, and in the model checker in every
//! interleaving: the world is a type parameter, so one binary holds all three. There is a binary
//! for each family of primitives, so that a change to a lock compiles the laws of locks alone.

use std::cell::Cell;
use std::rc::Rc;

use coreline::IndexBy;
use coreline_sim::{Failure, Faults, Kernel, Machine, Replay, Schedule};
use coreline_topology::{Cid, Cpu, CpuId};
use coreline_world::model::{Checker, Plant};
use coreline_world::{JoinHandle, Native, Placement, Restartable, Testbed, Time};

/// How much a harness does in a world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Threads beside the first one.
    pub(crate) threads: u32,
    /// What each of them does that many times.
    pub(crate) rounds: u32,
    /// How many CPUs they are spread over, round robin.
    pub(crate) cpus: u32,
}

impl Effort {
    /// Where the threads run, by their numbers: on the first CPUs that there are, and that this
    /// process may use (a container's may be few, and begin anywhere).
    pub(crate) fn places<W: Testbed>(self) -> impl Fn(u32) -> Placement {
        let on = |cpu: &Cpu| Placement::On(cpu.id);
        // In the model a thread more is many interleavings more, and every CPU may be used.
        let usable =
            |place: &Placement| !W::RUNS || W::spawn(*place, || ()).map(JoinHandle::join).is_ok();
        let topology = W::topology();
        let places: Vec<_> =
            topology.cpus().map(on).filter(usable).take(self.cpus as usize).collect();
        move |number| places[number as usize % places.len()]
    }

    /// Starts the threads, each at its place.
    pub(crate) fn crew<W: Testbed, T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        self,
        member: impl Fn(u32) -> F,
    ) -> Vec<W::JoinHandle<T>> {
        let place = self.places::<W>();
        (0..self.threads).map(|number| W::spawn(place(number), member(number)).unwrap()).collect()
    }
}

/// Starts so many threads, on no CPU of their own.
pub(crate) fn crew<W: Testbed, T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
    size: u32,
    member: impl Fn(u32) -> F,
) -> Vec<W::JoinHandle<T>> {
    let start = |number| W::spawn(Placement::Anywhere, member(number)).unwrap();
    (0..size).map(start).collect()
}

/// Twice as many threads as this machine has CPUs, preempted by time.
pub(crate) const NATIVE: Effort = Effort { threads: 4, rounds: 20_000, cpus: 2 };

/// One thread on every CPU of the large machine.
pub(crate) const MANY: Effort = Effort { threads: 384, rounds: 4, cpus: 384 };

/// Two threads to a CPU on the small machine.
pub(crate) const FEW: Effort = Effort { threads: 4, rounds: 50, cpus: 2 };

/// Two threads beside the first, each once: more is beyond every interleaving.
pub(crate) const MODEL: Effort = Effort { threads: 2, rounds: 1, cpus: 2 };

/// Preempted before every fifth step and moved before every seventh, on average.
pub(crate) const TORN: Faults = Faults { preempt: 5, migrate: 7, ..Faults::NONE };

/// Preempted before every fifth access: what is no restartable operation is torn by this alone.
pub(crate) const PREEMPTED: Faults = Faults { preempt_access: 5, ..Faults::NONE };

/// A kernel that gives a thread the lowest concurrency ID that no running thread has: compact, and
/// seldom the same ID twice on one CPU.
#[derive(Default)]
struct LowestFree {
    /// By ID: the thread that has it.
    holders: Vec<Option<usize>>,
}

impl Kernel for LowestFree {
    fn name(&self) -> &str {
        "lowest-free"
    }

    fn switch_in(&mut self, _at: Time, _cpu: CpuId, thread: usize) -> Cid {
        let free = self.holders.iter().position(Option::is_none).unwrap_or(self.holders.len());
        if free == self.holders.len() {
            self.holders.push(None);
        }
        self.holders[free] = Some(thread);
        Cid::new(u32::try_from(free).expect("fewer than threads"))
    }

    fn switch_out(&mut self, _at: Time, _cpu: CpuId, thread: usize) {
        let held = self.holders.iter_mut().filter(|holder| **holder == Some(thread));
        held.for_each(|holder| *holder = None);
    }

    fn spawned(&mut self, _thread: usize, _cpu: CpuId, _bound: bool) {}

    fn exited(&mut self, _thread: usize) {}
}

/// The machine that a replay line of a law describes. Its kernel keeps concurrency IDs.
pub(crate) fn replay(line: &Replay) -> Machine {
    Machine::replay(line).expect("a preset").kernel(Box::<LowestFree>::default())
}

/// As [`simulate_seeds`], with as many seeds as a law needs that breaks in most schedules: two for
/// each request share.
pub(crate) fn simulate(
    name: &str,
    machine: &str,
    faults: Faults,
    law: impl Fn() + Copy + 'static,
) -> Result<(), Box<Failure>> {
    simulate_seeds(name, machine, faults, 6, law)
}

/// Runs `law` on a machine with so many seeds; or the one run that `CORELINE_REPLAY` describes, if
/// that is set to a replay line of this law.
pub(crate) fn simulate_seeds(
    name: &str,
    machine: &str,
    faults: Faults,
    seeds: u64,
    law: impl Fn() + Copy + 'static,
) -> Result<(), Box<Failure>> {
    run_lines(name, machine, seeds, Rc::new(law), &|line| Replay { faults, ..line })
}

/// Runs `law` under so many schedules that look for mistakes, random ones and such with few
/// preemptions (PCT) by turns. Of three, one is without faults, one takes threads off their CPUs
/// and moves them, and one shows stores late.
pub(crate) fn search(
    name: &str,
    machine: &str,
    schedules: u64,
    law: impl Fn() + Copy + 'static,
) -> Result<(), Box<Failure>> {
    run_lines(name, machine, schedules, Rc::new(law), &|line| Replay {
        faults: match line.seed % 3 {
            0 => Faults::NONE,
            1 => Faults { preempt: 20, migrate: 15, preempt_access: 50, ..Faults::NONE },
            _ => Faults { delay: 10, preempt_access: 50, ..Faults::NONE },
        },
        schedule: match line.seed % 2 {
            0 => Schedule::Random,
            _ => Schedule::Pct { depth: 1 + line.seed as u32 / 2 % 4, steps: 3000 },
        },
        step_limit: 2_000_000,
        ..line
    })
}

/// So many schedules; or as many as `CORELINE_SCHEDULES` asks for.
pub(crate) fn schedules(usual: u64) -> u64 {
    let set = std::env::var("CORELINE_SCHEDULES").ok();
    set.map_or(usual, |set| set.parse().expect("CORELINE_SCHEDULES is a number"))
}

/// Not generic over the law: what runs it is compiled once.
fn run_lines(
    name: &str,
    machine: &str,
    seeds: u64,
    law: Rc<dyn Fn()>,
    set: &dyn Fn(Replay) -> Replay,
) -> Result<(), Box<Failure>> {
    let run = |line: &Replay| {
        let law = Rc::clone(&law);
        replay(line).run(move || law())
    };
    let program = format!("laws::{name}");
    if let Ok(line) = std::env::var("CORELINE_REPLAY") {
        let line: Replay = line.parse().expect("CORELINE_REPLAY is a replay line");
        if line.program == program && line.machine == machine {
            run(&line)?;
        }
        return Ok(());
    }
    for seed in 0..seeds {
        let line = set(Replay {
            seed,
            request_percent: Machine::REQUEST_BAND[seed as usize % 3],
            races: true,
            ..Replay::new(machine, &program)
        });
        run(&line)?;
    }
    Ok(())
}

/// Runs `law` in every interleaving with few preemptions, of which there are enough to break what
/// was ever broken (Musuvathi and Qadeer, "Iterative context bounding", 2007).
pub(crate) fn check(law: impl Fn() + Send + Sync + 'static) {
    check_planted(Plant::NONE, law);
}

/// As [`check`], with this plant.
pub(crate) fn check_planted(plant: Plant, law: impl Fn() + Send + Sync + 'static) {
    planted(plant).check(law);
}

/// As [`check_planted`], with so many preemptions at least: for mistakes that two do not show.
pub(crate) fn check_by(least: usize, plant: Plant, law: impl Fn() + Send + Sync + 'static) {
    planted(plant).preemption_bound(preemptions().max(least)).check(law);
}

/// As [`check`], with two preemptions also where `CORELINE_PREEMPTIONS` asks for more: for laws of
/// many steps.
pub(crate) fn few(law: impl Fn() + Send + Sync + 'static) {
    few_planted(Plant::NONE, law);
}

/// As [`few`], with this plant.
pub(crate) fn few_planted(plant: Plant, law: impl Fn() + Send + Sync + 'static) {
    planted(plant).preemption_bound(2).check(law);
}

/// As [`check_planted`], with one preemption less: for laws of many steps and three threads.
pub(crate) fn fewest_planted(plant: Plant, law: impl Fn() + Send + Sync + 'static) {
    planted(plant).preemption_bound(preemptions() - 1).check(law);
}

/// Whether [`check`] fails if this mistake is planted.
pub(crate) fn is_caught(plant: Plant, law: impl Fn() + Send + Sync + 'static) -> bool {
    planted(plant).try_check(law).is_err()
}

/// Whether [`check_by`] fails if this mistake is planted.
pub(crate) fn is_caught_by(
    least: usize,
    plant: Plant,
    law: impl Fn() + Send + Sync + 'static,
) -> bool {
    planted(plant).preemption_bound(preemptions().max(least)).try_check(law).is_err()
}

/// [`check`] fails if this mistake is planted, and says that it found this.
#[track_caller]
pub(crate) fn assert_caught(plant: Plant, expected: &str, law: impl Fn() + Send + Sync + 'static) {
    let failure = planted(plant).try_check(law).expect_err("the planted mistake is not found");
    assert!(failure.message.contains(expected), "{failure}");
}

/// How the model checker says that accesses to a cell are not ordered.
pub(crate) const RACE: &str = "Causality violation";

fn planted(plant: Plant) -> Checker {
    Checker::new().preemption_bound(preemptions()).plant(plant)
}

/// Two break each law that a planted mistake breaks; or as many as `CORELINE_PREEMPTIONS` asks for,
/// of which there are more at night.
pub(crate) fn preemptions() -> usize {
    let set = std::env::var("CORELINE_PREEMPTIONS").ok();
    set.map_or(2, |set| set.parse().expect("CORELINE_PREEMPTIONS is a number from 1 on"))
}

/// The model, where one heavy fence is refused: see [`BEFORE_REFUSED`].
pub(crate) const ONE_REFUSED: Plant = Plant { refuses: is_refused, ..Plant::NONE };

thread_local! {
    /// How many heavy fences there are before the one that is refused; of the host's thread, on
    /// which all threads of an execution take turns. Laws let one thread alone fence so.
    pub(crate) static BEFORE_REFUSED: Cell<Option<u32>> = const { Cell::new(None) };
}

fn is_refused() -> bool {
    let before = BEFORE_REFUSED.get();
    BEFORE_REFUSED.set(before.and_then(|before| before.checked_sub(1)));
    before == Some(0)
}

/// The message of the panic that `f` ends in.
pub(crate) fn panic_of(f: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let payload = std::panic::catch_unwind(f).expect_err("the planted bug is not found");
    payload
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

/// Numbers that look random: SplitMix64.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// One below this.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below as u64) as usize
    }
}

/// The choice between sections and atomics is made once per process, so this runs in another one.
#[test]
fn what_holds_natively_holds_on_atomics() {
    let (section, _) = Native::section(IndexBy::Cpu).expect("CPUs have numbers");
    if !Native::runs_sections(&section) {
        return;
    }
    let again = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["natively", "--skip", "on_atomics"])
        .env("CORELINE_RSEQ", "off")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && !text.contains(" 0 passed"), "{text}");
}
