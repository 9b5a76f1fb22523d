//! [`Depots`]: the storage, in magazines, for idle objects that are on no CPU's stack.
//!
//! A magazine moves to or from a depot with one exchange, whatever its contents. There is a depot
//! for each memory node. (Bonwick and Adams, "Magazines and Vmem", USENIX 2001.)
//!
//! | word of a magazine | meaning | written by |
//! |---|---|---|
//! | `link` | the next magazine of its list | the thread that puts it there |
//! | `len` | how many rounds count | the thread that fills it |
//! | `rounds` | where its objects are; null until it is filled, and when trimmed | its thread |
//!
//! The magazines themselves are never freed: at most 65,536, with 16 bytes each. A thread may read
//! the link of a magazine that another thread has just taken. Only the thread that took a magazine
//! out of its list reads the rounds, and it may free them. So [`trim`](Depots::trim) leaves only
//! the magazines.
//!
//! ```text
//! Thread 1: pops: the first is magazine 7
//! Thread 2: pops magazine 7; trims: frees its rounds
//! Thread 1: reads the link of 7, which is there still; its exchange fails, as the list has changed
//! ```
//!
//! | word of a depot | meaning | written by |
//! |---|---|---|
//! | `full`, `empty` | magazines with objects, and without | exchanges |
//! | `objects` | how many they hold; an update behind at times | additions |
//! | `puts`, `takes` | how often a magazine came, and went | additions |
//!
//! | word of all depots | meaning | written by |
//! |---|---|---|
//! | `filled` | how many magazines have rounds | additions |
//!
//! No thread waits for another. If a child was forked while another thread used a depot, the depot
//! is consistent in the child, except for the magazine that the thread held.

use core::ptr::{self, NonNull};
use core::slice;

use coreline_world::{Integer, Line, Native, Ordering, Word, World};

use crate::node_pool::{List, NONE, Pool, Pooled};

/// How many objects fit into a magazine.
pub(super) const ROUNDS: usize = 64;

/// How many magazines a cache has at most.
const MOST: usize = 1 << 16;

/// See the module. `B` is what objects are kept in.
struct Magazine<B: 'static, W: World> {
    link: W::U32,
    len: W::U32,
    /// The first of [`ROUNDS`].
    rounds: W::Ptr<W::Ptr<B>>,
}

const _: () = {
    assert!(size_of::<Magazine<u64, Native>>() == 16);
    assert!(size_of::<Depot<Native>>() == 40);
    assert!(size_of::<Line<Depot<Native>>>() == 64);
};

// SAFETY: a magazine holds pointers, and gives them to threads that take them; what becomes of the
// objects is up to the cache, which asks that they are `Send`.
unsafe impl<B, W: World> Send for Magazine<B, W> {}
// SAFETY: all fields are words, and the pointers in them are handed on as they are.
unsafe impl<B, W: World> Sync for Magazine<B, W> {}

impl<B: 'static, W: World> Pooled<W> for Magazine<B, W> {
    fn new_in() -> Self {
        Magazine {
            link: W::U32::new_in(NONE),
            len: W::U32::new_in(0),
            rounds: W::Ptr::new_in(ptr::null_mut()),
        }
    }

    fn link(&self) -> &W::U32 {
        &self.link
    }
}

impl<B: 'static, W: World> Magazine<B, W> {
    /// The rounds of a magazine that is the caller's; `None` if it has none.
    fn rounds(&self) -> Option<&[W::Ptr<B>]> {
        // Relaxed: the magazine is the caller's, and came by an exchange with what is in it.
        let first = self.rounds.load(Ordering::Relaxed);
        // SAFETY: from `make_rounds`, this many, and freed by the thread alone whose the magazine
        // is.
        (!first.is_null()).then(|| unsafe { slice::from_raw_parts(first, ROUNDS) })
    }

    /// Makes the rounds of a magazine that is the caller's and has none; says whether there is
    /// memory for them.
    #[cold]
    fn make_rounds(&self) -> bool {
        let mut rounds: Vec<W::Ptr<B>> = Vec::new();
        if rounds.try_reserve_exact(ROUNDS).is_err() {
            return false;
        }
        rounds.extend((0..ROUNDS).map(|_| W::Ptr::new_in(ptr::null_mut())));
        let first = Box::into_raw(rounds.into_boxed_slice()).cast();
        // Relaxed: the magazine goes to another thread by an exchange that publishes it.
        self.rounds.store(first, Ordering::Relaxed);
        true
    }

    /// Frees the rounds of a magazine that is the caller's; says whether it had any.
    fn free(&self) -> bool {
        // Relaxed: as in `rounds`.
        let first = self.rounds.load(Ordering::Relaxed);
        // Relaxed: as in `make_rounds`.
        self.rounds.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: from `make_rounds`, and out of the magazine, which is the caller's.
        unsafe { drop_rounds::<B, W>(first) };
        !first.is_null()
    }
}

/// # Safety
///
/// They are of a magazine, in which they are no more, or null.
unsafe fn drop_rounds<B: 'static, W: World>(first: *mut W::Ptr<B>) {
    if !first.is_null() {
        // SAFETY: it was a box of this many.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, ROUNDS)) });
    }
}

impl<B: 'static, W: World> Drop for Magazine<B, W> {
    fn drop(&mut self) {
        // SAFETY: the magazine goes, and the pointer with it.
        self.rounds.with_mut(|first| unsafe { drop_rounds::<B, W>(*first) });
    }
}

/// See the module.
struct Depot<W: World> {
    full: List<W>,
    /// On a line that a CPU has already fetched at this point.
    empty: List<W>,
    objects: W::U64,
    puts: W::U64,
    takes: W::U64,
}

/// The depots of one cache.
pub(super) struct Depots<B: 'static, W: World> {
    table: Pool<Magazine<B, W>, W>,
    by_node: Box<[Line<Depot<W>>]>,
    filled: W::U64,
}

/// The result of a trip to a depot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trip {
    /// How many objects were put there, or taken.
    pub(super) objects: usize,
    /// Whether another thread was at the depot meanwhile.
    pub(super) contended: bool,
}

impl<B: 'static, W: World> Depots<B, W> {
    pub(super) fn new_in(nodes: usize) -> Self {
        let depot = || Depot {
            full: List::new_in(),
            empty: List::new_in(),
            objects: W::U64::new_in(0),
            puts: W::U64::new_in(0),
            takes: W::U64::new_in(0),
        };
        let by_node = (0..nodes).map(|_| Line(depot())).collect();
        Depots { table: Pool::new_in(MOST, 0), by_node, filled: W::U64::new_in(0) }
    }

    /// How many depots there are.
    pub(super) fn len(&self) -> usize {
        self.by_node.len()
    }

    /// Puts as many of these objects into a depot as there are magazines for, which is usually all
    /// of them.
    pub(super) fn put(&self, depot: usize, objects: &[NonNull<B>]) -> Trip {
        let Depot { full, empty, objects: count, puts, .. } = &self.by_node[depot].0;
        let mut trip = Trip { objects: 0, contended: false };
        for part in objects.chunks(ROUNDS) {
            let (number, contended) = empty.pop(&self.table);
            trip.contended |= contended;
            let Some(number) = number.or_else(|| self.table.take()) else { break };
            let magazine = self.table.get(number);
            if magazine.rounds().is_none() && magazine.make_rounds() {
                // Relaxed: a count.
                self.filled.fetch_add(1, Ordering::Relaxed);
            }
            let Some(rounds) = magazine.rounds() else {
                empty.push(&self.table, number);
                break;
            };
            for (round, object) in rounds.iter().zip(part) {
                // Relaxed: `push` publishes it.
                round.store(object.as_ptr(), Ordering::Relaxed);
            }
            // Relaxed: `push` publishes it.
            magazine.len.store(part.len() as u32, Ordering::Relaxed);
            trip.contended |= full.push(&self.table, number);
            trip.objects += part.len();
            // Relaxed: a count.
            count.fetch_add(part.len() as u64, Ordering::Relaxed);
            // Relaxed: a count.
            puts.fetch_add(1, Ordering::Relaxed);
        }
        trip
    }

    /// Whether a depot has no magazine, at this moment.
    pub(super) fn is_empty(&self, depot: usize) -> bool {
        self.by_node[depot].0.full.is_empty()
    }

    /// Whether no depot has a magazine, each at its moment.
    pub(super) fn are_empty(&self) -> bool {
        (0..self.len()).all(|depot| self.is_empty(depot))
    }

    /// Takes a magazine's objects out of a depot; none, if it has no magazine.
    pub(super) fn take(&self, depot: usize, into: &mut [Option<NonNull<B>>; ROUNDS]) -> Trip {
        let trip = self.unload(depot, into);
        if trip.objects > 0 {
            // Relaxed: a count.
            self.by_node[depot].0.takes.fetch_add(1, Ordering::Relaxed);
        }
        trip
    }

    /// As [`take`](Depots::take), which no CPU asked for.
    pub(super) fn drain(&self, depot: usize, into: &mut [Option<NonNull<B>>; ROUNDS]) -> usize {
        self.unload(depot, into).objects
    }

    fn unload(&self, depot: usize, into: &mut [Option<NonNull<B>>; ROUNDS]) -> Trip {
        let Depot { full, empty, objects: count, .. } = &self.by_node[depot].0;
        let (number, contended) = full.pop(&self.table);
        let Some(number) = number else { return Trip { objects: 0, contended } };
        let magazine = self.table.get(number);
        // Relaxed: `pop` acquired it.
        let objects = magazine.len.load(Ordering::Relaxed) as usize;
        let rounds = magazine.rounds().unwrap_or_default();
        for (round, place) in rounds.iter().zip(&mut into[..objects]) {
            // Relaxed: `pop` acquired it.
            *place = NonNull::new(round.load(Ordering::Relaxed));
        }
        let contended = contended | empty.push(&self.table, number);
        // Relaxed: a count.
        count.fetch_add((objects as u64).wrapping_neg(), Ordering::Relaxed);
        Trip { objects, contended }
    }

    /// Frees the rounds of all magazines without objects.
    pub(super) fn trim(&self) {
        for depot in &self.by_node {
            // Each at most once, also while other threads put more there.
            for _ in 0..self.table.made() {
                let (Some(number), _) = depot.0.empty.pop(&self.table) else { break };
                let freed = self.table.get(number).free();
                // Relaxed: a count.
                self.filled.fetch_add(u64::from(freed).wrapping_neg(), Ordering::Relaxed);
                self.table.put_back(number);
            }
        }
    }

    /// The bytes of all magazines: of their rounds, and of those that were ever made.
    pub(super) fn bytes(&self) -> usize {
        // Relaxed: a count.
        let filled = self.filled.load(Ordering::Relaxed) as usize;
        self.table.bytes() + filled * size_of::<[W::Ptr<B>; ROUNDS]>()
    }

    /// How many objects there are in all depots, about.
    pub(super) fn objects(&self) -> usize {
        // Relaxed: a count. One that is behind can be below zero.
        let objects = |depot: &Line<Depot<W>>| depot.0.objects.load(Ordering::Relaxed);
        self.by_node.iter().map(objects).fold(0, u64::wrapping_add).cast_signed().max(0) as usize
    }

    /// How many magazines came, and went.
    pub(super) fn trips(&self) -> (u64, u64) {
        // Relaxed, both: counts.
        let load = |word: &W::U64| word.load(Ordering::Relaxed);
        let sum = |of: fn(&Depot<W>) -> &W::U64| {
            self.by_node.iter().map(|depot| load(of(&depot.0))).sum()
        };
        (sum(|depot| &depot.puts), sum(|depot| &depot.takes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_topology::CpuId;
    use coreline_world::model::{Checker, Model, Plant};
    use coreline_world::{JoinHandle, Placement, Threads};

    use super::*;

    fn each_object_is_in_one_hand<W: World + Threads>() {
        objects_are_in_one_hand::<W>(false);
    }

    fn each_object_is_in_one_hand_while_depots_are_trimmed<W: World + Threads>() {
        objects_are_in_one_hand::<W>(true);
    }

    /// Two threads take from a depot and put there; every object is in one hand, with what was
    /// written to it before it was put. If it says so, one frees magazines meanwhile.
    fn objects_are_in_one_hand<W: World + Threads>(trims: bool) {
        let depots = Arc::new(Depots::<W::U32, W>::new_in(1));
        let objects: [_; 2] =
            core::array::from_fn(|_| NonNull::from_mut(Box::leak(Box::new(W::U32::new_in(0)))));
        objects.iter().for_each(|object| _ = depots.put(0, &[*object]));
        let turn = |depots: &Depots<W::U32, W>| {
            let mut into = [None; ROUNDS];
            let taken = depots.take(0, &mut into).objects;
            for object in into[..taken].iter().flatten() {
                // SAFETY: leaked above, and given back only when all threads have ended.
                let object = unsafe { object.as_ref() };
                // Relaxed, both: the depot orders what two threads do with one object.
                let before = object.load(Ordering::Relaxed);
                object.store(before + 1, Ordering::Relaxed);
                assert_eq!(object.load(Ordering::Relaxed), before + 1, "in two hands");
                assert_eq!(depots.put(0, &[NonNull::from_ref(object)]).objects, 1);
            }
            taken as u32
        };
        let theirs = Arc::clone(&depots);
        let theirs = move || {
            let first = turn(&theirs);
            if trims {
                theirs.trim();
                return first;
            }
            first + turn(&theirs)
        };
        let other = W::spawn(Placement::On(CpuId::new(1)), theirs);
        let turns = turn(&depots) + other.expect("two threads").join();
        let mut sum = 0;
        let mut into = [None; ROUNDS];
        while depots.take(0, &mut into).objects == 1 {
            // SAFETY: leaked above, and taken for good.
            let object = unsafe { Box::from_raw(into[0].take().expect("one object").as_ptr()) };
            sum += object.load(Ordering::Relaxed);
        }
        assert_eq!((sum, depots.objects()), (turns, 0), "each turn is in its object");
        depots.trim();
        assert_eq!(depots.bytes(), depots.table.bytes(), "no rounds are left");
    }

    #[test]
    fn each_object_is_in_one_hand_in_every_interleaving() {
        Checker::new().preemption_bound(2).check(each_object_is_in_one_hand::<Model>);
    }

    #[test]
    fn magazines_that_are_trimmed_are_in_no_hand_in_every_interleaving() {
        let law = each_object_is_in_one_hand_while_depots_are_trimmed::<Model>;
        Checker::new().preemption_bound(2).check(law);
    }

    #[test]
    fn a_depot_that_publishes_nothing_is_found() {
        let checker = Checker::new().preemption_bound(2).plant(Plant::RELAXED_RMWS);
        assert!(checker.try_check(each_object_is_in_one_hand::<Model>).is_err());
    }
}
