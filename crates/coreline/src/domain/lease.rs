//! [`Lease`]: an ID that is somebody's until it is dropped.
//!
//! # Indexes of their own
//!
//! Leased IDs lie behind those that rows show. No section ever works under one, so a lease is
//! exclusive across preemption and moves, also where there are no sections. They are bounded by the
//! leases that there are at once, and by no number of CPUs.
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
//! Numbers without a place (the home was full, the CPU had no ID, the memory is another node's) are
//! free for all in `taken`. Where none is, one that waits in another home moves.
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
//! So who looks, under the lock, leaves a mark in each place whose number is out, looks at `taken`,
//! and then for its marks. A mark that is still there was there all the time, as a return
//! overwrites it; and numbers in `taken` are taken under the lock only. So if nothing was found,
//! and all marks are there, nothing was free when `taken` was looked at. Who takes from a place
//! tells of the returns before that, too: above, thread 1 finds B out and knows of A's return.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr;

use coreline_topology::{Cid, CpuId};
use coreline_world::restartable::Init;
use coreline_world::{Native, Ordering, Slot, Word, World};

use super::core::{Core, Guard};
use super::domains::Extent;
use super::local::{DomainLocal, Exclusive, LocalError};
use super::{Domain, Shared};
use crate::cid::{Bitmap, Engine, Place, Recent, References};

/// How many numbers have a place in a home.
const PLACES: usize = 4;

/// There is no lease. Nothing was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// All are leased.
    #[error(
        "{leased} of {most} leases of this domain are out: drop some, and forget none; or ask for \
         more with `DomainsOptions::leases`"
    )]
    Exhausted {
        /// How many are out.
        leased: usize,
        /// How many there are.
        most: usize,
    },
    /// There is no memory for what the domain's first lease takes.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// It was asked for where a slot of the same domain is being made.
    #[error("a slot of this domain is being made, by the calling thread; lease before or after")]
    Nested,
}

/// A local is another domain's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this local is another domain's: take the lease from the domain that made the local")]
pub struct ForeignLocal;

/// Where the numbers wait that were leased under an ID of a CPU.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | a place: 0 | its number is out, or it has none | who takes the number, or finds it out |
/// | n + 1 | number n waits, with what was done under it | who had it |
/// | [`SEEN`] | out, and was since somebody looked | who looks, under the domain's lock |
/// | `given` | by place: a number has it | the holder of the domain's lock |
struct Home<W: World> {
    places: [W::U32; PLACES],
    given: W::U32,
}

// SAFETY: words.
unsafe impl<W: World> Slot for Home<W> {}

/// See [`Home`].
const OUT: u32 = 0;
/// See [`Home`].
const SEEN: u32 = u32::MAX;

/// What a place says while its number waits there.
fn waits(number: u32) -> u32 {
    number + 1
}

/// The number that waits, if a place says so.
fn number(place: u32) -> Option<u32> {
    let number = place.wrapping_sub(1);
    // One comparison: 0 is the highest of all here, and `SEEN` the one below.
    (number < SEEN - 1).then_some(number)
}

/// A number that is the caller's, and its place if it has one.
type Taken<'a, W> = (u32, Option<&'a <W as coreline_world::Words>::U32>);

impl<W: World> Home<W> {
    fn new_in() -> Self {
        Home { places: [(); PLACES].map(|()| W::U32::new_in(OUT)), given: W::U32::new_in(0) }
    }

    /// The number that waits at this place, if it does.
    #[inline]
    fn take_at(place: &W::U32) -> Option<u32> {
        // Acquire: pairs with the Release of the return: who has the number now sees what was done
        // under it. Release: pairs with the Acquire in `take_or_mark`. That an exchange may take a
        // mark away, or find the number out, harms nobody.
        number(place.swap(OUT, Ordering::AcqRel))
    }

    /// The places that have a number, with their positions.
    fn given(&self) -> impl Iterator<Item = (usize, &W::U32)> {
        // Relaxed: a place that is missed, or has none any more, has nothing to take.
        let given = self.given.load(Ordering::Relaxed);
        self.places.iter().enumerate().filter(move |(position, _)| given >> position & 1 != 0)
    }

    /// One that waits here.
    fn take(&self) -> Option<Taken<'_, W>> {
        self.given().find_map(|(_, place)| {
            // Relaxed: a glance, so that nothing is written for numbers that are out.
            number(place.load(Ordering::Relaxed))?;
            Some((Home::<W>::take_at(place)?, Some(place)))
        })
    }

    /// A place for one more number, which is out, if there is room.
    fn give_place(&self, _guard: &Guard<'_, W>) -> Option<&W::U32> {
        // Relaxed: only holders of the lock write it; so below.
        let given = self.given.load(Ordering::Relaxed);
        let position = given.trailing_ones();
        let place = self.places.get(position as usize)?;
        // Relaxed: as above.
        self.given.store(given | 1 << position, Ordering::Relaxed);
        Some(place)
    }

    /// Takes back the place of a number that the caller has.
    fn take_place(&self, position: usize, _guard: &Guard<'_, W>) {
        // Relaxed: as in `give_place`.
        let given = self.given.load(Ordering::Relaxed);
        // Relaxed: as above.
        self.given.store(given & !(1 << position), Ordering::Relaxed);
    }

    /// The number that waits at this place; else the place is marked.
    fn take_or_mark(place: &W::U32, _guard: &Guard<'_, W>) -> Option<u32> {
        // Acquire: pairs with the Release in `take_at`: what that thread returned before is seen to
        // be returned. Relaxed else: a mark tells of itself. Ends: each further turn is another
        // thread's step, which returned the number, took it, or found it out.
        let relaxed = Ordering::Relaxed;
        loop {
            match place.load(relaxed) {
                SEEN => break None,
                OUT => {
                    if place.compare_exchange(OUT, SEEN, Ordering::Acquire, relaxed).is_ok() {
                        break None;
                    }
                }
                _ => match Home::<W>::take_at(place) {
                    None => {}
                    number => break number,
                },
            }
        }
    }
}

/// What a domain has from its first lease on.
pub(super) struct Leasing<P: References, W: World> {
    taken: Bitmap<W>,
    homes: DomainLocal<Home<W>, P, W>,
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
        let waiting = self.homes.iter().flat_map(Home::given).filter(|(_, place)| waits(place));
        (self.taken.count(0..most as u32) as usize).saturating_sub(waiting.count())
    }

    /// The home of an ID.
    ///
    /// # Safety
    ///
    /// Its slots were made, which the caller knows by acquiring what was done before that was said.
    #[inline]
    unsafe fn home(&self, cid: u32) -> &Home<W> {
        // SAFETY: the caller's promise; slots stay as long as their local.
        unsafe { self.homes.first().byte_add(cid as usize * W::STRIDE).as_ref() }
    }

    /// The home that a CPU has, if it has an ID.
    #[inline]
    fn home_at(&self, core: &Core<P, W>, cpu: CpuId) -> Option<&Home<W>> {
        let cid = core.engine.base().shown_at(cpu.index())?;
        // SAFETY: an acquired row: slots first, then the row.
        Some(unsafe { self.home(cid) })
    }

    /// One that is free, or waits anywhere; its slots are made. `None` if all are out.
    fn take(
        &self,
        core: &Core<P, W>,
        at: Option<Place>,
    ) -> Result<Option<Taken<'_, W>>, LeaseError> {
        let guard = core.lock().ok_or(LeaseError::Nested)?;
        // Who had to wait for the lock may have no ID yet. Without one there is no home, and who
        // has no home comes here each time.
        let here = at.and_then(|place| {
            // SAFETY: an ID that operations may use has its slots.
            Some((place, unsafe { self.home(core.use_locked_at(place, &guard)?) }))
        });
        let free = || self.take_free(core, here, &guard);
        // Relaxed: what a mark says it says alone.
        let is_marked = |(_, place): (_, &W::U32)| place.load(Ordering::Relaxed) == SEEN;
        let mut taken = free();
        while taken.is_none() {
            taken = self.take_waiting(core, here, &guard).or_else(free);
            if taken.is_none() && self.homes.iter().flat_map(Home::given).all(is_marked) {
                break;
            }
        }
        Ok(taken)
    }

    /// One that waits in any home. It moves to this CPU's, if there is room and it is near. All
    /// places are marked if there is none.
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
            let (position, place, number) = home.given().find_map(take)?;
            let common = &core.common;
            let new = common
                .extent_of((common.width() + number) as usize)
                .and_then(|extent| self.place_for(core, &common.extents[extent], here, guard));
            if new.is_some() {
                home.take_place(position, guard);
            }
            Some((number, Some(new.unwrap_or(place))))
        })
    }

    /// A place in this CPU's home for a number of this extent, if it is near and there is room.
    fn place_for<'a>(
        &self,
        core: &Core<P, W>,
        extent: &Extent,
        here: Option<(Place, &'a Home<W>)>,
        guard: &Guard<'_, W>,
    ) -> Option<&'a W::U32> {
        let (place, home) = here?;
        core.common.is_near(place, extent).then(|| home.give_place(guard)).flatten()
    }

    /// The lowest that is free, on the CPU's node if there is one; its slots are made.
    fn take_free<'a>(
        &self,
        core: &Core<P, W>,
        here: Option<(Place, &'a Home<W>)>,
        guard: &Guard<'_, W>,
    ) -> Option<Taken<'a, W>> {
        let common = &core.common;
        let width = common.width();
        let place =
            here.map_or_else(|| core.place(W::cpu_hint().index()), |(place, _)| Some(place));
        for (extent, part) in common.parts_from(place) {
            let numbers = part.range.start - width..part.range.end - width;
            // Only holders of the lock insert, so it cannot be lost to somebody else.
            if let Some(number) = self.taken.insert_lowest(numbers) {
                let free = Free(&self.taken, number);
                core.make(extent, width + number, guard);
                let number = ManuallyDrop::new(free).1;
                return Some((number, self.place_for(core, part, here, guard)));
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

impl<P: References, W: World> Shared<P, W> {
    pub(super) fn leasing(&self) -> Option<&Leasing<P, W>> {
        // Acquire: pairs with the Release in `make_leasing`.
        // SAFETY: null, or from `Box::into_raw` there, and freed with this.
        unsafe { self.leasing.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn make_leasing(&self) -> Result<&Leasing<P, W>, LeaseError> {
        let init = Init::Function(Home::new_in);
        let homes = DomainLocal::new_in(&self.core, init, 0).map_err(|error| match error {
            LocalError::Nested => LeaseError::Nested,
            other => other.into(),
        })?;
        let taken = Bitmap::new_in(self.core.common.leases());
        let made = Box::into_raw(Box::new(Leasing { taken, homes }));
        // Release: pairs with the Acquire in `leasing`; so does that on failure.
        let (release, acquire) = (Ordering::Release, Ordering::Acquire);
        let raced = self.leasing.compare_exchange(ptr::null_mut(), made, release, acquire);
        let there = match raced {
            Ok(_) => made,
            Err(theirs) => {
                // SAFETY: from `Box::into_raw` above, and nobody else knows it.
                drop(unsafe { Box::from_raw(made) });
                theirs
            }
        };
        // SAFETY: as in `leasing`.
        Ok(unsafe { &*there })
    }

    /// Another lease, since none waits at the first place of this CPU's home.
    #[cold]
    #[inline(never)]
    fn lease_elsewhere(&self) -> Result<Taken<'_, W>, LeaseError> {
        let leasing = self.leasing().map_or_else(|| self.make_leasing(), Ok)?;
        let core = &*self.core;
        let at = core.place(W::cpu_hint().index());
        // SAFETY: an ID that operations may use has its slots.
        let home = at.and_then(|place| Some(unsafe { leasing.home(core.use_at(place)?) }));
        if let Some(taken) = home.and_then(Home::take) {
            return Ok(taken);
        }
        let most = core.common.leases();
        let exhausted = || LeaseError::Exhausted { leased: leasing.leased(most), most };
        leasing.take(core, at)?.ok_or_else(exhausted)
    }
}

/// An ID of a domain that is somebody's until it is dropped, from
/// [`Domain::lease`](super::Domain::lease). It may be sent to another thread, held while others run
/// on this CPU, and across an `await`.
///
/// ```
/// use coreline::domain::{Domain, Exclusive};
///
/// let tenant = Domain::new()?;
/// let buffers = tenant.local(|| Exclusive::new(Vec::new()))?;
/// let mut lease = tenant.lease()?;
/// lease.get_mut(&buffers)?.push(1);
/// drop(lease);
/// # let mut buffers = buffers;
/// let all: usize = buffers.iter_mut().map(|buffer| buffer.get_mut().len()).sum();
/// assert_eq!(all, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What was written under a lease is seen under the next one of the same ID.
///
/// A lease that is forgotten, or whose thread ends without dropping it, takes its ID along until
/// the domain ends; [`Usage::leased`](super::Usage::leased) counts it. **Signals**: not in
/// handlers. **Fork**: in the child, leases of the parent's other threads are as forgotten; its own
/// is its own.
pub struct Lease<'a, P: References = Recent, W: World = Native> {
    domain: &'a Domain<P, W>,
    /// The number's place.
    place: Option<&'a W::U32>,
    number: u32,
}

impl<'a, P: References, W: World> Lease<'a, P, W> {
    #[inline]
    pub(super) fn new(domain: &'a Domain<P, W>) -> Result<Self, LeaseError> {
        let cpu = W::cpu_hint();
        let shared = domain.shared();
        if let Some(leasing) = shared.leasing()
            && let Some(home) = leasing.home_at(&shared.core, cpu)
            && let Some(number) = Home::<W>::take_at(&home.places[0])
        {
            return Ok(Lease { domain, place: Some(&home.places[0]), number });
        }
        let (number, place) = shared.lease_elsewhere()?;
        Ok(Lease { domain, place, number })
    }

    /// The domain.
    pub fn domain(&self) -> &'a Domain<P, W> {
        self.domain
    }

    /// The ID: no lease of the domain has the same at the same time. Above all that CPUs have.
    pub fn cid(&self) -> Cid {
        Cid::new(self.domain.core().common.width() + self.number)
    }

    /// The value of this ID, shared with who reads all of them.
    ///
    /// # Errors
    ///
    /// [`ForeignLocal`] if the local is another domain's.
    pub fn get<'l, T: Slot>(
        &'l self,
        local: &'l DomainLocal<T, P, W>,
    ) -> Result<&'l T, ForeignLocal> {
        if !ptr::eq(&raw const **local.core(), &raw const **self.domain.core()) {
            return Err(ForeignLocal);
        }
        Ok(local.get(self.cid().index()).expect("a leased ID has its slots"))
    }

    /// The value of this ID, which nobody else can reach as long as this is held.
    ///
    /// # Errors
    ///
    /// As [`get`](Lease::get).
    pub fn get_mut<'l, T: Send + 'static>(
        &'l mut self,
        local: &'l DomainLocal<Exclusive<T>, P, W>,
    ) -> Result<&'l mut T, ForeignLocal> {
        let value = self.get(local)?.get();
        // SAFETY: no other lease has this ID, this one is borrowed, and so is the local, whose
        // owner could reach the value, too.
        Ok(unsafe { &mut *value })
    }
}

impl<P: References, W: World> Drop for Lease<'_, P, W> {
    #[inline]
    fn drop(&mut self) {
        match self.place {
            // Release: pairs with the Acquire in `Home::take_at`.
            Some(place) => place.store(waits(self.number), Ordering::Release),
            None => {
                if let Some(leasing) = self.domain.shared().leasing() {
                    leasing.taken.remove(self.number);
                }
            }
        }
    }
}

impl<P: References, W: World> fmt::Debug for Lease<'_, P, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("cid", &self.cid()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_sim::{Machine, Sim};
    use coreline_world::{JoinHandle, Placement, Threads};

    use super::super::{DomainOptions, Domains, DomainsOptions};
    use super::*;

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
                assert!(leases.iter().all(|lease| lease.place.is_some()));
            };
            Sim::spawn(Placement::On(CpuId::new(cpu)), live).unwrap().join();
            let leasing = domain.shared().leasing().unwrap();
            let places: Vec<_> = leasing.homes.iter().flat_map(Home::given).collect();
            let taken = leasing.taken.count(0..LEASES as u32) as usize;
            assert_eq!(places.len(), taken, "a place without a number");
            assert_eq!(leasing.leased(LEASES), 0);
        }
    }

    #[test]
    fn a_number_that_moves_leaves_no_place_behind() {
        let machine = Machine::preset("host-2c").unwrap().step_limit(1_000_000);
        machine.run(each_number_has_one_place).unwrap();
    }
}
