//! [`PerCpuFold`]: the maximum, the minimum or the floating-point sum of what all CPUs record.

use core::fmt;
use core::marker::PhantomData;

use coreline_world::restartable::NoSlot;
use coreline_world::restartable::definition::{Load, StoreIfEqual};
use coreline_world::{Native, Ordering, Word, World};

use super::spread::Spread;
use crate::percpu::{PerCpuPool, StopError, Stopped};
use crate::{IndexBy, Lacking};

/// The largest value that was recorded, of `u64`, `i64` or `f64`.
#[derive(Debug)]
pub struct Max<T>(PhantomData<T>);

/// The smallest value that was recorded, of `u64`, `i64` or `f64`.
#[derive(Debug)]
pub struct Min<T>(PhantomData<T>);

/// The sum of all values that were recorded, of `f64`. For integers there are
/// [`PerCpuCounter`](super::PerCpuCounter) and [`Total`](super::Total), which are faster.
#[derive(Debug)]
pub struct Sum<T>(PhantomData<T>);

/// How two values become one: [`Max`], [`Min`] or [`Sum`].
///
/// In any order, and starting from [`IDENTITY`](Fold::IDENTITY), the result is the same; but for
/// the rounding of sums.
pub trait Fold: sealed::Sealed + Send + Sync + Unpin + 'static {
    /// What is recorded.
    type Value: Copy + PartialEq + fmt::Debug;

    /// What is read before anything was recorded: the least value of a [`Max`], the greatest of a
    /// [`Min`] (of `f64`, an infinity), and 0.
    const IDENTITY: Self::Value;

    /// One of two.
    fn fold(left: Self::Value, right: Self::Value) -> Self::Value;

    /// As it lies in a word.
    fn to_bits(value: Self::Value) -> u64;

    /// As it lay in a word.
    fn from_bits(bits: u64) -> Self::Value;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! fold {
    ($($fold:ident<$value:ident>: $identity:expr, $with:expr, $to:expr, $from:expr;)+) => {
        $(
            impl sealed::Sealed for $fold<$value> {}

            impl Fold for $fold<$value> {
                type Value = $value;

                const IDENTITY: $value = $identity;

                #[inline]
                fn fold(left: $value, right: $value) -> $value {
                    $with(left, right)
                }

                #[inline]
                fn to_bits(value: $value) -> u64 {
                    $to(value)
                }

                #[inline]
                fn from_bits(bits: u64) -> $value {
                    $from(bits)
                }
            }
        )+
    };
}

fold! {
    Max<u64>: u64::MIN, Ord::max, u64::into, u64::into;
    Min<u64>: u64::MAX, Ord::min, u64::into, u64::into;
    Max<i64>: i64::MIN, Ord::max, i64::cast_unsigned, u64::cast_signed;
    Min<i64>: i64::MAX, Ord::min, i64::cast_unsigned, u64::cast_signed;
    Max<f64>: f64::NEG_INFINITY, f64::max, f64::to_bits, f64::from_bits;
    Min<f64>: f64::INFINITY, f64::min, f64::to_bits, f64::from_bits;
    Sum<f64>: 0.0, |left: f64, right: f64| left + right, f64::to_bits, f64::from_bits;
}

/// The [`Max`], [`Min`] or [`Sum`] of what is recorded, with a word for each CPU that records: a
/// high-water mark without a line that all CPUs share.
///
/// ```
/// use coreline::counter::{Max, PerCpuFold};
///
/// static LONGEST_QUEUE: PerCpuFold<Max<u64>> = PerCpuFold::const_new();
///
/// LONGEST_QUEUE.record(3);
/// LONGEST_QUEUE.record(2);
/// assert_eq!(LONGEST_QUEUE.read(), 3);
/// assert_eq!(LONGEST_QUEUE.drain()?, 3);
/// assert_eq!(LONGEST_QUEUE.read(), 0);
/// # Ok::<(), coreline::percpu::StopError>(())
/// ```
///
/// A value that changes nothing, as most that are recorded for a maximum do not, writes nothing.
/// `f64`: a NaN is ignored by a maximum and by a minimum, and makes a sum NaN until it is drained.
/// A sum's rounding depends on which CPU recorded what.
///
/// **Memory**: as [`PerCpuCounter`](super::PerCpuCounter).
///
/// **Signals**: recording and reading is async-signal-safe, but for the first record of one made by
/// [`const_new`](PerCpuFold::const_new), which allocates.
///
/// **Fork**: as [`PerCpuCounter`](super::PerCpuCounter), but for a [`drain`](PerCpuFold::drain)
/// that is under way: it empties one slot after the other, and what it took before the fork is
/// missing in the child.
pub struct PerCpuFold<F: Fold, W: World = Native> {
    spread: Spread<W::U64, W>,
    fold: PhantomData<F>,
}

impl<F: Fold> PerCpuFold<F> {
    /// One of which nothing is recorded, indexed by CPU number, from the process's global pool.
    ///
    /// # Errors
    ///
    /// None natively; see [`new_in`](PerCpuFold::new_in).
    pub fn new() -> Result<Self, Lacking> {
        Self::new_in(IndexBy::Cpu)
    }

    /// As [`new`](PerCpuFold::new), with the slots indexed as asked.
    ///
    /// # Errors
    ///
    /// As [`new_in`](PerCpuFold::new_in).
    pub fn indexed_by(by: IndexBy) -> Result<Self, Lacking> {
        Self::new_in(by)
    }

    /// As [`new`](PerCpuFold::new), for statics. The first record allocates, so that one is not
    /// async-signal-safe; it does all that the first addition to a
    /// [counter](super::PerCpuCounter::const_new) does.
    pub const fn const_new() -> Self {
        PerCpuFold { spread: Spread::const_new(), fold: PhantomData }
    }
}

impl<F: Fold> Default for PerCpuFold<F> {
    /// As [`const_new`](PerCpuFold::const_new).
    fn default() -> Self {
        Self::const_new()
    }
}

/// What words begin as.
fn identity<F: Fold, W: World>() -> W::U64 {
    W::U64::new_in(F::to_bits(F::IDENTITY))
}

impl<F: Fold, W: World> PerCpuFold<F, W> {
    /// One of which nothing is recorded in world `W`, with the slots indexed as asked, from the
    /// world's global pool.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    pub fn new_in(by: IndexBy) -> Result<Self, Lacking> {
        Ok(Self::from_pool(&PerCpuPool::global_in(by)?))
    }

    /// One of which nothing is recorded, whose slots come from this pool.
    pub fn from_pool(pool: &PerCpuPool<W>) -> Self {
        let spread = Spread::new_in(pool.clone(), identity::<F, W>);
        PerCpuFold { spread, fold: PhantomData }
    }

    /// Records a value. Orders nothing: a record publishes only itself.
    #[inline]
    pub fn record(&self, value: F::Value) {
        // SAFETY: it is one word.
        let word = unsafe { self.spread.at(0) };
        while let Ok(old) = W::run(word, Load) {
            let Some(new) = Self::replaces(old, value) else {
                return;
            };
            // The thread may be on another CPU by now: what its word holds is what counts.
            match W::run(word, StoreIfEqual { expected: old, new }) {
                Ok(Ok(())) => return,
                Ok(Err(_)) => {}
                Err(NoSlot) => break,
            }
        }
        self.record_otherwise(value);
    }

    #[inline(never)]
    fn record_otherwise(&self, value: F::Value) {
        match self.spread.note_addition(true, identity::<F, W>) {
            Ok(slots) => {
                let word = slots.field(|word| word);
                let mut old = word.load();
                while let Some(new) = Self::replaces(old, value) {
                    match word.store_if_equal(old, new) {
                        Ok(()) => return,
                        Err(now) => old = now,
                    }
                }
            }
            Err(compact) => {
                // Relaxed, here and below: a word carries nothing but its own value.
                let mut old = compact.load(Ordering::Relaxed);
                while let Some(new) = Self::replaces(old, value) {
                    // Relaxed: see the load.
                    let (done, failed) = (Ordering::Relaxed, Ordering::Relaxed);
                    match compact.compare_exchange_weak(old, new, done, failed) {
                        Ok(_) => return,
                        Err(now) => old = now,
                    }
                }
            }
        }
    }

    /// What is to be in a word that holds `old`, if it is something else.
    #[inline]
    fn replaces(old: u64, value: F::Value) -> Option<u64> {
        let new = F::to_bits(F::fold(F::from_bits(old), value));
        (new != old).then_some(new)
    }

    /// The maximum, minimum or sum of what was recorded; [`Fold::IDENTITY`] if nothing was. Reads
    /// one line for each CPU that recorded.
    ///
    /// Records that happened before the call are in; each concurrent one is in or out. It is no
    /// snapshot: while another thread [drains](PerCpuFold::drain), the part that it has not come to
    /// yet is read.
    pub fn read(&self) -> F::Value {
        // Relaxed: a word carries nothing but its own value. What happened before this call is seen
        // because reads of one word never go back.
        let value = |word: &W::U64| F::from_bits(word.load(Ordering::Relaxed));
        let slots = self.spread.slots().into_iter().flat_map(|slots| slots.iter());
        self.spread.shared().into_iter().chain(slots).map(value).fold(F::IDENTITY, F::fold)
    }

    /// As [`read`](PerCpuFold::read), and begins anew, which loses nothing: each record is in what
    /// one call returns, or in what is read afterwards.
    ///
    /// It stops the slots, which costs one fence of all CPUs that the process runs on, and records
    /// that come meanwhile an atomic instruction: for reports, not for each request.
    ///
    /// # Errors
    ///
    /// [`StopError`] if the machine cannot fence restartable sections, or if a signal handler
    /// interrupted a call on the same value. Nothing was taken.
    pub fn drain(&self) -> Result<F::Value, StopError> {
        let empty = F::to_bits(F::IDENTITY);
        let taken =
            |slot: Stopped<'_, W::U64, W>| F::from_bits(slot.field(|word| word).replace(empty));
        let slots = self.spread.with_all_stopped(|all| all.map(taken).fold(F::IDENTITY, F::fold));
        let slots = slots.transpose()?.unwrap_or(F::IDENTITY);
        // Relaxed: a word carries nothing but its own value.
        let compact = self.spread.shared().map(|word| word.swap(empty, Ordering::Relaxed));
        Ok(compact.map_or(slots, |bits| F::fold(slots, F::from_bits(bits))))
    }

    /// Whether there are slots, rather than one word.
    pub fn is_spread(&self) -> bool {
        self.spread.slots().is_some()
    }
}

impl<F: Fold, W: World> fmt::Debug for PerCpuFold<F, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCpuFold")
            .field("value", &self.read())
            .field("slots", &self.spread)
            .finish_non_exhaustive()
    }
}
