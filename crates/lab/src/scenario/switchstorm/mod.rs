//! `switchstorm`: every CPU of a domain alternates between a thread of it and idle (seed 003).
//!
//! One thread for each CPU, pinned to it, goes round: idle, switch-in, run, switch-out. Variants
//! differ in the mask of the CPUs that a flush of the domain's mappings has to reach, as the kernel
//! keeps one for each `mm`. A CPU that idles keeps its bit, so at switch-in the bit is mostly set
//! already, and the question is what it costs to make sure.
//!
//! | variant | at switch-in | the mask | a flush clears idle CPUs' bits |
//! |---|---|---|---|
//! | `always-set` | locked set | dense | each time |
//! | `test-first` | test; locked set if clear | dense | each time |
//! | `lazy` | as `test-first` | dense | once a second at most |
//! | `refcounted` | as `lazy`, and drops a reference; switch-out takes one | dense | as `lazy` |
//! | `two-level` | as `test-first` | [`CpuMask`](coreline::CpuMask) | each time |
//!
//! Each differs from one before it in one thing. The switch path around it is one generic
//! function, [`Storm::cycle`]; a dense mask is the kernel's, a bit for each CPU number, 512 to a
//! line.
//!
//! | wake-up | idle until | run |
//! |---|---|---|
//! | `barrier` | all have run, as linpack's threads between two steps | a period |
//! | `independent` | half a period has passed | half a period |
//!
//! Declared, and not measured: the period, the rest of the switch path, and how often there is a
//! flush. While a CPU idles, nothing runs on it: natively the thread waits there.
//!
//! A flush is thread 0's: it reads the owner-written word of each CPU in the mask, clears the bits
//! of those that idle, and looks again, as a CPU may have come back in between. In the kernel of
//! the seed an idle CPU is interrupted and clears its bit itself; here the flush does it, so that
//! the interrupts' own cost is in no variant.
//!
//! The scenario checks itself: in the end every thread is switched in, and every bit must be set.

mod barrier;
mod policy;
mod program;

use core::time::Duration;
use std::sync::Arc;

use clap::ValueEnum;
use coreline_topology::CpuId;
use coreline_world::{JoinHandle, Line, Ordering, Placement, Testbed, Time, Word};
use rand_core::Rng;
use rand_pcg::Pcg64;

use policy::{AlwaysSet, Mask, Policy, Refcounted, TestFirst, TwoLevel};

use super::{RunError, Variant};

pub(crate) use barrier::Barrier;
pub(crate) use policy::{is_mask, is_references};
pub(crate) use program::{MOST_PATH_NS, MOST_US, SwitchstormProgram};

/// How CPUs stop idling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Wake {
    /// All at once, when all have run
    Barrier,
    /// Each for itself, by its own clock
    Independent,
}

impl std::fmt::Display for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        super::fmt_name(self, f)
    }
}

/// What one run depends on.
#[derive(Debug, Clone)]
pub(crate) struct SwitchstormParams {
    /// One thread is pinned to each.
    pub(crate) cpus: Vec<CpuId>,
    pub(crate) variant: Variant,
    pub(crate) wake: Wake,
    pub(crate) period: Duration,
    /// What a switch takes without the policy's part.
    pub(crate) path: Duration,
    /// From one flush to the next; zero: there are none.
    pub(crate) flush: Duration,
    /// How often each thread goes round and is counted.
    pub(crate) rounds: u32,
    /// Seeds where in its period each thread begins.
    pub(crate) seed: u64,
}

/// Rounds that are not counted: lines come from memory, bits are set for the first time.
const WARM_UP: u32 = 5;

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Storms {
    /// The policy's part of a switch-in and the switch-out after it, mean.
    pub(crate) op_ns: f64,
    /// The share of both switches in the time that is not idle.
    pub(crate) path_share: f64,
    /// From the first thread's wake-up to the last one's, mean over the rounds. Of `barrier`.
    pub(crate) spread_ns: f64,
    /// Rounds in a second, mean.
    pub(crate) rate: f64,
    /// The same of the fastest tenth of the run, as thread 0 sees it.
    pub(crate) peak_rate: f64,
}

/// Runs the scenario.
///
/// # Errors
///
/// [`RunError`] if a thread cannot be started, or if a running thread's bit is clear in the end.
pub(crate) fn switchstorm<W: Testbed>(params: &SwitchstormParams) -> Result<Storms, RunError> {
    match params.variant {
        Variant::AlwaysSet => storm::<W, AlwaysSet<W>>(params, Duration::ZERO),
        Variant::TestFirst => storm::<W, TestFirst<W>>(params, Duration::ZERO),
        Variant::Lazy => storm::<W, TestFirst<W>>(params, TRIM_EVERY),
        Variant::Refcounted => storm::<W, Refcounted<W>>(params, TRIM_EVERY),
        Variant::TwoLevel => storm::<W, TwoLevel<W>>(params, Duration::ZERO),
        other => Err(RunError::Lack(format!("{other} is no variant of switchstorm"))),
    }
}

/// How often bits of idle CPUs are cleared, at most, by the kernel since 6.13.
const TRIM_EVERY: Duration = Duration::from_secs(1);

/// What a CPU does, in its own word, which only it writes.
const IDLE: u32 = 0;
const RUNNING: u32 = 1;

struct Storm<W: Testbed, P> {
    params: SwitchstormParams,
    policy: P,
    states: Vec<Line<W::U32>>,
    barrier: Barrier<W>,
    trim_every: Duration,
}

/// What a thread has seen.
#[derive(Default)]
struct Tally {
    op: u64,
    path: u64,
    run: u64,
    /// When it was woken, in each counted round, and when the last one ended.
    starts: Vec<u64>,
}

fn storm<W: Testbed, P: Policy<W>>(
    params: &SwitchstormParams,
    trim_every: Duration,
) -> Result<Storms, RunError> {
    let storm = Arc::new(Storm::<W, P> {
        policy: P::new(&params.cpus)?,
        states: params.cpus.iter().map(|_| Line(W::U32::new_in(IDLE))).collect(),
        barrier: Barrier::new(&params.cpus),
        params: params.clone(),
        trim_every,
    });
    storm.policy.name();
    let mut threads = Vec::with_capacity(params.cpus.len());
    for (number, &cpu) in params.cpus.iter().enumerate() {
        let theirs = Arc::clone(&storm);
        match W::spawn(Placement::On(cpu), move || theirs.work(number)) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                storm.barrier.give_up();
                threads.into_iter().for_each(|thread| drop(thread.join()));
                return Err(error.into());
            }
        }
    }
    let tallies: Vec<Tally> = threads.into_iter().map(JoinHandle::join).collect();
    let clear: Vec<_> = params.cpus.iter().filter(|&&cpu| !storm.policy.mask().test(cpu)).collect();
    if let Some(cpu) = clear.first() {
        let (clear, all) = (clear.len(), params.cpus.len());
        let found = format!("{cpu} runs and its bit is clear, as that of {clear} of {all} CPUs");
        return Err(RunError::Check(found));
    }
    Ok(Storms::of(&tallies))
}

impl<W: Testbed, P: Policy<W>> Storm<W, P> {
    /// A thread's part.
    fn work(&self, number: usize) -> Tally {
        let mut tally = Tally::default();
        let clock = clock_ns::<W>();
        if !self.barrier.wait(number) {
            return tally;
        }
        if self.params.wake == Wake::Independent {
            let mut dice = Pcg64::new(u128::from(self.params.seed), PHASE + number as u128);
            // The high half of a 64 x 64 bit product: below the period.
            let span = (self.params.period.as_nanos() * u128::from(dice.next_u64())) >> 64;
            W::work(Duration::from_nanos(span as u64));
        }
        let mut flushed = W::now();
        let mut trimmed = flushed;
        for round in 0..WARM_UP + self.params.rounds {
            if round == WARM_UP {
                tally = Tally::default();
            }
            self.cycle(number, clock, &mut tally, || {
                let due = self.params.flush;
                if number == 0 && !due.is_zero() && W::now() - flushed >= due {
                    flushed = W::now();
                    self.flush(&mut trimmed);
                }
            });
        }
        tally.starts.push(W::now().as_nanos());
        self.switch_in(number);
        tally
    }

    /// One round.
    fn cycle(&self, number: usize, clock: u64, tally: &mut Tally, then: impl FnOnce()) {
        let SwitchstormParams { wake, period, path, .. } = self.params;
        let run = match wake {
            Wake::Barrier => {
                self.barrier.wait(number);
                period
            }
            Wake::Independent => {
                W::work(period / 2);
                period / 2
            }
        };
        let woken = W::now();
        W::work(path);
        let op = self.switch_in(number);
        let running = W::now();
        W::work(run);
        then();
        let done = W::now();
        self.policy.switch_out();
        let left = W::now();
        // Release: the partner is the Acquire load in `flush`.
        self.states[number].store(IDLE, Ordering::Release);
        W::work(path);
        let idle = W::now();
        // Two looks at the clock lie around each part; the time of one is in what it shows.
        tally.op += op.saturating_sub(clock) + nanos(done, left).saturating_sub(clock);
        tally.path += nanos(woken, running) + nanos(done, idle);
        tally.run += nanos(running, done);
        tally.starts.push(woken.as_nanos());
    }

    /// The policy's part of a switch. Returns its nanoseconds, including one look at the clock.
    fn switch_in(&self, number: usize) -> u64 {
        // Release: the partner is the Acquire load in `flush`.
        self.states[number].store(RUNNING, Ordering::Release);
        // Pairs with the heavy fence in `flush`. Without it the flush could miss that this CPU
        // runs, while this CPU finds the bit that the flush is about to clear.
        W::fence_light();
        let start = W::now();
        self.policy.switch_in(self.params.cpus[number]);
        nanos(start, W::now())
    }

    /// Reaches the CPUs that the mask names, and clears the bits of those that idle.
    fn flush(&self, trimmed: &mut Time) {
        let now = W::now();
        let trims = now - *trimmed >= self.trim_every;
        if trims {
            *trimmed = now;
        }
        // Acquire: the partners are the Release stores in `switch_in` and `cycle`.
        let idles = |number: &usize| self.states[*number].load(Ordering::Acquire) == IDLE;
        let present = (0..self.states.len())
            .filter(|&number| self.policy.mask().test(self.params.cpus[number]));
        let idle: Vec<usize> = present.filter(idles).collect();
        if trims {
            idle.iter().for_each(|&number| self.policy.mask().clear(self.params.cpus[number]));
        }
        // Natively this interrupts every CPU that runs a thread of this process, as a flush does.
        // Pairs with the light fence in `switch_in`: a CPU that runs from here on, and is not seen
        // to below, finds its bit clear.
        W::fence_all();
        if trims {
            let back = idle.iter().filter(|number| !idles(number));
            back.for_each(|&number| self.policy.mask().set(self.params.cpus[number]));
        }
    }
}

/// The stream of the generator that draws where threads begin; one for each.
const PHASE: u128 = 0x5707;

fn nanos(from: Time, to: Time) -> u64 {
    to.as_nanos().saturating_sub(from.as_nanos())
}

/// What two looks at the clock show if nothing is between them.
fn clock_ns<W: Testbed>() -> u64 {
    (0..64).map(|_| nanos(W::now(), W::now())).min().unwrap_or(0)
}

impl Storms {
    fn of(tallies: &[Tally]) -> Storms {
        let sum = |part: fn(&Tally) -> u64| tallies.iter().map(part).sum::<u64>() as f64;
        let rounds = tallies[0].starts.len() - 1;
        let of_round = |round: usize| tallies.iter().map(move |tally| tally.starts[round]);
        let spread =
            |round| of_round(round).max().unwrap_or(0) - of_round(round).min().unwrap_or(0);
        let spreads: u64 = (0..rounds).map(spread).sum();
        let (path, run) = (sum(|tally| tally.path), sum(|tally| tally.run));
        let elapsed = sum(|tally| tally.starts[tally.starts.len() - 1] - tally.starts[0]);
        // That many rounds, from any round on.
        let tenth = rounds.div_ceil(10);
        let spans = tallies[0].starts.windows(tenth + 1).map(|starts| starts[tenth] - starts[0]);
        let threads = tallies.len() as f64;
        Storms {
            op_ns: sum(|tally| tally.op) / (threads * rounds as f64),
            path_share: 100.0 * path / (path + run),
            spread_ns: spreads as f64 / rounds as f64,
            rate: 1e9 * rounds as f64 * threads / elapsed,
            peak_rate: 1e9 * tenth as f64 / spans.min().unwrap_or(1).max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests;
