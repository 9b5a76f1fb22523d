//! A cache of bounded size, which evicts the entry that was not read or written for longest. A hit
//! takes no lock, and writes to memory of its own CPU only.
//!
//! ```
//! use std::num::NonZeroU32;
//!
//! let cache = cache::Cache::new(NonZeroU32::new(2).unwrap())?;
//! cache.insert("a", 1);
//! cache.insert("b", 2);
//! assert_eq!(cache.get("a"), Some(1)); // noted, so "b" is evicted first
//! cache.insert("c", 3);
//! assert_eq!((cache.get("a"), cache.get("b"), cache.get("c")), (Some(1), None, Some(3)));
//! # Ok::<(), coreline::percpu::PoolError>(())
//! ```
//!
//! | part | how |
//! |---|---|
//! | entries | a table whose buckets are an [`Rcu`] each: a reader finds a whole bucket |
//! | reads | a [`LossyBuffer`]: a hit leaves the number of its slot in a log of its CPU |
//! | order of eviction | a list behind a lock, to which insertions apply the log |

mod lru;
pub mod server;
#[cfg(test)]
mod tests;
mod world;

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU32;
use std::sync::Arc;

use coreline::lock::{Mutex, Near};
use coreline::percpu::{LossyBuffer, PoolError};
use coreline::rcu::{Collector, CollectorOptions, Rcu};
use coreline::{CounterSet, IndexBy};

use crate::lru::Lru;
use crate::world::{Machine, RandomState};

/// Reads that the log has room for, of each CPU. Between two drains, further ones are lost: then
/// those that are known are a sample.
const LOG: usize = 128;

struct Entry<K, V> {
    key: K,
    value: V,
    slot: u32,
}

type Bucket<K, V> = Rcu<Vec<Arc<Entry<K, V>>>, Machine>;

/// A cache. See the [crate](self).
///
/// Values are dropped by a later insertion or removal, under a lock of the cache: their drop must
/// not use the cache.
pub struct Cache<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    buckets: Box<[Bucket<K, V>]>,
    collector: Arc<Collector<Machine>>,
    hasher: RandomState,
    reads: LossyBuffer<u32, Machine>,
    /// Hits, and misses.
    counts: CounterSet<2, Machine>,
    order: Mutex<Order<K, V>, Near, Machine>,
}

/// What insertions change.
struct Order<K, V> {
    lru: Lru,
    entries: Vec<Option<Arc<Entry<K, V>>>>,
    insertions: u32,
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// An empty cache for so many entries.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if there is no per-CPU memory.
    pub fn new(capacity: NonZeroU32) -> Result<Self, PoolError> {
        let slots = capacity.get().min(u32::MAX - 1);
        let collector = Arc::new(Collector::new_in(CollectorOptions::new())?);
        let entries = (0..slots).map(|_| None).collect();
        Ok(Cache {
            buckets: (0..slots).map(|_| Rcu::with_collector(&collector, Vec::new())).collect(),
            hasher: RandomState::new(),
            reads: LossyBuffer::new_in(LOG)?,
            counts: CounterSet::new_in(IndexBy::Cpu)?,
            order: Mutex::new_in(Order { lru: Lru::new(slots), entries, insertions: 0 }),
            collector,
        })
    }

    fn bucket<Q: Hash + ?Sized>(&self, key: &Q) -> &Bucket<K, V> {
        &self.buckets[self.hasher.hash_one(key) as usize % self.buckets.len()]
    }

    /// Calls `f` with the value of a key, and notes the read. `f` keeps what is removed meanwhile
    /// from being freed, so it should be short.
    pub fn read<Q, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let section = self.collector.enter();
        let found = self.bucket(key).load(&section).iter().find(|it| it.key.borrow() == key);
        self.counts.add(usize::from(found.is_none()), 1);
        let entry = found?;
        // If the log is full, the order of eviction is less exact.
        _ = self.reads.push(entry.slot);
        Some(f(&entry.value))
    }

    /// A clone of the value of a key.
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        self.read(key, V::clone)
    }

    /// Sets the value of a key. If the cache is full, another entry goes.
    pub fn insert(&self, key: K, value: V) {
        let mut order = self.order.lock();
        order.apply(&self.reads);
        let bucket = self.bucket(&key);
        let slot = Self::slot_of(bucket, &key).unwrap_or_else(|| order.lru.oldest());
        let entry = Arc::new(Entry { key, value, slot });
        order.lru.touch(slot);
        let old = order.entries[slot as usize].replace(Arc::clone(&entry));
        // One update, so that a reader finds the old value of the key or the new one.
        bucket.update(|held| others(held, slot).chain([Arc::clone(&entry)]).collect());
        if let Some(old) = old
            && !std::ptr::eq(self.bucket(&old.key), bucket)
        {
            self.bucket(&old.key).update(|held| others(held, slot).collect());
        }
    }

    /// Removes a key. Whether it was there.
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut order = self.order.lock();
        let bucket = self.bucket(key);
        let Some(slot) = Self::slot_of(bucket, key) else { return false };
        order.lru.forget(slot);
        order.entries[slot as usize] = None;
        bucket.update(|held| others(held, slot).collect());
        true
    }

    /// The number of hits, of misses, and of hits that the order of eviction does not know.
    pub fn stats(&self) -> [u64; 3] {
        let [hits, misses] = self.counts.read_exact().map(i64::cast_unsigned);
        [hits, misses, self.reads.lost()]
    }

    fn slot_of<Q: Eq + ?Sized>(bucket: &Bucket<K, V>, key: &Q) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        bucket.read().iter().find(|it| it.key.borrow() == key).map(|it| it.slot)
    }
}

/// The entries of a bucket but the one with this slot.
fn others<K, V>(held: &[Arc<Entry<K, V>>], slot: u32) -> impl Iterator<Item = Arc<Entry<K, V>>> {
    held.iter().filter(move |it| it.slot != slot).cloned()
}

impl<K, V> Order<K, V> {
    /// Applies the log. It has a list for each CPU, so a large cache looks at it now and then only.
    /// Of what was read since then, only the oldest hundredth can be evicted.
    fn apply(&mut self, reads: &LossyBuffer<u32, Machine>) {
        let each = (self.entries.len() / 100).clamp(1, 64) as u32;
        self.insertions = self.insertions.wrapping_add(1);
        if !self.insertions.is_multiple_of(each) {
            return;
        }
        // A slot that has another entry by now has a new one, which is near the front anyway. The
        // drain is refused if another thread drains, but only the holder of the lock does.
        _ = reads.drain(|slot| {
            if self.entries[slot as usize].is_some() {
                self.lru.touch(slot);
            }
        });
    }
}
