//! The places where free lease numbers are kept, and how a thread finds one.
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `taken` | by number: not in a depot | its taker, under the domain's lock; its returner |
//! | `magazines` | by ID of a CPU: its [`Magazine`] | see there |
//!
//! A number that is leased on a CPU gets a round in the magazine of that CPU's ID, if one is left.
//! It waits there while no lease has it. The next lease on that CPU takes it with one exchange, and
//! returns it with a store. So a number goes from one thread of a CPU to the next, with its memory
//! in that CPU's caches. A number that is returned on another CPU goes back to the magazine that it
//! was leased from.
//!
//! A number gets no round if all rounds are reserved, or if the CPU had no ID. Such a number waits
//! in an open round of the magazine where it is returned. That costs a second exchange. If those
//! are full, or its memory belongs to another node, it goes back to its depot. Each node that
//! memory is placed on has a depot; otherwise there is one. CPUs take first from their node's
//! depot. If all are empty, another magazine gives one up.
//!
//! A thread only guesses which magazine to look into, because it may be moved at any time. A wrong
//! guess does no harm: a number that a thread takes out of a round by an exchange belongs to this
//! thread.
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `ROUNDS` | leases take the lock | memory | `a_thread_whose_leases_moved_..` |
//! | `OPEN` | the same | memory | `a_holder_of_many_takes_no_lock_..` |
//! | numbers that are far go to depots | memory is far | | `leases_of_another_node_..` |
//! | near numbers move here | leases take the lock | | `.._for_one_from_elsewhere` |
//!
//! # When all are out
//!
//! A thread that finds no number must be sure that none is free, while other threads take and
//! return numbers.
//!
//! ```text
//! Thread 1: looks at round A: out
//! Thread 2: returns A, takes B
//! Thread 1: looks at round B: out; so all are out?   <- one of the two always waited
//! ```
//!
//! So under the lock it leaves a mark in each round where no number waits, reads the depots, and
//! then checks its marks. A mark that is still there was there all the time, because a return
//! overwrites it. Numbers leave a depot only under the lock. So if the thread found nothing and all
//! marks are still there, nothing was free when it looked at the depots. A thread that takes from a
//! round also publishes its earlier returns: thread 1 finds B out and knows of A's return.

use core::mem::ManuallyDrop;

use coreline_topology::CpuId;
use coreline_world::{Integer, Native, Ordering, Slot, Word, World};

use super::core::{Core, Guard};
use super::domains::Extent;
use super::errors::LeaseError;
use super::leased_id::{LeasedId, Taken};
use super::local::DomainLocal;
use crate::cid::{Bitmap, Place, References};
use crate::queue::{Queue, Queues};

/// How many numbers have a round of their own in a magazine.
const ROUNDS: usize = 4;
/// How many other numbers can wait in this place.
const OPEN: usize = 4;

/// The numbers that were leased under an ID of a CPU wait here.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | a round: 0 | its number is out, or it has none | a taker of the number, or a late taker |
/// | n + 1 | number n waits, with everything that was done under it | the lease that had it |
/// | [`SEEN`] | out, and seen to be out since | a search, under the domain's lock |
/// | `reserved` | bitmap of `rounds` with a number | a lessee taking or moving its round |
/// | `open` | rounds for any number | as rounds; a lessee whose number has no round |
pub(super) struct Magazine<W: World> {
    pub(super) rounds: [W::U32; ROUNDS],
    open: [W::U32; OPEN],
    reserved: W::U32,
}

const _: () = {
    assert!(size_of::<Magazine<Native>>() == 36);
    assert!(align_of::<Magazine<Native>>() == 4);
};

// SAFETY: words, and arrays of words: each value has a live word in the place of each.
unsafe impl<W: World> Slot for Magazine<W> {}

const OUT: u32 = 0;
const SEEN: u32 = u32::MAX;

/// The value of a round while its number waits there.
pub(super) fn waits(number: u32) -> u32 {
    number + 1
}

/// The number that waits, by the value of its round.
fn number(round: u32) -> Option<u32> {
    let number = round.wrapping_sub(1);
    // One comparison: 0 is the highest of all here, and `SEEN` the one below.
    (number < SEEN - 1).then_some(number)
}

impl<W: World> Magazine<W> {
    pub(super) fn new_in() -> Self {
        Magazine {
            rounds: [(); ROUNDS].map(|()| W::U32::new_in(OUT)),
            open: [(); OPEN].map(|()| W::U32::new_in(OUT)),
            reserved: W::U32::new_in(0),
        }
    }

    /// Takes the number that waits in this round, if there is one.
    #[inline]
    pub(super) fn take_round(round: &W::U32) -> Option<u32> {
        // Acquire: pairs with the Release of the return: the new holder sees what was done under
        // the number. Release: pairs with the Acquire in `take_or_mark`. It does no harm if this
        // exchange takes a mark away, or finds the number out.
        number(round.swap(OUT, Ordering::AcqRel))
    }

    /// The reserved rounds with their positions, then the open ones.
    fn all(&self) -> impl Iterator<Item = (Option<usize>, &W::U32)> {
        // Relaxed: a round that is missed, or is no longer reserved, has nothing to take.
        let reserved = self.reserved.load(Ordering::Relaxed);
        let rounds = self.rounds.iter().enumerate();
        let rounds = rounds.filter(move |(position, _)| reserved >> position & 1 != 0);
        let rounds = rounds.map(|(position, round)| (Some(position), round));
        rounds.chain(self.open.iter().map(|round| (None, round)))
    }

    /// A number that waits here. A number without a round gets one, if one is left.
    #[cold]
    #[inline(never)]
    pub(super) fn take(&self) -> Option<Taken<'_, W>> {
        self.all().find_map(|(position, round)| {
            // Relaxed: a glance, so that nothing is written for numbers that are out.
            number(round.load(Ordering::Relaxed))?;
            let number = Magazine::<W>::take_round(round)?;
            Some((number, position.map_or_else(|| self.reserve(), |_| Some(round))))
        })
    }

    /// Puts a number without a round into an open one; returns whether there was room.
    fn put(&self, returned: u32) -> bool {
        self.open.iter().any(|round| {
            // Relaxed: a glance, and an exchange that failed did nothing. Release: pairs with the
            // Acquire in `take_round`: the next holder sees what was done under the number.
            let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
            let found = round.load(relaxed);
            number(found).is_none()
                && round.compare_exchange(found, waits(returned), release, relaxed).is_ok()
        })
    }

    /// Reserves a round for a number that the caller has, if one is left.
    fn reserve(&self) -> Option<&W::U32> {
        let mut rounds = self.rounds.iter().enumerate();
        let round = rounds.find(|(position, _)| {
            let bit = 1 << position;
            // Relaxed: a hint, which spares the exchange below where the round is reserved.
            let reserved = self.reserved.load(Ordering::Relaxed) & bit != 0;
            // Acquire pairs with the release in `give_up`: the round is as it was left.
            !reserved && self.reserved.fetch_or(bit, Ordering::Acquire) & bit == 0
        });
        round.map(|(_, round)| round)
    }

    /// Gives up the round of a number that the caller has, which is therefore not in the round.
    fn give_up(&self, position: usize) {
        // Release: pairs with the Acquire in `reserve`: the round's next number is stored there
        // after this one was taken out, and so not before it was returned.
        self.reserved.fetch_and(!(1 << position), Ordering::Release);
    }

    /// Takes the number that waits in this round. If there is none, marks the round.
    fn take_or_mark(round: &W::U32, _guard: &Guard<'_, W>) -> Option<u32> {
        // Acquire: pairs with the Release in `take_round`: the taker's earlier returns are seen.
        // Relaxed: nothing was marked.
        let mark = || round.compare_exchange(OUT, SEEN, Ordering::Acquire, Ordering::Relaxed);
        // Ends: each further turn is another thread's step, which returned the number, took it, or
        // found it out.
        loop {
            // Relaxed: a glance; and a mark says by itself that the round was marked.
            match round.load(Ordering::Relaxed) {
                SEEN => break None,
                OUT if mark().is_ok() => break None,
                OUT => {}
                _ => {
                    let taken = Magazine::<W>::take_round(round);
                    if taken.is_some() {
                        break taken;
                    }
                }
            }
        }
    }
}

/// The parts that a domain has from its first lease on.
pub(super) struct Leasing<P: References, W: World> {
    taken: Bitmap<W>,
    magazines: DomainLocal<Magazine<W>, P, W>,
    /// The threads that wait for a lease.
    pub(super) queues: Queues<(), LeasedId<W>, W>,
}

impl<P: References, W: World> Leasing<P, W> {
    pub(super) fn new_in(taken: Bitmap<W>, magazines: DomainLocal<Magazine<W>, P, W>) -> Self {
        Leasing { taken, magazines, queues: Queues::new_in() }
    }

    /// The queue, if any thread waits in it.
    #[inline]
    pub(super) fn wanted(&self) -> Option<&Queue<(), LeasedId<W>, W>> {
        self.queues.wanted()
    }

    /// All its bytes except those of the magazines, which are a local.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.taken.bytes() + self.queues.bytes()
    }

    /// How many leases are out. The value may be out of date when it returns.
    pub(super) fn leased(&self, most: usize) -> usize {
        // Relaxed: a count.
        let waits = |round: &W::U32| number(round.load(Ordering::Relaxed)).is_some();
        let rounds = self.magazines.iter().flat_map(Magazine::all);
        let waiting = rounds.filter(|(_, round)| waits(round));
        (self.taken.count(0..most as u32) as usize).saturating_sub(waiting.count())
    }

    /// The magazine of an ID.
    ///
    /// # Safety
    ///
    /// The ID's slots were made, and the caller has acquired the store that published them.
    #[inline]
    pub(super) unsafe fn magazine(&self, cid: u32) -> &Magazine<W> {
        // SAFETY: the slot was made, as the caller promises, and stays as long as the local.
        unsafe { self.magazines.first().byte_add(cid as usize * W::STRIDE).as_ref() }
    }

    /// The magazine of a CPU, if it has an ID.
    #[inline]
    pub(super) fn magazine_at(&self, core: &Core<P, W>, cpu: CpuId) -> Option<&Magazine<W>> {
        let cid = core.engine.base().shown_at(cpu.index())?;
        // SAFETY: a row shows an ID after its slots were made, and this one was acquired.
        Some(unsafe { self.magazine(cid) })
    }

    /// A number from any depot or magazine; its slots are made. `None` if all are out.
    pub(super) fn take(
        &self,
        core: &Core<P, W>,
        at: Option<Place>,
    ) -> Result<Option<Taken<'_, W>>, LeaseError> {
        let guard = core.lock().ok_or(LeaseError::Nested)?;
        // A CPU whose thread had to wait for the lock may have no ID yet. Without one it has no
        // magazine, and each of its leases would come here.
        let here = at.and_then(|place| {
            // SAFETY: an ID that operations may use has its slots.
            Some((place, unsafe { self.magazine(core.use_locked_at(place, &guard)?) }))
        });
        let from_depots = || self.take_from_depots(core, at, here, &guard);
        // Relaxed: a mark that is still there is all that has to be known.
        let is_marked = |(_, round): (_, &W::U32)| round.load(Ordering::Relaxed) == SEEN;
        let mut taken = from_depots();
        while taken.is_none() {
            taken = self.take_from_magazines(core, here, &guard).or_else(from_depots);
            if taken.is_none() && self.magazines.iter().flat_map(Magazine::all).all(is_marked) {
                break;
            }
        }
        Ok(taken)
    }

    /// A number that waits in any magazine. If it is near, it leaves its round for one of this
    /// CPU's magazine, if one is left. If none waits, all rounds are marked.
    fn take_from_magazines<'a>(
        &'a self,
        core: &Core<P, W>,
        here: Option<(Place, &'a Magazine<W>)>,
        guard: &Guard<'_, W>,
    ) -> Option<Taken<'a, W>> {
        self.magazines.iter().find_map(|magazine| {
            let take = |(position, round)| {
                Magazine::<W>::take_or_mark(round, guard).map(|number| (position, round, number))
            };
            let (position, round, number) = magazine.all().find_map(take)?;
            let extent = core.common.extent_of_lease(number);
            let Some(new) = Self::magazine_for(core, extent, here) else {
                return Some((number, position.map(|_| round)));
            };
            if let Some(position) = position {
                magazine.give_up(position);
            }
            Some((number, new.reserve()))
        })
    }

    /// Takes back a number without a round.
    pub(super) fn put_back(&self, core: &Core<P, W>, number: u32) {
        let cpu = W::cpu_hint();
        let is_near = |place| core.common.is_near(place, core.common.extent_of_lease(number));
        let waits = core.place(cpu.index()).is_some_and(is_near)
            && self.magazine_at(core, cpu).is_some_and(|magazine| magazine.put(number));
        if !waits {
            self.taken.remove(number);
        }
    }

    /// This CPU's magazine, if a number of this extent is near.
    fn magazine_for<'a>(
        core: &Core<P, W>,
        extent: Option<&Extent>,
        here: Option<(Place, &'a Magazine<W>)>,
    ) -> Option<&'a Magazine<W>> {
        let (place, magazine) = here?;
        core.common.is_near(place, extent).then_some(magazine)
    }

    /// The lowest number of the CPU's node's depot, else of another's; its slots are made.
    fn take_from_depots<'a>(
        &self,
        core: &Core<P, W>,
        at: Option<Place>,
        here: Option<(Place, &'a Magazine<W>)>,
        guard: &Guard<'_, W>,
    ) -> Option<Taken<'a, W>> {
        let common = &core.common;
        let width = common.width();
        for (extent, part) in common.parts_from(at) {
            let numbers = part.range.start - width..part.range.end - width;
            // Only holders of the lock insert, so no other thread can take this number first.
            if let Some(number) = self.taken.insert_lowest(numbers) {
                let free = Free(&self.taken, number);
                core.make(extent, width + number, guard);
                let number = ManuallyDrop::new(free).1;
                let magazine = Self::magazine_for(core, Some(part), here);
                return Some((number, magazine.and_then(Magazine::reserve)));
            }
        }
        None
    }
}

/// Returns the number to its depot if its slots cannot be made.
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

    /// One number more than a magazine has rounds, on two CPUs.
    fn each_number_has_one_round() {
        const LEASES: usize = ROUNDS + 1;
        let domains = Domains::<Recent, Sim>::new_in(DomainsOptions::new().leases(LEASES)).unwrap();
        let domain = Arc::new(domains.domain(DomainOptions::new()));
        // What stays where there is no room, and then what moves to and fro.
        let first = [(0, ROUNDS), (1, 1), (0, LEASES), (1, 1)];
        let moves = [(1, ROUNDS), (0, ROUNDS)].repeat(ROUNDS);
        for (cpu, count) in [&first[..], &moves].concat() {
            let theirs = Arc::clone(&domain);
            let live = move || {
                let leases: Vec<_> = (0..count).map(|_| theirs.lease().unwrap()).collect();
                assert_eq!(leases.len(), count);
            };
            Sim::spawn(Placement::On(CpuId::new(cpu)), live).unwrap().join();
            let leasing = domain.shared().leasing().unwrap();
            let mut rounds = leasing.magazines.iter().flat_map(Magazine::all);
            let waits = |round: &<Sim as Words>::U32| number(round.load(Ordering::Relaxed));
            let waiting = rounds.all(|(at, round)| at.is_none() || waits(round).is_some());
            assert!(waiting, "a reserved round without a number");
            assert_eq!(leasing.leased(LEASES), 0);
        }
    }

    #[test]
    fn a_number_that_moves_leaves_no_round_behind() {
        let machine = Machine::preset("host-2c").unwrap().step_limit(1_000_000);
        machine.run(each_number_has_one_round).unwrap();
    }
}
