//! The verb `measure`: what things cost on this machine, as a machine file.
//!
//! | module | holds |
//! |---|---|
//! | [`quantity`] | what is measured: a program for each |
//! | [`memory`] | ranges of memory that they look at |
//! | [`sample`] | one sample: threads on CPUs of their own |
//! | [`matrix`] | ping-pongs between all pairs, and their map |
//! | [`file`] | the machine file |
//!
//! Samples of all quantities are taken in turns, so that a slow spell of the machine hits all
//! alike; a disturbed one is discarded, counted and taken again. A figure is the middle sample. If
//! too few samples are calm, it is the middle one of the least disturbed samples: it is marked, and
//! does not get into a machine file.

pub(crate) mod file;
pub(crate) mod matrix;
mod memory;
mod quantity;
pub(crate) mod sample;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;
use coreline_sim::{Class, Spec};
use coreline_topology::{CpuId, Shape, Topology};
use coreline_world::native::{Probe, probe};
use serde::Serialize;

use crate::disturbance::{Kept, Waits, keep};
use crate::error::Error;
use crate::listing::Listing;
use crate::output::Target;
use crate::progress::progress;
use crate::provenance::{processor, today};
use crate::{text, world};
use file::{File, Origin, name};
use matrix::Pair;
use quantity::{Quantity, Use};
use sample::Part;

/// How thoroughly to measure, and where to write the result.
#[derive(Debug, Args)]
pub(crate) struct Choice {
    /// Write a machine file; then `--world FILE` simulates this machine
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The machine's name in that file
    #[arg(long, default_value = "this-machine", value_name = "NAME", value_parser = name)]
    name: String,
    /// The machine that supplies the costs that cannot be measured: a preset's name, or a machine
    /// file
    #[arg(
        long,
        default_value = "epyc-9654-2s",
        value_name = "NAME|FILE",
        value_parser = world::specs(),
        hide_possible_values = true
    )]
    like: Spec,
    /// Take few samples; they show that the command works, but do not quote their figures
    #[arg(long)]
    quick: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The measurement of a quantity. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    /// Half of the samples lie between these.
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) samples: usize,
    pub(crate) discarded: u32,
    /// Whether the samples are disturbed, as there were too few others.
    pub(crate) disturbed: bool,
}

impl Figure {
    /// `None` of no samples.
    fn of(kept: Kept<f64>) -> Option<Figure> {
        let Kept { samples: mut ns, are_disturbed: disturbed, discarded } = kept;
        ns.sort_unstable_by(f64::total_cmp);
        let last = ns.len().checked_sub(1)?;
        let at = |share: usize| (ns[last * share / 4] * 1000.0).round() / 1000.0;
        let [low, median, high] = [1, 2, 3].map(at);
        Some(Figure { median, low, high, samples: ns.len(), discarded, disturbed })
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    name: &'static str,
    what: &'static str,
    /// The cost of the machine file that it gives, alone or with another quantity.
    #[serde(serialize_with = "cost_name")]
    used: Use,
    ns: Option<Figure>,
    /// Why there is no figure.
    why: Option<String>,
    /// The cost on the machine that supplies the other costs.
    like: Option<f64>,
}

fn cost_name<S: serde::Serializer>(used: &Use, to: S) -> Result<S::Ok, S::Error> {
    used.cost().serialize(to)
}

impl Row {
    /// The figure, if it was not computed from disturbed samples.
    pub(super) fn calm(&self) -> Option<&Figure> {
        self.ns.as_ref().filter(|figure| !figure.disturbed)
    }
}

impl Use {
    fn cost(self) -> Option<&'static str> {
        match self {
            Use::Cost(name) | Use::Beyond(name, ..) => Some(name),
            Use::None => None,
        }
    }
}

/// The result. The schema is `coreline.measure/1`.
#[derive(Debug, Serialize)]
pub(crate) struct Measurement {
    schema: &'static str,
    /// The processor and the kernel.
    machine: String,
    quick: bool,
    /// The machine that gives what was not measured.
    like: String,
    /// How many costs of a machine file were measured, and how many there are.
    costs: [usize; 2],
    /// The path of the machine file; null if none was asked for.
    file: Option<PathBuf>,
    quantities: Vec<Row>,
    core_to_core: Vec<Pair>,
    #[serde(skip)]
    map: String,
}

/// How thoroughly to measure: rounds of samples, and how often a disturbed sample is taken again.
///
/// Four times the bytes of the largest last-level caches of 2026 is what memory takes; a quarter of
/// that is for the quick form.
struct Plan {
    rounds: usize,
    retries: u32,
    /// The bytes that loads from memory go to.
    bytes: usize,
}

const FULL: Plan = Plan { rounds: 21, retries: 6, bytes: 1 << 30 };
const QUICK: Plan = Plan { rounds: 5, retries: 1, bytes: 1 << 28 };

const MANY_PAIRS: usize = 100;

/// A quantity or pair under way.
struct Taken {
    cpus: Vec<CpuId>,
    part: Arc<Part>,
    every: usize,
    samples: Vec<(Waits, f64)>,
}

impl Taken {
    fn new(cpus: Vec<CpuId>, part: Arc<Part>, every: usize) -> Taken {
        Taken { cpus, part, every, samples: Vec::new() }
    }

    /// Takes a sample, again if it was disturbed: after a pause that doubles from 1 ms on, since
    /// most of what disturbs is over soon.
    fn sample(&mut self, retries: u32) -> Result<(), Error> {
        for disturbed in 0..=retries {
            let sample = sample::take(&self.cpus, &self.part).map_err(Error::Measure)?;
            self.samples.extend(sample);
            if sample.is_some_and(|(waits, _)| !waits.is_disturbed) {
                break;
            }
            thread::sleep(Duration::from_millis(1 << disturbed));
        }
        Ok(())
    }

    /// The figure, if one sample in each of this many rounds was wanted.
    fn figure(self, rounds: usize) -> Option<Figure> {
        Figure::of(keep(self.samples, rounds.div_ceil(self.every)))
    }
}

/// Measures, writes the machine file if one is asked for, and shows the result.
pub(crate) fn measure(choice: &Choice, out: &mut dyn Write) -> Result<(), Error> {
    let target = choice.out.as_deref().map(Target::new).transpose()?;
    let machine = probe();
    let shape = file::shape(&machine.topology);
    if choice.out.is_some() && shape.is_none() {
        return Err(Error::Uneven);
    }
    let (mut outcome, text) = run(choice, &machine, shape)?;
    if let Some((target, text)) = target.zip(text) {
        target.write(text.as_bytes())?;
        outcome.file = choice.out.clone();
    }
    if choice.json {
        serde_json::to_writer_pretty(&mut *out, &outcome).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        outcome.show(out)?;
    }
    Ok(out.flush()?)
}

/// This machine as one that can be simulated, by costs that are measured now. A cost that cannot be
/// measured is the same as in `like`.
///
/// # Errors
///
/// [`Error::Uneven`] if its parts are not alike; or if its CPUs are not known.
pub(crate) fn this_machine(like: &Spec, quick: bool) -> Result<Spec, Error> {
    let machine = probe();
    let name = "this-machine".to_owned();
    let choice = Choice { out: None, name: name.clone(), like: like.clone(), quick, json: false };
    let (_, text) = run(&choice, &machine, file::shape(&machine.topology))?;
    Spec::parse(&name, &text.ok_or(Error::Uneven)?).map_err(Error::MachineFile)
}

/// Whether a machine has as many parts as this one.
pub(crate) fn has_shape_of_this(spec: &Spec) -> bool {
    let here = file::shape(&probe().topology);
    here.is_some() && file::shape(spec.topology()) == here
}

/// The figures, and the text of the machine file if the machine has a shape.
fn run(
    choice: &Choice,
    machine: &Probe,
    shape: Option<Shape>,
) -> Result<(Measurement, Option<String>), Error> {
    let plan = if choice.quick { QUICK } else { FULL };
    let topology: &Topology = &machine.topology;
    let allowed = machine.allowed.as_ref().map_err(|why| Error::NoCpus(why.clone()))?;
    let cpus: Vec<_> = allowed.iter().collect();
    let (quantities, lacks) = quantity::all(machine, &cpus, plan.bytes);
    let players = matrix::players(topology, allowed);
    let mut pairs: Vec<[CpuId; 2]> = Vec::new();
    for (at, &cpu) in players.iter().enumerate() {
        pairs.extend(players[..at].iter().map(|&other| [other, cpu]));
    }
    // Of many pairs fewer samples each.
    let every = if pairs.len() > MANY_PAIRS { 3 } else { 1 };
    let of_pair = |pair: &[CpuId; 2]| Taken::new(pair.to_vec(), quantity::ping_pong(), every);
    let of_quantity = |it: &Quantity| Taken::new(it.cpus.clone(), Arc::clone(&it.part), it.every);
    let mut taken: Vec<Taken> =
        quantities.iter().map(of_quantity).chain(pairs.iter().map(of_pair)).collect();
    let bar = progress("samples", plan.rounds * taken.len());
    for round in 0..plan.rounds {
        for it in &mut taken {
            if round % it.every == 0 {
                it.sample(plan.retries)?;
            }
            bar.inc(1);
        }
    }
    bar.finish();
    let mut figures = taken.into_iter().map(|it| it.figure(plan.rounds));
    let like = |used: Use| {
        let cost = choice.like.sources().find(|(name, _)| Some(*name) == used.cost())?.1;
        Some(cost.value as f64 / 1000.0)
    };
    let mut rows = Vec::new();
    for Quantity { name, what, used, .. } in quantities {
        let ns = figures.next().flatten();
        let why = ns.is_none().then(|| "no sample gave a time".to_owned());
        rows.push(Row { name, what, used, ns, why, like: like(used) });
    }
    for (name, cost, why) in lacks {
        let (used, why) = (Use::Cost(cost), Some(why.to_owned()));
        rows.push(Row { name, what: "not measured", used, ns: None, why, like: like(used) });
    }
    let mut core_to_core = Vec::new();
    for (pair, ns) in pairs.into_iter().zip(figures) {
        let class = matrix::class(topology, pair).map(Class::name);
        core_to_core.extend(ns.map(|ns| Pair { cpus: pair.map(CpuId::get), class, ns }));
    }
    let transfers = transfers(&core_to_core);
    let map = matrix::map(topology, &players, &core_to_core, text::is_unicode());
    let day = today();
    let of = format!("{}, Linux {}", processor(), machine.kernel);
    let (like, name) = (&choice.like, &choice.name);
    let origin = Origin::Here { day: &day };
    let file = File { name, of: &of, origin, topology, rows: &rows, transfers: &transfers, like };
    let (costs, text) = (file.count(), shape.map(|shape| file.text(shape)));
    let outcome = Measurement {
        schema: "coreline.measure/1",
        machine: of,
        quick: choice.quick,
        like: like.name().to_owned(),
        costs,
        file: None,
        quantities: rows,
        core_to_core,
        map,
    };
    Ok((outcome, text))
}

/// The time of a transfer in each class that the machine has: the middle one of its pairs. Pairs
/// that were disturbed do not count, unless all of the class were.
fn transfers(pairs: &[Pair]) -> Vec<(Class, Figure)> {
    let of = |class: Class| {
        let of_class = pairs.iter().filter(|pair| pair.class == Some(class.name()));
        let mut figures: Vec<_> = of_class.map(|pair| pair.ns).collect();
        if figures.iter().any(|figure| !figure.disturbed) {
            figures.retain(|figure| !figure.disturbed);
        }
        figures.sort_unstable_by(|a, b| a.median.total_cmp(&b.median));
        let middle = *figures.get(figures.len() / 2)?;
        // The spread is that of pairs, where there are several.
        let (first, last) = (figures.first()?, figures.last()?);
        let [low, high] = [middle.low.min(first.median), middle.high.max(last.median)];
        Some((class, Figure { low, high, ..middle }))
    };
    Class::ALL.into_iter().filter_map(of).collect()
}

impl Measurement {
    fn show(&self, out: &mut dyn Write) -> Result<(), Error> {
        let [measured, all] = self.costs;
        let form = text::Form::plain();
        // A processor's name can be as long as its maker likes.
        write!(out, "{}", form.paragraph("", &self.machine))?;
        let quick = match (self.quick, cfg!(debug_assertions)) {
            (_, true) => "\nbut this program was built without optimisation: do not quote figures",
            (true, false) => "\nbut few samples were taken: do not quote figures",
            (false, false) => "",
        };
        writeln!(out, "{measured} of {all} costs of a machine file were measured here{quick}\n")?;
        if !self.core_to_core.is_empty() {
            writeln!(out, "core to core, one way, ns")?;
            writeln!(out, "{}", self.map)?;
        }
        let mut listing = Listing::new(&[
            ("quantity", false),
            ("median", true),
            ("middle half (IQR)", true),
            ("kept", true),
            ("cost", false),
            (&self.like, true),
        ]);
        for row in &self.quantities {
            let like = row.like.map(|ns| shown(ns, unit(ns))).unwrap_or_default();
            let [ns, spread, kept] = match &row.ns {
                Some(Figure { median, low, high, samples, discarded, disturbed }) => {
                    let unit = unit(*median);
                    let mark = if *disturbed { "~" } else { "" };
                    let [low, high] = [low, high].map(|ns| shown(*ns, (unit.0, "")));
                    let kept = format!("{samples}/{}", samples + *discarded as usize);
                    [mark.to_owned() + &shown(*median, unit), format!("{low}- {high}"), kept]
                }
                None => ["-".to_owned(), String::new(), String::new()],
            };
            let cost = row.used.cost().unwrap_or_default().to_owned();
            listing.row([row.name.to_owned(), ns, spread, kept, cost, like]);
        }
        write!(out, "{}", listing.text(form))?;
        for row in &self.quantities {
            if let Use::Beyond(cost, times, other) = row.used {
                writeln!(out, "{cost}: {} less {times} {other}", row.name)?;
            }
        }
        for Row { name, why, .. } in self.quantities.iter().filter(|row| row.ns.is_none()) {
            let why = format!("{name} was not measured: {}", why.as_deref().unwrap_or_default());
            write!(out, "{}", form.paragraph("", &why))?;
        }
        if let Some(warning) = self.warning() {
            write!(out, "{}", form.paragraph("", &warning))?;
        }
        match &self.file {
            Some(path) => writeln!(
                out,
                "\n{} has these figures, and takes all others from {}; to run with it:\n  \
                 coreline run intermittent --world {}",
                path.display(),
                self.like,
                path.display()
            )?,
            None => writeln!(out, "\nfor a machine file: coreline measure --out mine.toml")?,
        }
        Ok(())
    }
}

impl Measurement {
    /// The warning that figures come from disturbed samples, and what to do.
    fn warning(&self) -> Option<String> {
        let is_disturbed = |ns: &Figure| ns.disturbed;
        let rows = self.quantities.iter().filter(|row| row.ns.as_ref().is_some_and(is_disturbed));
        let mut names: Vec<String> = rows.map(|row| row.name.to_owned()).collect();
        let pairs = self.core_to_core.iter().filter(|pair| pair.ns.disturbed).count();
        if pairs > 0 {
            names.push(format!("core to core ({pairs} of {} pairs)", self.core_to_core.len()));
        }
        (!names.is_empty()).then(|| {
            format!(
                "other programs used these CPUs while this was measured: {}. The figures, marked \
                 ~, are of the least disturbed samples. A machine file leaves them out. Retry on \
                 an idle machine, or choose idle CPUs: taskset -c CPUS coreline measure",
                names.join(", ")
            )
        })
    }
}

/// A unit of time that suits a figure: how many nanoseconds it has, and its name.
fn unit(ns: f64) -> (f64, &'static str) {
    match ns {
        1e6.. => (1e6, "ms"),
        1e4.. => (1e3, "us"),
        _ => (1.0, "ns"),
    }
}

/// With three digits.
fn shown(ns: f64, (unit, name): (f64, &str)) -> String {
    match ns / unit {
        value @ 100.0.. => format!("{value:.0} {name}"),
        value @ 10.0.. => format!("{value:.1} {name}"),
        value => format!("{value:.2} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_middle_sample_and_its_spread_the_middle_half() {
        let of = |samples| Figure::of(Kept { samples, are_disturbed: false, discarded: 2 });
        let figure = of(vec![5.0, 1.0, 900.0, 3.0, 4.0]).unwrap();
        assert_eq!((figure.low, figure.median, figure.high), (3.0, 4.0, 5.0));
        assert_eq!((figure.samples, figure.discarded, figure.disturbed), (5, 2, false));
        assert!(of(Vec::new()).is_none());
    }

    #[test]
    fn a_sample_whose_other_thread_waited_does_not_count() {
        let of = |waited: &[u64]| {
            let mut taken = Taken::new(Vec::new(), quantity::ping_pong(), 1);
            // It took longer, as the spawned thread waited.
            let sample = |&waited| (Waits::of(Some(waited), 10_000_000), 20_000.0 + waited as f64);
            taken.samples = waited.iter().map(sample).collect();
            taken.figure(5).unwrap()
        };
        let late = 104_000_000;
        let some = of(&[late, 0, late, 0, 0, late, 0, 0]);
        assert_eq!((some.median, some.high, some.disturbed), (20_000.0, 20_000.0, false));
        assert_eq!((some.samples, some.discarded), (5, 3));
        let all = of(&[late, late + 2, late + 1, late, late, late, late]);
        assert!(all.disturbed && all.high < 104_020_001.0, "{all:?}");
        assert_eq!((all.samples, all.discarded), (5, 2));
    }

    #[test]
    fn a_disturbed_figure_is_marked_and_a_warning_names_it() {
        let figure = |disturbed| {
            let (samples, discarded) = (5, 5);
            Figure { median: 104e6, low: 99e6, high: 110e6, samples, discarded, disturbed }
        };
        let row = |name, disturbed| Row {
            name,
            what: "",
            used: Use::None,
            ns: Some(figure(disturbed)),
            why: None,
            like: None,
        };
        let mut outcome = Measurement {
            schema: "coreline.measure/1",
            machine: "a processor".to_owned(),
            quick: true,
            like: "host-2c".to_owned(),
            costs: [0, 1],
            file: None,
            quantities: vec![row("hit", false), row("spawn", true)],
            core_to_core: vec![Pair { cpus: [0, 1], class: None, ns: figure(true) }],
            map: String::new(),
        };
        let shown = |outcome: &Measurement| {
            let mut text = Vec::new();
            outcome.show(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let text = shown(&outcome).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("hit 104 ms") && text.contains("spawn ~104 ms"), "{text}");
        assert!(text.contains("measured: spawn, core to core (1 of 1 pairs). The"), "{text}");
        outcome.quantities.truncate(1);
        outcome.core_to_core.clear();
        assert!(outcome.warning().is_none() && !shown(&outcome).contains('~'));
    }

    #[test]
    fn a_class_is_its_middle_pair_and_the_spread_of_all() {
        let pair = |class, median| {
            let (low, high, disturbed) = (median - 1.0, median + 1.0, false);
            let ns = Figure { median, low, high, samples: 7, discarded: 0, disturbed };
            Pair { cpus: [0, 1], class, ns }
        };
        let near = Some("same_cache");
        let pairs = [pair(near, 30.0), pair(None, 5.0), pair(near, 20.0), pair(near, 26.0)];
        let [(class, figure)] = transfers(&pairs)[..] else { panic!() };
        assert_eq!(class, Class::SameCache);
        assert_eq!((figure.low, figure.median, figure.high), (20.0, 26.0, 30.0));
        // A disturbed pair counts if there is no other.
        let disturbed = |median| {
            let pair = pair(near, median);
            Pair { ns: Figure { disturbed: true, ..pair.ns }, ..pair }
        };
        let mixed = transfers(&[disturbed(900.0), pair(near, 20.0), disturbed(901.0)]);
        assert_eq!((mixed[0].1.median, mixed[0].1.disturbed), (20.0, false));
        assert!(transfers(&[disturbed(900.0)])[0].1.disturbed);
    }

    #[test]
    fn a_processor_with_a_long_name_is_wrapped() {
        let outcome = Measurement {
            schema: "coreline.measure/1",
            machine: "Processor of a very long name ".repeat(9),
            quick: true,
            like: "host-2c".to_owned(),
            costs: [0, 1],
            file: None,
            quantities: Vec::new(),
            core_to_core: Vec::new(),
            map: String::new(),
        };
        let mut text = Vec::new();
        outcome.show(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(text.matches("long name").count(), 9);
    }

    #[test]
    fn a_name_is_one_word() {
        assert!(name("my-machine").is_ok());
        assert!(name("my machine").is_err() && name("").is_err());
    }
}
