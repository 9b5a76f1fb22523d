//! When each CPU acts next: a tournament over the CPUs' times.
//!
//! A heap branches unpredictably; a tournament tree updates one leaf and replays the matches on the
//! way to the root, which is the same few instructions every time. A key holds the time and, below
//! it, the CPU: the winner's key says who won, and ties go to the lowest.

use std::hint::select_unpredictable;

/// No time: the CPU has nothing to do.
pub(crate) const NEVER: u64 = u64::MAX;

/// The earliest of a fixed number of times.
pub(crate) struct Agenda {
    /// A heap-shaped tree of keys: leaf `cpu` is at `leaves + cpu`, the winner at 1.
    tree: Vec<u128>,
    leaves: usize,
}

fn key(cpu: usize, time: u64) -> u128 {
    u128::from(time) << 64 | cpu as u128
}

fn time(key: u128) -> u64 {
    (key >> 64) as u64
}

impl Agenda {
    pub(crate) fn new(cpus: usize) -> Agenda {
        let leaves = cpus.next_power_of_two();
        let mut agenda = Agenda { tree: vec![key(0, NEVER); 2 * leaves], leaves };
        for cpu in 0..leaves {
            agenda.tree[leaves + cpu] = key(cpu, NEVER);
        }
        agenda
    }

    pub(crate) fn set(&mut self, cpu: usize, time: u64) {
        let mut node = self.leaves + cpu;
        // One bound for the whole way up.
        let tree = &mut self.tree[..2 * self.leaves];
        let mut best = key(cpu, time);
        tree[node] = best;
        while node > 1 {
            let other = tree[node ^ 1];
            // Who wins is as good as random: no branch.
            best = select_unpredictable(other < best, other, best);
            node /= 2;
            tree[node] = best;
        }
    }

    /// The earliest time.
    pub(crate) fn earliest(&self) -> u64 {
        time(self.tree[1])
    }

    /// The CPU with the earliest time; the lowest of several. Means nothing if that is [`NEVER`].
    pub(crate) fn winner(&self) -> usize {
        self.tree[1] as usize
    }

    /// The earliest time of all CPUs but one, whatever that one's is.
    pub(crate) fn earliest_other(&self, cpu: usize) -> u64 {
        let mut node = self.leaves + cpu;
        let tree = &self.tree[..2 * self.leaves];
        let mut best = NEVER;
        while node > 1 {
            best = best.min(time(tree[node ^ 1]));
            node /= 2;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_wins_and_ties_go_to_the_lowest() {
        for cpus in [1, 2, 3, 64, 65, 384] {
            let mut agenda = Agenda::new(cpus);
            let mut times = vec![NEVER; cpus];
            assert_eq!(agenda.earliest(), NEVER);
            for round in 0..2000_usize {
                let cpu = round * 7919 % cpus;
                let time = if round % 5 == 0 { NEVER } else { (round * 104_729 % 97) as u64 };
                times[cpu] = time;
                agenda.set(cpu, time);
                let earliest = times.iter().copied().min().unwrap();
                assert_eq!(agenda.earliest(), earliest);
                if earliest != NEVER {
                    let first = times.iter().position(|&time| time == earliest).unwrap();
                    assert_eq!(agenda.winner(), first);
                }
                let (before, behind) = (times[..cpu].iter(), times[cpu + 1..].iter());
                let other = before.chain(behind).copied().min().unwrap_or(NEVER);
                assert_eq!(agenda.earliest_other(cpu), other);
            }
        }
    }
}
