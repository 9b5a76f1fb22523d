//! The times at which the CPUs act next: a tournament over these times.
//!
//! A heap branches unpredictably; a tournament tree updates one leaf and replays the matches on the
//! way to the root, the same few instructions every time. A match is a minimum of two numbers, and
//! so no branch either. (With 128-bit keys it compiled to one, which caused three of the eight
//! mispredictions that cachegrind counted in a switch between 192 CPUs.)
//!
//! | key | meaning |
//! |---|---|
//! | `since << bits \| cpu` | it acts at `epoch + since`; of several at one time, the lowest wins |
//! | [`FAR`] | it acts so late that the bits do not hold it |
//! | all bits | it has nothing to do |
//!
//! With 4,096 CPUs a key holds an hour and a quarter. When only later times are left, or one before
//! the epoch comes, another epoch begins, and all keys are made anew.
//!
//! The tree has room for the largest machine, and [`leaf`](EventQueue::leaf) cuts its index to
//! that: so the compiler sees that no index on the way to the root lies outside, and checks none.

use crate::hardware::spec::Spec;

/// Nodes of the tree of the largest machine.
const NODES: usize = 2 * Spec::MOST_CPUS.next_power_of_two();

/// No time: the CPU has nothing to do.
pub(crate) const NEVER: u64 = u64::MAX;

/// The key of a time that is too late for one. As a key, it comes after all keys except
/// [`NEVER`]'s.
const FAR: u64 = NEVER - 1;

/// The earliest of a fixed number of times.
pub(crate) struct EventQueue {
    /// A heap-shaped tree of keys: a CPU's is at its [`leaf`](EventQueue::leaf), the winner at 1.
    tree: Box<[u64; NODES]>,
    times: Vec<u64>,
    epoch: u64,
    /// How many bits of a key are the CPU.
    bits: u32,
}

impl EventQueue {
    pub(crate) fn new(cpus: usize) -> EventQueue {
        let leaves = cpus.next_power_of_two();
        EventQueue {
            tree: Box::new([NEVER; NODES]),
            times: vec![NEVER; leaves],
            epoch: 0,
            bits: leaves.ilog2(),
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, cpu: usize, time: u64) {
        self.times[cpu] = time;
        if time < self.epoch {
            self.rebase();
            return;
        }
        self.enter(cpu, self.key(cpu, time));
        if self.tree[1] == FAR {
            self.rebase();
        }
    }

    /// The key of a time that does not lie before the epoch.
    #[inline]
    fn key(&self, cpu: usize, time: u64) -> u64 {
        let since = time - self.epoch;
        match time {
            NEVER => NEVER,
            _ if since >= FAR >> self.bits => FAR,
            _ => since << self.bits | cpu as u64,
        }
    }

    /// The place of a CPU's key in the tree.
    #[inline]
    fn leaf(&self, cpu: usize) -> usize {
        (self.times.len() + cpu) % NODES
    }

    /// Replays the matches of one CPU.
    #[inline]
    fn enter(&mut self, cpu: usize, key: u64) {
        let mut node = self.leaf(cpu);
        let mut best = key;
        self.tree[node] = best;
        while node > 1 {
            best = best.min(self.tree[node ^ 1]);
            node /= 2;
            self.tree[node] = best;
        }
    }

    /// Begins a new epoch, with the earliest time.
    #[cold]
    fn rebase(&mut self) {
        self.epoch = self.times.iter().copied().min().unwrap_or(NEVER);
        for cpu in 0..self.times.len() {
            self.enter(cpu, self.key(cpu, self.times[cpu]));
        }
    }

    fn time(&self, key: u64) -> u64 {
        if key == NEVER { NEVER } else { self.epoch + (key >> self.bits) }
    }

    /// The earliest time.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.time(self.tree[1])
    }

    /// The CPU with the earliest time; the lowest of several. Means nothing if that is [`NEVER`].
    #[inline]
    pub(crate) fn winner(&self) -> usize {
        self.tree[1] as usize & (self.times.len() - 1)
    }

    /// The earliest time of all CPUs but one, whatever that one's is.
    #[inline]
    pub(crate) fn earliest_other(&self, cpu: usize) -> u64 {
        let mut node = self.leaf(cpu);
        let mut best = NEVER;
        while node > 1 {
            best = best.min(self.tree[node ^ 1]);
            node /= 2;
        }
        match best {
            FAR => self.earliest_far(cpu),
            best => self.time(best),
        }
    }

    #[cold]
    fn earliest_far(&self, cpu: usize) -> u64 {
        let (before, behind) = (&self.times[..cpu], &self.times[cpu + 1..]);
        before.iter().chain(behind).copied().min().unwrap_or(NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_wins_and_ties_go_to_the_lowest() {
        for cpus in [1, 2, 3, 64, 65, 384, Spec::MOST_CPUS] {
            let mut events = EventQueue::new(cpus);
            let mut times = vec![NEVER; cpus];
            assert_eq!(events.earliest(), NEVER);
            for round in 0..2000_usize {
                let cpu = round * 7919 % cpus;
                let near = (round * 104_729 % 97) as u64;
                // In between, times that no key holds, alone and among others.
                let time = match round % 5 {
                    0 => NEVER,
                    _ if round / 500 % 2 == 1 => near << 57,
                    _ => near,
                };
                times[cpu] = time;
                events.set(cpu, time);
                let earliest = times.iter().copied().min().unwrap();
                assert_eq!(events.earliest(), earliest);
                if earliest != NEVER {
                    let first = times.iter().position(|&time| time == earliest).unwrap();
                    assert_eq!(events.winner(), first);
                }
                let (before, behind) = (times[..cpu].iter(), times[cpu + 1..].iter());
                let other = before.chain(behind).copied().min().unwrap_or(NEVER);
                assert_eq!(events.earliest_other(cpu), other);
            }
        }
    }
}
