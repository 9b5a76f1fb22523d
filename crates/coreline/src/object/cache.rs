//! [`ObjectCache`]: gets, returns, and the paths to and from the depots.
//!
//! A magazine has as many objects as fit into 4 KiB, but at least 8 and at most 32. So large
//! objects do not move back and forth, and small ones do not pile up: `a_cpu_keeps_two_magazines`,
//! in `tests.rs`.
//!
//! A CPU also keeps up to 4 KiB of the memory of discarded objects, so that the next construction
//! of an object needs no lock: `a_cpu_keeps_the_memory_of_discarded_objects`.
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | 8 objects, 32 objects | trips to depots | memory | `a_cpu_keeps_two_magazines` |

use core::alloc::Layout;
use core::fmt;
use core::mem::{self, MaybeUninit, offset_of};
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use coreline_topology::{NodeId, Topology};
use coreline_world::{Lacking, Line, MapError, Native, Ordering, Word, World};

use super::budget::{Budget, ChargeError, OverBudget};
use super::builder::{AnyError, Builder, Check, Construct, Destroy, OnFailure, Pressure, Relieve};
use super::depot::{Depots, ROUNDS};
use super::leaf;
use super::quarantine::Quarantine;
use super::slab::Slabs;
use super::stats::CacheStats;
use super::vacant::{Built, Vacant};
use crate::panics::Panics;
use crate::percpu::{Field, PerCpu, PerCpuPool, PoolError, ResizableStack, Slot};

/// The structure in which a cache keeps an object.
#[repr(C)]
pub(super) struct Body<T, L, W: World> {
    /// The first field, so that it has the alignment of the body.
    pub(super) kept: T,
    /// There while the object lives.
    pub(super) life: MaybeUninit<L>,
    /// The total number of lives of the objects that were here. Written by the holder.
    pub(super) lives: W::U64,
}

/// A body of this cache, in one hand.
pub(super) type Held<T, L, W> = NonNull<Body<T, L, W>>;

/// How many objects fit onto the stack of a CPU: two magazines.
pub(super) const MOST: usize = 2 * ROUNDS;

/// The memory of how many discarded objects a CPU keeps at most.
pub(super) const MOST_VACANT: usize = 32;

/// The stack of a CPU.
type Stack<T, L, W> = ResizableStack<Body<T, L, W>, MOST, W>;

/// The part of a cache that belongs to one CPU.
///
/// | field | meaning | written by |
/// |---|---|---|
/// | `idle` | idle objects | gets, returns, and slow paths |
/// | `vacant` | reserved memory without an object, in which it has a count of lives | slow paths |
/// | `constructed` | how many objects were constructed here | their threads, by additions |
/// | `discarded` | how many were discarded here, and so destroyed | their threads, by additions |
#[repr(C)]
pub(super) struct Part<T: 'static, L: 'static, W: World> {
    pub(super) idle: Stack<T, L, W>,
    pub(super) vacant: ResizableStack<Body<T, L, W>, MOST_VACANT, W>,
    pub(super) constructed: W::U64,
    pub(super) discarded: W::U64,
}

// SAFETY: a struct, so every value has the same fields in the same places.
unsafe impl<T: Send + 'static, L: Send + 'static, W: World> Slot for Part<T, L, W> {}

/// The reason why the cache could not provide an object. Nothing was constructed, charged or lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// The constructor failed.
    #[error("the constructor of an object failed: {0}")]
    Constructor(#[source] AnyError),
    /// There is no memory for one more object.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The budget is full.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// A wait for room in the budget needs a fence of the process's other threads, but the kernel
    /// refuses it.
    #[error(transparent)]
    Lacking(#[from] Lacking),
}

impl From<ChargeError> for GetError {
    fn from(error: ChargeError) -> Self {
        match error {
            ChargeError::OverBudget(error) => error.into(),
            ChargeError::Lacking(error) => error.into(),
        }
    }
}

/// The error if some objects were never returned. These objects keep their memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{count} objects of the cache {name} were not given back; give back all objects first")]
pub struct Leaked {
    /// The cache's name.
    pub name: String,
    /// The number of objects that were not returned.
    pub count: usize,
}

/// A cache of objects that stay constructed: see the [module](super). The `T` of an object is kept
/// from one life to the next. Each life has its own `L`.
///
/// Handles borrow the cache. If handles must have no lifetime, as in tasks, there are three ways.
/// You can put the cache into a `static`, or into an [`Arc`](std::sync::Arc) that each handle keeps
/// ([`get_owned`](ObjectCache::get_owned)). You can also pass objects on as pointers
/// ([`into_raw`](super::Object::into_raw)).
///
/// **Memory**: a cache uses a few kilobytes, and 1.3 kilobytes for each index up to the highest
/// used index. Memory for objects is allocated in units of 64 KiB, or of eight objects. Each index
/// keeps up to 4 KiB of the memory of [discarded](super::Object::discard) objects for itself,
/// unless the machine cannot fence sections. Every 64 magazines that are in depots at the same time
/// use 33 KiB. [`shrink`](ObjectCache::shrink) leaves 1 KiB of each 33 KiB, at most 1 MiB in all.
///
/// **No memory**: a get returns [`GetError::Map`]. An object that is returned, and for which a
/// depot has no memory, is destroyed. A cache that cannot be created [ends the
/// process](crate#without-memory), unless the memory of its stacks cannot be mapped.
pub struct ObjectCache<T: Send + 'static, L: Send + 'static = (), W: World = Native> {
    pub(super) parts: PerCpu<Part<T, L, W>, W>,
    /// Whether there is anything to do for an object that is given back, beside its life.
    pub(super) attended: bool,
    pub(super) discards_on_panic: bool,
    pub(super) check: Option<Box<Check<T>>>,
    pub(super) budget: Option<(Budget<W>, u64)>,
    pub(super) slabs: Slabs<W>,
    pub(super) depots: Depots<Body<T, L, W>, W>,
    /// By CPU: the depot of its node. Empty, if there is one.
    pub(super) depot_of: Box<[u16]>,
    name: String,
    pub(super) idle_limit: Option<u64>,
    /// How many objects a stack takes at most.
    pub(super) most: usize,
    pub(super) construct: Box<Construct<T>>,
    pub(super) destroy: Option<Box<Destroy<T>>>,
    pub(super) on_failure: Option<Box<OnFailure<T>>>,
    pub(super) relieve: Option<Box<Relieve>>,
    pub(super) quarantine: Quarantine<Body<T, L, W>, W>,
    pub(super) state: Line<State<W>>,
}

/// | word | meaning | written by |
/// |---|---|---|
/// | `size` | how many objects a stack should take; only grows, or stays | a CPU that met another |
/// | `room` | for so many idle objects there is room: of stacks, and taken in depots | slow paths |
/// | `destroyed` | how many objects were destroyed that were not discarded | slow paths |
/// | `failed` | how many were rejected when they came back | the thread that gave it back |
///
/// `room` is kept only where idle objects have a limit; there `size` stays. It may exceed the limit
/// until a thread subtracts the excess. No object is stored for the excess, so the number of idle
/// objects never exceeds the limit.
pub(super) struct State<W: World> {
    pub(super) size: W::U32,
    pub(super) room: W::U64,
    pub(super) destroyed: W::U64,
    pub(super) failed: W::U64,
}

const _: () = {
    assert!(size_of::<State<Native>>() == 32);
    assert!(size_of::<Line<State<Native>>>() == 64);
};

// SAFETY: objects go from thread to thread, so they are `Send`; none is reached from two threads at
// the same time. Closures are `Send`.
unsafe impl<T: Send, L: Send, W: World> Send for ObjectCache<T, L, W> {}
// SAFETY: the same; closures are `Sync`, and the rest is words and what guards itself.
unsafe impl<T: Send, L: Send, W: World> Sync for ObjectCache<T, L, W> {}

// A constructor that panics leaves no object behind, and objects are reached by their handles
// alone.
impl<T: Send + 'static, L: Send + 'static, W: World> UnwindSafe for ObjectCache<T, L, W> {}
impl<T: Send + 'static, L: Send + 'static, W: World> RefUnwindSafe for ObjectCache<T, L, W> {}

impl<T: Send + 'static, L: Send + 'static, W: World> Builder<T, L, W> {
    /// Creates the cache, without objects. `construct` creates objects, in a thread that gets an
    /// object while none is idle.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if the machine lacks the chosen index, if there is no memory for the stacks,
    /// or if objects are too large for the machine.
    pub fn build<E: Into<AnyError>>(
        self,
        construct: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<ObjectCache<T, L, W>, PoolError> {
        let construct = move |at: NonNull<T>| {
            let object = construct().map_err(Into::into)?;
            // SAFETY: what `Construct` promises: memory for an object.
            unsafe { at.write(object) };
            Ok(())
        };
        ObjectCache::of(self, Box::new(construct))
    }

    /// Creates the cache, like [`build`](Builder::build), for objects that are constructed in
    /// place. They are never moved, so they may be larger than the stack.
    ///
    /// ```
    /// use coreline::object::{GetError, ObjectCache};
    ///
    /// // More than the stack of a thread has room for.
    /// let frames = ObjectCache::<[u32; 4 << 20]>::builder("frames")
    ///     .build_in_place(|frame| Ok::<_, GetError>(frame.fill_with(|_| 0)))?;
    /// assert_eq!(frames.get()?[7], 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// To build a structure field by field through pointers, see
    /// [`assume_built`](Vacant::assume_built).
    ///
    /// # Errors
    ///
    /// The same errors as for [`build`](Builder::build).
    pub fn build_in_place<E, C>(self, construct: C) -> Result<ObjectCache<T, L, W>, PoolError>
    where
        E: Into<AnyError>,
        C: for<'a> Fn(Vacant<'a, T>) -> Result<Built<'a, T>, E> + Send + Sync + 'static,
    {
        let construct = move |at| {
            // SAFETY: what `Construct` promises; and the constructor is for every lifetime, so that
            // it can tell this one from all others.
            let built = construct(unsafe { Vacant::new(at) }).map_err(Into::into)?;
            built.keep();
            Ok(())
        };
        ObjectCache::of(self, Box::new(construct))
    }
}

impl<T: Send + 'static, L: Send + 'static> ObjectCache<T, L> {
    /// Returns a builder for a cache of this process. The name appears in messages.
    pub fn builder(name: impl Into<String>) -> Builder<T, L> {
        Builder::new(name.into())
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> ObjectCache<T, L, W> {
    /// Returns a builder for a cache in world `W`. The name appears in messages.
    pub fn builder_in(name: impl Into<String>) -> Builder<T, L, W> {
        Builder::new(name.into())
    }

    fn of(builder: Builder<T, L, W>, construct: Box<Construct<T>>) -> Result<Self, PoolError> {
        let Builder { name, align, index_by, placed, budget, check, destroy, .. } = builder;
        let Builder { relieve, on_failure, discards_on_panic, .. } = builder;
        let layout = Layout::new::<Body<T, L, W>>();
        let too_large = || PoolError::TooLarge {
            size: layout.size(),
            align: align.max(layout.align()),
            stride: isize::MAX as usize,
        };
        let layout = layout.align_to(align).map_err(|_| too_large())?;
        let lives = offset_of!(Body<T, L, W>, lives);
        let topology = W::topology();
        let (nodes, depot_of) = if placed { by_node(&topology) } else { one_node() };
        let slabs = Slabs::new_in(layout, lives, nodes).ok_or_else(too_large)?;
        let depots = Depots::new_in(slabs.nodes());
        let by_size = (4096 / layout.size().max(1)).clamp(8, 32);
        // Stacks of all CPUs take half of the limit at most.
        let part = |limit: usize| (limit / (2 * topology.cpu_limit().max(1))).clamp(1, MOST);
        let most = builder.idle_limit.map_or(MOST, part);
        let size = most.min(2 * builder.magazine.unwrap_or(by_size));
        // Where there is a limit, a stack has no room until it was taken out of that.
        let first = if builder.idle_limit.is_some() { 0 } else { size };
        let pool = PerCpuPool::<W>::global_in(index_by)?;
        // Without a fence, `shrink` could not take back what a CPU keeps.
        let has_fence = W::fence_restartable().is_ok();
        let vacant = if has_fence { 4096 / layout.pad_to_align().size() } else { 0 };
        let parts = pool.per_cpu(move || Part::<T, L, W> {
            idle: ResizableStack::with_capacity_in(first),
            vacant: ResizableStack::with_capacity_in(vacant),
            constructed: W::U64::new_in(0),
            discarded: W::U64::new_in(0),
        })?;
        Ok(ObjectCache {
            parts,
            attended: check.is_some() || budget.is_some() || discards_on_panic,
            discards_on_panic,
            check,
            budget,
            slabs,
            depots,
            depot_of,
            most,
            name,
            idle_limit: builder.idle_limit.map(|limit| limit as u64),
            construct,
            destroy,
            on_failure,
            relieve,
            quarantine: Quarantine::new_in(builder.quarantine),
            state: Line(State {
                size: W::U32::new_in(size as u32),
                room: W::U64::new_in(0),
                destroyed: W::U64::new_in(0),
                failed: W::U64::new_in(0),
            }),
        })
    }

    /// Returns the cache's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stack of this CPU.
    #[inline(always)]
    pub(super) fn stack(&self) -> Field<'_, Part<T, L, W>, Stack<T, L, W>, W> {
        self.parts.field(|part| &part.idle)
    }

    /// A body that is charged.
    #[inline(always)]
    pub(super) fn take(&self) -> Result<Held<T, L, W>, GetError> {
        if self.budget.is_none()
            && let Ok(Some(body)) = self.stack().try_pop()
        {
            return Ok(body);
        }
        self.take_otherwise()
    }

    /// Apart, so that the usual way stays short: where there is a budget, or the stack is empty.
    #[cold]
    #[inline(never)]
    fn take_otherwise(&self) -> Result<Held<T, L, W>, GetError> {
        // A section that finds vacant memory shows that the thread has a slot. So the section in
        // `take` found an empty stack, unless the thread was moved.
        if self.budget.is_none() && self.depots.are_empty() {
            let here = self.here();
            if let Some(at) = self.vacant(here) {
                return self.make(here, Some(at));
            }
        }
        self.charge()?;
        self.take_charged(Charged(self))
    }

    /// A body for which the caller has charged.
    pub(super) fn take_charged(
        &self,
        charged: Charged<'_, T, L, W>,
    ) -> Result<Held<T, L, W>, GetError> {
        let body = match self.stack().pop() {
            Some(body) => body,
            None => self.refill()?,
        };
        mem::forget(charged);
        Ok(body)
    }

    /// Charges first: then nothing is taken that would have to be given back.
    pub(super) fn charge(&self) -> Result<(), OverBudget> {
        let Some((budget, each)) = &self.budget else { return Ok(()) };
        loop {
            match budget.charge(*each) {
                Err(_) if self.relieve(Pressure::Budget) => {}
                charged => return charged,
            }
        }
    }

    pub(super) fn uncharge(&self) {
        if let Some((budget, each)) = &self.budget {
            budget.uncharge(*each);
        }
    }

    pub(super) fn relieve(&self, pressure: Pressure<'_>) -> bool {
        self.relieve.as_ref().is_some_and(|relieve| relieve(pressure))
    }

    /// Ends a life, and gives the object back.
    ///
    /// # Safety
    ///
    /// The body is of this cache, is the caller's alone, and has a life.
    #[inline]
    pub(super) unsafe fn put(&self, body: Held<T, L, W>) {
        if mem::needs_drop::<L>() {
            // SAFETY: the caller's promise.
            return unsafe { self.end(body) };
        }
        if self.attended || !self.push_usually(body) {
            // SAFETY: the caller's promise; the object was not given back.
            return unsafe { self.put_otherwise(body) };
        }
        // At the end: the object is back, and nothing is lost by the panic.
        leaf::no_cache_in_a_destructor::<W>(&self.name);
    }

    /// The rare cases, in a function of their own so that the usual path stays short: the object
    /// needs attention, the stack is full, or the thread has no slot yet.
    ///
    /// # Safety
    ///
    /// As for [`put`](ObjectCache::put).
    #[cold]
    #[inline(never)]
    unsafe fn put_otherwise(&self, body: Held<T, L, W>) {
        // SAFETY: the promise of `put`.
        unsafe { self.end(body) };
    }

    /// Makes an object idle.
    pub(super) fn push(&self, body: Held<T, L, W>) {
        if self.stack().push(body).is_err() {
            self.flush(body);
        }
    }

    /// The same, if the thread has a slot and there is room on the stack; says whether there was.
    #[inline(always)]
    pub(super) fn push_usually(&self, body: Held<T, L, W>) -> bool {
        matches!(self.stack().try_push(body), Ok(Ok(())))
    }

    /// Destroys all idle and [quarantined](Builder::quarantine) objects, frees their memory, and
    /// returns their number. The memory that the cache itself keeps is then bounded: see
    /// [`ObjectCache`].
    ///
    /// The call stops the stacks of all CPUs briefly, with a fence. Without memory for a list of
    /// their objects, it stops one stack after the other. If the machine cannot fence sections,
    /// objects on the stacks stay. If another thread is in [`stats`](ObjectCache::stats),
    /// the memory is freed when that call ends.
    pub fn shrink(&self) -> usize {
        leaf::no_cache_in_a_destructor::<W>(&self.name);
        let mut panics = Panics::NONE;
        let count = self.empty_stacks(&mut panics);
        let count = count + self.empty_depots(&mut panics) + self.empty_quarantine(&mut panics);
        self.depots.trim();
        self.slabs.trim();
        panics.resume::<W>();
        count
    }

    /// Returns the counts of operations and objects of this cache.
    ///
    /// The call takes a few nanoseconds per object, because it reads each object. It does not block
    /// threads that construct or destroy objects meanwhile. While memory of destroyed objects is
    /// freed, `gets` may be too low.
    pub fn stats(&self) -> CacheStats {
        let mut lives = 0;
        // Relaxed: a count, written by the holder of the object. Lives whose memory is given back
        // during the walk count at most once, and those that the walk has not reached do not count.
        let ended = self.slabs.each(|count| lives += count.load(Ordering::Relaxed));
        self.figures(ended + lives)
    }

    /// All of [`stats`](ObjectCache::stats) but the gets, which are given: what is counted anyway.
    fn figures(&self, gets: u64) -> CacheStats {
        // Relaxed, here and below: counts.
        let load = |word: &W::U64| word.load(Ordering::Relaxed);
        let state = &self.state.0;
        let on_stacks: usize = self.parts.iter().map(|part| part.idle.len()).sum();
        let idle = on_stacks + self.depots.objects();
        let discarded = self.parts.field(|part| &part.discarded).sum();
        let destroyed = load(&state.destroyed) + discarded;
        let constructed = self.parts.field(|part| &part.constructed).sum();
        let quarantined = self.quarantine.len();
        let (flushes, refills) = self.depots.trips();
        CacheStats {
            live: (constructed.saturating_sub(destroyed) as usize)
                .saturating_sub(idle + quarantined),
            idle,
            quarantined,
            constructed,
            destroyed,
            failed: load(&state.failed),
            discarded,
            gets,
            refills,
            flushes,
            bytes: size_of::<Self>()
                + self.slabs.bytes()
                + self.depots.bytes()
                + (self.parts.populated() + 1) * size_of::<Part<T, L, W>>(),
        }
    }

    /// Destroys the cache. All objects should have been returned before.
    ///
    /// # Errors
    ///
    /// [`Leaked`] if some objects were not returned, because they were forgotten or are held as
    /// pointers.
    pub fn close(self) -> Result<(), Leaked> {
        let mut panics = Panics::NONE;
        self.empty_quarantine(&mut panics);
        panics.resume::<W>();
        let CacheStats { live, quarantined, .. } = self.figures(0);
        let count = live + quarantined;
        let name = self.name.clone();
        drop(self);
        if count == 0 { Ok(()) } else { Err(Leaked { name, count }) }
    }
}

/// Idle objects are destroyed, all of them, and a panic of a destructor goes no further. Those that
/// were never given back, and their memory, stay.
impl<T: Send + 'static, L: Send + 'static, W: World> Drop for ObjectCache<T, L, W> {
    fn drop(&mut self) {
        let mut panics = Panics::NONE;
        // One after the other, as there may be no memory for a list of all.
        for number in 0.. {
            let Some(part) = self.parts.iter_mut().nth(number) else { break };
            // SAFETY: reserved, and no object is there.
            part.vacant.drain().for_each(|at| unsafe { self.slabs.give_back(at.cast()) });
            let mut bodies = [None; MOST];
            bodies.iter_mut().zip(part.idle.drain()).for_each(|(place, body)| *place = Some(body));
            self.unmake_all(bodies.into_iter().flatten(), &mut panics);
        }
        self.empty_depots(&mut panics);
        self.empty_quarantine(&mut panics);
    }
}

/// Looks at no object: [`stats`](ObjectCache::stats) has more.
impl<T: Send + 'static, L: Send + 'static, W: World> fmt::Debug for ObjectCache<T, L, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.figures(0);
        f.debug_struct("ObjectCache")
            .field("name", &self.name)
            .field("live", &figures.live)
            .field("idle", &figures.idle)
            .field("quarantined", &figures.quarantined)
            .field("constructed", &figures.constructed)
            .field("destroyed", &figures.destroyed)
            .field("bytes", &figures.bytes)
            .finish_non_exhaustive()
    }
}

/// A charge for an object: given back if none can be had, or the constructor panics.
pub(super) struct Charged<'a, T: Send + 'static, L: Send + 'static, W: World>(
    pub(super) &'a ObjectCache<T, L, W>,
);

impl<T: Send + 'static, L: Send + 'static, W: World> Drop for Charged<'_, T, L, W> {
    fn drop(&mut self) {
        self.0.uncharge();
    }
}

/// One depot, wherever memory is.
fn one_node() -> (Box<[Option<NodeId>]>, Box<[u16]>) {
    (Box::new([None]), Box::default())
}

/// A depot for each node that has CPUs, and by CPU which one is its.
fn by_node(topology: &Topology) -> (Box<[Option<NodeId>]>, Box<[u16]>) {
    if topology.node_count() < 2 {
        return one_node();
    }
    let nodes: Vec<_> = topology.nodes().collect();
    let mut depot_of = vec![0; topology.cpu_limit()];
    for cpu in topology.cpus() {
        let depot = nodes.iter().position(|node| *node == cpu.node).unwrap_or(0);
        depot_of[cpu.id.index()] = depot as u16;
    }
    let memory = |node: NodeId| Some(topology.nearest_memory(node).unwrap_or(node));
    (nodes.into_iter().map(memory).collect(), depot_of.into())
}
