//! Measurements: the experiments on this machine, taken in turns.
//!
//! Each experiment's samples are spread over the whole time, so that a slow spell of the machine
//! hits all alike. A sample during which other load had our CPUs is discarded, counted and taken
//! again; see [`Sample::is_disturbed`](super::sample::Sample::is_disturbed).
//!
//! A hypervisor may move its CPUs: two that exchanged a line in 30 ns take 110 ns from one moment
//! to the next, under one last-level cache as far as their kernel knows. The predictions are for
//! the machine of one ping-pong figure. So each round begins with that game, and in a round where
//! it is off the figure, experiments on two CPUs are left out and counted.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use coreline_topology::{CpuId, CpuSet, Distance, Topology};
use coreline_world::Native;
use coreline_world::native::{probe, run_queue_wait};
use rand_core::Rng;
use rand_pcg::Pcg64;
use serde::Serialize;

use super::experiment::{self, CALIBRATION, Experiment, Subject};
use super::sample::{self, Sample};
use super::simulated::round;
use crate::error::Error;
use crate::progress::progress;

/// The measurement of an experiment, in nanoseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Measured {
    pub(crate) median: f64,
    /// Half of the samples lie between these.
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) samples: usize,
    pub(crate) discarded: u32,
    /// Rounds that were left out: the CPUs were not as far apart as those that were predicted.
    pub(crate) elsewhere: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    samples: usize,
    /// How long a sample should take, in nanoseconds.
    sample_ns: u64,
    /// How often a disturbed sample is taken again before it is given up.
    retries: u32,
}

impl Plan {
    pub(super) const FULL: Plan = Plan { samples: 101, sample_ns: 1_500_000, retries: 6 };

    /// Whether it works, in seconds. No figure of it is worth quoting.
    pub(super) const QUICK: Plan = Plan { samples: 5, sample_ns: 200_000, retries: 2 };
}

/// Why an experiment cannot run on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Untestable {
    #[error(
        "not testable here: the experiment needs two CPUs, and this process may use only one; \
         allow more CPUs, or choose another machine"
    )]
    OneCpu,
    #[error(
        "not testable here: the experiment needs two cores under one last-level cache, and no such \
         pair is among the CPUs this process may use; allow more CPUs, or choose another machine"
    )]
    Apart,
    #[error(
        "not testable there: the experiment needs two cores, and the machine has one; choose a \
         machine that has more"
    )]
    OneCore,
    #[error(
        "not testable here: the cost {0} was not measured, so nothing can be predicted for this \
         machine; retry on an idle machine"
    )]
    NotCalibrated(&'static str),
    #[error(
        "not testable here: the two CPUs never exchanged a line within 30 % of the predicted \
         time; see ping-pong-cas"
    )]
    Elsewhere,
}

/// The ping-pong of the machine that was predicted, in nanoseconds, and how much it may be off.
const MOST_OFF: f64 = 1.3;

fn is_as_far(ns: f64, expected: f64) -> bool {
    (expected / MOST_OFF..=expected * MOST_OFF).contains(&ns)
}

/// The CPUs that an experiment takes, of those that the process may use: the first, and the first
/// other core under its last-level cache.
pub(super) fn cpus(
    allowed: &CpuSet,
    topology: &Topology,
    threads: usize,
) -> Result<Vec<CpuId>, Untestable> {
    let Some(first) = allowed.iter().next() else { return Err(Untestable::OneCpu) };
    if threads == 1 {
        return Ok(vec![first]);
    }
    let is_near = |other: &CpuId| {
        let distance = topology.distance(first, *other);
        distance.is_some_and(|it| it > Distance::SameCore && it <= Distance::SameCache)
    };
    match allowed.iter().find(is_near) {
        Some(second) => Ok(vec![first, second]),
        None if allowed.iter().count() == 1 => Err(Untestable::OneCpu),
        None => Err(Untestable::Apart),
    }
}

struct Run<'a> {
    experiment: &'a Experiment,
    subject: Arc<dyn Subject>,
    cpus: Vec<CpuId>,
    /// Operations of each thread in a sample, before those that are timed and those.
    counts: [u64; 2],
    /// Operations of each thread so far.
    done: u64,
    ns: Vec<f64>,
    discarded: u32,
    elsewhere: u32,
}

/// The result of an experiment; no figures if every sample was disturbed.
pub(super) type Finding = Result<Option<Measured>, Untestable>;

/// Measures these experiments, in turns; the results are in their order. `ping_pong_ns` is the time
/// of the ping-pong that calibrated the predicted machine, on that machine. `lacks` is the missing
/// cost that an experiment's prediction needs.
pub(super) fn measure(
    experiments: &[&Experiment],
    plan: Plan,
    ping_pong_ns: f64,
    lacks: impl Fn(&Experiment) -> Option<&'static str>,
) -> Result<Vec<Finding>, Error> {
    let machine = probe();
    let allowed = machine.allowed.map_err(Error::NoCpus)?;
    let place = |it: &&Experiment| {
        let cpus = cpus(&allowed, &machine.topology, it.threads)?;
        lacks(it).map_or(Ok(cpus), |cost| Err(Untestable::NotCalibrated(cost)))
    };
    let places: Vec<_> = experiments.iter().map(place).collect();
    let mut runs = Vec::new();
    for (experiment, place) in experiments.iter().zip(&places) {
        if let Ok(cpus) = place {
            runs.push(Run::new(experiment, cpus.clone(), plan)?);
        }
    }
    let game = experiment::ALL.iter().find(|it| it.name == CALIBRATION);
    let mut gate = match game.map(|it| (it, cpus(&allowed, &machine.topology, it.threads))) {
        Some((game, Ok(cpus))) => Some(Run::new(game, cpus, plan)?),
        _ => None,
    };
    let mut dice = Pcg64::new(ORDER, 0);
    let bar = progress("native", runs.len() * plan.samples);
    let mut order: Vec<usize> = (0..runs.len()).collect();
    for _ in 0..plan.samples {
        let distance = gate.as_mut().map(|game| game.sample(plan.retries)).transpose()?.flatten();
        let as_far = distance.is_some_and(|ns| is_as_far(ns, ping_pong_ns));
        shuffle(&mut order, &mut dice);
        for &run in &order {
            let run = &mut runs[run];
            if as_far || run.experiment.threads == 1 || run.experiment.name == CALIBRATION {
                let sample = run.sample(plan.retries)?;
                run.ns.extend(sample);
            } else {
                run.elsewhere += 1;
            }
            bar.inc(1);
        }
    }
    bar.finish();
    let mut measured = runs.into_iter().map(Run::finish);
    let result = |place: Result<_, Untestable>| match place {
        Ok(_) => measured.next().expect("a run for each place"),
        Err(why) => Ok(Err(why)),
    };
    places.into_iter().map(result).collect()
}

/// The order of experiments differs from round to round, but not from run to run.
const ORDER: u128 = 11;

impl<'a> Run<'a> {
    /// Finds out how many operations make a sample as long as planned.
    fn new(experiment: &'a Experiment, cpus: Vec<CpuId>, plan: Plan) -> Result<Self, Error> {
        let subject = experiment.subject::<Native>();
        let (ns, counts) = (Vec::new(), [4, 16]);
        let (done, discarded, elsewhere) = (0, 0, 0);
        let mut run = Run { experiment, subject, cpus, counts, done, ns, discarded, elsewhere };
        loop {
            // The shortest of a few: a disturbed one would make the operation look slow.
            let mut wall = u64::MAX;
            for _ in 0..5 {
                wall = wall.min(run.take()?.wall().max(1));
            }
            let ops = run.counts[1];
            if wall >= plan.sample_ns / 8 {
                let ops = u128::from(ops) * u128::from(plan.sample_ns) / u128::from(wall);
                let ops = u64::try_from(ops).unwrap_or(u64::MAX).max(16);
                run.counts = [ops / 16, ops];
                return Ok(run);
            }
            run.counts = [ops / 4, ops * 4];
        }
    }

    fn take(&mut self) -> Result<Sample, Error> {
        let sample = sample::take::<Native>(&self.subject, &self.cpus, self.counts, run_queue_wait);
        self.done += self.counts.iter().sum::<u64>();
        sample.map_err(Error::Measure)
    }

    /// Takes samples until one is not disturbed, `1 + retries` at most, and gives its figure. The
    /// pause after each disturbed sample is twice the previous one, from 1 ms on, because most
    /// disturbances are over soon.
    fn sample(&mut self, retries: u32) -> Result<Option<f64>, Error> {
        for disturbed in 0..=retries {
            let sample = self.take()?;
            if !sample.is_disturbed() {
                return Ok(Some(sample.ns(self.experiment, self.counts[1])));
            }
            self.discarded += 1;
            thread::sleep(Duration::from_millis(1 << disturbed));
        }
        Ok(None)
    }

    fn finish(mut self) -> Result<Finding, Error> {
        if !self.subject.is_right(self.done) {
            let experiment = self.experiment.name;
            let again = format!("to repeat it: coreline validate --only {experiment}");
            return Err(Error::Miscounted { experiment, again });
        }
        self.ns.sort_unstable_by(f64::total_cmp);
        let Run { ref ns, discarded, elsewhere, .. } = self;
        let samples = ns.len();
        let at = |share: usize| round(ns[(samples - 1) * share / 4]);
        Ok(match samples {
            0 if elsewhere > 0 => Err(Untestable::Elsewhere),
            0 => Ok(None),
            _ => {
                let (low, median, high) = (at(1), at(2), at(3));
                Ok(Some(Measured { median, low, high, samples, discarded, elsewhere }))
            }
        })
    }
}

fn shuffle(items: &mut [usize], dice: &mut Pcg64) {
    for last in (1..items.len()).rev() {
        // The bias is as small as the list is short.
        let other = dice.next_u64() % (last as u64 + 1);
        items.swap(last, other as usize);
    }
}

#[cfg(test)]
mod tests {
    use coreline_topology::Shape;

    use super::*;

    #[test]
    fn a_distance_is_the_predicted_one_to_30_percent() {
        for (ns, is_near) in
            [(30.0, true), (38.9, true), (39.1, false), (23.2, true), (23.0, false)]
        {
            assert_eq!(is_as_far(ns, 30.0), is_near, "{ns}");
        }
    }

    #[test]
    fn a_round_elsewhere_is_counted_and_not_measured() {
        let [game, alone, both] = ["ping-pong-cas", "read-own", "ping-pong-load-store"]
            .map(|name| experiment::ALL.iter().find(|it| it.name == name).unwrap());
        let allowed = probe().allowed.unwrap();
        if cpus(&allowed, &probe().topology, 2).is_err() {
            return;
        }
        // No machine plays a game in a picosecond; the game itself need not.
        let found = measure(&[both, game, alone], Plan::QUICK, 0.001, |_| None).unwrap();
        assert_eq!(found[0].unwrap_err(), Untestable::Elsewhere);
        let uncalibrated = measure(&[alone], Plan::QUICK, 30.0, |_| Some("locked")).unwrap();
        assert_eq!(uncalibrated[0].unwrap_err(), Untestable::NotCalibrated("locked"));
        for finding in &found[1..] {
            assert!(finding.unwrap().is_none_or(|it| it.samples > 0 && it.elsewhere == 0));
        }
    }

    #[test]
    fn two_cores_under_one_cache_are_needed() {
        let shape = Shape {
            sockets: 1,
            nodes_per_socket: 1,
            caches_per_node: 2,
            cores_per_cache: 2,
            threads_per_core: 2,
        };
        // CPUs 0 and 4 are one core; 0, 1, 4 and 5 are under one cache.
        let machine = Topology::uniform(shape).unwrap();
        let choose = |allowed: &str, threads| {
            let cpus = cpus(&allowed.parse().unwrap(), &machine, threads);
            cpus.map(|cpus| cpus.into_iter().map(CpuId::get).collect::<Vec<_>>())
        };
        assert_eq!(choose("0-7", 2), Ok(vec![0, 1]));
        assert_eq!(choose("0,4-5", 2), Ok(vec![0, 5]), "not the other thread of the core");
        assert_eq!(choose("2,4", 1), Ok(vec![2]));
        assert_eq!(choose("3", 2), Err(Untestable::OneCpu));
        assert_eq!(choose("0,2,4", 2), Err(Untestable::Apart));
    }
}
