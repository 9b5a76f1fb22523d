//! [`Slabs`]: the memory of a cache's objects.
//!
//! A slab is a naturally aligned block on one node, whose size is a power of two. It contains a
//! header, a map with a bit for each object, and the objects. So the address of an object
//! determines its slab.
//!
//! ```text
//! | header | map | object | object | ...                    |
//! ```
//!
//! Objects are reserved when they are constructed, and freed when they are destroyed, under a lock.
//! Each reserved object has a word that counts its lives. If its memory stays reserved for the next
//! object, the word counts the lives of both.
//!
//! | what | guarded by |
//! |---|---|
//! | the lists of slabs, their maps and the rest of their headers | `lock` |
//! | a slab's node | nothing: it never changes |
//! | `waiting`, how many threads wait for the lock | nothing: a hint, changed with additions |
//!
//! A thread holds the lock at most for the time to read 64 objects. The exception is a
//! [trim](Slabs::trim), which reads each slab. A thread that [walks](Slabs::each) over all objects
//! takes the lock repeatedly, and yields to waiters. Slabs stay mapped meanwhile.
//!
//! The lock does not block signals. Handlers must not use caches, and blocking signals would cost
//! more than the construction of many objects.
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `SMALLEST`, `FEWEST` | many mappings | unused memory | `memory_comes_in_slabs_..`, of caches |
//! | `WAY` | a walk holds up others | it takes longer | `a_walk_over_..`, `a_walk_ends_..` |
//! | `WAYS` | a walk holds up others | it takes longer | `a_walk_over_..`, `a_walk_ends_..` |
//! | a word of the map for each CPU | CPUs share lines | | `objects_of_two_cpus_share_no_line` |
//!
//! Code accesses headers through raw pointers. A reference to a header would include its node,
//! which other threads read without the lock, and exclude the map behind it.
//!
//! **Fork**: if a child was forked while another thread changed a list, the child finds all slabs.
//! On its first access it rebuilds the lists of slabs with room, because lists belong to one
//! generation of the memory. The child may lose an object that was being reserved or freed. No
//! object is handed out twice.

use core::alloc::Layout;
use core::mem::replace;
use core::ptr::{self, NonNull};
use core::time::Duration;

use coreline_topology::NodeId;
use coreline_world::{Cell, Integer, MapError, Ordering, Word, World};

use crate::percpu::{SlotLock, SlotLockGuard};

/// The least size of a slab, in bytes.
const SMALLEST: usize = 64 << 10;
/// This many objects fit into a slab at least.
const FEWEST: usize = 8;

/// For how long a walk yields the lock, and how often for all of this time. Waiting threads may
/// have lost their CPUs, or may not exist in a forked child.
const WAY: Duration = Duration::from_micros(10);
const WAYS: u32 = 100;

/// The header of a slab.
struct Slab {
    /// The node, among those that the cache knows, on which it lies.
    node: usize,
    /// How many of its objects are reserved.
    reserved: usize,
    /// The next of all slabs.
    next: *mut Slab,
    /// Whether it is in its node's list of slabs with room, and the next slab in this list.
    listed: bool,
    behind: *mut Slab,
}

/// How a slab is laid out.
#[derive(Debug, Clone, Copy)]
struct Plan {
    slab: Layout,
    /// The distance from one object to the next, in bytes.
    stride: usize,
    /// The offset of the first one.
    first: usize,
    /// How many there are.
    count: usize,
}

impl Plan {
    /// The plan for objects of this layout; `None` if the layout is too large for this machine.
    fn of(object: Layout) -> Option<Plan> {
        let object = object.pad_to_align();
        let stride = object.size().max(1);
        let least = stride.checked_mul(FEWEST)?.checked_add(object.align() + SMALLEST / 4)?;
        let size = least.checked_next_power_of_two()?.max(SMALLEST);
        let slab = Layout::from_size_align(size, size).ok()?;
        let first = |count: usize| {
            let words = count.div_ceil(64);
            (size_of::<Slab>() + words * size_of::<u64>()).next_multiple_of(object.align())
        };
        let mut count = (size - size_of::<Slab>()) / stride;
        while first(count) + count * stride > size {
            count -= 1;
        }
        Some(Plan { slab, stride, first: first(count), count })
    }
}

struct Lists<W: World> {
    /// How many slabs there are.
    slabs: usize,
    /// How many threads walk over the slabs, so that no slab may be unmapped, and whether a slab
    /// waits to be unmapped.
    walks: usize,
    trim: bool,
    /// How many lives the objects had whose memory was given back.
    ended: u64,
    /// All slabs. A word, so that a forked child has a slab whole or not at all.
    all: W::Ptr<Slab>,
    /// By node: slabs with room.
    with_room: Box<[*mut Slab]>,
    /// The generation of the memory in which those were listed.
    generation: u32,
}

// SAFETY: slabs are reached under the lock alone, whichever thread has it.
unsafe impl<W: World> Send for Lists<W> {}

/// See the module.
pub(super) struct Slabs<W: World> {
    plan: Plan,
    /// The address of an object's count of lives.
    lives: usize,
    /// By number: the node. `None`, for the only one: wherever memory is.
    nodes: Box<[Option<NodeId>]>,
    lock: SlotLock<W>,
    waiting: W::U32,
    lists: Cell<Lists<W>, W>,
}

impl<W: World> Slabs<W> {
    /// Without slabs, for objects of this layout with a count of lives there. `None` if they are
    /// too large for this machine.
    pub(super) fn new_in(
        object: Layout,
        lives: usize,
        nodes: Box<[Option<NodeId>]>,
    ) -> Option<Self> {
        let with_room = nodes.iter().map(|_| ptr::null_mut()).collect();
        let all = W::Ptr::new_in(ptr::null_mut());
        let generation = W::generation().get();
        let lists = Lists { slabs: 0, walks: 0, trim: false, ended: 0, all, with_room, generation };
        let lists = Cell::new_in(lists);
        let (lock, waiting) = (SlotLock::new_in(), W::U32::new_in(0));
        Some(Slabs { plan: Plan::of(object)?, lives, nodes, lock, waiting, lists })
    }

    /// How many nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn with<R>(&self, f: impl FnOnce(&mut Lists<W>) -> R) -> R {
        let _guard = self.lock.try_lock_outside_handlers().unwrap_or_else(|| self.wait());
        self.lists.with_mut(|lists| {
            // SAFETY: the lock keeps all other threads away.
            let lists = unsafe { &mut *lists };
            let generation = W::generation().get();
            if lists.generation != generation {
                lists.generation = generation;
                self.recount(lists);
            }
            f(lists)
        })
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> SlotLockGuard<'_, W, ()> {
        // Relaxed, both: a hint.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.lock.lock_outside_handlers();
        // Relaxed: as the addition.
        self.waiting.fetch_add(1_u32.wrapping_neg(), Ordering::Relaxed);
        guard
    }

    /// Lets those go first that wait for the lock; says whether all did, or none waits.
    fn give_way(&self) -> bool {
        let none = |waiting| waiting == 0;
        // Relaxed: a hint.
        if none(self.waiting.load(Ordering::Relaxed)) {
            return true;
        }
        // Relaxed: a hint.
        self.waiting.wait_until_by(Ordering::Relaxed, W::now() + WAY, none).is_some()
    }

    /// Recounts what is taken, in a forked child: a thread of the parent may have been about to
    /// change a count. The child has none of the threads that walked.
    fn recount(&self, lists: &mut Lists<W>) {
        for slab in lists.each() {
            // SAFETY: slabs are mapped as long as they are in a list, and the lock is held.
            unsafe {
                let taken = self.map(slab).as_ref().iter().map(|word| word.count_ones() as usize);
                (*slab.as_ptr()).reserved = taken.sum();
            }
        }
        lists.slabs = lists.each().count();
        lists.walks = 0;
        self.settle(lists);
    }

    /// Rebuilds the list of slabs with room.
    fn settle(&self, lists: &mut Lists<W>) {
        lists.with_room.fill(ptr::null_mut());
        for slab in lists.each() {
            let at = slab.as_ptr();
            // SAFETY: slabs are mapped as long as they are in a list, and the lock is held.
            unsafe {
                (*at).listed = (*at).reserved < self.plan.count;
                if (*at).listed {
                    (*at).behind = replace(&mut lists.with_room[(*at).node], at);
                }
            }
        }
    }

    /// Memory for one object, on a node if that node has memory. Its count of lives is 0.
    pub(super) fn reserve(&self, node: usize) -> Result<NonNull<u8>, MapError> {
        loop {
            if let Some(object) = self.with(|lists| self.reserve_in(lists, node)) {
                return Ok(object);
            }
            self.add(node)?;
        }
    }

    fn reserve_in(&self, lists: &mut Lists<W>, node: usize) -> Option<NonNull<u8>> {
        while let Some(slab) = NonNull::new(lists.with_room[node]) {
            let at = slab.as_ptr();
            // SAFETY: slabs are mapped as long as they are in a list, and the lock is held.
            unsafe {
                if let Some(number) = self.free_number(slab) {
                    self.map(slab).as_mut()[number / 64] |= 1 << (number % 64);
                    (*at).reserved += 1;
                    let object = self.object(slab, number);
                    object.byte_add(self.lives).cast::<W::U64>().write(W::U64::new_in(0));
                    return Some(object);
                }
                lists.with_room[node] = (*at).behind;
                (*at).listed = false;
            }
        }
        None
    }

    /// # Safety
    ///
    /// The slab is mapped, and has this many objects.
    unsafe fn object(&self, slab: NonNull<Slab>, number: usize) -> NonNull<u8> {
        // SAFETY: the caller's promise.
        unsafe { slab.byte_add(self.plan.first + number * self.plan.stride).cast() }
    }

    /// # Safety
    ///
    /// The slab is mapped, and the lock is held.
    unsafe fn free_number(&self, slab: NonNull<Slab>) -> Option<usize> {
        // SAFETY: the caller's promise.
        let map = unsafe { self.map(slab).as_ref() };
        let free = |word: usize| {
            let number = word * 64 + (!map[word]).trailing_zeros() as usize;
            (map[word] != u64::MAX && number < self.plan.count).then_some(number)
        };
        // Each CPU begins with a word of its own: neighbours in memory are then of one CPU, as a
        // rule, and two CPUs do not write to one line.
        let begin = W::cpu_hint().index() % map.len();
        (begin..map.len()).chain(0..begin).find_map(free)
    }

    /// The map of a slab.
    ///
    /// # Safety
    ///
    /// The slab is mapped.
    unsafe fn map(&self, slab: NonNull<Slab>) -> NonNull<[u64]> {
        // SAFETY: the map lies behind the header.
        let map = unsafe { slab.add(1).cast() };
        NonNull::slice_from_raw_parts(map, self.plan.count.div_ceil(64))
    }

    /// One slab more.
    fn add(&self, node: usize) -> Result<(), MapError> {
        // Without the lock: system calls. Of two threads that come here at the same time each adds
        // one.
        let slab = W::map(self.plan.slab)?;
        if let Some(node) = self.nodes[node] {
            // What cannot be placed lies where it is first touched.
            // SAFETY: just mapped.
            drop(unsafe { W::place(slab, self.plan.slab.size(), node) });
        }
        let slab = slab.cast::<Slab>();
        self.with(|lists| {
            // Relaxed: the lock orders the lists.
            let (next, behind) = (lists.all.load(Ordering::Relaxed), lists.with_room[node]);
            // SAFETY: just mapped, and aligned. Zeros are a map.
            unsafe { slab.write(Slab { node, reserved: 0, next, listed: true, behind }) };
            // Release: a child that is forked meanwhile has the slab whole, or not.
            lists.all.store(slab.as_ptr(), Ordering::Release);
            lists.with_room[node] = slab.as_ptr();
            lists.slabs += 1;
        });
        Ok(())
    }

    fn slab_of(&self, object: NonNull<u8>) -> NonNull<Slab> {
        let offset = object.addr().get() & (self.plan.slab.align() - 1);
        // SAFETY: an object lies in its slab, which is aligned to its size.
        unsafe { object.byte_sub(offset).cast() }
    }

    /// The number of the node that an object lies on.
    ///
    /// # Safety
    ///
    /// The object is reserved.
    pub(super) unsafe fn node_of(&self, object: NonNull<u8>) -> usize {
        // SAFETY: the slab of a reserved object is mapped, and its node never changes.
        unsafe { (*self.slab_of(object).as_ptr()).node }
    }

    /// Gives the memory of an object back.
    ///
    /// # Safety
    ///
    /// The object is reserved, and is not used any more.
    pub(super) unsafe fn give_back(&self, object: NonNull<u8>) {
        let slab = self.slab_of(object);
        let offset = object.addr().get() - slab.addr().get() - self.plan.first;
        let number = offset / self.plan.stride;
        self.with(|lists| {
            let at = slab.as_ptr();
            // SAFETY: the slab of a reserved object is mapped, and the lock is held.
            unsafe {
                self.map(slab).as_mut()[number / 64] &= !(1 << (number % 64));
                let lives = object.byte_add(self.lives).cast::<W::U64>();
                // Relaxed: written by the holder of the object, which is the caller.
                lists.ended += lives.as_ref().load(Ordering::Relaxed);
                lives.drop_in_place();
                (*at).reserved -= 1;
                if !(*at).listed {
                    (*at).listed = true;
                    (*at).behind = replace(&mut lists.with_room[(*at).node], at);
                }
            }
        });
    }

    /// Unmaps the slabs without reserved objects. While a thread walks over them, that is left to
    /// it.
    pub(super) fn trim(&self) {
        let mut empty = ptr::null_mut::<Slab>();
        self.with(|lists| {
            lists.trim = lists.walks > 0;
            if lists.trim {
                return;
            }
            let mut kept = ptr::null_mut::<Slab>();
            for slab in lists.each() {
                let at = slab.as_ptr();
                // SAFETY: slabs are mapped as long as they are in a list, and the lock is held.
                unsafe {
                    if (*at).reserved > 0 {
                        kept = at;
                        continue;
                    }
                    // One store takes it out of the list, so that a forked child finds all others.
                    let next = (*at).next;
                    match kept.is_null() {
                        // Release: as where it was put in.
                        true => lists.all.store(next, Ordering::Release),
                        false => (*kept).next = next,
                    }
                    (*at).behind = replace(&mut empty, at);
                    lists.slabs -= 1;
                }
            }
            self.settle(lists);
        });
        while let Some(slab) = NonNull::new(empty) {
            // SAFETY: it left the lists, no object of it is reserved, and it was mapped with this
            // layout.
            unsafe {
                empty = (*slab.as_ptr()).behind;
                W::unmap(slab.cast(), self.plan.slab);
            }
        }
    }

    /// Calls `f` with the count of lives of each reserved object: under the lock, except for no
    /// more than 64 of them at a time. An object that is reserved or given back during the walk may
    /// be left out. Returns how many lives the objects had whose memory was given back before.
    ///
    /// Slabs stay while a thread walks: one that is added is put before all others, and none is
    /// unmapped.
    ///
    /// ```text
    /// Thread 1: walks; is at slab 3, without the lock
    /// Thread 2: trims: slab 3 has no objects              <- and would be unmapped
    /// Thread 1: reads which slab is next
    /// ```
    ///
    /// It pauses between two attempts. Otherwise it would always be the first to take the lock,
    /// because the line of the lock is in its cache.
    pub(super) fn each(&self, mut f: impl FnMut(&W::U64)) -> u64 {
        let (mut next, ended) = self.with(|lists| {
            lists.walks += 1;
            // Relaxed: the lock orders the lists.
            (lists.all.load(Ordering::Relaxed), lists.ended)
        });
        let _walk = Walk(self);
        let mut ways = WAYS;
        while let Some(slab) = NonNull::new(next) {
            for word in 0..self.plan.count.div_ceil(64) {
                // SAFETY: the slab was in the list when the walk began, and stays.
                self.with(|_| unsafe { self.each_of(slab, word, &mut f) });
                if ways > 0 && !self.give_way() {
                    ways -= 1;
                }
            }
            // SAFETY: the slab stays, as the walk began with it in the list; the lock is held.
            next = self.with(|_| unsafe { (*slab.as_ptr()).next });
        }
        ended
    }

    /// As [`each`](Slabs::each), of the 64 objects that a word of the map is about.
    ///
    /// # Safety
    ///
    /// The slab is mapped, and the lock is held.
    unsafe fn each_of(&self, slab: NonNull<Slab>, word: usize, f: &mut impl FnMut(&W::U64)) {
        // SAFETY: the caller's promise.
        let mut left = unsafe { self.map(slab).as_ref()[word] };
        while left != 0 {
            let number = word * 64 + left.trailing_zeros() as usize;
            left &= left - 1;
            // SAFETY: reserved, and so with a count.
            f(unsafe { self.object(slab, number).byte_add(self.lives).cast().as_ref() });
        }
    }

    /// The bytes of all slabs.
    pub(super) fn bytes(&self) -> usize {
        self.with(|lists| lists.slabs * self.plan.slab.size())
    }
}

impl<W: World> Lists<W> {
    /// All slabs, for the holder of the lock. One that was met may leave the list.
    fn each(&self) -> impl Iterator<Item = NonNull<Slab>> + use<W> {
        // Relaxed: the lock orders the lists.
        let mut next = self.all.load(Ordering::Relaxed);
        core::iter::from_fn(move || {
            let slab = NonNull::new(next)?;
            // SAFETY: slabs are mapped as long as they are in the list.
            next = unsafe { (*slab.as_ptr()).next };
            Some(slab)
        })
    }
}

/// A walk over all slabs. The last one to end does what was left to it.
struct Walk<'a, W: World>(&'a Slabs<W>);

impl<W: World> Drop for Walk<'_, W> {
    fn drop(&mut self) {
        let trim = self.0.with(|lists| {
            // A child that a walking thread forked, in a handler, has forgotten the walk.
            lists.walks = lists.walks.saturating_sub(1);
            lists.trim && lists.walks == 0
        });
        if trim {
            self.0.trim();
        }
    }
}

/// Slabs with reserved objects stay: what has those may use them still.
impl<W: World> Drop for Slabs<W> {
    fn drop(&mut self) {
        self.trim();
    }
}

#[cfg(test)]
mod tests;
