//! The executor, which has a worker on each CPU. In each round, a worker polls its tasks.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use coreline_topology::CpuId;
use coreline_world::{Line, Testbed};
use rand_pcg::Pcg64;

use super::schedule::Schedule;
use super::{Counters, OPERATIONS, RunError, Setup, WORDS, from_other_nodes};
use crate::crew::{Barrier, crew, pinned};
use crate::draw;

/// The time from the beginning of a round to the beginning of the next.
pub const ROUND: Duration = Duration::from_millis(20);

/// Rounds that are not counted. Both are longer than IDs live twice over: 240 ms.
const WARM_UP: usize = 12;
const COUNTED: usize = 12;
const ROUNDS: usize = WARM_UP + COUNTED;

/// The first part of a round, in which workers begin.
pub const PHASE: Duration = Duration::from_millis(1);

/// The streams of the generators that draw when workers begin; one for each.
const PHASES: u128 = 0x7e4b_0000;

struct Executor<W: Testbed, C: Counters<W>> {
    /// A worker on each.
    cpus: Vec<CpuId>,
    tenants: usize,
    /// How many tasks each tenant has.
    each: usize,
    seed: u64,
    schedule: Schedule,
    counters: C,
    /// The handles of tasks. In a round a task belongs to one worker, so no thread waits; and the
    /// simulator sees none of it.
    handles: Vec<Mutex<C::Handle>>,
    barrier: Barrier<W>,
}

/// The counts of a worker in the rounds that count.
#[derive(Default)]
struct Tally {
    polling: Duration,
    polls: usize,
    id_changes: usize,
    /// Lines that came from other nodes until counting began, and in the end: all, and those of
    /// counters. Of worker 0, simulated.
    remote: Vec<[u64; 2]>,
}

/// Runs all tasks. Returns the numbers in the order of their declarations. All numbers after the
/// footprint are from the steady state. Changes of a CPU's ID in a tenant, and lines that came from
/// other nodes' caches, are counted per thousand operations.
///
/// # Errors
///
/// [`RunError`] if a thread could not be started, if there is no memory, or if an addition was
/// lost.
pub fn execute<W: Testbed, C: Counters<W>>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    let [tenants, each] = ["tenants", "tasks"].map(|name| setup.number(name) as usize);
    let (tasks, cpus) = (tenants * each, &setup.cpus);
    let counters = C::new_in(tenants, cpus.len())?;
    let handle = |task: usize| Mutex::new(counters.handle(task / each));
    let handles = (0..tasks).map(handle).collect();
    let schedule = Schedule::new(&W::topology(), cpus, tasks, ROUNDS, setup.seed);
    let barrier = Barrier::new(cpus);
    let (cpus, seed) = (cpus.clone(), setup.seed);
    let shared =
        Executor::<W, C> { cpus, tenants, each, seed, schedule, counters, handles, barrier };
    let executor = Arc::new(shared);
    let tallies = crew::<W, _, _>(&executor, pinned(&setup.cpus), Executor::work, |missing| {
        if missing.is_some() {
            executor.barrier.give_up();
        }
    })?;
    executor.check()?;
    Ok(executor.numbers(&tallies))
}

impl<W: Testbed, C: Counters<W>> Executor<W, C> {
    fn work(&self, number: usize) -> Tally {
        let mut tally = Tally::default();
        let mut ids = BTreeMap::new();
        let mut dice = Pcg64::new(u128::from(self.seed), PHASES + number as u128);
        if !self.barrier.wait(number) {
            return tally;
        }
        let first = W::now();
        for round in 0..=ROUNDS {
            if round == WARM_UP {
                tally = Tally::default();
            }
            if [WARM_UP, ROUNDS].contains(&round) {
                self.note_remote(number, &mut tally);
            }
            self.barrier.wait(number);
            if round == ROUNDS {
                break;
            }
            W::work(Duration::from_nanos(draw(&mut dice, PHASE.as_nanos() as usize) as u64));
            self.poll_all(number, round, &mut tally, &mut ids);
            let (now, next) = (W::now(), first + ROUND * (round as u32 + 1));
            if now < next {
                W::sleep(next - now);
            }
            self.barrier.wait(number);
        }
        tally
    }

    /// Polls each task that is this worker's now.
    fn poll_all(
        &self,
        number: usize,
        round: usize,
        tally: &mut Tally,
        ids: &mut BTreeMap<usize, u32>,
    ) {
        let tenant = |task: usize| task / self.each;
        let handle = |&task: &usize| {
            (tenant(task), self.handles[task].lock().unwrap_or_else(PoisonError::into_inner))
        };
        let mut tasks: Vec<_> = self.schedule.tasks(round, number).iter().map(handle).collect();
        let start = W::now();
        for (tenant, handle) in &mut tasks {
            self.counters.poll(*tenant, handle);
        }
        tally.polling += W::now() - start;
        tally.polls += tasks.len();
        for (tenant, _) in tasks {
            let id = self.counters.id_at(tenant, self.cpus[number]);
            if let Some(id) = id
                && ids.insert(tenant, id) != Some(id)
            {
                tally.id_changes += 1;
            }
        }
    }

    /// Only worker 0 notes anything; the others go on to the next barrier.
    fn note_remote(&self, number: usize, tally: &mut Tally) {
        if number > 0 {
            return;
        }
        let mut lines = self.counters.lines();
        lines.sort_unstable();
        let of_counters = |line: usize| lines.binary_search(&line).is_ok();
        let all = coreline_sim::transfers(|line| !self.barrier.has_line(line));
        let slots = coreline_sim::transfers(of_counters);
        if let (Some(all), Some(slots)) = (all, slots) {
            tally.remote.push([from_other_nodes(&all), from_other_nodes(&slots)]);
        }
    }

    /// Whether the words of all tenants contain all additions.
    fn check(&self) -> Result<(), RunError> {
        let expected = (self.each * ROUNDS) as u64;
        for tenant in 0..self.tenants {
            let which = tenant % WORDS;
            let sum = self.counters.sum(tenant, which);
            if sum != expected {
                let found = format!("tenant {tenant} counts {sum} in word {which}, not {expected}");
                return Err(RunError::Check(found));
            }
        }
        Ok(())
    }

    fn numbers(&self, tallies: &[Tally]) -> Vec<f64> {
        let sum = |part: fn(&Tally) -> usize| tallies.iter().map(part).sum::<usize>() as f64;
        let operations = sum(|tally| tally.polls) * OPERATIONS as f64;
        let polling: Duration = tallies.iter().map(|tally| tally.polling).sum();
        let [bytes, slots] = self.counters.footprint().map(|of| of / self.tenants as f64);
        let mut numbers = vec![
            bytes,
            (self.cpus.len() * size_of::<Line<[u64; WORDS]>>()) as f64,
            slots,
            polling.as_nanos() as f64 / operations,
            1000.0 * sum(|tally| tally.id_changes) / operations,
        ];
        if let [before, after] = &tallies[0].remote[..] {
            let remote = |which: usize| after[which].saturating_sub(before[which]);
            numbers.extend([0, 1].map(|which| 1000.0 * remote(which) as f64 / operations));
        }
        numbers
    }
}
