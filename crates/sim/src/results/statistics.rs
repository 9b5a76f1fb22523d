//! Full statistics: what accesses cost by line, by place in the source and by CPU.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::hardware::coherence::Origin;
use crate::results::false_sharing::{self, Missed, Misses, Word};
use crate::results::locks::Locks;
use crate::results::report::{
    AccessCost, CpuTime, Details, LineCost, Site, SiteCost, SourceSite, Transfers, WordCost,
};
use crate::results::tape::Tape;

/// The activity on which a CPU spends its time. Idle is what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
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

impl Activity {
    pub(crate) const COUNT: usize = Activity::Kernel as usize + 1;
}

/// The cost of the accesses of one place in the source to one word.
pub(crate) struct Tally {
    pub(crate) site: Site,
    /// The word's place in its line.
    pub(crate) offset: u8,
    pub(crate) transfers: Transfers,
    /// Picoseconds in the queue at the line.
    pub(crate) queue: u64,
    /// Picoseconds from beginning to end.
    pub(crate) time: u64,
    /// How often each core missed, by its number.
    missed: Vec<(u32, Missed)>,
}

impl Tally {
    fn miss(&mut self, core: u32, writes: bool) {
        let missed = Missed { reads: u64::from(!writes), writes: u64::from(writes) };
        match self.missed.binary_search_by_key(&core, |&(core, _)| core) {
            Ok(index) => self.missed[index].1.add(missed),
            Err(index) => self.missed.insert(index, (core, missed)),
        }
    }
}

/// The program's names for parts of its memory: first address, bytes, name.
#[derive(Default)]
pub(crate) struct Names(pub(crate) Vec<(u64, u64, String)>);

impl Names {
    /// The names of some of its memory, in the order in which it gave them.
    pub(crate) fn of(&self, address: u64, len: u64) -> Vec<String> {
        let mut names = Vec::new();
        for (first, bytes, name) in &self.0 {
            if *first < address + len && address < first + bytes && !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

/// Everything that is kept.
#[derive(Default)]
pub(crate) struct Ledger {
    /// The counts by the line's index in the directory.
    pub(crate) lines: Vec<Vec<Tally>>,
    /// Picoseconds of each CPU by activity.
    pub(crate) cpus: Vec<[u64; Activity::COUNT]>,
    /// The record of all accesses, if they are recorded.
    pub(crate) tape: Option<Tape>,
}

impl Ledger {
    pub(crate) fn new(cpus: usize, tape: Option<Tape>) -> Ledger {
        Ledger { cpus: vec![[0; Activity::COUNT]; cpus], tape, ..Ledger::default() }
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
            tallies.push(Tally { site, offset, transfers, queue: 0, time: 0, missed: Vec::new() });
            tallies.len() - 1
        });
        &mut tallies[index]
    }

    /// A core's access that took `time` picoseconds, `queue` of them waiting for its turn.
    pub(crate) fn access(
        &mut self,
        core: u32,
        (line, site, address): (usize, Site, usize),
        (from, writes): (Origin, bool),
        queue: u64,
        time: u64,
    ) {
        let tally = self.tally(line, site, address);
        tally.transfers.count(from);
        if from != Origin::Private {
            tally.miss(core, writes);
        }
        tally.queue += queue;
        tally.time += time;
    }
}

impl Ledger {
    /// All that was kept, for the report of a run that took `time_ns`. `place` gives the address
    /// of a line in the machine's memory by its index, and the thread on whose stack it is.
    pub(crate) fn details(
        &self,
        time_ns: u64,
        place: impl Fn(usize) -> (u64, Option<usize>),
        (names, locks): (&Names, &Locks),
    ) -> Details {
        let mut sites = BTreeMap::<SourceSite, AccessCost>::new();
        let mut harness = BTreeSet::new();
        let mut lines = Vec::new();
        for (index, tallies) in self.lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
            let (address, stack) = place(index);
            let mut cost = AccessCost::default();
            // The compiler may have made several locations of one place: they count as one.
            let mut places = BTreeMap::<(u8, SourceSite), (Transfers, u64, u64)>::new();
            let mut misses = Misses::new();
            // What the harness does for a caller, such as the wait of a scope, has the caller's
            // place.
            let harness_time: u64 =
                tallies.iter().filter(|it| is_harness(it.site)).map(|it| it.time).sum();
            let all_time: u64 = tallies.iter().map(|tally| tally.time).sum();
            let of_harness = harness_time * 10 > all_time * 9;
            for tally in tallies {
                let of_word = misses.entry(tally.offset).or_default();
                for &(core, count) in &tally.missed {
                    of_word.entry(core).or_default().add(count);
                }
                let site = SourceSite::of(tally.site);
                if is_harness(tally.site) {
                    harness.insert(site.clone());
                }
                let place = places.entry((tally.offset, site)).or_default();
                place.0.add(&tally.transfers);
                place.1 += tally.queue;
                place.2 += tally.time;
            }
            let mut words = Vec::new();
            for ((offset, site), (transfers, queue, time)) in places {
                let this = AccessCost { transfers, queue_ns: queue / 1000, time_ns: time / 1000 };
                cost.add(&this);
                sites.entry(site.clone()).or_default().add(&this);
                let called = names.of(address + u64::from(offset), 1);
                words.push(WordCost { offset, names: called, site, cost: this });
            }
            let word = |offset: u8| {
                let word = address + u64::from(offset);
                Word { names: names.of(word, 1), lock: locks.at(word) }
            };
            let falsely_shared = false_sharing::groups(&misses, word);
            let names = names.of(address, 64);
            lines.push(LineCost { address, names, stack, of_harness, cost, words, falsely_shared });
        }
        lines.sort_by_key(|line| (Reverse(line.cost.time_ns), line.address));
        let site = |(site, cost): (SourceSite, AccessCost)| SiteCost {
            of_harness: harness.contains(&site),
            site,
            cost,
        };
        let mut sites: Vec<_> = sites.into_iter().map(site).collect();
        sites.sort_by_key(|site| Reverse(site.cost.time_ns));
        let cpus = self.cpus.iter().enumerate();
        let cpus = cpus.map(|(cpu, times)| cpu_time(cpu as u32, times, time_ns)).collect();
        Details { lines, sites, cpus }
    }

    /// The accesses so far to the lines that `which` names by index.
    pub(crate) fn transfers(&self, which: impl Fn(usize) -> bool) -> Transfers {
        let lines = self.lines.iter().enumerate().filter(|(_, line)| !line.is_empty());
        let mut sum = Transfers::default();
        for (_, tallies) in lines.filter(|&(index, _)| which(index)) {
            tallies.iter().for_each(|tally| sum.add(&tally.transfers));
        }
        sum
    }
}

/// Whether a place is one of the harness: what starts, joins and measures threads. A program's own
/// calls of it, such as a park, have the program's place.
fn is_harness(site: Site) -> bool {
    const PARTS: [&str; 2] = ["mirrors/thread/", "experiments/measure/"];
    let root = file!().trim_end_matches("results/statistics.rs");
    let in_this_crate = site.file().strip_prefix(root);
    in_this_crate.is_some_and(|file| PARTS.iter().any(|part| file.starts_with(part)))
}

fn cpu_time(cpu: u32, times: &[u64; Activity::COUNT], time_ns: u64) -> CpuTime {
    let ns = |activity: Activity| times[activity as usize] / 1000;
    let time = CpuTime {
        cpu,
        hit_ns: ns(Activity::Hit),
        miss_ns: ns(Activity::Miss),
        queue_ns: ns(Activity::Queue),
        spin_ns: ns(Activity::Spin),
        compute_ns: ns(Activity::Compute),
        kernel_ns: ns(Activity::Kernel),
        idle_ns: 0,
    };
    let busy: u64 = time.by_name().iter().map(|(_, ns)| ns).sum();
    CpuTime { idle_ns: time_ns.saturating_sub(busy), ..time }
}

#[cfg(test)]
mod tests {
    use core::panic::Location;

    use super::*;

    #[test]
    fn several_locations_of_one_place_are_rounded_as_one() {
        #[track_caller]
        fn here() -> Site {
            Location::caller()
        }
        let sites = [here(), here()];
        assert!(!core::ptr::eq(sites[0], sites[1]));
        let mut ledger = Ledger::new(1, None);
        for site in sites {
            ledger.access(0, (0, site, 8), (Origin::Private, false), 600, 700);
        }
        let details = ledger.details(1, |_| (0, None), (&Names::default(), &Locks::default()));
        let cost = details.lines[0].cost;
        assert_eq!((cost.queue_ns, cost.time_ns, cost.transfers.private), (1, 1, 2));
        assert_eq!(details.sites.len(), 1);
        assert_eq!(details.sites[0].cost, cost);
    }
}
