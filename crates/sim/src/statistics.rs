//! Full statistics: what accesses cost by line, by place in the source and by CPU.

use core::panic::Location;

use crate::coherence::From;
use crate::report::Transfers;

/// A place in the source of the simulated program.
pub(crate) type Site = &'static Location<'static>;

/// What a CPU's time is spent on. Idle is what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Accesses that the core's own cache serves, and stores on their way into the buffer.
    Hit,
    /// Waiting for lines on their way.
    Miss,
    /// Waiting for a turn at a line, for stores to leave the buffer, or for another's store.
    Queue,
    /// Spinning.
    Spin,
    /// Computing without touching shared memory.
    Compute,
    /// In the kernel, or switching from one thread to the next.
    Kernel,
}

impl Kind {
    pub(crate) const COUNT: usize = Kind::Kernel as usize + 1;
}

/// What the accesses of one place in the source to one word cost.
pub(crate) struct Tally {
    pub(crate) site: Site,
    /// The word's place in its line.
    pub(crate) offset: u8,
    pub(crate) transfers: Transfers,
    /// Picoseconds in the queue at the line.
    pub(crate) queue: u64,
    /// Picoseconds from beginning to end.
    pub(crate) time: u64,
}

/// Everything that is kept.
#[derive(Default)]
pub(crate) struct Ledger {
    /// By the line's index in the directory.
    pub(crate) lines: Vec<Vec<Tally>>,
    /// Picoseconds of each CPU by kind.
    pub(crate) cpus: Vec<[u64; Kind::COUNT]>,
    /// What the program calls parts of its memory: first address, bytes, name.
    pub(crate) names: Vec<(u64, u64, String)>,
}

impl Ledger {
    pub(crate) fn new(cpus: usize) -> Ledger {
        Ledger { cpus: vec![[0; Kind::COUNT]; cpus], ..Ledger::default() }
    }

    /// The tally of a place's accesses to the word at `address`.
    fn tally(&mut self, line: usize, site: Site, address: usize) -> &mut Tally {
        let offset = (address % 64) as u8;
        if self.lines.len() <= line {
            self.lines.resize_with(line + 1, Vec::new);
        }
        let tallies = &mut self.lines[line];
        let is_it = |tally: &Tally| core::ptr::eq(tally.site, site) && tally.offset == offset;
        let index = tallies.iter().position(is_it).unwrap_or_else(|| {
            let transfers = Transfers::default();
            tallies.push(Tally { site, offset, transfers, queue: 0, time: 0 });
            tallies.len() - 1
        });
        &mut tallies[index]
    }

    /// An access that took `time` picoseconds, `queue` of them waiting for its turn.
    pub(crate) fn access(
        &mut self,
        (line, site, address): (usize, Site, usize),
        from: From,
        queue: u64,
        time: u64,
    ) {
        let tally = self.tally(line, site, address);
        from.count(&mut tally.transfers);
        tally.queue += queue;
        tally.time += time;
    }
}
