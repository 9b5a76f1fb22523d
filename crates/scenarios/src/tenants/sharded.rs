//! A map from tenants to counters, in parts with a lock each.

use coreline::lock::RawTicketLock;
use coreline_world::{Line, Ordering, Testbed, Word};

use super::{Counters, RunError, WORDS, line_of, words};

/// Parts of the map for each CPU.
const SHARDS_PER_CPU: usize = 4;

/// Open addressing, at most half full. All tenants are in the table from the beginning.
pub(super) struct Sharded<W: Testbed> {
    /// As many as a power of two.
    shards: Vec<Line<Shard<W>>>,
    tenants: usize,
}

struct Shard<W: Testbed> {
    lock: RawTicketLock<W>,
    /// As many as a power of two. Under the lock.
    entries: Box<[Entry<W>]>,
}

struct Entry<W: Testbed> {
    /// The tenant's number and one; 0: a free entry.
    key: W::U64,
    counters: [W::U64; WORDS],
}

/// Fibonacci hashing. The low half picks the shard, the high half the entry.
fn hash(tenant: usize) -> (usize, usize) {
    let hash = (tenant as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash as u32 as usize, (hash >> 32) as usize)
}

impl<W: Testbed> Shard<W> {
    fn of(tenants: &[usize]) -> Self {
        let len = (2 * tenants.len()).next_power_of_two();
        let entry = |_| Entry { key: W::U64::new_in(0), counters: words::<W>() };
        let entries = (0..len).map(entry).collect();
        let shard = Shard::<W> { lock: RawTicketLock::new_in(), entries };
        for &tenant in tenants {
            // Relaxed: the shard is not shared yet.
            shard.find(tenant).key.store(tenant as u64 + 1, Ordering::Relaxed);
        }
        shard
    }

    /// The tenant's entry, or the free entry that it would use.
    fn find(&self, tenant: usize) -> &Entry<W> {
        let (_, first) = hash(tenant);
        let mut at = first;
        loop {
            let entry = &self.entries[at & (self.entries.len() - 1)];
            // Relaxed: under the lock.
            match entry.key.load(Ordering::Relaxed) {
                key if key == 0 || key == tenant as u64 + 1 => return entry,
                _ => at += 1,
            }
        }
    }
}

impl<W: Testbed> Sharded<W> {
    fn shard(&self, tenant: usize) -> &Shard<W> {
        &self.shards[hash(tenant).0 & (self.shards.len() - 1)]
    }
}

impl<W: Testbed> Counters<W> for Sharded<W> {
    type Handle = ();

    fn new_in(tenants: usize, cpus: usize) -> Result<Self, RunError> {
        let count = (SHARDS_PER_CPU * cpus).next_power_of_two();
        let mut members = vec![Vec::new(); count];
        (0..tenants).for_each(|tenant| members[hash(tenant).0 & (count - 1)].push(tenant));
        let shards = members.iter().map(|tenants| Line(Shard::of(tenants))).collect();
        Ok(Sharded { shards, tenants })
    }

    fn handle(&self, _: usize) {}

    fn poll(&self, tenant: usize, (): &mut ()) {
        for which in 0..WORDS {
            let shard = self.shard(tenant);
            shard.lock.lock();
            let word = &shard.find(tenant).counters[which];
            // Relaxed, both: under the lock.
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // SAFETY: this thread took the lock above.
            unsafe { shard.lock.unlock() };
        }
    }

    fn sum(&self, tenant: usize, which: usize) -> u64 {
        // Relaxed: the adding threads have been joined.
        self.shard(tenant).find(tenant).counters[which].load(Ordering::Relaxed)
    }

    fn footprint(&self) -> [f64; 2] {
        let entries: usize = self.shards.iter().map(|shard| shard.entries.len()).sum();
        let shards = self.shards.len() * size_of::<Line<Shard<W>>>();
        let bytes = shards + entries * size_of::<Entry<W>>();
        [bytes as f64, self.tenants as f64]
    }

    /// An entry is larger than a line, so it may lie on two.
    fn lines(&self) -> Vec<usize> {
        let entries = self.shards.iter().flat_map(|shard| &shard.entries);
        entries
            .flat_map(|entry| [line_of(&entry.counters[0]), line_of(&entry.counters[WORDS - 1])])
            .collect()
    }
}
