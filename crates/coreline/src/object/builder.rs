//! [`Builder`]: what a cache is like.

use core::error::Error;
use core::fmt;
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

/// Why a cache would like memory to be given back.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Pressure<'a> {
    /// There is no memory for one more object.
    Memory(&'a MapError),
    /// The constructor failed.
    Constructor(&'a (dyn Error + Send + Sync)),
    /// The budget is full.
    Budget,
    /// As many objects are idle as the limit says: what comes back now is destroyed.
    IdleLimit,
}

/// What a cache is like, from [`ObjectCache::builder`](super::ObjectCache::builder).
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

    /// Aligns each object to so many bytes, a power of two, or to what its type needs: 64 for
    /// objects that share no line with their neighbours.
    ///
    /// # Panics
    ///
    /// If it is no power of two.
    pub fn alignment(mut self, align: usize) -> Self {
        assert!(align.is_power_of_two(), "an alignment of {align} is no power of two");
        self.align = align;
        self
    }

    /// So many objects go to a depot at once, and come from it: 1 to 64. By default as many as
    /// there are in 4 KiB, from 8 to 32; more while CPUs meet at a depot, if there is no
    /// [limit](Builder::idle_limit).
    pub fn magazine(mut self, objects: usize) -> Self {
        self.magazine = Some(objects.clamp(1, ROUNDS));
        self
    }

    /// So many objects are idle at most, those on the stacks of CPUs among them; one that comes
    /// back beyond it is destroyed. By default there is no limit.
    ///
    /// Room on the stack of a CPU counts as if it were full. So stacks keep the size of two
    /// [magazines](Builder::magazine), and a limit that is small for the number of CPUs makes small
    /// ones, and many trips to depots.
    pub fn idle_limit(mut self, objects: usize) -> Self {
        self.idle_limit = Some(objects);
        self
    }

    /// What picks the stack: by default the CPU number. By the kernel's concurrency ID a process
    /// that uses few CPUs at a time has few stacks.
    pub fn index_by(mut self, by: IndexBy) -> Self {
        self.index_by = by;
        self
    }

    /// Whether objects are asked for from the node of the CPU that has them constructed, and there
    /// is a depot for each node. By default they are.
    pub fn placed(mut self, placed: bool) -> Self {
        self.placed = placed;
        self
    }

    /// Charges so much to a budget while an object lives: what it holds, in bytes, as a rule; idle
    /// objects are charged nothing, though they stay constructed.
    pub fn budget(mut self, budget: Budget<W>, each: u64) -> Self {
        self.budget = Some((budget, each));
        self
    }

    /// Runs on each object that is given back, in the thread that gives it back. Use it to reset
    /// state that must not reach the next life. An object for which it returns an error, or panics,
    /// never lives again: the same thread destroys it at once, unless there is a
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

    /// Is told of each object that cannot live again, and why: what [`check`](Builder::check)
    /// returned, or that it panicked. Runs in the thread that gave the object back, before the
    /// object is destroyed or put aside. It may take leaf locks only, as a
    /// [destructor](Builder::destructor); if it panics, all else is done first.
    pub fn on_failure(
        mut self,
        hook: impl Fn(&mut T, &(dyn Error + Send + Sync + 'static)) + Send + Sync + 'static,
    ) -> Self {
        self.on_failure = Some(Box::new(hook));
        self
    }

    /// Keeps the last so many objects that cannot live again, at most 65,536, to be looked at:
    /// [`quarantined`](super::ObjectCache::quarantined). For debugging: they stay constructed, with
    /// all that they hold. When one more comes, the thread that brings it destroys the oldest;
    /// [`shrink`](super::ObjectCache::shrink) destroys all. By default none is kept.
    pub fn quarantine(mut self, objects: usize) -> Self {
        self.quarantine = objects;
        self
    }

    /// Whether an object is destroyed that comes back while its thread unwinds from a panic: the
    /// panic may have left it half changed. It is not checked, and does not count as failed. By
    /// default it is checked, and lives again.
    ///
    /// That includes an object that was taken and given back in the course of the unwinding, by
    /// what is dropped then.
    pub fn discard_on_panic(mut self, discard: bool) -> Self {
        self.discards_on_panic = discard;
        self
    }

    /// Takes an object apart, in place of dropping it. It may take leaf locks only: see the
    /// [module](super).
    ///
    /// The object is moved out of the cache, over the stack: for a large one see
    /// [`destructor_in_place`](Builder::destructor_in_place). Of the two the last one counts.
    pub fn destructor(mut self, destroy: impl Fn(T) + Send + Sync + 'static) -> Self {
        self.destroy = Some(Box::new(move |at: NonNull<T>| {
            // SAFETY: what `Destroy` promises: an object, the caller's, and not used any more.
            destroy(unsafe { at.read() });
        }));
        self
    }

    /// Takes an object apart where it is, before it is dropped there; it is dropped also if this
    /// panics. It may take leaf locks only: see the [module](super).
    pub fn destructor_in_place(mut self, destroy: impl Fn(&mut T) + Send + Sync + 'static) -> Self {
        self.destroy = Some(Box::new(move |at| {
            let mut object = InPlace(at);
            // SAFETY: what `Destroy` promises: an object, and the caller's.
            destroy(unsafe { object.0.as_mut() });
        }));
        self
    }

    /// Runs when memory is short, before an object is refused or destroyed. It may give something
    /// back, as by [shrinking](super::ObjectCache::shrink) other caches, and says whether to try
    /// again. It must not call this cache. What it returns for [`Pressure::IdleLimit`] is ignored.
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

impl<T: Send + 'static, L: Send + 'static, W: World> fmt::Debug for Builder<T, L, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("align", &self.align)
            .field("magazine", &self.magazine)
            .field("idle_limit", &self.idle_limit)
            .field("index_by", &self.index_by)
            .field("placed", &self.placed)
            .field("budget", &self.budget)
            .field("quarantine", &self.quarantine)
            .field("discards_on_panic", &self.discards_on_panic)
            .finish_non_exhaustive()
    }
}
