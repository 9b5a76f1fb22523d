//! The simulated programs whose accesses are counted.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use coreline_sim::{Class, Sim, Spec};
use coreline_topology::CpuId;
use coreline_world::{
    Clock, Integer, JoinHandle, Line, Ordering, Place, Placement, Threads, Word, Words,
};

use crate::error::Error;

type U32 = <Sim as Words>::U32;

#[derive(Debug, Clone, Copy)]
enum Pattern {
    /// Each loads a line of its own: all hits, each at the same moment as the others'.
    Own,
    /// All add to one word.
    Shared,
}

#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    cpus: u32,
    pattern: Pattern,
    pub(super) goal: Option<f64>,
}

/// CPUs of the largest machine that the simulator promises.
const MOST_CPUS: u32 = 4096;

impl Case {
    pub(super) const ALL: &[Case] = &[
        Case { name: "1 CPU", cpus: 1, pattern: Pattern::Own, goal: Some(40.0) },
        Case { name: "2 CPUs, own lines", cpus: 2, pattern: Pattern::Own, goal: None },
        Case { name: "192 CPUs, own lines", cpus: 192, pattern: Pattern::Own, goal: Some(10.0) },
        Case { name: "384 CPUs, own lines", cpus: 384, pattern: Pattern::Own, goal: Some(8.0) },
        Case { name: "384 CPUs, one line", cpus: 384, pattern: Pattern::Shared, goal: None },
        Case { name: "4096 CPUs, own lines", cpus: MOST_CPUS, pattern: Pattern::Own, goal: None },
    ];

    pub(super) fn coroutines(&self) -> u32 {
        self.cpus
    }

    pub(super) fn spec(&self, large: &Spec) -> Result<Spec, Error> {
        if self.cpus == MOST_CPUS {
            return Ok(large.clone());
        }
        Spec::preset("epyc-9654-2s").map_err(Error::Machine)
    }
}

/// A machine of as many CPUs as the simulator promises, with the costs of a preset.
pub(super) fn large() -> Result<Spec, Error> {
    let costs = Spec::preset("epyc-9654-2s").map_err(Error::Machine)?;
    let mut text = "name = \"bench-4096\"\nsummary = \"4,096 CPUs\"\n[topology]\nsockets = 4\n\
                    nodes_per_socket = 4\ncaches_per_node = 16\ncores_per_cache = 8\n\
                    threads_per_core = 2\n"
        .to_owned();
    for (name, cost) in costs.sources() {
        let is_transfer = Class::ALL.iter().any(|class| class.name() == name);
        let ns = cost.value as f64 / 1000.0;
        let value = match (cost.is_count, is_transfer) {
            (true, _) => format!("count = {}", cost.value),
            (false, true) => format!("ping_pong_ns = {ns}"),
            (false, false) => format!("ns = {ns}"),
        };
        // Writing to a string does not fail.
        let _ = write!(text, "[cost.{name}]\n{value}\nsource = {:?}\n", cost.source);
    }
    Spec::parse("bench-4096", &text).map_err(Error::MachineFile)
}

/// By then, all threads of a case have been spawned.
const UNTIL_ALL_ARE_THERE: Duration = Duration::from_millis(2);

/// About `accesses` accesses by the case's threads, all at the same time.
pub(super) fn run(case: &Case, accesses: u64) {
    let shared = Arc::new(Line(U32::new_in(0)));
    let turns = accesses.div_ceil(u64::from(case.cpus));
    let pattern = case.pattern;
    let begin = Sim::now() + UNTIL_ALL_ARE_THERE;
    in_parallel(case.cpus, move || {
        // A thread that began as soon as it is there would have the machine to itself, or be done
        // before the last one comes.
        Sim::sleep(begin - Sim::now());
        let own = Line(U32::new_in(0));
        let (own, shared) = (&*own, &**shared);
        for _ in 0..turns {
            match pattern {
                Pattern::Own => own.load(Ordering::Relaxed),
                Pattern::Shared => shared.fetch_add(1, Ordering::Relaxed),
            };
        }
    });
}

/// Calls `look` while every CPU of the machine is busy.
pub(super) fn hold<T>(look: impl FnOnce() -> T) -> T {
    let (arrived, done) = (Arc::new(Line(U32::new_in(0))), Arc::new(Line(U32::new_in(0))));
    let cpus = Sim::topology().cpu_count() as u32;
    let threads: Vec<_> = (0..cpus)
        .map(|cpu| {
            let (arrived, done) = (Arc::clone(&arrived), Arc::clone(&done));
            spawn(cpu, move || {
                arrived.fetch_add(1, Ordering::Relaxed);
                done.wait_until(Ordering::Relaxed, |done| done == 1);
            })
        })
        .collect();
    // The first CPU is this thread's, too: asleep, it lets the other one run.
    while arrived.load(Ordering::Relaxed) < cpus {
        Sim::sleep(Duration::from_millis(1));
    }
    let seen = look();
    done.store(1, Ordering::Relaxed);
    threads.into_iter().for_each(JoinHandle::join);
    seen
}

fn in_parallel(cpus: u32, f: impl FnOnce() + Clone + Send + 'static) {
    let threads: Vec<_> = (0..cpus).map(|cpu| spawn(cpu, f.clone())).collect();
    threads.into_iter().for_each(JoinHandle::join);
}

type Handle = <Sim as Threads>::JoinHandle<()>;

fn spawn(cpu: u32, f: impl FnOnce() + Send + 'static) -> Handle {
    let placement = Placement::On(CpuId::new(cpu));
    Sim::spawn(placement, f)
        .unwrap_or_else(|error| panic!("cannot start a thread on CPU {cpu}: {error}"))
}
