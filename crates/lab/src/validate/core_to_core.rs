//! Published core-to-core latencies beside simulated ping-pongs.

use coreline_sim::{Machine, Spec, Transfer};
use serde::Serialize;

use crate::error::Error;

/// One class of distance of one machine, at one request share.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CoreToCore {
    pub(crate) machine: String,
    pub(crate) class: &'static str,
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
    let source = |name| {
        let cost = spec.sources().find(|(cost, _)| *cost == name);
        cost.map(|(_, cost)| cost.source.clone()).unwrap_or_default()
    };
    let ns = |ps: u64| ps as f64 / 1000.0;
    let mut rows = Vec::new();
    for request_percent in Machine::REQUEST_BAND {
        let machine = Machine::new(spec.clone()).request_percent(request_percent);
        for transfer in machine.calibration().map_err(Error::Failed)? {
            let Transfer { class, published, raw, simulated, reached } = transfer;
            rows.push(CoreToCore {
                machine: spec.name().to_owned(),
                class: class.name(),
                published_ns: ns(published),
                request_percent,
                transfer_ns: ns(raw),
                simulated_ns: ns(simulated),
                reached,
                source: source(class.name()),
            });
        }
    }
    rows.sort_by_key(|row| coreline_sim::Class::ALL.iter().position(|it| it.name() == row.class));
    Ok(rows)
}
