//! Laws of restartable operations.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Arc;

use super::{rounds, spawn};
use crate::restartable::definition::Add;
use crate::restartable::{At, Limits, NoSlot};
use crate::{IndexBy, JoinHandle, Lacking, Ordering, Placement, Testbed, Word};

/// An array with one word for each index, initially 0, and without a fallback. An operation runs in
/// a section or not at all. The laws and the tests of worlds use it.
#[derive(Debug)]
pub struct BareWords<W: Testbed> {
    section: W::Section,
    limits: Limits<W>,
    indexes: usize,
    first: NonNull<W::U64>,
    layout: Layout,
}

// SAFETY: the memory holds words, which may be sent.
unsafe impl<W: Testbed> Send for BareWords<W> {}
// SAFETY: the memory holds words, which may be shared.
unsafe impl<W: Testbed> Sync for BareWords<W> {}

impl<W: Testbed> BareWords<W> {
    /// Creates a word for each possible index.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    ///
    /// # Panics
    ///
    /// Panics if there is no memory.
    pub fn new_in(by: IndexBy) -> Result<Self, Lacking> {
        let (section, indexes) = W::section(by)?;
        let layout = Layout::from_size_align(indexes * W::STRIDE, W::STRIDE)
            .expect("a stride is a power of two, and the indexes are numbers of CPUs");
        let first = W::map(layout).expect("a test has memory").cast();
        for index in 0..indexes {
            // SAFETY: just mapped, a stride for each index.
            unsafe { first.byte_add(index * W::STRIDE).write(W::U64::new_in(0)) };
        }
        let limits = Limits::<W>::new_in();
        if W::runs_sections(&section) {
            // Relaxed: no other thread knows the words yet.
            limits.by(by).store(indexes as u32, Ordering::Relaxed);
        }
        Ok(BareWords { section, limits, indexes, first, layout })
    }

    /// Returns the section by which operations on the words run.
    pub fn section(&self) -> &W::Section {
        &self.section
    }

    /// Returns the limit of indexes. Sections may use the words of the indexes below it.
    pub fn limit(&self) -> &W::U32 {
        self.limits.by(W::index_by(&self.section))
    }

    fn at(&self) -> At<'_, W::U64, W> {
        // SAFETY: there is a word for each index, and only `add` writes to them.
        unsafe { At::new(&self.limits, self.first) }
    }

    /// Adds to the calling thread's word, if a section can do so.
    ///
    /// # Errors
    ///
    /// [`NoSlot`] if no section can run. Then the word is unchanged.
    pub fn add(&self, delta: u64) -> Result<(), NoSlot> {
        W::run(self.at(), Add(delta))
    }

    /// Returns the values of the words, ordered by index.
    pub fn values(&self) -> impl Iterator<Item = u64> {
        // SAFETY: there is a word for each index.
        let word = |index| unsafe { self.at().slot(index) };
        // Relaxed: a word carries nothing but its own value.
        (0..self.indexes).map(move |index| word(index).load(Ordering::Relaxed))
    }
}

impl<W: Testbed> Drop for BareWords<W> {
    fn drop(&mut self) {
        for index in 0..self.indexes {
            // SAFETY: there is a word for each index, which is dropped once, here.
            unsafe { self.first.byte_add(index * W::STRIDE).drop_in_place() };
        }
        // SAFETY: mapped with this layout by `new_in`.
        unsafe { W::unmap(self.first.cast(), self.layout) };
    }
}

fn words<W: Testbed>() -> Arc<BareWords<W>> {
    Arc::new(BareWords::new_in(IndexBy::Cpu).expect("CPUs have numbers"))
}

/// Checks conservation. The sum must contain all concurrent additions, on one CPU and on several,
/// even if another thread fences them meanwhile. An addition that finds no slot must have no
/// effect.
pub fn no_addition_is_lost<W: Testbed>() {
    let words = words::<W>();
    let adder = |delta| {
        let words = Arc::clone(&words);
        move || (0..rounds::<W>()).filter(|_| words.add(delta).is_ok()).count() as u64 * delta
    };
    let here = W::cpu();
    let place = |placement, delta| W::spawn(placement, adder(delta)).ok();
    let elsewhere = W::topology()
        .cpus()
        .filter(|cpu| cpu.id != here)
        .find_map(|cpu| place(Placement::On(cpu.id), 100))
        .unwrap_or_else(|| spawn::<W, _>(adder(100)));
    let same = [1, 10].map(|delta| {
        place(Placement::On(here), delta).unwrap_or_else(|| spawn::<W, _>(adder(delta)))
    });
    // A world that cannot fence its sections says so; there is nothing to check then.
    let _ = W::fence_restartable();
    let added = elsewhere.join() + same.into_iter().map(JoinHandle::join).sum::<u64>();
    assert_eq!(words.values().sum::<u64>(), added);
}

/// Checks that an addition of a placed thread changes the word of its CPU, if there is one, and no
/// other word. An index at the limit has no word.
pub fn an_addition_lands_in_the_slot_of_its_cpu<W: Testbed>() {
    let machine = W::topology();
    let placed = machine.cpus().filter_map(|cpu| {
        let words = words::<W>();
        let theirs = Arc::clone(&words);
        let thread = W::spawn(Placement::On(cpu.id), move || {
            // Where no thread was registered yet, this one is now.
            let index = W::index(theirs.section());
            let added = theirs.add(7).is_ok();
            // Relaxed: the thread itself reads it next.
            theirs.limit().store(u32::try_from(index).unwrap_or(0), Ordering::Relaxed);
            (index, added, theirs.add(1))
        });
        Some((cpu.id, thread.ok()?.join(), words))
    });
    // One CPU would not tell its slot from a slot that is always the same.
    let placed: Vec<_> = placed.take(2).collect();
    assert!(!placed.is_empty(), "a thread can run on some CPU");
    for (cpu, (index, added, beyond), words) in placed {
        assert!(!added || index == cpu.index(), "{cpu} has index {index}");
        assert!(!added || W::runs_sections(words.section()), "{cpu} ran a section");
        assert_eq!(beyond, Err(NoSlot), "{cpu} used a slot at the limit");
        for (at, value) in words.values().enumerate() {
            let expected = if added && at == index { 7 } else { 0 };
            assert_eq!(value, expected, "{cpu} did not add to its word alone: {at}");
        }
    }
}

/// Checks that every possible CPU has an index, and that a thread's index is one of these. If the
/// thread has a concurrency ID, that must also be in bounds.
pub fn indexes_are_in_bounds<W: Testbed>() {
    let (section, indexes) = W::section(IndexBy::Cpu).expect("every world numbers its CPUs");
    assert!(indexes >= W::topology().cpu_limit());
    assert!(W::index(&section) < indexes);
    match W::section(IndexBy::KernelCid) {
        Ok((section, indexes)) => {
            assert!(W::index(&section) < indexes);
            assert!(W::kernel_cid().is_some_and(|cid| cid.index() < indexes));
        }
        Err(lacking) => assert_eq!(lacking.world, W::NAME),
    }
}
