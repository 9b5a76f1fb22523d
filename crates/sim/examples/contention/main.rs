//! Contention of two threads and more, natively and simulated: docs/contention.md.
//!
//! ```sh
//! cargo run --release -p coreline-sim --example contention -- mechanisms native host-2c
//! cargo run --release -p coreline-sim --example contention -- mechanisms host-2c
//! cargo run --release -p coreline-sim --example contention -- structures native host-2c
//! cargo run --release -p coreline-sim --example contention -- structures host-2c
//! cargo run --release -p coreline-sim --example contention -- rows native host-2c
//! cargo run --release -p coreline-sim --example contention -- rows host-2c independent
//! cargo run --release -p coreline-sim --example contention -- alone native
//! cargo run --release -p coreline-sim --example contention -- alone host-2c
//! cargo run --release -p coreline-sim --example contention -- many epyc-9654-2s
//! ```
//!
//! A hypervisor may move a virtual machine's CPUs, of which its kernel sees nothing. So what two
//! CPUs do is measured natively only while a ping-pong between them takes what it takes between the
//! named machine's nearest two cores. The word `independent` behind a machine has the independent
//! accesses of its threads overlap.
//!
//! | module | holds |
//! |---|---|
//! | [`bed`] | the two worlds, and a sample of several threads |
//! | [`mechanisms`] | one mechanism at a time: what machine files are calibrated by |
//! | [`rows`] | small programs whose accesses overlap more or less |
//! | [`structures`], [`queues`] | what threads contend for: what is predicted |

mod bed;
mod mechanisms;
mod queues;
mod rows;
mod structures;

use std::collections::BTreeMap;
use std::error::Error;

use coreline_sim::{Allocator, Class, Machine, Overlap, Sim, Spec};
use coreline_topology::CpuId;
use coreline_world::Native;
use coreline_world::native::probe;

use bed::Bed;
use mechanisms::{Figures, Length, Mechanism};
use structures::Use;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// How often a native sample is taken at most, until it is not disturbed.
const ATTEMPTS: usize = 8;

/// Rounds of native samples, each of one sample of everything, so that a slow spell of the machine
/// hits all alike; and operations of a sample. Structures take longer than mechanisms.
const MECHANISMS: (usize, Length) = (101, Length(8_000));
const STRUCTURES: (usize, Length) = (101, Length(3_000));

/// Operations of a simulated sample.
const SIMULATED: Length = Length(4_000);

/// Seeds of simulated samples.
const SEEDS: u64 = 9;
const SEEDS_OF_MANY: u64 = 3;

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (words, overlap) = match words[..] {
        [ref words @ .., last] if last == Overlap::Independent.to_string() => {
            (words, Overlap::Independent)
        }
        ref words => (words, Overlap::Serial),
    };
    let simulated = |machine, all| simulated(&spec(machine)?, overlap, all);
    let table = match *words {
        ["mechanisms", "native", near] => {
            native(&mechanisms::all::<Native>(), MECHANISMS, &spec(near)?)?
        }
        ["mechanisms", machine] => simulated(machine, mechanisms::all::<Sim>)?,
        ["rows", "native", near] => native(&rows::all::<Native>(), MECHANISMS, &spec(near)?)?,
        ["rows", machine] => simulated(machine, rows::all::<Sim>)?,
        ["structures", "native", near] => {
            native(&structures::<Native>(), STRUCTURES, &spec(near)?)?
        }
        ["structures", machine] => simulated(machine, structures::<Sim>)?,
        ["alone", "native"] => native_alone()?,
        ["alone", machine] => simulated(machine, alone::<Sim>)?,
        ["many", machine] => many(&spec(machine)?)?,
        _ => {
            return Err("usage: contention mechanisms|rows|structures MACHINE [independent], \
                         contention mechanisms|rows|structures native MACHINE, \
                         contention alone native, contention alone MACHINE [independent], \
                         or contention many MACHINE"
                .into());
        }
    };
    print!("{table}");
    Ok(())
}

/// The structures, as two threads use them.
fn structures<W: Bed>() -> Vec<Mechanism> {
    let program =
        |it: Use| -> Mechanism { Box::new(move |cpus, length| it.sample::<W>(cpus, length)) };
    structures::of_two().into_iter().map(program).collect()
}

/// The structures, as one thread uses them.
fn alone<W: Bed>() -> Vec<Mechanism> {
    let program =
        |it: Use| -> Mechanism { Box::new(move |cpus, length| it.sample::<W>(&cpus[..1], length)) };
    structures::of_many().into_iter().map(program).collect()
}

/// A preset, or a machine file.
fn spec(machine: &str) -> Result<Spec, Box<dyn Error>> {
    if machine.ends_with(".toml") {
        return Ok(Spec::from_file(machine.as_ref())?);
    }
    Ok(Spec::preset(machine)?)
}

const NO_PAIR: &str = "the machine has no two cores";

/// How far a ping-pong may be off, in percent, and the CPUs be as far apart as asked for.
const MOST_OFF: f64 = 30.0;

/// Whether a ping-pong takes what it is expected to.
fn is_near(cpus: &[CpuId], expected: f64) -> bool {
    let (figures, _) = mechanisms::ping_pong::<Native>(cpus, Length(2_000));
    figures.iter().all(|(_, ns)| (ns - expected).abs() * 100.0 <= expected * MOST_OFF)
}

/// The machine's nearest two cores, and how far apart they are.
fn nearest(spec: &Spec) -> Option<(Class, [CpuId; 2])> {
    Class::ALL.into_iter().find_map(|class| Some((class, class.pair(spec.topology())?)))
}

/// Samples of several figures.
#[derive(Default)]
struct Samples {
    /// The figures' names in the order of their first appearance.
    names: Vec<String>,
    all: BTreeMap<String, Vec<f64>>,
    discarded: usize,
    /// Samples while the CPUs were not as far apart as asked for.
    elsewhere: usize,
}

impl Samples {
    /// Whether the sample counts: one that was disturbed does not.
    fn add(&mut self, (figures, disturbed): Figures) -> bool {
        if disturbed {
            self.discarded += 1;
            return false;
        }
        for (name, figure) in figures {
            if !self.all.contains_key(&name) {
                self.names.push(name.clone());
            }
            self.all.entry(name).or_default().push(figure);
        }
        true
    }

    /// A line for each figure: the median, and between what half of all samples lie.
    fn table(mut self) -> String {
        let mut table = "| what | median | half of all | samples |\n|---|---|---|---|\n".to_owned();
        for name in &self.names {
            let Some(figures) = self.all.get_mut(name) else { continue };
            figures.sort_unstable_by(f64::total_cmp);
            let at = |quarter: usize| figures[(figures.len() - 1) * quarter / 4];
            let (low, median, high, samples) = (at(1), at(2), at(3), figures.len());
            table += &format!("| {name} | {median:.1} | {low:.1} to {high:.1} | {samples} |\n");
        }
        let Samples { discarded, elsewhere, .. } = self;
        table + &format!("\n{discarded} samples discarded, {elsewhere} taken elsewhere\n")
    }
}

/// Measures here, on the first two CPUs of this process, while they are as near each other as this
/// machine's.
fn native(
    mechanisms: &[Mechanism],
    rounds: (usize, Length),
    near: &Spec,
) -> Result<String, Box<dyn Error>> {
    let allowed = probe().allowed?;
    let cpus: Vec<CpuId> = allowed.iter().take(2).collect();
    if cpus.len() < 2 {
        return Err("this takes two CPUs, and this process may use one".into());
    }
    let (class, _) = nearest(near).ok_or(NO_PAIR)?;
    let expected = near.costs().of(class) as f64 / 1000.0;
    Ok(measured(mechanisms, rounds, &cpus, &|| is_near(&cpus, expected)).table())
}

/// Measures what one thread does.
fn native_alone() -> Result<String, Box<dyn Error>> {
    let allowed = probe().allowed?;
    let cpus: Vec<CpuId> = allowed.iter().take(1).collect();
    Ok(measured(&alone::<Native>(), STRUCTURES, &cpus, &|| true).table())
}

/// Samples of everything in turns. One that other load disturbed, or before or after which the CPUs
/// are not in place, does not count, and is taken again.
fn measured(
    mechanisms: &[Mechanism],
    (rounds, length): (usize, Length),
    cpus: &[CpuId],
    in_place: &dyn Fn() -> bool,
) -> Samples {
    let mut samples = Samples::default();
    for _ in 0..rounds {
        for mechanism in mechanisms {
            for _ in 0..ATTEMPTS {
                let before = in_place();
                let sample = mechanism(cpus, length);
                if !before || !in_place() {
                    samples.elsewhere += 1;
                } else if samples.add(sample) {
                    break;
                }
            }
        }
    }
    samples
}

/// The same on the nearest two cores of a machine, with several seeds.
fn simulated(
    spec: &Spec,
    overlap: Overlap,
    mechanisms: fn() -> Vec<Mechanism>,
) -> Result<String, Box<dyn Error>> {
    let (_, cpus) = nearest(spec).ok_or(NO_PAIR)?;
    let mut samples = Samples::default();
    for seed in 0..SEEDS {
        for mechanism in mechanisms() {
            let machine = Machine::new(spec.clone()).seed(seed).overlap(overlap);
            samples.add(machine.run(move || mechanism(&cpus, SIMULATED))?.value);
        }
    }
    Ok(samples.table())
}

/// How many threads, of those that the machine has cores for.
const THREADS: [usize; 7] = [2, 4, 8, 16, 48, 96, 192];

/// Operations of a thread where there are many, and of all threads at least.
const OF_MANY: (u64, u64) = (100, 4_000);

/// More than a structure takes whose threads get on.
const MOST_STEPS: u64 = 300_000_000;

/// The five structures, used by more and more threads: nanoseconds for each thread's operation.
fn many(spec: &Spec) -> Result<String, Box<dyn Error>> {
    let mut cores = BTreeMap::new();
    for cpu in spec.topology().cpus() {
        cores.entry(cpu.core).or_insert(cpu.id);
    }
    let cores: Vec<_> = cores.into_values().collect();
    let mut table = "| structure | threads | median | lowest to highest of the seeds |\n\
                     |---|---|---|---|\n"
        .to_owned();
    for it in structures::of_many() {
        for threads in THREADS.into_iter().filter(|&threads| threads <= cores.len()) {
            let mut figures = Vec::new();
            for seed in 0..SEEDS_OF_MANY {
                let cpus = cores[..threads].to_vec();
                let machine = Machine::new(spec.clone()).seed(seed).step_limit(MOST_STEPS);
                let length = Length(OF_MANY.0.max(OF_MANY.1 / threads as u64));
                let Ok(run) = machine.run(move || it.sample::<Sim>(&cpus, length)) else { break };
                figures.extend(run.value.0.iter().map(|(_, ns)| *ns));
            }
            let name = it.name();
            if figures.len() < SEEDS_OF_MANY as usize {
                table += &format!("| {name} | {threads} | no end within {MOST_STEPS} steps | |\n");
                continue;
            }
            figures.sort_unstable_by(f64::total_cmp);
            let (low, high) = (figures[0], figures[figures.len() - 1]);
            let median = figures[figures.len() / 2];
            table += &format!("| {name} | {threads} | {median:.0} | {low:.0} to {high:.0} |\n");
        }
    }
    Ok(table)
}
