//! The readers-writer lock.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::panic::Location;
use core::sync::atomic::AtomicU32;
use std::sync::{LockResult, TryLockError, TryLockResult};

use coreline_world::{ConstWords as _, Integer as _, Ordering, Sleep as _, Word as _, Words as _};

use super::poison::{Before, Flag, guard, lock_impls};
use super::{sleep, turns, used};
use crate::Sim;
use crate::engine::races;
use crate::hardware::coherence::Access;
use crate::results::report::Site;
use crate::words::{SimU32, effect};
use crate::world::locks;

/// The bits of the state word.
///
/// | bits | meaning | written by |
/// |---|---|---|
/// | `COUNT` | readers that hold it; all ones: a writer | a thread that takes it or gives it back |
/// | `READERS_WAIT` | readers may be parked on the state word | a reader about to park |
/// | `WRITERS_WAIT` | writers may be parked on the other word | a writer about to park |
///
/// The last holder to give the lock back clears the mark of the threads that it wakes: one writer,
/// or else all readers. A reader that finds a mark waits, so writers do not starve.
const COUNT: u32 = (1 << 30) - 1;
const WRITER: u32 = COUNT;
const MOST_READERS: u32 = COUNT - 1;
const READERS_WAIT: u32 = 1 << 30;
const WRITERS_WAIT: u32 = 1 << 31;

fn is_free(state: u32) -> bool {
    state & COUNT == 0
}

fn is_readable(state: u32) -> bool {
    state & COUNT < MOST_READERS && state & (READERS_WAIT | WRITERS_WAIT) == 0
}

/// The lock without what it protects.
struct Raw {
    state: SimU32,
    /// Counts wake-ups of writers. They park here, since readers change the state.
    writers: SimU32,
}

impl Raw {
    const fn new() -> Raw {
        Raw { state: Sim::U32_ZERO, writers: Sim::U32_ZERO }
    }

    /// Replaces the state that was seen. Acquire: pairs with the Release subtractions.
    #[track_caller]
    fn change(&self, seen: u32, state: u32) -> Result<u32, u32> {
        self.state.compare_exchange_weak(seen, state, Ordering::Acquire, Ordering::Relaxed)
    }

    /// Looks until `enough`, or until it took too long.
    #[track_caller]
    fn spin(&self, enough: fn(u32) -> bool) -> u32 {
        for _ in 0..turns() {
            // Relaxed: a glance; taking the lock orders.
            let state = self.state.load(Ordering::Relaxed);
            if enough(state) {
                return state;
            }
            Sim::relax();
        }
        self.state.load(Ordering::Relaxed)
    }

    #[track_caller]
    fn try_read(&self) -> bool {
        // Relaxed: a glance.
        let mut state = self.state.load(Ordering::Relaxed);
        while is_readable(state) {
            match self.change(state, state + 1) {
                Ok(_) => return true,
                Err(other) => state = other,
            }
        }
        false
    }

    #[track_caller]
    fn read(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if !is_readable(state) || self.change(state, state + 1).is_err() {
            locks::waiting(self);
            self.read_contended();
        }
        locks::acquired(self);
    }

    #[track_caller]
    fn read_contended(&self) {
        /// Free, held by readers, or others wait: looking longer gains nothing.
        fn enough(state: u32) -> bool {
            state & COUNT != WRITER || state & (READERS_WAIT | WRITERS_WAIT) != 0
        }
        let mut state = self.spin(enough);
        loop {
            if is_readable(state) {
                match self.change(state, state + 1) {
                    Ok(_) => return,
                    Err(other) => state = other,
                }
                continue;
            }
            assert!(state & COUNT != MOST_READERS, "too many active read locks on RwLock");
            if state & READERS_WAIT == 0 {
                // Relaxed: the mark orders nothing; the park compares it.
                if let Err(other) = self.state.compare_exchange(
                    state,
                    state | READERS_WAIT,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    state = other;
                    continue;
                }
            }
            sleep(&self.state, state | READERS_WAIT, None);
            state = self.spin(enough);
        }
    }

    #[track_caller]
    fn try_write(&self) -> bool {
        // Relaxed: a glance.
        let mut state = self.state.load(Ordering::Relaxed);
        while is_free(state) {
            match self.change(state, state + WRITER) {
                Ok(_) => return true,
                Err(other) => state = other,
            }
        }
        false
    }

    #[track_caller]
    fn write(&self) {
        if self.change(0, WRITER).is_err() {
            locks::waiting(self);
            self.write_contended();
        }
        locks::acquired(self);
    }

    #[track_caller]
    fn write_contended(&self) {
        fn enough(state: u32) -> bool {
            is_free(state) || state & WRITERS_WAIT != 0
        }
        let mut state = self.spin(enough);
        // A thread that was parked cannot know whether others still are: it keeps the mark up.
        let mut mark = 0;
        loop {
            if is_free(state) {
                match self.change(state, state | WRITER | mark) {
                    Ok(_) => return,
                    Err(other) => state = other,
                }
                continue;
            }
            if state & WRITERS_WAIT == 0 {
                // Relaxed: as in `read_contended`.
                if let Err(other) = self.state.compare_exchange(
                    state,
                    state | WRITERS_WAIT,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    state = other;
                    continue;
                }
            }
            mark = WRITERS_WAIT;
            // Acquire: pairs with the Release addition of `wake_writer`; the state is looked at
            // again after it, so that no wake-up in between is slept through.
            let turn = self.writers.load(Ordering::Acquire);
            state = self.state.load(Ordering::Relaxed);
            if is_free(state) || state & WRITERS_WAIT == 0 {
                continue;
            }
            sleep(&self.writers, turn, None);
            state = self.spin(enough);
        }
    }

    /// Gives the lock back, for which `site` stands in reports.
    fn unlock_read(&self, site: Site) {
        locks::released(self);
        // Release: pairs with the Acquire of a writer.
        let leave = |word: &AtomicU32| word.fetch_sub(1, Ordering::Release) - 1;
        let state =
            effect::read_at(site, &self.state.atomic.0, (Access::Update, Ordering::Release), leave);
        races::updated(self.state.atomic.as_ptr().addr(), Ordering::Release);
        if is_free(state) && state & WRITERS_WAIT != 0 {
            self.wake(state);
        }
    }

    /// Like [`unlock_read`](Raw::unlock_read), but for a writer.
    fn unlock_write(&self, site: Site) {
        locks::released(self);
        // Release: pairs with the Acquire of the next holder.
        let leave = |word: &AtomicU32| word.fetch_sub(WRITER, Ordering::Release) - WRITER;
        let state =
            effect::read_at(site, &self.state.atomic.0, (Access::Update, Ordering::Release), leave);
        races::updated(self.state.atomic.as_ptr().addr(), Ordering::Release);
        if state & (READERS_WAIT | WRITERS_WAIT) != 0 {
            self.wake(state);
        }
    }

    /// The writer becomes a reader, and lets the other readers in.
    #[track_caller]
    fn downgrade(&self) {
        // Release: pairs with the Acquire of the readers.
        let before = self.state.fetch_sub(WRITER - 1, Ordering::Release);
        if before & READERS_WAIT != 0 {
            // Relaxed: only the mark goes.
            self.state.fetch_and(!READERS_WAIT, Ordering::Relaxed);
            Sim::wake(&self.state, u32::MAX);
        }
    }

    /// Wakes a writer, or all readers, of a free lock with marks.
    #[track_caller]
    fn wake(&self, mut state: u32) {
        // Relaxed, here and below: a thread that wakes up takes the lock with Acquire.
        let clear = |from: u32, to: u32| {
            self.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
        };
        if state == WRITERS_WAIT {
            match clear(state, 0) {
                Ok(_) => {
                    self.wake_writer();
                    return;
                }
                // Readers may have come meanwhile, or a thread took the lock.
                Err(other) => state = other,
            }
        }
        if state == READERS_WAIT | WRITERS_WAIT {
            if clear(state, READERS_WAIT).is_err() || self.wake_writer() {
                return;
            }
            // No writer was parked: its mark was an old one.
            state = READERS_WAIT;
        }
        if state == READERS_WAIT && clear(state, 0).is_ok() {
            Sim::wake(&self.state, u32::MAX);
        }
    }

    /// Wakes a writer. Returns whether one was parked.
    #[track_caller]
    fn wake_writer(&self) -> bool {
        // Release: pairs with the Acquire load in `write_contended`.
        self.writers.fetch_add(1, Ordering::Release);
        Sim::wake(&self.writers, 1) > 0
    }
}

/// A readers-writer lock like [`std::sync::RwLock`], but its accesses are charged, and the run has
/// [reports](crate::locks) on it.
pub struct RwLock<T: ?Sized> {
    raw: Raw,
    poison: Flag,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns its value, so moving it moves a `T: Send`.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: one writer reaches the value (`T: Send`), or several readers share it (`T: Sync`).
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}
lock_impls!(RwLock, try_read);

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock for reading.
    ///
    /// # Errors
    ///
    /// An error that holds the guard, if a thread panicked while it held the lock for writing.
    ///
    /// # Panics
    ///
    /// Panics if 2³⁰ - 2 readers hold the lock.
    #[track_caller]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.raw.read();
        self.poison.wrap(self.reader())
    }

    /// Takes the lock for reading, if no writer holds it or waits for it.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the lock cannot be taken now. An error that holds the guard, if the lock is
    /// poisoned.
    #[track_caller]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        if !self.raw.try_read() {
            return Err(TryLockError::WouldBlock);
        }
        locks::acquired(&self.raw);
        Ok(self.poison.wrap(self.reader())?)
    }

    /// Takes the lock for writing.
    ///
    /// # Errors
    ///
    /// An error that holds the guard, if a thread panicked while it held the lock for writing.
    #[track_caller]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.raw.write();
        self.guard()
    }

    /// Takes the lock for writing, if it is free.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the lock cannot be taken now. An error that holds the guard, if the lock is
    /// poisoned.
    #[track_caller]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        if !self.raw.try_write() {
            return Err(TryLockError::WouldBlock);
        }
        locks::acquired(&self.raw);
        Ok(self.guard()?)
    }

    /// The guard of a reader that has taken the lock.
    #[track_caller]
    fn reader(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard { lock: self, site: Location::caller(), not_send: PhantomData }
    }

    /// The guard of a writer that has taken the lock.
    #[track_caller]
    fn guard(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        let before = self.poison.before();
        self.poison.wrap(RwLockWriteGuard {
            lock: self,
            before,
            site: Location::caller(),
            not_send: PhantomData,
        })
    }
}

/// A guard that releases the read lock when it drops, like [`std::sync::RwLockReadGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// The source location at which the lock was taken, because no destructor knows the location
    /// where it runs.
    site: Site,
    /// It belongs to the thread that took the lock.
    not_send: PhantomData<*mut ()>,
}

/// A guard that releases the write lock when it drops, like [`std::sync::RwLockWriteGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    before: Before,
    /// The source location at which the lock was taken.
    site: Site,
    /// It belongs to the thread that took the lock.
    not_send: PhantomData<*mut ()>,
}

guard!(RwLockReadGuard);
guard!(mut RwLockWriteGuard);

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Turns a write guard into a read guard. No other writer can take the lock in between.
    #[track_caller]
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let guard = ManuallyDrop::new(guard);
        guard.lock.poison.done(&guard.before);
        guard.lock.raw.downgrade();
        RwLockReadGuard { lock: guard.lock, site: guard.site, not_send: PhantomData }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.raw.unlock_read(self.site);
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.poison.done(&self.before);
        self.lock.raw.unlock_write(self.site);
    }
}
