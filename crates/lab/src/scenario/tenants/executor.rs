//! The executor: a worker on each CPU, which polls the tasks that are its own in each round.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use coreline_world::{JoinHandle, Placement, Testbed, Time};
use rand_pcg::Pcg64;

use super::schedule::{Schedule, draw};
use super::{
    Costs, Counters, Footprint, OPERATIONS, Remote, RunError, TenantsParams, WORDS,
    from_other_nodes,
};
use crate::scenario::switchstorm::Barrier;

/// From the beginning of a round to that of the next.
const ROUND: Duration = Duration::from_millis(20);

/// Rounds that are not counted. Both are longer than IDs live twice over: 240 ms.
const WARM_UP: usize = 12;
const COUNTED: usize = 12;
const ROUNDS: usize = WARM_UP + COUNTED;

/// Workers begin in this part of a round.
const PHASE: Duration = Duration::from_millis(1);

/// The streams of the generators that draw when workers begin; one for each.
const PHASES: u128 = 0x7e4b_0000;

struct Executor<W: Testbed, C: Counters<W>> {
    params: TenantsParams,
    schedule: Schedule,
    counters: C,
    /// What tasks have. In a round a task belongs to one worker, so no thread waits; and the
    /// simulator sees none of it.
    handles: Vec<Mutex<C::Handle>>,
    barrier: Barrier<W>,
}

/// What a worker has seen in the rounds that count.
#[derive(Default)]
struct Tally {
    polling: Duration,
    polls: usize,
    id_changes: usize,
    /// Lines that came from other nodes until counting began, and in the end: all, and those of
    /// counters. Of worker 0, simulated.
    remote: Vec<[u64; 2]>,
}

pub(super) fn run<W: Testbed, C: Counters<W>>(params: &TenantsParams) -> Result<Costs, RunError> {
    let (tenants, cpus) = (params.tenants, &params.cpus);
    let tasks = tenants * params.tasks;
    let counters = C::new_in(tenants, cpus.len())?;
    let handle = |task: usize| counters.handle(task / params.tasks).map(Mutex::new);
    let handles = (0..tasks).map(handle).collect::<Result<_, _>>()?;
    let schedule = Schedule::new(&W::topology(), cpus, tasks, ROUNDS, params.seed);
    let barrier = Barrier::new(cpus);
    let params = params.clone();
    let executor = Arc::new(Executor::<W, C> { params, schedule, counters, handles, barrier });
    let mut workers = Vec::with_capacity(executor.params.cpus.len());
    for (number, &cpu) in executor.params.cpus.iter().enumerate() {
        let theirs = Arc::clone(&executor);
        match W::spawn(Placement::On(cpu), move || theirs.work(number)) {
            Ok(worker) => workers.push(worker),
            Err(error) => {
                executor.barrier.give_up();
                workers.into_iter().for_each(|worker| drop(worker.join()));
                return Err(error.into());
            }
        }
    }
    let tallies: Vec<Tally> = workers.into_iter().map(JoinHandle::join).collect();
    executor.check()?;
    Ok(executor.costs(&tallies))
}

impl<W: Testbed, C: Counters<W>> Executor<W, C> {
    /// A worker's part.
    fn work(&self, number: usize) -> Tally {
        let mut tally = Tally::default();
        let mut ids = BTreeMap::new();
        let mut dice = Pcg64::new(u128::from(self.params.seed), PHASES + number as u128);
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
            sleep_until::<W>(first + ROUND * (round as u32 + 1));
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
        let tenant = |task: usize| task / self.params.tasks;
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
            let id = self.counters.id_at(tenant, self.params.cpus[number]);
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

    /// Whether all additions to a word of each tenant are there.
    fn check(&self) -> Result<(), RunError> {
        let expected = (self.params.tasks * ROUNDS) as u64;
        for tenant in 0..self.params.tenants {
            let which = tenant % WORDS;
            let sum = self.counters.sum(tenant, which);
            if sum != expected {
                let found = format!("tenant {tenant} counts {sum} in word {which}, not {expected}");
                return Err(RunError::Check(found));
            }
        }
        Ok(())
    }

    fn costs(&self, tallies: &[Tally]) -> Costs {
        let sum = |part: fn(&Tally) -> usize| tallies.iter().map(part).sum::<usize>() as f64;
        let operations = sum(|tally| tally.polls) * OPERATIONS as f64;
        let polling: Duration = tallies.iter().map(|tally| tally.polling).sum();
        let remote = match &tallies[0].remote[..] {
            [before, after] => {
                let of = |which: usize| {
                    1000.0 * after[which].saturating_sub(before[which]) as f64 / operations
                };
                Some(Remote { all: of(0), slots: of(1) })
            }
            _ => None,
        };
        let Footprint { bytes, slots } = self.counters.footprint();
        let tenants = self.params.tenants as f64;
        let id_changes = 1000.0 * sum(|tally| tally.id_changes) / operations;
        Costs {
            footprint: Footprint { bytes: bytes / tenants, slots: slots / tenants },
            op_ns: polling.as_nanos() as f64 / operations,
            id_changes,
            remote,
        }
    }
}

fn sleep_until<W: Testbed>(time: Time) {
    let now = W::now();
    if now < time {
        W::sleep(time - now);
    }
}
