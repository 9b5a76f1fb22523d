//! This machine's costs, as a machine that can be simulated.

use coreline_sim::{Class, Spec};

use super::core_to_core::Basis;
use crate::error::Error;
use crate::measure;
use crate::provenance::processor;

/// The costs that each experiment consists of.
const OF_EACH: [&str; 3] = ["private_hit", "locked", "pause"];

/// This machine, by costs that are measured now; those that cannot be measured are as in another.
///
/// # Errors
///
/// If the machine's parts are not alike, or its CPUs are not known.
pub(super) fn measured(like: &Spec, quick: bool) -> Result<Spec, Error> {
    measure::this_machine(like, quick)
}

/// The machine of a file, if `coreline measure` made the file of this one: it names the processor,
/// and has as many parts. A preset is of no machine in particular.
pub(super) fn of_file(spec: &Spec, asked: &str) -> Option<Spec> {
    let is_file = asked != spec.name();
    let is_here = spec.summary().starts_with(&format!("{}, Linux ", processor()));
    (is_file && is_here && measure::has_shape_of_this(spec)).then(|| spec.clone())
}

/// The cost that an experiment of this many threads needs and that was not measured, if any.
pub(super) fn lacks(spec: &Spec, threads: usize) -> Option<&'static str> {
    let transfer = (threads > 1).then_some(Class::SameCache.name());
    let is_measured = |name: &&str| {
        let mut costs = spec.sources().filter(|(cost, _)| cost == name);
        costs.any(|(_, cost)| Basis::of(&cost.source) == Basis::Measured)
    };
    OF_EACH.into_iter().chain(transfer).find(|name| !is_measured(name))
}

/// The ping-pong that the machine is calibrated by, in nanoseconds.
pub(super) fn ping_pong_ns(spec: &Spec) -> f64 {
    let mut costs = spec.sources().filter(|(name, _)| *name == Class::SameCache.name());
    costs.next().map_or(0.0, |(_, cost)| cost.value as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = include_str!("../../../sim/machines/host-2c.toml");

    fn spec(text: &str) -> Spec {
        Spec::parse("mine.toml", &text.replace("\"host-2c\"", "\"mine\"")).unwrap()
    }

    /// The file with another summary.
    fn summed_up(summary: &str) -> Spec {
        let is_it = |line: &str| line.starts_with("summary");
        let lines = HOST.lines().map(|line| match line {
            line if is_it(line) => format!("summary = {summary:?}"),
            line => line.to_owned(),
        });
        spec(&lines.collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn a_file_is_of_this_machine_if_it_names_the_processor_and_has_its_shape() {
        let here = summed_up(&format!("{}, Linux 6.18", processor()));
        assert_eq!(of_file(&here, "mine.toml").is_some(), measure::has_shape_of_this(&here));
        assert!(of_file(&here, "mine").is_none(), "a name is that of a preset");
        for foreign in ["virtual machine with 2 CPUs", "Another Processor, Linux 6.18"] {
            assert!(of_file(&summed_up(foreign), "mine.toml").is_none(), "{foreign}");
        }
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        // A preset's figures are measured, taken over and from memory.
        let of = |from: &str, to: &str| {
            assert!(HOST.contains(from), "{from}");
            spec(&HOST.replacen(from, to, 1))
        };
        let all = HOST.lines().map(|line| match line.strip_prefix("source = \"") {
            Some(source) => format!("source = \"measured on this machine, {source}"),
            None => line.to_owned(),
        });
        let all = spec(&all.collect::<Vec<_>>().join("\n"));
        assert_eq!((lacks(&all, 1), lacks(&all, 2)), (None, None));
        let hit = of(
            "[cost.private_hit]\nns = 1.1\nsource = \"",
            "[cost.private_hit]\nns = 1.1\nsource = \"as another: ",
        );
        assert_eq!(lacks(&hit, 1), Some("private_hit"));
        assert!(ping_pong_ns(&all) > 1.0);
    }
}
