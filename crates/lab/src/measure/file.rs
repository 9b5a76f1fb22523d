//! The machine file that a measurement makes.

use std::fmt::Write as _;

use coreline_sim::{Class, Costs, Spec};
use coreline_topology::{Shape, Topology};

use super::quantity::Use;
use super::{Figure, Row};

/// Quartiles further from the median than this make a cost uncertain: claims must hold while it
/// moves by 30 %.
const MOST_SPREAD: f64 = 0.1;
/// A machine file says at least this many nanoseconds.
const LEAST_NS: f64 = 0.001;

/// The words in the source of a cost that could not be measured because of a disturbance.
const DISTURBED: &str = "; not measured on this machine, because other programs used its CPUs";

/// The inputs of a file.
pub(crate) struct File<'a> {
    pub(crate) name: &'a str,
    /// The processor and the kernel, or the matrix.
    pub(crate) of: &'a str,
    pub(crate) origin: Origin<'a>,
    /// The machine, of which the process may use a part.
    pub(crate) topology: &'a Topology,
    pub(crate) rows: &'a [Row],
    /// The times of transfers, for the classes that were measured.
    pub(crate) transfers: &'a [(Class, Figure)],
    /// The machine that gives what was not measured.
    pub(crate) like: &'a Spec,
}

/// The origin of the measured figures.
pub(crate) enum Origin<'a> {
    /// This machine, on a day.
    Here { day: &'a str },
    /// A matrix of core-to-core latencies, and its CPU for each of the file's.
    Matrix { file: &'a str, cpus: &'a [usize] },
}

impl Origin<'_> {
    /// The comment at the top of the file: what made it, and of what.
    fn made(&self) -> String {
        match self {
            Origin::Here { day } => format!("# Made by `coreline measure` on {day}."),
            Origin::Matrix { cpus, .. } => {
                let mut made =
                    "# Made by `coreline machines import`. The CPUs of the matrix, in the order\n\
                     # of the simulated ones:\n"
                        .to_owned();
                let numbers: Vec<_> = cpus.iter().map(usize::to_string).collect();
                for line in numbers.chunks(16) {
                    let _ = writeln!(made, "#   {}", line.join(", "));
                }
                made.trim_end().to_owned()
            }
        }
    }

    fn source(&self, figure: &Figure, how: &str) -> String {
        let Figure { low, high, samples, .. } = figure;
        let half = format!("middle half from {low:.2} to {high:.2} ns");
        match self {
            Origin::Here { day } => format!(
                "measured on this machine, {day}: coreline measure, {how}; median of {samples} \
                 samples, {half}"
            ),
            Origin::Matrix { file, .. } => {
                format!("measured elsewhere: {file}, {how}; median of {samples} pairs, {half}")
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cost {
    value: f64,
    source: String,
    uncertain: bool,
}

/// The shape of a machine, if its parts are all alike.
pub(super) fn shape(topology: &Topology) -> Option<Shape> {
    let [sockets, nodes, caches, cores, cpus] = [
        topology.socket_count(),
        topology.node_count(),
        topology.cache_count(),
        topology.core_count(),
        topology.cpu_count(),
    ]
    .map(|count| u32::try_from(count).unwrap_or(0));
    let each = |parts: u32, wholes: u32| {
        (wholes > 0 && parts.is_multiple_of(wholes)).then(|| parts / wholes)
    };
    let shape = Shape {
        sockets,
        nodes_per_socket: each(nodes, sockets)?,
        caches_per_node: each(caches, nodes)?,
        cores_per_cache: each(cores, caches)?,
        threads_per_core: each(cpus, cores)?,
    };
    // The counts fit; do the parts?
    let even = topology.cpus().all(|cpu| {
        topology.cpus_of_cache(cpu.cache).len() as u32
            == shape.cores_per_cache * shape.threads_per_core
            && topology.cpus_of_node(cpu.node).len() as u32 == cpus / nodes
    });
    even.then_some(shape)
}

impl File<'_> {
    fn measured(&self, value: f64, figure: &Figure, how: &str) -> Cost {
        let Figure { median, low, high, .. } = *figure;
        let source = self.origin.source(figure, how);
        let uncertain = (high - median).max(median - low) > median * MOST_SPREAD;
        Cost { value, source, uncertain }
    }

    /// The measured figure of a cost, if the cost was measured without a disturbance.
    fn cost(&self, cost: &str) -> Option<Cost> {
        for row in self.rows {
            let Some(figure) = row.calm() else { continue };
            let how = row.name;
            match row.used {
                Use::Cost(name) if name == cost => {
                    return Some(self.measured(figure.median, figure, how));
                }
                Use::Beyond(name, times, other) if name == cost => {
                    let less = self.rows.iter().find(|row| row.name == other)?.calm()?;
                    let value = (figure.median - times * less.median).max(0.0);
                    let how = match times {
                        1.0 => format!("{how} less {other}"),
                        times => format!("{how} less {times} {other}"),
                    };
                    return Some(self.measured(value, figure, &how));
                }
                _ => {}
            }
        }
        self.transfer(cost)
    }

    /// Whether a cost is left out that was measured, as the figures for it are disturbed.
    fn is_disturbed(&self, cost: &str) -> bool {
        let has = |name: &str| {
            let mut rows = self.rows.iter().filter(|row| row.name == name);
            rows.any(|row| row.ns.is_some() && row.calm().is_none())
        };
        let of_row = |row: &Row| match row.used {
            Use::Cost(name) if name == cost => has(row.name),
            Use::Beyond(name, _, other) if name == cost => has(row.name) || has(other),
            _ => false,
        };
        let of_class = |(class, figure): &(Class, Figure)| class.name() == cost && figure.disturbed;
        self.rows.iter().any(of_row) || self.transfers.iter().any(of_class)
    }

    /// A transfer: what was measured of its class; or of the nearest class before it, where the
    /// machine has no two cores that are so far apart. `None` if it has, and they were not
    /// measured.
    fn transfer(&self, cost: &str) -> Option<Cost> {
        let class = Class::ALL.into_iter().find(|class| class.name() == cost)?;
        let calm = || self.transfers.iter().filter(|(_, figure)| !figure.disturbed);
        if let Some((_, figure)) = calm().find(|it| it.0 == class) {
            return Some(self.measured(figure.median, figure, "ping-pong, one way"));
        }
        if class.pair(self.topology).is_some() {
            return None;
        }
        // What hardware threads of one core take says nothing of cores, and no core anything of
        // them. A machine with several caches of one core each has no nearest class.
        let mut cores = calm().filter(|it| it.0 != Class::SameCore);
        let first = cores.clone().next().filter(|_| class != Class::SameCore)?;
        let (found, figure) = cores.rfind(|it| it.0 < class).unwrap_or(first);
        let source = format!("does not occur here: copied from {}", found.name());
        Some(Cost { value: figure.median, source, uncertain: false })
    }

    /// The file, which [`Spec::parse`] reads.
    pub(crate) fn text(&self, shape: Shape) -> String {
        let File { name, of, origin, like, .. } = self;
        let mut text = format!(
            "# {of}.\n\
             {}\n\
             # Measured figures say so. All others, and their sources,\n\
             # are those of {}.\n\
             name = {}\n\
             summary = {}\n\
             {}\n\
             [topology]\n\
             sockets = {}\n\
             nodes_per_socket = {}\n\
             caches_per_node = {}\n\
             cores_per_cache = {}\n\
             threads_per_core = {}\n",
            origin.made(),
            like.name(),
            quoted(name),
            quoted(of),
            if like.is_weakly_ordered() { "weakly_ordered = true\n" } else { "" },
            shape.sockets,
            shape.nodes_per_socket,
            shape.caches_per_node,
            shape.cores_per_cache,
            shape.threads_per_core,
        );
        // What is further away takes no less time, though it may have been measured so, or be a
        // preset's.
        let mut nearer: [Option<(&str, f64)>; 2] = [None; 2];
        for &cost in Costs::NAMES {
            let of_like = like.sources().find(|(name, _)| *name == cost).map(|(_, cost)| cost);
            let is_count = of_like.is_some_and(|cost| cost.is_count);
            let is_transfer = Class::ALL.iter().any(|class| class.name() == cost);
            let key = match (is_transfer, is_count) {
                (true, _) => "ping_pong_ns",
                (false, true) => "count",
                (false, false) => "ns",
            };
            let cost_of_like = || {
                let why = if self.is_disturbed(cost) { DISTURBED } else { "" };
                of_like.map(|of_like| Cost {
                    value: of_like.value as f64 / if is_count { 1.0 } else { 1000.0 },
                    source: format!("as {}: {}{why}", like.name(), of_like.source),
                    uncertain: of_like.uncertain,
                })
            };
            let Some(Cost { mut value, mut source, uncertain }) =
                self.cost(cost).or_else(cost_of_like)
            else {
                // A cost that a file may leave out.
                continue;
            };
            if is_transfer || cost.starts_with("memory_") {
                let near = &mut nearer[usize::from(is_transfer)];
                if let Some((name, least)) = near.filter(|(_, least)| value < *least) {
                    source += &format!("; raised to {name}, which is nearer");
                    value = least;
                }
                *near = Some((cost, value));
            }
            let value = if is_count {
                format!("{value:.0}")
            } else {
                format!("{:?}", ((value * 1000.0).round() / 1000.0).max(LEAST_NS))
            };
            let _ =
                write!(text, "\n[cost.{cost}]\n{key} = {value}\nsource = {}\n", quoted(&source));
            if uncertain {
                text += "uncertain = true\n";
            }
        }
        text
    }

    /// How many of a machine's costs were measured, and how many there are.
    pub(super) fn count(&self) -> [usize; 2] {
        let has = |cost: &&&str| {
            **cost != Class::SameCore.name() || Class::SameCore.pair(self.topology).is_some()
        };
        let measured = Costs::NAMES.iter().filter(|cost| self.cost(cost).is_some()).count();
        [measured, Costs::NAMES.iter().filter(has).count()]
    }
}

/// For clap: reads a machine's name.
pub(crate) fn name(text: &str) -> Result<String, &'static str> {
    let is_word = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    if is_word { Ok(text.to_owned()) } else { Err("a replay line needs one word") }
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(median: f64) -> Figure {
        let (low, high) = (median * 0.95, median * 1.05);
        Figure { median, low, high, samples: 21, discarded: 0, disturbed: false }
    }

    fn row(name: &'static str, used: Use, ns: f64) -> Row {
        Row { name, what: "", used, ns: Some(figure(ns)), why: None, like: None }
    }

    fn text_of(rows: &[Row], transfers: &[(Class, Figure)]) -> String {
        text_on("host-2c", rows, transfers)
    }

    /// The file of a machine with the tree of `like`.
    fn text_on(like: &str, rows: &[Row], transfers: &[(Class, Figure)]) -> String {
        let like = Spec::preset(like).unwrap();
        let (of, day) = ("a \"good\" processor", "2026-11-23");
        let topology = like.topology();
        let origin = Origin::Here { day };
        let file = File { name: "mine", of, origin, topology, rows, transfers, like: &like };
        file.text(shape(topology).unwrap())
    }

    #[test]
    fn what_a_process_on_a_part_of_the_machine_could_not_measure_is_not_said_to_be_missing() {
        let text = text_on("epyc-9654-2s", &[], &[(Class::SameCache, figure(30.0))]);
        let spec = Spec::parse("mine", &text).unwrap();
        let source =
            |name| spec.sources().find(|(cost, _)| *cost == name).unwrap().1.source.clone();
        assert!(source("same_cache").contains("ping-pong"), "{}", source("same_cache"));
        assert!(source("other_socket").starts_with("as epyc-9654-2s: "), "{text}");
        let raised =
            "does not occur here: copied from same_cache; raised to same_node, which is nearer";
        assert_eq!(source("same_socket"), raised);
        assert_eq!(spec.costs().same_socket, spec.costs().same_node);
    }

    #[test]
    fn siblings_have_a_cost_where_they_were_measured() {
        let transfers = [(Class::SameCore, figure(12.0)), (Class::SameCache, figure(30.0))];
        let of = |transfers| Spec::parse("mine", &text_on("epyc-9654-2s", &[], transfers)).unwrap();
        assert_eq!(of(&transfers).costs().same_core, 12_000);
        assert_eq!(of(&transfers[1..]).costs().same_core, 0);
        assert_eq!(of(&transfers[..1]).costs().same_cache, of(&[]).costs().same_cache);
    }

    #[test]
    fn a_file_has_what_was_measured_and_the_rest_of_the_preset() {
        let rows = [
            row("hit", Use::Cost("private_hit"), 1.5),
            row("addition", Use::Beyond("locked", 1.0, "hit"), 4.0),
            row("page", Use::None, 700.0),
        ];
        let spec =
            Spec::parse("mine", &text_of(&rows, &[(Class::SameCache, figure(30.0))])).unwrap();
        let costs = spec.costs();
        assert_eq!((spec.name(), spec.summary()), ("mine", "a \"good\" processor"));
        assert_eq!((costs.private_hit, costs.locked), (1500, 2500));
        assert_eq!((costs.same_cache, costs.other_socket), (30_000, 30_000));
        let like = Spec::preset("host-2c").unwrap();
        assert_eq!(costs.pause, like.costs().pause);
        let source =
            |name| spec.sources().find(|(cost, _)| *cost == name).unwrap().1.source.clone();
        assert!(source("locked").contains("addition less hit"), "{}", source("locked"));
        assert!(source("pause").starts_with("as host-2c: "), "{}", source("pause"));
        assert_eq!(source("same_node"), "does not occur here: copied from same_cache");
    }

    #[test]
    fn a_disturbed_quantity_is_not_written_as_measured() {
        let disturbed = |ns| Figure { disturbed: true, ..figure(ns) };
        let like = Spec::preset("host-2c").unwrap();
        let rows = |spawn| {
            let hit = row("hit", Use::Cost("private_hit"), 1.5);
            let syscall = Row { ns: Some(disturbed(300.0)), ..row("syscall", Use::None, 0.0) };
            let wake = row("wake", Use::Beyond("wake", 1.0, "syscall"), 5000.0);
            [hit, syscall, wake, Row { ns: Some(spawn), ..row("spawn", Use::Cost("spawn"), 0.0) }]
        };
        let text = text_of(&rows(disturbed(104e6)), &[(Class::SameCache, disturbed(900.0))]);
        let spec = Spec::parse("mine", &text).unwrap();
        let (costs, of_like) = (spec.costs(), like.costs());
        assert_eq!(
            (costs.private_hit, costs.spawn, costs.wake, costs.same_cache),
            (1500, of_like.spawn, of_like.wake, of_like.same_cache)
        );
        for (name, cost) in spec.sources() {
            let is_disturbed = ["spawn", "wake", "same_cache"].contains(&name);
            assert_eq!(cost.source.ends_with(DISTURBED), is_disturbed, "{name}: {}", cost.source);
            let is_measured = cost.source.starts_with("measured on this machine");
            assert_eq!(is_measured, name == "private_hit", "{name}: {}", cost.source);
        }
        let calm = Spec::parse("mine", &text_of(&rows(figure(20_000.0)), &[])).unwrap();
        assert_eq!(calm.costs().spawn, 20_000_000);
    }

    #[test]
    fn a_wide_spread_is_an_uncertain_cost() {
        let mut wide = row("hit", Use::Cost("private_hit"), 2.0);
        wide.ns = Some(Figure { high: 2.3, ..figure(2.0) });
        for (row, uncertain) in [(wide, true), (row("hit", Use::Cost("private_hit"), 2.0), false)] {
            let spec = Spec::parse("mine", &text_of(&[row], &[])).unwrap();
            assert_eq!(spec.sources().next().unwrap().1.uncertain, uncertain);
        }
    }

    #[test]
    fn a_part_that_takes_no_time_is_not_less_than_nothing() {
        let rows = [
            row("hit", Use::Cost("private_hit"), 2.0),
            row("addition", Use::Beyond("locked", 1.0, "hit"), 1.9),
        ];
        assert_eq!(Spec::parse("mine", &text_of(&rows, &[])).unwrap().costs().locked, 1);
    }

    #[test]
    fn every_preset_has_a_shape_and_an_odd_machine_has_none() {
        for name in coreline_sim::presets() {
            let spec = Spec::preset(name).unwrap();
            let again = Topology::uniform(shape(spec.topology()).unwrap()).unwrap();
            assert_eq!(again.cpu_count(), spec.topology().cpu_count(), "{name}");
        }
    }
}
