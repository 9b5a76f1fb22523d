//! `shootdown`: what an update costs that must reach all present contexts (seed 003, and what
//! became of it).
//!
//! One context for each CPU, on a thread pinned to it, registers with a
//! [`Presence`](coreline::mask::Presence) and a [`Versioned`](coreline::mask::Versioned) value, and
//! has used both. Then as many as are to be *present* are inside; the others have left, and sleep.
//! Contexts take turns, in an order that is drawn. A context that has the turn calls a function in
//! all present contexts and waits until it has run everywhere (`shootdown`), and replaces the value
//! (`update`). A context that is away does so from outside.
//!
//! | variant | bits of contexts that have left | an update writes to |
//! |---|---|---|
//! | `eager` | stay set forever | every context that registered |
//! | `lazy` | are cleared once a second at most | those that are present |
//!
//! Both are the library's own code and differ in one option. `eager` goes through a list of all
//! readers, as most implementations of hazard pointers and epochs do; it needs no clearing, and a
//! context that comes back need not set a bit again. That contexts take turns matters: if one alone
//! updated, lines that no other touches would stay with it, at next to no cost.
//!
//! A present context looks for news every microsecond ([`LOOK_EVERY`]), which is in the time of a
//! shootdown: declared, and the same for both.
//!
//! The scenario checks itself: each function ran in as many contexts as are present, and each
//! context reads the newest value in the end.

mod program;

use core::time::Duration;
use std::sync::Arc;

use coreline::mask::{Inside, Presence, PresenceOptions, Reading, Versioned};
use coreline_topology::CpuId;
use coreline_world::{Integer, JoinHandle, Line, Ordering, Placement, Testbed, Word};
use rand_pcg::Pcg64;

use super::{RunError, Variant};

pub(crate) use program::{MOST_PRESENT, ShootdownProgram};

/// How long a context that is present does other things before it looks for news.
pub(crate) const LOOK_EVERY: Duration = Duration::from_micros(1);

/// What one run depends on.
#[derive(Debug, Clone)]
pub(crate) struct ShootdownParams {
    /// A context for each.
    pub(crate) cpus: Vec<CpuId>,
    /// How many of them are present; at least one.
    pub(crate) present: usize,
    pub(crate) variant: Variant,
    /// How many turns are taken and counted.
    pub(crate) updates: u32,
    /// Seeds the choice of present contexts, and the order of turns.
    pub(crate) seed: u64,
}

/// What a run came to: mean times of updates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shots {
    pub(crate) shootdown_ns: f64,
    pub(crate) update_ns: f64,
}

/// What a context is to do: one word for each.
///
/// | value | name | the context | written by |
/// |---|---|---|---|
/// | 0 | `WAIT` | has left, or is present: as it is | itself, when its turn is over |
/// | 1 | `ENTER` | enters, and is present from then on | the thread that spawned all |
/// | 2 | `END` | ends | the context with the last turn, or the spawner if it could not spawn all |
/// | 3.. | `TURN` + n | takes turn n | the context that took the turn before |
type Asked<W> = Line<<W as coreline_world::Words>::U32>;

const WAIT: u32 = 0;
const ENTER: u32 = 1;
const END: u32 = 2;
const TURN: u32 = 3;

/// Turns that are not counted.
const WARM_UP: u32 = 4;

/// The stream of the generator that draws orders.
const ORDER: u128 = 0x5407;

struct Range<W: Testbed> {
    params: ShootdownParams,
    presence: Presence<W>,
    value: Versioned<u64, W>,
    asked: Vec<Asked<W>>,
    /// The contexts that take turns, one after the other and again from the first.
    order: Vec<usize>,
    /// How often a context has left, or entered to stay.
    arrived: Line<W::U32>,
    /// How often the function of the shootdown that is under way has run.
    ran: Line<W::U32>,
}

/// Nanoseconds of the counted turns of a context.
#[derive(Default)]
struct Tally {
    shootdown: u64,
    update: u64,
}

/// Runs the scenario.
///
/// # Errors
///
/// [`RunError`] if there is no thread or seat for a context, if a function did not run everywhere,
/// or if a context still reads an old value.
pub(crate) fn shootdown<W: Testbed>(params: &ShootdownParams) -> Result<Shots, RunError> {
    let (present, all) = (params.present, params.cpus.len());
    if present == 0 || present > all {
        return Err(RunError::Lack(format!("{present} contexts cannot be present of {all}")));
    }
    let trim_every = match params.variant {
        Variant::Eager => Duration::MAX,
        Variant::Lazy => PresenceOptions::TRIM_EVERY,
        other => return Err(RunError::Lack(format!("{other} is no variant of shootdown"))),
    };
    let options = PresenceOptions::new().seats(all).trim_every(trim_every);
    let mut dice = Pcg64::new(u128::from(params.seed), ORDER);
    let mut order: Vec<usize> = (0..all).collect();
    super::shuffle(&mut order, &mut dice);
    let mut presents = order.clone();
    super::shuffle(&mut presents, &mut dice);
    presents.truncate(present);
    let range = Arc::new(Range::<W> {
        params: params.clone(),
        presence: Presence::new_in(options),
        value: Versioned::new_in(0, options),
        asked: (0..all).map(|_| Line(W::U32::new_in(WAIT))).collect(),
        order,
        arrived: Line(W::U32::new_in(0)),
        ran: Line(W::U32::new_in(0)),
    });
    if params.variant == Variant::Eager {
        // The first change of all clears, whatever the option: while there is nothing to clear.
        range.clear_bits();
    }
    let mut threads = Vec::with_capacity(all);
    let mut spawned = Ok(());
    for (number, &cpu) in params.cpus.iter().enumerate() {
        let theirs = Arc::clone(&range);
        match W::spawn(Placement::On(cpu), move || theirs.context(number)) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                spawned = Err(error);
                break;
            }
        }
    }
    if spawned.is_ok() {
        range.wait_for_arrivals(all);
        if params.variant == Variant::Lazy {
            range.clear_bits();
        }
        presents.iter().for_each(|&number| range.ask(number, ENTER));
        range.wait_for_arrivals(all + present);
        range.ask(range.order[0], TURN);
    } else {
        (0..threads.len()).for_each(|number| range.ask(number, END));
    }
    let results: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
    spawned?;
    let mut sum = Tally::default();
    for result in results {
        let Tally { shootdown, update } = result?;
        sum.shootdown += shootdown;
        sum.update += update;
    }
    let mean = |sum| sum as f64 / f64::from(params.updates);
    Ok(Shots { shootdown_ns: mean(sum.shootdown), update_ns: mean(sum.update) })
}

impl<W: Testbed> Range<W> {
    /// Changes something: this clears the bits of all that have left, if it was not done lately.
    fn clear_bits(&self) {
        self.presence.shootdown(|| ());
        self.value.update(0);
    }

    /// A context's part.
    fn context(&self, number: usize) -> Result<Tally, RunError> {
        let mut seats =
            self.presence.register().and_then(|member| Ok((member, self.value.reader()?)));
        if let Ok((member, reader)) = &mut seats {
            // Leaves at once: the bits stay.
            let _ = member.enter();
            reader.enter().get();
        }
        self.arrive();
        let (mut tally, mut found) = (Tally::default(), Ok(()));
        loop {
            // A context without seats still passes turns on, so that all come to an end.
            match (self.sleep(number), &mut seats) {
                (END, _) => break,
                (ENTER, Ok((member, reader))) => {
                    let (mut inside, _) = member.enter();
                    let mut reading = reader.enter();
                    found = found.and(self.stay(number, &mut inside, &mut reading, &mut tally));
                    break;
                }
                (ENTER, Err(_)) => {
                    self.answer(number, WAIT);
                    self.arrive();
                }
                (turn, _) => {
                    let shoot = |f: &(dyn Fn() + Sync)| self.presence.shootdown(f).reached;
                    found = found.and(self.take_turn(number, turn - TURN, shoot, &mut tally));
                }
            }
        }
        let (_, mut reader) = seats.map_err(|full| RunError::Lack(full.to_string()))?;
        let newest = *reader.enter().get();
        let turns = u64::from(WARM_UP + self.params.updates);
        match found {
            // Only if turns were taken at all.
            Ok(()) if newest != 0 && newest != turns => {
                Err(RunError::Check(format!("a context reads value {newest} after update {turns}")))
            }
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
        self.answer(number, WAIT);
        self.arrive();
        let mut found = Ok(());
        loop {
            // No cached value matters here.
            let _ = inside.poll();
            reading.get();
            // Acquire: the partner is the Release in `ask`.
            match self.asked[number].load(Ordering::Acquire) {
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
        self.answer(number, WAIT);
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
            tally.shootdown += shot.as_nanos().saturating_sub(start.as_nanos());
            tally.update += updated.as_nanos().saturating_sub(shot.as_nanos());
        }
        let ran = self.ran.load(Ordering::Relaxed) as usize;
        let next = turn + 1;
        if next < WARM_UP + self.params.updates {
            self.ask(self.order[next as usize % self.order.len()], TURN + next);
        } else {
            (0..self.asked.len()).for_each(|number| self.ask(number, END));
        }
        let present = self.params.present;
        if (ran, reached) == (present, present) {
            return Ok(());
        }
        let what = format!("the function ran in {ran} contexts of {present}, {reached} counted");
        Err(RunError::Check(what))
    }

    fn ask(&self, number: usize, what: u32) {
        // Release: the partners are the Acquire loads in `sleep` and `stay`.
        self.asked[number].store(what, Ordering::Release);
        W::wake(&raw const self.asked[number].0, 1);
    }

    /// Notes that this context does what it was asked to.
    fn answer(&self, number: usize, what: u32) {
        // Relaxed: only this context reads it.
        self.asked[number].store(what, Ordering::Relaxed);
    }

    /// Sleeps until something is asked.
    fn sleep(&self, number: usize) -> u32 {
        loop {
            // Acquire: the partner is the Release in `ask`.
            match self.asked[number].load(Ordering::Acquire) {
                WAIT => _ = W::park(&self.asked[number], WAIT, None),
                what => return what,
            }
        }
    }

    fn arrive(&self) {
        // Release: the partner is the Acquire in `wait_for_arrivals`.
        self.arrived.fetch_add(1, Ordering::Release);
        W::wake(&raw const self.arrived.0, 1);
    }

    fn wait_for_arrivals(&self, count: usize) {
        loop {
            // Acquire: see `arrive`.
            let arrived = self.arrived.load(Ordering::Acquire);
            if arrived as usize >= count {
                return;
            }
            W::park(&self.arrived, arrived, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use coreline_sim::{Failure, Machine, Run, Sim};
    use coreline_world::{Native, Place};

    use super::*;

    fn run(params: ShootdownParams) -> Result<Run<Result<Shots, RunError>>, Box<Failure>> {
        let machine = Machine::preset("ivybridge-ex-4s").unwrap().step_limit(5_000_000);
        machine.run(move || shootdown::<Sim>(&params))
    }

    fn params(present: usize, variant: Variant) -> ShootdownParams {
        ShootdownParams {
            cpus: (0..30).map(CpuId::new).collect(),
            present,
            variant,
            updates: 20,
            seed: 1,
        }
    }

    fn simulated(present: usize, variant: Variant) -> Shots {
        run(params(present, variant)).unwrap().value.unwrap()
    }

    #[test]
    fn an_absent_context_costs_a_lazy_update_nothing() {
        let [one, all] = [1, 30].map(|present| {
            [Variant::Lazy, Variant::Eager].map(|variant| simulated(present, variant))
        });
        // Two broadcasts, which take 4 us each, are in every update.
        assert!(one[0].update_ns < one[1].update_ns - 1000.0, "{one:?}");
        assert!(one[0].shootdown_ns < one[1].shootdown_ns - 1000.0, "{one:?}");
        let ratio = all[0].update_ns / all[1].update_ns;
        assert!((0.8..1.25).contains(&ratio), "no context is away: {all:?}");
        assert!(one[0].update_ns < all[0].update_ns, "{one:?} {all:?}");
    }

    #[test]
    fn it_runs_natively_with_the_same_code() {
        for variant in [Variant::Lazy, Variant::Eager] {
            let cpus = vec![Native::cpu(); 2];
            let shots =
                shootdown::<Native>(&ShootdownParams { cpus, ..params(1, variant) }).unwrap();
            assert!(shots.update_ns > 0.0 && shots.shootdown_ns > 0.0);
        }
    }

    #[test]
    fn what_cannot_be_is_a_lack_and_every_thread_ends() {
        let cpus = vec![CpuId::new(0), CpuId::new(1), CpuId::new(120)];
        let absent = ShootdownParams { cpus, ..params(2, Variant::Lazy) };
        for params in [absent, params(31, Variant::Lazy), params(1, Variant::CpuId)] {
            let value = run(params).unwrap().value;
            assert!(!matches!(value, Ok(_) | Err(RunError::Check(_))), "{value:?}");
        }
    }
}
