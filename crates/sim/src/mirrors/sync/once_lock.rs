//! Values that are initialised once.

use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::Once;

/// A cell like [`std::sync::OnceLock`], but its accesses are charged. Each access to the value
/// loads the word of its [`Once`].
pub struct OnceLock<T> {
    once: Once,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the lock owns its value, so moving it moves a `T: Send`.
unsafe impl<T: Send> Send for OnceLock<T> {}
// SAFETY: the value is written within the once and only read after it (`T: Sync`); one thread may
// make it and another drop it (`T: Send`).
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Creates an `OnceLock` without a value.
    pub const fn new() -> OnceLock<T> {
        OnceLock { once: Once::new(), value: UnsafeCell::new(None) }
    }

    /// Returns the value, if it is initialised.
    #[track_caller]
    pub fn get(&self) -> Option<&T> {
        if self.once.is_completed() { self.peek() } else { None }
    }

    /// The value, after the once was seen complete.
    #[track_caller]
    fn peek(&self) -> Option<&T> {
        // SAFETY: once the once is complete, only methods that take `&mut self` write.
        unsafe { &*self.value.get() }.as_ref()
    }

    /// Returns a mutable reference to the value, if it is initialised.
    #[track_caller]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut().as_mut()
    }

    /// Sets the value.
    ///
    /// # Errors
    ///
    /// An error that holds `value`, if the lock already had a value.
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    /// Returns the value. If there is no value, `f` creates it. If another thread is creating the
    /// value, the call waits for that thread.
    ///
    /// # Panics
    ///
    /// Panics if `f` panics. In this case the value stays uninitialised.
    #[track_caller]
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        if !self.once.is_completed() {
            self.once.call_once_force(|_| {
                let value = f();
                // SAFETY: within the once, no other thread reads or writes.
                unsafe { *self.value.get() = Some(value) };
            });
        }
        self.peek().expect("the once is complete, so there is a value")
    }

    /// Waits until a thread has initialised the value, and returns the value.
    #[track_caller]
    pub fn wait(&self) -> &T {
        self.once.wait_force();
        self.peek().expect("the once is complete, so there is a value")
    }

    /// Returns the value, and consumes the lock.
    #[track_caller]
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// Takes the value, and leaves the lock uninitialised.
    #[track_caller]
    pub fn take(&mut self) -> Option<T> {
        self.once.reset();
        self.value.get_mut().take()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    #[track_caller]
    fn from(value: T) -> Self {
        let lock = OnceLock::new();
        lock.get_or_init(|| value);
        lock
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    #[track_caller]
    fn clone(&self) -> Self {
        self.get().cloned().map_or_else(OnceLock::new, OnceLock::from)
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_tuple("OnceLock");
        match self.get() {
            Some(value) => debug.field(value),
            None => debug.field(&format_args!("<uninit>")),
        };
        debug.finish()
    }
}

/// A lazy value like [`std::sync::LazyLock`], but its accesses are charged like those of an
/// [`OnceLock`].
pub struct LazyLock<T, F = fn() -> T> {
    value: OnceLock<T>,
    init: Cell<Option<F>>,
}

// SAFETY: `init` is taken within the once of `value`, so by one thread.
unsafe impl<T: Send + Sync, F: Send> Sync for LazyLock<T, F> {}
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}
impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// Creates a lazy value that `f` initialises.
    pub const fn new(f: F) -> LazyLock<T, F> {
        LazyLock { value: OnceLock::new(), init: Cell::new(Some(f)) }
    }

    /// Returns the value, and initialises it first if needed.
    ///
    /// # Panics
    ///
    /// Panics if the initialising function panics, or panicked before.
    #[track_caller]
    pub fn force(this: &LazyLock<T, F>) -> &T {
        this.value.get_or_init(|| match this.init.take() {
            Some(init) => init(),
            None => panic!("LazyLock instance has previously been poisoned"),
        })
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    #[track_caller]
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> Self {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_tuple("LazyLock");
        match self.value.get() {
            Some(value) => debug.field(value),
            None => debug.field(&format_args!("<uninit>")),
        };
        debug.finish()
    }
}
