//! All runs of a scenario on a simulated machine, spread over the host's CPUs.

use coreline_scenarios::config::Config;
use coreline_scenarios::point::Point;
use coreline_scenarios::{Done, over_band};
use coreline_sim::Spec;

use super::Choice;
use super::measured::{Measured, Series};
use crate::error::Error;

/// Runs all points over the band. Also says how many there are: an interrupt leaves those that are
/// finished.
pub(super) fn measure(spec: &Spec, choice: &Choice) -> Result<(Vec<Measured>, usize), Error> {
    let (configs, points): (Vec<_>, Vec<_>) =
        choice.points(Config::all(spec.topology()))?.into_iter().unzip();
    let band = choice.band_of(spec);
    let runs = choice.scenario.runs[usize::from(choice.quick)];
    let bar = choice.progress(points.len() * band.points().len() * runs as usize);
    let done = over_band(&band, &points, Point::kernel, runs, |done| bar.inc(done));
    bar.finish();
    let done = done?;
    let (all, finished) = (points.len(), configs.into_iter().zip(points).zip(done));
    let measured = |((config, point), done): ((Config, Point), Vec<_>)| {
        let done: Option<Vec<Done>> = done.into_iter().collect();
        let (caches, numbers) = (config.caches, series(&done?));
        Some(Measured { point, caches, numbers, rounds: None })
    };
    Ok((finished.filter_map(measured).collect(), all))
}

/// The values by number, over the band.
fn series(done: &[Done]) -> Vec<Series> {
    let numbers = done.first().map_or(0, |(numbers, _)| numbers.len());
    let of = |number| {
        let points: Vec<f64> = done.iter().map(|(numbers, _)| numbers[number]).collect();
        Series { value: points[0], points }
    };
    (0..numbers).map(of).collect()
}
