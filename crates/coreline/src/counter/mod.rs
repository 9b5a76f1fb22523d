//! Counters that are cheap to add to from every CPU at once.
//!
//! One shared word costs a line transfer for every addition, because each CPU must own the line to
//! add: with n CPUs adding, n times the latency of one transfer. So each CPU gets a word of its
//! own, and reading sums them up. The kernel's `percpu_counter` does the same.
//!
//! The addition is a [restartable operation](coreline_world::restartable), so it needs no atomic
//! instruction either: a plain add to memory, on the CPU that owns the slot.
//!
//! | type | is |
//! |---|---|
//! | [`PerCpuCounter`] | one counter |
//! | [`CounterSet`] | several, side by side in each CPU's slot |
//! | [`CounterVec`] | the same, as many as are known at run time |
//! | [`Total`] | one that only grows, unsigned |
//! | [`PerCpuFold`] | a maximum, a minimum or a floating-point sum |
//!
//! Each of them has `const_new` for statics, and `drain`, which reads and begins anew and loses no
//! addition.
//!
//! # Compact at first
//!
//! Many counters are touched by one CPU only, and by that a few times. So a counter begins as one
//! word in itself, and gets slots when a second CPU adds, or when it turns out to be hot. Adding is
//! atomic until then. So it is where there is no memory for slots; it tries again after twice as
//! many additions each time, up to 2^20, and its `Debug` says so.
//!
//! # Reading
//!
//! [`read_exact`](PerCpuCounter::read_exact) sums the slots that were used. That is a line for each
//! such CPU, most of them in that CPU's cache. A *batched* counter can be read from one line
//! instead, with an error that is reported:
//!
//! ```text
//! a slot's word      |        blocks of 2^k        |  rest of k bits  |
//! the central word   = the sum of all slots' blocks
//! ```
//!
//! An addition that stays in its slot's block touches nothing else. One that leaves it also adds
//! the difference of the blocks to the central word: once in about 2^k / delta additions. What the
//! central word does not have are the rests, each from 0 to 2^k - 1, and the differences that are
//! on their way to it. Those are announced before the slot changes, and said to have arrived
//! afterwards; both words only grow, so a reader knows how much is on its way at most:
//!
//! ```text
//! Thread 1: announced += n;  slot leaves its block;  central += moved;  arrived += n
//! Thread 2: reads arrived;   reads central;          reads announced
//! ```
//!
//! What thread 2 sees arrived, it sees in the central word. What it does not see there, though the
//! slot changed before another addition to it that thread 2 knows of, it sees announced, and not
//! arrived. One word that rises and falls would not do: it can be read before an addition is
//! announced, and the central word after another thread has gone on from where that left the slot.
//!
//! # Draining
//!
//! `drain` leaves the slots alone: it remembers what their sum was, in a word of its own, and the
//! next one returns how much they have grown since. (A [`PerCpuFold`] cannot be subtracted from: it
//! stops its slots, and empties them.)
//!
//! # The law
//!
//! After any set of additions has happened, and while none is under way, [`read_exact`] is their
//! sum but for what was drained, and [`read`] differs from it by no more than it says.
//! In the repository, `tests/laws/memory/counter.rs` and `tests/laws/memory/drain.rs` check it in
//! all three worlds.
//!
//! Sources: `include/linux/percpu_counter.h`; Yoo, ["kernel/fork: improve exec() throughput with
//! slab ctor/dtor pair"][yoo] (2025; per-CPU counters of an `mm`); Krisman Bertazi, ["Optimize
//! rss_stat initialization/teardown for single-threaded tasks"][krisman] (2025; counters with two
//! modes); Overstreet, "Lazy percpu counters" (2022).
//!
//! [yoo]: https://lore.kernel.org/r/20250424080755.272925-8-harry.yoo@oracle.com
//! [krisman]: https://lore.kernel.org/r/20251127233635.4170047-1-krisman@suse.de
//! [`read`]: PerCpuCounter::read
//! [`read_exact`]: PerCpuCounter::read_exact

mod fold;
mod set;
mod spread;
mod total;
mod vec;

use core::fmt;

use coreline_world::restartable::definition::Add;
use coreline_world::{Integer, Line, Native, Ordering, Word, World};

use crate::percpu::PerCpuPool;
use crate::{IndexBy, Lacking};
use spread::Spread;

pub use fold::{Fold, Max, Min, PerCpuFold, Sum};
pub use set::{CounterSet, Nonzero};
pub use total::Total;
pub use vec::CounterVec;

/// The value of a counter at some moment of a [read](PerCpuCounter::read), and how far it may be
/// off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The value.
    pub value: i64,
    /// The true value is at most so much larger or smaller. 0: exact.
    pub error: u64,
}

impl Reading {
    /// The least that the counter can be; saturating.
    pub fn low(self) -> i64 {
        self.value.saturating_sub_unsigned(self.error)
    }

    /// The most that the counter can be; saturating.
    pub fn high(self) -> i64 {
        self.value.saturating_add_unsigned(self.error)
    }
}

/// A signed counter with one slot for each CPU that adds to it.
///
/// ```
/// let hits = coreline::PerCpuCounter::new()?;
/// hits.add(2);
/// hits.add(-3);
/// assert_eq!(hits.read_exact(), -1);
/// # Ok::<(), coreline::Lacking>(())
/// ```
///
/// **Memory**: 32 bytes, and 136 of the global allocator: the word that all CPUs share, what was
/// drained, and where slots are to come from. Once it has slots, 8 bytes in each. For many counters
/// of one thing take a [`CounterSet`], or a [`CounterVec`]: 16 to 21 bytes for each counter, and 8
/// in each slot. A batched counter takes one cache line more.
///
/// **No memory**: a counter that finds none for its slots stays compact, and tries again after
/// twice as many additions each time, up to 2^20. `Debug` says so.
///
/// **Signals**: adding and reading is async-signal-safe, but for the first addition to one made by
/// [`const_new`](PerCpuCounter::const_new). An addition in a handler that interrupts an addition
/// loses neither.
///
/// **Fork**: the child has its own copy with the values at the time of the fork. An addition that
/// another thread had under way is in or out, never torn.
pub struct PerCpuCounter<W: World = Native> {
    spread: Spread<W::U64, W>,
    batched: Option<Box<Batched<W>>>,
}

/// What a batched counter has in addition.
struct Batched<W: World> {
    /// The bits of a slot's word that say which block it is in.
    block: u64,
    central: Line<Central<W>>,
}

/// | word | meaning | written by |
/// |---|---|---|
/// | `sum` | the sum of all slots' blocks, but for what is on its way | an add across blocks |
/// | `announced` | how much ever was on its way, up or down, at most | the same, before |
/// | `arrived` | how much of that no longer is | the same, afterwards |
struct Central<W: World> {
    sum: W::U64,
    announced: W::U64,
    arrived: W::U64,
}

const _: () = {
    assert!(size_of::<Central<Native>>() == 24);
    assert!(align_of::<Central<Native>>() == 8);
    assert!(size_of::<Line<Central<Native>>>() == 64);
    assert!(align_of::<Line<Central<Native>>>() == 64);
};

impl PerCpuCounter {
    /// A counter at zero, indexed by CPU number, from the process's global pool.
    ///
    /// # Errors
    ///
    /// None natively; see [`new_in`](PerCpuCounter::new_in).
    pub fn new() -> Result<Self, Lacking> {
        Self::new_in(IndexBy::Cpu)
    }

    /// As [`new`](PerCpuCounter::new), with the slots indexed as asked.
    ///
    /// ```
    /// use coreline::{IndexBy, PerCpuCounter};
    ///
    /// let hits = PerCpuCounter::indexed_by(IndexBy::KernelCid).or_else(|_| PerCpuCounter::new())?;
    /// hits.add(1);
    /// # Ok::<(), coreline::Lacking>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new_in`](PerCpuCounter::new_in).
    pub fn indexed_by(by: IndexBy) -> Result<Self, Lacking> {
        Self::new_in(by)
    }

    /// As [`new`](PerCpuCounter::new), for statics. The first addition allocates, so that one is
    /// not async-signal-safe. A global allocator that counts must not count what that one
    /// allocates: it would come back here without end.
    ///
    /// If it is also the process's first use of per-CPU memory, it finds out what this machine
    /// offers: it reads files of the system, starts threads for some milliseconds, and waits for
    /// the dynamic loader. So a thread that adds first while it holds a mutex which the constructor
    /// of a library takes may wait for a `dlopen` that waits for it. `add(0)` at the start of
    /// `main` has that done.
    ///
    /// ```
    /// use coreline::PerCpuCounter;
    ///
    /// static REQUESTS: PerCpuCounter = PerCpuCounter::const_new();
    ///
    /// REQUESTS.add(1);
    /// assert_eq!(REQUESTS.read_exact(), 1);
    /// ```
    pub const fn const_new() -> Self {
        PerCpuCounter { spread: Spread::const_new(), batched: None }
    }
}

impl Default for PerCpuCounter {
    /// As [`const_new`](PerCpuCounter::const_new).
    fn default() -> Self {
        Self::const_new()
    }
}

/// What words begin as.
fn zero<W: World>() -> W::U64 {
    W::U64::new_in(0)
}

impl<W: World> PerCpuCounter<W> {
    /// A counter at zero in world `W`, with the slots indexed as asked, from the world's global
    /// pool. Natively [`indexed_by`](PerCpuCounter::indexed_by) does the same, and needs no type.
    ///
    /// By concurrency ID an addition takes half as long again (0.81 ns beside 0.55 on a Zen 4):
    /// a thread that the kernel does not know can seem to have one, so it looks twice.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index: some kernels keep no concurrency
    /// IDs.
    pub fn new_in(by: IndexBy) -> Result<Self, Lacking> {
        Ok(Self::from_pool(&PerCpuPool::global_in(by)?))
    }

    /// A counter at zero whose slots come from this pool.
    pub fn from_pool(pool: &PerCpuPool<W>) -> Self {
        PerCpuCounter { spread: Spread::new_in(pool.clone(), zero::<W>), batched: None }
    }

    /// Makes [`read`](PerCpuCounter::read) look at one line, for an error of half a `batch`,
    /// rounded up to a power of two, in each slot that is used. One addition in `batch` goes to
    /// that line, too: with n CPUs that all add once in t nanoseconds, a batch below n times the
    /// time of a line transfer divided by t makes it hot.
    ///
    /// The errors that are reported hold as long as what threads are adding at one moment, leaving
    /// a block, is below 2^64 in sum.
    #[must_use]
    pub fn batched(mut self, batch: u32) -> Self {
        let block = !(u64::from(batch).next_power_of_two() - 1);
        self.spread.slow_down();
        // Slots may have left blocks already, unbatched or by another batch.
        let slots = self.spread.slots().into_iter().flat_map(|slots| slots.iter());
        // Relaxed: only this thread has the counter, and it got the additions with it.
        let blocks = slots.map(|word| word.load(Ordering::Relaxed) & block);
        let central = Central {
            sum: W::U64::new_in(blocks.fold(0, u64::wrapping_add)),
            announced: W::U64::new_in(0),
            arrived: W::U64::new_in(0),
        };
        let batched = Some(Box::new(Batched { block, central: Line(central) }));
        PerCpuCounter { batched, ..self }
    }

    /// Adds `delta`, wrapping.
    ///
    /// Orders nothing: an addition publishes only itself.
    #[inline]
    pub fn add(&self, delta: i64) {
        // Two's complement: the wrapping sum of the bit patterns is the bit pattern of the wrapping
        // sum.
        let delta = delta.cast_unsigned();
        // SAFETY: it is one word.
        if W::run(unsafe { self.spread.at(0) }, Add(delta)).is_err() {
            self.add_otherwise(delta);
        }
    }

    #[inline(never)]
    fn add_otherwise(&self, delta: u64) {
        let slots = match self.spread.note_addition(self.batched.is_none(), zero::<W>) {
            Ok(slots) => slots,
            Err(compact) => {
                // Relaxed: a counter carries nothing but its own value.
                compact.fetch_add(delta, Ordering::Relaxed);
                return;
            }
        };
        let word = slots.field(|word| word);
        let Some(batched) = &self.batched else {
            word.add(delta);
            return;
        };
        if word.add_if(delta, batched.block).is_err() {
            batched.leave_block(delta, || match word.add_if(delta, 0) {
                Ok(sum) | Err(sum) => sum,
            });
        }
    }

    /// The value, as cheaply as it can be had: from one line, or two, if the counter is
    /// [batched](PerCpuCounter::batched), with an error; else as
    /// [`read_exact`](PerCpuCounter::read_exact).
    ///
    /// Additions that happened before the call are in, but for the error; each concurrent one is in
    /// or out.
    pub fn read(&self) -> Reading {
        let (Some(slots), Some(batched)) = (self.spread.slots(), &self.batched) else {
            return Reading { value: self.read_exact(), error: 0 };
        };
        let drained = self.spread.drained(|word| word);
        let Central { sum, announced, arrived } = &*batched.central;
        // Acquire pairs with the release in `leave_block`: what has arrived is in the sum.
        let arrived = arrived.load(Ordering::Acquire);
        // Acquire pairs with the release in `leave_block`: additions that the slot saw before those
        // in the sum are announced.
        let blocks = sum.load(Ordering::Acquire);
        // Relaxed: the acquires above order it behind what it must not miss.
        let on_its_way = announced.load(Ordering::Relaxed).wrapping_sub(arrived);
        // Relaxed: a counter carries nothing but its own value. Additions that happened before this
        // call are seen because reads of one word never go back.
        let compact = self.spread.shared().map_or(0, |word| word.load(Ordering::Relaxed));
        let rests = (slots.populated() as u64 + 1).wrapping_mul(!batched.block);
        // The rests are between none and all of that.
        let value = compact.wrapping_sub(drained).wrapping_add(blocks).wrapping_add(rests / 2);
        Reading { value: value.cast_signed(), error: rests.div_ceil(2).saturating_add(on_its_way) }
    }

    /// The sum of all that was added, wrapping. Reads one line for each CPU that added.
    ///
    /// Exact if no thread adds meanwhile. Otherwise every addition that happened before the call is
    /// in, and each concurrent one is in or out.
    pub fn read_exact(&self) -> i64 {
        self.spread.sum(|word| word).cast_signed()
    }

    /// As [`read_exact`](PerCpuCounter::read_exact), and takes what it returns out of the counter,
    /// which loses nothing: each addition is in what one call returns, or still in the counter. For
    /// metrics that are reported as what was added since the last report.
    ///
    /// Of a counter that is only added to, it never returns less than 0.
    ///
    /// ```
    /// let requests = coreline::PerCpuCounter::new()?;
    /// requests.add(3);
    /// assert_eq!((requests.drain(), requests.drain()), (3, 0));
    /// requests.add(1);
    /// assert_eq!(requests.read_exact(), 1);
    /// # Ok::<(), coreline::Lacking>(())
    /// ```
    pub fn drain(&self) -> i64 {
        self.spread.drain(|word| word).cast_signed()
    }

    /// Sets the value, as of a gauge, and returns what it was, wrapping.
    ///
    /// Each concurrent addition is in what it returns, and gone, or comes on top of `value`. If
    /// several threads set it or drain it at one time, only the sum is kept: what they return and
    /// what is left is what was set and added.
    ///
    /// It reads one line for each CPU that added: a gauge that is only ever set is an atomic.
    ///
    /// ```
    /// let queued = coreline::PerCpuCounter::new()?;
    /// queued.add(3);
    /// assert_eq!(queued.set(10), 3);
    /// queued.add(-1);
    /// assert_eq!(queued.read_exact(), 9);
    /// # Ok::<(), coreline::Lacking>(())
    /// ```
    pub fn set(&self, value: i64) -> i64 {
        self.spread.replace(|word| word, value.cast_unsigned(), zero::<W>).cast_signed()
    }

    /// Adds `delta`, and returns about what the counter is then: as [`read`](PerCpuCounter::read),
    /// which is cheap if the counter is [batched](PerCpuCounter::batched).
    ///
    /// The addition itself is in, but for the error; each concurrent one is in or out.
    ///
    /// ```
    /// let open = coreline::PerCpuCounter::new()?.batched(64);
    /// if open.add_and_read(1).low() > 10_000 {
    ///     open.add(-1); // Surely too many.
    /// }
    /// # Ok::<(), coreline::Lacking>(())
    /// ```
    #[inline]
    pub fn add_and_read(&self, delta: i64) -> Reading {
        self.add(delta);
        self.read()
    }

    /// Whether the counter has slots, rather than one word.
    pub fn is_spread(&self) -> bool {
        self.spread.slots().is_some()
    }
}

impl<W: World> Batched<W> {
    /// Adds to a slot, by `add`, which returns the sum there, and moves the central sum along with
    /// the slot's block.
    fn leave_block(&self, delta: u64, add: impl FnOnce() -> u64) {
        // The block moves by what the word moves, up or down to a multiple of its size.
        let announced = delta.cast_signed().unsigned_abs().saturating_add(!self.block);
        // Relaxed: the slot's change after it is a release, for the slot's next change.
        self.central.announced.fetch_add(announced, Ordering::Relaxed);
        let sum = add();
        let before = sum.wrapping_sub(delta);
        let moved = (sum & self.block).wrapping_sub(before & self.block);
        // Release pairs with the acquire in `read`: a read that sees this sees what was announced
        // before the slot was as this addition found it.
        self.central.sum.fetch_add(moved, Ordering::Release);
        // Release pairs with the acquire in `read`: a read that sees this sees `sum` with it.
        self.central.arrived.fetch_add(announced, Ordering::Release);
    }
}

impl<W: World> fmt::Debug for PerCpuCounter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCpuCounter")
            .field("value", &self.read_exact())
            .field("slots", &self.spread)
            .finish_non_exhaustive()
    }
}
