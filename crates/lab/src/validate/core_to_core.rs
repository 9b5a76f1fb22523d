//! Core-to-core latencies of machine files beside the simulated ping-pongs that they calibrate.

use std::io::Write;

use coreline_scenarios::Error::Failed;
use coreline_sim::{Class, Machine, Spec, Transfer};
use coreline_topology::NodeId;
use serde::Serialize;

use crate::error::Error;
use crate::listing::Listing;
use crate::text::Form;

/// The basis of the figure of a machine file, by the words of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Basis {
    /// On a machine of this kind.
    Measured,
    /// The source names a commit or a page that anybody can read.
    Published,
    /// The figure comes from the file of another machine, or of another processor.
    TakenOver,
    FromMemory,
    Guess,
    /// The source says none of these.
    Other,
}

impl Basis {
    pub(crate) fn of(source: &str) -> Basis {
        let has = |words: &str| source.contains(words);
        let begins = |words: &str| source.starts_with(words);
        match () {
            // What is uncertain comes first: a guess may cite what it starts from.
            () if has("guess") || has("assumption") => Basis::Guess,
            () if has("from memory") => Basis::FromMemory,
            () if begins("as ") || begins("taken ") => Basis::TakenOver,
            () if begins("measured ") => Basis::Measured,
            () if has("commit ") || has("https://") => Basis::Published,
            () => Basis::Other,
        }
    }

    /// Whether no source that can be looked up states the figure.
    pub(crate) fn has_no_source(self) -> bool {
        matches!(self, Basis::Guess | Basis::FromMemory)
    }

    /// The source with this word before it, unless it begins with the word.
    fn before(self, source: &str) -> String {
        let word = self.word();
        if source.starts_with(word) { source.to_owned() } else { format!("{word}: {source}") }
    }

    fn word(self) -> &'static str {
        match self {
            Basis::Measured => "measured",
            Basis::Published => "published",
            Basis::TakenOver => "taken over",
            Basis::FromMemory => "from memory",
            Basis::Guess => "guess",
            Basis::Other => "other",
        }
    }
}

/// One class of distance of one machine, or one pair of its nodes, at one request share.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CoreToCore {
    pub(crate) machine: String,
    pub(crate) class: &'static str,
    /// Two nodes for which the machine file has a distance of their own.
    pub(crate) nodes: Option<[u32; 2]>,
    /// The figure of the machine file, which the simulated one is calibrated by.
    pub(crate) file_ns: f64,
    pub(crate) basis: Basis,
    pub(crate) request_percent: u32,
    /// The cost of one transfer, so that a ping-pong comes to the figure.
    pub(crate) transfer_ns: f64,
    pub(crate) simulated_ns: f64,
    pub(crate) reached: bool,
    pub(crate) source: String,
}

/// All classes that a machine has, at all request shares of the band.
pub(crate) fn of(spec: &Spec) -> Result<Vec<CoreToCore>, Error> {
    let source = |class: Class, nodes: Option<[NodeId; 2]>| {
        let of_class = spec.sources().find(|(cost, _)| *cost == class.name());
        let stated = spec.node_distances().iter().find(|it| Some(it.nodes) == nodes);
        let source = stated.map(|it| &it.source).or(of_class.map(|(_, cost)| &cost.source));
        source.cloned().unwrap_or_default()
    };
    let ns = |ps: u64| ps as f64 / 1000.0;
    let mut rows = Vec::new();
    for request_percent in Machine::REQUEST_BAND {
        let machine = Machine::new(spec.clone()).request_percent(request_percent);
        for transfer in machine.calibration().map_err(Failed)? {
            let source = source(transfer.class, transfer.nodes);
            let Transfer { class, nodes, published, raw, simulated, reached } = transfer;
            rows.push(CoreToCore {
                machine: spec.name().to_owned(),
                class: class.name(),
                nodes: nodes.map(|nodes| nodes.map(NodeId::get)),
                file_ns: ns(published),
                basis: Basis::of(&source),
                request_percent,
                transfer_ns: ns(raw),
                simulated_ns: ns(simulated),
                reached,
                source,
            });
        }
    }
    rows.sort_by_key(|row| (Class::ALL.iter().position(|it| it.name() == row.class), row.nodes));
    Ok(rows)
}

/// A line for each class of each machine, with the request shares side by side.
pub(crate) fn show(rows: &[CoreToCore], form: Form, out: &mut dyn Write) -> Result<(), Error> {
    let head = "core to core, one way, in ns: the machine file's figure, and the simulated \
                ping-pong that it calibrates at each request share";
    write!(out, "{}", form.paragraph("", head))?;
    let mut listing = Listing::new(&[
        ("class", false),
        ("in the file", true),
        ("simulated", true),
        ("transfer", true),
        ("source", false),
    ]);
    let is_same_machine = |a: &CoreToCore, b: &CoreToCore| a.machine == b.machine;
    for machine in rows.chunk_by(is_same_machine) {
        listing.line(0, machine[0].machine.clone());
        let what = |it: &CoreToCore| (it.class, it.nodes);
        for class in machine.chunk_by(|a, b| what(a) == what(b)) {
            let first = &class[0];
            let join = |figure: fn(&CoreToCore) -> f64| {
                let figures: Vec<_> = class.iter().map(|it| format!("{:.1}", figure(it))).collect();
                figures.join(" / ")
            };
            let mut simulated = join(|it| it.simulated_ns);
            if class.iter().any(|it| !it.reached) {
                simulated += ", out of reach";
            }
            listing.row([
                match first.nodes {
                    Some([a, b]) => format!("nodes {a} and {b}"),
                    None => first.class.to_owned(),
                },
                format!("{:.1}", first.file_ns),
                simulated,
                join(|it| it.transfer_ns),
                first.basis.before(&first.source),
            ]);
        }
    }
    write!(out, "{}", listing.text(form))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use coreline_sim::presets;

    use super::*;

    #[test]
    fn a_figure_is_called_what_its_source_says() {
        for (source, basis, word) in [
            ("measured on this machine, 2026-11-22: coreline measure", Basis::Measured, "measured"),
            ("5900X; core-to-core-latency, commit 96a943a", Basis::Published, "published"),
            ("a page, https://example.org", Basis::Published, "published"),
            ("as host-2c, a virtual machine", Basis::TakenOver, "taken over"),
            ("taken like Milan; README, commit 0dddf509", Basis::TakenOver, "taken over"),
            ("no figure found: from memory", Basis::FromMemory, "from memory"),
            ("guess: 118 for one hop, as ivybridge-ex-4s", Basis::Guess, "guess"),
            ("misses that overlap: assumption", Basis::Guess, "guess"),
            ("what a friend said", Basis::Other, "other"),
        ] {
            assert_eq!(Basis::of(source), basis, "{source}");
            let shown = basis.before(source);
            assert!(shown.starts_with(word) && shown.ends_with(source), "{shown}");
            assert!(basis != Basis::Measured || shown == source, "the word stands there once");
        }
    }

    /// Every figure of a preset rests on something that has a name, and no guess is published.
    #[test]
    fn presets_say_what_their_figures_rest_on() {
        let mut seen = Vec::new();
        for name in presets() {
            for row in of(&Spec::preset(name).unwrap()).unwrap() {
                assert_ne!(row.basis, Basis::Other, "{name}: {}", row.source);
                let is_uncertain =
                    ["guess", "from memory"].iter().any(|it| row.source.contains(it));
                assert!(!is_uncertain || row.basis != Basis::Published, "{name}: {}", row.source);
                seen.push(row.basis);
            }
        }
        assert!(seen.contains(&Basis::Guess) && seen.contains(&Basis::FromMemory), "{seen:?}");
    }
}
