//! [`Spread`]: per-CPU slots that are not allocated until they are worthwhile.
//!
//! | state | meaning | next |
//! |---|---|---|
//! | no parts | nothing was added: a static's first state | `COMPACT` |
//! | `COMPACT` | additions go to one `T` that all CPUs share, atomically | `SPREAD`, 2 |
//! | `SPREAD` | additions go to the slots; the shared `T` keeps what it has | |
//! | 2 to [`LAST`] | as `COMPACT`: so often, less one, no memory was there | `SPREAD`, one more |
//!
//! The first addition makes the parts of a static. If two threads make them at the same time, one
//! discards its own. A counter leaves `COMPACT` when a second CPU adds, or after [`HOT`] additions.
//! One thread makes the slots, under a lock. No thread waits for it, because a signal handler may
//! have interrupted that thread. A child that was forked meanwhile makes its own slots.
//!
//! If there is no memory for slots, the counter retries after twice as many additions each time, up
//! to 2^20. That is rare enough to cost nothing, and frequent enough for a hot counter.
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `HOT` | slots that do not pay | additions are atomic | `slots_come_with_a_second_cpu_..` |
//! | a second CPU | the same | CPUs share a line | that test |
//! | `LAST` | it asks for memory often | never | a constant assertion |
//!
//! The fast path does not read this state. It uses slots behind a [`Gate`] in the counter, so it
//! reads no other cache line before the slot's own. The gate is closed at first. Then no section
//! finds a slot, and the slow path reads the state. The slow path opens the gate to the existing
//! slots.

use core::fmt;
use core::mem::MaybeUninit;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::{self, NonNull};

use coreline_world::restartable::{At, Gate};
use coreline_world::{Cell, Native, Ordering, Slot, Word, World};

use crate::IndexBy;
use crate::percpu::{Init, PerCpu, PerCpuPool, SlotLock, StopError, Stopped, Word64, WordPtr};

const COMPACT: u32 = 0;
const SPREAD: u32 = 1;
/// The number of tries from which on they are not counted any more.
const LAST: u32 = 13;

/// Additions after which slots pay even on one CPU: each that follows saves some cycles.
const HOT: u32 = 256;

/// Additions before the first try to make slots, or before the next one.
const fn patience(state: u32) -> u32 {
    HOT << state.saturating_sub(1)
}

const _: () = assert!(patience(COMPACT) == HOT && patience(LAST) == 1 << 20);

/// Per-CPU slots that may not be allocated yet.
#[repr(C)]
pub(super) struct Spread<T: Slot, W: World> {
    /// To the slots, for additions that look no further.
    gate: Gate<W>,
    /// Null: there are none yet.
    parts: W::Ptr<Parts<T, W>>,
}

const _: () = {
    assert!(size_of::<Spread<Word64, Native>>() == 24);
    assert!(align_of::<Spread<Word64, Native>>() == 8);
};

/// The parts that stay where they are when the counter moves.
struct Parts<T: Slot, W: World> {
    state: W::U32,
    /// Held to make the slots, and to change the state.
    making: SlotLock<W>,
    /// The first CPU that added, plus one; 0: none did.
    first_cpu: W::U32,
    /// About how many additions there were while compact, since the last try to make slots.
    additions: W::U32,
    /// The part that all CPUs share.
    compact: T,
    /// The amounts that were [taken out](Spread::drained) of the sums of all words.
    drained: T,
    slots: Cell<MaybeUninit<PerCpu<T, W>>, W>,
    pool: PerCpuPool<W>,
}

// As the documentation of counters says.
const _: () = assert!(size_of::<Parts<Word64, Native>>() == 136);

// SAFETY: the parts are owned through the pointer, and are sent and shared as slots are.
unsafe impl<T: Slot, W: World> Send for Spread<T, W> {}
// SAFETY: slots can be shared; what changes are words, and `slots`, once, before it is published.
unsafe impl<T: Slot, W: World> Sync for Spread<T, W> {}

// No addition can panic half-way.
impl<T: Slot, W: World> UnwindSafe for Spread<T, W> {}
impl<T: Slot, W: World> RefUnwindSafe for Spread<T, W> {}

impl<T: Slot> Spread<T, Native> {
    /// In a static.
    pub(super) const fn const_new() -> Self {
        Spread { gate: Gate::const_new(), parts: WordPtr::new(ptr::null_mut()) }
    }
}

impl<T: Slot, W: World> Spread<T, W> {
    pub(super) fn new_in(pool: PerCpuPool<W>, init: fn() -> T) -> Self {
        let parts = Self::make(pool, init);
        Spread { gate: Gate::new_in(), parts: W::Ptr::new_in(parts.as_ptr()) }
    }

    fn make(pool: PerCpuPool<W>, init: fn() -> T) -> NonNull<Parts<T, W>> {
        NonNull::from_mut(Box::leak(Box::new(Parts {
            state: W::U32::new_in(COMPACT),
            making: SlotLock::new_in(),
            first_cpu: W::U32::new_in(0),
            additions: W::U32::new_in(0),
            compact: init(),
            drained: init(),
            slots: Cell::new_in(MaybeUninit::uninit()),
            pool,
        })))
    }

    /// The parts, if there are any: otherwise all is as it was at first.
    fn parts(&self) -> Option<&Parts<T, W>> {
        // Acquire pairs with the release in `settle`: they are there.
        // SAFETY: owned.
        unsafe { self.parts.load(Ordering::Acquire).as_ref() }
    }

    /// The parts, made if there are none yet: each slot begins as `init` returns it.
    fn settled(&self, init: fn() -> T) -> &Parts<T, W> {
        self.parts().unwrap_or_else(|| self.settle(init))
    }

    #[cold]
    fn settle(&self, init: fn() -> T) -> &Parts<T, W> {
        let pool = PerCpuPool::global_in(IndexBy::Cpu);
        let made = Self::make(pool.expect("CPUs have numbers in every world"), init);
        // Release pairs with the acquires in `parts` and below: they are there. Acquire on failure
        // pairs with the release of the thread that was first.
        let (done, failed) = (Ordering::Release, Ordering::Acquire);
        let none = ptr::null_mut();
        match self.parts.compare_exchange(none, made.as_ptr(), done, failed) {
            // SAFETY: whole, and owned from now on.
            Ok(_) => unsafe { made.as_ref() },
            Err(theirs) => {
                // SAFETY: no other thread knew it; theirs are published, and owned.
                unsafe {
                    Self::drop_parts(made);
                    &*theirs
                }
            }
        }
    }

    /// # Safety
    ///
    /// They are whole, and never used again.
    unsafe fn drop_parts(parts: NonNull<Parts<T, W>>) {
        // SAFETY: made by `Box::leak`, and the caller's promise.
        let mut parts = unsafe { Box::from_raw(parts.as_ptr()) };
        // Relaxed: no other thread uses them.
        if parts.state.load(Ordering::Relaxed) == SPREAD {
            // SAFETY: written before the state said so.
            unsafe { parts.slots.get_mut().assume_init_drop() };
        }
    }

    /// The slot of the calling thread, in which an operation finds its word without a further
    /// search. Without a slot there, the operation must take the slow path, through
    /// [`note_addition`].
    ///
    /// # Safety
    ///
    /// A `T` consists of words, and has one of this number.
    ///
    /// [`note_addition`]: Spread::note_addition
    #[inline]
    pub(super) unsafe fn at(&self, word: usize) -> At<'_, W::U64, W> {
        // SAFETY: the gate opens to slots that are initialised, always the same, which live as long
        // as this; they have the word by the caller's promise; and `with_all_stopped`, which alone
        // writes to them otherwise, closes it before.
        unsafe { At::behind(&self.gate, word * size_of::<W::U64>()) }
    }

    /// The gate, through which additions find slots that look no further.
    pub(super) fn gate(&self) -> *const Gate<W> {
        &raw const self.gate
    }

    /// Makes later additions take the slow path, unless a fast addition uses the slot.
    pub(super) fn slow_down(&mut self) {
        self.gate = Gate::new_in();
    }

    /// The slots, if there are any.
    pub(super) fn slots(&self) -> Option<&PerCpu<T, W>> {
        self.parts()?.slots()
    }

    /// Notes an addition that is about to be done, and says where: in the slots, or in what all
    /// CPUs share. `fast` says whether later ones shall find the slots on their fast path.
    pub(super) fn note_addition(&self, fast: bool, init: fn() -> T) -> Result<&PerCpu<T, W>, &T> {
        let parts = self.settled(init);
        // Relaxed: a hint.
        let state = parts.state.load(Ordering::Relaxed);
        if state != SPREAD {
            if !parts.pays(state) {
                return Err(&parts.compact);
            }
            parts.spread(state, init);
        }
        let Some(slots) = parts.slots() else {
            return Err(&parts.compact);
        };
        if fast {
            // Here, and not where they are made: a child that is forked in between comes by.
            slots.open_gate(&self.gate, || true);
        }
        Ok(slots)
    }

    /// The wrapping sum of one word everywhere, except for what was drained.
    pub(super) fn sum(&self, which: impl Fn(&T) -> &W::U64) -> u64 {
        let drained = self.drained(&which);
        self.parts().map_or(0, |parts| parts.total(which)).wrapping_sub(drained)
    }

    /// The amount that was drained from the sum of one word. Each value that is read afterwards
    /// existed at that time.
    pub(super) fn drained(&self, which: impl Fn(&T) -> &W::U64) -> u64 {
        // Acquire pairs with the release in `drain`: words are read no sooner than by the thread
        // that drained.
        self.parts().map_or(0, |parts| which(&parts.drained).load(Ordering::Acquire))
    }

    /// The part that all CPUs share, if anything was added.
    pub(super) fn shared(&self) -> Option<&T> {
        self.parts().map(|parts| &parts.compact)
    }

    /// Runs `f` on all slots, if there are any, while no section works on them: see
    /// [`Slots::with_all_stopped`](crate::percpu::Slots::with_all_stopped).
    pub(super) fn with_all_stopped<R>(
        &self,
        f: impl FnOnce(&mut dyn Iterator<Item = Stopped<'_, T, W>>) -> R,
    ) -> Option<Result<R, StopError>> {
        let slots = self.slots()?;
        Some(slots.stop_all(Some(&self.gate), f))
    }

    /// Takes all out of the sum of one word, and returns it.
    ///
    /// The words themselves stay: what was taken out is remembered.
    pub(super) fn drain(&self, which: impl Fn(&T) -> &W::U64) -> u64 {
        self.parts().map_or(0, |parts| parts.replace(which, 0))
    }

    /// As [`drain`](Spread::drain), and leaves this much in the sum.
    pub(super) fn replace(
        &self,
        which: impl Fn(&T) -> &W::U64,
        value: u64,
        init: fn() -> T,
    ) -> u64 {
        self.settled(init).replace(which, value)
    }
}

impl<T: Slot, W: World> Parts<T, W> {
    fn slots(&self) -> Option<&PerCpu<T, W>> {
        // Acquire pairs with the release in `spread`: the slots are there.
        if self.state.load(Ordering::Acquire) != SPREAD {
            return None;
        }
        // SAFETY: written before the state said so, and not since.
        self.slots.with(|slots| Some(unsafe { (*slots).assume_init_ref() }))
    }

    /// Takes all out of the sum of one word except for `value`, and returns what it was.
    fn replace(&self, which: impl Fn(&T) -> &W::U64, value: u64) -> u64 {
        let drained = which(&self.drained);
        loop {
            // Acquire pairs with the release below, of the thread that drained before:
            //
            //   Thread 1: adds up 5; drained: 0 to 5, and returns 5
            //   Thread 2: loads drained: 5; adds up 4, without an addition that thread 1 saw
            //   Thread 2: drained: 5 to 4, and returns -1
            let before = drained.load(Ordering::Acquire);
            let total = self.total(&which);
            // Release pairs with the acquires above and in `drained`. Relaxed on failure: it is
            // loaded again.
            let (done, failed) = (Ordering::Release, Ordering::Relaxed);
            let after = total.wrapping_sub(value);
            if drained.compare_exchange(before, after, done, failed).is_ok() {
                return total.wrapping_sub(before);
            }
        }
    }

    /// The wrapping sum of one word everywhere, ever.
    fn total(&self, which: impl Fn(&T) -> &W::U64) -> u64 {
        let slots = self.slots().into_iter().flat_map(|slots| slots.iter());
        // Additions that happened before this call are seen because reads of one word never go
        // back. Acquire pairs with the release of an addition to a batched counter's slot: a
        // thread that sees something drained sees that it was announced.
        let value = |slot| which(slot).load(Ordering::Acquire);
        [&self.compact].into_iter().chain(slots).map(value).fold(0, u64::wrapping_add)
    }

    /// Notes an addition, and whether it is time to make slots.
    fn pays(&self, state: u32) -> bool {
        // Relaxed: a hint. What is missed is noticed at the next addition.
        let additions = self.additions.load(Ordering::Relaxed).saturating_add(1);
        // Relaxed: a hint, too. Of two threads that count at the same time, one may be lost.
        self.additions.store(additions, Ordering::Relaxed);
        if state != COMPACT {
            return additions >= patience(state);
        }
        let cpu = W::cpu().get() + 1;
        // Relaxed: a hint.
        let first = self.first_cpu.load(Ordering::Relaxed);
        if first == 0 {
            // Relaxed: a hint.
            self.first_cpu.store(cpu, Ordering::Relaxed);
        }
        (first != 0 && first != cpu) || additions >= HOT
    }

    /// Gives the counter slots, unless another thread has changed the state that was `seen`.
    fn spread(&self, seen: u32, init: fn() -> T) {
        let Some(_making) = self.making.try_lock_by_name() else {
            return;
        };
        // Relaxed: only the holder of the lock writes it.
        let state = self.state.load(Ordering::Relaxed);
        if state != seen {
            // Another thread was faster: there are slots, or it found no memory, and this try would
            // be one too many.
            return;
        }
        let Ok(slots) = self.pool.per_cpu_of(Init::Function(init)) else {
            // Relaxed: a hint.
            self.additions.store(0, Ordering::Relaxed);
            // Relaxed: there is nothing to publish.
            self.state.store((state.max(SPREAD) + 1).min(LAST), Ordering::Relaxed);
            return;
        };
        // Here, where signals are held off already: the addition that follows finds its slot.
        slots.populate(W::index(slots.section()));
        // SAFETY: this thread alone holds the lock, and no thread reads before `SPREAD`. What a
        // thread that a fork left behind may have written is not used by any.
        self.slots.with_mut(|place| unsafe {
            (*place).write(slots);
        });
        // Release pairs with the acquire in `slots`: they are there.
        self.state.store(SPREAD, Ordering::Release);
    }
}

impl<T: Slot, W: World> Drop for Spread<T, W> {
    fn drop(&mut self) {
        if let Some(parts) = NonNull::new(self.parts.with_mut(|parts| *parts)) {
            // SAFETY: published whole, and dropped once, here.
            unsafe { Self::drop_parts(parts) };
        }
    }
}

impl<T: Slot, W: World> fmt::Debug for Spread<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(slots) = self.slots() {
            return slots.fmt(f);
        }
        // Relaxed: a report.
        let state = self.parts().map_or(COMPACT, |parts| parts.state.load(Ordering::Relaxed));
        f.write_str(if state > SPREAD { "compact: no memory, tries again" } else { "compact" })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_sim::{Faults, Machine, Sim};
    use coreline_topology::CpuId;
    use coreline_world::model::{Checker, Model, Plant};
    use coreline_world::restartable::definition::Add;
    use coreline_world::{Integer, JoinHandle, Placement, Restartable, Testbed, Words};

    use super::*;
    use crate::IndexBy;

    type Compact<W> = Spread<<W as Words>::U64, W>;

    fn compact<W: World>(by: IndexBy) -> Arc<Compact<W>> {
        Arc::new(Spread::new_in(PerCpuPool::global_in(by).unwrap(), zero::<W>))
    }

    fn zero<W: World>() -> W::U64 {
        W::U64::new_in(0)
    }

    /// This many additions on this CPU; says after which there were slots.
    fn add<W: Testbed>(spread: &Arc<Compact<W>>, cpu: u32, additions: u32, fast: bool) -> Vec<u32> {
        let spread = Arc::clone(spread);
        let note = move || {
            (1..=additions).filter(|_| spread.note_addition(fast, zero::<W>).is_ok()).collect()
        };
        W::spawn(Placement::On(CpuId::new(cpu)), note).unwrap().join()
    }

    /// Adds where an addition looks first; `false` if it finds no slot there.
    fn quick_add<W: Testbed>(spread: &Compact<W>, delta: u64) -> bool {
        // SAFETY: it is one word.
        W::run(unsafe { spread.at(0) }, Add(delta)).is_ok()
    }

    /// Whether an addition finds this CPU's slot immediately.
    fn are_fast<W: Testbed>(spread: &Compact<W>) -> bool {
        quick_add(spread, 0)
    }

    fn slots_come_when_they_pay() {
        let one_cpu = compact::<Sim>(IndexBy::Cpu);
        assert_eq!(add(&one_cpu, 0, HOT, true), [HOT]);
        let two_cpus = compact::<Sim>(IndexBy::Cpu);
        assert!(add(&two_cpus, 0, 1, false).is_empty() && add(&two_cpus, 0, 1, false).is_empty());
        assert_eq!(add(&two_cpus, 1, 1, false), [1]);
        assert!(are_fast(&one_cpu) && !are_fast(&two_cpus));
        assert_eq!(add(&two_cpus, 0, 1, true), [1]);
        assert!(are_fast(&two_cpus));
        let mut slow = Arc::into_inner(two_cpus).unwrap();
        slow.slow_down();
        assert!(!are_fast(&slow));
    }

    /// A slot of this machine has no room for this many words, as if there were no memory.
    fn slots_that_cannot_be_had_are_asked_for_seldom() {
        fn zeros() -> [<Sim as Words>::U64; 513] {
            core::array::from_fn(|_| zero::<Sim>())
        }
        let pool = PerCpuPool::<Sim>::global_in(IndexBy::Cpu).unwrap();
        let spread = Spread::new_in(pool, zeros);
        let additions = || (0..).take_while(|_| spread.note_addition(true, zeros).is_err());
        let state = || spread.parts().unwrap().state.load(Ordering::Relaxed);
        assert_eq!((state(), format!("{spread:?}").as_str()), (COMPACT, "compact"));
        for tries in 0..4 {
            let before = state();
            let between = additions().take_while(|_| state() == before).count() as u32 + 1;
            assert_eq!((between, state()), (HOT << tries, 2 + tries));
        }
        assert_eq!(format!("{spread:?}"), "compact: no memory, tries again");
    }

    #[test]
    fn slots_that_cannot_be_had_are_asked_for_seldom_in_simulation() {
        let law = slots_that_cannot_be_had_are_asked_for_seldom;
        Machine::preset("host-2c").unwrap().run(law).unwrap();
    }

    #[test]
    fn slots_come_with_a_second_cpu_or_many_additions_in_simulation() {
        Machine::preset("host-2c").unwrap().run(slots_come_when_they_pay).unwrap();
    }

    /// A thread adds all the time while another one stops the slots again and again.
    fn slots_that_are_stopped_stay_as_they_are<W: Testbed>(by: IndexBy, adder: Placement) {
        let spread = compact::<W>(by);
        let stopped = Arc::new(W::U32::new_in(0));
        let theirs = (Arc::clone(&spread), Arc::clone(&stopped));
        let adder = W::spawn(adder, move || {
            let (spread, stopped) = theirs;
            // Relaxed, here and below: a word carries nothing but its own value.
            while stopped.load(Ordering::Relaxed) == 0 {
                if !quick_add(&spread, 1)
                    && let Ok(slots) = spread.note_addition(true, zero::<W>)
                {
                    slots.field(|word| word).add(1);
                }
            }
        });
        for round in 0..20 {
            // They are shown again each time. Every other time this waits for that.
            // SAFETY: it is one word.
            let shown = || unsafe { spread.at(0) }.limits().by(by).load(Ordering::Relaxed) > 0;
            while round % 2 == 0 && !shown() {
                W::relax();
            }
            let look = |all: &mut dyn Iterator<Item = Stopped<'_, W::U64, W>>| {
                // The last one is the shared one.
                let slots: Vec<_> = all.collect();
                let values = || slots.iter().rev().skip(1).map(|word| word.load(Ordering::Relaxed));
                let before: Vec<_> = values().collect();
                (0..50).for_each(|_| assert!(values().eq(before.iter().copied())));
            };
            spread.with_all_stopped(look).unwrap().unwrap();
        }
        stopped.store(1, Ordering::Relaxed);
        adder.unwrap().join();
    }

    #[test]
    fn slots_that_are_stopped_stay_as_they_are_in_simulation() {
        for seed in 0..40 {
            let faults = Faults { delay: 20, ..Faults::NONE };
            let machine = Machine::preset("host-2c").unwrap().seed(seed).faults(faults);
            let adder = Placement::On(CpuId::new(1));
            let law = move || slots_that_are_stopped_stay_as_they_are::<Sim>(IndexBy::Cpu, adder);
            machine.run(law).unwrap();
        }
    }

    #[test]
    fn slots_that_are_stopped_stay_as_they_are_natively() {
        for by in [IndexBy::Cpu, IndexBy::KernelCid] {
            let pool = PerCpuPool::<Native>::global_in(by);
            if pool.is_ok_and(|pool| Native::runs_sections(pool.section())) {
                let law = slots_that_are_stopped_stay_as_they_are::<Native>;
                (0..20).for_each(|_| law(by, Placement::Anywhere));
            }
        }
    }

    /// Two threads make the first additions at the same time.
    fn parts_are_made_once<W: Testbed>() {
        // What a static would have.
        let unsettled =
            Compact::<W> { gate: Gate::new_in(), parts: W::Ptr::new_in(ptr::null_mut()) };
        assert_eq!((unsettled.sum(|word| word), unsettled.drain(|word| word)), (0, 0));
        let unsettled = Arc::new(unsettled);
        let add = |spread: &Compact<W>| {
            let at = spread.note_addition(false, zero::<W>).map(|slots| slots.shared());
            let (Ok(word) | Err(word)) = at;
            // Relaxed: a counter carries nothing but its own value.
            word.fetch_add(1, Ordering::Relaxed);
        };
        let theirs = Arc::clone(&unsettled);
        let adder = W::spawn(Placement::On(CpuId::new(1)), move || add(&theirs)).unwrap();
        add(&unsettled);
        adder.join();
        assert_eq!(unsettled.sum(|word| word), 2, "an addition went to parts that are gone");
    }

    #[test]
    fn the_parts_of_a_static_are_made_once_in_every_interleaving() {
        Checker::new().preemption_bound(3).check(parts_are_made_once::<Model>);
        Machine::preset("host-2c").unwrap().run(parts_are_made_once::<Sim>).unwrap();
    }

    #[test]
    fn parts_that_are_published_by_a_relaxed_exchange_are_caught() {
        let checker = Checker::new().preemption_bound(3).plant(Plant::RELAXED_RMWS);
        let failure = checker.try_check(parts_are_made_once::<Model>).unwrap_err();
        assert!(failure.message.contains("Causality violation"), "{failure}");
    }
}
