//! The locks under the types of `lock_api`, as programs that use `parking_lot` have them.
#![cfg(any(feature = "lock_api", feature = "lock_api_0_4"))]

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use coreline::lock::{Condvar, Fifo, RawBiasedRwLock, RawMutex, RawRwLock, RawTicketLock};
use coreline::lock::{SleepingReaders, TimedOut};

/// The tests of one version.
macro_rules! tests {
    ($api:ident) => {
        use $api::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
        use $api::{RawRwLockDowngrade, RawRwLockTimed, RwLockUpgradableReadGuard as Upgradable};

        use super::*;

        /// A map in shards, as dashmap's is: each under a read-write lock of `lock_api`, with
        /// guards that are mapped to a value.
        struct Sharded {
            shards: Vec<RwLock<RawRwLock, HashMap<u64, u64>>>,
            hasher: RandomState,
        }

        impl Sharded {
            fn shard(&self, key: u64) -> &RwLock<RawRwLock, HashMap<u64, u64>> {
                &self.shards[self.hasher.hash_one(key) as usize % self.shards.len()]
            }

            fn get(&self, key: u64) -> Option<u64> {
                let value = RwLockReadGuard::try_map(self.shard(key).read(), |it| it.get(&key));
                value.ok().map(|value| *value)
            }

            fn add(&self, key: u64) {
                let write = self.shard(key).write();
                *RwLockWriteGuard::map(write, |it| it.entry(key).or_default()) += 1;
            }
        }

        #[test]
        fn a_sharded_map_counts() {
            let shards = (0..4).map(|_| RwLock::new(HashMap::new())).collect();
            let map = Sharded { shards, hasher: RandomState::new() };
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for round in 0..4000 {
                            map.add(round % 16);
                            assert!(map.get(round % 16).is_some());
                        }
                    });
                }
            });
            assert!((0..16).all(|key| map.get(key) == Some(1000)), "an addition was lost");
            assert_eq!(map.get(16), None);
        }

        static COUNT: Mutex<RawMutex, u64> = Mutex::new(0);

        #[test]
        fn a_mutex_in_a_static_counts_and_maps() {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..4000).for_each(|_| *COUNT.lock() += 1));
                }
            });
            let pair = Mutex::<RawMutex<Fifo>, _>::new((0, 1));
            *MutexGuard::map(pair.lock(), |pair| &mut pair.1) += *COUNT.lock();
            assert_eq!(pair.into_inner(), (0, 16_001));
            assert!(!COUNT.is_locked());
        }

        #[test]
        fn a_wait_ends_in_time_and_a_writer_becomes_a_reader() {
            ends_in_time(RwLock::<RawRwLock<Fifo, SleepingReaders>, _>::new([1, 2]));
            ends_in_time(RwLock::<RawBiasedRwLock, _>::new([1, 2]));
        }

        fn ends_in_time<R>(pair: RwLock<R, [u32; 2]>)
        where
            R: RawRwLockTimed<Duration = Duration> + RawRwLockDowngrade + Send + Sync + 'static,
        {
            let data: Arc<RwLock<_, [u32]>> = Arc::new(pair);
            let write = data.write();
            thread::scope(|scope| {
                const SHORT: Duration = Duration::from_millis(1);
                let waits = || (data.try_read_for(SHORT).is_none(), data.try_write().is_none());
                assert_eq!(scope.spawn(waits).join().unwrap(), (true, true));
            });
            let read = RwLockWriteGuard::downgrade(write);
            assert_eq!((data.read().len(), read[1]), (2, 2));
            assert!(data.try_write_for(Duration::from_millis(1)).is_none());
            drop(read);
            assert!(data.try_write().is_some() && !data.is_locked());
        }

        #[test]
        fn deadlines_are_instants_of_std() {
            let (lock, pair) = (Mutex::<RawMutex, _>::new(1), RwLock::<RawRwLock, _>::new(2));
            let (held, write) = (lock.lock(), pair.write());
            let soon = || Instant::now() + Duration::from_millis(1);
            assert!(lock.try_lock_until(soon()).is_none());
            assert!(pair.try_read_until(soon()).is_none());
            assert!(pair.try_write_until(soon()).is_none());
            drop((held, write));
            assert!(lock.try_lock_until(soon()).is_some());
        }

        #[test]
        fn a_fair_unlock_and_a_bump_free_the_lock() {
            let lock = Mutex::<RawMutex, _>::new(1);
            let mut held = lock.lock();
            MutexGuard::bump(&mut held);
            MutexGuard::unlocked_fair(&mut held, || assert!(lock.try_lock().is_some()));
            MutexGuard::unlock_fair(held);
            assert!(!lock.is_locked());
        }

        #[test]
        fn an_upgradable_reader_becomes_the_writer() {
            let lock = RwLock::<RawRwLock, _>::new(1);
            let read = lock.upgradable_read();
            assert!(lock.try_upgradable_read().is_none());
            let mut write = Upgradable::upgrade(read);
            *write += 1;
            let read = RwLockWriteGuard::downgrade_to_upgradable(write);
            let read = Upgradable::downgrade(read);
            let again = lock.try_upgradable_read().expect("plain readers share");
            let again = Upgradable::try_upgrade(again).expect_err("a reader");
            let soon = Instant::now() + Duration::from_millis(1);
            let again = Upgradable::try_upgrade_until(again, soon).expect_err("a reader");
            drop(read);
            assert_eq!(*Upgradable::try_upgrade(again).expect("no reader"), 2);
        }

        #[test]
        fn a_ticket_lock_is_a_mutex() {
            static LOCK: Mutex<RawTicketLock, u32> = Mutex::new(0);
            let held = LOCK.lock();
            assert!(LOCK.try_lock().is_none() && LOCK.is_locked());
            drop(held);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| (0..1000).for_each(|_| *LOCK.lock() += 1));
                }
            });
            assert_eq!(*LOCK.lock(), 2000);
        }

        #[test]
        fn a_condition_variable_takes_its_guards() {
            static READY: Mutex<RawMutex, bool> = Mutex::new(false);
            static CHANGED: Condvar = Condvar::new();
            thread::scope(|scope| {
                let mut ready = READY.lock();
                scope.spawn(|| {
                    *READY.lock() = true;
                    CHANGED.notify_all();
                });
                CHANGED.wait_while(&mut ready, |ready| !*ready);
                assert!(*ready);
                let soon = Instant::now() + Duration::from_millis(1);
                let late = CHANGED.wait_while_by(&mut ready, |ready| *ready, soon.into());
                assert_eq!(late, TimedOut(true));
            });
        }
    };
}

#[cfg(feature = "lock_api")]
mod latest {
    tests!(lock_api);
}

#[cfg(feature = "lock_api_0_4")]
mod v0_4 {
    tests!(lock_api_0_4);

    #[test]
    fn a_thread_reads_again() {
        let lock = RwLock::<RawRwLock, _>::new(1);
        let [one, other] = [lock.read(), lock.read_recursive()];
        let soon = Instant::now() + Duration::from_millis(1);
        assert!(
            lock.try_read_recursive().is_some() && lock.try_read_recursive_until(soon).is_some()
        );
        assert_eq!(*one, *other);
    }
}
