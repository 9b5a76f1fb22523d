//! [`Shown`]: what the fast path of an addition works on.

use core::ptr::{self, NonNull};

use coreline_world::restartable::{At, Limits};
use coreline_world::{Native, Ordering, Slot, Word, World};

use crate::percpu::{Slots, WordPtr, offset_in};

/// Slots, as far as sections need to know of them, side by side with what they are slots of: the
/// fast path reads no other line before the slot's own.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | one of `limits` | sections may use slots below it; 0: none | the holder of the slots' lock |
/// | `first` | the value in slot 0; null: none is shown yet | [`show`](Shown::show), once |
///
/// The limit is that of the slots, or one that they had before, or 0: it lags behind until an
/// addition that found no slot shows them again. It is no limit that a thread which stopped the
/// slots does not know of: both are done under the slots' lock.
#[repr(C)]
pub(super) struct Shown<T: Slot, W: World> {
    /// At the beginning, so that the address of all is that of the limits.
    limits: Limits<W>,
    first: W::Ptr<T>,
}

impl<T: Slot> Shown<T, Native> {
    /// Nothing, in a static.
    pub(super) const fn const_new() -> Self {
        Shown { limits: Limits::const_new(), first: WordPtr::new(ptr::null_mut()) }
    }
}

impl<T: Slot, W: World> Shown<T, W> {
    /// Nothing.
    pub(super) fn new_in() -> Self {
        Shown { limits: Limits::new_in(), first: W::Ptr::new_in(ptr::null_mut()) }
    }

    /// A field of every slot that is shown; `None` if there is none yet.
    ///
    /// `which` must be a projection, as for [`Slots::field`].
    ///
    /// # Panics
    ///
    /// If `which` does, or returns a reference to something that is not in the slot.
    ///
    /// # Safety
    ///
    /// What was shown are the same slots each time, and they are live.
    #[inline]
    pub(super) unsafe fn at<F: Slot>(&self, which: impl FnOnce(&T) -> &F) -> Option<At<'_, F, W>> {
        // Before the section, which looks at the limit:
        //
        //   Thread 1: first: null, and would go on with it
        //   Thread 2: first = slot 0; limit = 1
        //   Thread 1: index 0 is below the limit; adds to address 0
        let first = self.first()?;
        // SAFETY: initialised, and live by the caller's promise.
        let offset = offset_in(unsafe { first.as_ref() }, which);
        // SAFETY: slots below the limit are initialised, as `show` takes it from them; they have
        // the field that slot 0 has; and whatever else writes to them closes them before.
        Some(unsafe { At::new(&self.limits, first.byte_add(offset).cast()) })
    }

    /// Slot 0, which is initialised.
    #[inline]
    fn first(&self) -> Option<NonNull<T>> {
        // Acquire pairs with the release in `show`: it is initialised.
        NonNull::new(self.first.load(Ordering::Acquire))
    }

    /// Shows the slots that there are by now, unless they are stopped.
    pub(super) fn show(&self, slots: &Slots<T, W>) {
        let by = W::index_by(slots.section());
        let limit = self.limits.by(by);
        // Relaxed: a hint. Threads without an index come here with each addition.
        if slots.limit().load(Ordering::Relaxed) == limit.load(Ordering::Relaxed) {
            return;
        }
        // While the lock is held, no thread stops them, or has them stopped:
        //
        //   Thread 1: reads the slots' limit: 3
        //   Thread 2: stops the slots: their limit = 0, the limit here = 0, fences
        //   Thread 1: the limit here = 3               <- sections run on slots that are stopped
        slots.while_open(|open| {
            // Release pairs with the acquire in `first`: slot 0 is initialised.
            self.first.store(slots.first().as_ptr(), Ordering::Release);
            // Release pairs with the acquire of a section's own load: it sees the slots
            // initialised, and what was written to them while they were stopped.
            limit.store(open, Ordering::Release);
        });
    }

    /// Shows no slots any more; sections that run go on until the next fence. The caller has the
    /// slots stopped.
    pub(super) fn close(&self, slots: &Slots<T, W>) {
        // Relaxed: the caller's fence orders it.
        self.limits.by(W::index_by(slots.section())).store(0, Ordering::Relaxed);
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

    /// One thread makes slot 0 and shows it; another one looks.
    fn what_is_shown_is_whole<W: Testbed>() {
        let slots = PerCpu::<W::U64, W>::words_in(IndexBy::Cpu).unwrap();
        // The model checks accesses to a cell, and none by way of a pointer.
        let shared = Arc::new((Shown::new_in(), slots, Cell::<u32, W>::new_in(0)));
        let theirs = Arc::clone(&shared);
        let shower = W::spawn(Placement::Anywhere, move || {
            let (shown, slots, made) = &*theirs;
            slots.populate(0);
            // SAFETY: the other thread looks at it only when slot 0 is shown.
            made.with_mut(|made| unsafe { *made = 1 });
            // As where there are sections. Relaxed: of this thread alone.
            slots.limit().store(1, Ordering::Relaxed);
            shown.show(slots);
        });
        let (shown, _, made) = &*shared;
        if shown.first().is_some() {
            // SAFETY: written before it was shown, and not since.
            assert_eq!(made.with(|made| unsafe { *made }), 1);
        }
        shower.unwrap().join();
        assert!(shown.first().is_some());
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
        assert!(text.contains("Causality violation"), "{text}");
    }
}
