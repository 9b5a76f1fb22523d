//! Statics of ported code.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr;

use coreline_world::WorldStatic;

use crate::Sim;

/// The replacement for a `static` in ported code. Each machine creates the object in its own
/// memory, when the program first uses it.
///
/// A `static` atomic lies outside of the machine's memory, and would keep its value from one run to
/// the next. `coreline port` replaces it with this type. New code should use a [`WorldStatic`],
/// which lends its object to a closure and has no safety condition.
///
/// Like a `static`, the object is never dropped. Its memory is freed together with the machine's
/// memory. If threads race on the first use, each may create an object, and one of these objects is
/// kept.
///
/// ```
/// # #[global_allocator]
/// # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
/// use coreline_sim::atomic::{AtomicU64, Ordering};
/// use coreline_sim::{Machine, Static};
///
/// // SAFETY: a `static`, and the program below keeps no reference to the counter.
/// static TICKETS: Static<AtomicU64> = unsafe { Static::new("TICKETS", || AtomicU64::new(7)) };
///
/// for _ in 0..2 {
///     let run = Machine::preset("host-2c")?.run(|| TICKETS.fetch_add(1, Ordering::Relaxed))?;
///     assert_eq!(run.value, 7, "a run does not see what an earlier one left behind");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Static<T: 'static> {
    key: WorldStatic,
    init: fn() -> T,
}

impl<T> Static<T> {
    /// Creates a static with this name and initial value.
    ///
    /// # Safety
    ///
    /// The result must be the value of a `static`, which is never moved and never dropped. No
    /// reference to the object may be used after the machine's run.
    pub const unsafe fn new(name: &'static str, init: fn() -> T) -> Self {
        Static { key: WorldStatic::new(name), init }
    }
}

/// The object of a static: other threads share it, but never get it, and nothing drops it.
struct Shared<T>(ManuallyDrop<T>);

// SAFETY: the thread that created the object moves it once, to its place. From then on there are
// only shared references to it, which `Sync` allows to be anywhere, and its destructor never runs.
unsafe impl<T: Sync> Send for Shared<T> {}

impl<T: Sync> Deref for Static<T> {
    type Target = T;

    /// # Panics
    ///
    /// Outside of a machine.
    fn deref(&self) -> &T {
        // SAFETY: by the promise to `new`, the key is part of a `static`.
        let key: &'static WorldStatic = unsafe { &*ptr::from_ref(&self.key) };
        let init = || Shared(ManuallyDrop::new((self.init)()));
        let object = key.with::<Sim, Shared<T>, _>(init, |it| ptr::from_ref(&it.0));
        // SAFETY: the machine keeps the object, where it is, until its memory goes, and does not
        // drop what is in it; by the promise to `new`, no reference is used after its run.
        unsafe { &*object }
    }
}

impl<T> fmt::Debug for Static<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Static").field("name", &self.key.name()).finish_non_exhaustive()
    }
}
