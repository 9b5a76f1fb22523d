//! [`Slots`]: where the readers of a biased lock count themselves, and how a lock becomes biased
//! and ceases to be.
//!
//! `BIASED` and the gate change together, under the lock of the slots (the one that
//! [`stop_all`](crate::percpu::Slots) holds). So an open gate implies `BIASED`:
//!
//! ```text
//! Reader 1: finds the lock biased, and no slot for its CPU; makes the slot
//! Writer:   closes the gate, adds up, clears BIASED, takes the lock
//! Reader 1: opens the gate                          <- if it did not look at BIASED again
//! Reader 2: had seen BIASED; counts itself in its slot, and reads beside the writer
//! ```
//!
//! | constant | why this value | test |
//! |---|---|---|
//! | `TIMES` | BRAVO's: a tenth of writers' time | `writers_seldom_find_the_lock_biased` |
//! | `SOON` | a line that moves less often costs a tenth or less | `threads_that_seldom_read_..` |
//! | `TURN` | several moves of a line, and little of a thread's turn | `near_readers_do_not_..` |
//! | `TURN`, `TIMES` | readers wait a tenth of their time in vain | `readers_seldom_wait_in_..` |

use core::ptr;
use core::time::Duration;

use coreline_world::{IndexBy, Integer, Lacking, Line, Ordering, Unsigned, Word, World};

use super::super::spin::looks;
use super::raw::{BIASED, CLOSED, HELD, MOST_READERS, READER, RawBiasedRwLock, WANTS, readers};
use crate::heap;
use crate::percpu::{Init, PerCpu, PerCpuPool, StopError};

/// How many times as long as it took to take the bias back the lock is not biased again, and how
/// many times as long as a reader waited in vain none waits again.
pub(super) const TIMES: u32 = 9;

/// A lock gets slots only if another thread reads within this time.
pub(super) const SOON: Duration = Duration::from_micros(2);

/// How long a reader waits for another one that opens the gate.
pub(super) const TURN: Duration = Duration::from_micros(20);

/// The readers that slots count.
pub(super) struct Slots<W: World> {
    counts: PerCpu<W::U64, W>,
    /// The part of their sum that was moved into the word. The first writer writes it.
    moved: W::U64,
    /// The time from which the lock may be biased again, in ns. The first writer writes it.
    until: W::U64,
    /// The time from which readers wait again for a thread that opens the gate, in ns. A reader
    /// that waited in vain writes it.
    waits_at: W::U64,
}

impl<W: World> Slots<W> {
    /// No reader was counted. `None` if the machine has no sections or cannot fence them, or if
    /// there is no memory.
    fn new_in() -> Option<Self> {
        let by = IndexBy::Cpu;
        if !W::runs_sections(&W::section(by).ok()?.0) {
            return None;
        }
        let init = Init::Function(|| W::U64::new_in(0));
        let counts = PerCpuPool::global_in(by).ok()?.per_cpu_of(init).ok()?;
        W::fence_restartable().ok()?;
        let [moved, until, waits_at] = [(); 3].map(|()| W::U64::new_in(0));
        Some(Slots { counts, moved, until, waits_at })
    }

    /// How many reads there are beyond those that were moved, given the sum of the slots.
    pub(super) fn unmoved(&self, sum: u64) -> i64 {
        // Relaxed: written by the first writer, and each first writer sees the one before.
        sum.wrapping_sub(self.moved.load(Ordering::Relaxed)).cast_signed()
    }

    /// Notes that this many more were moved. The caller is the first writer.
    pub(super) fn note_moved(&self, more: i64) {
        // Relaxed: the first writer alone writes it.
        self.moved.fetch_add(more.cast_unsigned(), Ordering::Relaxed);
    }

    /// Waits while another thread opens the gate, at most for [`TURN`].
    ///
    /// The caller reads, so a writer may wait for it: it keeps its CPU. The other thread may have
    /// none, and then readers wait in vain. So after such a wait none waits for a while.
    fn wait_for_opener(&self) {
        let is_over = || (!self.counts.is_gate_busy()).then_some(());
        if is_over().is_some() {
            return;
        }
        let now = W::now();
        // Relaxed: a hint.
        if now.as_nanos() >= self.waits_at.load(Ordering::Relaxed)
            && looks::<W, _>(now + TURN, is_over).is_none()
        {
            // Relaxed: a hint. Not by the time that the wait took: this thread may have been away.
            self.waits_at.store((W::now() + TIMES * TURN).as_nanos(), Ordering::Relaxed);
        }
    }

    /// As [`unmoved`](Slots::unmoved), by a sum during which readers may come and go.
    pub(super) fn about(&self) -> i64 {
        self.unmoved(self.counts.sum())
    }
}

impl<W: World> RawBiasedRwLock<W> {
    /// Whether the word and the slots together have readers. Exact if none comes or goes meanwhile.
    pub(super) fn has_readers(&self, state: u32) -> bool {
        let unmoved = self.slots().map_or(0, Slots::about);
        unmoved + i64::from(readers(state)) != 0
    }

    /// Makes the lock biased, if it may be. The caller reads, and was counted in the word.
    ///
    /// A lock gets slots only where threads read at the same time. Either the caller has met
    /// another reader, or it waits a little for one.
    #[cold]
    #[inline(never)]
    pub(super) fn bias(&self, has_met: bool) {
        let Some(slots) = self.slots().or_else(|| self.make_slots(has_met)) else {
            return;
        };
        // Relaxed, twice: hints.
        let until = slots.until.load(Ordering::Relaxed).max(self.close_at.load(Ordering::Relaxed));
        if W::now().as_nanos() >= until {
            self.open_gate(slots, || self.become_biased());
        }
    }

    /// Whether another thread reads within about [`SOON`]. The caller used the lock last. It reads,
    /// so a writer may wait for it, and it keeps its CPU.
    fn is_shared(&self) -> bool {
        // Relaxed: a count of what pays.
        let tally = self.tally.load(Ordering::Relaxed);
        // Relaxed: likewise.
        let look = || (self.tally.load(Ordering::Relaxed) != tally).then_some(());
        looks::<W, _>(W::now() + SOON, look).is_some()
    }

    /// Initialises the slot of the caller's CPU, and the next ones up to a power of two, and opens
    /// the gate to them. Each opening writes to the line that all readers use meanwhile, so there
    /// are few.
    ///
    /// If another thread does this, the call [waits](Slots::wait_for_opener) for it. That thread
    /// needs the line, too:
    ///
    /// ```text
    /// Thread 1: holds the lock of the slots, and waits for the line, to open the gate
    /// Others:   find no slot; find that lock taken; count themselves in the word
    /// Machine:  gives them the line, which are nearer to it, again and again
    /// ```
    pub(super) fn open_gate(&self, slots: &Slots<W>, may: impl FnOnce() -> bool) {
        let counts = &slots.counts;
        slots.wait_for_opener();
        let own = W::index(counts.section());
        if own < counts.indexes() {
            counts.populate((own + 1).next_power_of_two().min(counts.indexes()) - 1);
        }
        counts.open_gate(&self.gate, may);
    }

    /// Sets `BIASED`, where the state allows it.
    fn become_biased(&self) -> bool {
        // Relaxed: the exchange looks again.
        let mut state = self.state.load(Ordering::Relaxed);
        while state & (HELD | CLOSED | WANTS | BIASED) == 0 {
            // Release: pairs with the Acquire of the first writer, which then sees the slots.
            // Relaxed on failure: nothing was changed.
            let (done, failed) = (Ordering::Release, Ordering::Relaxed);
            match self.state.compare_exchange_weak(state, state | BIASED, done, failed) {
                Ok(_) => return true,
                Err(found) => state = found,
            }
        }
        state & BIASED != 0
    }

    /// Makes sure that later readers find a slot for the caller's CPU. The caller reads, was
    /// counted in the word, and found the lock biased.
    #[cold]
    #[inline(never)]
    pub(super) fn find_slot(&self) {
        if let Some(slots) = self.slots() {
            // Relaxed: a writer clears the bit under the lock that the call holds.
            self.open_gate(slots, || self.state.load(Ordering::Relaxed) & BIASED != 0);
        }
    }

    /// Gives the lock slots, if it can have any and the caller does not read alone.
    fn make_slots(&self, has_met: bool) -> Option<&Slots<W>> {
        if !has_met && !self.is_shared() {
            return None;
        }
        // On a line that no thread writes while the lock is biased.
        let slots = heap::boxed(Line(Slots::<W>::new_in()?)).ok()?;
        let given = Box::into_raw(slots);
        // Release: pairs with the Acquire in `slots`. Relaxed on failure: they are not read here.
        let (done, failed) = (Ordering::Release, Ordering::Relaxed);
        if self.slots.compare_exchange(0, given.expose_provenance(), done, failed).is_err() {
            // SAFETY: from the box above, and no other thread knows it.
            drop(unsafe { Box::from_raw(given) });
        }
        self.slots()
    }

    pub(super) fn slots(&self) -> Option<&Slots<W>> {
        // Acquire: pairs with the Release in `make_slots`. Without it, the slots could be seen
        // unwritten.
        let at = self.slots.load(Ordering::Acquire);
        // SAFETY: zero, or the address of a box that `make_slots` gave away, and that lives until
        // the lock drops.
        unsafe { ptr::with_exposed_provenance::<Line<Slots<W>>>(at).as_ref() }.map(|line| &line.0)
    }

    /// Takes the bias back, and moves the readers of the slots into the word. Returns false, and
    /// leaves the lock biased, if the word cannot count this many. The caller is the first writer,
    /// and found the lock biased.
    pub(super) fn unbias(&self) -> Result<bool, Lacking> {
        let slots = self.slots().expect("a biased lock has slots");
        let begun = W::now();
        // The gate is closed from here on, and no section that began before is under way. So
        // readers come and go in the word alone, and the sum does not change.
        let moved = slots.counts.stop_all(Some(&self.gate), |all| {
            // Relaxed: the fence came between all sections that committed and this.
            let counts = all.map(|count| count.load(Ordering::Relaxed));
            self.move_to_word(slots, slots.unmoved(counts.fold(0, Unsigned::wrapping_add)))
        });
        match moved {
            Ok(true) => {}
            // The gate stays closed, and readers use the word. One that comes opens it again.
            Ok(false) => return Ok(false),
            Err(StopError::Lacking(lacking)) => return Err(lacking),
            Err(other) => unreachable!("the first writer stops the slots once: {other}"),
        }
        let now = W::now();
        // Relaxed: a hint.
        slots.until.store((now + TIMES * (now - begun)).as_nanos(), Ordering::Relaxed);
        Ok(true)
    }

    /// Adds this many readers to the word, which is biased no more. Returns false if these are more
    /// than the word can count:
    ///
    /// ```text
    /// Readers: take the lock 2^24 times, and are counted in slots
    /// Writer:  adds 2^24 to the word, finds no reader there, takes the lock     <- if it did
    /// ```
    fn move_to_word(&self, slots: &Slots<W>, unmoved: i64) -> bool {
        // Relaxed: readers that come or go meanwhile are fewer than the word has room for beyond
        // its limit.
        let in_word = readers(self.state.load(Ordering::Relaxed));
        if unmoved + i64::from(in_word) >= i64::from(MOST_READERS) {
            return false;
        }
        slots.note_moved(unmoved);
        let added = (unmoved as u32).wrapping_mul(READER).wrapping_sub(BIASED);
        // Release: pairs with the Acquire in `write_at_once` and `take`: a writer that comes later,
        // and finds the word at zero, comes after what the readers of the slots have read.
        self.state.fetch_add(added, Ordering::Release);
        true
    }
}

impl<W: World> Drop for RawBiasedRwLock<W> {
    fn drop(&mut self) {
        // Relaxed: no other thread uses the lock.
        let at = self.slots.load(Ordering::Relaxed);
        if at != 0 {
            let slots = ptr::with_exposed_provenance_mut::<Line<Slots<W>>>(at);
            // SAFETY: from the box that `make_slots` gave away, and dropped once, here.
            drop(unsafe { Box::from_raw(slots) });
        }
    }
}
