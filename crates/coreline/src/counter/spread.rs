//! [`Spread`]: per-CPU slots that are not there until it pays.
//!
//! | state | meaning | next |
//! |---|---|---|
//! | `COMPACT` | additions go to one `T` that all CPUs share, atomically | `SPREAD`, `STUCK` |
//! | `SPREAD` | additions go to the slots; the shared `T` keeps what it has | |
//! | `STUCK` | there was no memory for slots: as `COMPACT`, for good | |
//!
//! A counter leaves `COMPACT` when a second CPU adds, or after [`HOT`] additions. One thread makes
//! the slots, under a lock, and no thread waits for it: it may be the one that a signal handler
//! interrupted. A child that was forked meanwhile makes slots of its own.
//!
//! The fast path knows nothing of this. It works on whatever [`Slots`] the word `current` points
//! to. At first those are an array without an index, whose shared slot is the one `T`: no section
//! ever finds a slot there, and its slow path looks at the state.

use core::fmt;
use core::mem::MaybeUninit;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::{self, NonNull};

use coreline_world::{Cell, Native, Ordering, Slot, Word, World};

use crate::percpu::{Init, PerCpu, PerCpuPool, SlotLock, Slots, Word64};

const COMPACT: u32 = 0;
const SPREAD: u32 = 1;
const STUCK: u32 = 2;

/// Additions after which slots pay even on one CPU: each that follows saves some cycles.
const HOT: u32 = 256;

/// Slots, or not yet.
pub(super) struct Spread<T: Slot, W: World> {
    /// Where additions go: `parts.compact`, then `parts.slots`. Never null.
    current: W::Ptr<Slots<T, W>>,
    parts: NonNull<Parts<T, W>>,
}

const _: () = {
    assert!(size_of::<Spread<Word64, Native>>() == 16);
    assert!(align_of::<Spread<Word64, Native>>() == 8);
};

/// The parts that stay where they are when the counter moves.
struct Parts<T: Slot, W: World> {
    state: W::U32,
    /// Held to make the slots, and to change the state.
    making: SlotLock<W>,
    /// The first CPU that added, plus one; 0: none did.
    first_cpu: W::U32,
    /// About how many additions there were while compact.
    additions: W::U32,
    /// One slot, which lies in `memory`.
    compact: MaybeUninit<Slots<T, W>>,
    memory: MaybeUninit<T>,
    slots: Cell<MaybeUninit<PerCpu<T, W>>, W>,
    pool: PerCpuPool<W>,
    init: fn() -> T,
}

// SAFETY: the parts are owned through the pointer, and are sent and shared as slots are.
unsafe impl<T: Slot, W: World> Send for Spread<T, W> {}
// SAFETY: slots can be shared; what changes are words, and `slots`, once, before it is published.
unsafe impl<T: Slot, W: World> Sync for Spread<T, W> {}

// No addition can panic half-way.
impl<T: Slot, W: World> UnwindSafe for Spread<T, W> {}
impl<T: Slot, W: World> RefUnwindSafe for Spread<T, W> {}

impl<T: Slot, W: World> Spread<T, W> {
    pub(super) fn new_in(pool: PerCpuPool<W>, init: fn() -> T) -> Self {
        let section = *pool.section();
        let parts = NonNull::from_mut(Box::leak(Box::new(Parts {
            state: W::U32::new_in(COMPACT),
            making: SlotLock::new_in(),
            first_cpu: W::U32::new_in(0),
            additions: W::U32::new_in(0),
            compact: MaybeUninit::uninit(),
            memory: MaybeUninit::uninit(),
            slots: Cell::new_in(MaybeUninit::uninit()),
            pool,
            init,
        })));
        // SAFETY: just made, and no other thread knows it. Without an index there is one slot, the
        // shared one, and `memory` is used for nothing else.
        let current = unsafe {
            let memory = NonNull::new_unchecked((&raw mut (*parts.as_ptr()).memory).cast());
            let slots = Slots::new_in(section, 0, memory, Init::Function(init));
            let compact = Self::compact_slots(parts);
            compact.write(slots);
            compact
        };
        Spread { current: W::Ptr::new_in(current), parts }
    }

    /// Where the compact slots lie. Not by way of a reference, whose end would be that of
    /// `current`.
    fn compact_slots(parts: NonNull<Parts<T, W>>) -> *mut Slots<T, W> {
        // SAFETY: the parts are there.
        unsafe { &raw mut (*parts.as_ptr()).compact }.cast()
    }

    fn parts(&self) -> &Parts<T, W> {
        // SAFETY: owned.
        unsafe { self.parts.as_ref() }
    }

    /// Where additions go.
    #[inline]
    pub(super) fn current(&self) -> &Slots<T, W> {
        // Acquire pairs with the release in `spread`: the slots are there.
        // SAFETY: both that the word ever points to live as long as this.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Where additions went at first.
    pub(super) fn compact(&self) -> &T {
        // SAFETY: written by `new_in`.
        unsafe { self.parts().compact.assume_init_ref() }.shared()
    }

    /// Has later additions go the slow way for good, through [`note_addition`].
    ///
    /// [`note_addition`]: Spread::note_addition
    pub(super) fn slow_down(&mut self) {
        let compact = Self::compact_slots(self.parts);
        self.current.with_mut(|current| *current = compact);
    }

    /// The slots, if there are any.
    pub(super) fn slots(&self) -> Option<&PerCpu<T, W>> {
        // Acquire pairs with the release in `spread`: the slots are there.
        if self.parts().state.load(Ordering::Acquire) != SPREAD {
            return None;
        }
        // SAFETY: written before the state said so, and not since.
        self.parts().slots.with(|slots| Some(unsafe { (*slots).assume_init_ref() }))
    }

    /// Notes an addition that is about to be done; the slots, if it is to go there. `fast` says
    /// whether later ones shall find the slots on their fast path.
    pub(super) fn note_addition(&self, fast: bool) -> Option<&PerCpu<T, W>> {
        // Relaxed: a hint.
        if self.parts().state.load(Ordering::Relaxed) == COMPACT {
            if !self.pays() {
                return None;
            }
            self.spread();
        }
        let slots = self.slots()?;
        if fast {
            let slots = ptr::from_ref::<Slots<T, W>>(slots).cast_mut();
            // Here, and not where they are made: a child that is forked in between comes by. Looks
            // first, for threads without an index come here each time.
            //
            // Relaxed: the value is all there is to read.
            if self.current.load(Ordering::Relaxed) != slots {
                // Release pairs with the acquire in `current`: a thread could else use the slots
                // before it sees what they are made of.
                self.current.store(slots, Ordering::Release);
            }
        }
        Some(slots)
    }

    /// Notes an addition, and whether slots pay from now on.
    fn pays(&self) -> bool {
        let parts = self.parts();
        // Relaxed: a hint. What is missed is noticed at the next addition.
        let additions = parts.additions.load(Ordering::Relaxed) + 1;
        // Relaxed: a hint, too. Of two threads that count at once, one may be lost.
        parts.additions.store(additions, Ordering::Relaxed);
        let cpu = W::cpu().get() + 1;
        // Relaxed: a hint.
        let first = parts.first_cpu.load(Ordering::Relaxed);
        if first == 0 {
            // Relaxed: a hint.
            parts.first_cpu.store(cpu, Ordering::Relaxed);
        }
        (first != 0 && first != cpu) || additions >= HOT
    }

    fn spread(&self) {
        let parts = self.parts();
        let Some(_making) = parts.making.try_lock_by_name() else {
            return;
        };
        // Relaxed: only the holder of the lock writes it.
        if parts.state.load(Ordering::Relaxed) != COMPACT {
            return;
        }
        let Ok(slots) = parts.pool.per_cpu_of(Init::Function(parts.init)) else {
            // Relaxed: there is nothing to publish.
            parts.state.store(STUCK, Ordering::Relaxed);
            return;
        };
        // Here, where signals are held off already: the addition that follows finds its slot.
        slots.populate(W::index(slots.section()));
        // SAFETY: this thread alone holds the lock, and no thread reads before `SPREAD`. What a
        // thread that a fork left behind may have written is not used by any.
        parts.slots.with_mut(|place| unsafe {
            (*place).write(slots);
        });
        // Release pairs with the acquire in `slots`: they are there.
        parts.state.store(SPREAD, Ordering::Release);
    }
}

impl<T: Slot, W: World> Drop for Spread<T, W> {
    fn drop(&mut self) {
        let spread = self.slots().is_some();
        let parts = self.parts.as_ptr();
        // SAFETY: made by `Box::leak`, written by `new_in`, and never used again. The compact slots
        // reach into `memory`, so nothing borrows all of the parts while they drop.
        unsafe {
            Self::compact_slots(self.parts).drop_in_place();
            if spread {
                (*parts).slots.get_mut().assume_init_drop();
            }
            drop(Box::from_raw(parts));
        }
    }
}

impl<T: Slot, W: World> fmt::Debug for Spread<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slots() {
            Some(slots) => slots.fmt(f),
            None => f.write_str("compact"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_sim::{Machine, Sim};
    use coreline_topology::CpuId;
    use coreline_world::model::{Checker, Model};
    use coreline_world::{JoinHandle, Placement, Testbed, Threads, Words};

    use super::*;
    use crate::IndexBy;

    type Compact<W> = Spread<<W as Words>::U64, W>;

    fn compact<W: World>() -> Arc<Compact<W>> {
        let pool = PerCpuPool::global_in(IndexBy::Cpu).unwrap();
        Arc::new(Spread::new_in(pool, || W::U64::new_in(0)))
    }

    /// So many additions on this CPU; says after which there were slots.
    fn add<W: Testbed>(spread: &Arc<Compact<W>>, cpu: u32, additions: u32, fast: bool) -> Vec<u32> {
        let spread = Arc::clone(spread);
        let note =
            move || (1..=additions).filter(|_| spread.note_addition(fast).is_some()).collect();
        W::spawn(Placement::On(CpuId::new(cpu)), note).unwrap().join()
    }

    fn are_fast<W: World>(spread: &Compact<W>) -> bool {
        spread.slots().is_some_and(|slots| ptr::eq::<Slots<_, _>>(spread.current(), &**slots))
    }

    fn slots_come_when_they_pay() {
        let one_cpu = compact::<Sim>();
        assert_eq!(add(&one_cpu, 0, HOT, true), [HOT]);
        let two_cpus = compact::<Sim>();
        assert!(add(&two_cpus, 0, 1, false).is_empty() && add(&two_cpus, 0, 1, false).is_empty());
        assert_eq!(add(&two_cpus, 1, 1, false), [1]);
        assert!(are_fast(&one_cpu) && !are_fast(&two_cpus));
        assert_eq!(add(&two_cpus, 0, 1, true), [1]);
        assert!(are_fast(&two_cpus));
        let mut slow = Arc::into_inner(two_cpus).unwrap();
        slow.slow_down();
        assert!(!are_fast(&slow));
    }

    #[test]
    fn slots_come_with_a_second_cpu_or_many_additions_in_simulation() {
        Machine::preset("host-2c").unwrap().run(slots_come_when_they_pay).unwrap();
    }

    #[test]
    fn slots_on_the_fast_path_are_whole_in_every_interleaving() {
        Checker::new().preemption_bound(3).check(|| {
            let spread = compact::<Model>();
            assert!(add(&spread, 0, 1, true).is_empty());
            let done = Arc::new(<Model as Words>::U32::new_in(0));
            let theirs = (Arc::clone(&spread), Arc::clone(&done));
            let add = move || {
                assert!(theirs.0.note_addition(true).is_some());
                theirs.1.store(1, Ordering::Relaxed);
            };
            let adder = <Model as Threads>::spawn(Placement::On(CpuId::new(1)), add).unwrap();
            // Relaxed, on both sides: it orders nothing. It makes loom try the adder first, which
            // loads before it stores, so that loom would forget an earlier look.
            done.wait_until(Ordering::Relaxed, |done| done == 1);
            if !ptr::eq(spread.current(), Spread::compact_slots(spread.parts)) {
                // The model sees an access to the cell, and none by way of a pointer.
                spread.parts().slots.with(|_| ());
            }
            adder.join();
        });
    }
}
