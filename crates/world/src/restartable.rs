//! Restartable operations: per-CPU memory without atomic instructions.
//!
//! A thread that updates the memory of *its* CPU needs no atomic instruction, as long as it can
//! tell that it was preempted or moved half-way, and then starts over. Linux offers that as rseq
//! (restartable sequences, [`rseq(2)`]; the vocabulary here is librseq's): a short section of code
//! that reads what it likes and ends in **one** store, the commit. If the thread is preempted,
//! moved or signalled before the commit, the kernel sends it to the section's abort handler.
//!
//! # The definition is executable
//!
//! [`add`] is the definition of the operation of that name: a sequence of [`Steps`]. Between any
//! two of them, and nowhere else, the thread may be interrupted; a step then answers [`Aborted`],
//! nothing has been written, and the operation starts over. Nothing in the definition says how:
//!
//! * the simulator *interprets* it, and may preempt, move or fence the thread between any two
//!   steps;
//! * `Native` *implements* it, in assembly, and the tests of `crate::arch` compare the two with an
//!   abort forced at every step;
//! * a world without restartable sections runs the operation as one atomic instruction on the slot
//!   (the model, and `Native` where rseq is not to be had). Which way is settled once, before the
//!   first slot is used: plain and atomic additions to one slot would lose updates.
//!
//! # Slots
//!
//! Memory is [`PerCpuWords`]: one slot per possible index, each on its own line, and one *shared*
//! slot behind them. A thread whose index cannot be had (it was started behind the C library's
//! back, so nobody registered it for rseq) adds to the shared slot atomically. Nothing is lost and
//! nothing is out of bounds; that is slower, and rare.
//!
//! [`rseq(2)`]: https://docs.kernel.org/userspace-api/rseq.html

use core::fmt;

use crate::{Lacking, Line, Ordering, Word, Words};

/// The thread was preempted, moved or signalled inside a restartable operation before its commit.
///
/// Nothing was written. The operation starts over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted;

/// What one step of a restartable operation can be. The interpreter may interrupt the thread before
/// each of them.
///
/// An interpreter promises: if the thread was interrupted since the operation began, the next step
/// returns [`Aborted`] without effect. So a [`commit`](Steps::commit) that succeeds happened with
/// the thread on the CPU of its [`load_index`](Steps::load_index), and with no other thread of that
/// CPU in between.
pub trait Steps {
    /// Reads the index of the slot that belongs to this thread now.
    fn load_index(&mut self) -> Result<usize, Aborted>;

    /// Reads a slot.
    fn load(&mut self, slot: usize) -> Result<u64, Aborted>;

    /// Writes a slot and ends the operation. The only step that writes, and the last.
    fn commit(&mut self, slot: usize, value: u64) -> Result<(), Aborted>;
}

/// The definition of *load, add, store*: adds `delta` to the slot of the CPU that runs it,
/// wrapping.
///
/// librseq calls it `rseq_load_add_store`.
///
/// # Errors
///
/// [`Aborted`] if a step was; the caller starts over.
pub fn add(steps: &mut impl Steps, delta: u64) -> Result<(), Aborted> {
    let slot = steps.load_index()?;
    let old = steps.load(slot)?;
    steps.commit(slot, old.wrapping_add(delta))
}

/// What picks the slot of per-CPU memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexBy {
    /// The CPU number: always there, as many slots as the machine may ever have CPUs.
    Cpu,
    /// The kernel's concurrency ID (`mm_cid`): compact, below the number of threads and of allowed
    /// CPUs; not on every kernel.
    KernelCid,
}

impl fmt::Display for IndexBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IndexBy::Cpu => "cpu-id",
            IndexBy::KernelCid => "kernel-cid",
        })
    }
}

/// The capability *restartable operations*.
///
/// All operations are async-signal-safe, and a signal handler's own operation on the same memory is
/// never lost and never makes the interrupted one lose its update.
pub trait Restartable: Words {
    /// How this machine runs the operations on an index: settled when the memory is made, and the
    /// same for all memory of one index in one machine.
    type Section: Copy + Send + Sync + fmt::Debug;

    /// Settles how to run operations indexed by `by`, and how many indexes there can be.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    fn section(by: IndexBy) -> Result<(Self::Section, usize), Lacking>;

    /// The calling thread's present index, as a hint: it may change at any time, and may be out of
    /// range where the thread is not registered.
    fn index(section: &Self::Section) -> usize;

    /// Adds `delta` to the calling CPU's slot, as [`add`] defines; to the shared slot if the thread
    /// has no index.
    fn add(words: &PerCpuWords<Self>, delta: u64);
}

/// Per-CPU words: one `u64` slot on a line of its own for each index that there can be, and one
/// shared slot.
///
/// The raw memory that [`Restartable`] works on; primitives wrap it. `W::Section` and the number of
/// slots are fixed together here, so no index that passes the section's own bound check is out of
/// bounds.
pub struct PerCpuWords<W: Restartable> {
    section: W::Section,
    /// `indexes + 1` slots; the last is the shared one.
    slots: Box<[Line<W::U64>]>,
}

impl<W: Restartable> PerCpuWords<W> {
    /// Zeroed slots, one for each index that this machine can have.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    pub fn new_in(by: IndexBy) -> Result<Self, Lacking> {
        let (section, indexes) = W::section(by)?;
        let slots = (0..=indexes).map(|_| Line(W::U64::new_in(0))).collect();
        Ok(PerCpuWords { section, slots })
    }

    /// How operations on this memory run.
    pub fn section(&self) -> &W::Section {
        &self.section
    }

    /// How many indexes there can be; the shared slot is not counted.
    pub fn indexes(&self) -> usize {
        self.slots.len() - 1
    }

    /// The slots, the shared one last.
    pub fn slots(&self) -> &[Line<W::U64>] {
        &self.slots
    }

    /// The slot for threads without an index. Only atomic operations may write it.
    pub fn shared(&self) -> &W::U64 {
        &self.slots[self.slots.len() - 1]
    }

    /// Adds `delta` to the slot of the calling CPU.
    #[inline]
    pub fn add(&self, delta: u64) {
        W::add(self, delta);
    }

    /// The wrapping sum of all slots, read one after the other.
    ///
    /// Exact if nobody adds meanwhile. Otherwise each concurrent addition is in or out; additions
    /// that happened before the call are in.
    pub fn sum(&self) -> u64 {
        // Relaxed: a slot carries nothing but its own value. An addition that happened before this
        // call is seen because reads of one word never go back in its modification order.
        self.slots.iter().fold(0, |sum, slot| sum.wrapping_add(slot.load(Ordering::Relaxed)))
    }
}

impl<W: Restartable> fmt::Debug for PerCpuWords<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCpuWords")
            .field("section", &self.section)
            .field("indexes", &self.indexes())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "model"))]
mod tests {
    use super::*;
    use crate::Integer;
    use crate::model::{Model, check};

    #[test]
    fn the_sum_has_every_slot_and_the_shared_one() {
        check(|| {
            let words = PerCpuWords::<Model>::new_in(IndexBy::Cpu).expect("CPUs have numbers");
            assert_eq!(words.slots().len(), words.indexes() + 1);
            // Relaxed, here and below: one thread.
            for (power, slot) in (0..).zip(words.slots()) {
                slot.fetch_add(10_u64.pow(power), Ordering::Relaxed);
            }
            assert_eq!(words.sum(), 11_111);
            assert_eq!(words.shared().load(Ordering::Relaxed), 10_000);
        });
    }
}
