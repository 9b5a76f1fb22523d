//! The slow paths of an object: from a depot or the constructor to a CPU's stack, and back.

use core::mem;
use core::ops::Range;
use core::ptr::NonNull;

use coreline_world::{Integer, Ordering, Word, World};

use super::builder::Pressure;
use super::cache::{Body, GetError, Held, MOST, MOST_VACANT, ObjectCache};
use super::depot::{ROUNDS, Trip};
use super::leaf;
use super::slab::Slabs;
use crate::panics::Panics;

impl<T: Send + 'static, L: Send + 'static, W: World> ObjectCache<T, L, W> {
    /// An object for a CPU whose stack is empty, which gets a magazine of others beside.
    #[cold]
    pub(super) fn refill(&self) -> Result<Held<T, L, W>, GetError> {
        let (here, depots) = (self.here(), self.depots.len());
        // A look first: without objects there is no need of room for them.
        let mut full = (here..depots).chain(0..here).filter(|depot| !self.depots.is_empty(*depot));
        let refilled = full.find_map(|depot| self.refill_from(depot));
        refilled.map_or_else(|| self.make(here, self.vacant(here)), Ok)
    }

    /// An object of a depot's, and others of its magazine for the CPU; `None` if it has none.
    #[inline(never)]
    fn refill_from(&self, depot: usize) -> Option<Held<T, L, W>> {
        let mut into = [None; ROUNDS];
        let Trip { objects, contended } = self.depots.take(depot, &mut into);
        if contended {
            self.enlarge();
        }
        let mut taken = into[..objects].iter_mut().filter_map(Option::take);
        let ours = taken.next()?;
        self.leave(objects);
        self.fit();
        let mut rest = [NonNull::dangling(); ROUNDS];
        let count = taken.zip(&mut rest).map(|(body, place)| *place = body).count();
        let pushed = self.stack().push_batch(&rest[..count]);
        // The thread was moved, or another one of this CPU was faster.
        let panics = self.store(&rest[pushed..count]);
        if panics.goes_on::<W>() {
            self.push(ours);
        }
        panics.resume::<W>();
        Some(ours)
    }

    /// Makes room on the full stack of a CPU, and adds an idle object.
    #[cold]
    #[inline(never)]
    pub(super) fn flush(&self, body: Held<T, L, W>) {
        if self.fit() && self.stack().push(body).is_ok() {
            return;
        }
        let mut out = [None; ROUNDS];
        // A magazine, and this one is of it.
        let others = (self.size() / 2).clamp(1, ROUNDS) - 1;
        let popped = self.stack().pop_batch(&mut out[..others]);
        let mut bodies = [body; ROUNDS];
        let popped = out[..popped].iter().flatten();
        let count = popped.zip(&mut bodies[1..]).map(|(body, place)| *place = *body).count();
        self.store(&bodies[..=count]).resume::<W>();
    }

    /// Brings objects home: to the depots of their nodes, or, beyond the limit, to an end. All of
    /// them, even if code that the caller runs panics.
    fn store(&self, bodies: &[Held<T, L, W>]) -> Panics {
        let mut panics = Panics::NONE;
        let depots = self.depots.len();
        if depots == 1 {
            self.store_in(0, bodies, &mut panics);
            return panics;
        }
        // All nodes before the first object is stored: then it may be another thread's, or gone.
        let mut nodes = [0; ROUNDS];
        for (node, body) in nodes.iter_mut().zip(bodies) {
            // SAFETY: the body is the caller's still, so it is reserved.
            *node = unsafe { self.slabs.node_of(body.cast()) };
        }
        for depot in 0..depots {
            let mut home = [NonNull::dangling(); ROUNDS];
            let of_depot = bodies.iter().zip(nodes).filter(|(_, node)| *node == depot);
            let count = of_depot.zip(&mut home).map(|((body, _), place)| *place = *body).count();
            self.store_in(depot, &home[..count], &mut panics);
        }
        panics
    }

    fn store_in(&self, depot: usize, bodies: &[Held<T, L, W>], panics: &mut Panics) {
        if bodies.is_empty() {
            return;
        }
        let mut stored = 0;
        if self.enter(bodies.len()) {
            let trip = self.depots.put(depot, bodies);
            stored = trip.objects;
            self.leave(bodies.len() - stored);
            if trip.contended {
                self.enlarge();
            }
        } else {
            panics.run(|| _ = self.relieve(Pressure::IdleLimit));
        }
        self.unmake_all(bodies[stored..].iter().copied(), panics);
    }

    /// Takes room for this many idle objects, if the limit leaves it.
    fn enter(&self, objects: usize) -> bool {
        let Some(limit) = self.idle_limit else { return true };
        let (room, objects) = (&self.state.0.room, objects as u64);
        // Relaxed: a count, which publishes nothing.
        let before = room.fetch_add(objects, Ordering::Relaxed);
        let fits = before.saturating_add(objects) <= limit;
        if !fits {
            // Relaxed: as the addition.
            room.fetch_add(objects.wrapping_neg(), Ordering::Relaxed);
        }
        fits
    }

    /// Gives room back.
    pub(super) fn leave(&self, objects: usize) {
        if self.idle_limit.is_some() {
            // Relaxed: a count, which publishes nothing.
            self.state.0.room.fetch_add((objects as u64).wrapping_neg(), Ordering::Relaxed);
        }
    }

    /// Returns the number of objects that a stack should hold.
    fn size(&self) -> usize {
        // Relaxed: a number, which publishes nothing.
        self.state.0.size.load(Ordering::Relaxed) as usize
    }

    /// Larger magazines from now on: CPUs meet at a depot. Not where idle objects have a limit, and
    /// so each stack has room in it:
    ///
    ///   Thread 1: looks at the size: 2; finds a stack without room, and takes room for 2
    ///   Thread 2: makes the size 4; gives CPU 0 a stack of 4, and fills it
    ///   Thread 1: comes to CPU 0, makes its stack one of 2  <- 4 objects have room for 2
    pub(super) fn enlarge(&self) {
        let size = self.size();
        if self.idle_limit.is_none() && size < self.most {
            let larger = (2 * size).min(self.most) as u32;
            // Relaxed, both: a number, which publishes nothing. If another thread was faster, its
            // size does.
            let relaxed = Ordering::Relaxed;
            _ = self.state.0.size.compare_exchange(size as u32, larger, relaxed, relaxed);
        }
    }

    /// Gives this CPU's stack the size that stacks should have; says whether it grew.
    fn fit(&self) -> bool {
        let parts = &self.parts;
        let stack = &parts.get(W::index(parts.section())).unwrap_or(parts.shared()).idle;
        let size = self.size();
        // Room for a whole stack: the thread may be moved, and meet one that has none yet.
        if stack.capacity() >= size || !self.enter(size) {
            return false;
        }
        let before = self.stack().resize(size);
        // Where room counts, all stacks have this size, or none.
        self.leave(before);
        before < size
    }

    /// The depot of this CPU's node.
    pub(super) fn here(&self) -> usize {
        self.depot_of.get(W::cpu_hint().index()).map_or(0, |depot| usize::from(*depot))
    }

    /// Constructs an object, in vacant memory if there is some.
    pub(super) fn make(
        &self,
        node: usize,
        mut vacant: Option<NonNull<u8>>,
    ) -> Result<Held<T, L, W>, GetError> {
        loop {
            let at = match vacant.take().map_or_else(|| self.slabs.reserve(node), Ok) {
                Ok(at) => at,
                Err(why) if self.relieve(Pressure::Memory(&why)) => continue,
                Err(why) => return Err(why.into()),
            };
            let memory = Reserved { slabs: &self.slabs, at };
            // What is kept is what a body begins with.
            match (self.construct)(at.cast()) {
                Ok(()) => {
                    let body = mem::ManuallyDrop::new(memory).at.cast::<Body<T, L, W>>();
                    self.parts.field(|part| &part.constructed).add(1);
                    return Ok(body);
                }
                Err(why) => {
                    drop(memory);
                    if !self.relieve(Pressure::Constructor(&*why)) {
                        return Err(GetError::Constructor(why));
                    }
                }
            }
        }
    }

    /// Memory that this CPU keeps of an object that was discarded, on this node.
    pub(super) fn vacant(&self, node: usize) -> Option<NonNull<u8>> {
        while let Ok(Some(at)) = self.parts.field(|part| &part.vacant).try_pop() {
            let at = at.cast();
            // SAFETY: what is vacant is reserved, and the caller's now.
            unsafe {
                if self.depots.len() == 1 || self.slabs.node_of(at) == node {
                    return Some(at);
                }
                self.slabs.give_back(at);
            }
        }
        None
    }

    /// Keeps the memory of an object that was destroyed and is the caller's, if there is room.
    pub(super) fn vacate(&self, body: Held<T, L, W>) {
        if !matches!(self.parts.field(|part| &part.vacant).try_push(body), Ok(Ok(()))) {
            // SAFETY: reserved, and no object is there.
            unsafe { self.slabs.give_back(body.cast()) };
        }
    }

    /// Destroys an object, which is the caller's and has no life, and gives its memory back.
    pub(super) fn unmake(&self, body: Held<T, L, W>) {
        // Relaxed: a count.
        self.state.0.destroyed.fetch_add(1, Ordering::Relaxed);
        let _memory = Reserved { slabs: &self.slabs, at: body.cast() };
        self.destroy(body);
    }

    /// Destroys an object, which is the caller's and has no life.
    pub(super) fn destroy(&self, body: Held<T, L, W>) {
        // It is dropped where it is, as it may be larger than the stack.
        let kept = body.cast::<T>();
        leaf::in_a_destructor::<W>(|| match &self.destroy {
            Some(destroy) => destroy(kept),
            // SAFETY: what a body begins with, which is the caller's and not used any more.
            None => unsafe { kept.drop_in_place() },
        });
    }

    /// Destroys objects, all of them, also if a destructor panics; returns how many there were.
    pub(super) fn unmake_all(
        &self,
        bodies: impl Iterator<Item = Held<T, L, W>>,
        panics: &mut Panics,
    ) -> usize {
        let mut count = 0;
        for body in bodies {
            panics.run(|| self.unmake(body));
            count += 1;
        }
        count
    }

    /// Destroys what is on the stacks, and gives vacant memory back; returns how many objects there
    /// were. Without a fence the stacks stay as they are.
    pub(super) fn empty_stacks(&self, panics: &mut Panics) -> usize {
        let parts = self.parts.populated() + 1;
        let mut found = Vec::new();
        // Room for all that are there, as stacks should not be stopped for long.
        if found.try_reserve_exact(parts * (MOST + MOST_VACANT)).is_ok() {
            self.unstack(0..parts, |stacked| found.push(stacked));
            return self.end_stacked(found.into_iter(), panics);
        }
        let mut empty = |part| {
            let (mut found, mut len) = ([None; MOST + MOST_VACANT], 0);
            self.unstack(part..part + 1, |stacked| {
                found[len] = Some(stacked);
                len += 1;
            });
            self.end_stacked(found.into_iter().flatten(), panics)
        };
        (0..parts).map(&mut empty).sum()
    }

    /// Destroys objects, and gives vacant memory back; returns how many objects there were.
    fn end_stacked(
        &self,
        stacked: impl Iterator<Item = Stacked<T, L, W>>,
        panics: &mut Panics,
    ) -> usize {
        let idle = stacked.filter_map(|stacked| match stacked {
            Stacked::Idle(body) => Some(body),
            Stacked::Vacant(at) => {
                // SAFETY: reserved, and no object is there.
                unsafe { self.slabs.give_back(at.cast()) };
                None
            }
        });
        self.unmake_all(idle, panics)
    }

    /// Takes all that is on some of the stacks, while no stack is used.
    fn unstack(&self, parts: Range<usize>, mut found: impl FnMut(Stacked<T, L, W>)) {
        let stopped = self.parts.with_all_stopped(|all| {
            all.skip(parts.start).take(parts.len()).for_each(|part| {
                // First, as threads that find no slot still push onto the shared stack:
                //
                //   Thread 1: takes all off the shared stack
                //   Thread 2: finds no slot; pushes one onto the shared stack
                //   Thread 1: leaves that stack no room, and gives the room back
                //                        <- one object is idle, and the limit counts none
                let had = match self.idle_limit {
                    Some(_) => part.field(|part| &part.idle).resize(0),
                    None => 0,
                };
                let mut out = [None; MOST];
                let popped = part.field(|part| &part.idle).pop_batch(&mut out);
                out[..popped].iter().flatten().for_each(|body| found(Stacked::Idle(*body)));
                let popped = part.field(|part| &part.vacant).pop_batch(&mut out);
                out[..popped].iter().flatten().for_each(|at| found(Stacked::Vacant(*at)));
                self.leave(had);
            });
        });
        drop(stopped);
    }

    /// Destroys what is in the depots; returns how many there were.
    pub(super) fn empty_depots(&self, panics: &mut Panics) -> usize {
        let mut count = 0;
        for depot in 0..self.depots.len() {
            let mut into = [None; ROUNDS];
            loop {
                let objects = self.depots.drain(depot, &mut into);
                if objects == 0 {
                    break;
                }
                self.leave(objects);
                count +=
                    self.unmake_all(into[..objects].iter_mut().filter_map(Option::take), panics);
            }
        }
        count
    }
}

/// The content of a stack.
enum Stacked<T, L, W: World> {
    Idle(Held<T, L, W>),
    /// Reserved memory without an object.
    Vacant(Held<T, L, W>),
}

impl<T, L, W: World> Clone for Stacked<T, L, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, L, W: World> Copy for Stacked<T, L, W> {}

/// The memory of an object that is not constructed: given back if the constructor fails or panics.
struct Reserved<'a, W: World> {
    slabs: &'a Slabs<W>,
    at: NonNull<u8>,
}

impl<W: World> Drop for Reserved<'_, W> {
    fn drop(&mut self) {
        // SAFETY: reserved, and no object is there.
        unsafe { self.slabs.give_back(self.at) };
    }
}
