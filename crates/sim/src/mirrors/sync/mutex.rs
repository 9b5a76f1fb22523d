//! The mutex.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::panic::Location;
use core::sync::atomic::AtomicU32;
use std::sync::{LockResult, TryLockError, TryLockResult};

use coreline_world::{ConstWords as _, Ordering, Sleep as _, Word as _, Words as _};

use super::poison::{Before, Flag, guard, lock_impls};
use super::{sleep, turns, used};
use crate::Sim;
use crate::engine::races;
use crate::hardware::coherence::Access;
use crate::results::report::Site;
use crate::words::{SimU32, effect};
use crate::world::locks;

/// The states of the word.
///
/// | state | meaning | written by |
/// |---|---|---|
/// | `FREE` | not held | the holder that gives it back |
/// | `HELD` | held; no thread is parked | a thread that takes it without parking |
/// | `CONTENDED` | held; threads may be parked | a thread about to park, or that was parked |
const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// The lock without what it protects: a futex of three states, after Drepper, *Futexes Are Tricky*.
pub(super) struct Raw(SimU32);

impl Raw {
    const fn new() -> Raw {
        Raw(Sim::U32_ZERO)
    }

    #[track_caller]
    pub(super) fn try_lock(&self) -> bool {
        // Acquire: pairs with the Release swap of `unlock`.
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[track_caller]
    pub(super) fn lock(&self) {
        if !self.try_lock() {
            locks::waiting(self);
            self.lock_contended();
        }
        locks::acquired(self);
    }

    #[track_caller]
    fn lock_contended(&self) {
        let mut state = self.spin();
        // Free, and no thread was parked: take it without the mark.
        if state == FREE && self.try_lock() {
            return;
        }
        loop {
            // A thread here cannot know whether others are parked: it leaves the mark. Acquire:
            // pairs with the Release swap of `unlock`.
            if state != CONTENDED && self.0.swap(CONTENDED, Ordering::Acquire) == FREE {
                return;
            }
            sleep(&self.0, CONTENDED, None);
            state = self.spin();
        }
    }

    /// Looks until the lock is free, or a thread parks, or it took too long. Returns the state.
    #[track_caller]
    fn spin(&self) -> u32 {
        for _ in 0..turns() {
            // Relaxed: a glance; taking the lock orders.
            let state = self.0.load(Ordering::Relaxed);
            if state != HELD {
                return state;
            }
            Sim::relax();
        }
        self.0.load(Ordering::Relaxed)
    }

    /// Gives the lock back, for which `site` stands in reports.
    pub(super) fn unlock(&self, site: Site) {
        locks::released(self);
        // Release: pairs with the Acquire access that takes the lock next.
        let free = |word: &AtomicU32| word.swap(FREE, Ordering::Release);
        let state =
            effect::read_at(site, &self.0.atomic.0, (Access::Update, Ordering::Release), free);
        races::updated(self.0.atomic.as_ptr().addr(), Ordering::Release);
        if state == CONTENDED {
            Sim::wake(&self.0, 1);
        }
    }
}

/// A mutex like [`std::sync::Mutex`], but its accesses are charged, and the run has
/// [reports](crate::locks) on it.
///
/// ```
/// # #[global_allocator]
/// # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
/// use coreline_sim::sync::Mutex;
/// use coreline_sim::{Machine, thread};
///
/// let run = Machine::preset("epyc-9654-2s")?.run(|| {
///     let sum = Mutex::new(0);
///     thread::scope(|scope| {
///         for _ in 0..8 {
///             scope.spawn(|| *sum.lock().unwrap() += 1);
///         }
///     });
///     sum.into_inner().unwrap()
/// })?;
/// assert_eq!(run.value, 8);
/// assert_eq!(run.locks[0].acquisitions, 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Mutex<T: ?Sized> {
    raw: Raw,
    poison: Flag,
    value: UnsafeCell<T>,
}

// SAFETY: the mutex owns its value, so moving it moves a `T: Send`.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: one guard at a time reaches the value, so threads only pass it on (`T: Send`).
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
lock_impls!(Mutex, try_lock);

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock. If the lock is held, the thread spins briefly and then parks.
    ///
    /// # Errors
    ///
    /// An error that holds the guard, if a thread panicked while it held the lock.
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.raw.lock();
        self.guard()
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if another thread holds the lock. An error that holds the guard, if a thread
    /// panicked while it held the lock.
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        if !self.raw.try_lock() {
            return Err(TryLockError::WouldBlock);
        }
        locks::acquired(&self.raw);
        Ok(self.guard()?)
    }

    /// The guard of a thread that has taken the lock.
    #[track_caller]
    fn guard(&self) -> LockResult<MutexGuard<'_, T>> {
        let guard = MutexGuard {
            before: self.poison.before(),
            lock: self,
            site: Location::caller(),
            not_send: PhantomData,
        };
        self.poison.wrap(guard)
    }
}

/// A guard that releases the mutex when it drops, like [`std::sync::MutexGuard`].
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    before: Before,
    /// The source location at which the lock was taken, because no destructor knows the location
    /// where it runs.
    site: Site,
    /// It belongs to the thread that took the lock.
    not_send: PhantomData<*mut ()>,
}

guard!(mut MutexGuard);

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// The mutex that it is of.
    pub(super) fn raw(&self) -> &'a Raw {
        &self.lock.raw
    }

    /// The guard again, or an error if the mutex was poisoned meanwhile.
    #[track_caller]
    pub(super) fn again(self) -> LockResult<Self> {
        self.lock.poison.wrap(self)
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.poison.done(&self.before);
        self.lock.raw.unlock(self.site);
    }
}
