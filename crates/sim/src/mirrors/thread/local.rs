//! Thread-local objects.

use core::cell::{Cell, RefCell};
use core::fmt;

use coreline_world::WorldLocal;

use crate::Sim;

/// The key of a thread-local object, like [`std::thread::LocalKey`]. Each simulated thread has its
/// own object. Create one with [`thread_local!`](crate::thread_local).
pub struct LocalKey<T: 'static> {
    key: WorldLocal,
    init: fn() -> T,
}

/// The error of std's `try_with`. This error is never returned. If another object's destructor uses
/// an object after its own destructor ran, the object is created again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("already destroyed")]
#[non_exhaustive]
pub struct AccessError;

impl<T: 'static> LocalKey<T> {
    /// Creates a key for [`thread_local!`](crate::thread_local).
    #[doc(hidden)]
    pub const fn new(name: &'static str, init: fn() -> T) -> Self {
        LocalKey { key: WorldLocal::new(name), init }
    }

    /// Calls `f` with the calling thread's object. The first use creates the object.
    ///
    /// # Panics
    ///
    /// Panics outside of a machine.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.key.with::<Sim, T, R>(self.init, f)
    }

    /// Calls `f` with the calling thread's object, like [`with`](LocalKey::with).
    ///
    /// # Errors
    ///
    /// Never returns an error.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        Ok(self.with(f))
    }
}

impl<T: 'static> LocalKey<Cell<T>> {
    /// Sets the value.
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// Returns a copy of the value.
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Takes the value, and leaves the default in its place.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Replaces the value, and returns the old value.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> LocalKey<RefCell<T>> {
    /// Calls `f` with the value.
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// Calls `f` with the value, mutably.
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }

    /// Sets the value.
    pub fn set(&'static self, value: T) {
        self.with(|cell| *cell.borrow_mut() = value);
    }

    /// Takes the value, and leaves the default in its place.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(RefCell::take)
    }

    /// Replaces the value, and returns the old value.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").field("name", &self.key.name()).finish_non_exhaustive()
    }
}

/// Declares thread-local objects, like [`std::thread_local!`]. Each simulated thread has its own
/// objects.
///
/// ```
/// # #[global_allocator]
/// # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
/// use std::cell::Cell;
///
/// coreline_sim::thread_local! {
///     static TURNS: Cell<u32> = const { Cell::new(0) };
/// }
///
/// let run = coreline_sim::Machine::preset("host-2c")?.run(|| {
///     TURNS.set(7);
///     let child = coreline_sim::thread::spawn(|| TURNS.get()).join().unwrap();
///     (TURNS.get(), child)
/// })?;
/// assert_eq!(run.value, (7, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! thread_local {
    () => {};
    (
        $(#[$attribute:meta])* $vis:vis static $name:ident: $type:ty = const $init:block
        $(; $($rest:tt)*)?
    ) => {
        $(#[$attribute])*
        $vis static $name: $crate::thread::LocalKey<$type> =
            $crate::thread::LocalKey::new(stringify!($name), || const { $init });
        $($crate::thread_local! { $($rest)* })?
    };
    (
        $(#[$attribute:meta])* $vis:vis static $name:ident: $type:ty = $init:expr
        $(; $($rest:tt)*)?
    ) => {
        $(#[$attribute])*
        $vis static $name: $crate::thread::LocalKey<$type> =
            $crate::thread::LocalKey::new(stringify!($name), || $init);
        $($crate::thread_local! { $($rest)* })?
    };
}
