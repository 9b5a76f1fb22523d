//! Published core-to-core latencies beside simulated ping-pongs.

use std::io::Write;

use coreline_scenarios::Error::Failed;
use coreline_sim::{Class, Machine, Spec, Transfer};
use coreline_topology::NodeId;
use serde::Serialize;

use crate::error::Error;
use crate::listing::Listing;
use crate::text::Form;

/// One class of distance of one machine, or one pair of its nodes, at one request share.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CoreToCore {
    pub(crate) machine: String,
    pub(crate) class: &'static str,
    /// Two nodes of which the machine file says more than their class.
    pub(crate) nodes: Option<[u32; 2]>,
    /// The figure of the machine file.
    pub(crate) published_ns: f64,
    pub(crate) request_percent: u32,
    /// What one transfer costs, so that a ping-pong comes to the figure.
    pub(crate) transfer_ns: f64,
    pub(crate) simulated_ns: f64,
    /// Whether the figure can be reached at all.
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
            let Transfer { class, nodes, published, raw, simulated, reached } = transfer;
            rows.push(CoreToCore {
                machine: spec.name().to_owned(),
                class: class.name(),
                nodes: nodes.map(|nodes| nodes.map(NodeId::get)),
                published_ns: ns(published),
                request_percent,
                transfer_ns: ns(raw),
                simulated_ns: ns(simulated),
                reached,
                source: source(class, nodes),
            });
        }
    }
    rows.sort_by_key(|row| (Class::ALL.iter().position(|it| it.name() == row.class), row.nodes));
    Ok(rows)
}

/// A line for each class of each machine, with the request shares side by side.
pub(crate) fn show(rows: &[CoreToCore], form: Form, out: &mut dyn Write) -> Result<(), Error> {
    let head = "core to core, one way: published beside simulated, at each request share; ns";
    write!(out, "{}", form.paragraph("", head))?;
    let mut listing = Listing::new(&[
        ("class", false),
        ("published", true),
        ("simulated", true),
        ("transfer", true),
        ("source", false),
    ]);
    let is_same_machine = |a: &CoreToCore, b: &CoreToCore| a.machine == b.machine;
    for machine in rows.chunk_by(is_same_machine) {
        listing.heading(machine[0].machine.clone());
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
                format!("{:.1}", first.published_ns),
                simulated,
                join(|it| it.transfer_ns),
                first.source.clone(),
            ]);
        }
    }
    write!(out, "{}", listing.text(form))?;
    Ok(())
}
