//! [`Builder`]: the options of a cache.

use core::error::Error;
use core::ptr::NonNull;

use coreline_world::{IndexBy, MapError, Native, World};

use super::budget::Budget;
use super::depot::ROUNDS;

/// An error of the caller's.
pub(super) type AnyError = Box<dyn Error + Send + Sync>;
/// Says whether an object may live again.
pub(super) type Check<T> = dyn Fn(&mut T) -> Result<(), AnyError> + Send + Sync;
/// Makes an object in memory for one, which is the caller's; there is one if it succeeds.
pub(super) type Construct<T> = dyn Fn(NonNull<T>) -> Result<(), AnyError> + Send + Sync;
/// Takes an object apart, which is the caller's; there is none any more, also if it panics.
pub(super) type Destroy<T> = dyn Fn(NonNull<T>) + Send + Sync;
/// Is told of an object that cannot live again.
pub(super) type OnFailure<T> = dyn Fn(&mut T, &(dyn Error + Send + Sync + 'static)) + Send + Sync;
/// Says whether to try again.
pub(super) type Relieve = dyn Fn(Pressure<'_>) -> bool + Send + Sync;

/// The reason why a cache asks for resources to be freed.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Pressure<'a> {
    /// There is no memory for one more object.
    Memory(&'a MapError),
    /// The constructor failed.
    Constructor(&'a (dyn Error + Send + Sync)),
    /// The budget is full.
    Budget,
    /// The number of idle objects has reached the limit, so a returned object is about to be
    /// destroyed.
    IdleLimit,
}

/// The options of a cache, from [`ObjectCache::builder`](super::ObjectCache::builder).
#[must_use]
pub struct Builder<T: Send + 'static, L: Send + 'static = (), W: World = Native> {
    pub(super) name: String,
    pub(super) align: usize,
    pub(super) magazine: Option<usize>,
    pub(super) idle_limit: Option<usize>,
    pub(super) index_by: IndexBy,
    pub(super) placed: bool,
    pub(super) budget: Option<(Budget<W>, u64)>,
    pub(super) check: Option<Box<Check<T>>>,
    pub(super) destroy: Option<Box<Destroy<T>>>,
    pub(super) on_failure: Option<Box<OnFailure<T>>>,
    pub(super) quarantine: usize,
    pub(super) discards_on_panic: bool,
    pub(super) relieve: Option<Box<Relieve>>,
    life: core::marker::PhantomData<fn() -> L>,
}

impl<T: Send + 'static, L: Send + 'static, W: World> Builder<T, L, W> {
    pub(super) fn new(name: String) -> Self {
        Builder {
            name,
            align: 1,
            magazine: None,
            idle_limit: None,
            index_by: IndexBy::Cpu,
            placed: true,
            budget: None,
            check: None,
            destroy: None,
            on_failure: None,
            quarantine: 0,
            discards_on_panic: false,
            relieve: None,
            life: core::marker::PhantomData,
        }
    }

    /// Aligns each object to at least `align` bytes, a power of two. The alignment of the type is
    /// the minimum. With 64, no two objects share a cache line.
    ///
    /// # Panics
    ///
    /// Panics if `align` is not a power of two.
    pub fn alignment(mut self, align: usize) -> Self {
        assert!(align.is_power_of_two(), "an alignment of {align} is not a power of two");
        self.align = align;
        self
    }

    /// Sets the number of objects that move to or from a depot at once: 1 to 64. The default is the
    /// number of objects in 4 KiB, from 8 to 32. The number grows while CPUs contend for a depot,
    /// if there is no [limit](Builder::idle_limit).
    pub fn magazine(mut self, objects: usize) -> Self {
        self.magazine = Some(objects.clamp(1, ROUNDS));
        self
    }

    /// Limits the number of idle objects, including the objects on the stacks of CPUs. An object
    /// that is returned beyond the limit is destroyed. By default there is no limit.
    ///
    /// The whole capacity of a CPU's stack counts towards the limit. So with a limit, stacks keep
    /// the size of two [magazines](Builder::magazine). If the limit is small compared with the
    /// number of CPUs, stacks are small, and visits to depots are frequent.
    pub fn idle_limit(mut self, objects: usize) -> Self {
        self.idle_limit = Some(objects);
        self
    }

    /// Sets the index that selects the stack. The default is the CPU number. With the kernel's
    /// concurrency ID, a process that uses few CPUs at a time has few stacks.
    pub fn index_by(mut self, by: IndexBy) -> Self {
        self.index_by = by;
        self
    }

    /// Sets whether the memory of an object is requested on the node of the CPU that constructs it,
    /// with a depot for each node. The default is `true`.
    pub fn placed(mut self, placed: bool) -> Self {
        self.placed = placed;
        self
    }

    /// Charges `each` to a budget for every live object. Usually, `each` is the number of bytes
    /// that an object holds. Idle objects are not charged, although they stay constructed.
    pub fn budget(mut self, budget: Budget<W>, each: u64) -> Self {
        self.budget = Some((budget, each));
        self
    }

    /// Sets a function that runs on each returned object, in the thread that returns it. Use it to
    /// reset state that must not reach the next life. If the function returns an error or panics,
    /// the object is rejected. The same thread then destroys it immediately, unless there is a
    /// [quarantine](Builder::quarantine).
    ///
    /// ```
    /// use coreline::object::{GetError, ObjectCache};
    ///
    /// let connections = ObjectCache::<u32>::builder("connections")
    ///     .check(|number| if *number < 2 { Ok(()) } else { Err("closed by the peer".into()) })
    ///     .on_failure(|number, why| eprintln!("connection {number} is not used again: {why}"))
    ///     .build(|| Ok::<_, GetError>(0))?;
    /// for _ in 0..6 {
    ///     *connections.get()? += 1;
    /// }
    /// let stats = connections.stats();
    /// assert_eq!((stats.constructed, stats.failed, stats.destroyed), (3, 3, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(
        mut self,
        check: impl Fn(&mut T) -> Result<(), AnyError> + Send + Sync + 'static,
    ) -> Self {
        self.check = Some(Box::new(check));
        self
    }

    /// Sets a function that is called with each rejected object and the reason. The reason is the
    /// error of [`check`](Builder::check), or its panic. The function runs in the thread that
    /// returned the object, before the object is destroyed or quarantined. Like a
    /// [destructor](Builder::destructor), it may take only leaf locks. If the function panics, all
    /// other work is done before the panic is resumed.
    pub fn on_failure(
        mut self,
        hook: impl Fn(&mut T, &(dyn Error + Send + Sync + 'static)) + Send + Sync + 'static,
    ) -> Self {
        self.on_failure = Some(Box::new(hook));
        self
    }

    /// Keeps the last `objects` rejected objects, at most 65,536, for inspection with
    /// [`quarantined`](super::ObjectCache::quarantined). Use it for debugging only, because these
    /// objects stay constructed, with all their resources. If the quarantine is full, the thread
    /// that adds an object destroys the oldest object. [`shrink`](super::ObjectCache::shrink)
    /// destroys all rejected objects. By default, no object is kept.
    pub fn quarantine(mut self, objects: usize) -> Self {
        self.quarantine = objects;
        self
    }

    /// Sets whether an object is destroyed if it is returned while its thread unwinds from a panic.
    /// The panic may have left the object partly changed. With `true`, the object is destroyed
    /// without a check, and does not count as failed. With `false`, the default, it is checked and
    /// reused.
    ///
    /// The setting also applies to an object that a destructor gets and returns during the
    /// unwinding.
    pub fn discard_on_panic(mut self, discard: bool) -> Self {
        self.discards_on_panic = discard;
        self
    }

    /// Sets a function that destroys an object, instead of dropping it. The function may take only
    /// leaf locks: see the [module](super).
    ///
    /// The object is moved out of the cache through the stack. For a large object, use
    /// [`destructor_in_place`](Builder::destructor_in_place). If both are set, the last setting
    /// applies.
    pub fn destructor(mut self, destroy: impl Fn(T) + Send + Sync + 'static) -> Self {
        self.destroy = Some(Box::new(move |at: NonNull<T>| {
            // SAFETY: what `Destroy` promises: an object, the caller's, and not used any more.
            destroy(unsafe { at.read() });
        }));
        self
    }

    /// Sets a function that runs on an object in place before the object is dropped there. The
    /// object is dropped even if the function panics. The function may take only leaf locks: see
    /// the [module](super).
    pub fn destructor_in_place(mut self, destroy: impl Fn(&mut T) + Send + Sync + 'static) -> Self {
        self.destroy = Some(Box::new(move |at| {
            let mut object = InPlace(at);
            // SAFETY: what `Destroy` promises: an object, and the caller's.
            destroy(unsafe { object.0.as_mut() });
        }));
        self
    }

    /// Sets a function that runs under memory pressure, before an object is refused or destroyed.
    /// It may free resources, for example by [shrinking](super::ObjectCache::shrink) other caches.
    /// The function returns whether to retry. It must not use this cache. Its result for
    /// [`Pressure::IdleLimit`] is ignored.
    pub fn on_pressure(
        mut self,
        relieve: impl Fn(Pressure<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.relieve = Some(Box::new(relieve));
        self
    }
}

/// An object that is dropped where it is.
struct InPlace<T>(NonNull<T>);

impl<T> Drop for InPlace<T> {
    fn drop(&mut self) {
        // SAFETY: what `Destroy` promises: an object, the caller's, and not used any more.
        unsafe { self.0.drop_in_place() };
    }
}

impl_debug!([T: Send + 'static, L: Send + 'static, W: World] Builder<T, L, W> as it {
    name: it.name, align: it.align, magazine: it.magazine, idle_limit: it.idle_limit,
    index_by: it.index_by, placed: it.placed, budget: it.budget, quarantine: it.quarantine,
    discards_on_panic: it.discards_on_panic, ..
});
