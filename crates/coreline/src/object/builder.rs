//! [`Builder`]: what a cache is like.

use core::error::Error;
use core::fmt;

use coreline_world::{IndexBy, MapError, Native, World};

use super::budget::Budget;
use super::depot::ROUNDS;

/// An error of the caller's.
pub(super) type AnyError = Box<dyn Error + Send + Sync>;
/// Says whether an object may live again.
pub(super) type Check<T> = dyn Fn(&mut T) -> Result<(), AnyError> + Send + Sync;
/// Makes an object.
pub(super) type Construct<T> = dyn Fn() -> Result<T, AnyError> + Send + Sync;
/// Takes an object apart.
pub(super) type Destroy<T> = dyn Fn(T) + Send + Sync;
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

    /// Runs on each object that is given back. It clears what must be cleared; an object for which
    /// it returns an error is put aside: see [`quarantined`](super::ObjectCache::quarantined).
    pub fn check(
        mut self,
        check: impl Fn(&mut T) -> Result<(), AnyError> + Send + Sync + 'static,
    ) -> Self {
        self.check = Some(Box::new(check));
        self
    }

    /// Takes an object apart, in place of dropping it. It may take leaf locks only: see the
    /// [module](super).
    pub fn destructor(mut self, destroy: impl Fn(T) + Send + Sync + 'static) -> Self {
        self.destroy = Some(Box::new(destroy));
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
            .finish_non_exhaustive()
    }
}
