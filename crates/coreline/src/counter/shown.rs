//! [`Shown`]: what the fast path of an addition works on.

use coreline_world::restartable::{At, Gate};
use coreline_world::{Native, Ordering, Slot, Word, World};

use crate::percpu::Slots;

/// Slots of words, as far as sections need to know of them, in what they are slots of: the fast
/// path reads no other line before the slot's own.
///
/// The gate's limit is that of the slots, or one that they had before, or 0: it lags behind until
/// an addition that found no slot shows them again. It is no limit that a thread which stopped the
/// slots does not know of: both are done under the slots' lock.
pub(super) struct Shown<W: World> {
    gate: Gate<W>,
}

impl Shown<Native> {
    /// Nothing, in a static.
    pub(super) const fn const_new() -> Self {
        Shown { gate: Gate::const_new() }
    }
}

impl<W: World> Shown<W> {
    /// Nothing.
    pub(super) fn new_in() -> Self {
        Shown { gate: Gate::new_in() }
    }

    /// A word of every slot that is shown, by its number in a slot.
    ///
    /// # Safety
    ///
    /// What was shown are the same slots each time. They are live, and have so many words.
    #[inline]
    pub(super) unsafe fn at(&self, word: usize) -> At<'_, W::U64, W> {
        // SAFETY: slots below the limit are initialised, as `show` takes it from them; they have
        // the word by the caller's promise; and whatever else writes to them closes the gate.
        unsafe { At::behind(&self.gate, word * size_of::<W::U64>()) }
    }

    /// Shows the slots that there are by now, unless they are stopped. A `T` begins with a word.
    pub(super) fn show<T: Slot>(&self, slots: &Slots<T, W>) {
        let by = W::index_by(slots.section());
        let shown = self.gate.limits().by(by);
        // Relaxed: a hint. Threads without an index come here with each addition.
        if slots.limit().load(Ordering::Relaxed) == shown.load(Ordering::Relaxed) {
            return;
        }
        // While the lock is held, no thread stops them, or has them stopped:
        //
        //   Thread 1: reads the slots' limit: 3
        //   Thread 2: stops the slots: their limit = 0, the limit here = 0, fences
        //   Thread 1: the limit here = 3               <- sections run on slots that are stopped
        slots.while_open(|limit| self.gate.open(by, slots.first().as_ptr().cast(), limit));
    }

    /// Shows no slots any more, from the fence on that the caller is about to stop them with.
    pub(super) fn close<T: Slot>(&self, slots: &Slots<T, W>) {
        self.gate.close(W::index_by(slots.section()));
    }
}

#[cfg(test)]
mod tests {
    use std::panic;
    use std::sync::Arc;

    use coreline_world::model::{Checker, Model, RelaxedLoads};
    use coreline_world::{Cell, JoinHandle, Placement, Testbed};

    use super::*;
    use crate::IndexBy;
    use crate::percpu::PerCpu;

    /// One thread makes slot 0 and shows it; another one looks, as a section does.
    fn what_is_shown_is_whole<W: Testbed>() {
        let slots = PerCpu::<W::U64, W>::words_in(IndexBy::Cpu).unwrap();
        // The model checks accesses to a cell, and none by way of a pointer.
        let (made, done) = (Cell::<u32, W>::new_in(0), W::U32::new_in(0));
        let shared = Arc::new((Shown::new_in(), slots, made, done));
        let theirs = Arc::clone(&shared);
        let shower = W::spawn(Placement::Anywhere, move || {
            let (shown, slots, made, done) = &*theirs;
            slots.populate(0);
            // SAFETY: the other thread looks at it only when slot 0 is shown.
            made.with_mut(|made| unsafe { *made = 1 });
            // As where there are sections. Relaxed: of this thread alone.
            slots.limit().store(1, Ordering::Relaxed);
            shown.show(slots);
            // Relaxed, on both sides: it orders nothing. It makes loom try this thread first, which
            // loads before it stores, so that loom would forget an earlier look.
            done.store(1, Ordering::Relaxed);
        });
        let (shown, slots, made, done) = &*shared;
        done.wait_until(Ordering::Relaxed, |done| done == 1);
        // SAFETY: slots of a word, which live on.
        let at = unsafe { shown.at(0) };
        if at.limits().by(IndexBy::Cpu).load(Ordering::Acquire) > 0 {
            assert_eq!(at.first(), slots.first().as_ptr());
            // SAFETY: written before it was shown, and not since.
            assert_eq!(made.with(|made| unsafe { *made }), 1);
        }
        shower.unwrap().join();
        assert_eq!(at.first(), slots.first().as_ptr());
    }

    #[test]
    fn what_is_shown_is_whole_in_every_interleaving() {
        Checker::new().preemption_bound(3).check(what_is_shown_is_whole::<Model>);
    }

    #[test]
    fn slots_that_are_looked_for_without_acquire_are_caught() {
        let checker = Checker::new().preemption_bound(3);
        let law = what_is_shown_is_whole::<Model<RelaxedLoads>>;
        let payload = panic::catch_unwind(|| checker.check(law)).unwrap_err();
        let text = payload.downcast_ref::<String>().map_or("", |text| text);
        assert!(text.contains("Causality violation") || text.contains("left == right"), "{text}");
    }
}
