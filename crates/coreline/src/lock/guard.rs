//! The code that all locks and all guards have in common.

/// The traits of a guard: a struct with a `lock` and with `data`, the access to the guarded value.
/// When the guard drops, the access ends, and then `$give_up` gives the lock up. With `mut`, the
/// guard may change the data. With `of` and a lock, the guard's `lock` is that lock, and it has a
/// constructor.
macro_rules! guard {
    (mut $Guard:ident of $Lock:ident, [$($Param:ident: $Bound:ident),*], $give_up:expr) => {
        guard!(mut $Guard, [$($Param: $Bound),*], $give_up);
        guard!(@ $Guard of $Lock, [$($Param: $Bound),*], borrow_mut);
    };
    ($Guard:ident of $Lock:ident, [$($Param:ident: $Bound:ident),*], $give_up:expr) => {
        guard!($Guard, [$($Param: $Bound),*], $give_up);
        guard!(@ $Guard of $Lock, [$($Param: $Bound),*], borrow);
    };
    (@ $Guard:ident of $Lock:ident, [$($Param:ident: $Bound:ident),*], $borrow:ident) => {
        impl<'a, T: ?Sized, $($Param: $Bound),*> $Guard<'a, T, $($Param),*> {
            /// # Safety
            ///
            /// The caller holds `lock.raw` in the way that the guard lets go when it drops: as the
            /// only holder or writer, with no reader left; as a reader; or as the upgradable
            /// reader. The guard has this from now on.
            #[inline]
            pub(in crate::lock) unsafe fn new(lock: &'a $Lock<T, $($Param),*>) -> Self {
                // SAFETY: no thread writes the data while there is a reader, and only the writer
                // touches them while there is a writer. From here to the guard's drop the guard is
                // that reader or writer.
                let data = core::mem::ManuallyDrop::new(unsafe { lock.data.$borrow() });
                $Guard { lock, data, _not_send: core::marker::PhantomData }
            }
        }
    };
    (mut $Guard:ident, [$($Param:ident: $Bound:ident),*], $give_up:expr) => {
        guard!($Guard, [$($Param: $Bound),*], $give_up);

        impl<T: ?Sized, $($Param: $Bound),*> core::ops::DerefMut for $Guard<'_, T, $($Param),*> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                &mut self.data
            }
        }
    };
    ($Guard:ident, [$($Param:ident: $Bound:ident),*], $give_up:expr) => {
        // SAFETY: a shared guard gives only `&T`.
        unsafe impl<T: ?Sized + Sync, $($Param: $Bound),*> Sync for $Guard<'_, T, $($Param),*> {}

        // As std's lock and its guard, but not poisoned: the next holder finds the data as a panic
        // left it.
        impl<T: ?Sized, $($Param: $Bound),*> core::panic::UnwindSafe
            for $Guard<'_, T, $($Param),*> {}
        impl<T: ?Sized, $($Param: $Bound),*> core::panic::RefUnwindSafe
            for $Guard<'_, T, $($Param),*> {}

        impl<T: ?Sized, $($Param: $Bound),*> core::ops::Deref for $Guard<'_, T, $($Param),*> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                &self.data
            }
        }

        impl<T: ?Sized, $($Param: $Bound),*> Drop for $Guard<'_, T, $($Param),*> {
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

        impl<T: ?Sized + core::fmt::Debug, $($Param: $Bound),*> core::fmt::Debug
            for $Guard<'_, T, $($Param),*>
        {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + core::fmt::Display, $($Param: $Bound),*> core::fmt::Display
            for $Guard<'_, T, $($Param),*>
        {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

/// The guard of a part of a lock's data, which a `$Guard` or such a guard becomes. It has the lock
/// without data in `lock`, which `$raw` gives for a `$Guard`. With `mut`, it may change the part.
macro_rules! mapped {
    (
        $Guard:ident => $Mapped:ident, ($($mutable:ident)?), [$($Param:ident: $Bound:ident),*],
        $raw:expr, $give_up:expr
    ) => {
        guard!($($mutable)? $Mapped, [$($Param: $Bound),*], $give_up);

        mapped!(@ $Guard => $Mapped, ($($mutable)?), [$($Param: $Bound),*], $raw);
        mapped!(@ $Mapped => $Mapped, ($($mutable)?), [$($Param: $Bound),*], |raw| raw);
    };
    (
        @ $Guard:ident => $Mapped:ident, ($($mutable:ident)?), [$($Param:ident: $Bound:ident),*],
        $raw:expr
    ) => {
        impl<'a, T: ?Sized, $($Param: $Bound),*> $Guard<'a, T, $($Param),*> {
            /// Turns the guard into a guard of a part of the data.
            pub fn map<U: ?Sized>(
                guard: Self,
                part: impl FnOnce(&$($mutable)? T) -> &$($mutable)? U,
            ) -> $Mapped<'a, U, $($Param),*> {
                match Self::try_map(guard, |data| Some(part(data))) {
                    Ok(mapped) => mapped,
                    Err(_) => unreachable!("there is a part"),
                }
            }

            /// Turns the guard into a guard of a part of the data, if that part exists.
            ///
            /// # Errors
            ///
            /// Returns the guard itself if `part` returns `None`.
            pub fn try_map<U: ?Sized>(
                guard: Self,
                part: impl FnOnce(&$($mutable)? T) -> Option<&$($mutable)? U>,
            ) -> Result<$Mapped<'a, U, $($Param),*>, Self> {
                let $($mutable)? guard = guard;
                let Some(part) = part(&$($mutable)? guard.data).map(core::ptr::NonNull::from)
                else {
                    return Err(guard);
                };
                let mut guard = ManuallyDrop::new(guard);
                // SAFETY: taken here once, and the guard is used no more. The part is valid, and
                // with `mut` exclusive, for `'a`: `part` is a function for each `'x` with `T: 'x`,
                // so also for `'a`, and cannot tell which one it is called with; and `U: 'a`, as
                // the result's type says. What it returns is from the data, which is the guard's
                // until the guard drops, or lives for `'a` anyway.
                let data = unsafe { ManuallyDrop::take(&mut guard.data).part(part) };
                let (lock, data) = ($raw(guard.lock), ManuallyDrop::new(data));
                Ok($Mapped { lock, data, _not_send: PhantomData })
            }
        }
    };
}

/// The traits of a lock with `data`, and its functions that need no lock. `$try` takes the lock to
/// show the data. With `const`, the lock is made of a `$Raw`, its data and what `$more` is, and has
/// constructors, `Default` and `From<T>`.
macro_rules! lock_impls {
    (
        const $Lock:ident, $Raw:ident, {$($more:ident: $it:expr)?},
        [$($Param:ident: $Bound:ident),*], $try:ident
    ) => {
        lock_impls!($Lock, [$($Param: $Bound),*], $try);

        impl<T> $Lock<T> {
            /// Creates a free lock around `data`, also in a `static`.
            pub const fn new(data: T) -> Self {
                Self::const_new(data)
            }
        }

        impl<T, $($Param: $Bound),*> $Lock<T, $($Param),*> {
            /// Creates a free lock around `data` in a const context, in any
            /// [`ConstWorld`](coreline_world::ConstWorld). If the lock has an order, it may be any
            /// order.
            pub const fn const_new(data: T) -> Self
            where
                W: coreline_world::ConstWorld,
            {
                $Lock { raw: $Raw::const_new(), data: Cell::new(data) $(, $more: $it)? }
            }

            /// Creates a free lock around `data`, in world `W`.
            pub fn new_in(data: T) -> Self {
                $Lock { raw: $Raw::new_in(), data: Cell::new_in(data) $(, $more: $it)? }
            }
        }

        impl<T: Default, $($Param: $Bound),*> Default for $Lock<T, $($Param),*>
        where
            W: coreline_world::ConstWorld,
        {
            fn default() -> Self {
                Self::const_new(T::default())
            }
        }

        impl<T> From<T> for $Lock<T> {
            fn from(data: T) -> Self {
                Self::new(data)
            }
        }
    };
    ($Lock:ident, [$($Param:ident: $Bound:ident),*], $try:ident) => {
        // As std's lock, which crosses an unwind, too. That one says that it is poisoned; here the
        // next holder finds the data as the panic left it.
        impl<T: ?Sized, $($Param: $Bound),*> core::panic::UnwindSafe for $Lock<T, $($Param),*> {}
        impl<T: ?Sized, $($Param: $Bound),*> core::panic::RefUnwindSafe
            for $Lock<T, $($Param),*> {}

        impl<T: ?Sized, $($Param: $Bound),*> $Lock<T, $($Param),*> {
            /// Returns the data through an exclusive reference, which needs no lock.
            pub fn get_mut(&mut self) -> &mut T {
                self.data.get_mut()
            }
        }

        impl<T, $($Param: $Bound),*> $Lock<T, $($Param),*> {
            /// Consumes the lock, and returns the data.
            pub fn into_inner(self) -> T {
                self.data.into_inner()
            }
        }

        impl<T: ?Sized + core::fmt::Debug, $($Param: $Bound),*> core::fmt::Debug
            for $Lock<T, $($Param),*>
        {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let mut out = f.debug_struct(stringify!($Lock));
                match self.$try() {
                    Some(data) => out.field("data", &&*data),
                    None => out.field("data", &format_args!("<locked>")),
                };
                out.finish()
            }
        }
    };
}

pub(super) use {guard, lock_impls, mapped};
