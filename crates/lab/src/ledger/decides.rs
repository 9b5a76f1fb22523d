//! The costs that decide a figure although no source states them.

use coreline_sim::Spec;
use coreline_sim::claim::{Band, Point};

use crate::validate::core_to_core::Basis;

/// A cost decides a figure if the figure changes like this power of the cost, or faster.
const POWER: f64 = 0.5;

/// The points of a band at which one cost without a source is moved.
pub(super) struct Deciders {
    /// How many points the band has.
    points: usize,
    /// The places in the band of the point and of one that moves no cost, the cost, and the factor
    /// by which it is moved.
    moved: Vec<(usize, usize, String, f64)>,
}

impl Deciders {
    /// For a band that moves no cost, so no cost is known to decide a figure.
    pub(super) fn none() -> Deciders {
        Deciders { points: 0, moved: Vec::new() }
    }

    /// For the whole band of a machine.
    pub(super) fn of_band(spec: &Spec, seed: u64) -> Deciders {
        let band = Band::whole(spec, seed);
        let has_no_source = |cost: &str| {
            let mut costs = spec.sources().filter(|(name, _)| *name == cost);
            costs.any(|(_, cost)| Basis::of(&cost.source).has_no_source())
        };
        let moved = |(at, point): (usize, &Point)| {
            let (cost, percent) = point.cost.as_ref()?;
            // The same except for the cost: what the arbitration decides, the cost does not.
            let is_base = |it: &Point| it.cost.is_none() && it.arbitration == point.arbitration;
            let base = band.points().iter().position(is_base)?;
            has_no_source(cost).then(|| (at, base, cost.clone(), *percent as f64 / 100.0))
        };
        let moved = band.points().iter().enumerate().filter_map(moved).collect();
        Deciders { points: band.points().len(), moved }
    }

    /// The costs without a source that decide a figure, by its values over the band.
    pub(super) fn of(&self, values: &[f64]) -> impl Iterator<Item = String> {
        let is_of_band = values.len() == self.points;
        let moved = self.moved.iter().filter(move |_| is_of_band);
        let decides = |&&(at, base, _, factor): &&(usize, usize, String, f64)| {
            (values[at] / values[base]).ln().abs() >= POWER * factor.ln().abs()
        };
        moved.filter(decides).map(|(_, _, cost, _)| cost.clone())
    }
}

#[cfg(test)]
mod tests {
    use coreline_sim::Arbitration;

    use super::*;

    #[test]
    fn a_cost_without_a_source_decides_a_figure_that_follows_it() {
        let spec = Spec::preset("epyc-9654-2s").unwrap();
        let deciders = Deciders::of_band(&spec, 1);
        let band = Band::whole(&spec, 1);
        let follows = |cost: &str, power: f64| {
            let value = |point: &Point| match &point.cost {
                _ if point.arbitration == Arbitration::Nearest && power == 0.0 => 8.0,
                Some((moved, percent)) if moved == cost => (*percent as f64 / 100.0).powf(power),
                _ => 1.0,
            };
            let values: Vec<_> = band.points().iter().map(value).collect();
            deciders.of(&values).collect::<Vec<_>>()
        };
        // An assumption, once for each way in which it is moved, under each arbitration.
        assert_eq!(follows("stream_stores", 1.0), ["stream_stores"; 4]);
        assert_eq!(follows("stream_stores", -1.0).len(), 4);
        assert_eq!(follows("stream_stores", 0.0).len(), 0, "the arbitration decides");
        assert_eq!(follows("stream_stores", 0.4).len(), 0, "it follows other costs more");
        // Published.
        assert!(spec.sources().any(|(name, cost)| name == "same_cache" && cost.uncertain));
        assert_eq!(follows("same_cache", 1.0).len(), 0);
        // Values of another band say nothing.
        assert_eq!(deciders.of(&[1.0, 2.0]).count(), 0);
        assert_eq!(Deciders::none().of(&[]).count(), 0);
    }
}
