//! The mutex.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::panic::Location;
use core::sync::atomic::AtomicU32;
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use coreline_world::{ConstWords as _, Ordering, Sleep as _, Word as _, Words as _};

use super::poison::{Before, Flag};
use super::{SPINS, used};
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
            Sim::park(&self.0, CONTENDED, None);
            state = self.spin();
        }
    }

    /// Looks until the lock is free, or a thread parks, or it took too long. Returns the state.
    #[track_caller]
    fn spin(&self) -> u32 {
        for _ in 0..SPINS {
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
        let state = effect::read_at(site, &self.0.atomic.0, Access::Update, free);
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
impl<T: ?Sized> std::panic::UnwindSafe for Mutex<T> {}
impl<T: ?Sized> std::panic::RefUnwindSafe for Mutex<T> {}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { raw: Raw::new(), poison: Flag::new(), value: UnsafeCell::new(value) }
    }

    /// Returns the protected value, and consumes the mutex.
    ///
    /// # Errors
    ///
    /// An error that holds the value, if a thread panicked while it held the lock.
    #[track_caller]
    pub fn into_inner(self) -> LockResult<T> {
        let poisoned = self.poison.get();
        let value = self.value.into_inner();
        if poisoned { Err(PoisonError::new(value)) } else { Ok(value) }
    }
}

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

    /// Returns whether a thread panicked while it held the lock.
    pub fn is_poisoned(&self) -> bool {
        self.poison.get()
    }

    /// Clears the poison.
    #[track_caller]
    pub fn clear_poison(&self) {
        self.poison.clear();
    }

    /// Returns a mutable reference to the protected value, without locking. The call is charged as
    /// a store.
    ///
    /// # Errors
    ///
    /// An error that holds the value, if a thread panicked while it held the lock.
    #[track_caller]
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        used(self.value.get(), Access::Store);
        let poisoned = self.poison.get();
        let value = self.value.get_mut();
        if poisoned { Err(PoisonError::new(value)) } else { Ok(value) }
    }
}

impl<T> From<T> for Mutex<T> {
    #[track_caller]
    fn from(value: T) -> Self {
        Mutex::new(value)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    /// Takes the lock, if it is free.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Mutex");
        match self.try_lock() {
            Ok(guard) => debug.field("data", &&*guard),
            Err(TryLockError::Poisoned(error)) => debug.field("data", &&**error.get_ref()),
            Err(TryLockError::WouldBlock) => debug.field("data", &format_args!("<locked>")),
        };
        debug.field("poisoned", &self.poison.get()).finish_non_exhaustive()
    }
}

/// A guard that releases the mutex when it drops, like [`std::sync::MutexGuard`].
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    before: Before,
    /// Where the lock was taken: no destructor knows the place where it runs.
    site: Site,
    /// It belongs to the thread that took the lock.
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives `&T`, and `T` is `Sync`.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

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

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[track_caller]
    fn deref(&self) -> &T {
        used(self.lock.value.get(), Access::Load);
        // SAFETY: the guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[track_caller]
    fn deref_mut(&mut self) -> &mut T {
        used(self.lock.value.get(), Access::Store);
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.poison.done(&self.before);
        self.lock.raw.unlock(self.site);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
