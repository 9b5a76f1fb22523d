//! The bands over which claims hold, by the arbitration of contended lines.
//!
//! A claim holds under both, unless its test names one. In the order of arrival, the whole band
//! runs at night: a change waits for a quarter of its seeds. Nearest first, the request shares run:
//! a whole band of both takes twice as long, and what an arbitration decides, it decided at each
//! share and seed that we tried.

use coreline_sim::claim::Band;
use coreline_sim::{Arbitration, Spec};

/// The whole band in the order of arrival, with four seeds for each share, or as many as
/// `CORELINE_SEEDS` asks for.
pub(crate) fn first_come(spec: &Spec, seed: u64) -> Band {
    let set = std::env::var("CORELINE_SEEDS").ok();
    let seeds = set.map_or(4, |set| set.parse().expect("CORELINE_SEEDS is a number"));
    Band::whole(spec, seed).under(Arbitration::Fifo).seeds(seeds)
}

/// The request shares, nearest first.
fn nearest_first(spec: &Spec, seed: u64) -> Band {
    Band::quick(spec, seed).under(Arbitration::Nearest)
}

/// What a claim is tested over if it does not depend on the arbitration.
pub(crate) const BOTH: [fn(&Spec, u64) -> Band; 2] = [first_come, nearest_first];
