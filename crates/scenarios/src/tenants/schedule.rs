//! The schedule, which says which worker polls which task in each round. It is chosen at random
//! before the run, and is the same for all variants.

use coreline_topology::{CpuId, Topology};
use rand_pcg::Pcg64;

use crate::{draw, shuffle};

/// How many of a thousand tasks move in a round.
const MOVES: u64 = 20;

/// How many of a hundred moves go to a worker under the same last-level cache, and how many to one
/// under another cache of the same node. The rest go to another node.
const NEAR: u64 = 75;
const SAME_NODE: u64 = 19;

/// The stream of the generator that draws the schedule.
const STREAM: u128 = 0x7e4a;

/// The numbers of the tasks that each worker polls in each round, in the order of polls.
pub struct Schedule(Vec<Vec<Vec<usize>>>);

impl Schedule {
    /// Creates a schedule for workers on these CPUs.
    pub fn new(
        topology: &Topology,
        cpus: &[CpuId],
        tasks: usize,
        rounds: usize,
        seed: u64,
    ) -> Self {
        let mut dice = Pcg64::new(u128::from(seed), STREAM);
        let mut places: Vec<usize> = (0..tasks).map(|_| draw(&mut dice, cpus.len())).collect();
        let others: Vec<[Vec<usize>; 3]> =
            (0..cpus.len()).map(|worker| others(topology, cpus, worker)).collect();
        let round = |_| {
            let mut polls = vec![Vec::new(); cpus.len()];
            for (task, place) in places.iter_mut().enumerate() {
                if draw(&mut dice, 1000) < MOVES as usize {
                    *place = destination(&others[*place], &mut dice).unwrap_or(*place);
                }
                polls[*place].push(task);
            }
            polls.iter_mut().for_each(|tasks| shuffle(tasks, &mut dice));
            polls
        };
        Schedule((0..rounds).map(round).collect())
    }

    /// Returns the tasks of a worker in a round.
    pub fn tasks(&self, round: usize, worker: usize) -> &[usize] {
        &self.0[round][worker]
    }
}

/// Returns the other workers in three groups. The groups are the workers under the same cache, the
/// other workers of the same node, and all others.
pub fn others(topology: &Topology, cpus: &[CpuId], worker: usize) -> [Vec<usize>; 3] {
    let place = |worker: usize| topology.cpu(cpus[worker]).map(|cpu| (cpu.node, cpu.cache));
    let mut others = [const { Vec::new() }; 3];
    for other in (0..cpus.len()).filter(|&other| other != worker) {
        let distance = match (place(worker), place(other)) {
            (Some(here), Some(there)) if here == there => 0,
            (Some((node, _)), Some((other, _))) if node == other => 1,
            _ => 2,
        };
        others[distance].push(other);
    }
    others
}

/// The worker that a task moves to: the nearest one where there is none at the distance that was
/// drawn. `None` if there are no other workers.
fn destination(others: &[Vec<usize>; 3], dice: &mut Pcg64) -> Option<usize> {
    let distance = match draw(dice, 100) as u64 {
        near if near < NEAR => 0,
        same if same < NEAR + SAME_NODE => 1,
        _ => 2,
    };
    let has = |distance: &usize| !others[*distance].is_empty();
    let distance = Some(distance).filter(has).or_else(|| (0..3).find(has))?;
    let others = &others[distance];
    Some(others[draw(dice, others.len())])
}
