//! Counters that all CPUs can add to cheaply at the same time.
//!
//! With one shared word, every addition costs a line transfer, because a CPU must own the line to
//! add. If n CPUs add, an addition takes n times the latency of one transfer. So each CPU gets its
//! own word, and a read sums the words. The kernel's `percpu_counter` does the same.
//!
//! The addition is a [restartable operation](coreline_world::restartable). So it needs no atomic
//! instruction either, but only a plain add to memory on the CPU that owns the slot.
//!
//! | type | is |
//! |---|---|
//! | [`PerCpuCounter`] | one counter |
//! | [`CounterSet`] | several counters, adjacent in each CPU's slot |
//! | [`CounterVec`] | several counters, whose number is chosen at run time |
//! | [`Total`] | an unsigned counter that only grows |
//! | [`PerCpuFold`] | a maximum, a minimum or a floating-point sum |
//! | [`Histogram`] | the number of recorded values in each bucket, and their quantiles |
//!
//! All of them except [`CounterVec`] and [`Histogram`] have a `const_new` for statics. All have a
//! `drain`, which reads and resets without losing an addition.
//!
//! # Compact at first
//!
//! Many counters are used by one CPU only, and only a few times. So a counter begins as one shared
//! word. It allocates slots when a second CPU adds, or when additions become frequent. Until then
//! every addition is atomic. Additions also stay atomic if there is no memory for slots. The
//! counter then retries, each time after twice as many additions as before, up to 2^20. Its `Debug`
//! output reports this state.
//!
//! # Reading
//!
//! [`read_exact`](PerCpuCounter::read_exact) sums the slots that were used. It reads one cache line
//! for each of these slots, and most of these lines are in the cache of the slot's CPU. A *batched*
//! counter can be read from one line instead, with an error that is reported:
//!
//! ```text
//! a slot's word      |        blocks of 2^k        |  rest of k bits  |
//! the central word   = the sum of all slots' blocks
//! ```
//!
//! An addition that stays in its slot's block accesses no other memory. An addition that leaves the
//! block also adds the difference of the blocks to the central word. This happens about once in 2^k
//! / delta additions. The central word lacks the remainders, each from 0 to 2^k - 1, and the
//! differences that are in flight. A difference is announced before the slot changes, and marked as
//! arrived afterwards. Both words only grow, so a reader knows an upper bound of the amount in
//! flight:
//!
//! ```text
//! Thread 1: announced += n;  slot leaves its block;  central += moved;  arrived += n
//! Thread 2: reads arrived;   reads central;          reads announced
//! ```
//!
//! If thread 2 sees a difference as arrived, it also sees the difference in the central word.
//! Suppose that thread 2 knows of a later addition to the same slot, and does not see the
//! difference in the central word. Then it sees the difference as announced and not arrived. A
//! single word that rises and falls is not enough. A reader could read this word before an addition
//! is announced. It could then read the central word after another thread has continued from the
//! slot's new value.
//!
//! # Draining
//!
//! `drain` does not change the slots. It stores their sum in a separate word, and the next `drain`
//! returns how much the sum has grown since. A fold cannot be subtracted, so [`PerCpuFold`] stops
//! its slots and empties them.
//!
//! # The law
//!
//! While no addition is in progress, [`read_exact`] returns the sum of all additions minus the
//! drained amounts. [`read`] differs from this sum by at most the error that it reports. In the
//! repository, `tests/laws/memory/counter.rs` and `tests/laws/memory/drain.rs` check the law in all
//! three worlds.
//!
//! Sources: `include/linux/percpu_counter.h`; Yoo, ["kernel/fork: improve exec() throughput with
//! slab ctor/dtor pair"][yoo] (2025; per-CPU counters of an `mm`); Krisman Bertazi, ["Optimize
//! rss_stat initialization/teardown for single-threaded tasks"][krisman] (2025; counters with two
//! modes); Overstreet, ["Lazy percpu counters"][overstreet] (2022).
//!
//! [yoo]: https://lore.kernel.org/r/20250424080755.272925-8-harry.yoo@oracle.com
//! [krisman]: https://lore.kernel.org/r/20251127233635.4170047-1-krisman@suse.de
//! [overstreet]: https://lore.kernel.org/r/20220830214919.53220-4-surenb@google.com
//! [`read`]: PerCpuCounter::read
//! [`read_exact`]: PerCpuCounter::read_exact

mod buckets;
mod constructors;
mod fold;
mod histogram;
mod set;
mod spread;
mod total;
mod vec;

use coreline_world::restartable::Gate;
use coreline_world::restartable::definition::Add;
use coreline_world::{Integer, Line, Native, Ordering, Word, World};

use crate::percpu::PerCpuPool;
use crate::{IndexBy, Lacking};
use spread::Spread;

pub use buckets::{Buckets, BucketsError};
pub use fold::{Fold, Max, Min, PerCpuFold, Sum};
pub use histogram::{DifferentBuckets, Histogram, HistogramSnapshot};
pub use set::{CounterSet, Nonzero};
pub use total::Total;
pub use vec::CounterVec;

/// The value of a counter at some moment during a [read](PerCpuCounter::read), with a bound on its
/// error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The value.
    pub value: i64,
    /// The largest possible difference from the true value, in either direction. If it is 0, the
    /// value is exact.
    pub error: u64,
}

impl Reading {
    /// Returns the lower bound of the counter's value, saturating.
    pub fn low(self) -> i64 {
        self.value.saturating_sub_unsigned(self.error)
    }

    /// Returns the upper bound of the counter's value, saturating.
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
/// **Memory**: a counter uses 32 bytes, and 136 bytes from the global allocator for the shared
/// word, the drained sum and the slots' pool. Once it has slots, it also uses 8 bytes in each of
/// them. For many related counters, use a [`CounterSet`] or a [`CounterVec`]. These use 16 to 21
/// bytes per counter, and 8 bytes per counter in each slot. A batched counter uses one more cache
/// line.
///
/// **No memory**: if there is no memory for its slots, a counter stays compact. It retries, each
/// time after twice as many additions as before, up to 2^20. The `Debug` output reports this state.
/// A counter that cannot be created [ends the process](crate#without-memory).
///
/// **Signals**: additions and reads are async-signal-safe, except for the first addition to a
/// counter from [`const_new`](PerCpuCounter::const_new). If a handler adds while it interrupts an
/// addition, both additions count.
///
/// **Fork**: the child has its own copy with the values at the time of the fork. If another thread
/// was adding at that moment, the child has all of that addition or none of it.
#[repr(C)]
pub struct PerCpuCounter<W: World = Native> {
    /// First, so that a section of another language knows where its gate is.
    spread: Spread<W::U64, W>,
    batched: Option<Box<Batched<W>>>,
}

/// The additional parts of a batched counter.
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
    /// Creates a counter at zero, indexed by CPU number, from the process's global pool.
    ///
    /// # Errors
    ///
    /// Natively, the call never fails. For other worlds, see [`new_in`](PerCpuCounter::new_in).
    pub fn new() -> Result<Self, Lacking> {
        Self::new_in(IndexBy::Cpu)
    }

    /// Creates a counter at zero, like [`new`](PerCpuCounter::new), with slots indexed by `by`.
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
    /// The same errors as for [`new_in`](PerCpuCounter::new_in).
    pub fn indexed_by(by: IndexBy) -> Result<Self, Lacking> {
        Self::new_in(by)
    }

    /// Creates a counter at zero, like [`new`](PerCpuCounter::new), in a const context. The first
    /// addition allocates, so it is not async-signal-safe. A global allocator that counts its
    /// allocations must not count the allocations of the first addition, because the recursion
    /// would never end.
    ///
    /// If the first addition is also the process's first use of per-CPU memory, it detects the
    /// features of this machine. To do so, it reads system files, starts threads for a few
    /// milliseconds, and waits for the dynamic loader. This can deadlock if the thread holds a
    /// mutex that a library's constructor takes. In that case, the addition waits for a `dlopen`
    /// that waits for the mutex. Call `add(0)` at the start of `main` to avoid this.
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
    /// Creates a counter at zero, like [`const_new`](PerCpuCounter::const_new).
    fn default() -> Self {
        Self::const_new()
    }
}

/// Returns the initial value of words.
fn zero<W: World>() -> W::U64 {
    W::U64::new_in(0)
}

impl<W: World> PerCpuCounter<W> {
    /// Creates a counter at zero in world `W`, with slots indexed by `by`, from the world's global
    /// pool. Natively, [`indexed_by`](PerCpuCounter::indexed_by) creates the same counter without a
    /// type annotation.
    ///
    /// With concurrency IDs, an addition takes 1.5 times as long as with CPU numbers (0.81 ns
    /// compared with 0.55 ns on a Zen 4). A thread that is not registered with the kernel can seem
    /// to have an ID, so the addition checks twice.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index. For example, some kernels have no concurrency
    /// IDs.
    pub fn new_in(by: IndexBy) -> Result<Self, Lacking> {
        Ok(Self::from_pool(&PerCpuPool::global_in(by)?))
    }

    /// Creates a counter at zero whose slots come from this pool.
    pub fn from_pool(pool: &PerCpuPool<W>) -> Self {
        PerCpuCounter { spread: Spread::new_in(pool.clone(), zero::<W>), batched: None }
    }

    /// Makes [`read`](PerCpuCounter::read) access only one cache line. For each used slot, the
    /// error of the read grows by half of `batch`, which is rounded up to a power of two. One
    /// addition in `batch` also writes that line. Suppose that n CPUs each add once every t
    /// nanoseconds. Then the line is contended if `batch` is less than n times the line transfer
    /// time, divided by t.
    ///
    /// The reported errors are correct as long as the sum of all concurrent additions that leave a
    /// block is less than 2^64.
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
    /// The addition is relaxed, so it publishes no other writes.
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

    /// Returns the address of the gate to the counter's word in each slot, for a section of another
    /// language. The word is at the beginning of what the gate opens to.
    ///
    /// Such a section does what the operation [`Add`] does, on the area that
    /// `native::area_of_sections` of `coreline-world` names. A thread that finds no slot calls
    /// [`add`](PerCpuCounter::add) instead. A [batched](PerCpuCounter::batched) counter never opens
    /// its gate. No code but this crate's may write to the gate.
    pub fn gate(&self) -> *const Gate<W> {
        self.spread.gate()
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

    /// Returns the value in the cheapest way. If the counter is [batched](PerCpuCounter::batched),
    /// the call reads one or two cache lines, and the value has an error. Otherwise, the value is
    /// exact, as from [`read_exact`](PerCpuCounter::read_exact).
    ///
    /// The result includes all additions that happened before the call, to within the error. A
    /// concurrent addition may or may not be included.
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

    /// Returns the wrapping sum of all additions. The call reads one cache line for each CPU that
    /// added.
    ///
    /// The result is exact if no thread adds meanwhile. Otherwise it includes every addition that
    /// happened before the call. A concurrent addition may or may not be included.
    pub fn read_exact(&self) -> i64 {
        self.spread.sum(|word| word).cast_signed()
    }

    /// Returns the sum, like [`read_exact`](PerCpuCounter::read_exact), and subtracts it from the
    /// counter. No addition is lost. Each addition is in the result of one call, or still in the
    /// counter. Use it for metrics that report the increase since the last report.
    ///
    /// If all additions are positive, the result is never negative.
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

    /// Sets the value, for example of a gauge. Returns the old value, wrapping.
    ///
    /// A concurrent addition is either in the returned value, or added to `value`. If several
    /// threads set or drain the counter at the same time, only the total is preserved. The sum of
    /// the returned values and the remaining value equals the sum of all values that were set and
    /// added.
    ///
    /// The call reads one cache line for each CPU that added. For a gauge that is only set and
    /// never added to, use an atomic instead.
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

    /// Adds `delta`, and returns the approximate new value, like [`read`](PerCpuCounter::read).
    /// This is cheap if the counter is [batched](PerCpuCounter::batched).
    ///
    /// The result includes this addition, to within the error. A concurrent addition may or may not
    /// be included.
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

    /// Returns whether the counter has per-CPU slots, rather than one shared word.
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

impl_debug!([W: World] PerCpuCounter<W> as it { value: it.read_exact(), slots: it.spread, .. });
