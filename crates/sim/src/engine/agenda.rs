//! When each CPU acts next: a tournament over the CPUs' times.
//!
//! A heap branches unpredictably; a tournament tree updates one leaf and replays the matches on the
//! way to the root, which is the same few instructions every time.

/// No time: the CPU has nothing to do.
pub(crate) const NEVER: u64 = u64::MAX;

/// The earliest of a fixed number of times.
pub(crate) struct Agenda {
    /// A heap-shaped tree of times: leaf `cpu` is at `leaves + cpu`, the winner at 1.
    tree: Vec<u64>,
    leaves: usize,
}

impl Agenda {
    pub(crate) fn new(cpus: usize) -> Agenda {
        let leaves = cpus.next_power_of_two();
        Agenda { tree: vec![NEVER; 2 * leaves], leaves }
    }

    pub(crate) fn set(&mut self, cpu: usize, time: u64) {
        let mut node = self.leaves + cpu;
        self.tree[node] = time;
        while node > 1 {
            node /= 2;
            self.tree[node] = self.tree[2 * node].min(self.tree[2 * node + 1]);
        }
    }

    /// The earliest time.
    pub(crate) fn earliest(&self) -> u64 {
        self.tree[1]
    }

    /// The CPU with the earliest time; the lowest of several.
    pub(crate) fn winner(&self) -> usize {
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            if self.tree[node] != self.tree[node / 2] {
                node += 1;
            }
        }
        node - self.leaves
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
            }
        }
    }
}
