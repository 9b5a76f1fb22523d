//! A hash table whose readers take no lock and write to nothing that they share.
//!
//! Writers lock one bucket each. They unlink an entry, and retire it: its box is freed when no
//! reader can hold it. `cargo run --release --example table` counts reads beside writes.

use std::hash::{BuildHasher, Hash, RandomState};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread;

use coreline::Mutex;
use coreline::rcu::{Collector, Guard};

/// An entry. Its key and value never change; `next` is written by the holder of the bucket's lock.
struct Entry<K, V> {
    key: K,
    value: V,
    next: AtomicPtr<Entry<K, V>>,
}

struct Bucket<K, V> {
    first: AtomicPtr<Entry<K, V>>,
    writer: Mutex<()>,
}

/// A table with a fixed number of buckets.
struct Table<K, V> {
    buckets: Box<[Bucket<K, V>]>,
    hasher: RandomState,
    collector: Collector,
}

impl<K, V> Table<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn new(buckets: usize) -> Result<Self, coreline::percpu::PoolError> {
        let empty = || Bucket { first: AtomicPtr::new(ptr::null_mut()), writer: Mutex::new(()) };
        Ok(Table {
            buckets: (0..buckets.max(1)).map(|_| empty()).collect(),
            hasher: RandomState::new(),
            collector: Collector::new()?,
        })
    }

    fn bucket(&self, key: &K) -> &Bucket<K, V> {
        &self.buckets[self.hasher.hash_one(key) as usize % self.buckets.len()]
    }

    /// A section, in which values that are found stay.
    fn enter(&self) -> Guard<'_> {
        self.collector.enter()
    }

    /// The value of a key, for as long as the section lasts.
    fn get<'g>(&'g self, key: &K, guard: &'g Guard<'_>) -> Option<&'g V> {
        assert!(guard.is_of(&self.collector), "the guard keeps entries of this table");
        // Acquire, here and below: pairs with the Release in `insert`: the entry is whole.
        let mut at = self.bucket(key).first.load(Ordering::Acquire);
        // SAFETY: found in the section, which keeps each entry that is unlinked meanwhile.
        while let Some(entry) = unsafe { at.as_ref() } {
            if entry.key == *key {
                return Some(&entry.value);
            }
            at = entry.next.load(Ordering::Acquire);
        }
        None
    }

    /// Sets the value of a key. Readers find the old value or the new one.
    fn insert(&self, key: K, value: V) {
        let bucket = self.bucket(&key);
        let _writer = bucket.writer.lock();
        // Relaxed: the lock orders writers.
        let next = AtomicPtr::new(bucket.first.load(Ordering::Relaxed));
        let entry = Box::into_raw(Box::new(Entry { key, value, next }));
        // Release: pairs with the Acquire in `get`.
        bucket.first.store(entry, Ordering::Release);
        // SAFETY: just linked, and only the holder of the lock unlinks.
        let entry = unsafe { &*entry };
        self.unlink(&entry.next, &entry.key);
    }

    /// Removes a key.
    fn remove(&self, key: &K) -> bool {
        let bucket = self.bucket(key);
        let _writer = bucket.writer.lock();
        self.unlink(&bucket.first, key)
    }

    /// Unlinks the entry of a key behind `link`, if there is one. The caller holds the lock.
    fn unlink(&self, mut link: &AtomicPtr<Entry<K, V>>, key: &K) -> bool {
        loop {
            // Relaxed: the lock orders writers.
            let at = link.load(Ordering::Relaxed);
            // SAFETY: linked, and only the holder of the lock unlinks.
            let Some(entry) = (unsafe { at.as_ref() }) else { return false };
            if entry.key == *key {
                // Release: a reader that comes by this link finds the next entry whole. The entry
                // keeps its own link, for readers that are at it.
                link.store(entry.next.load(Ordering::Relaxed), Ordering::Release);
                // SAFETY: from a box. It is unlinked, by this thread alone.
                unsafe { self.collector.retire(at) };
                return true;
            }
            link = &entry.next;
        }
    }
}

impl<K, V> Drop for Table<K, V> {
    fn drop(&mut self) {
        for bucket in &mut self.buckets {
            let mut at = *bucket.first.get_mut();
            while !at.is_null() {
                // SAFETY: from a box, and there is no reader. Each is linked once.
                at = *unsafe { Box::from_raw(at) }.next.get_mut();
            }
        }
    }
}

/// Replaces and removes each key many times while two threads read. Returns how many values they
/// found.
fn reads_beside_writes(rounds: u64) -> Result<u64, coreline::percpu::PoolError> {
    let table = Table::<u64, Vec<u64>>::new(64)?;
    let over = AtomicBool::new(false);
    let found = thread::scope(|scope| {
        let read = || {
            let mut found = 0;
            // Relaxed: it carries nothing but itself.
            while !over.load(Ordering::Relaxed) {
                for key in 0..100_u64 {
                    let section = table.enter();
                    if let Some(value) = table.get(&key, &section) {
                        // A value that was freed would be another one.
                        assert!(value.iter().all(|part| *part == value[0]), "a torn value");
                        found += 1;
                    }
                }
            }
            found
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        for round in 0..rounds {
            (0..100).for_each(|key| table.insert(key, vec![round; 8]));
            (0..100).step_by(3).for_each(|key| assert!(table.remove(&key)));
        }
        over.store(true, Ordering::Relaxed);
        readers.map(|reader| reader.join().expect("a reader panicked")).iter().sum()
    });
    assert_eq!(table.get(&0, &table.enter()), None);
    assert_eq!(table.get(&1, &table.enter()), Some(&vec![rounds - 1; 8]));
    Ok(found)
}

#[expect(clippy::print_stdout, reason = "an example that says what it found")]
fn main() -> Result<(), coreline::percpu::PoolError> {
    let found = reads_beside_writes(1_000)?;
    println!("two readers found {found} values beside 133,000 writes");
    Ok(())
}

#[test]
fn readers_find_whole_values_beside_writes() {
    reads_beside_writes(300).expect("memory");
}
