//! What `parking_lot` documents of its interface, each method where threads contend if it waits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use coreline_parking_lot::lock_api::{RawMutex as _, RawMutexFair as _, RawRwLock as _};
use coreline_parking_lot::*;

/// Long enough for a thread to begin to wait, and no more than a hint: no test fails if it is not.
const SOON: Duration = Duration::from_millis(20);

/// More than any test waits.
const LONG: Duration = Duration::from_secs(100);

/// Threads add to what a lock guards.
fn each_adds(threads: u32, add: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..2_000).for_each(|_| add()));
        }
    });
}

#[test]
fn mutexes_exclude_and_have_constant_constructors() {
    static PLAIN: Mutex<u32> = Mutex::new(0);
    static CONST: Mutex<u32> = const_mutex(0);
    static FAIR: FairMutex<u32> = const_fair_mutex(0);
    each_adds(4, || *PLAIN.lock() += 1);
    each_adds(4, || *CONST.lock() += 1);
    each_adds(4, || *FAIR.lock() += 1);
    assert_eq!((*PLAIN.lock(), *CONST.lock(), *FAIR.lock()), (8_000, 8_000, 8_000));
    assert_eq!(Mutex::new(3).into_inner(), 3);
    let mut lock = Mutex::from(3);
    *lock.get_mut() += 1;
    assert_eq!(
        format!("{lock:?} {:?}", FairMutex::<u32>::default()),
        "Mutex { data: 4 } Mutex { data: 0 }"
    );
    let held = lock.lock();
    assert_eq!(format!("{lock:?}"), "Mutex { data: <locked> }");
    assert!(lock.is_locked());
    drop(held);
    assert!(!lock.is_locked());
}

#[test]
fn unsized_data_is_locked() {
    let lock: &Mutex<[u8]> = &Mutex::new([1, 2, 3]);
    lock.lock()[1] = 7;
    assert_eq!(&*lock.lock(), &[1, 7, 3]);
    let lock: Arc<RwLock<dyn Fn() -> u32 + Send + Sync>> = Arc::new(RwLock::new(|| 7));
    assert_eq!(lock.read()(), 7);
}

#[test]
fn trials_and_deadlines_give_up() {
    let lock = Mutex::new(());
    let held = lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.try_lock().is_none());
            let begun = Instant::now();
            assert!(lock.try_lock_for(SOON).is_none());
            assert!(lock.try_lock_until(Instant::now() + SOON).is_none());
            assert!(begun.elapsed() >= 2 * SOON);
            assert!(lock.try_lock_until(begun).is_none(), "a time that has passed");
        });
    });
    thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_lock_for(Duration::MAX).is_some()));
        scope.spawn(|| assert!(lock.try_lock_until(Instant::now() + LONG).is_some()));
        thread::sleep(SOON);
        drop(held);
    });
    assert!(lock.try_lock().is_some());
}

#[test]
fn a_fair_unlock_and_a_bump_let_a_waiter_go_first() {
    let turns = AtomicU32::new(0);
    let lock = Mutex::new(());
    let mut held = lock.lock();
    for frees in [MutexGuard::bump as fn(&mut _), |held| MutexGuard::unlocked_fair(held, || ())] {
        let before = turns.load(Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _held = lock.lock();
                turns.fetch_add(1, Ordering::Relaxed);
            });
            // Until it waits, a bump does nothing.
            while turns.load(Ordering::Relaxed) == before {
                thread::yield_now();
                frees(&mut held);
            }
        });
    }
    MutexGuard::unlock_fair(held);
    assert!(!lock.is_locked());
    let fair = FairMutex::new(());
    FairMutexGuard::unlock_fair(fair.lock());
    assert!(fair.try_lock().is_some());
}

/// Whether a thread that sleeps in a lock's queue has the lock before this one has it again. This
/// one holds it, `frees` it, and then `has` it again or not.
fn lets_a_sleeper_in<R: lock_api::RawMutexFair + Sync>(
    frees: unsafe fn(&R),
    has: fn(&R) -> bool,
) -> bool {
    let (lock, had) = (&R::INIT, &AtomicU32::new(0));
    lock.lock();
    thread::scope(|scope| {
        let (begin, began) = mpsc::channel();
        scope.spawn(move || {
            // Its folder in the file system of processes.
            begin.send(std::fs::read_link("/proc/thread-self")).unwrap();
            lock.lock();
            had.store(1, Ordering::Relaxed);
            // SAFETY: this thread holds the lock.
            unsafe { lock.unlock() };
        });
        let thread = began.recv().unwrap().expect("a system with these files");
        let stat = std::path::Path::new("/proc").join(thread).join("stat");
        // In the state S it sleeps: once it has sent this, it only waits for the lock.
        while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
            thread::yield_now();
        }
        // SAFETY: this thread holds the lock.
        unsafe { frees(lock) };
        let is_here = has(lock);
        let lets_in = !is_here || had.load(Ordering::Relaxed) == 1;
        if is_here {
            // SAFETY: this thread holds the lock.
            unsafe { lock.unlock() };
        }
        lets_in
    })
}

#[test]
fn each_fair_unlock_lets_a_sleeper_in() {
    // Often, as a sleeper that has asked for the lock gets it by a plain unlock, too.
    for _ in 0..20 {
        assert!(lets_a_sleeper_in(RawMutex::unlock_fair, RawMutex::try_lock));
        assert!(lets_a_sleeper_in(RawMutex::bump, |_| true));
        assert!(lets_a_sleeper_in(RawFairMutex::unlock, RawFairMutex::try_lock));
        assert!(lets_a_sleeper_in(RawFairMutex::unlock_fair, RawFairMutex::try_lock));
        assert!(lets_a_sleeper_in(RawFairMutex::bump, |_| true));
    }
}

#[test]
fn guards_are_mapped_leaked_and_suspended() {
    let lock = Mutex::new((1, "two"));
    let mut one = MutexGuard::map(lock.lock(), |data| &mut data.0);
    *one = 3;
    assert!(lock.try_lock().is_none());
    drop(one);
    let tried = MutexGuard::try_map(lock.lock(), |data| (data.0 == 1).then_some(&mut data.1));
    assert_eq!(tried.map(|_| ()).map_err(|data| data.0), Err(3));
    let mut held = lock.lock();
    MutexGuard::unlocked(&mut held, || assert!(lock.try_lock().is_some()));
    assert!(std::ptr::eq(MutexGuard::mutex(&held), &lock));
    std::mem::forget(held);
    // SAFETY: the guard was forgotten.
    unsafe { lock.force_unlock() };
    *MutexGuard::leak(lock.lock()) = (4, "four");
    assert!(lock.is_locked());
    // SAFETY: the guard was leaked, and its reference is gone.
    unsafe { lock.raw().unlock() };
    assert_eq!(*lock.lock(), (4, "four"));
}

#[test]
fn a_reentrant_mutex_lets_its_holder_in_and_no_other_thread() {
    static LOCK: ReentrantMutex<AtomicU32> = const_reentrant_mutex(AtomicU32::new(0));
    each_adds(4, || {
        let outer = LOCK.lock();
        let before = outer.load(Ordering::Relaxed);
        LOCK.lock().store(before + 1, Ordering::Relaxed);
    });
    let held = LOCK.lock();
    assert_eq!(held.load(Ordering::Relaxed), 8_000);
    assert!(LOCK.is_owned_by_current_thread() && LOCK.try_lock().is_some());
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(LOCK.is_locked() && !LOCK.is_owned_by_current_thread());
            assert!(LOCK.try_lock().is_none() && LOCK.try_lock_for(SOON).is_none());
        });
    });
}

#[test]
fn readers_share_and_writers_are_alone() {
    static LOCK: RwLock<(u32, u32)> = const_rwlock((0, 0));
    each_adds(4, || {
        {
            let mut data = LOCK.write();
            data.0 += 1;
            data.1 += 1;
        }
        let [one, other] = [LOCK.read(), LOCK.read_recursive()];
        assert!(one.0 == one.1 && *one == *other);
    });
    assert_eq!(*LOCK.read(), (8_000, 8_000));
    let read = LOCK.read();
    assert!(LOCK.is_locked() && !LOCK.is_locked_exclusive());
    assert!(LOCK.try_read().is_some() && LOCK.try_read_recursive().is_some());
    assert!(LOCK.try_write().is_none() && LOCK.try_write_for(SOON).is_none());
    assert!(LOCK.try_write_until(Instant::now() + SOON).is_none());
    assert!(LOCK.try_read_for(SOON).is_some() && LOCK.try_read_recursive_for(SOON).is_some());
    drop(read);
    let write = LOCK.write();
    assert!(LOCK.is_locked_exclusive());
    assert!(LOCK.try_read().is_none() && LOCK.try_read_recursive().is_none());
    assert!(LOCK.try_read_for(SOON).is_none());
    assert!(LOCK.try_read_until(Instant::now() + SOON).is_none());
    assert!(LOCK.try_read_recursive_for(SOON).is_none());
    assert!(LOCK.try_read_recursive_until(Instant::now() + SOON).is_none());
    assert!(LOCK.try_upgradable_read_for(SOON).is_none());
    assert!(LOCK.try_upgradable_read_until(Instant::now() + SOON).is_none());
    let read = RwLockWriteGuard::downgrade(write);
    assert!(LOCK.try_read().is_some());
    RwLockReadGuard::unlock_fair(read);
    RwLockWriteGuard::unlock_fair(LOCK.write());
}

#[test]
fn a_thread_reads_again_while_a_writer_waits() {
    let lock = RwLock::new(0);
    let read = lock.read();
    thread::scope(|scope| {
        scope.spawn(|| *lock.write() += 1);
        // Until the writer waits, and after that.
        while lock.try_read().is_some() {
            thread::yield_now();
        }
        assert_eq!(*lock.read_recursive(), 0);
        assert!(lock.try_read_recursive().is_some());
        drop(read);
    });
    assert_eq!(*lock.read(), 1);
}

#[test]
fn one_reader_is_upgradable_and_no_writer_comes_before_it() {
    let lock = RwLock::new(0);
    each_adds(4, || {
        let read = lock.upgradable_read();
        let seen = *read;
        let mut write = RwLockUpgradableReadGuard::upgrade(read);
        assert_eq!(*write, seen, "a writer came in between");
        *write += 1;
    });
    each_adds(4, || {
        let mut read = lock.upgradable_read();
        let before = *read;
        read.with_upgraded(|data| *data += 1);
        assert_eq!(*read, before + 1);
    });
    assert_eq!(lock.into_inner(), 16_000);

    let lock = RwLock::new(0);
    let upgradable = lock.upgradable_read();
    assert!(lock.try_upgradable_read().is_none() && lock.try_upgradable_read_for(SOON).is_none());
    let reader = lock.try_read().expect("readers share with it");
    let upgradable = RwLockUpgradableReadGuard::try_upgrade(upgradable).expect_err("a reader");
    let late = RwLockUpgradableReadGuard::try_upgrade_for(upgradable, SOON);
    let upgradable = late.expect_err("a reader is there");
    let until = Instant::now() + SOON;
    let late = RwLockUpgradableReadGuard::try_upgrade_until(upgradable, until);
    let mut upgradable = late.expect_err("a reader is there");
    assert!(upgradable.try_with_upgraded(|_| ()).is_none());
    assert!(upgradable.try_with_upgraded_for(SOON, |_| ()).is_none());
    drop(reader);
    assert!(upgradable.try_with_upgraded(|data| *data = 5).is_some());
    let write = RwLockUpgradableReadGuard::try_upgrade(upgradable).expect("no reader");
    let upgradable = RwLockWriteGuard::downgrade_to_upgradable(write);
    assert!(lock.try_upgradable_read().is_none() && lock.try_read().is_some());
    let mut upgradable = upgradable;
    RwLockUpgradableReadGuard::bump(&mut upgradable);
    RwLockUpgradableReadGuard::unlock_fair(upgradable);
    let read = RwLockUpgradableReadGuard::downgrade(lock.upgradable_read());
    assert!(lock.try_upgradable_read().is_some());
    assert_eq!(*read, 5);
}

#[test]
fn guards_of_readers_and_writers_are_mapped_bumped_and_forced() {
    let lock = RwLock::new((1, 2));
    drop(RwLockReadGuard::map(lock.read(), |data| &data.0));
    *RwLockWriteGuard::map(lock.write(), |data| &mut data.0) = 3;
    assert!(RwLockReadGuard::try_map(lock.read(), |_| None::<&u32>).is_err());
    let (mut read, mut turns) = (lock.read(), 0);
    RwLockReadGuard::bump(&mut read);
    RwLockReadGuard::unlocked(&mut read, || turns += u32::from(lock.try_write().is_some()));
    RwLockReadGuard::unlocked_fair(&mut read, || turns += u32::from(lock.try_write().is_some()));
    std::mem::forget(read);
    // SAFETY: the guard was forgotten.
    unsafe { lock.force_unlock_read() };
    let mut write = lock.write();
    RwLockWriteGuard::bump(&mut write);
    RwLockWriteGuard::unlocked(&mut write, || turns += u32::from(lock.try_read().is_some()));
    std::mem::forget(write);
    // SAFETY: the guard was forgotten.
    unsafe { lock.force_unlock_write() };
    assert_eq!((turns, *lock.read()), (3, (3, 2)));
    // SAFETY: no guard of it is there.
    assert!(unsafe { lock.raw() }.try_lock_exclusive());
}

#[test]
fn a_condition_variable_notifies_in_order_and_says_how_many() {
    let (lock, changed) = (Mutex::new(Vec::new()), Condvar::new());
    assert!(!changed.notify_one() && changed.notify_all() == 0);
    thread::scope(|scope| {
        let (begin, began) = mpsc::channel();
        for number in 0..3 {
            let (lock, changed, begin) = (&lock, &changed, begin.clone());
            scope.spawn(move || {
                let mut order = lock.lock();
                begin.send(()).unwrap();
                changed.wait(&mut order);
                order.push(number);
            });
            // It holds the lock until it waits.
            began.recv().unwrap();
            drop(lock.lock());
        }
        assert!(changed.notify_one());
        while lock.lock().is_empty() {
            thread::yield_now();
        }
        assert_eq!((changed.notify_all(), changed.notify_all()), (2, 0));
    });
    assert_eq!(lock.lock()[0], 0, "the first that waited");
    assert_eq!(format!("{changed:?} {:?}", Condvar::default()), "Condvar { .. } Condvar { .. }");
}

#[test]
fn a_wait_ends_by_its_deadline_alone() {
    let (lock, changed) = (Mutex::new(()), Condvar::new());
    let mut held = lock.lock();
    let begun = Instant::now();
    assert!(changed.wait_for(&mut held, SOON).timed_out());
    assert!(changed.wait_until(&mut held, Instant::now() + SOON).timed_out());
    assert!(begun.elapsed() >= 2 * SOON);
    assert!(changed.wait_until(&mut held, begun).timed_out(), "a time that has passed");
    assert!(!changed.notify_one(), "a waiter that has left");
    drop(held);
    thread::scope(|scope| {
        let mut held = lock.lock();
        scope.spawn(|| {
            drop(lock.lock());
            changed.notify_all();
        });
        assert!(!changed.wait_for(&mut held, LONG).timed_out());
    });
}

#[test]
fn a_condition_is_waited_for_with_and_without_deadline() {
    let (lock, changed) = (FairMutex::new(0), Condvar::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5 {
                *lock.lock() += 1;
                changed.notify_one();
            }
        });
        let mut held = lock.lock();
        changed.wait_while(&mut held, |count| *count < 3);
        assert!(!changed.wait_while_for(&mut held, |count| *count < 5, LONG).timed_out());
        let until = Instant::now() + LONG;
        assert!(!changed.wait_while_until(&mut held, |count| *count < 5, until).timed_out());
        let mut asked = 0;
        let late = changed.wait_while_for(
            &mut held,
            |_| {
                asked += 1;
                true
            },
            SOON,
        );
        assert!(late.timed_out());
        assert_eq!((*held, asked), (5, 1), "not called after the deadline");
    });
}

#[test]
fn a_second_mutex_is_refused_while_a_thread_waits() {
    let (lock, other, changed) = (Mutex::new(false), Mutex::new(()), Condvar::new());
    thread::scope(|scope| {
        let mut waits = lock.lock();
        scope.spawn(|| {
            drop(lock.lock());
            let wait = || changed.wait_for(&mut other.lock(), LONG);
            let wait = std::panic::AssertUnwindSafe(wait);
            std::panic::catch_unwind(wait).expect_err("another mutex");
            *lock.lock() = true;
            changed.notify_one();
        });
        changed.wait_while(&mut waits, |done| !*done);
    });
    assert!(changed.wait_for(&mut other.lock(), SOON).timed_out(), "none waits now");
}

#[test]
fn a_once_runs_once_and_says_how_far_it_is() {
    static ONCE: Once = Once::new();
    static RUNS: AtomicU32 = AtomicU32::new(0);
    assert_eq!(ONCE.state(), OnceState::New);
    each_adds(4, || {
        ONCE.call_once(|| {
            assert_eq!(ONCE.state(), OnceState::InProgress);
            RUNS.fetch_add(1, Ordering::Relaxed);
        });
        assert!(ONCE.state().done() && RUNS.load(Ordering::Relaxed) == 1);
    });
    assert_eq!(format!("{ONCE:?}"), "Once { state: Done }");
}

#[test]
fn a_once_whose_call_panics_is_poisoned_until_it_is_forced() {
    let once = Once::default();
    thread::scope(|scope| {
        scope.spawn(|| once.call_once(|| panic!("planted"))).join().expect_err("it panics");
        assert!(once.state().poisoned() && !once.state().done());
        scope.spawn(|| once.call_once(|| ())).join().expect_err("it is poisoned");
    });
    once.call_once_force(|state| assert_eq!(state, OnceState::Poisoned));
    assert_eq!(once.state(), OnceState::Done);
    once.call_once(|| unreachable!("it is done"));
}

/// A program may rely on these sizes, and on what may cross threads.
#[test]
fn sizes_and_automatic_traits_are_as_documented() {
    assert_eq!(size_of::<(RawMutex, RawRwLock)>(), 8 + 8);
    assert_eq!((size_of::<Condvar>(), size_of::<Once>()), (16, 8));
    fn crosses<T: Send + Sync + std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    crosses::<(RawMutex, RawFairMutex, RawRwLock, Condvar, Once, RawThreadId)>();
}

#[cfg(feature = "send_guard")]
#[test]
fn a_guard_is_sent_to_another_thread() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    let held = LOCK.lock();
    thread::spawn(move || drop(held)).join().unwrap();
    assert!(LOCK.try_lock().is_some());
}

#[cfg(feature = "arc_lock")]
#[test]
fn guards_own_their_lock() {
    let lock = Arc::new(Mutex::new(1));
    let mut held: ArcMutexGuard<RawMutex, u32> = lock.lock_arc();
    drop(lock);
    *held += 1;
    assert_eq!(*held, 2);
    let lock = Arc::new(RwLock::new(1));
    let read: ArcRwLockReadGuard<RawRwLock, u32> = lock.read_arc();
    assert!(lock.try_write_arc().is_none());
    drop(read);
    let write: ArcRwLockWriteGuard<RawRwLock, u32> = lock.write_arc();
    drop(write);
    let read: ArcRwLockUpgradableReadGuard<RawRwLock, u32> = lock.upgradable_read_arc();
    *ArcRwLockUpgradableReadGuard::upgrade(read) += 1;
    let lock = Arc::new(ReentrantMutex::new(1));
    let held: ArcReentrantMutexGuard<RawMutex, RawThreadId, u32> = lock.lock_arc();
    assert_eq!((*held, *lock.lock_arc()), (1, 1));
    let held: ArcMutexGuard<RawFairMutex, u32> = Arc::new(FairMutex::new(1)).lock_arc();
    assert_eq!(*held, 1);
}

#[cfg(feature = "serde")]
#[test]
fn data_is_serialized_through_its_lock() {
    fn is_serde<T: serde::Serialize + serde::de::DeserializeOwned>() {}
    is_serde::<(Mutex<u32>, RwLock<u32>, FairMutex<u32>, ReentrantMutex<u32>)>();
}
