//! `shootdown`: the cost of an update that must reach all present contexts (van Riel 2013 and later
//! changes).
//!
//! Each CPU has one context, on a thread pinned to that CPU. The context registers with a
//! [`Presence`] and a [`Versioned`] value, and uses both. Then `present` of these contexts stay
//! present, and the others leave and sleep. Contexts have turns in a random order. In its turn, a
//! context calls a function in all present contexts and waits until it has run everywhere
//! (`shootdown`). It also replaces the value (`update`). A context that has left makes both calls
//! without entering.
//!
//! | variant | bits of contexts that have left | an update writes to |
//! |---|---|---|
//! | `eager` | stay set forever | every context that registered |
//! | `lazy` | are cleared at most once per second | contexts that are present |
//!
//! Both variants are the library's own code, and differ in one option. `eager` reads a list of all
//! readers, as most implementations of hazard pointers and epochs do. It never clears bits, so a
//! context that re-enters need not set its bit again. It is important that different contexts
//! update. If only one context updated, the lines that no other context touches would stay in its
//! cache, at almost no cost.
//!
//! A present context checks for changes every microsecond ([`LOOK_EVERY`]). The time of a shootdown
//! includes the wait for this check. We set the interval, and it is the same for both variants.
//!
//! The scenario checks itself. Each function must run in all present contexts, and each context
//! must read the newest value at the end.

use core::time::Duration;
use std::sync::Arc;

use coreline::mask::{Inside, Presence, PresenceOptions, Reading, Versioned};
use coreline_sim::Sim;
use coreline_world::{Integer, Line, Native, Ordering, Testbed, Word};
use rand_pcg::Pcg64;

use super::figure::Figure;
use super::figure::Made::{Number, Over};
use super::metric::FigureKind::{Nanoseconds, Ratio};
use super::param::{Domain, Param};
use super::point::Setup;
use super::{RunError, Scenario, Variant};
use crate::crew::{Sign, crew, nanos, pinned};

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        Param::new("present", "The number of contexts that are present", Domain::Cpus(4096))
            .usual(&["1", "8", "64", "all"])
            .quick(&["1", "64"]),
        Param::effort("updates", 10_000).usual(&["20"]).quick(&["6"]),
    ],
    variants: &[
        Variant::new("eager", "Bits are never cleared: updates reach all registered contexts"),
        Variant::new("lazy", "Bits of contexts that are away are cleared, at most once per second"),
    ],
    figures: &[
        Figure::new("shootdown_ns", Nanoseconds, Number(0)),
        Figure::new("update_ns", Nanoseconds, Number(1)),
        Figure::new("shootdown_over_eager", Ratio, Over(0, "eager")),
        Figure::new("update_over_eager", Ratio, Over(1, "eager")),
    ],
    not_testable: "the run has few CPUs, which share one L3: no evidence about more and farther \
                   CPUs",
    told: Some(|it| format!("{:.2} ns per shootdown, {:.2} ns per update", it[0], it[1])),
    ..Scenario::new(
        "shootdown",
        "Updates that reach all present contexts, while other contexts are away (van Riel 2013)",
        [run::<Native>, run::<Sim>],
    )
};

/// The interval at which a present context checks for changes.
pub const LOOK_EVERY: Duration = Duration::from_micros(1);

/// The orders of contexts: one [`Sign`] for each.
///
/// | value | name | the context | written by |
/// |---|---|---|---|
/// | 0 | `WAIT` | has left, or is present: as it is | itself, when its turn is over |
/// | 1 | `ENTER` | enters, and is present from then on | the thread that spawned all |
/// | 2 | `END` | ends | the context with the last turn, or the spawner if it could not spawn all |
/// | 3.. | `TURN` + n | takes turn n | the context that took the turn before |
const WAIT: u32 = 0;
const ENTER: u32 = 1;
const END: u32 = 2;
const TURN: u32 = 3;

/// Turns that are not counted.
const WARM_UP: u32 = 4;

/// The stream of the generator that draws orders.
const ORDER: u128 = 0x5407;

struct Range<W: Testbed> {
    /// How many contexts are present, and how many turns are taken and counted.
    present: usize,
    updates: u32,
    presence: Presence<W>,
    value: Versioned<u64, W>,
    asked: Vec<Sign<W>>,
    /// The contexts that take turns, one after the other and again from the first.
    order: Vec<usize>,
    /// How often a context has left, or entered to stay.
    arrived: Sign<W>,
    /// How often the function of the shootdown that is under way has run.
    ran: Line<W::U32>,
}

/// Nanoseconds of shootdowns and of updates, in the counted turns of a context.
type Tally = [u64; 2];

/// Gives the mean times of shootdowns and of updates.
fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    let (present, all) = (setup.number("present") as usize, setup.cpus.len());
    let updates = setup.number("updates") as u32;
    if present > all {
        return Err(RunError::Lack(format!(
            "{present} contexts cannot be present, because there are only {all}; choose {all} or \
             fewer"
        )));
    }
    let is_eager = setup.variant == "eager";
    let trim_every = if is_eager { Duration::MAX } else { PresenceOptions::TRIM_EVERY };
    let options = PresenceOptions::new().seats(all).trim_every(trim_every);
    let mut dice = Pcg64::new(u128::from(setup.seed), ORDER);
    let mut order: Vec<usize> = (0..all).collect();
    super::shuffle(&mut order, &mut dice);
    let mut presents = order.clone();
    super::shuffle(&mut presents, &mut dice);
    presents.truncate(present);
    let range = Arc::new(Range::<W> {
        present,
        updates,
        presence: Presence::new_in(options),
        value: Versioned::new_in(0, options),
        asked: (0..all).map(|_| Sign::new(WAIT)).collect(),
        order,
        arrived: Sign::new(0),
        ran: Line(W::U32::new_in(0)),
    });
    if is_eager {
        // The first change of all clears, whatever the option: while there is nothing to clear.
        range.clear_bits();
    }
    let results = crew::<W, _, _>(&range, pinned(&setup.cpus), Range::context, |missing| {
        if let Some(started) = missing {
            return range.asked[..started].iter().for_each(|asked| asked.set(END));
        }
        range.arrived.wait(|arrived| arrived as usize >= all);
        if !is_eager {
            range.clear_bits();
        }
        presents.iter().for_each(|&number| range.asked[number].set(ENTER));
        range.arrived.wait(|arrived| arrived as usize >= all + present);
        range.asked[range.order[0]].set(TURN);
    })?;
    let tallies = results.into_iter().collect::<Result<Vec<Tally>, _>>()?;
    let mean = |of| tallies.iter().map(|tally| tally[of]).sum::<u64>() as f64 / f64::from(updates);
    Ok([0, 1].map(mean).to_vec())
}

impl<W: Testbed> Range<W> {
    /// Changes something: this clears the bits of all that have left, if it was not done lately.
    fn clear_bits(&self) {
        self.presence.shootdown(|| ());
        self.value.update(0);
    }

    fn context(&self, number: usize) -> Result<Tally, RunError> {
        let (mut member, reader) = (self.presence.register(), self.value.reader());
        // Leaves at once: the bits stay.
        let _ = member.enter();
        reader.enter().get();
        self.arrived.add();
        let (mut tally, mut found) = (Tally::default(), Ok(()));
        loop {
            match self.asked[number].wait(|asked| asked != WAIT) {
                END => break,
                ENTER => {
                    let (mut inside, _) = member.enter();
                    let mut reading = reader.enter();
                    found = found.and(self.stay(number, &mut inside, &mut reading, &mut tally));
                    break;
                }
                turn => {
                    let shoot = |f: &(dyn Fn() + Sync)| self.presence.shootdown(f).reached;
                    found = found.and(self.take_turn(number, turn - TURN, shoot, &mut tally));
                }
            }
        }
        let newest = *reader.enter().get();
        let turns = u64::from(WARM_UP + self.updates);
        match found {
            // Only if turns were taken at all.
            Ok(()) if newest != 0 && newest != turns => Err(RunError::Check(format!(
                "after update {turns}, a context reads the value {newest}, not {turns}"
            ))),
            found => found.map(|()| tally),
        }
    }

    /// The part of a context that is present.
    fn stay(
        &self,
        number: usize,
        inside: &mut Inside<'_, W>,
        reading: &mut Reading<'_, u64, W>,
        tally: &mut Tally,
    ) -> Result<(), RunError> {
        self.asked[number].keep(WAIT);
        self.arrived.add();
        let mut found = Ok(());
        loop {
            // No cached value matters here.
            let _ = inside.poll();
            reading.get();
            match self.asked[number].get() {
                WAIT | ENTER => W::work(LOOK_EVERY),
                END => return found,
                turn => {
                    let shoot = |f: &(dyn Fn() + Sync)| inside.shootdown(f).0.reached;
                    found = found.and(self.take_turn(number, turn - TURN, shoot, tally));
                }
            }
        }
    }

    /// Updates both, and passes the turn on. `shoot` makes a function run in all contexts that are
    /// present, and says in how many it did.
    fn take_turn(
        &self,
        number: usize,
        turn: u32,
        shoot: impl FnOnce(&(dyn Fn() + Sync)) -> usize,
        tally: &mut Tally,
    ) -> Result<(), RunError> {
        self.asked[number].keep(WAIT);
        // Relaxed, all: one turn at a time, and a shootdown returns after all that it ran.
        self.ran.store(0, Ordering::Relaxed);
        let start = W::now();
        let reached = shoot(&|| {
            self.ran.fetch_add(1, Ordering::Relaxed);
        });
        let shot = W::now();
        self.value.update(u64::from(turn) + 1);
        let updated = W::now();
        if turn >= WARM_UP {
            tally[0] += nanos(start, shot);
            tally[1] += nanos(shot, updated);
        }
        let ran = self.ran.load(Ordering::Relaxed) as usize;
        let next = turn + 1;
        if next < WARM_UP + self.updates {
            self.asked[self.order[next as usize % self.order.len()]].set(TURN + next);
        } else {
            self.asked.iter().for_each(|asked| asked.set(END));
        }
        let present = self.present;
        if (ran, reached) == (present, present) {
            return Ok(());
        }
        let what = format!(
            "the function ran in {ran} contexts and {reached} were counted, but {present} are \
             present"
        );
        Err(RunError::Check(what))
    }
}
