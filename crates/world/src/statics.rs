//! Statics: one object per world, one object per thread, keyed by a plain `static`.
//!
//! Rust has no generic statics, so a table that is generic over its world cannot be a `static`, but
//! its key can. `Native` keeps one object for the process. The simulator keeps one for each
//! machine, and the model one for each execution. So no run sees the state of an earlier run.

use core::any::TypeId;
use core::ptr;
use core::sync::atomic::AtomicPtr;

/// The capability *statics*.
///
/// [`WorldStatic`] and [`WorldLocal`] call this trait, which each world implements. Programs should
/// use these two types instead of the trait.
pub trait Statics: Sized {
    /// Calls `use_it` with this machine's object for `key`. `init` creates the object at its first
    /// use.
    fn with_static<T: Send + Sync + 'static, R>(
        key: &'static WorldStatic,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> R;

    /// Calls `use_it`, like [`with_static`](Statics::with_static), but returns `None` if the object
    /// does not exist yet and the calling thread is already inside such a call. This happens if the
    /// call allocates and the allocator calls this function. Simulated and modelled programs have
    /// an allocator that does not run in their world.
    fn try_with_static<T: Send + Sync + 'static, R>(
        key: &'static WorldStatic,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        Some(Self::with_static(key, init, use_it))
    }

    /// Calls `use_it` with this machine's object for `key`. Returns `None` if it does not exist
    /// yet.
    fn find_static<T: Send + Sync + 'static, R>(
        key: &'static WorldStatic,
        use_it: impl FnOnce(&T) -> R,
    ) -> Option<R>;

    /// Calls `use_it` with this thread's object for `key`. `init` creates the object at its first
    /// use.
    fn with_local<T: 'static, R>(
        key: &'static WorldLocal,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> R;
}

/// The key of an object that exists once per world: per process, simulated machine or model
/// execution.
///
/// ```
/// use coreline_world::{Integer, Native, Ordering, Word, Words, World, WorldStatic};
///
/// static TICKETS: WorldStatic = WorldStatic::new("tickets");
///
/// fn next_ticket<W: World>() -> u64 {
///     let first = || W::U64::new_in(0);
///     TICKETS.with::<W, W::U64, _>(first, |next| next.fetch_add(1, Ordering::Relaxed))
/// }
///
/// assert_eq!(next_ticket::<Native>(), 0);
/// assert_eq!(next_ticket::<Native>(), 1);
/// ```
///
/// A key must be a `static` and not a `const`, because its address identifies it.
///
/// If one key is used with two types, it names two objects. If two threads race to create the
/// object, one of the two objects is kept. The other is dropped before its first use.
#[derive(Debug)]
pub struct WorldStatic {
    name: &'static str,
    process: AtomicPtr<Kept>,
}

/// The header of an object that the native world keeps for a [`WorldStatic`].
#[derive(Debug)]
#[allow(dead_code, reason = "only the native world has any, and not every machine has that")]
pub(crate) struct Kept {
    /// The object's type.
    pub(crate) of: TypeId,
    /// The object of the next type; null: there is none.
    pub(crate) next: AtomicPtr<Kept>,
}

impl WorldStatic {
    /// Creates a key. The `Debug` form of the key shows `name`, which has no other use.
    pub const fn new(name: &'static str) -> Self {
        WorldStatic { name, process: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the name of the key.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Calls `use_it` with the object of this machine. `init` creates the object at its first use.
    pub fn with<W: Statics, T: Send + Sync + 'static, R>(
        &'static self,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> R {
        W::with_static(self, init, use_it)
    }

    /// Calls `use_it`, like [`with`](WorldStatic::with), but returns `None` if the object does not
    /// exist yet and the calling thread is already inside such a call. This happens if the call
    /// allocates and the allocator calls this function. The allocator must then work without the
    /// object.
    ///
    /// Use it for objects that a global allocator needs, such as the queue of a lock. Otherwise the
    /// allocation of the object would need the object, in an endless recursion.
    pub fn try_with<W: Statics, T: Send + Sync + 'static, R>(
        &'static self,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        W::try_with_static(self, init, use_it)
    }

    /// Calls `use_it` with the object of this machine, or returns `None` if it does not exist yet.
    /// It creates nothing, so it is also for code that must not allocate.
    ///
    /// ```
    /// use coreline_world::{Native, WorldStatic};
    ///
    /// static ANSWER: WorldStatic = WorldStatic::new("answer");
    ///
    /// assert_eq!(ANSWER.find::<Native, u32, _>(|it| *it), None);
    /// ANSWER.with::<Native, u32, _>(|| 42, |_| ());
    /// assert_eq!(ANSWER.find::<Native, u32, _>(|it| *it), Some(42));
    /// ```
    pub fn find<W: Statics, T: Send + Sync + 'static, R>(
        &'static self,
        use_it: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        W::find_static(self, use_it)
    }

    /// The native world's objects, one of each type that this key was used with; null: none yet.
    #[allow(dead_code, reason = "only the native world reads it, and not every machine has one")]
    pub(crate) fn process(&'static self) -> &'static AtomicPtr<Kept> {
        &self.process
    }
}

/// The key of an object that exists once per thread, native or simulated.
///
/// The object is dropped when its thread ends. Do not use one `WorldLocal` inside the destructor of
/// another, because it is undefined which of the two is dropped first.
#[derive(Debug)]
pub struct WorldLocal {
    name: &'static str,
}

impl WorldLocal {
    /// Creates a key. The `Debug` form of the key shows `name`, which has no other use.
    pub const fn new(name: &'static str) -> Self {
        WorldLocal { name }
    }

    /// Returns the name of the key.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Calls `use_it` with the calling thread's object. `init` creates the object at the thread's
    /// first use.
    pub fn with<W: Statics, T: 'static, R>(
        &'static self,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> R {
        W::with_local(self, init, use_it)
    }
}
