//! Where the numbers of leases wait, and how one is found.
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `taken` | by number: leased, or at home | who takes, under the domain's lock; who returns |
//! | `homes` | by ID of a CPU: its [`Home`] | see there |
//!
//! A number that is taken on a CPU gets a place in the home of that CPU's ID, if there is room:
//! there it waits while nobody has it. Who leases on the CPU takes it from its place by one
//! exchange, and returns it by a store. So a lease goes from one task of a CPU to the next, with
//! its memory in that CPU's caches. One that is returned on another CPU waits where it was leased.
//!
//! Numbers without a place (those that have one are out, the CPU had no ID) wait on the shelf of
//! the home where they are returned, which costs a second exchange. Where that is full, or the
//! memory is another node's, they are free for all in `taken`. Where none is, one that waits in
//! another home moves.
//!
//! Which home a task looks into is a guess, as it may be moved at any time, and a wrong one does no
//! harm: what is exchanged is somebody's.
//!
//! # When all are out
//!
//! Who finds none anywhere must be sure that there is none, and meanwhile others come and go:
//!
//! ```text
//! Thread 1: looks at place A: out
//! Thread 2: returns A, takes B
//! Thread 1: looks at place B: out; so all are out?   <- one of the two always waited
//! ```
//!
//! So who looks, under the lock, leaves a mark in each place and on each shelf where no number
//! waits, looks at `taken`, and then for its marks. A mark that is still there was there all the
//! time, as a return overwrites it; and numbers in `taken` are taken under the lock only. So if
//! nothing was found, and all marks are there, nothing was free when `taken` was looked at. Who
//! takes from a place tells of the returns before that, too: above, thread 1 finds B out and knows
//! of A's return.

use core::mem::ManuallyDrop;

use coreline_topology::CpuId;
use coreline_world::{Integer, Ordering, Slot, Word, World};

use super::core::{Core, Guard};
use super::domains::Extent;
use super::lease::LeaseError;
use super::local::DomainLocal;
use crate::cid::{Bitmap, Place, References};

/// How many numbers have a place in a home.
const PLACES: usize = 4;
/// How many others can wait there.
const SHELF: usize = 4;

/// Where the numbers wait that were leased under an ID of a CPU.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | a place: 0 | its number is out, or it has none | who takes the number, or finds it out |
/// | n + 1 | number n waits, with what was done under it | who had it |
/// | [`SEEN`] | out, and was since somebody looked | who looks, under the domain's lock |
/// | `given` | by place: a number has it | who has a number that has none, or moves one |
/// | `shelf` | each as a place, for any number | as places; who had a number looks for room |
pub(super) struct Home<W: World> {
    pub(super) places: [W::U32; PLACES],
    shelf: [W::U32; SHELF],
    given: W::U32,
}

// SAFETY: words.
unsafe impl<W: World> Slot for Home<W> {}

/// See [`Home`].
const OUT: u32 = 0;
/// See [`Home`].
const SEEN: u32 = u32::MAX;

/// What a place says while its number waits there.
pub(super) fn waits(number: u32) -> u32 {
    number + 1
}

/// The number that waits, if a place says so.
fn number(place: u32) -> Option<u32> {
    let number = place.wrapping_sub(1);
    // One comparison: 0 is the highest of all here, and `SEEN` the one below.
    (number < SEEN - 1).then_some(number)
}

/// A number that is the caller's, and its place if it has one.
pub(super) type Taken<'a, W> = (u32, Option<&'a <W as coreline_world::Words>::U32>);

impl<W: World> Home<W> {
    pub(super) fn new_in() -> Self {
        Home {
            places: [(); PLACES].map(|()| W::U32::new_in(OUT)),
            shelf: [(); SHELF].map(|()| W::U32::new_in(OUT)),
            given: W::U32::new_in(0),
        }
    }

    /// The number that waits at this place, if it does.
    #[inline]
    pub(super) fn take_at(place: &W::U32) -> Option<u32> {
        // Acquire: pairs with the Release of the return: who has the number now sees what was done
        // under it. Release: pairs with the Acquire in `take_or_mark`. That an exchange may take a
        // mark away, or find the number out, harms nobody.
        number(place.swap(OUT, Ordering::AcqRel))
    }

    /// The places that have a number, with their positions; and the shelf.
    fn all(&self) -> impl Iterator<Item = (Option<usize>, &W::U32)> {
        // Relaxed: a place that is missed, or has none any more, has nothing to take.
        let given = self.given.load(Ordering::Relaxed);
        let places = self.places.iter().enumerate();
        let places = places.filter(move |(position, _)| given >> position & 1 != 0);
        let places = places.map(|(position, place)| (Some(position), place));
        places.chain(self.shelf.iter().map(|place| (None, place)))
    }

    /// One that waits here. If it had no place it gets one, if there is room.
    #[cold]
    #[inline(never)]
    pub(super) fn take(&self) -> Option<Taken<'_, W>> {
        self.all().find_map(|(position, place)| {
            // Relaxed: a glance, so that nothing is written for numbers that are out.
            number(place.load(Ordering::Relaxed))?;
            let number = Home::<W>::take_at(place)?;
            Some((number, position.map_or_else(|| self.give_place(), |_| Some(place))))
        })
    }

    /// Puts a number that has no place on the shelf; says whether there was room.
    fn shelve(&self, shelved: u32) -> bool {
        self.shelf.iter().any(|place| {
            // Relaxed: a glance; and nothing was done if somebody else was faster. Release: pairs
            // with the Acquire in `take_at`.
            let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
            let found = place.load(relaxed);
            number(found).is_none()
                && place.compare_exchange(found, waits(shelved), release, relaxed).is_ok()
        })
    }

    /// A place for a number that the caller has, if there is room.
    fn give_place(&self) -> Option<&W::U32> {
        let mut places = self.places.iter().enumerate();
        let place = places.find(|(position, _)| {
            let bit = 1 << position;
            // Relaxed: a hint, which spares the exchange below where the place is given.
            let given = self.given.load(Ordering::Relaxed) & bit != 0;
            // Acquire pairs with the release in `take_place`: the place is as it was left.
            !given && self.given.fetch_or(bit, Ordering::Acquire) & bit == 0
        });
        place.map(|(_, place)| place)
    }

    /// Takes back the place of a number that the caller has. It is out there.
    fn take_place(&self, position: usize) {
        // Release: pairs with the Acquire in `give_place`: who gets the place next stores to it
        // after this number was taken from there, and so not before it was returned.
        self.given.fetch_and(!(1 << position), Ordering::Release);
    }

    /// The number that waits at this place; else the place is marked.
    fn take_or_mark(place: &W::U32, _guard: &Guard<'_, W>) -> Option<u32> {
        // Acquire: pairs with the Release in `take_at`: what that thread returned before is seen to
        // be returned. Relaxed: nothing was marked.
        let mark = || place.compare_exchange(OUT, SEEN, Ordering::Acquire, Ordering::Relaxed);
        // Ends: each further turn is another thread's step, which returned the number, took it, or
        // found it out.
        loop {
            // Relaxed: a glance, or a mark of before, which tells of itself.
            match place.load(Ordering::Relaxed) {
                SEEN => break None,
                OUT if mark().is_ok() => break None,
                OUT => {}
                _ => {
                    let taken = Home::<W>::take_at(place);
                    if taken.is_some() {
                        break taken;
                    }
                }
            }
        }
    }
}

/// What a domain has from its first lease on.
pub(super) struct Leasing<P: References, W: World> {
    pub(super) taken: Bitmap<W>,
    pub(super) homes: DomainLocal<Home<W>, P, W>,
}

impl<P: References, W: World> Leasing<P, W> {
    /// All bytes of it but those of the homes, which are a local.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.taken.bytes()
    }

    /// How many leases are out. Stale when it is given.
    pub(super) fn leased(&self, most: usize) -> usize {
        // Relaxed: a count.
        let waits = |place: &W::U32| number(place.load(Ordering::Relaxed)).is_some();
        let waiting = self.homes.iter().flat_map(Home::all).filter(|(_, place)| waits(place));
        (self.taken.count(0..most as u32) as usize).saturating_sub(waiting.count())
    }

    /// The home of an ID.
    ///
    /// # Safety
    ///
    /// Its slots were made, which the caller knows by acquiring what was done before that was said.
    #[inline]
    pub(super) unsafe fn home(&self, cid: u32) -> &Home<W> {
        // SAFETY: the caller's promise; slots stay as long as their local.
        unsafe { self.homes.first().byte_add(cid as usize * W::STRIDE).as_ref() }
    }

    /// The home that a CPU has, if it has an ID.
    #[inline]
    pub(super) fn home_at(&self, core: &Core<P, W>, cpu: CpuId) -> Option<&Home<W>> {
        let cid = core.engine.base().shown_at(cpu.index())?;
        // SAFETY: an acquired row: slots first, then the row.
        Some(unsafe { self.home(cid) })
    }

    /// One that is free, or waits anywhere; its slots are made. `None` if all are out.
    pub(super) fn take(
        &self,
        core: &Core<P, W>,
        at: Option<Place>,
    ) -> Result<Option<Taken<'_, W>>, LeaseError> {
        let guard = core.lock().ok_or(LeaseError::Nested)?;
        // Who had to wait for the lock may have no ID yet; without one there is no home, and who
        // has no home comes here each time.
        let here = at.and_then(|place| {
            // SAFETY: an ID that operations may use has its slots.
            Some((place, unsafe { self.home(core.use_locked_at(place, &guard)?) }))
        });
        let free = || self.take_free(core, at, here, &guard);
        // Relaxed: what a mark says it says alone.
        let is_marked = |(_, place): (_, &W::U32)| place.load(Ordering::Relaxed) == SEEN;
        let mut taken = free();
        while taken.is_none() {
            taken = self.take_waiting(core, here, &guard).or_else(free);
            if taken.is_none() && self.homes.iter().flat_map(Home::all).all(is_marked) {
                break;
            }
        }
        Ok(taken)
    }

    /// One that waits in any home. It moves to this CPU's, if it is near: to the shelf if no place
    /// is free. All places are marked if there is none.
    fn take_waiting<'a>(
        &'a self,
        core: &Core<P, W>,
        here: Option<(Place, &'a Home<W>)>,
        guard: &Guard<'_, W>,
    ) -> Option<Taken<'a, W>> {
        self.homes.iter().find_map(|home| {
            let take = |(position, place)| {
                Home::<W>::take_or_mark(place, guard).map(|number| (position, place, number))
            };
            let (position, place, number) = home.all().find_map(take)?;
            let Some(new) = Self::home_for(core, core.common.extent_of_lease(number), here) else {
                return Some((number, position.map(|_| place)));
            };
            if let Some(position) = position {
                home.take_place(position);
            }
            Some((number, new.give_place()))
        })
    }

    /// Takes back a number without a place.
    #[cold]
    #[inline(never)]
    pub(super) fn put_back(&self, core: &Core<P, W>, number: u32) {
        let cpu = W::cpu_hint();
        let is_near = |place| core.common.is_near(place, core.common.extent_of_lease(number));
        let shelved = core.place(cpu.index()).is_some_and(is_near)
            && self.home_at(core, cpu).is_some_and(|home| home.shelve(number));
        if !shelved {
            self.taken.remove(number);
        }
    }

    /// This CPU's home, if a number of this extent is near.
    fn home_for<'a>(
        core: &Core<P, W>,
        extent: Option<&Extent>,
        here: Option<(Place, &'a Home<W>)>,
    ) -> Option<&'a Home<W>> {
        let (place, home) = here?;
        core.common.is_near(place, extent).then_some(home)
    }

    /// The lowest that is free, on the CPU's node if there is one; its slots are made.
    fn take_free<'a>(
        &self,
        core: &Core<P, W>,
        at: Option<Place>,
        here: Option<(Place, &'a Home<W>)>,
        guard: &Guard<'_, W>,
    ) -> Option<Taken<'a, W>> {
        let common = &core.common;
        let width = common.width();
        for (extent, part) in common.parts_from(at) {
            let numbers = part.range.start - width..part.range.end - width;
            // Only holders of the lock insert, so it cannot be lost to somebody else.
            if let Some(number) = self.taken.insert_lowest(numbers) {
                let free = Free(&self.taken, number);
                core.make(extent, width + number, guard);
                let number = ManuallyDrop::new(free).1;
                let home = Self::home_for(core, Some(part), here);
                return Some((number, home.and_then(Home::give_place)));
            }
        }
        None
    }
}

/// Frees the number if nothing comes of it.
struct Free<'a, W: World>(&'a Bitmap<W>, u32);

impl<W: World> Drop for Free<'_, W> {
    fn drop(&mut self) {
        self.0.remove(self.1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_sim::{Machine, Sim};
    use coreline_world::{JoinHandle, Placement, Threads, Words};

    use super::super::{DomainOptions, Domains, DomainsOptions};
    use super::*;
    use crate::cid::Recent;

    /// One number more than there is room for in a home, on two CPUs.
    fn each_number_has_one_place() {
        const LEASES: usize = PLACES + 1;
        let domains = Domains::<Recent, Sim>::new_in(DomainsOptions::new().leases(LEASES)).unwrap();
        let domain = Arc::new(domains.domain(DomainOptions::new()));
        // What stays where there is no room, and then what moves to and fro.
        let first = [(0, PLACES), (1, 1), (0, LEASES), (1, 1)];
        let moves = [(1, PLACES), (0, PLACES)].repeat(PLACES);
        for (cpu, count) in [&first[..], &moves].concat() {
            let theirs = Arc::clone(&domain);
            let live = move || {
                let leases: Vec<_> = (0..count).map(|_| theirs.lease().unwrap()).collect();
                assert_eq!(leases.len(), count);
            };
            Sim::spawn(Placement::On(CpuId::new(cpu)), live).unwrap().join();
            let leasing = domain.shared().leasing().unwrap();
            let mut given = leasing.homes.iter().flat_map(Home::all);
            let waits = |place: &<Sim as Words>::U32| number(place.load(Ordering::Relaxed));
            let waiting = given.all(|(at, place)| at.is_none() || waits(place).is_some());
            assert!(waiting, "a place without a number");
            assert_eq!(leasing.leased(LEASES), 0);
        }
    }

    #[test]
    fn a_number_that_moves_leaves_no_place_behind() {
        let machine = Machine::preset("host-2c").unwrap().step_limit(1_000_000);
        machine.run(each_number_has_one_place).unwrap();
    }
}
