//! Cache coherence: the cores that hold a line, and their distances.
//!
//! One directory entry per line, as in MESI with a directory that sees every miss:
//!
//! | `owner` | `sharers` | meaning |
//! |---|---|---|
//! | none | none | in memory only, at `home` |
//! | core c | only c | c holds it exclusively and may write without asking (E or M) |
//! | none | some | clean copies (S); a writer must first invalidate all others |
//!
//! Caches here are private caches of a core, shared by its hardware threads, and have no size.
//! After a write by one hardware thread, an access by another one of the core is a hit. If the
//! machine file gives the cost of this (`same_core`), the first such access costs that much. The
//! last-level cache is a distance: a line that is held by a core under the same last-level cache is
//! served from there.
//!
//! A core that idles for long empties its caches into the last-level one, where it finds its lines
//! later. A copy that another core requested after this one counts as kept.
//!
//! A core loses a line when another core writes it. It also loses a line that it has modified when
//! another core reads it, because such a read takes ownership (migratory sharing). A further read,
//! without a write between, leaves copies.
//!
//! A core keeps a line that it fetched for as long as another request is in flight, whatever the
//! core does. A request of another core waits until then, and also for an access that has begun.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use coreline_topology::{NodeId, Topology};

use crate::hardware::arena;
use crate::hardware::contention::{Arbitration, Contention};
use crate::hardware::costs::Costs;
use crate::hardware::distances::{Distances, Pair};

/// The demand of an access on its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// A copy.
    Load,
    /// Ownership at some later time: a plain store, which does not wait.
    Store,
    /// Ownership and what is there, for a plain change of plain data.
    Own,
    /// Ownership, for a locked read-modify-write.
    Update,
}

impl Access {
    pub(crate) fn writes(self) -> bool {
        self != Access::Load
    }
}

/// The source of a line: the classes that costs and statistics distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Private,
    CleanSameCache,
    SameCache,
    SameNode,
    SameSocket,
    OtherSocket,
    LocalMemory,
    RemoteMemory,
}

impl Origin {
    /// The last of them.
    const COUNT: usize = Origin::RemoteMemory as usize + 1;

    /// The class of two cores at these places.
    fn between(a: CorePlace, b: CorePlace) -> Origin {
        if a.cache == b.cache {
            Origin::SameCache
        } else if a.node == b.node {
            Origin::SameNode
        } else if a.socket == b.socket {
            Origin::SameSocket
        } else {
            Origin::OtherSocket
        }
    }

    fn cost(self, costs: &Costs) -> u64 {
        match self {
            Origin::Private => costs.private_hit,
            Origin::CleanSameCache => costs.cache_hit,
            Origin::SameCache => costs.same_cache,
            Origin::SameNode => costs.same_node,
            Origin::SameSocket => costs.same_socket,
            Origin::OtherSocket => costs.other_socket,
            Origin::LocalMemory => costs.memory_local,
            Origin::RemoteMemory => costs.memory_remote,
        }
    }
}

/// The source of a line, and the cost of the transfer. A nearer class comes before a farther one,
/// and of one class the cheaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source {
    pub(crate) from: Origin,
    /// In picoseconds, before jitter.
    pub(crate) cost: u64,
}

/// Where a core is.
#[derive(Clone, Copy)]
struct CorePlace {
    cache: u32,
    node: NodeId,
    socket: u32,
}

/// No core, or no node.
const NONE: u32 = u32::MAX;

/// A line's directory entry; its sharers lie in [`Directory::sharers`]. All data that a cache hit
/// reads is here. It takes less than a cache line of the host.
struct Entry {
    /// The line's number in the machine's memory.
    name: u64,
    /// The time until which the line serves only the core that asked last: it is on its way there,
    /// and stays for a while.
    busy_until: u64,
    /// When the line reaches `asker`.
    arrival: u64,
    /// The core that asked last.
    asker: u32,
    owner: u32,
    home: u32,
    /// The line's place in [`Directory::contentions`]; 0 for a line that never had one.
    contention: u32,
    /// The CPU that wrote the line last, if no hardware thread beside it has read that yet. Kept
    /// where a machine file says what such a read costs.
    writer: u32,
    /// Whether the owner wrote the line since it has it.
    written: bool,
}

/// Line and page numbers are small and dense: one multiplication spreads them well enough.
#[derive(Default)]
pub(crate) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The directory of a machine: every line that was touched.
pub(crate) struct Directory {
    cores: Vec<CorePlace>,
    /// For each line of the arena, its index and one; 0 if it was not touched.
    arena: Vec<u32>,
    /// The index of each other line that was touched; only looked up, never iterated over.
    others: HashMap<u64, usize, BuildHasherDefault<LineHasher>>,
    entries: Vec<Entry>,
    /// The state of contention at each line. The first entry belongs to no line.
    contentions: Vec<Contention>,
    /// Nodes set for lines not touched yet: by first line, how many and which node.
    placed: BTreeMap<u64, (u64, NodeId)>,
    /// One bit per core, `stride` words per line.
    sharers: Vec<u64>,
    stride: usize,
    /// For each core: when its own caches were last empty.
    emptied: Vec<u64>,
    /// When any core's were. No core has lost a line that arrived since then, so the core need not
    /// be checked.
    last_emptied: u64,
    /// By class.
    costs: [u64; Origin::COUNT],
    /// Nodes that have costs of their own.
    pairs: Box<[Pair]>,
    /// The cost for a hardware thread of data that another thread of its core wrote; 0: a hit.
    siblings: u64,
}

impl Directory {
    pub(crate) fn new(topology: &Topology, costs: &Costs, distances: &Distances) -> Directory {
        let mut cores =
            vec![CorePlace { cache: 0, node: NodeId::new(0), socket: 0 }; topology.core_count()];
        for cpu in topology.cpus() {
            cores[cpu.core as usize] =
                CorePlace { cache: cpu.cache.get(), node: cpu.node, socket: cpu.socket };
        }
        let stride = cores.len().div_ceil(64);
        let emptied = vec![0; cores.len()];
        Directory {
            cores,
            // Zeroed memory, of which the host provides what is touched.
            arena: vec![0; arena::LINES],
            others: HashMap::default(),
            entries: Vec::new(),
            contentions: vec![Contention::default()],
            placed: BTreeMap::new(),
            sharers: Vec::new(),
            stride,
            emptied,
            last_emptied: 0,
            costs: [
                Origin::Private,
                Origin::CleanSameCache,
                Origin::SameCache,
                Origin::SameNode,
                Origin::SameSocket,
                Origin::OtherSocket,
                Origin::LocalMemory,
                Origin::RemoteMemory,
            ]
            .map(|from| from.cost(costs)),
            pairs: distances.pairs().into(),
            siblings: costs.same_core,
        }
    }

    /// The source and cost for a class that has one cost.
    fn of(&self, from: Origin) -> Source {
        Source { from, cost: self.costs[from as usize] }
    }

    /// The entry of the machine file for two nodes.
    fn pair(&self, a: NodeId, b: NodeId) -> Option<&Pair> {
        // Empty for nearly every machine.
        self.pairs.iter().find(|pair| pair.is_of(a, b))
    }

    /// A core's own caches are empty at `now`.
    pub(crate) fn empty(&mut self, core: u32, now: u64) {
        self.emptied[core as usize] = now;
        self.last_emptied = self.last_emptied.max(now);
    }

    /// Whether the core that last asked for the line has lost it since then.
    #[inline(always)]
    fn is_lost(&self, entry: &Entry) -> bool {
        entry.arrival < self.last_emptied && entry.arrival < self.emptied[entry.asker as usize]
    }

    /// The index of a line of the arena that was touched before.
    #[inline(always)]
    pub(crate) fn index(&self, name: usize) -> Option<usize> {
        self.arena.get(name).and_then(|&index| (index as usize).checked_sub(1))
    }

    /// The index of a line, by its number in the machine's memory.
    pub(crate) fn intern(&mut self, name: u64) -> usize {
        match self.arena.get(name as usize) {
            Some(&index) if index != 0 => index as usize - 1,
            Some(_) => {
                let index = self.add(name);
                self.arena[name as usize] = index as u32 + 1;
                index
            }
            None => {
                if let Some(&index) = self.others.get(&name) {
                    return index;
                }
                let index = self.add(name);
                self.others.insert(name, index);
                index
            }
        }
    }

    #[cold]
    fn add(&mut self, name: u64) -> usize {
        let placed = self.placed.range(..=name).next_back();
        let placed = placed.filter(|(first, (lines, _))| name - **first < *lines);
        let home = placed.map_or(NONE, |(_, (_, node))| node.get());
        self.entries.push(Entry {
            name,
            busy_until: 0,
            arrival: 0,
            asker: NONE,
            owner: NONE,
            home,
            contention: 0,
            writer: NONE,
            written: false,
        });
        self.sharers.resize(self.entries.len() * self.stride, 0);
        self.entries.len() - 1
    }

    /// Sets the home node of lines that were not touched yet; `None`: the first touch decides.
    pub(crate) fn set_home(&mut self, first: u64, lines: u64, node: Option<NodeId>) {
        let end = first + lines;
        // A range that reaches across an end keeps the part outside.
        let before = self.placed.range(..first).next_back().map(|(&at, &what)| (at, what));
        let inside: Vec<_> = self.placed.range(first..end).map(|(&at, &what)| (at, what)).collect();
        for (at, (lines, owner)) in before.into_iter().chain(inside) {
            let other_end = at + lines;
            if other_end <= first {
                continue;
            }
            self.placed.remove(&at);
            if at < first {
                self.placed.insert(at, (first - at, owner));
            }
            if other_end > end {
                self.placed.insert(end, (other_end - end, owner));
            }
        }
        if let Some(node) = node {
            self.placed.insert(first, (lines, node));
        }
    }

    /// The number of a line in the machine's memory.
    pub(crate) fn name(&self, line: usize) -> u64 {
        self.entries[line].name
    }

    /// The core that has a line for itself.
    pub(crate) fn owner(&self, line: usize) -> Option<u32> {
        Some(self.entries[line].owner).filter(|&owner| owner != NONE)
    }

    fn holds(&self, line: usize, core: u32) -> bool {
        let word = self.sharers[line * self.stride + core as usize / 64];
        word >> (core % 64) & 1 == 1
    }

    fn holders(&self, line: usize) -> impl Iterator<Item = u32> + '_ {
        let words = &self.sharers[line * self.stride..][..self.stride];
        words.iter().enumerate().flat_map(|(index, &word)| {
            let mut left = word;
            core::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(index as u32 * 64 + bit)
            })
        })
    }

    /// How far the copy of `other` is from `core`.
    fn distance(&self, core: u32, other: u32) -> Source {
        let (a, b) = (self.cores[core as usize], self.cores[other as usize]);
        let from = Origin::between(a, b);
        match self.pair(a.node, b.node) {
            Some(pair) => Source { from, cost: pair.transfer },
            None => self.of(from),
        }
    }

    /// The source from which `core` would get the line at this moment.
    pub(crate) fn source(&self, line: usize, core: u32, node: NodeId, access: Access) -> Source {
        let entry = &self.entries[line];
        let own = match entry.asker == core && self.is_lost(entry) {
            true => Origin::CleanSameCache,
            false => Origin::Private,
        };
        if entry.owner == core || (access == Access::Load && self.holds(line, core)) {
            return self.of(own);
        }
        let others = || self.holders(line).filter(|&other| other != core);
        match (self.owner(line), access) {
            (Some(owner), _) => self.distance(core, owner),
            // A read is served by the nearest copy; a copy in the shared cache is clean there.
            (None, Access::Load) => match others().map(|other| self.distance(core, other)).min() {
                Some(Source { from: Origin::SameCache, .. }) => self.of(Origin::CleanSameCache),
                Some(source) => source,
                None => self.memory(entry, node),
            },
            // A write waits for the farthest copy to be invalidated.
            (None, _) => match others().map(|other| self.distance(core, other)).max() {
                Some(source) => source,
                None if self.holds(line, core) => self.of(own),
                None => self.memory(entry, node),
            },
        }
    }

    fn memory(&self, entry: &Entry, node: NodeId) -> Source {
        // The first to touch a line decides where it lives.
        if [NONE, node.get()].contains(&entry.home) {
            return self.of(Origin::LocalMemory);
        }
        match self.pair(node, NodeId::new(entry.home)) {
            Some(pair) => Source { from: Origin::RemoteMemory, cost: pair.memory },
            None => self.of(Origin::RemoteMemory),
        }
    }

    /// The cost for `cpu`, whose core has the line, of reading it. It is higher if another hardware
    /// thread of the core wrote the line last and `cpu` has not looked at it since.
    #[inline]
    pub(crate) fn read_hit(&mut self, line: usize, cpu: u32, writes: bool) -> u64 {
        let hit = self.costs[Origin::Private as usize];
        if self.siblings == 0 {
            return hit;
        }
        let entry = &mut self.entries[line];
        let is_news = entry.writer != NONE && entry.writer != cpu;
        if is_news && !writes {
            entry.writer = NONE;
        }
        if is_news { self.siblings.max(hit) } else { hit }
    }

    /// `cpu` has written the line last; or no CPU of its core, which got it from elsewhere.
    #[inline(always)]
    pub(crate) fn set_writer(&mut self, line: usize, cpu: Option<u32>) {
        self.entries[line].writer = cpu.unwrap_or(NONE);
    }

    /// Gives the line to `core`, as `access` wants it. Whether no other core has it any more.
    pub(crate) fn transfer(
        &mut self,
        line: usize,
        core: u32,
        node: NodeId,
        access: Access,
    ) -> bool {
        let words = line * self.stride;
        let entry = &mut self.entries[line];
        if entry.home == NONE {
            entry.home = node.get();
        }
        let writes = access.writes();
        let migrates = entry.owner != NONE && entry.owner != core && entry.written;
        if writes || migrates {
            self.sharers[words..][..self.stride].fill(0);
            (entry.owner, entry.written) = (core, writes);
        } else if entry.owner != core {
            let alone = self.sharers[words..][..self.stride].iter().all(|&word| word == 0);
            (entry.owner, entry.written) = (if alone { core } else { NONE }, false);
        }
        self.sharers[words + core as usize / 64] |= 1 << (core % 64);
        writes || migrates
    }

    /// Whether `core` may access the line at `now` without a request: it has the line, and does not
    /// lose it at this moment to a request that waits.
    #[inline(always)]
    pub(crate) fn has(&self, line: usize, core: u32, access: Access, now: u64) -> bool {
        let entry = &self.entries[line];
        (entry.owner == core || (access == Access::Load && self.holds(line, core)))
            && (entry.asker != core || (entry.arrival <= now && !self.is_lost(entry)))
            && (entry.contention == 0 || self.keeps(line, now))
    }

    /// When a line that is on its way to `core`, as this access wants it, is there; `None` if it is
    /// not.
    pub(crate) fn arrives(&self, line: usize, core: u32, access: Access, now: u64) -> Option<u64> {
        let entry = &self.entries[line];
        let granted = entry.owner == core || (access == Access::Load && self.holds(line, core));
        (granted && entry.asker == core && entry.arrival > now).then_some(entry.arrival)
    }

    /// Whether no request that waits gets the line from a core that has it at `now`.
    fn keeps(&self, line: usize, now: u64) -> bool {
        let entry = &self.entries[line];
        let contention = &self.contentions[entry.contention as usize];
        contention.waiting.is_empty() || now < entry.busy_until
    }

    /// `core` accessed the line, which it has, and is through with that at `end`.
    #[inline(always)]
    pub(crate) fn used(&mut self, line: usize, core: u32, writes: bool, end: u64) {
        let entry = &mut self.entries[line];
        entry.written |= writes;
        if entry.contention != 0 && entry.owner == core {
            let contention = &mut self.contentions[entry.contention as usize];
            contention.used = contention.used.max(end);
        }
    }

    /// How far away `core`'s request finds the line, as far as can be told when it sets out: with
    /// the last of those that wait for it, if they are served as they come, or else where it is
    /// now.
    pub(crate) fn request_to(
        &self,
        line: usize,
        (core, node): (u32, NodeId),
        access: Access,
        arbitration: Arbitration,
    ) -> Source {
        let in_turn = arbitration == Arbitration::Fifo;
        let waiting = self.contention(line).filter(|_| in_turn);
        match waiting.and_then(|contention| contention.waiting.back()) {
            Some(last) if last.core == core => self.of(Origin::Private),
            Some(last) => self.distance(core, last.core),
            None => self.source(line, core, node, access),
        }
    }

    /// The time from which the line can serve `core`. If `core` is a sibling hardware thread of the
    /// one that asked last, this is the time at which the line arrives. Another core gets it when
    /// it has stayed, and no access of its owner's that has begun is under way.
    pub(crate) fn free_at(&self, line: usize, core: u32) -> u64 {
        let entry = &self.entries[line];
        if entry.asker == core {
            return entry.arrival;
        }
        match entry.contention {
            at if at == 0 || entry.owner == NONE || entry.owner == core => entry.busy_until,
            at => entry.busy_until.max(self.contentions[at as usize].used),
        }
    }

    /// The line is on its way to `core` until `arrival`, and serves no other core before `until`.
    pub(crate) fn occupy(&mut self, line: usize, core: u32, arrival: u64, until: u64) {
        let entry = &mut self.entries[line];
        (entry.asker, entry.arrival, entry.busy_until) = (core, arrival, until);
    }

    /// The state of contention at the line; `None` if there never was any.
    #[inline]
    pub(crate) fn contention(&self, line: usize) -> Option<&Contention> {
        let contention = self.entries[line].contention;
        if contention == 0 { None } else { Some(&self.contentions[contention as usize]) }
    }

    /// The state of contention at the line, to change it.
    pub(crate) fn contention_mut(&mut self, line: usize) -> &mut Contention {
        let entry = &mut self.entries[line];
        if entry.contention == 0 {
            entry.contention = self.contentions.len() as u32;
            self.contentions.push(Contention::default());
        }
        &mut self.contentions[entry.contention as usize]
    }

    /// Forgets that a thread spins on the line.
    pub(crate) fn unwatch(&mut self, line: usize, thread: usize) {
        self.contention_mut(line).watchers.retain(|&other| other != thread);
    }

    /// The request, among those that wait for the line, that has its turn next.
    pub(crate) fn next_waiting(&self, line: usize, arbitration: Arbitration) -> Option<usize> {
        let waiting = &self.contention(line)?.waiting;
        if arbitration == Arbitration::Fifo || waiting.len() <= 1 {
            return (!waiting.is_empty()).then_some(0);
        }
        let asker = self.entries[line].asker;
        // Of several that are equally near, the first: it has waited longest.
        let next = waiting.iter().enumerate().min_by_key(|(_, waiting)| {
            match waiting.core == asker || asker == NONE {
                true => self.of(Origin::Private),
                false => self.distance(waiting.core, asker),
            }
        });
        next.map(|(index, _)| index)
    }
}
