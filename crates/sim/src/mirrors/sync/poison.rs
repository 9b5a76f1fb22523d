//! Poison, which says whether a thread panicked while it held a lock, and the code that
//! [`Mutex`](super::Mutex) and [`RwLock`](super::RwLock) have in common.

use std::sync::{LockResult, PoisonError};

use crate::engine;
use crate::mirrors::thread;
use crate::words::atomic::{AtomicBool, Ordering};

/// A lock's mark.
pub(super) struct Flag(AtomicBool);

/// Whether a thread was unwinding when it took the lock.
pub(super) struct Before(bool);

impl Flag {
    pub(super) const fn new() -> Flag {
        Flag(AtomicBool::new(false))
    }

    /// Relaxed, here and below: the lock orders the mark; read without the lock it is a hint.
    #[track_caller]
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    #[track_caller]
    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Notes whether a thread that just took the lock is unwinding.
    #[track_caller]
    pub(super) fn before(&self) -> Before {
        Before(thread::panicking())
    }

    /// Sets the mark if a thread that gives the lock back began to unwind while it held it.
    #[track_caller]
    pub(super) fn done(&self, before: &Before) {
        if !before.0 && thread::panicking() {
            engine::with(|engine| engine.poisons(self.0.as_ptr().addr()));
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// `Err` if the lock is poisoned.
    #[track_caller]
    pub(super) fn wrap<T>(&self, value: T) -> LockResult<T> {
        if !self.get() {
            return Ok(value);
        }
        engine::with(|engine| engine.finds_poison(self.0.as_ptr().addr()));
        Err(PoisonError::new(value))
    }
}

/// The traits of a lock, and its functions that need no lock. `$try` takes the lock to show the
/// value.
macro_rules! lock_impls {
    ($Lock:ident, $try:ident) => {
        impl<T: ?Sized> core::panic::UnwindSafe for $Lock<T> {}
        impl<T: ?Sized> core::panic::RefUnwindSafe for $Lock<T> {}

        impl<T> $Lock<T> {
            /// Creates an unlocked lock.
            pub const fn new(value: T) -> Self {
                $Lock { raw: Raw::new(), poison: Flag::new(), value: UnsafeCell::new(value) }
            }

            /// Returns the protected value, and consumes the lock.
            ///
            /// # Errors
            ///
            /// An error that holds the value, if the lock is poisoned.
            #[track_caller]
            pub fn into_inner(self) -> LockResult<T> {
                self.poison.wrap(self.value.into_inner())
            }
        }

        impl<T: ?Sized> $Lock<T> {
            /// Returns whether a thread panicked while it held the lock and could write.
            pub fn is_poisoned(&self) -> bool {
                self.poison.get()
            }

            /// Clears the poison.
            #[track_caller]
            pub fn clear_poison(&self) {
                self.poison.clear();
            }

            /// Returns a mutable reference to the protected value, without locking. The call is
            /// charged as a store.
            ///
            /// # Errors
            ///
            /// An error that holds the value, if the lock is poisoned.
            #[track_caller]
            pub fn get_mut(&mut self) -> LockResult<&mut T> {
                used(self.value.get(), Access::Store);
                self.poison.wrap(self.value.get_mut())
            }
        }

        impl<T> From<T> for $Lock<T> {
            #[track_caller]
            fn from(value: T) -> Self {
                $Lock::new(value)
            }
        }

        impl<T: Default> Default for $Lock<T> {
            fn default() -> Self {
                $Lock::new(T::default())
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $Lock<T> {
            /// Takes the lock if it is free now.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut debug = f.debug_struct(stringify!($Lock));
                match self.$try() {
                    Ok(guard) => debug.field("data", &&*guard),
                    Err(TryLockError::Poisoned(error)) => debug.field("data", &&**error.get_ref()),
                    Err(TryLockError::WouldBlock) => debug.field("data", &format_args!("<locked>")),
                };
                debug.field("poisoned", &self.poison.get()).finish_non_exhaustive()
            }
        }
    };
}

/// The traits of a guard that has a `lock`. With `mut`, the guard may change the value.
macro_rules! guard {
    (mut $Guard:ident) => {
        guard!($Guard);

        impl<T: ?Sized> DerefMut for $Guard<'_, T> {
            #[track_caller]
            fn deref_mut(&mut self) -> &mut T {
                used(self.lock.value.get(), Access::Store);
                // SAFETY: there is a guard that may write only while its thread alone has the lock.
                unsafe { &mut *self.lock.value.get() }
            }
        }
    };
    ($Guard:ident) => {
        // SAFETY: a shared guard gives `&T`, and `T` is `Sync`.
        unsafe impl<T: ?Sized + Sync> Sync for $Guard<'_, T> {}

        impl<T: ?Sized> Deref for $Guard<'_, T> {
            type Target = T;

            #[track_caller]
            fn deref(&self) -> &T {
                used(self.lock.value.get(), Access::Load);
                // SAFETY: while there is a guard, no other thread writes: it would need the lock.
                unsafe { &*self.lock.value.get() }
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $Guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&**self, f)
            }
        }

        impl<T: ?Sized + fmt::Display> fmt::Display for $Guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&**self, f)
            }
        }
    };
}

pub(super) use {guard, lock_impls};
