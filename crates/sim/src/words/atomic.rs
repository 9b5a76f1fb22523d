//! `std::sync::atomic`, simulated: change the import, and each access is charged.
//!
//! ```
//! # #[global_allocator]
//! # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
//! use coreline_sim::Machine;
//! use coreline_sim::atomic::{AtomicU64, Ordering}; // was std::sync::atomic
//! use coreline_sim::thread; // was std::thread
//!
//! let run = Machine::preset("epyc-9654-2s")?.run(|| {
//!     let hits = AtomicU64::new(0);
//!     thread::scope(|scope| {
//!         for _ in 0..64 {
//!             scope.spawn(|| hits.fetch_add(1, Ordering::Relaxed));
//!         }
//!     });
//!     hits.into_inner()
//! })?;
//! assert_eq!(run.value, 64);
//! assert!(run.report.transfers.same_node > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The types are those of std, method by method, with std's size, alignment and panics. The
//! differences are:
//!
//! | std | here |
//! |---|---|
//! | an access costs what the host takes for it | an access costs what the machine file says |
//! | weak orders may reorder | all runs are sequentially consistent: for weak orders, use loom |
//! | [`fence`] orders | `SeqCst` costs a locked operation, weaker ones nothing, as on x86 |
//! | a `static` atomic works | not the machine's memory: the run fails as `Unregistered` |
//! | a `SeqCst` store may cost as any other | costs as an exchange, as on x86 |
//! | a failing exchange may leave the line | takes the line as a succeeding one does, as on x86 |
//! | `compare_exchange_weak` may fail spuriously | in searches: [`weak`](crate::Faults::weak) |
//! | `compare_and_swap`, deprecated | left out |
//! | `get_mut` is free | charged as a change of plain data, which waits for the line |
//!
//! Instead of a `static`, create the object inside the program and pass it to the threads, or keep
//! it in a [`WorldStatic`](coreline_world::WorldStatic).
//!
//! Outside of a machine these are ordinary atomics, so the same test can run with and without a
//! machine.

use core::fmt;
use core::sync::atomic as host;

pub use core::sync::atomic::{Ordering, compiler_fence};

use coreline_world::Fences as _;

use crate::Sim;
use crate::engine::{self, races};
use crate::hardware::coherence::Access;
use crate::words::effect;

/// Like [`std::sync::atomic::fence`]. Every run is sequentially consistent, so the fence has a cost
/// but no other effect.
///
/// # Panics
///
/// Panics if `order` is `Relaxed`, like std's function.
pub fn fence(order: Ordering) {
    host::fence(order);
    if engine::runs() {
        Sim::fence(order);
    }
}

/// Like [`hint::spin_loop`](crate::hint::spin_loop), under std's deprecated name.
pub fn spin_loop_hint() {
    if engine::runs() {
        engine::pause();
    } else {
        core::hint::spin_loop();
    }
}

/// Methods that all atomics have. `$(const)?` stands where std's may be called in a `const`.
macro_rules! common {
    ($name:ident $(<$param:ident>)?, $host:ty, $value:ty) => {
        impl $(<$param>)? $name $(<$param>)? {
            /// Creates an atomic.
            pub const fn new(value: $value) -> Self {
                $name(<$host>::new(value))
            }

            /// Returns a reference to the atomic at an address.
            ///
            /// # Safety
            ///
            /// The same conditions as for std's function. The memory is aligned, valid for reads
            /// and writes during `'a`, and accessed only by atomic operations.
            pub const unsafe fn from_ptr<'a>(at: *mut $value) -> &'a Self {
                // SAFETY: the caller's promise; the type is a transparent wrapper of an atomic,
                // which has the layout of its value.
                unsafe { &*at.cast() }
            }

            /// Returns the address of the value. Reads and writes through the pointer are not
            /// charged.
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }

            /// Returns a mutable reference to the value. The call is charged as a change of plain
            /// data.
            #[track_caller]
            pub fn get_mut(&mut self) -> &mut $value {
                // The caller may read what is there, so the CPU waits for the line. A store into
                // the buffer, which waits for nothing, would be the cost of overwriting it alone.
                engine::access(core::ptr::from_ref(self).addr(), Access::Own);
                self.0.get_mut()
            }

            /// Returns the value, and consumes the atomic. The call is not charged.
            pub const fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            /// Reads the value.
            #[track_caller]
            #[inline]
            pub fn load(&self, order: Ordering) -> $value {
                let value = effect::read(&self.0, Access::Load, order, |word| word.load(order));
                races::loaded(self.as_ptr().addr(), order);
                value
            }

            /// Writes the value.
            #[track_caller]
            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                effect::write(&self.0, order, |word| word.store(value, order));
                races::stored(self.as_ptr().addr(), order);
            }

            /// Writes a value, and returns the previous value.
            #[track_caller]
            #[inline]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                let swap = |word: &$host| word.swap(value, order);
                let before = effect::read(&self.0, Access::Update, order, swap);
                races::updated(self.as_ptr().addr(), order);
                before
            }

            /// Writes `new` if the value is `current`. Returns the previous value, as `Ok` if the
            /// call wrote.
            ///
            /// # Errors
            ///
            /// The present value, if it is not `current`.
            #[track_caller]
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let result = effect::exchange(&self.0, [success, failure], |word| {
                    word.compare_exchange(current, new, success, failure)
                });
                match result {
                    Ok(_) => races::updated(self.as_ptr().addr(), success),
                    Err(_) => races::loaded(self.as_ptr().addr(), failure),
                }
                result
            }

            /// Like [`compare_exchange`](Self::compare_exchange), but may fail although the value
            /// is `current`. On a simulated machine, it does so only by the fault
            /// [`weak`](crate::Faults::weak), which is on in searches.
            ///
            /// # Errors
            ///
            /// The present value, if it is not `current`.
            #[track_caller]
            #[inline]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let result = effect::exchange(&self.0, [success, failure], |word| {
                    let found = word.load(Ordering::Relaxed);
                    match found == current && engine::fails_weakly() {
                        true => Err(found),
                        false => word.compare_exchange(current, new, success, failure),
                    }
                });
                match result {
                    Ok(_) => races::updated(self.as_ptr().addr(), success),
                    Err(_) => races::loaded(self.as_ptr().addr(), failure),
                }
                result
            }

            /// Replaces the value with the result of `f` for it. Retries if another thread has
            /// changed the value in between.
            ///
            /// # Errors
            ///
            /// The value for which `f` returned `None`.
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut seen = self.load(fetch);
                while let Some(next) = f(seen) {
                    match self.compare_exchange_weak(seen, next, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(other) => seen = other,
                    }
                }
                Err(seen)
            }

            /// Like [`fetch_update`](Self::fetch_update), under its newer name.
            ///
            /// # Errors
            ///
            /// The value for which `f` returned `None`.
            #[track_caller]
            pub fn try_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                self.fetch_update(set, fetch, f)
            }

            /// Replaces the value with the result of `f` for it. Retries while other threads change
            /// the value in between. Returns the previous value.
            #[track_caller]
            pub fn update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut f: impl FnMut($value) -> $value,
            ) -> $value {
                let (Ok(before) | Err(before)) =
                    self.fetch_update(set, fetch, |value| Some(f(value)));
                before
            }
        }

        impl $(<$param>)? From<$value> for $name $(<$param>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }

        impl $(<$param>)? fmt::Debug for $name $(<$param>)? {
            /// Formats the value. The call is charged as a load.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.load(Ordering::Relaxed), f)
            }
        }
    };
}

/// Read-modify-write methods that return the previous value.
macro_rules! updates {
    ($value:ty: $($(#[$doc:meta])* $method:ident)+) => {
        $(
            $(#[$doc])*
            #[track_caller]
            #[inline]
            pub fn $method(&self, value: $value, order: Ordering) -> $value {
                let before =
                    effect::read(&self.0, Access::Update, order, |word| word.$method(value, order));
                races::updated(self.as_ptr().addr(), order);
                before
            }
        )+
    };
}

macro_rules! integers {
    ($($name:ident: $value:ident)+) => {$(
        #[doc = concat!("As [`std::sync::atomic::", stringify!($name), "`], charged.")]
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $name(pub(crate) host::$name);

        common!($name, host::$name, $value);

        impl $name {
            updates! { $value:
                /// Adds, wrapping. Returns the previous value.
                fetch_add
                /// Subtracts, wrapping. Returns the previous value.
                fetch_sub
                /// Computes the bitwise "and". Returns the previous value.
                fetch_and
                /// Computes the bitwise "nand". Returns the previous value.
                fetch_nand
                /// Computes the bitwise "or". Returns the previous value.
                fetch_or
                /// Computes the bitwise "xor". Returns the previous value.
                fetch_xor
                /// Keeps the larger of the two values. Returns the previous value.
                fetch_max
                /// Keeps the smaller of the two values. Returns the previous value.
                fetch_min
            }
        }

        const _: () = assert!(
            size_of::<$name>() == size_of::<host::$name>()
                && align_of::<$name>() == align_of::<host::$name>()
        );
    )+};
}

integers! {
    AtomicI8: i8
    AtomicU8: u8
    AtomicI16: i16
    AtomicU16: u16
    AtomicI32: i32
    AtomicU32: u32
    AtomicI64: i64
    AtomicU64: u64
    AtomicIsize: isize
    AtomicUsize: usize
}

/// Like [`std::sync::atomic::AtomicBool`], but charged.
#[derive(Default)]
#[repr(transparent)]
pub struct AtomicBool(host::AtomicBool);

common!(AtomicBool, host::AtomicBool, bool);

impl AtomicBool {
    updates! { bool:
        /// Computes the logical "and". Returns the previous value.
        fetch_and
        /// Computes the logical "nand". Returns the previous value.
        fetch_nand
        /// Computes the logical "or". Returns the previous value.
        fetch_or
        /// Computes the logical "xor". Returns the previous value.
        fetch_xor
    }

    /// Negates the value, and returns the previous value.
    #[track_caller]
    pub fn fetch_not(&self, order: Ordering) -> bool {
        self.fetch_xor(true, order)
    }
}

/// Like [`std::sync::atomic::AtomicPtr`], but charged.
#[repr(transparent)]
pub struct AtomicPtr<T>(pub(crate) host::AtomicPtr<T>);

common!(AtomicPtr<T>, host::AtomicPtr<T>, *mut T);

impl<T> Default for AtomicPtr<T> {
    /// Null.
    fn default() -> Self {
        AtomicPtr::new(core::ptr::null_mut())
    }
}

impl<T> fmt::Pointer for AtomicPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.load(Ordering::Relaxed), f)
    }
}

macro_rules! pointer_updates {
    ($($(#[$doc:meta])* $method:ident)+) => {
        impl<T> AtomicPtr<T> {$(
            $(#[$doc])*
            #[track_caller]
            #[inline]
            pub fn $method(&self, value: usize, order: Ordering) -> *mut T {
                let before =
                    effect::read(&self.0, Access::Update, order, |word| word.$method(value, order));
                races::updated(self.as_ptr().addr(), order);
                before
            }
        )+}
    };
}

pointer_updates! {
    /// Moves the pointer up by a number of `T`. Returns the previous pointer.
    fetch_ptr_add
    /// Moves the pointer down by a number of `T`. Returns the previous pointer.
    fetch_ptr_sub
    /// Moves the pointer up by a number of bytes. Returns the previous pointer.
    fetch_byte_add
    /// Moves the pointer down by a number of bytes. Returns the previous pointer.
    fetch_byte_sub
    /// Computes the bitwise "or" of the address. Returns the previous pointer.
    fetch_or
    /// Computes the bitwise "and" of the address. Returns the previous pointer.
    fetch_and
    /// Computes the bitwise "xor" of the address. Returns the previous pointer.
    fetch_xor
}
