//! Calibration: the cost of a line transfer, derived from a ping-pong between two cores.
//!
//! Published core-to-core latencies are ping-pong figures: two threads move one word back and forth
//! with compare-and-exchange, and half of a round trip counts as the latency. A transfer costs less
//! than this figure. The figure also contains each player's own locked operation. That operation
//! overlaps with the other player's request.
//!
//! So machine files state the published figure, and a [`Machine`](crate::Machine) derives the cost
//! from a ping-pong between two of its own cores. It adjusts the cost until the simulated figure is
//! within half a percent of the published one. The calibration uses the engine itself, so no
//! separate formula can disagree with it. The process caches the result, because the result depends
//! only on the figure, the request share and the cores' own costs.
//!
//! A figure can be unreachable: two locked operations cannot follow each other faster than they
//! execute. [`Transfer::reached`] reports this. The machine then runs with the cheapest possible
//! transfer, that of a hit in the core's own cache.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use coreline_topology::{CpuId, NodeId};
use coreline_world::{
    Clock, Integer, JoinHandle, Line, Ordering, Placement, SpawnError, Threads, Word, Words, World,
};

use crate::Sim;
use crate::hardware::class::Class;
use crate::hardware::costs::Costs;
use crate::hardware::distances::Distances;
use crate::hardware::spec::Spec;
use crate::results::failure::Failure;

/// A ping-pong as in the published tools, in which two players change one word with
/// compare-and-exchange.
///
/// `core-to-core-latency` of N. Viennot uses the same loop
/// (github.com/nviennot/core-to-core-latency, `src/bench/cas.rs`). The loop has no pause, and a
/// failed exchange also fetches the line.
#[derive(Debug)]
pub struct PingPong<W: World>(Line<W::U32>);

impl<W: World> PingPong<W> {
    /// Creates a ping-pong.
    pub fn new_in() -> Self {
        PingPong(Line(W::U32::new_in(0)))
    }

    /// Plays as player 0, which begins, or as player 1. Both players must play the same number of
    /// round trips.
    pub fn play(&self, player: u32, round_trips: u64) {
        for _ in 0..round_trips {
            // Relaxed: the word itself is all that is handed over.
            let turn = || {
                let (mine, theirs) = (player, 1 - player);
                self.0.compare_exchange(mine, theirs, Ordering::Relaxed, Ordering::Relaxed)
            };
            while turn().is_err() {}
        }
    }
}

/// The cost of transferring a line between two CPUs of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The distance between the CPUs.
    pub class: Class,
    /// The CPUs' nodes, if the machine file gives these nodes costs other than the costs of their
    /// class.
    pub nodes: Option<[NodeId; 2]>,
    /// The one-way latency of the machine file, in picoseconds.
    pub published: u64,
    /// The cost of one transfer at which a ping-pong has that latency, in picoseconds.
    pub raw: u64,
    /// The one-way latency of a simulated ping-pong, in picoseconds.
    pub simulated: u64,
    /// Whether the simulated latency is within half a percent of the published latency.
    pub reached: bool,
}

/// One-way latencies differ if they are apart by more than this fraction.
const FINENESS: u64 = 200;

/// Round trips that are timed, and before those.
const ROUND_TRIPS: u64 = 256;
const WARM_UP: u64 = 16;

/// More than two players need: a game that does not end is a mistake in the engine.
pub(crate) const MOST_STEPS: u64 = 20_000_000;

/// How often the cost is moved at most. Three or four games are usual.
const MOST_GAMES: usize = 24;

/// Has two CPUs of a machine play, with its costs as they are: what the game says is the one-way
/// latency, in picoseconds. The machine is above this, and hands over how.
pub(crate) type Play = fn(Spec, u32, [CpuId; 2]) -> Result<u64, Box<Failure>>;

/// The time of each player of a game for its round trips, in nanoseconds.
pub(crate) type Times = [Result<u128, SpawnError>; 2];

/// The program of a game between two CPUs.
pub(crate) fn game(cpus: [CpuId; 2]) -> impl FnOnce() -> Times + 'static {
    move || {
        let game = Arc::new((PingPong::<Sim>::new_in(), Line(<Sim as Words>::U32::new_in(2))));
        let player = |number: u32| {
            let game = Arc::clone(&game);
            let play = move || {
                let (game, missing) = &*game;
                // Relaxed: lines up times.
                missing.fetch_sub(1, Ordering::Relaxed);
                missing.wait_until(Ordering::Relaxed, |missing| missing == 0);
                game.play(number, WARM_UP);
                let start = Sim::now();
                game.play(number, ROUND_TRIPS);
                (Sim::now() - start).as_nanos()
            };
            Sim::spawn(Placement::On(cpus[number as usize]), play)
        };
        let players = [player(0), player(1)];
        players.map(|player| player.map(JoinHandle::join))
    }
}

/// The one-way latency in a game, in picoseconds.
pub(crate) fn one_way(times: Times) -> u64 {
    // Both CPUs are the machine's, and it has room for two threads.
    let ns = times.into_iter().filter_map(Result::ok).max().unwrap_or(0);
    u64::try_from(ns).unwrap_or(u64::MAX).saturating_mul(1000) / (2 * ROUND_TRIPS)
}

/// A cost, the latency of a game with it, and whether that is the one asked for.
type Answer = (u64, u64, bool);

/// The earlier answers, by their inputs: all costs, with the figure for every transfer, the request
/// share, and whether hardware threads of one core play. These are values of a pure function, so
/// the order of callers does not matter.
static ANSWERS: Mutex<BTreeMap<(Costs, u32, bool), Answer>> = Mutex::new(BTreeMap::new());

/// Finds the cost of a transfer of this class, with which a game takes `published`, on a machine of
/// these costs.
fn solve(
    spec: &Spec,
    (class, published): (Class, u64),
    request_percent: u32,
    play: Play,
) -> Result<Answer, Box<Failure>> {
    let least = spec.costs().private_hit;
    let of_siblings = class == Class::SameCore;
    let question = (*spec.two_cpus(class, published).costs(), request_percent, of_siblings);
    let answers = || ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&answer) = answers().get(&question) {
        return Ok(answer);
    }
    let cpus = [0, 1].map(CpuId::new);
    let play = |raw| play(spec.two_cpus(class, raw), request_percent, cpus);
    let answer = search(published, least, play)?;
    answers().insert(question, answer);
    Ok(answer)
}

/// Moves the cost until a game takes `published`: along the line through the last two games, within
/// the bounds that games have shown.
fn search(
    published: u64,
    least: u64,
    mut play: impl FnMut(u64) -> Result<u64, Box<Failure>>,
) -> Result<Answer, Box<Failure>> {
    let off = |simulated: u64| simulated.abs_diff(published);
    // Too cheap, and too dear: the cost that is looked for lies between.
    let (mut low, mut high) = (least, u64::MAX);
    // A player waits for both flights: what the cost is off is about what the game is off.
    let mut raw = published.max(least);
    let mut best = (raw, play(raw)?);
    let mut simulated = best.1;
    for _ in 1..MOST_GAMES {
        if off(best.1) * FINENESS <= published {
            break;
        }
        if simulated > published {
            high = high.min(raw);
        } else {
            low = low.max(raw);
        }
        let step = off(simulated);
        let next = if simulated > published { raw.saturating_sub(step) } else { raw + step };
        let next = match next.max(least) {
            next if (low..high).contains(&next) => next,
            // The line leads out of the bounds, of which the upper one is known by then.
            _ if high > low + 1 && high < u64::MAX => low.midpoint(high),
            _ => break,
        };
        if next == raw {
            break;
        }
        raw = next;
        simulated = play(raw)?;
        if off(simulated) < off(best.1) {
            best = (raw, simulated);
        }
    }
    Ok((best.0, best.1, off(best.1) * FINENESS <= published))
}

/// The costs of all transfers of a machine, by class, then by pairs of nodes; only classes that it
/// has.
///
/// `simulated` is that of two cores under one cache, or of two hardware threads of one core.
pub(crate) fn transfers(
    spec: &Spec,
    share: u32,
    play: Play,
) -> Result<Vec<Transfer>, Box<Failure>> {
    let classes = Class::ALL.into_iter().map(|class| (class, None, spec.costs().of(class)));
    // Of siblings a machine file may say nothing.
    let classes =
        classes.filter(|&(class, _, published)| published > 0 && cpus(spec, class, None).is_some());
    let pairs = spec.distances().pairs().iter();
    let pairs = pairs.map(|pair| (pair.class, Some(pair.nodes), pair.transfer));
    let transfer = |(class, nodes, published)| {
        let (raw, simulated, reached) = solve(spec, (class, published), share, play)?;
        Ok(Transfer { class, nodes, published, raw, simulated, reached })
    };
    classes.chain(pairs).map(transfer).collect()
}

/// The first two CPUs of a machine whose transfers have such a cost.
pub(crate) fn cpus(spec: &Spec, class: Class, nodes: Option<[NodeId; 2]>) -> Option<[CpuId; 2]> {
    match nodes {
        None => spec.distances().cpus(class, spec.topology()),
        Some(nodes) => Distances::cpus_of(nodes, spec.topology()),
    }
}
