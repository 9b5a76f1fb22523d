//! The code that all guards have in common.

/// The traits of a guard: a struct with a `lock` and with `data`, the access to the guarded value.
/// When the guard drops, the access ends, and then `$give_up` gives the lock up. With `mut`, the
/// guard may change the data.
macro_rules! guard {
    (mut $Guard:ident, [$($Param:ident: $Bound:ident),*], $give_up:expr) => {
        guard!($Guard, [$($Param: $Bound),*], $give_up);

        impl<T, $($Param: $Bound),*> core::ops::DerefMut for $Guard<'_, T, $($Param),*> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                &mut self.data
            }
        }
    };
    ($Guard:ident, [$($Param:ident: $Bound:ident),*], $give_up:expr) => {
        // SAFETY: a shared guard gives only `&T`.
        unsafe impl<T: Sync, $($Param: $Bound),*> Sync for $Guard<'_, T, $($Param),*> {}

        // As std's lock and its guard, but not poisoned: the next holder finds the data as a panic
        // left it.
        impl<T, $($Param: $Bound),*> core::panic::UnwindSafe for $Guard<'_, T, $($Param),*> {}
        impl<T, $($Param: $Bound),*> core::panic::RefUnwindSafe for $Guard<'_, T, $($Param),*> {}

        impl<T, $($Param: $Bound),*> core::ops::Deref for $Guard<'_, T, $($Param),*> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                &self.data
            }
        }

        impl<T, $($Param: $Bound),*> Drop for $Guard<'_, T, $($Param),*> {
            #[inline]
            fn drop(&mut self) {
                // For its world, too, the access ends before the lock is free:
                //
                //   Thread 1: unlock
                //   Thread 2: lock, begins to write the data
                //   Thread 1: ends its write           <- both write the data
                //
                // SAFETY: dropped here once, and not used afterwards.
                unsafe { core::mem::ManuallyDrop::drop(&mut self.data) };
                $give_up(self.lock);
            }
        }

        impl<T: core::fmt::Debug, $($Param: $Bound),*> core::fmt::Debug
            for $Guard<'_, T, $($Param),*>
        {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

pub(super) use guard;
